// SPDX-License-Identifier: MIT
//
// ffn_moe.hpp, ffn_moe_training.hpp and ffn_conv.hpp: what they compute against plain loops in float64, and what they refuse. What each function does in full, the C tests show.
#include <doctest/doctest.h>

#include "case.hpp"

#include <ffn/ffn_conv.hpp>
#include <ffn/ffn_moe_training.hpp>

#include <algorithm>
#include <cmath>

static_assert(std::is_nothrow_move_constructible_v<ffn::conv> && !std::is_copy_constructible_v<ffn::conv>);

constexpr std::size_t experts = 4, top_k = 2, hidden = 6, width = 5;

static std::vector<double> softmax(const float *z) {
    std::vector<double> s(experts);
    double sum = 0;
    for (std::size_t e = 0; e < experts; e++) sum += s[e] = std::exp(static_cast<double>(z[e]));
    for (double &one : s) one /= sum;
    return s;
}

TEST_CASE("tokens are routed by the formula, limited and counted") {
    const std::vector<float> z = numbers(11, tokens * experts);
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<float> weights(tokens * top_k), scores(tokens * experts);
    ffn::moe_routing routing;
    REQUIRE(routing.try_assign(experts, top_k, ids, weights) == FFN_OK);
    REQUIRE(ffn::try_moe_route(ffn::moe_router_options(), z, routing, scores) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) {
        const std::vector<double> s = softmax(z.data() + t * experts);
        const auto first = static_cast<std::int32_t>(std::max_element(s.begin(), s.end()) - s.begin());
        CHECK(ids[t * top_k] == first);
        CHECK(std::fabs(static_cast<double>(weights[t * top_k]) - s[static_cast<std::size_t>(first)]) <= 1e-6);
        CHECK(std::fabs(static_cast<double>(scores[t * experts + 1]) - s[1]) <= 1e-6);
    }
    std::vector<std::int64_t> counts(experts);
    CHECK(ffn::try_moe_count(routing, counts) == FFN_OK);
    CHECK(counts[0] + counts[1] + counts[2] + counts[3] == static_cast<std::int64_t>(tokens * top_k));
    ffn::moe_balance balance;
    balance.tokens = tokens;
    balance.experts = experts;
    balance.top_k = top_k;
    balance.probabilities = scores.data();
    balance.counts = counts.data();
    double value = 0, expected = 0;
    CHECK(ffn::try_moe_loss(value, ffn_moe_loss_switch, balance) == FFN_OK);
    for (std::size_t e = 0; e < experts; e++)
        for (std::size_t t = 0; t < tokens; t++)
            expected += static_cast<double>(experts) * static_cast<double>(counts[e]) / tokens * static_cast<double>(scores[t * experts + e]) / tokens;
    CHECK(std::fabs(value - expected) <= 1e-6);

    std::vector<float> d_weights(tokens * top_k), d_logits(tokens * experts);
    d_weights[0] = 1;
    ffn::moe_route_gradients gradients;
    gradients.d_weights = d_weights.data();
    gradients.d_logits = d_logits.data();
    CHECK(ffn::try_moe_route_backward(ffn::moe_router_options(), z, routing, gradients) == FFN_OK);
    const std::vector<double> s = softmax(z.data());
    const auto id = static_cast<std::size_t>(ids[0]);
    for (std::size_t e = 0; e < experts; e++) CHECK(std::fabs(static_cast<double>(d_logits[e]) - s[id] * ((e == id) - s[e])) <= 1e-6);

    ffn::moe_capacity_options capacity;
    capacity.capacity = 1;
    CHECK(ffn::try_moe_limit(capacity, routing) == FFN_OK);
    ffn_moe_statistics_t statistics = {};
    CHECK(ffn::try_moe_statistics(statistics, routing, scores) == FFN_OK);
    CHECK(statistics.assignments <= static_cast<std::int64_t>(experts));
    CHECK(statistics.router_entropy > 0);
    ffn::moe_second_options second;
    second.policy = FFN_MOE_SECOND_NONE;
    CHECK(ffn::try_moe_second_expert(second, routing) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) CHECK(ids[t * top_k + 1] == FFN_MOE_NO_EXPERT);
    std::vector<std::int32_t> all_ids(tokens * experts);
    std::vector<float> all_weights(tokens * experts);
    ffn::moe_routing all;
    REQUIRE(all.try_assign(experts, experts, all_ids, all_weights) == FFN_OK);
    CHECK(ffn::try_moe_expert_choice(2, 0, scores, all) == FFN_OK);
    CHECK(ffn::try_moe_count(all, counts) == FFN_OK);
    CHECK(counts == std::vector<std::int64_t>(experts, 2));
    std::vector<float> bias(experts);
    const std::vector<std::int64_t> load = {0, 4, 2, 2};
    CHECK(ffn::try_moe_update_bias(load, 0.5f, bias) == FFN_OK);
    CHECK(bias == std::vector<float>{0.5f, -0.5f, 0.0f, 0.0f});
}

TEST_CASE("a layer of experts computes what the routed experts do") {
    const std::vector<float> up = numbers(21, experts * hidden * width), down = numbers(22, experts * width * hidden), x = numbers(23, tokens * width);
    const std::vector<float> router = numbers(24, experts * width);
    ffn_tensor_t tensors[3];
    REQUIRE(ffn::try_tensor(tensors[0], FFN_ROLE_UP_WEIGHT, up, {experts, hidden, width}) == FFN_OK);
    REQUIRE(ffn::try_tensor(tensors[1], FFN_ROLE_DOWN_WEIGHT, down, {experts, width, hidden}) == FFN_OK);
    REQUIRE(ffn::try_tensor(tensors[2], FFN_ROLE_ROUTER_WEIGHT, router, {experts, width}) == FFN_OK);
    ffn::moe_options mixture;
    mixture.top_k = top_k;
    ffn::layer_options options;
    options.activation = FFN_ACTIVATION_RELU;
    options.moe = &mixture;
    ffn::layer layer;
    REQUIRE(layer.try_create(options, tensors) == FFN_OK);

    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<float> y(tokens * width), weights(tokens * top_k), logits(tokens * experts), same(tokens * experts);
    ffn::moe_run told;
    told.ids = ids.data();
    told.weights = weights.data();
    told.logits = logits.data();
    ffn::run_options run;
    run.batch = 1;
    run.length = tokens;
    run.x = x.data();
    run.y = y.data();
    run.moe = &told;
    REQUIRE(layer.try_run(run) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++)
        for (std::size_t i = 0; i < width; i++) {
            double expected = 0;
            for (std::size_t k = 0; k < top_k; k++) {
                const std::size_t e = static_cast<std::size_t>(ids[t * top_k + k]) * hidden * width;
                for (std::size_t f = 0; f < hidden; f++) {
                    double h = 0;
                    for (std::size_t j = 0; j < width; j++) h += static_cast<double>(up[e + f * width + j]) * static_cast<double>(x[t * width + j]);
                    expected += static_cast<double>(weights[t * top_k + k]) * static_cast<double>(down[e + i * hidden + f]) * std::fmax(h, 0);
                }
            }
            CHECK(std::fabs(static_cast<double>(y[t * width + i]) - expected) <= 1e-5);
        }
    ffn::moe_logits_options of;
    of.d_model = width;
    of.experts = experts;
    of.weight = router.data();
    CHECK(ffn::try_moe_logits(of, x, same) == FFN_OK);
    CHECK(same == logits);
    std::vector<float> d_x(tokens * width);
    ffn::moe_logits_gradients gradients;
    gradients.d_logits = same.data();
    gradients.d_x = d_x.data();
    CHECK(ffn::try_moe_logits_backward(of, x, gradients) == FFN_OK);
    CHECK(d_x[0] != 0.0f);
}

TEST_CASE("wrong sizes of routings are refused") {
    std::vector<std::int32_t> ids(6, 7);
    std::vector<float> weights(6, 7.0f), z(12);
    ffn::moe_routing routing;
    CHECK(routing.try_assign(4, 0, ids, weights) == FFN_INVALID);
    CHECK(routing.try_assign(4, 4, ids, weights) == FFN_INVALID);
    CHECK(says("6 ids, 6 weights"));
    CHECK(routing.try_assign(4, 2, ids, ffn::span<float>(weights.data(), 5)) == FFN_INVALID);
    const std::uint8_t mask[] = {1, 1};
    CHECK(routing.try_assign(4, 2, ids, weights, mask) == FFN_INVALID);
    CHECK(routing.tokens == 0);
    REQUIRE(routing.try_assign(4, 2, ids, weights) == FFN_OK);
    const ffn::moe_router_options plain;
    CHECK(ffn::try_moe_route(plain, ffn::span<const float>(z.data(), 11), routing) == FFN_INVALID);
    CHECK(says("logits has 11 numbers, must have 3 * 4"));
    CHECK(ffn::try_moe_route(plain, z, routing, ffn::span<float>(weights)) == FFN_INVALID);
    CHECK(ffn::try_moe_route(plain, z, routing, {}, ffn::span<const float>(z.data(), 3)) == FFN_INVALID);
    CHECK(ffn::try_moe_route(plain, z, routing, {}, {}, ffn::span<const float>(z.data(), 3)) == FFN_INVALID);
    CHECK(ids == std::vector<std::int32_t>(6, 7));
    std::vector<std::int64_t> counts(4);
    CHECK(ffn::try_moe_count(routing, counts, 2) == FFN_INVALID);
    CHECK(says("must have 2 * 4"));
    CHECK(ffn::try_moe_update_bias(counts, 1, weights) == FFN_INVALID);
    ffn::moe_logits_options of;
    CHECK(ffn::try_moe_logits(of, z, z) == FFN_INVALID);
}

TEST_CASE("a convolution of width 3 is the sum over its taps, and learns") {
    constexpr std::size_t length = 4, batch = 2, rows = batch * length, taps = 3;
    std::vector<float> up = numbers(31, hidden * width * taps), down = numbers(32, width * hidden), x = numbers(33, rows * width), y(rows * width);
    ffn_tensor_t tensors[2];
    REQUIRE(ffn::try_tensor(tensors[0], FFN_ROLE_UP_WEIGHT, up, {hidden, width, taps}) == FFN_OK);
    REQUIRE(ffn::try_tensor(tensors[1], FFN_ROLE_DOWN_WEIGHT, down, {width, hidden}) == FFN_OK);
    ffn::conv_options options;
    options.activation = FFN_ACTIVATION_RELU;
    options.flags = FFN_CONV_TRAINABLE;
    ffn::conv conv;
    REQUIRE(conv.try_create(options, tensors) == FFN_OK);
    REQUIRE(conv.try_forward(batch, x, y) == FFN_OK);
    for (std::size_t row = 0; row < rows; row++)
        for (std::size_t i = 0; i < width; i++) {
            double expected = 0;
            for (std::size_t f = 0; f < hidden; f++) {
                double h = 0;
                for (std::size_t k = 0; k < taps; k++) {
                    const std::size_t at = row % length + k;
                    if (at < 1 || at > length) continue;
                    for (std::size_t j = 0; j < width; j++)
                        h += static_cast<double>(up[(f * width + j) * taps + k]) * static_cast<double>(x[(row / length * length + at - 1) * width + j]);
                }
                expected += static_cast<double>(down[i * hidden + f]) * std::fmax(h, 0);
            }
            CHECK(std::fabs(static_cast<double>(y[row * width + i]) - expected) <= 1e-5);
        }
    std::vector<std::uint8_t> mask(rows, 1);
    mask[rows - 1] = 0;
    std::vector<float> masked(rows * width);
    CHECK(conv.try_forward(batch, x, masked, mask) == FFN_OK);
    CHECK(std::equal(y.begin(), y.begin() + length * width, masked.begin()));
    CHECK(masked != y);

    ffn::tape tape;
    REQUIRE(tape.try_create() == FFN_OK);
    CHECK(conv.try_reserve(batch, length, &tape) == FFN_OK);
    ffn::conv_run run;
    run.batch = batch;
    run.length = length;
    run.x = x.data();
    run.y = y.data();
    run.tape = tape.get();
    REQUIRE(conv.try_run(run) == FFN_OK);
    std::vector<float> d_y(rows * width, 1.0f), d_down(width * hidden), read(width * hidden);
    ffn_tensor_t gradient;
    REQUIRE(ffn::try_gradient(gradient, FFN_ROLE_DOWN_WEIGHT, d_down, {width, hidden}) == FFN_OK);
    ffn::backward_options backward;
    backward.tape = tape.get();
    backward.d_y = d_y.data();
    backward.gradients = &gradient;
    backward.gradient_count = 1;
    CHECK(conv.try_backward(backward) == FFN_OK);
    for (std::size_t f = 0; f < hidden; f++) CHECK(std::fabs(d_down[f] - d_down[hidden + f]) <= 1e-5f); // each y has the same derivative
    for (float &number : down) number = 0.5f;
    CHECK(conv.try_update(ffn::span<const ffn_tensor_t>(&tensors[1], 1)) == FFN_OK);
    CHECK(conv.try_read(FFN_ROLE_DOWN_WEIGHT, read, {width, hidden}) == FFN_OK);
    CHECK(read == down);
    ffn_conv_info_t info = {};
    CHECK(conv.try_info(info) == FFN_OK);
    CHECK(info.kernel_size == 3);
    for (std::size_t wrong : {std::size_t{0}, std::size_t{3}}) CHECK(conv.try_forward(wrong, x, y) == FFN_INVALID);
    CHECK(says("not those of 3 sequences"));
    CHECK(conv.try_forward(batch, x, ffn::span<float>(y.data(), 1)) == FFN_INVALID);
    CHECK(conv.try_forward(batch, x, y, ffn::span<const std::uint8_t>(mask.data(), 1)) == FFN_INVALID);
    CHECK(ffn::conv().try_forward(batch, x, y) == FFN_INVALID);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing forms of mixtures and convolutions") {
    std::vector<std::int32_t> ids(6);
    std::vector<float> weights(6), z = numbers(41, 12), scores(12), bias(4);
    std::vector<std::int64_t> counts(4);
    const ffn::moe_routing routing(4, 2, ids, weights);
    ffn::moe_route(ffn::moe_router_options(), z, routing, scores);
    ffn::moe_count(routing, counts);
    CHECK(ffn::moe_statistics(routing, scores).assignments == 6);
    ffn::moe_balance balance;
    balance.tokens = 3;
    balance.experts = 4;
    balance.top_k = 2;
    balance.probabilities = scores.data();
    balance.counts = counts.data();
    CHECK(ffn::moe_loss(ffn_moe_loss_megatron, balance) > 0);
    ffn::moe_update_bias(counts, 0.25f, bias);
    ffn::moe_capacity_options capacity;
    CHECK_THROWS_AS(ffn::moe_limit(capacity, routing), ffn::error);
    capacity.capacity = 3;
    ffn::moe_limit(capacity, routing);
    CHECK_THROWS_AS(ffn::moe_routing(4, 5, ids, weights), ffn::error);
    CHECK_THROWS_AS(ffn::moe_expert_choice(0, 0, scores, routing), ffn::error);
    CHECK_THROWS_AS(ffn::moe_second_expert(ffn::moe_second_options(), routing), ffn::error);
    CHECK_THROWS_AS(ffn::moe_logits(ffn::moe_logits_options(), z, z), ffn::error);
    CHECK_THROWS_AS(ffn::moe_logits_backward(ffn::moe_logits_options(), z, ffn::moe_logits_gradients()), ffn::error);
    CHECK_THROWS_AS(ffn::moe_route_backward(ffn::moe_router_options(), z, routing, ffn::moe_route_gradients()), ffn::error);

    ffn::conv_options options;
    options.activation = FFN_ACTIVATION_RELU;
    const std::vector<float> up(8, 1.0f), x(4, 1.0f);
    std::vector<float> y(4), read(8);
    ffn::conv conv(options, {ffn::tensor(FFN_ROLE_UP_WEIGHT, up, {4, 2}), ffn::tensor(FFN_ROLE_DOWN_WEIGHT, up, {2, 4})});
    conv.forward(1, x, y);
    CHECK(y == std::vector<float>(4, 8.0f));
    conv.reserve(1, 2);
    conv.read(FFN_ROLE_UP_WEIGHT, read, {4, 2});
    CHECK(read == up);
    CHECK(conv.info().d_ff == 4);
    CHECK_THROWS_AS(conv.update({}), ffn::error);
    ffn::conv_run run;
    run.batch = run.length = 1;
    CHECK_THROWS_AS(conv.run(run), ffn::error);
    CHECK_THROWS_AS(conv.backward(ffn::backward_options()), ffn::error);
    CHECK_THROWS_AS(ffn::conv(options, {}), ffn::error);
}
#endif
