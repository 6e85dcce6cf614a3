/* SPDX-License-Identifier: MIT
 *
 * What the C++ headers share: arrays that know their length, the sentence of the last failure, and handles that free themselves. ffn.hpp has the rules.
 */
#ifndef FFN_FFN_BASE_HPP
#define FFN_FFN_BASE_HPP

#include <ffn/ffn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
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

/* Whether an array has rows * width elements, or may be empty and is. */
inline ffn_status_t sized_as(const char *name, std::size_t size, std::int64_t rows, std::int64_t width, bool may_be_empty = false) noexcept {
    if (may_be_empty && size == 0) return FFN_OK;
    if (rows >= 0 && width >= 0 && (width == 0 ? size == 0 : size % static_cast<std::size_t>(width) == 0 &&
                                                                 size / static_cast<std::size_t>(width) == static_cast<std::size_t>(rows)))
        return FFN_OK;
    return fail(FFN_INVALID, "%s has %zu numbers, must have %lld * %lld", name, size, static_cast<long long>(rows), static_cast<long long>(width));
}

/* How many rows of that width an array has, the last one in part. */
inline std::int64_t rows_of(std::size_t size, std::int64_t width) noexcept {
    return width > 0 ? static_cast<std::int64_t>(size / static_cast<std::size_t>(width)) : 0;
}

template <class T> T *or_null(span<T> array) noexcept { return array.empty() ? nullptr : array.data(); }

} // namespace detail

} // namespace ffn

#endif
