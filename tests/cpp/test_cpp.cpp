// SPDX-License-Identifier: MIT
//
// Layers and contexts of ffn.hpp: both forms of each function, moving, and what is refused.
#include <doctest/doctest.h>

#include "case.hpp"

#include <thread>
#include <type_traits>

static_assert(std::is_nothrow_move_constructible_v<ffn::layer> && std::is_nothrow_move_assignable_v<ffn::layer>);
static_assert(std::is_nothrow_move_constructible_v<ffn::context> && std::is_nothrow_move_assignable_v<ffn::context>);
static_assert(!std::is_copy_constructible_v<ffn::layer> && !std::is_copy_assignable_v<ffn::layer>);
static_assert(!std::is_copy_constructible_v<ffn::context> && !std::is_copy_assignable_v<ffn::context>);
static_assert(std::is_convertible_v<std::vector<float> &, ffn::span<float>> && std::is_convertible_v<const std::vector<float> &, ffn::span<const float>>);
static_assert(!std::is_convertible_v<const std::vector<float> &, ffn::span<float>> && !std::is_convertible_v<std::vector<double> &, ffn::span<float>>);
static_assert(std::is_convertible_v<float (&)[3], ffn::span<const float>> && std::is_convertible_v<ffn::span<float>, ffn::span<const float>>);
#if defined(__cpp_lib_span)
static_assert(std::is_same_v<ffn::span<float>, std::span<float>>);
#endif
#if defined(__cpp_exceptions)
static_assert(std::is_nothrow_copy_constructible_v<ffn::error> && std::is_base_of_v<std::exception, ffn::error>);
#endif

TEST_CASE("a layer computes the formula, with a context, without one and in place") {
    const test_case made;
    ffn::context context;
    ffn::context_options context_options;
    context_options.threads = 2;
    REQUIRE(context.try_create(context_options) == FFN_OK);
    ffn::layer layer;
    REQUIRE(layer.try_create(made.options, made.tensors, &context) == FFN_OK);
    REQUIRE(context.try_reserve(layer.get(), 100) == FFN_OK);

    std::vector<float> y(tokens * d_model), with_context(tokens * d_model), in_place = made.x;
    CHECK(layer.try_forward(made.x, y) == FFN_OK);
    CHECK(made.is_right(y));
    CHECK(layer.try_forward(made.x, with_context, &context) == FFN_OK);
    CHECK(made.is_right(with_context));
    CHECK(layer.try_forward(in_place, in_place) == FFN_OK);
    CHECK(in_place == y);
    CHECK(layer.try_forward({}, {}) == FFN_OK);

    ffn_context_info_t info = {};
    CHECK(context.try_info(info) == FFN_OK);
    CHECK(info.threads_requested == 2);
    CHECK(info.scratch_bytes > 0);
}

TEST_CASE("views with strides make the same layer") {
    test_case made;
    std::vector<float> transposed(d_ff * d_model), y(tokens * d_model), same(tokens * d_model);
    for (std::size_t f = 0; f < d_ff; f++)
        for (std::size_t i = 0; i < d_model; i++) transposed[i * d_ff + f] = made.up[f * d_model + i];
    ffn::layer plain, strided;
    REQUIRE(plain.try_create(made.options, made.tensors) == FFN_OK);
    made.tensors[0] = ffn::tensor_at(FFN_ROLE_UP_WEIGHT, transposed.data(), {d_ff, d_model}, {4, 4 * d_ff});
    REQUIRE(strided.try_create(made.options, made.tensors) == FFN_OK);
    CHECK(plain.try_forward(made.x, y) == FFN_OK);
    CHECK(strided.try_forward(made.x, same) == FFN_OK);
    CHECK(same == y);
}

TEST_CASE("a run has sequences, strides and a residual of its own") {
    test_case made;
    made.options.residual = FFN_RESIDUAL_EXTERNAL;
    ffn::layer layer;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    std::vector<float> y(tokens * (d_model + 1), 7.0f), packed;
    ffn::run_options run;
    run.batch = 1;
    run.length = tokens;
    run.x = run.residual = made.x.data();
    run.y = y.data();
    run.y_stride[1] = 4 * (d_model + 1);
    CHECK(layer.try_run(run) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) {
        packed.insert(packed.end(), y.data() + t * (d_model + 1), y.data() + t * (d_model + 1) + d_model);
        CHECK(y[t * (d_model + 1) + d_model] == 7.0f);
    }
    CHECK(made.is_right(packed));
}

TEST_CASE("a layer gives its weights back, and tells what it is") {
    const test_case made;
    ffn::layer layer;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    std::vector<float> up(d_ff * d_model);
    CHECK(layer.try_read(FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model}) == FFN_OK);
    CHECK(up == made.up);
    CHECK(layer.try_read(FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model + 1}) == FFN_INVALID);
    CHECK(says("has 960 numbers"));
    CHECK(layer.try_read(FFN_ROLE_GATE_WEIGHT, up, {d_ff, d_model}) == FFN_INVALID);
    ffn_layer_info_t info = {};
    CHECK(layer.try_info(info) == FFN_OK);
    CHECK(info.d_ff == d_ff);
    CHECK(info.isa != FFN_ISA_AUTO);
}

TEST_CASE("handles move, and what they moved from is empty") {
    const test_case made;
    ffn::layer first, other;
    std::vector<float> y(tokens * d_model);
    REQUIRE(first.try_create(made.options, made.tensors) == FFN_OK);
    REQUIRE(other.try_create(made.options, made.tensors) == FFN_OK);
    const ffn_layer_t *handle = first.get();

    ffn::layer second(std::move(first));
    CHECK_FALSE(first); // NOLINT: that is what is tested
    CHECK(second.get() == handle);
    CHECK(first.try_forward(made.x, y) == FFN_INVALID);
    CHECK(says("the layer is empty"));

    other = std::move(second); // frees what other had
    CHECK_FALSE(second);
    CHECK(other.get() == handle);
    ffn::layer &itself = other;
    other = std::move(itself);
    CHECK(other.get() == handle);
    CHECK(other.try_forward(made.x, y) == FFN_OK);
    CHECK(made.is_right(y));

    ffn::layer adopted(other.release());
    CHECK_FALSE(other);
    CHECK(adopted.try_forward(made.x, y) == FFN_OK);
    CHECK(first.try_create(made.options, made.tensors) == FFN_OK); // an empty one can be used again
    CHECK(first.try_forward(made.x, y) == FFN_OK);
}

TEST_CASE("bad input gets a status and a sentence, and nothing else happens") {
    const test_case made;
    ffn::layer layer;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    const ffn_layer_t *before = layer.get();
    std::vector<float> y(tokens * d_model, 7.0f);
    const std::vector<float> untouched = y;
    for (std::size_t wrong : {tokens * d_model - 1, tokens * d_model + 1, (tokens + 1) * d_model, std::size_t{0}}) {
        CHECK(layer.try_forward(numbers(9, wrong), y) == FFN_INVALID);
        CHECK(says(("x has " + std::to_string(wrong) + " numbers and y 120").c_str()));
    }
    CHECK(y == untouched);

    ffn_tensor_t tensor = {};
    CHECK(ffn::try_tensor(tensor, FFN_ROLE_UP_WEIGHT, y, {tokens, d_model - 1}) == FFN_INVALID);
    CHECK(ffn::try_tensor(tensor, FFN_ROLE_UP_WEIGHT, y, {-1, -120}) == FFN_INVALID);
    CHECK(ffn::try_tensor(tensor, FFN_ROLE_UP_WEIGHT, y, {120, 0}) == FFN_INVALID);
    CHECK(ffn::try_tensor(tensor, FFN_ROLE_UP_WEIGHT, y, {INT64_MAX, INT64_MAX, 120}) == FFN_INVALID);
    CHECK(tensor.data == nullptr);

    CHECK(layer.try_create(ffn::layer_options(), made.tensors) == FFN_INVALID);
    CHECK(says("activation"));
    CHECK(layer.try_create(made.options, {}) == FFN_INVALID);
    CHECK(layer.get() == before);

    ffn::context context;
    ffn::context_options options;
    options.threads = 1025;
    CHECK(context.try_create(options) == FFN_INVALID);
    CHECK(says("1025"));
    CHECK_FALSE(context);
}

TEST_CASE("threads share a layer, each with its own sentence of failure") {
    const test_case made;
    ffn::layer layer;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    std::vector<float> y(tokens * d_model);
    REQUIRE(layer.try_forward(made.x, y) == FFN_OK);
    CHECK(layer.try_forward(made.x, {}) == FFN_INVALID);
    const std::string here = ffn::last_error();
    int same[4] = {0, 0, 0, 0};
    std::vector<std::thread> threads;
    for (int &count : same)
        threads.emplace_back([&] {
            std::vector<float> mine(tokens * d_model);
            for (int i = 0; i < 20; i++) count += layer.try_forward(made.x, mine) == FFN_OK && mine == y && !*ffn::last_error();
        });
    for (std::thread &thread : threads) thread.join();
    for (int count : same) CHECK(count == 20);
    CHECK(ffn::last_error() == here);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing form does the same, and throws the status with the sentence") {
    const test_case made;
    ffn::context_options context_options;
    context_options.threads = 2;
    ffn::context context(context_options);
    const ffn::layer layer(made.options, {ffn::tensor(FFN_ROLE_UP_WEIGHT, made.up, {d_ff, d_model}), made.tensors[1], made.tensors[2]}, &context);
    context.reserve(layer.get(), tokens);
    std::vector<float> y(tokens * d_model), up(d_ff * d_model);
    layer.forward(made.x, y, &context);
    CHECK(made.is_right(y));
    layer.read(FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model});
    CHECK(up == made.up);
    CHECK(layer.info().d_out == d_model);
    CHECK(context.info().threads_requested == 2);
    ffn::run_options run;
    run.batch = run.length = 1;
    run.x = made.x.data();
    run.y = y.data();
    layer.run(run);

    ffn::error caught(FFN_OK, "");
    try {
        layer.forward(made.x, ffn::span<float>(y.data(), 1));
    } catch (const ffn::error &error) {
        caught = error;
    }
    CHECK(caught.status() == FFN_INVALID);
    CHECK(std::string(caught.what()).find("x has 120 numbers and y 1,") == 0);
    CHECK_THROWS_AS(ffn::layer(made.options, {}), ffn::error);
    CHECK_THROWS_AS(ffn::tensor(FFN_ROLE_UP_WEIGHT, made.up, {d_ff}), ffn::error);
    CHECK_THROWS_AS(layer.read(FFN_ROLE_GATE_BIAS, up, {d_ff, d_model}), ffn::error);
    context_options.threads = 1025;
    CHECK_THROWS_AS(ffn::context{context_options}, ffn::error);
    CHECK_THROWS_AS(ffn::layer().info(), ffn::error);
}
#endif
