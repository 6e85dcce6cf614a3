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

#include <ffn/ffn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#if defined(__cpp_exceptions)
#define FFN_EXCEPTIONS 1
#include <exception>
#else
#define FFN_EXCEPTIONS 0
#endif

namespace ffn {

/* ----------------------------------------------------------------- Arrays */

#if defined(__cpp_lib_span)
template <class T> using span = std::span<T>;
#else
/* As much of std::span as is needed. */
template <class T> class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class Array, class Element = std::remove_pointer_t<decltype(std::data(std::declval<Array &>()))>,
              class = std::enable_if_t<std::is_convertible_v<Element (*)[], T (*)[]>>>
    constexpr span(Array &&array) noexcept : data_(std::data(array)), size_(std::size(array)) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

/* ----------------------------------------------------------------- Errors */

namespace detail {

inline constexpr std::size_t text_size = 512;

inline char *error_text() noexcept {
    static thread_local char text[text_size] = "";
    return text;
}

/* Keeps the sentence of a failure. */
template <class... Values> ffn_status_t fail(ffn_status_t status, const char *format, Values... values) noexcept {
    std::snprintf(error_text(), text_size, format, values...);
    return status;
}

inline ffn_status_t told(ffn_status_t status) noexcept { return status == FFN_OK ? status : fail(status, "%s", ffn_last_error()); }

} // namespace detail

/* The sentence of this thread's last failure of a function of this header; "" if there was none. */
inline const char *last_error() noexcept { return detail::error_text(); }

#if FFN_EXCEPTIONS
class error : public std::exception {
public:
    error(ffn_status_t status, const char *message) noexcept : status_(status) { std::snprintf(text_, sizeof text_, "%s", message); }
    ffn_status_t status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_; }

private:
    ffn_status_t status_;
    char text_[detail::text_size]; /* not a string: a copy must not fail */
};
#endif

namespace detail {

#if FFN_EXCEPTIONS
inline void check(ffn_status_t status) {
    if (status != FFN_OK) throw error(status, last_error());
}
#endif

/* A struct of options with its size filled in, all else default. */
template <class Struct> struct sized : Struct {
    sized() noexcept : Struct() { this->struct_size = sizeof(Struct); }
};

/* A handle of the C interface that frees itself. Moved, not copied; what was moved from is empty. */
template <class Handle, void (*free_handle)(Handle *)> class owner {
public:
    owner() noexcept = default;
    explicit owner(Handle *handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(other.release()) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    ~owner() { reset(); }

    Handle *get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    Handle *release() noexcept { return std::exchange(handle_, nullptr); }

protected:
    void reset(Handle *handle = nullptr) noexcept { free_handle(std::exchange(handle_, handle)); }

private:
    Handle *handle_ = nullptr;
};

} // namespace detail

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
        ffn_status_t status = detail::told(ffn_layer_create(in ? in->get() : nullptr, &options, &made));
        if (status == FFN_OK) adopt(made);
        return status;
    }

    /* x has any number of rows of d_model; y as many of d_out. y may be x. */
    ffn_status_t try_forward(span<const float> x, span<float> y, context *in = nullptr) const noexcept {
        const std::size_t tokens = x.size() / d_model_;
        if (!get() || x.size() % d_model_ || y.size() / d_out_ != tokens || y.size() % d_out_) return wrong_sizes(x.size(), y.size());
        return detail::told(ffn_layer_forward(get(), in ? in->get() : nullptr, static_cast<std::int64_t>(tokens), x.data(), 0, y.data(), 0));
    }

    /* Sequences, strides, an external residual: the pointers in it are the caller's word. */
    ffn_status_t try_run(const ffn_run_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_layer_run(get(), in ? in->get() : nullptr, &options));
    }

    /* Training: try_forward onto a tape, for try_backward. All of x is one sequence to dropout (nullptr: none); try_run has sequences. y must not be x. */
    ffn_status_t try_record(tape &onto, span<const float> x, span<float> y, const ffn_dropout_t *dropout = nullptr,
                            context *in = nullptr) const noexcept {
        const std::size_t tokens = x.size() / d_model_;
        if (!get() || x.size() % d_model_ || y.size() / d_out_ != tokens || y.size() % d_out_) return wrong_sizes(x.size(), y.size());
        if (!onto) return detail::fail(FFN_INVALID, "%s", "the tape is empty: create it first");
        run_options options;
        options.batch = 1;
        options.length = static_cast<std::int64_t>(tokens);
        options.x = x.data();
        options.y = y.data();
        options.dropout = dropout;
        options.tape = onto.get();
        ffn_status_t status = try_run(options, in);
        if (status == FFN_OK) onto.tokens_ = tokens;
        return status;
    }

    /* The backward pass of what try_record recorded (after a try_run onto the tape: the form with options), from the derivatives of a loss by y, as many as y had: those by x go into d_x, as many as x had
     * (it may be d_y; empty: not wanted), those by tensors into `gradients`, by role. accumulate adds to what the gradients hold. */
    ffn_status_t try_backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, bool accumulate = false,
                              context *in = nullptr) const noexcept {
        const std::size_t tokens = recorded.tokens_;
        if (d_y.size() != tokens * d_out_ || (!d_x.empty() && d_x.size() != tokens * d_model_))
            return detail::fail(FFN_INVALID, "d_y has %zu numbers and d_x %zu, must have %zu and %zu (or 0), for the %zu tokens of the tape", d_y.size(),
                                d_x.size(), tokens * d_out_, tokens * d_model_, tokens);
        backward_options options;
        options.flags = accumulate ? std::uint32_t{FFN_BACKWARD_ACCUMULATE} : 0;
        options.tape = recorded.get();
        options.d_y = d_y.data();
        options.d_x = d_x.data();
        options.gradients = gradients.data();
        options.gradient_count = gradients.size();
        return try_backward(options, in);
    }

    /* With strides, an external residual's derivatives, of what try_run recorded: the pointers in it are the caller's word. */
    ffn_status_t try_backward(const ffn_backward_t &options, context *in = nullptr) const noexcept {
        return detail::told(ffn_layer_backward(get(), in ? in->get() : nullptr, &options));
    }

    /* Puts new values of some tensors into a trainable layer. No other call may be using it. */
    ffn_status_t try_update(span<const ffn_tensor_t> tensors, context *in = nullptr) noexcept {
        return detail::told(ffn_layer_update(get(), in ? in->get() : nullptr, tensors.data(), tensors.size()));
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
    void run(const ffn_run_t &options, context *in = nullptr) const { detail::check(try_run(options, in)); }
    void record(tape &onto, span<const float> x, span<float> y, const ffn_dropout_t *dropout = nullptr, context *in = nullptr) const {
        detail::check(try_record(onto, x, y, dropout, in));
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, span<const ffn_tensor_t> gradients, bool accumulate = false,
                  context *in = nullptr) const {
        detail::check(try_backward(recorded, d_y, d_x, gradients, accumulate, in));
    }
    void backward(tape &recorded, span<const float> d_y, span<float> d_x, std::initializer_list<ffn_tensor_t> gradients, bool accumulate = false,
                  context *in = nullptr) const {
        backward(recorded, d_y, d_x, span<const ffn_tensor_t>(gradients.begin(), gradients.size()), accumulate, in);
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
    ffn_status_t wrong_sizes(std::size_t x, std::size_t y) const noexcept {
        if (!get()) return detail::fail(FFN_INVALID, "%s", "the layer is empty");
        return detail::fail(FFN_INVALID, "x has %zu numbers and y %zu, must have tokens * %zu (d_model) and tokens * %zu (d_out)", x, y, d_model_,
                            d_out_);
    }

    std::size_t d_model_ = 1, d_out_ = 1;
};

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
    return detail::told(ffn_sgd_step(in ? in->get() : nullptr, &options, static_cast<std::int64_t>(n), weight.data(), gradient.data(),
                                     velocity.empty() ? nullptr : velocity.data()));
}

inline ffn_status_t try_adamw_step(const ffn_adamw_options_t &options, span<float> weight, span<const float> gradient, span<float> first,
                                   span<float> second, context *in = nullptr) noexcept {
    const std::size_t n = weight.size();
    if (gradient.size() != n || first.size() != n || second.size() != n)
        return detail::fail(FFN_INVALID, "gradient has %zu numbers, first %zu and second %zu, weight %zu", gradient.size(), first.size(),
                            second.size(), n);
    return detail::told(ffn_adamw_step(in ? in->get() : nullptr, &options, static_cast<std::int64_t>(n), weight.data(), gradient.data(),
                                       first.data(), second.data()));
}

/* arrays[i] has counts[i] numbers: the caller's word. */
inline ffn_status_t try_clip_global_norm(double &norm, span<float *const> arrays, span<const std::int64_t> counts, double max_norm,
                                         context *in = nullptr) noexcept {
    if (arrays.size() != counts.size()) return detail::fail(FFN_INVALID, "there are %zu arrays and %zu counts", arrays.size(), counts.size());
    return detail::told(ffn_clip_global_norm(in ? in->get() : nullptr, arrays.data(), counts.data(), arrays.size(), max_norm, &norm));
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
