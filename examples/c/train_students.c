/* SPDX-License-Identifier: MIT
 *
 * Smaller layers learn what a layer of a model does: ReLU, GELU and SwiGLU students of three sizes each, and the error of each against its parameters.
 *     cc train_students.c training.c training_state.c $(pkg-config --cflags --libs ffn-io) -lm
 *     ./a.out x.npy y.npy [--steps N] [--stop N] [--seed N] [--state FILE]
 * x.npy is what the teacher receives, [rows, d_model], y.npy what it gives. examples/python/minilm_states.py makes both of MiniLM and sentences; of any
 * model and x.npy the second is made by
 *     ffn run MODEL --layer 2 --input x.npy --output y.npy
 * A student is y = LayerNorm(x + FFN(x)), as MiniLM's layers are, with a narrower hidden row and without biases. The last tenth of the rows is not
 * trained on. Under a minute on two cores. Ctrl-C stops it, and so does --stop; the same command goes on from students.safetensors, to the same bits.
 * The curves are in students.tsv, error against parameters in students-errors.tsv, and both are drawn to .svg where there is gnuplot.
 */
#include "training.h"

#include <ffn/ffn_io.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 192, SIZES = 3, KINDS = 3 };

static const int64_t widths[SIZES] = {24, 72, 216}; /* d_ff of ReLU and GELU */
static const char *const kinds[KINDS] = {"relu", "gelu", "swiglu"};

/* The teacher's rows. */
typedef struct rows {
    float *x, *y;
    int64_t count, trained, d_model;
} rows_t;

static void must_io(ffn_status_t status) {
    if (status == FFN_OK) return;
    fprintf(stderr, "%s: %s\n", ffn_io_status_name(status), ffn_io_last_error());
    exit(EXIT_FAILURE);
}

static float *read_array(const char *path, ffn_npy_info_t *info) {
    ffn_npy_t *npy;
    info->struct_size = sizeof *info;
    must_io(ffn_npy_open(path, &npy));
    must_io(ffn_npy_info(npy, info));
    float *numbers = take(info->rows * info->columns);
    must_io(ffn_npy_read(npy, 0, info->rows, numbers));
    ffn_npy_free(npy);
    return numbers;
}

static rows_t read_rows(const char *x_path, const char *y_path) {
    ffn_npy_info_t x, y;
    rows_t rows = {.x = read_array(x_path, &x), .y = read_array(y_path, &y)};
    if (x.rows != y.rows || x.columns != y.columns || x.rows < 10) {
        fprintf(stderr, "x has %" PRId64 " rows of %" PRId64 " and y %" PRId64 " of %" PRId64 ", must have as many, of one width, 10 or more\n", x.rows,
                x.columns, y.rows, y.columns);
        exit(EXIT_FAILURE);
    }
    rows.count = x.rows;
    rows.trained = x.rows - x.rows / 10;
    rows.d_model = x.columns;
    return rows;
}

/* Rows drawn by chance; streams below 64 are the weights'. */
static void batch(void *data, uint64_t seed, int64_t step, float *x, float *target) {
    const rows_t *rows = data;
    const size_t row_bytes = (size_t)rows->d_model * sizeof(float);
    float chance[ROWS];
    uniform(chance, ROWS, seed, 64 + (uint64_t)step);
    for (int i = 0; i < ROWS; i++) {
        int64_t row = (int64_t)(((double)chance[i] + 1) / 2 * (double)rows->trained);
        memcpy(x + i * rows->d_model, rows->x + row * rows->d_model, row_bytes);
        memcpy(target + i * rows->d_model, rows->y + row * rows->d_model, row_bytes);
    }
}

/* Of d_ff hidden numbers, or with a gate of 2/3 d_ff: the same parameters. Its branch begins small. */
static void make_student(learner_t *learner, int kind, int64_t d_ff, int64_t d_model, uint64_t seed, uint64_t stream) {
    static const uint32_t activations[KINDS] = {FFN_ACTIVATION_RELU, FFN_ACTIVATION_GELU, FFN_ACTIVATION_SILU};
    int64_t width = d_ff;
    if (kind == 2) must(ffn_gated_d_ff(d_ff, 1, &width));
    snprintf(learner->name, sizeof learner->name, "%s-%" PRId64, kinds[kind], d_ff);
    learner->options.activation = activations[kind];
    learner->options.residual = FFN_RESIDUAL_INPUT;
    learner->options.norm[FFN_NORM_OUT] = FFN_NORM_LAYER;
    learner_add_random(learner, "up", FFN_ROLE_UP_WEIGHT, width, d_model, seed, stream, 0);
    learner_add_random(learner, "down", FFN_ROLE_DOWN_WEIGHT, d_model, width, seed, stream + 1, 0.1f);
    if (kind == 2) learner_add_random(learner, "gate", FFN_ROLE_GATE_WEIGHT, width, d_model, seed, stream + 2, 0);
    learner_add(learner, "norm_out_weight", FFN_ROLE_NORM_OUT_WEIGHT, d_model, 0, 1);
    learner_add(learner, "norm_out_bias", FFN_ROLE_NORM_OUT_BIAS, d_model, 0, 0);
    learner_make(learner);
}

/* Error against parameters. */
static void report(const training_t *training) {
    FILE *file = fopen("students-errors.tsv", "w");
    if (!file) {
        perror("students-errors.tsv");
        exit(EXIT_FAILURE);
    }
    fprintf(file, "student\tparameters\terror\n");
    printf("%-12s%12s%10s\n", "", "parameters", "error");
    for (int i = 0; i < training->learner_count; i++) {
        const learner_t *learner = &training->learners[i];
        double error = learner_error(learner, training->valid_rows, training->d_model, training->valid_x, training->valid_target);
        printf("%-12s%12" PRId64 "%10.4f\n", learner->name, learner_parameters(learner), error);
        fprintf(file, "%s\t%" PRId64 "\t%.6g\n", learner->name, learner_parameters(learner), error);
    }
    fclose(file);
    training_draw(training, "students");
    if (gnuplot("set output 'students-errors.svg'; set logscale xy; set xlabel 'parameters'; set ylabel 'error on rows that were not trained on';"
                " plot for [kind in 'relu gelu swiglu'] '< grep ^'.kind.'- students-errors.tsv' using 2:3 with linespoints title kind"))
        printf("error against parameters is in students-errors.tsv, and drawn beside it as .svg\n");
    else
        printf("error against parameters is in students-errors.tsv\n");
}

int main(int argc, char **argv) {
    training_t training = {.rows = ROWS, .steps = 400, .learning_rate = 0.003f, .state_path = "students.safetensors", .batch = batch};
    if (training_arguments(&training, argc, argv) != 3) {
        fprintf(stderr, "usage: train_students x.npy y.npy [--steps N] [--stop N] [--seed N] [--state FILE]\n");
        return 2;
    }
    rows_t rows = read_rows(argv[1], argv[2]);
    training.d_model = rows.d_model;
    training.data = &rows;
    training.valid_rows = rows.count - rows.trained;
    training.valid_x = rows.x + rows.trained * rows.d_model;
    training.valid_target = rows.y + rows.trained * rows.d_model;
    for (int i = 0; i < SIZES * KINDS; i++)
        make_student(&training.learners[training.learner_count++], i % KINDS, widths[i / KINDS], rows.d_model, training.seed, 3 * (uint64_t)i);
    if (training_run(&training))
        report(&training);
    else
        printf("stopped after step %" PRId64 ": the same command goes on from there\n", training.step);
    training_free(&training);
    free(rows.x), free(rows.y);
    return EXIT_SUCCESS;
}
