/* SPDX-License-Identifier: MIT
 *
 * The convolutional layer for C++17 and newer, by the rules of ffn.hpp.
 *
 *     ffn::conv_options options;
 *     options.activation = FFN_ACTIVATION_RELU;
 *     ffn::conv conv(options, {ffn::tensor(FFN_ROLE_UP_WEIGHT, up, {2048, 512, 9}), ffn::tensor(FFN_ROLE_DOWN_WEIGHT, down, {512, 2048})});
 *     conv.forward(batch, x, y);                                        batch sequences of equal length
 */
#ifndef FFN_FFN_CONV_HPP
#define FFN_FFN_CONV_HPP

#include <ffn/ffn.hpp>

namespace ffn {

using conv_options = detail::sized<ffn_conv_options_t>;
using conv_run = detail::sized<ffn_conv_run_t>;

/* Threads share it: its const functions may be called at once. */
class conv : public detail::owner<ffn_conv_t, ffn_conv_free> {
public:
    conv() noexcept = default;
    explicit conv(ffn_conv_t *handle) noexcept { adopt(handle); }

    ffn_status_t try_create(ffn_conv_options_t options, span<const ffn_tensor_t> tensors, context *in = nullptr) noexcept {
        ffn_conv_t *made = nullptr;
        options.tensors = tensors.data();
        options.tensor_count = tensors.size();
        ffn_status_t status = detail::told(ffn_conv_create(detail::handle_of(in), &options, &made));
        if (status == FFN_OK) adopt(made);
        return status;
    }

    /* x has `batch` sequences of equally many rows of d_model; y as many of d_out. mask, one number for each row, is 0 at padding; empty: none is. */
    ffn_status_t try_forward(std::size_t batch, span<const float> x, span<float> y, span<const std::uint8_t> mask = {},
                             context *in = nullptr) const noexcept {
        const std::size_t rows = x.size() / d_model_;
        if (!get()) return detail::fail(FFN_INVALID, "%s", "the layer is empty");
        if (x.size() % d_model_ || y.size() % d_out_ || y.size() / d_out_ != rows || (batch ? rows % batch : rows) || (!mask.empty() && mask.size() != rows))
            return detail::fail(FFN_INVALID, "x has %zu numbers, y %zu and the mask %zu: not those of %zu sequences of rows of %zu (d_model), %zu (d_out)",
                                x.size(), y.size(), mask.size(), batch, d_model_, d_out_);
        conv_run options;
        options.batch = static_cast<std::int64_t>(batch);
        options.length = static_cast<std::int64_t>(batch ? rows / batch : 0);
        options.x = x.data();
        options.y = y.data();
        options.mask = detail::or_null(mask);
        return try_run(options, in);
    }

    /* Strides, dropout, a tape: the pointers in it are the caller's word, here and in try_backward. */
    ffn_status_t try_run(const ffn_conv_run_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_conv_run(get(), detail::handle_of(in), &options));
    }
    ffn_status_t try_backward(const ffn_backward_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_conv_backward(get(), detail::handle_of(in), &options));
    }

    /* Puts new values of some tensors into a trainable one. No other call may be using it. */
    ffn_status_t try_update(span<const ffn_tensor_t> tensors, context *in = nullptr) noexcept {
        return detail::told(ffn_conv_update(get(), detail::handle_of(in), tensors.data(), tensors.size()));
    }
    ffn_status_t try_reserve(std::int64_t batch, std::int64_t length, tape *onto = nullptr, context *in = nullptr) const noexcept {
        return detail::told(ffn_conv_reserve(get(), detail::handle_of(in), onto ? onto->get() : nullptr, batch, length));
    }
    ffn_status_t try_read(std::uint32_t role, span<float> out, std::initializer_list<std::int64_t> shape) const noexcept {
        ffn_tensor_t view = {};
        ffn_status_t status = try_gradient(view, role, out, shape);
        return status == FFN_OK ? detail::told(ffn_conv_read(get(), &view, 1)) : status;
    }
    ffn_status_t try_info(ffn_conv_info_t &info) const noexcept {
        info.struct_size = sizeof info;
        return detail::told(ffn_conv_info(get(), &info));
    }

#if FFN_EXCEPTIONS
    conv(const ffn_conv_options_t &options, span<const ffn_tensor_t> tensors, context *in = nullptr) {
        detail::check(try_create(options, tensors, in));
    }
    conv(const ffn_conv_options_t &options, std::initializer_list<ffn_tensor_t> tensors, context *in = nullptr)
        : conv(options, span<const ffn_tensor_t>(tensors.begin(), tensors.size()), in) {}

    void forward(std::size_t batch, span<const float> x, span<float> y, span<const std::uint8_t> mask = {}, context *in = nullptr) const {
        detail::check(try_forward(batch, x, y, mask, in));
    }
    void run(const ffn_conv_run_t &options, context *in = nullptr) const { detail::check(try_run(options, in)); }
    void backward(const ffn_backward_t &options, context *in = nullptr) const { detail::check(try_backward(options, in)); }
    void update(span<const ffn_tensor_t> tensors, context *in = nullptr) { detail::check(try_update(tensors, in)); }
    void reserve(std::int64_t batch, std::int64_t length, tape *onto = nullptr, context *in = nullptr) const {
        detail::check(try_reserve(batch, length, onto, in));
    }
    void read(std::uint32_t role, span<float> out, std::initializer_list<std::int64_t> shape) const { detail::check(try_read(role, out, shape)); }
    ffn_conv_info_t info() const {
        ffn_conv_info_t info = {};
        detail::check(try_info(info));
        return info;
    }
#endif

    /* Takes over a handle; the one that was there is freed. */
    void adopt(ffn_conv_t *handle) noexcept {
        ffn_conv_info_t info = {};
        reset(handle);
        if (handle && try_info(info) == FFN_OK) {
            d_model_ = static_cast<std::size_t>(info.d_model);
            d_out_ = static_cast<std::size_t>(info.d_out);
        }
    }

private:
    std::size_t d_model_ = 1, d_out_ = 1;
};

} // namespace ffn

#endif
