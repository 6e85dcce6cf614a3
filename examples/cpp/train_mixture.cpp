// SPDX-License-Identifier: MIT
//
// A mixture of 4 experts, 2 of them for each token, learns a function that has two cases, with Switch's load-balancing loss on its router. docs/training.md
// shows the loop; examples/c and examples/rust have the same program.
//     c++ -std=c++17 train_mixture.cpp $(pkg-config --cflags --libs ffn)
#include <ffn/ffn_moe_training.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

constexpr int d_model = 8, d_ff = 16, experts = 4, top_k = 2, tokens = 256, steps = 300;

// Numbers at random, and what AdamW keeps of them.
struct parameter {
    std::vector<float> value, gradient, first, second;

    parameter(std::size_t count, std::uint64_t stream, std::uint32_t scheme, float gain, std::int64_t fan_in)
        : value(count), gradient(count), first(count), second(count) {
        ffn::init_options init;
        init.scheme = scheme;
        init.gain = gain;
        init.seed = 1;
        init.stream = stream;
        init.fan_in = fan_in;
        ffn::weight_init(value, init);
    }
};

int main() try {
    parameter router(experts * d_model, 0, FFN_INIT_LECUN_NORMAL, 0, d_model);
    parameter up(experts * d_ff * d_model, 1, FFN_INIT_KAIMING_NORMAL, 0, d_model);
    parameter down(experts * d_model * d_ff, 2, FFN_INIT_LECUN_NORMAL, 0, d_ff);
    const std::vector<float> x = parameter(tokens * d_model, 3, FFN_INIT_NORMAL, 1, 0).value;
    std::vector<float> target(tokens * d_model), y(tokens * d_model), d_y(tokens * d_model), scores(tokens * experts), d_scores(tokens * experts);
    std::vector<std::int64_t> counts(experts);
    for (std::size_t t = 0; t < tokens; t++) // the next number of the row, or its negative
        for (std::size_t i = 0; i < d_model; i++) target[t * d_model + i] = (x[t * d_model] > 0 ? 1 : -1) * x[t * d_model + (i + 1) % d_model];

    ffn::moe_options mixture;
    mixture.top_k = top_k;
    ffn::layer_options options;
    options.flags = FFN_LAYER_TRAINABLE;
    options.activation = FFN_ACTIVATION_GELU;
    options.moe = &mixture;
    const ffn_tensor_t weights[] = {ffn::tensor(FFN_ROLE_ROUTER_WEIGHT, router.value, {experts, d_model}),
                                    ffn::tensor(FFN_ROLE_UP_WEIGHT, up.value, {experts, d_ff, d_model}),
                                    ffn::tensor(FFN_ROLE_DOWN_WEIGHT, down.value, {experts, d_model, d_ff})};
    const ffn_tensor_t gradients[] = {ffn::gradient(FFN_ROLE_ROUTER_WEIGHT, router.gradient, {experts, d_model}),
                                      ffn::gradient(FFN_ROLE_UP_WEIGHT, up.gradient, {experts, d_ff, d_model}),
                                      ffn::gradient(FFN_ROLE_DOWN_WEIGHT, down.gradient, {experts, d_model, d_ff})};
    ffn::layer layer(options, weights);
    ffn::tape tape{ffn::tape_options()};

    ffn::moe_run told(tokens, experts, top_k, {}, {}, {}, scores, counts);
    ffn::run_options run;
    run.moe = &told;
    ffn::moe_balance balance(experts, top_k, scores, counts, d_scores);
    balance.coefficient = 0.01;
    ffn::moe_backward losses(tokens, experts, top_k, {}, d_scores);
    ffn::backward_options backward;
    backward.moe = &losses;
    ffn::adamw_options adamw;
    adamw.learning_rate = 1e-2f;
    for (adamw.step = 1; adamw.step <= steps; adamw.step++) {
        layer.record(tape, x, y, run);
        double error = 0;
        for (std::size_t i = 0; i < y.size(); i++) {
            error += static_cast<double>(y[i] - target[i]) * static_cast<double>(y[i] - target[i]) / (tokens * d_model);
            d_y[i] = 2 * (y[i] - target[i]) / (tokens * d_model);
        }

        std::fill(d_scores.begin(), d_scores.end(), 0.0f); // losses add to it
        const double balance_loss = ffn::moe_loss(ffn_moe_loss_switch, balance);
        layer.backward(tape, d_y, {}, gradients, backward);
        for (parameter *one : {&router, &up, &down}) ffn::adamw_step(adamw, one->value, one->gradient, one->first, one->second);
        layer.update(weights);
        if (adamw.step == 1 || adamw.step % 100 == 0)
            std::printf("step %3d: error %.3f, balance %.4f, tokens of the experts %d %d %d %d\n", static_cast<int>(adamw.step), error, balance_loss,
                        static_cast<int>(counts[0]), static_cast<int>(counts[1]), static_cast<int>(counts[2]), static_cast<int>(counts[3]));
    }
} catch (const ffn::error &error) {
    std::fprintf(stderr, "train_mixture: %s: %s\n", ffn_status_name(error.status()), error.what());
    return 1;
}
