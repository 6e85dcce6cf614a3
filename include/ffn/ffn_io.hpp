/* SPDX-License-Identifier: MIT
 *
 * libffn-io for C++17 and newer: the layers of published checkpoints, by the rules of ffn.hpp.
 *
 *     ffn::model model("model.safetensors");
 *     ffn::layer layer = model.create(0);                              weights copied: the model may go
 */
#ifndef FFN_FFN_IO_HPP
#define FFN_FFN_IO_HPP

#include <ffn/ffn.hpp>
#include <ffn/ffn_io.h>

namespace ffn {

namespace detail {

inline ffn_status_t told_by_io(ffn_status_t status) noexcept { return status == FFN_OK ? status : fail(status, "%s", ffn_io_last_error()); }

} // namespace detail

using model_options = detail::sized<ffn_model_options_t>;

/* Threads share a model: its const functions may be called at once. Strings and descriptions that it hands out live as long as it does. */
class model : public detail::owner<ffn_model_t, ffn_model_free> {
public:
    using owner::owner;

    ffn_status_t try_open(const char *path, const ffn_model_options_t &options = model_options()) noexcept {
        ffn_model_t *opened = nullptr;
        ffn_status_t status = detail::told_by_io(ffn_model_open(path, &options, &opened));
        if (status == FFN_OK) reset(opened);
        return status;
    }

    ffn_status_t try_info(ffn_model_info_t &info) const noexcept {
        info.struct_size = sizeof info;
        return detail::told_by_io(ffn_model_info(get(), &info));
    }

    ffn_status_t try_tensor(ffn_model_tensor_t &tensor, std::int64_t index) const noexcept {
        tensor.struct_size = sizeof tensor;
        return detail::told_by_io(ffn_model_tensor(get(), index, &tensor));
    }

    ffn_status_t try_find(std::int64_t &index, const char *name) const noexcept { return detail::told_by_io(ffn_model_find(get(), name, &index)); }

    /* As float32, in the file's order; out has as many numbers as the tensor. */
    ffn_status_t try_read(std::int64_t index, span<float> out) const noexcept {
        ffn_model_tensor_t tensor = {};
        ffn_status_t status = try_tensor(tensor, index);
        if (status != FFN_OK) return status;
        if (out.size() != static_cast<std::size_t>(tensor.elements))
            return detail::fail(FFN_INVALID, "out has %zu numbers, the tensor %lld", out.size(), static_cast<long long>(tensor.elements));
        return detail::told_by_io(ffn_model_read(get(), index, out.data()));
    }

    /* What layer `index` is. To change something, change a copy, and give that to create. */
    ffn_status_t try_describe(const ffn_model_layer_t *&found, std::int64_t index) const noexcept {
        return detail::told_by_io(ffn_model_layer(get(), index, &found));
    }

    ffn_status_t try_create(layer &made, const ffn_model_layer_t &description, context *in = nullptr) const noexcept {
        ffn_layer_t *handle = nullptr;
        ffn_status_t status = detail::told_by_io(ffn_model_layer_create(get(), detail::handle_of(in), &description, &handle));
        if (status == FFN_OK) made.adopt(handle);
        return status;
    }

    ffn_status_t try_create(layer &made, std::int64_t index, context *in = nullptr) const noexcept {
        const ffn_model_layer_t *found = nullptr;
        ffn_status_t status = try_describe(found, index);
        return status == FFN_OK ? try_create(made, *found, in) : status;
    }

#if FFN_EXCEPTIONS
    explicit model(const char *path, const ffn_model_options_t &options = model_options()) { detail::check(try_open(path, options)); }

    ffn_model_info_t info() const {
        ffn_model_info_t info = {};
        detail::check(try_info(info));
        return info;
    }
    ffn_model_tensor_t tensor(std::int64_t index) const {
        ffn_model_tensor_t tensor = {};
        detail::check(try_tensor(tensor, index));
        return tensor;
    }
    std::int64_t find(const char *name) const {
        std::int64_t index = -1;
        detail::check(try_find(index, name));
        return index;
    }
    void read(std::int64_t index, span<float> out) const { detail::check(try_read(index, out)); }
    const ffn_model_layer_t &describe(std::int64_t index) const {
        const ffn_model_layer_t *found = nullptr;
        detail::check(try_describe(found, index));
        return *found;
    }
    layer create(std::int64_t index, context *in = nullptr) const {
        layer made;
        detail::check(try_create(made, index, in));
        return made;
    }
    layer create(const ffn_model_layer_t &description, context *in = nullptr) const {
        layer made;
        detail::check(try_create(made, description, in));
        return made;
    }
#endif
};

} // namespace ffn

#endif
