/* SPDX-License-Identifier: MIT
 *
 * A two-layer FFN (GELU) and a SwiGLU FFN of equal parameters learn a function that is not linear: y_i = x_i x_{i+1} + sin(3 x_i), for 15 numbers x
 * and a 1. Under a minute on two cores.
 *     cc train_function.c training.c training_state.c $(pkg-config --cflags --libs ffn-io) -lm
 *     ./a.out [--steps N] [--stop N] [--seed N] [--state FILE]
 * Ctrl-C stops it, and so does --stop; the same command goes on from function.safetensors, to the same bits. The curves are in function.tsv and, where
 * there is gnuplot, in function.svg. Where the hidden width of the first is d_ff, that of the second is 2/3 d_ff: it has three matrices, not two.
 */
#include "training.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { D_MODEL = 16, D_FF = 384, ROWS = 256, VALID_ROWS = 2048 };

static void make(int64_t rows, uint64_t seed, uint64_t stream, float *x, float *y) {
    uniform(x, rows * D_MODEL, seed, stream);
    for (int64_t t = 0; t < rows; t++) {
        float *row = x + t * D_MODEL;
        row[D_MODEL - 1] = 1; /* in place of biases */
        for (int i = 0; i < D_MODEL; i++) y[t * D_MODEL + i] = row[i] * row[(i + 1) % D_MODEL] + sinf(3 * row[i]);
    }
}

/* Streams below 16 are the weights'. */
static void batch(void *data, uint64_t seed, int64_t step, float *x, float *target) {
    (void)data;
    make(ROWS, seed, 16 + (uint64_t)step, x, target);
}

int main(int argc, char **argv) {
    training_t training = {.d_model = D_MODEL, .rows = ROWS, .steps = 2000, .learning_rate = 0.01f, .state_path = "function.safetensors", .batch = batch};
    if (training_arguments(&training, argc, argv) != 1) {
        fprintf(stderr, "usage: train_function [--steps N] [--stop N] [--seed N] [--state FILE]\n");
        return 2;
    }
    int64_t d_gated;
    must(ffn_gated_d_ff(D_FF, 1, &d_gated));
    training.learner_count = 2;
    learner_t *dense = &training.learners[0], *gated = &training.learners[1];
    snprintf(dense->name, sizeof dense->name, "gelu");
    snprintf(gated->name, sizeof gated->name, "swiglu");
    dense->options.activation = FFN_ACTIVATION_GELU;
    gated->options.activation = FFN_ACTIVATION_SILU;
    learner_add_random(dense, "up", FFN_ROLE_UP_WEIGHT, D_FF, D_MODEL, training.seed, 0, 0);
    learner_add_random(dense, "down", FFN_ROLE_DOWN_WEIGHT, D_MODEL, D_FF, training.seed, 1, 0);
    learner_add_random(gated, "up", FFN_ROLE_UP_WEIGHT, d_gated, D_MODEL, training.seed, 2, 0);
    learner_add_random(gated, "gate", FFN_ROLE_GATE_WEIGHT, d_gated, D_MODEL, training.seed, 3, 0);
    learner_add_random(gated, "down", FFN_ROLE_DOWN_WEIGHT, D_MODEL, d_gated, training.seed, 4, 0);
    learner_make(dense);
    learner_make(gated);

    float *x = take(VALID_ROWS * D_MODEL), *y = take(VALID_ROWS * D_MODEL);
    make(VALID_ROWS, training.seed, UINT32_MAX, x, y); /* numbers that no step sees */
    training.valid_x = x;
    training.valid_target = y;
    training.valid_rows = VALID_ROWS;
    if (training_run(&training)) {
        printf("%-8s%12s%10s\n", "", "parameters", "error");
        for (int i = 0; i < training.learner_count; i++)
            printf("%-8s%12" PRId64 "%10.4f\n", training.learners[i].name, learner_parameters(&training.learners[i]),
                   learner_error(&training.learners[i], VALID_ROWS, D_MODEL, x, y));
        training_draw(&training, "function");
    } else {
        printf("stopped after step %" PRId64 ": the same command goes on from there\n", training.step);
    }
    training_free(&training);
    free(x), free(y);
    return EXIT_SUCCESS;
}
