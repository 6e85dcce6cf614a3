/* SPDX-License-Identifier: MIT
 *
 * A mixture of 4 experts, 2 of them for each token, learns a function that has two cases, with Switch's load-balancing loss on its router. docs/training.md
 * shows the loop; examples/cpp and examples/rust have the same program.
 *     cc train_mixture.c $(pkg-config --cflags --libs ffn) -lm
 */
#include <ffn/ffn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D_MODEL = 8, D_FF = 16, EXPERTS = 4, TOP_K = 2, TOKENS = 256, STEPS = 300, MOST = EXPERTS * D_FF * D_MODEL };

static void check(ffn_status_t status) {
    if (status == FFN_OK) return;
    fprintf(stderr, "train_mixture: %s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(1);
}

/* The weights, their gradients, and AdamW's two averages: router, up, down. */
static float weight[3][MOST], gradient[3][MOST], first[3][MOST], second[3][MOST];
static const int64_t count[3] = {EXPERTS * D_MODEL, MOST, MOST};

static void draw(float *values, int64_t n, uint64_t stream, uint32_t scheme, float gain, int64_t fan_in) {
    ffn_init_options_t init = {.struct_size = sizeof init, .scheme = scheme, .gain = gain, .seed = 1, .stream = stream, .fan_in = fan_in};
    check(ffn_weight_init(values, n, &init));
}

/* Views of the weights, or of their gradients. */
static void view(float (*arrays)[MOST], ffn_tensor_t tensors[3]) {
    ffn_tensor_t made[3] = {
        {.role = FFN_ROLE_ROUTER_WEIGHT, .ndim = 2, .data = arrays[0], .shape = {EXPERTS, D_MODEL}},
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = arrays[1], .shape = {EXPERTS, D_FF, D_MODEL}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 3, .data = arrays[2], .shape = {EXPERTS, D_MODEL, D_FF}}};
    memcpy(tensors, made, sizeof made);
}

int main(void) {
    static float x[TOKENS * D_MODEL], target[TOKENS * D_MODEL], y[TOKENS * D_MODEL], d_y[TOKENS * D_MODEL];
    static float scores[TOKENS * EXPERTS], d_scores[TOKENS * EXPERTS];
    static int64_t counts[EXPERTS];
    draw(weight[0], count[0], 0, FFN_INIT_LECUN_NORMAL, 0, D_MODEL);
    draw(weight[1], count[1], 1, FFN_INIT_KAIMING_NORMAL, 0, D_MODEL);
    draw(weight[2], count[2], 2, FFN_INIT_LECUN_NORMAL, 0, D_FF);
    draw(x, TOKENS * D_MODEL, 3, FFN_INIT_NORMAL, 1, 0);
    for (int t = 0; t < TOKENS; t++) /* the next number of the row, or its negative */
        for (int i = 0; i < D_MODEL; i++) target[t * D_MODEL + i] = (x[t * D_MODEL] > 0 ? 1 : -1) * x[t * D_MODEL + (i + 1) % D_MODEL];

    ffn_tensor_t weights[3], gradients[3];
    view(weight, weights);
    view(gradient, gradients);
    ffn_moe_options_t mixture = {.struct_size = sizeof mixture, .top_k = TOP_K};
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = FFN_LAYER_TRAINABLE, .activation = FFN_ACTIVATION_GELU,
                                   .tensors = weights, .tensor_count = 3, .moe = &mixture};
    ffn_layer_t *layer;
    ffn_tape_t *tape;
    check(ffn_layer_create(NULL, &options, &layer));
    check(ffn_tape_create(NULL, &tape));
    for (int64_t step = 1; step <= STEPS; step++) {
        ffn_moe_run_t told = {.struct_size = sizeof told, .scores = scores, .counts = counts};
        ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = x, .y = y, .tape = tape, .moe = &told};
        check(ffn_layer_run(layer, NULL, &run));
        double error = 0, balance_loss;
        for (int i = 0; i < TOKENS * D_MODEL; i++) {
            error += (double)(y[i] - target[i]) * (y[i] - target[i]) / (TOKENS * D_MODEL);
            d_y[i] = 2 * (y[i] - target[i]) / (TOKENS * D_MODEL);
        }

        memset(d_scores, 0, sizeof d_scores); /* losses add to it */
        ffn_moe_balance_t balance = {.struct_size = sizeof balance, .tokens = TOKENS, .experts = EXPERTS, .top_k = TOP_K,
                                     .probabilities = scores, .counts = counts, .gradient = d_scores, .coefficient = 0.01};
        check(ffn_moe_loss_switch(&balance, &balance_loss));
        ffn_moe_backward_t losses = {.struct_size = sizeof losses, .d_scores = d_scores};
        ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = d_y, .gradients = gradients, .gradient_count = 3,
                                   .moe = &losses};
        check(ffn_layer_backward(layer, NULL, &backward));
        ffn_adamw_options_t adamw = {.struct_size = sizeof adamw, .step = step, .learning_rate = 1e-2f};
        for (int i = 0; i < 3; i++) check(ffn_adamw_step(NULL, &adamw, count[i], weight[i], gradient[i], first[i], second[i]));
        check(ffn_layer_update(layer, NULL, weights, 3));
        if (step == 1 || step % 100 == 0)
            printf("step %3d: error %.3f, balance %.4f, tokens of the experts %d %d %d %d\n", (int)step, error, balance_loss, (int)counts[0],
                   (int)counts[1], (int)counts[2], (int)counts[3]);
    }
    ffn_tape_free(tape);
    ffn_layer_free(layer);
    return 0;
}
