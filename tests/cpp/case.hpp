// SPDX-License-Identifier: MIT
//
// A layer for the tests of ffn.hpp, and the same in float64, written from the formula: relu, LayerNorm before, the input added.
#ifndef TESTS_CPP_CASE_HPP
#define TESTS_CPP_CASE_HPP

#include <ffn/ffn.hpp>

#include <cmath>
#include <string>
#include <vector>

constexpr std::size_t d_model = 24, d_ff = 40, tokens = 5;

inline std::vector<float> numbers(std::uint32_t seed, std::size_t count) {
    std::vector<float> made(count);
    for (float &number : made) {
        seed = seed * 1664525u + 1013904223u;
        number = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    }
    return made;
}

struct test_case {
    std::vector<float> up = numbers(1, d_ff * d_model), up_bias = numbers(2, d_ff), down = numbers(3, d_model * d_ff), x = numbers(4, tokens * d_model);
    ffn_tensor_t tensors[3];
    ffn::layer_options options;

    test_case() {
        REQUIRE(ffn::try_tensor(tensors[0], FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model}) == FFN_OK);
        REQUIRE(ffn::try_tensor(tensors[1], FFN_ROLE_UP_BIAS, up_bias, {d_ff}) == FFN_OK);
        REQUIRE(ffn::try_tensor(tensors[2], FFN_ROLE_DOWN_WEIGHT, down, {d_model, d_ff}) == FFN_OK);
        options.activation = FFN_ACTIVATION_RELU;
        options.residual = FFN_RESIDUAL_INPUT;
        options.norm[FFN_NORM_IN] = FFN_NORM_LAYER;
        options.norm_eps[FFN_NORM_IN] = 0.001f;
    }

    std::vector<double> expected_row(const float *row) const {
        double mean = 0, variance = 0;
        for (std::size_t i = 0; i < d_model; i++) mean += static_cast<double>(row[i]) / d_model;
        for (std::size_t i = 0; i < d_model; i++) variance += std::pow(static_cast<double>(row[i]) - mean, 2) / d_model;
        std::vector<double> hidden(up_bias.begin(), up_bias.end()), y(row, row + d_model);
        for (std::size_t f = 0; f < d_ff; f++) {
            for (std::size_t i = 0; i < d_model; i++)
                hidden[f] += static_cast<double>(up[f * d_model + i]) * (static_cast<double>(row[i]) - mean) / std::sqrt(variance + static_cast<double>(0.001f));
            for (std::size_t i = 0; i < d_model; i++) y[i] += static_cast<double>(down[i * d_ff + f]) * std::fmax(hidden[f], 0);
        }
        return y;
    }

    // Within 2e-6 of the largest value.
    bool is_right(const std::vector<float> &y) const {
        for (std::size_t t = 0; t < tokens; t++) {
            std::vector<double> expected = expected_row(x.data() + t * d_model);
            double largest = 0;
            for (double number : expected) largest = std::fmax(largest, std::fabs(number));
            for (std::size_t i = 0; i < d_model; i++)
                if (!(std::fabs(static_cast<double>(y[t * d_model + i]) - expected[i]) <= 2e-6 * largest)) return false;
        }
        return true;
    }
};

inline bool says(const char *words) { return std::string(ffn::last_error()).find(words) != std::string::npos; }

#endif
