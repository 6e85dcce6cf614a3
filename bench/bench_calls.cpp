// SPDX-License-Identifier: MIT
//
// ffn_bench_calls: what a call through ffn.hpp costs beside the C call, on one token through a tiny layer.
extern "C" {
#include "measure.h"
}

#include <ffn/ffn.hpp>

#include <vector>

constexpr std::int64_t d_model = 64, d_ff = 172;
constexpr int rounds = 2001, calls = 100; // calls in each round of each contender

struct call {
    ffn::layer layer;
    ffn::context context;
    std::vector<float> x = std::vector<float>(d_model, 0.5f), y = std::vector<float>(d_model);
};

template <void (*one)(call &)> static void many(void *data) {
    for (int i = 0; i < calls; i++) one(*static_cast<call *>(data));
}
static void c(call &call) {
    if (ffn_layer_forward(call.layer.get(), nullptr, 1, call.x.data(), 0, call.y.data(), 0)) call.y.clear();
}
static void status(call &call) {
    if (call.layer.try_forward(call.x, call.y)) call.y.clear();
}
static void exception(call &call) { call.layer.forward(call.x, call.y); }
static void c_in_context(call &call) {
    if (ffn_layer_forward(call.layer.get(), call.context.get(), 1, call.x.data(), 0, call.y.data(), 0)) call.y.clear();
}
static void in_context(call &call) { call.layer.forward(call.x, call.y, &call.context); }

int main() try {
    float *weights = measure_random(d_ff * d_model, 0.1f, 1);
    ffn::layer_options options;
    options.activation = FFN_ACTIVATION_RELU;
    ffn::context_options one_thread;
    one_thread.threads = 1;
    call call;
    call.context = ffn::context(one_thread);
    call.layer = ffn::layer(options, {ffn::tensor_at(FFN_ROLE_UP_WEIGHT, weights, {d_ff, d_model}), ffn::tensor_at(FFN_ROLE_DOWN_WEIGHT, weights, {d_model, d_ff})});

    contender_t contenders[] = {{"ffn_layer_forward", many<c>, &call, nullptr, 0, 0, 0},
                                {"layer::try_forward", many<status>, &call, nullptr, 0, 0, 0},
                                {"layer::forward", many<exception>, &call, nullptr, 0, 0, 0},
                                {"ffn_layer_forward, context", many<c_in_context>, &call, nullptr, 0, 0, 0},
                                {"layer::forward, context", many<in_context>, &call, nullptr, 0, 0, 0}};
    measure_in_turn(contenders, 5, rounds);
    std::printf("%s\none token through %d-%d-%d, ns a call (median of %d interleaved rounds; 10th and 90th percentile), and the median ratio to C in the same round\n",
                ffn_build_info(), static_cast<int>(d_model), static_cast<int>(d_ff), static_cast<int>(d_model), rounds);
    for (const contender_t &contender : contenders) {
        const contender_t &beside = contenders[&contender < contenders + 3 ? 0 : 3];
        const double scale = 1e9 / calls;
        std::printf("%-28s %8.1f  (%.1f to %.1f)  %.3f\n", contender.name, contender.median * scale, contender.low * scale, contender.high * scale,
                    measure_ratio(&contender, &beside, rounds));
    }
    return call.y.empty();
} catch (const ffn::error &error) {
    std::fprintf(stderr, "ffn_bench_calls: %s\n", error.what());
    return 1;
}
