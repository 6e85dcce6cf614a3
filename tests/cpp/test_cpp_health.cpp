// SPDX-License-Identifier: MIT
//
// ffn_health.hpp: what hidden units and tensors do, against plain loops in float64, and what is refused.
#include <doctest/doctest.h>

#include "case.hpp"
#include "memory.hpp"

#include <ffn/ffn_health.hpp>

#include <cmath>
#include <limits>

static_assert(std::is_nothrow_move_constructible_v<ffn::stats> && !std::is_copy_constructible_v<ffn::stats>);

// Hidden numbers of the case before the activation: [tokens, d_ff].
static std::vector<double> hidden_rows(const test_case &made) {
    std::vector<double> rows;
    for (std::size_t t = 0; t < tokens; t++) {
        const float *x = made.x.data() + t * d_model;
        double mean = 0, variance = 0;
        for (std::size_t i = 0; i < d_model; i++) mean += static_cast<double>(x[i]) / d_model;
        for (std::size_t i = 0; i < d_model; i++) variance += std::pow(static_cast<double>(x[i]) - mean, 2) / d_model;
        for (std::size_t f = 0; f < d_ff; f++) {
            double h = static_cast<double>(made.up_bias[f]);
            for (std::size_t i = 0; i < d_model; i++)
                h += static_cast<double>(made.up[f * d_model + i]) * (static_cast<double>(x[i]) - mean) / std::sqrt(variance + static_cast<double>(0.001f));
            rows.push_back(h);
        }
    }
    return rows;
}

TEST_CASE("hidden units are counted, and y is as without") {
    const test_case made;
    ffn::layer layer;
    ffn::stats stats, other;
    ffn::stats_options options;
    options.d_ff = d_ff;
    REQUIRE(layer.try_create(made.options, made.tensors) == FFN_OK);
    CHECK(each_fails([&] { return stats.try_create(options); }) >= 1);
    REQUIRE(other.try_create(options) == FFN_OK);
    std::vector<float> y(tokens * d_model), plain(tokens * d_model);
    ffn::run_options run;
    run.stats = stats.get();
    REQUIRE(layer.try_forward(made.x, y, run) == FFN_OK);
    REQUIRE(layer.try_forward(made.x, plain) == FFN_OK);
    CHECK(y == plain);

    const std::vector<double> rows = hidden_rows(made);
    std::vector<std::int64_t> expected(d_ff), positive(d_ff), histogram(2), bins(3);
    std::int64_t all = 0, dead = 0, below = 0;
    for (std::size_t i = 0; i < rows.size(); i++) expected[i % d_ff] += rows[i] > 0;
    for (std::int64_t count : expected) {
        all += count;
        dead += count == 0;
        below += 2 * count < static_cast<std::int64_t>(tokens);
    }
    std::vector<double> density(d_ff), logit(d_ff);
    CHECK(stats.try_units(positive, density, logit) == FFN_OK);
    CHECK(positive == expected);
    for (std::size_t f = 0; f < d_ff; f++) {
        const double share = static_cast<double>(expected[f]) / tokens;
        CHECK(std::fabs(density[f] - share) <= 1e-15);
        CHECK(std::fabs(logit[f] - std::log(share + std::exp(-10)) + std::log(1 - share + std::exp(-10))) <= 1e-12);
    }
    CHECK(stats.try_units({}, {}, logit) == FFN_OK);
    ffn_stats_info_t info = {};
    CHECK(stats.try_info(info) == FFN_OK);
    CHECK(info.positions == static_cast<std::int64_t>(tokens));
    CHECK(info.positive == all);
    CHECK(info.dead_units == dead);
    CHECK(stats.try_histogram(histogram) == FFN_OK);
    CHECK(histogram[0] == below);
    CHECK(histogram[1] == static_cast<std::int64_t>(d_ff) - below);
    const double edges[] = {-20, -5, 5, 20};
    CHECK(stats.try_histogram(bins, edges) == FFN_OK);
    CHECK(bins[0] == dead);

    CHECK(other.try_merge(stats) == FFN_OK);
    CHECK(stats.try_merge(other) == FFN_OK);
    CHECK(stats.try_info(info) == FFN_OK);
    CHECK(info.positions == 2 * static_cast<std::int64_t>(tokens));
    CHECK(stats.try_reset() == FFN_OK);
    CHECK(stats.try_info(info) == FFN_OK);
    CHECK(info.positions == 0);

    CHECK(stats.try_units(ffn::span<std::int64_t>(positive.data(), 3)) == FFN_INVALID);
    CHECK(says("positive has 3 numbers, must have 1 * 40"));
    CHECK(stats.try_units({}, ffn::span<double>(density.data(), 3)) == FFN_INVALID);
    CHECK(stats.try_units({}, {}, ffn::span<double>(logit.data(), 3)) == FFN_INVALID);
    CHECK(stats.try_histogram(histogram, edges) == FFN_INVALID);
    CHECK(says("edges has 4 numbers, must have 1 * 3"));
    CHECK(stats.try_histogram({}) == FFN_INVALID);
    CHECK(ffn::stats().try_reset() == FFN_INVALID);
    CHECK(ffn::stats().try_info(info) == FFN_INVALID);
    options.d_ff = d_ff + 1;
    REQUIRE(other.try_create(options) == FFN_OK);
    CHECK(other.try_merge(stats) == FFN_INVALID);
    run.stats = other.get();
    std::vector<float> untouched(tokens * d_model, 7.0f);
    CHECK(layer.try_forward(made.x, untouched, run) == FFN_INVALID);
    CHECK(untouched == std::vector<float>(tokens * d_model, 7.0f));
    options.d_ff = 0;
    CHECK(other.try_create(options) == FFN_INVALID);
}

TEST_CASE("a tensor's numbers are looked at through its strides") {
    const float infinite = std::numeric_limits<float>::infinity();
    const std::vector<float> numbers = {3, 99, 0, 99, -4, 99}, moved = {3, 99, 0, 99, -3, 99}, wild = {1, infinite, -0.0f};
    const ffn_tensor_t every_other = ffn::tensor_at(FFN_ROLE_UP_BIAS, numbers.data(), {3}, {8});
    ffn_tensor_health_t health = {};
    CHECK(ffn::try_tensor_health(health, every_other) == FFN_OK);
    CHECK(health.count == 3);
    CHECK(health.zeros == 1);
    CHECK(health.norm == 5.0);
    CHECK(health.largest == 4.0);
    CHECK(ffn::try_tensor_health(health, ffn::tensor_at(FFN_ROLE_UP_BIAS, wild.data(), {3})) == FFN_OK);
    CHECK(health.non_finite == 1);
    CHECK(health.zeros == 1);
    double ratio = 7;
    CHECK(ffn::try_update_ratio(ratio, every_other, ffn::tensor_at(FFN_ROLE_UP_BIAS, moved.data(), {3}, {8})) == FFN_OK);
    CHECK(std::fabs(ratio - 0.2) <= 1e-15);
    CHECK(ffn::try_update_ratio(ratio, every_other, ffn::tensor_at(FFN_ROLE_UP_BIAS, moved.data(), {2})) == FFN_INVALID);
    CHECK(ffn::try_tensor_health(health, ffn::tensor_at(FFN_ROLE_UP_BIAS, nullptr, {3})) == FFN_INVALID);
}

TEST_CASE("stats of mixtures have a place for every unit and every expert") {
    ffn::stats_options options;
    options.d_ff = 3, options.experts = 2, options.d_shared = 5;
    ffn::stats stats;
    CHECK(stats.try_create(options) == FFN_OK);
    std::vector<std::int64_t> positive(11, 7), positions(3, 7), dead(3, 7);
    CHECK(stats.try_units(positive) == FFN_OK);
    CHECK((positive[0] == 0 && positive[10] == 0));
    std::vector<double> share(3);
    CHECK(stats.try_experts(positions, share, dead) == FFN_OK);
    CHECK((positions[2] == 0 && dead[2] == 0 && std::isnan(share[2])));
    CHECK(stats.try_units(ffn::span<std::int64_t>(positive.data(), 3)) == FFN_INVALID);
    CHECK(stats.try_experts(ffn::span<std::int64_t>(positions.data(), 2)) == FFN_INVALID);
    CHECK(stats.try_experts({}, ffn::span<double>(share.data(), 2)) == FFN_INVALID);
    CHECK(stats.try_experts({}, {}, ffn::span<std::int64_t>(dead.data(), 2)) == FFN_INVALID);
}

TEST_CASE("names of activations, and the width of gated layers") {
    std::uint32_t activation = 0;
    std::int64_t gated = 0;
    CHECK(ffn::try_activation(activation, "gelu_tanh") == FFN_OK);
    CHECK(activation == FFN_ACTIVATION_GELU_TANH);
    CHECK(ffn::try_activation(activation, "gello") == FFN_INVALID);
    CHECK(ffn::try_gated_d_ff(gated, 16384, 256) == FFN_OK);
    CHECK(gated == 11008);
    CHECK(ffn::try_gated_d_ff(gated, 0) == FFN_INVALID);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing forms look likewise") {
    const test_case made;
    const ffn::layer layer(made.options, made.tensors);
    ffn::stats_options options;
    options.d_ff = d_ff;
    ffn::stats stats(d_ff), other(options);
    std::vector<float> y(tokens * d_model);
    ffn::run_options run;
    run.stats = stats.get();
    layer.forward(made.x, y, run);
    other.merge(stats);
    std::vector<std::int64_t> positive(d_ff), bins(4);
    other.units(positive);
    other.histogram(bins);
    CHECK(bins[0] + bins[1] + bins[2] + bins[3] == static_cast<std::int64_t>(d_ff));
    CHECK(other.info().positions == static_cast<std::int64_t>(tokens));
    other.reset();
    CHECK(other.info().positions == 0);
    CHECK_THROWS_AS(ffn::stats(std::int64_t{0}), ffn::error);
    CHECK_THROWS_AS(other.histogram({}), ffn::error);
    CHECK(ffn::tensor_health(made.tensors[0]).count == static_cast<std::int64_t>(d_ff * d_model));
    CHECK(ffn::update_ratio(made.tensors[0], made.tensors[0]) == 0.0);
    CHECK_THROWS_AS(ffn::update_ratio(made.tensors[0], made.tensors[1]), ffn::error);
    CHECK(ffn::activation("silu") == FFN_ACTIVATION_SILU);
    CHECK_THROWS_AS(ffn::activation("sil"), ffn::error);
    CHECK(ffn::gated_d_ff(3072) == 2048);
    CHECK_THROWS_AS(ffn::gated_d_ff(-1), ffn::error);
}
#endif
