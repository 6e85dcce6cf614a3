/* SPDX-License-Identifier: MIT
 *
 * libffn for C++17 and newer: ffn.h, whose words and fields these are, with handles that free themselves, and arrays that know their length.
 *
 *     ffn::layer_options options;
 *     options.activation = FFN_ACTIVATION_GELU;
 *     options.residual = FFN_RESIDUAL_INPUT;
 *     options.norm[FFN_NORM_IN] = FFN_NORM_LAYER;
 *     ffn::layer layer(options, {ffn::tensor(FFN_ROLE_UP_WEIGHT, up, {2048, 512}), ffn::tensor(FFN_ROLE_DOWN_WEIGHT, down, {512, 2048})});
 *     layer.forward(x, y);                                             std::vector<float>, or anything with data() and size()
 *
 * A layer made with FFN_LAYER_TRAINABLE is trained by layer.record(tape, x, y), layer.backward(tape, d_y, d_x, gradients) and layer.update(tensors).
 * ffn_moe.hpp and ffn_moe_training.hpp have the mixtures of experts, ffn_conv.hpp the convolutional layer, ffn_health.hpp what hidden units and tensors
 * do, ffn_io.hpp the layers of checkpoints.
 *
 * Two forms of each function that can fail. `name` throws ffn::error, with the status and the library's sentence. `try_name` is noexcept and
 * returns the status; ffn::last_error() then has the sentence, and what it would have made is as before. With -fno-exceptions the second form
 * is the only one. No function here allocates memory of its own, in either form.
 *
 * Where a context is asked for, nullptr means the calling thread alone, as everywhere in libffn. What has no class here is used as in C, with
 * get(): a handle is one pointer and what a call asks of it.
 */
#ifndef FFN_FFN_HPP
#define FFN_FFN_HPP

#include <ffn/ffn_base.hpp>

#include <initializer_list>
#include <iterator>

namespace ffn {

/* --------------------------------------------------------------- Contexts */

using context_options = detail::sized<ffn_context_options_t>;

class context : public detail::owner<ffn_context_t, ffn_context_free> {
public:
    using owner::owner;

    ffn_status_t try_create(const ffn_context_options_t &options) noexcept {
        ffn_context_t *made = nullptr;
        ffn_status_t status = detail::told(ffn_context_create(&options, &made));
        if (status == FFN_OK) reset(made);
        return status;
    }

    ffn_status_t try_reserve(const ffn_layer_t *layer, std::int64_t tokens) noexcept {
        return detail::told(ffn_context_reserve(get(), layer, tokens));
    }

    ffn_status_t try_info(ffn_context_info_t &info) const noexcept {
        info.struct_size = sizeof info;
        return detail::told(ffn_context_info(get(), &info));
    }

#if FFN_EXCEPTIONS
    explicit context(const ffn_context_options_t &options) { detail::check(try_create(options)); }
    void reserve(const ffn_layer_t *layer, std::int64_t tokens) { detail::check(try_reserve(layer, tokens)); }
    ffn_context_info_t info() const {
        ffn_context_info_t info = {};
        detail::check(try_info(info));
        return info;
    }
#endif
};

namespace detail {

inline ffn_context_t *handle_of(context *in) noexcept { return in ? in->get() : nullptr; }

} // namespace detail

/* ---------------------------------------------------------------- Tensors */

/* A view whose element [0, 0] is at `first`, with strides in bytes; no strides: contiguous. That it lies within an array is the caller's word. */
inline ffn_tensor_t tensor_at(std::uint32_t role, const float *first, std::initializer_list<std::int64_t> shape,
                              std::initializer_list<std::int64_t> stride = {}) noexcept {
    ffn_tensor_t made = {};
    made.role = role;
    made.ndim = static_cast<std::uint32_t>(shape.size());
    made.data = const_cast<float *>(first); /* only ffn_layer_read writes */
    std::size_t i = 0;
    for (std::int64_t size : shape)
        if (i < std::size(made.shape)) made.shape[i++] = size;
    i = 0;
    for (std::int64_t bytes : stride)
        if (i < std::size(made.stride)) made.stride[i++] = bytes;
    return made;
}

/* A whole array, the last dimension fastest: its size must be the product of the shape. */
inline ffn_status_t try_tensor(ffn_tensor_t &made, std::uint32_t role, span<const float> array, std::initializer_list<std::int64_t> shape) noexcept {
    std::size_t left = array.size();
    bool fits = true;
    for (std::int64_t size : shape) {
        fits = fits && size > 0 && left % static_cast<std::size_t>(size) == 0;
        if (fits) left /= static_cast<std::size_t>(size);
    }
    if (!fits || left != 1) return detail::fail(FFN_INVALID, "the array for role %u has %zu numbers, its shape another product", role, array.size());
    made = tensor_at(role, array.data(), shape);
    return FFN_OK;
}

#if FFN_EXCEPTIONS
inline ffn_tensor_t tensor(std::uint32_t role, span<const float> array, std::initializer_list<std::int64_t> shape) {
    ffn_tensor_t made = {};
    detail::check(try_tensor(made, role, array, shape));
    return made;
}
#endif

/* The same for what is written: the gradient of a tensor. Strides: tensor_at. */
inline ffn_status_t try_gradient(ffn_tensor_t &made, std::uint32_t role, span<float> array, std::initializer_list<std::int64_t> shape) noexcept {
    return try_tensor(made, role, span<const float>(array.data(), array.size()), shape);
}

#if FFN_EXCEPTIONS
inline ffn_tensor_t gradient(std::uint32_t role, span<float> array, std::initializer_list<std::int64_t> shape) {
    ffn_tensor_t made = {};
    detail::check(try_gradient(made, role, array, shape));
    return made;
}
#endif

/* ------------------------------------------------------------------ Tapes */

using dropout_options = detail::sized<ffn_dropout_t>;
using tape_options = detail::sized<ffn_tape_options_t>;
using backward_options = detail::sized<ffn_backward_t>;

/* What layer::record leaves for layer::backward. It borrows x, which must stay as it is until then. One call at a time. */
class tape : public detail::owner<ffn_tape_t, ffn_tape_free> {
public:
    using owner::owner;

    ffn_status_t try_create(const ffn_tape_options_t &options = tape_options()) noexcept {
        ffn_tape_t *made = nullptr;
        ffn_status_t status = detail::told(ffn_tape_create(&options, &made));
        if (status == FFN_OK) reset(made);
        return status;
    }

    ffn_status_t try_reserve(const ffn_layer_t *layer, std::int64_t tokens) noexcept {
        tokens_ = 0; /* what was recorded is lost */
        return detail::told(ffn_tape_reserve(get(), layer, tokens));
    }

#if FFN_EXCEPTIONS
    explicit tape(const ffn_tape_options_t &options) { detail::check(try_create(options)); }
    void reserve(const ffn_layer_t *layer, std::int64_t tokens) { detail::check(try_reserve(layer, tokens)); }
#endif

private:
    friend class layer;
    std::size_t tokens_ = 0; /* that layer::record recorded: what else records is not seen */
};

/* ----------------------------------------------------------------- Layers */

using layer_options = detail::sized<ffn_layer_options_t>;
using run_options = detail::sized<ffn_run_t>;

/* Threads share a layer: its const functions may be called at once. */
class layer : public detail::owner<ffn_layer_t, ffn_layer_free> {
public:
    layer() noexcept = default;
    explicit layer(ffn_layer_t *handle) noexcept { adopt(handle); }

    ffn_status_t try_create(ffn_layer_options_t options, span<const ffn_tensor_t> tensors, context *in = nullptr) noexcept {
        ffn_layer_t *made = nullptr;
        options.tensors = tensors.data();
        options.tensor_count = tensors.size();
        ffn_status_t status = detail::told(ffn_layer_create(detail::handle_of(in), &options, &made));
        if (status == FFN_OK) adopt(made);
        return status;
    }

    /* x has any number of rows of d_model; y as many of d_out. y may be x. */
    ffn_status_t try_forward(span<const float> x, span<float> y, context *in = nullptr) const noexcept {
        const std::size_t tokens = x.size() / d_model_;
        if (!are_rows(x.size(), y.size())) return wrong_sizes(x.size(), y.size());
        return detail::told(ffn_layer_forward(get(), detail::handle_of(in), static_cast<std::int64_t>(tokens), x.data(), 0, y.data(), 0));
    }

    /* The same with what else a run has: stats, moe, dropout, a residual, whose pointers are the caller's word. x is options.batch sequences (0: one) of
     * equal length; the length, x and y and their strides are filled in here. */
    ffn_status_t try_forward(span<const float> x, span<float> y, ffn_run_t options, context *in = nullptr) const noexcept {
        ffn_status_t status = fill(options, x, y);
        return status == FFN_OK ? try_run(options, in) : status;
    }

    /* Sequences, strides, an external residual: the pointers in it are the caller's word. */
    ffn_status_t try_run(const ffn_run_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_layer_run(get(), detail::handle_of(in), &options));
    }

    /* Training: try_forward onto a tape, for try_backward. All of x is one sequence to dropout (nullptr: none). y must not be x. */
    ffn_status_t try_record(tape &onto, span<const float> x, span<float> y, const ffn_dropout_t *dropout = nullptr,
                            context *in = nullptr) const noexcept {
        run_options options;
        options.dropout = dropout;
        return try_record(onto, x, y, options, in);
    }

    /* The same with what else a run has, as in try_forward. */
    ffn_status_t try_record(tape &onto, span<const float> x, span<float> y, ffn_run_t options, context *in = nullptr) const noexcept {
        ffn_status_t status = fill(options, x, y);
        if (status == FFN_OK && !onto) status = detail::fail(FFN_INVALID, "%s", "the tape is empty: create it first");
        options.tape = onto.get();
        if (status == FFN_OK) status = try_run(options, in);
        if (status == FFN_OK) onto.tokens_ = x.size() / d_model_;
        return status;
    }

    /* The backward pass of what try_record recorded (after a try_run onto the tape: the form with options alone), from the derivatives of a loss by y, as
     * many as y had: those by x go into d_x, as many as x had (it may be d_y; empty: not wanted), those by tensors into `gradients`, by role. accumulate
     * adds to what the gradients hold. */
    ffn_status_t try_backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, bool accumulate = false,
                              context *in = nullptr) const noexcept {
        backward_options options;
        options.flags = accumulate ? std::uint32_t{FFN_BACKWARD_ACCUMULATE} : 0;
        return try_backward(recorded, d_y, d_x, gradients, options, in);
    }

    /* The same with what else a backward pass has: flags, moe. Tape, d_y, d_x, their strides and the gradients are filled in here. */
    ffn_status_t try_backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, ffn_backward_t options,
                              context *in = nullptr) const noexcept {
        const std::size_t tokens = recorded.tokens_;
        if (d_y.size() != tokens * d_out_ || (!d_x.empty() && d_x.size() != tokens * d_model_))
            return detail::fail(FFN_INVALID, "d_y has %zu numbers and d_x %zu, must have %zu and %zu (or 0), for the %zu tokens of the tape", d_y.size(),
                                d_x.size(), tokens * d_out_, tokens * d_model_, tokens);
        options.tape = recorded.get();
        options.d_y = d_y.data();
        options.d_x = d_x.data();
        for (std::size_t i = 0; i < std::size(options.d_y_stride); i++) options.d_y_stride[i] = options.d_x_stride[i] = 0;
        options.gradients = gradients.data();
        options.gradient_count = gradients.size();
        return try_backward(options, in);
    }

    /* With strides, an external residual's derivatives, of what try_run recorded: the pointers in it are the caller's word. */
    ffn_status_t try_backward(const ffn_backward_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_layer_backward(get(), detail::handle_of(in), &options));
    }

    /* Puts new values of some tensors into a trainable layer. No other call may be using it. */
    ffn_status_t try_update(span<const ffn_tensor_t> tensors, context *in = nullptr) noexcept {
        return detail::told(ffn_layer_update(get(), detail::handle_of(in), tensors.data(), tensors.size()));
    }

    /* Gives the weights of one role back, contiguous. */
    ffn_status_t try_read(std::uint32_t role, span<float> out, std::initializer_list<std::int64_t> shape) const noexcept {
        ffn_tensor_t view = {};
        ffn_status_t status = try_tensor(view, role, span<const float>(out.data(), out.size()), shape);
        return status == FFN_OK ? detail::told(ffn_layer_read(get(), &view, 1)) : status;
    }

    ffn_status_t try_info(ffn_layer_info_t &info) const noexcept {
        info.struct_size = sizeof info;
        return detail::told(ffn_layer_info(get(), &info));
    }

#if FFN_EXCEPTIONS
    layer(const ffn_layer_options_t &options, span<const ffn_tensor_t> tensors, context *in = nullptr) {
        detail::check(try_create(options, tensors, in));
    }
    layer(const ffn_layer_options_t &options, std::initializer_list<ffn_tensor_t> tensors, context *in = nullptr)
        : layer(options, span<const ffn_tensor_t>(tensors.begin(), tensors.size()), in) {}

    void forward(span<const float> x, span<float> y, context *in = nullptr) const { detail::check(try_forward(x, y, in)); }
    void forward(span<const float> x, span<float> y, const ffn_run_t &options, context *in = nullptr) const {
        detail::check(try_forward(x, y, options, in));
    }
    void run(const ffn_run_t &options, context *in = nullptr) const { detail::check(try_run(options, in)); }
    void record(tape &onto, span<const float> x, span<float> y, const ffn_dropout_t *dropout = nullptr, context *in = nullptr) const {
        detail::check(try_record(onto, x, y, dropout, in));
    }
    void record(tape &onto, span<const float> x, span<float> y, const ffn_run_t &options, context *in = nullptr) const {
        detail::check(try_record(onto, x, y, options, in));
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, bool accumulate = false,
                  context *in = nullptr) const {
        detail::check(try_backward(recorded, d_y, d_x, gradients, accumulate, in));
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, std::initializer_list<ffn_tensor_t> gradients, bool accumulate = false,
                  context *in = nullptr) const {
        backward(recorded, d_y, d_x, span<const ffn_tensor_t>(gradients.begin(), gradients.size()), accumulate, in);
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, const ffn_backward_t &options,
                  context *in = nullptr) const {
        detail::check(try_backward(recorded, d_y, d_x, gradients, options, in));
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, std::initializer_list<ffn_tensor_t> gradients, const ffn_backward_t &options,
                  context *in = nullptr) const {
        backward(recorded, d_y, d_x, span<const ffn_tensor_t>(gradients.begin(), gradients.size()), options, in);
    }
    void backward(const ffn_backward_t &options, context *in = nullptr) const { detail::check(try_backward(options, in)); }
    void update(span<const ffn_tensor_t> tensors, context *in = nullptr) { detail::check(try_update(tensors, in)); }
    void update(std::initializer_list<ffn_tensor_t> tensors, context *in = nullptr) {
        update(span<const ffn_tensor_t>(tensors.begin(), tensors.size()), in);
    }
    void read(std::uint32_t role, span<float> out, std::initializer_list<std::int64_t> shape) const { detail::check(try_read(role, out, shape)); }
    ffn_layer_info_t info() const {
        ffn_layer_info_t info = {};
        detail::check(try_info(info));
        return info;
    }
#endif

    /* Takes over a handle; the one that was there is freed. */
    void adopt(ffn_layer_t *handle) noexcept {
        ffn_layer_info_t info = {};
        reset(handle);
        if (handle && try_info(info) == FFN_OK) {
            d_model_ = static_cast<std::size_t>(info.d_model);
            d_out_ = static_cast<std::size_t>(info.d_out);
        }
    }

private:
    /* Whether there is a layer, and x and y are as many of its rows. */
    bool are_rows(std::size_t x, std::size_t y) const noexcept {
        return get() && x % d_model_ == 0 && y % d_out_ == 0 && x / d_model_ == y / d_out_;
    }

    /* Contiguous rows, all of x and y, into a run's options. */
    ffn_status_t fill(ffn_run_t &options, span<const float> x, span<float> y) const noexcept {
        const auto tokens = static_cast<std::int64_t>(x.size() / d_model_);
        if (!are_rows(x.size(), y.size())) return wrong_sizes(x.size(), y.size());
        if (options.batch == 0) options.batch = 1;
        if (options.batch < 0 || tokens % options.batch)
            return detail::fail(FFN_INVALID, "x has %lld rows: not those of %lld sequences (batch)", static_cast<long long>(tokens),
                                static_cast<long long>(options.batch));
        options.length = tokens / options.batch;
        options.x = x.data();
        options.y = y.data();
        for (std::size_t i = 0; i < std::size(options.x_stride); i++) options.x_stride[i] = options.y_stride[i] = 0;
        return FFN_OK;
    }

    ffn_status_t wrong_sizes(std::size_t x, std::size_t y) const noexcept {
        if (!get()) return detail::fail(FFN_INVALID, "%s", "the layer is empty");
        return detail::fail(FFN_INVALID, "x has %zu numbers and y %zu, must have tokens * %zu (d_model) and tokens * %zu (d_out)", x, y, d_model_,
                            d_out_);
    }

    std::size_t d_model_ = 1, d_out_ = 1;
};

/* The d_ff that gives a gated layer the parameters of a dense one: 2/3 d_ff, rounded up to a multiple. */
inline ffn_status_t try_gated_d_ff(std::int64_t &gated, std::int64_t d_ff, std::int64_t multiple = 1) noexcept {
    return detail::told(ffn_gated_d_ff(d_ff, multiple, &gated));
}

/* FFN_ACTIVATION_* of a name: "gelu_tanh". */
inline ffn_status_t try_activation(std::uint32_t &activation, const char *name) noexcept {
    return detail::told(ffn_activation_from_name(name, &activation));
}

#if FFN_EXCEPTIONS
inline std::int64_t gated_d_ff(std::int64_t d_ff, std::int64_t multiple = 1) {
    std::int64_t gated = 0;
    detail::check(try_gated_d_ff(gated, d_ff, multiple));
    return gated;
}
inline std::uint32_t activation(const char *name) {
    std::uint32_t found = 0;
    detail::check(try_activation(found, name));
    return found;
}
#endif

/* -------------------------------------------- Initialisation and optimisers */

using init_options = detail::sized<ffn_init_options_t>;
using sgd_options = detail::sized<ffn_sgd_options_t>;
using adamw_options = detail::sized<ffn_adamw_options_t>;

inline ffn_status_t try_weight_init(span<float> values, const ffn_init_options_t &options) noexcept {
    return detail::told(ffn_weight_init(values.data(), static_cast<std::int64_t>(values.size()), &options));
}

/* velocity may be empty where there is no momentum. */
inline ffn_status_t try_sgd_step(const ffn_sgd_options_t &options, span<float> weight, span<const float> gradient, span<float> velocity = {},
                                 context *in = nullptr) noexcept {
    const std::size_t n = weight.size();
    if (gradient.size() != n || (!velocity.empty() && velocity.size() != n))
        return detail::fail(FFN_INVALID, "gradient has %zu numbers and velocity %zu, weight %zu", gradient.size(), velocity.size(), n);
    return detail::told(ffn_sgd_step(detail::handle_of(in), &options, static_cast<std::int64_t>(n), weight.data(), gradient.data(),
                                     detail::or_null(velocity)));
}

inline ffn_status_t try_adamw_step(const ffn_adamw_options_t &options, span<float> weight, span<const float> gradient, span<float> first,
                                   span<float> second, context *in = nullptr) noexcept {
    const std::size_t n = weight.size();
    if (gradient.size() != n || first.size() != n || second.size() != n)
        return detail::fail(FFN_INVALID, "gradient has %zu numbers, first %zu and second %zu, weight %zu", gradient.size(), first.size(),
                            second.size(), n);
    return detail::told(ffn_adamw_step(detail::handle_of(in), &options, static_cast<std::int64_t>(n), weight.data(), gradient.data(),
                                       first.data(), second.data()));
}

/* arrays[i] has counts[i] numbers: the caller's word. */
inline ffn_status_t try_clip_global_norm(double &norm, span<float *const> arrays, span<const std::int64_t> counts, double max_norm,
                                         context *in = nullptr) noexcept {
    if (arrays.size() != counts.size()) return detail::fail(FFN_INVALID, "there are %zu arrays and %zu counts", arrays.size(), counts.size());
    return detail::told(ffn_clip_global_norm(detail::handle_of(in), arrays.data(), counts.data(), arrays.size(), max_norm, &norm));
}

#if FFN_EXCEPTIONS
inline void weight_init(span<float> values, const ffn_init_options_t &options) { detail::check(try_weight_init(values, options)); }
inline void sgd_step(const ffn_sgd_options_t &options, span<float> weight, span<const float> gradient, span<float> velocity = {},
                     context *in = nullptr) {
    detail::check(try_sgd_step(options, weight, gradient, velocity, in));
}
inline void adamw_step(const ffn_adamw_options_t &options, span<float> weight, span<const float> gradient, span<float> first, span<float> second,
                       context *in = nullptr) {
    detail::check(try_adamw_step(options, weight, gradient, first, second, in));
}
inline double clip_global_norm(span<float *const> arrays, span<const std::int64_t> counts, double max_norm, context *in = nullptr) {
    double norm = 0;
    detail::check(try_clip_global_norm(norm, arrays, counts, max_norm, in));
    return norm;
}
#endif

} // namespace ffn

#endif
