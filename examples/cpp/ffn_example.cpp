// SPDX-License-Identifier: MIT
//
// A transformer's feed-forward layer, 512 -> 2048 -> 512 with GELU, a LayerNorm before it and a residual around it, on three tokens.
//     c++ -std=c++17 ffn_example.cpp $(pkg-config --cflags --libs ffn)
#include <ffn/ffn.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

constexpr int d_model = 512, d_ff = 2048, tokens = 3;

// Small numbers that look random, the same on every machine.
static std::vector<float> make(std::size_t count, float scale) {
    std::vector<float> numbers(count);
    std::uint32_t state = 1;
    for (float &number : numbers) {
        state = state * 1664525u + 1013904223u;
        number = scale * (static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
    }
    return numbers;
}

int main() try {
    const auto up = make(d_ff * d_model, 0.05f), down = make(d_model * d_ff, 0.05f), x = make(tokens * d_model, 1.0f);
    std::vector<float> y(tokens * d_model);

    ffn::layer_options options;
    options.activation = FFN_ACTIVATION_GELU;
    options.residual = FFN_RESIDUAL_INPUT;
    options.norm[FFN_NORM_IN] = FFN_NORM_LAYER;
    const ffn::layer layer(options, {ffn::tensor(FFN_ROLE_UP_WEIGHT, up, {d_ff, d_model}), ffn::tensor(FFN_ROLE_DOWN_WEIGHT, down, {d_model, d_ff})});
    layer.forward(x, y);

    double sum = 0;
    for (float number : y) sum += std::fabs(static_cast<double>(number));
    std::printf("%d tokens through %d-%d-%d, sum of |y|: %.3f\n", tokens, d_model, d_ff, d_model, sum);
} catch (const ffn::error &error) {
    std::fprintf(stderr, "ffn_example: %s: %s\n", ffn_status_name(error.status()), error.what());
    return 1;
}
