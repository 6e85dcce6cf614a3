/* SPDX-License-Identifier: MIT
 * What counting costs: a layer's forward pass with ffn_run_t.stats against the same without, in turn, with each engine. */
#include "measure.h"

#include <cblas.h>
#include <ffn/ffn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct stats_case {
    int64_t d_model, d_ff, tokens;
    int gated, threads;
    uint32_t engine;
    float *x, *y[2], *up, *gate, *down;
    ffn_layer_t *layer;
    ffn_context_t *context;
    ffn_stats_t *stats;
} stats_case_t;

static void require(ffn_status_t status) {
    if (!status) return;
    fprintf(stderr, "ffn_bench: %s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(1);
}

static void run(stats_case_t *c, int counted) {
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = c->tokens, .x = c->x, .y = c->y[counted],
                           .stats = counted ? c->stats : NULL};
    require(ffn_layer_run(c->layer, c->context, &run));
}

static void run_counted(void *data) {
    run(data, 1);
}

static void run_plain(void *data) {
    run(data, 0);
}

static void make_case(stats_case_t *c) {
    int64_t in = c->d_model * c->d_ff, rows = c->tokens * c->d_model;
    float in_scale = sqrtf(3.0f / (float)c->d_model), down_scale = sqrtf(3.0f / (float)c->d_ff);
    c->x = measure_random(rows, 1.7f, 1), c->y[0] = measure_random(rows, 1, 2), c->y[1] = measure_random(rows, 1, 3);
    c->up = measure_random(in, in_scale, 5), c->gate = measure_random(in, in_scale, 6), c->down = measure_random(in, down_scale, 7);
    const ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = c->up, .shape = {c->d_ff, c->d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = c->down, .shape = {c->d_model, c->d_ff}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = c->gate, .shape = {c->d_ff, c->d_model}},
    };
    const ffn_layer_options_t options = {.struct_size = sizeof options, .tensors = tensors, .tensor_count = c->gated ? 3 : 2, .engine = c->engine,
                                         .activation = c->gated ? FFN_ACTIVATION_SILU : FFN_ACTIVATION_GELU};
    const ffn_context_options_t context = {.struct_size = sizeof context, .threads = (uint32_t)c->threads};
    const ffn_stats_options_t stats = {.struct_size = sizeof stats, .d_ff = c->d_ff};
    require(ffn_context_create(&context, &c->context));
    require(ffn_layer_create(c->context, &options, &c->layer));
    require(ffn_stats_create(&stats, &c->stats));
}

static void free_case(stats_case_t *c) {
    float *arrays[] = {c->x, c->y[0], c->y[1], c->up, c->gate, c->down};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    ffn_stats_free(c->stats);
    ffn_layer_free(c->layer);
    ffn_context_free(c->context);
}

/* The same output, and the counts of some units within what rounding may turn round 0. */
static int counts_are_right(stats_case_t *c) {
    int64_t *positive = calloc((size_t)c->d_ff, sizeof *positive);
    int right = positive && !memcmp(c->y[0], c->y[1], (size_t)(c->tokens * c->d_model) * sizeof(float));
    if (positive) require(ffn_stats_units(c->stats, positive, NULL, NULL));
    for (int64_t unit = 0; right && unit < c->d_ff; unit += 97) {
        int64_t surely = 0, perhaps = 0;
        for (int64_t t = 0; t < c->tokens; t++) {
            const float *weight = (c->gated ? c->gate : c->up) + unit * c->d_model;
            double sum = 0;
            for (int64_t i = 0; i < c->d_model; i++) sum += (double)weight[i] * c->x[t * c->d_model + i];
            surely += sum > 1e-5;
            perhaps += fabs(sum) <= 1e-5;
        }
        right = positive[unit] >= surely && positive[unit] <= surely + perhaps;
    }
    if (!right) fprintf(stderr, "ffn_bench: counting is wrong\n");
    free(positive);
    return right;
}

static int run_case(const settings_t *settings, stats_case_t *c) {
    contender_t contender[2] = {{.name = "counted", .run = run_counted, .data = c}, {.name = "plain", .run = run_plain, .data = c}};
    openblas_set_num_threads(c->threads); /* a benchmark is a host program */
    make_case(c);
    run_plain(c);
    run_counted(c);
    int wrong = !counts_are_right(c);
    if (!wrong) {
        measure_in_turn(contender, 2, settings->rounds);
        double ratio = measure_ratio(&contender[0], &contender[1], settings->rounds);
        const char *engine = c->engine == FFN_ENGINE_BLAS ? "blas" : "native", *activation = c->gated ? "silu" : "gelu";
        printf("%5lld-%-5lld %-5s %-7s %7lld %8d %12.1f %12.1f %8.4f\n", (long long)c->d_model, (long long)c->d_ff, activation, engine,
               (long long)c->tokens, c->threads, 1e6 * contender[0].median, 1e6 * contender[1].median, ratio);
        if (settings->tsv)
            fprintf(settings->tsv, "stats\t%lld\t%lld\t%s\t%s\t%lld\t%d\t%.9g\t%.9g\t%.5f\n", (long long)c->d_model, (long long)c->d_ff, activation,
                    engine, (long long)c->tokens, c->threads, contender[0].median, contender[1].median, ratio);
        for (int i = 0; i < 2; i++) free(contender[i].seconds);
    }
    free_case(c);
    return wrong;
}

static int run_engines(const settings_t *settings, const stats_case_t *shape) {
    static const uint32_t engines[] = {FFN_ENGINE_NATIVE, FFN_ENGINE_BLAS};
    int wrong = 0;
    for (int e = 0; e < 2; e++)
        for (int h = 0; h < settings->thread_counts; h++)
            for (int t = 0; t < settings->token_counts; t++) {
                stats_case_t c = *shape;
                c.engine = engines[e], c.threads = settings->threads[h], c.tokens = settings->tokens[t];
                wrong |= run_case(settings, &c);
            }
    return wrong;
}

int bench_stats(const settings_t *settings) {
    static const stats_case_t standard[] = {{.d_model = 768, .d_ff = 3072}, {.d_model = 1024, .d_ff = 2816, .gated = 1}};
    const stats_case_t given = {.d_model = settings->d_model, .d_ff = settings->d_ff, .gated = settings->gated};
    printf("A forward pass that counts its activations (ffn_run_t.stats) against the same without, in turn, %d rounds, medians.\n\n"
           "%-17s %-7s %7s %8s %12s %12s %8s\n",
           settings->rounds, "shape", "engine", "tokens", "threads", "counted us", "plain us", "ratio");
    if (settings->tsv) fprintf(settings->tsv, "bench\td_model\td_ff\tactivation\tengine\ttokens\tthreads\tcounted_s\tplain_s\tratio\n");
    int wrong = settings->d_model ? run_engines(settings, &given) : run_engines(settings, &standard[0]) | run_engines(settings, &standard[1]);
    printf("\n");
    return wrong;
}
