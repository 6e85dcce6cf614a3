// SPDX-License-Identifier: MIT
//
// Every allocation fails once through every function of ffn.hpp that may need memory. Functions of the C library are wrapped by the linker
// (--wrap in CMakeLists.txt); the header's own code takes no memory at all, as the counting operator new shows.
#include <doctest/doctest.h>

#include "case.hpp"
#include "memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

static thread_local int spare = -1;   // allocations that go well before one fails; negative: none fails
static thread_local int news = 0;     // of this thread

static bool fails() {
    const bool now = spare == 0;
    spare = spare > 0 ? spare - 1 : -1;
    return now;
}

extern "C" {
void *__real_aligned_alloc(std::size_t alignment, std::size_t size);
void *__real_malloc(std::size_t size);
void *__real_calloc(std::size_t count, std::size_t size);
void *__real_realloc(void *memory, std::size_t size);
void *__wrap_aligned_alloc(std::size_t alignment, std::size_t size);
void *__wrap_malloc(std::size_t size);
void *__wrap_calloc(std::size_t count, std::size_t size);
void *__wrap_realloc(void *memory, std::size_t size);

void *__wrap_aligned_alloc(std::size_t alignment, std::size_t size) { return fails() ? nullptr : __real_aligned_alloc(alignment, size); }
void *__wrap_malloc(std::size_t size) { return fails() ? nullptr : __real_malloc(size); }
void *__wrap_calloc(std::size_t count, std::size_t size) { return fails() ? nullptr : __real_calloc(count, size); }
void *__wrap_realloc(void *memory, std::size_t size) { return fails() ? nullptr : __real_realloc(memory, size); }
}

void *operator new(std::size_t size) {
    news++;
    if (void *memory = __real_malloc(size)) return memory;
    std::abort();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

void fail_after(int count) { spare = count; }
bool has_failed() { return spare < 0; }
int news_of_this_thread() { return news; }

TEST_CASE("every allocation of layers and contexts may fail") {
    const test_case made;
    ffn::context_options two;
    two.threads = 2;
    ffn::context context;
    ffn::layer layer, other;
    std::vector<float> y(tokens * d_model);
    CHECK(each_fails([&] { return context.try_create(two); }) >= 2);
    CHECK(each_fails([&] { return layer.try_create(made.options, made.tensors, &context); }) >= 1);
    CHECK(each_fails([&] { return layer.try_forward(made.x, y, &context); }) >= 1);
    CHECK(made.is_right(y));
    CHECK(each_fails([&] { return context.try_reserve(layer.get(), 100); }) >= 1);
    CHECK(each_fails([&] { return layer.try_forward(made.x, y, &context); }) == 0);
    std::vector<float> up(d_ff * d_model);
    CHECK(each_fails([&] { return layer.try_read(FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model}); }) == 0);
}

#if defined(__cpp_exceptions)
TEST_CASE("every allocation of the throwing form may fail") {
    const test_case made;
    ffn::layer layer;
    const auto create = [&] {
        try {
            layer = ffn::layer(made.options, made.tensors);
        } catch (const ffn::error &error) {
            CHECK(std::strcmp(error.what(), ffn::last_error()) == 0);
            return error.status();
        }
        return ffn_status_t{FFN_OK};
    };
    CHECK(each_fails(create) >= 1);
    std::vector<float> y(tokens * d_model);
    layer.forward(made.x, y);
    CHECK(made.is_right(y));
}
#endif
