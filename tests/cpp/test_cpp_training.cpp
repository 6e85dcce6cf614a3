// SPDX-License-Identifier: MIT
//
// Training through ffn.hpp: gradients against differences of the formula in float64, tapes, updates, optimisers, and what is refused.
#include <doctest/doctest.h>

#include "case.hpp"
#include "memory.hpp"

#include <cmath>
#include <limits>

static_assert(std::is_nothrow_move_constructible_v<ffn::tape> && std::is_nothrow_move_assignable_v<ffn::tape>);
static_assert(!std::is_copy_constructible_v<ffn::tape> && !std::is_copy_assignable_v<ffn::tape>);

struct training_case : test_case {
    std::vector<float> d_y = numbers(5, tokens * d_model);

    training_case() { options.flags = FFN_LAYER_TRAINABLE; }

    // The sum of d_y * y.
    double loss() const {
        double sum = 0;
        for (std::size_t t = 0; t < tokens; t++) {
            const std::vector<double> y = expected_row(x.data() + t * d_model);
            for (std::size_t i = 0; i < d_model; i++) sum += static_cast<double>(d_y[t * d_model + i]) * y[i];
        }
        return sum;
    }

    // Its derivative by one number of the case, which is as it was afterwards.
    double derivative(float &number) {
        const float was = number, low = was - 1.0f / 65536, high = was + 1.0f / 65536;
        number = high;
        const double above = loss();
        number = low;
        const double below = loss();
        number = was;
        return (above - below) / (static_cast<double>(high) - static_cast<double>(low));
    }

    // Of large arrays a sample: 7 has no factor in common with a width.
    bool is_gradient(const std::vector<float> &gradient, std::vector<float> &of) {
        for (std::size_t i = 0; i < of.size(); i += of.size() > 200 ? 7u : 1u)
            if (!(std::fabs(static_cast<double>(gradient[i]) - derivative(of[i])) <= 2e-5)) return false;
        return gradient.size() == of.size();
    }
};

TEST_CASE("gradients are those of the formula, overwritten or added") {
    training_case made;
    for (std::uint32_t flags : {0u, std::uint32_t{FFN_TAPE_RECOMPUTE}}) {
        ffn::tape_options tape_options;
        tape_options.flags = flags;
        ffn::tape tape;
        ffn::layer layer;
        REQUIRE(tape.try_create(tape_options) == FFN_OK);
        REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
        REQUIRE(tape.try_reserve(layer.get(), tokens) == FFN_OK);
        const float nan = std::numeric_limits<float>::quiet_NaN();
        std::vector<float> y(tokens * d_model), d_x(tokens * d_model, nan), d_up(d_ff * d_model, nan), d_bias(d_ff, nan), d_down(d_model * d_ff, nan);
        ffn_tensor_t gradients[3];
        REQUIRE(ffn::try_gradient(gradients[0], FFN_ROLE_UP_WEIGHT, d_up, {d_ff, d_model}) == FFN_OK);
        REQUIRE(ffn::try_gradient(gradients[1], FFN_ROLE_UP_BIAS, d_bias, {d_ff}) == FFN_OK);
        REQUIRE(ffn::try_gradient(gradients[2], FFN_ROLE_DOWN_WEIGHT, d_down, {d_model, d_ff}) == FFN_OK);

        REQUIRE(layer.try_record(tape, made.x, y) == FFN_OK);
        CHECK(made.is_right(y));
        REQUIRE(layer.try_backward(tape, made.d_y, d_x, gradients) == FFN_OK);
        CHECK(made.is_gradient(d_up, made.up));
        CHECK(made.is_gradient(d_bias, made.up_bias));
        CHECK(made.is_gradient(d_down, made.down));
        CHECK(made.is_gradient(d_x, made.x));

        std::vector<float> twice = d_bias;
        REQUIRE(ffn::try_gradient(gradients[1], FFN_ROLE_UP_BIAS, twice, {d_ff}) == FFN_OK);
        std::vector<float> in_place = made.d_y;
        REQUIRE(layer.try_record(tape, made.x, y) == FFN_OK);
        REQUIRE(layer.try_backward(tape, in_place, in_place, ffn::span<const ffn_tensor_t>(&gradients[1], 1), true) == FFN_OK);
        CHECK(in_place == d_x);
        for (std::size_t f = 0; f < d_ff; f++) CHECK(std::fabs(twice[f] - 2 * d_bias[f]) <= 1e-5f);
    }
}

TEST_CASE("a run with an external residual has its derivatives too") {
    training_case made;
    made.options.residual = FFN_RESIDUAL_EXTERNAL;
    ffn::layer layer;
    ffn::tape tape;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    REQUIRE(tape.try_create() == FFN_OK);
    std::vector<float> y(tokens * d_model), d_residual(tokens * d_model, 7.0f);
    ffn::run_options run;
    run.batch = 1;
    run.length = tokens;
    run.x = run.residual = made.x.data();
    run.y = y.data();
    run.tape = tape.get();
    REQUIRE(layer.try_run(run) == FFN_OK);
    ffn::backward_options backward;
    backward.tape = tape.get();
    backward.d_y = made.d_y.data();
    backward.d_residual = d_residual.data();
    CHECK(layer.try_backward(backward) == FFN_OK);
    CHECK(d_residual == made.d_y);
}

TEST_CASE("dropout of all leaves the residual, and of nothing the layer") {
    const training_case made;
    ffn::layer layer;
    ffn::tape tape;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    REQUIRE(tape.try_create() == FFN_OK);
    std::vector<float> plain(tokens * d_model), y(tokens * d_model);
    ffn::dropout_options dropout;
    REQUIRE(layer.try_record(tape, made.x, plain) == FFN_OK);
    CHECK(layer.try_record(tape, made.x, y, &dropout) == FFN_OK);
    CHECK(y == plain);
    dropout.p[FFN_DROPOUT_BRANCH] = 1;
    CHECK(layer.try_record(tape, made.x, y, &dropout) == FFN_OK);
    CHECK(y == made.x);
    dropout.p[FFN_DROPOUT_BRANCH] = 2;
    CHECK(layer.try_record(tape, made.x, y, &dropout) == FFN_INVALID);
}

TEST_CASE("an updated layer is the one made of the new weights") {
    training_case made;
    ffn::layer layer, other;
    ffn::tape tape;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    REQUIRE(tape.try_create() == FFN_OK);
    std::vector<float> y(tokens * d_model), same(tokens * d_model);
    REQUIRE(layer.try_record(tape, made.x, y) == FFN_OK);
    for (float &number : made.down) number = -number;
    REQUIRE(layer.try_update(ffn::span<const ffn_tensor_t>(&made.tensors[2], 1)) == FFN_OK);
    CHECK(layer.try_backward(tape, made.d_y, {}, {}) == FFN_INVALID);
    CHECK(says("was updated"));
    REQUIRE(other.try_create(made.options, made.tensors) == FFN_OK);
    CHECK(layer.try_forward(made.x, y) == FFN_OK);
    CHECK(other.try_forward(made.x, same) == FFN_OK);
    CHECK(y == same);
    CHECK(made.is_right(y));
}

TEST_CASE("wrong training is refused, and nothing else happens") {
    const training_case made;
    ffn::layer layer;
    ffn::tape tape;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    std::vector<float> y(tokens * d_model), d_x(tokens * d_model, 7.0f);
    CHECK(layer.try_record(tape, made.x, y) == FFN_INVALID);
    CHECK(says("the tape is empty"));
    REQUIRE(tape.try_create() == FFN_OK);
    CHECK(layer.try_backward(tape, {}, {}, {}) == FFN_INVALID);
    CHECK(says("the tape is empty"));
    CHECK(ffn::layer().try_record(tape, made.x, y) == FFN_INVALID);
    CHECK(says("the layer is empty"));
    CHECK(layer.try_record(tape, made.x, ffn::span<float>(y.data(), 1)) == FFN_INVALID);
    REQUIRE(layer.try_record(tape, made.x, y) == FFN_OK);
    CHECK(layer.try_backward(tape, ffn::span<const float>(made.d_y.data(), 1), d_x, {}) == FFN_INVALID);
    CHECK(says("d_y has 1 numbers and d_x 120, must have 120 and 120"));
    CHECK(layer.try_backward(tape, made.d_y, ffn::span<float>(d_x.data(), 1), {}) == FFN_INVALID);
    for (float number : d_x) CHECK(number == 7.0f);
    CHECK(layer.try_backward(tape, made.d_y, d_x, {}) == FFN_OK);
    CHECK(layer.try_backward(tape, made.d_y, d_x, {}) == FFN_INVALID);
    CHECK(says("used up"));
    test_case plain;
    ffn::layer untrainable;
    REQUIRE(untrainable.try_create(plain.options, plain.tensors) == FFN_OK);
    CHECK(untrainable.try_record(tape, made.x, y) == FFN_UNSUPPORTED);
    CHECK(untrainable.try_update(made.tensors) == FFN_UNSUPPORTED);
}

TEST_CASE("optimisers step by their formulas, and weights have their spread") {
    constexpr std::size_t count = 300;
    std::vector<float> weight = numbers(7, count), first(count), second(count), velocity(count);
    const std::vector<float> gradient = numbers(8, count), start = weight;
    ffn::adamw_options adamw;
    adamw.step = 1;
    adamw.learning_rate = 0.125f;
    CHECK(ffn::try_adamw_step(adamw, weight, gradient, first, second) == FFN_OK);
    for (std::size_t i = 0; i < count; i++) {
        const double g = static_cast<double>(gradient[i]), expected = static_cast<double>(start[i]) - 0.125 * g / (std::fabs(g) + 1e-8);
        CHECK(std::fabs(static_cast<double>(weight[i]) - expected) <= 1e-6);
    }
    weight = start;
    ffn::sgd_options sgd;
    sgd.learning_rate = 0.5f;
    sgd.momentum = 0.5f;
    CHECK(ffn::try_sgd_step(sgd, weight, gradient, velocity) == FFN_OK);
    CHECK(velocity == gradient);
    for (std::size_t i = 0; i < count; i++) CHECK(std::fabs(weight[i] - (start[i] - 0.5f * gradient[i])) <= 1e-6f);
    weight = start;
    CHECK(ffn::try_sgd_step(sgd, weight, gradient) == FFN_INVALID);
    CHECK(ffn::try_sgd_step(sgd, weight, ffn::span<const float>(gradient.data(), 1), velocity) == FFN_INVALID);
    CHECK(says("gradient has 1 numbers and velocity 300, weight 300"));
    CHECK(ffn::try_adamw_step(adamw, weight, gradient, first, ffn::span<float>(second.data(), 1)) == FFN_INVALID);
    CHECK(weight == start);

    std::vector<float> a = {3.0f, 0.0f}, b = {4.0f};
    float *const arrays[] = {a.data(), b.data()};
    const std::int64_t counts[] = {2, 1};
    double norm = 0;
    CHECK(ffn::try_clip_global_norm(norm, arrays, counts, 2.5) == FFN_OK);
    CHECK(norm == 5.0);
    CHECK(a[0] == 1.5f);
    CHECK(b[0] == 2.0f);
    CHECK(ffn::try_clip_global_norm(norm, arrays, ffn::span<const std::int64_t>(counts, 1), 2.5) == FFN_INVALID);

    std::vector<float> up(d_ff * d_model);
    ffn::init_options init;
    init.scheme = FFN_INIT_TORCH_LINEAR;
    CHECK(ffn::try_weight_init(up, init) == FFN_INVALID);
    CHECK(says("fan_in is 0"));
    init.fan_in = d_model;
    CHECK(ffn::try_weight_init(up, init) == FFN_OK);
    float largest = 0;
    for (float number : up) largest = std::fmax(largest, std::fabs(number));
    CHECK(largest <= 1 / std::sqrt(static_cast<float>(d_model)));
    CHECK(largest > 0.9f / std::sqrt(static_cast<float>(d_model)));
}

TEST_CASE("every allocation of training may fail") {
    const training_case made;
    ffn::layer layer;
    ffn::context context;
    ffn::tape tape;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    REQUIRE(context.try_create(ffn::context_options()) == FFN_OK);
    std::vector<float> y(tokens * d_model), d_x(tokens * d_model), d_bias(d_ff);
    ffn_tensor_t gradient;
    REQUIRE(ffn::try_gradient(gradient, FFN_ROLE_UP_BIAS, d_bias, {d_ff}) == FFN_OK);
    CHECK(each_fails([&] { return tape.try_create(); }) == 1);
    CHECK(each_fails([&] { return layer.try_record(tape, made.x, y, nullptr, &context); }) >= 1);
    CHECK(made.is_right(y));
    each_fails([&] { return layer.try_backward(tape, made.d_y, d_x, ffn::span<const ffn_tensor_t>(&gradient, 1), false, &context); });
    CHECK(each_fails([&] { return layer.try_update(made.tensors, &context); }) == 0);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing form trains likewise") {
    training_case made;
    ffn::layer layer(made.options, made.tensors);
    ffn::tape tape{ffn::tape_options()};
    tape.reserve(layer.get(), tokens);
    std::vector<float> y(tokens * d_model), d_x(tokens * d_model), d_bias(d_ff);
    layer.record(tape, made.x, y);
    layer.backward(tape, made.d_y, d_x, {ffn::gradient(FFN_ROLE_UP_BIAS, d_bias, {d_ff})});
    CHECK(made.is_gradient(d_bias, made.up_bias));
    CHECK_THROWS_AS(layer.backward(tape, made.d_y, d_x, {}), ffn::error);
    layer.update({made.tensors[0], ffn::tensor(FFN_ROLE_UP_BIAS, made.up_bias, {d_ff})});
    layer.record(tape, made.x, y);
    ffn::backward_options backward;
    backward.tape = tape.get();
    backward.d_y = made.d_y.data();
    layer.backward(backward);
    CHECK_THROWS_AS(layer.record(tape, made.x, {}), ffn::error);

    ffn::sgd_options sgd;
    sgd.learning_rate = 1;
    std::vector<float> weight = {1.0f}, gradient = {0.25f}, first(1), second(1);
    ffn::sgd_step(sgd, weight, gradient);
    CHECK(weight[0] == 0.75f);
    ffn::adamw_options adamw;
    CHECK_THROWS_AS(ffn::adamw_step(adamw, weight, gradient, first, second), ffn::error);
    adamw.step = 1;
    ffn::adamw_step(adamw, weight, gradient, first, second);
    CHECK(weight[0] == 0.75f); // with a learning rate of 0
    float *const arrays[] = {gradient.data()};
    const std::int64_t counts[] = {1};
    CHECK(ffn::clip_global_norm(arrays, counts, 1.0) == 0.25);
    ffn::init_options init;
    init.scheme = FFN_INIT_NORMAL;
    ffn::weight_init(weight, init);
    CHECK(weight[0] != 0.75f);
    CHECK_THROWS_AS(ffn::weight_init(weight, ffn::init_options()), ffn::error);
    CHECK_THROWS_AS(ffn::gradient(FFN_ROLE_UP_BIAS, d_bias, {3}), ffn::error);
}
#endif
