/* SPDX-License-Identifier: MIT
 * A training step, forward with a tape and backward with every gradient, against the bare sgemm calls that it contains, over all tokens at once: two of the
 * forward pass, four of the backward pass (gated: five). And what memory the step holds. */
#include "measure.h"

#include <cblas.h>
#include <ffn/ffn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct training_case {
    int64_t d_model, d_ff, tokens;
    const char *activation;
    int gated, threads;
    float *x, *y, *d_y, *d_x;
    float *up, *gate, *down, *d_up, *d_gate, *d_down; /* [out, in] */
    float *hidden, *d_hidden, *in_weight, *down_weight, *out; /* the bare calls' own */
    ffn_layer_t *layer;
    ffn_context_t *context[2]; /* one for each tape */
    ffn_tape_t *tape[2];       /* keeping, recomputing */
    uint64_t held[2];          /* bytes of context and tape */
} training_case_t;

static void require(ffn_status_t status) {
    if (!status) return;
    fprintf(stderr, "ffn_bench: %s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(1);
}

static void *count_up(void *user, uint64_t size, uint64_t alignment) {
    *(uint64_t *)user += size;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void count_down(void *user, void *memory, uint64_t size) {
    *(uint64_t *)user -= size;
    free(memory);
}

static void forward(training_case_t *c, int which) {
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = c->tokens, .x = c->x, .y = c->y, .tape = c->tape[which]};
    require(ffn_layer_run(c->layer, c->context[which], &run));
}

static void backward(training_case_t *c, int which) {
    const ffn_tensor_t gradients[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = c->d_up, .shape = {c->d_ff, c->d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = c->d_down, .shape = {c->d_model, c->d_ff}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = c->d_gate, .shape = {c->d_ff, c->d_model}},
    };
    const ffn_backward_t pass = {.struct_size = sizeof pass, .tape = c->tape[which], .d_y = c->d_y, .d_x = c->d_x, .gradients = gradients,
                                 .gradient_count = c->gated ? 3 : 2};
    require(ffn_layer_backward(c->layer, c->context[which], &pass));
}

static void run_forward(void *data) {
    forward(data, 0);
}

static void run_keeping(void *data) {
    forward(data, 0);
    backward(data, 0);
}

static void run_recomputing(void *data) {
    forward(data, 1);
    backward(data, 1);
}

static void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float *c, int64_t ldc) {
    cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, 0, c, (int)ldc);
}

/* The products in the layouts that a layer of the blas engine has: weights [in, out], gradients [out, in]. */
static void run_bare(void *data) {
    training_case_t *c = data;
    int64_t model = c->d_model, ff = c->d_ff, width = ff * (1 + c->gated), rows = c->tokens;
    const CBLAS_TRANSPOSE no = CblasNoTrans, yes = CblasTrans;
    multiply(no, no, rows, width, model, c->x, model, c->in_weight, width, c->hidden, width);
    multiply(no, no, rows, model, ff, c->hidden, width, c->down_weight, model, c->out, model);
    multiply(no, yes, rows, ff, model, c->d_y, model, c->down_weight, model, c->d_hidden, width);
    multiply(yes, no, model, ff, rows, c->d_y, model, c->hidden, width, c->d_down, ff);
    if (c->gated) multiply(yes, no, ff, model, rows, c->hidden, width, c->x, model, c->d_gate, model);
    multiply(yes, no, ff, model, rows, c->hidden + (c->gated ? ff : 0), width, c->x, model, c->d_up, model);
    multiply(no, yes, rows, model, width, c->hidden, width, c->in_weight, width, c->out, model);
}

/* ------------------------------------------------------------------ Right? */

static double activate(const training_case_t *c, double z) {
    return c->gated ? z / (1 + exp(-z)) : 0.5 * z * erfc(-z / sqrt(2));
}

static double dot(const float *a, const float *b, int64_t n, int64_t b_step) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i * b_step];
    return sum;
}

/* d_x of the middle token, and one number of the down weight's gradient, against float64. */
static int gradients_are_right(const training_case_t *c) {
    int64_t model = c->d_model, ff = c->d_ff, row = c->tokens / 2;
    const float *x = c->x + row * model, *d_y = c->d_y + row * model;
    double *d_x = calloc((size_t)model, sizeof *d_x), largest = 0, worst = 0, sum = 0, size = 0;
    for (int64_t j = 0; j < ff; j++) {
        double d = dot(d_y, c->down + j, model, ff), up = dot(x, c->up + j * model, model, 1), h = 1e-5;
        double z = c->gated ? dot(x, c->gate + j * model, model, 1) : up, slope = (activate(c, z + h) - activate(c, z - h)) / (2 * h);
        for (int64_t i = 0; i < model; i++)
            d_x[i] += c->gated ? d * (slope * up * c->gate[j * model + i] + activate(c, z) * c->up[j * model + i]) : d * slope * c->up[j * model + i];
    }
    for (int64_t i = 0; i < model; i++) {
        largest = fmax(largest, fabs(d_x[i]));
        worst = fmax(worst, fabs(d_x[i] - c->d_x[row * model + i]));
    }
    for (int64_t t = 0; t < c->tokens; t++) {
        double up = dot(c->x + t * model, c->up + 5 * model, model, 1), z = c->gated ? dot(c->x + t * model, c->gate + 5 * model, model, 1) : up;
        double term = c->d_y[t * model + 7] * activate(c, z) * (c->gated ? up : 1);
        sum += term, size += fabs(term);
    }
    free(d_x);
    if (worst <= 1e-5 * largest && fabs(sum - c->d_down[7 * ff + 5]) <= 1e-5 * size) return 1;
    fprintf(stderr, "ffn_bench: the gradients are wrong: d_x is off by %g of %g, a weight's is %g for %g\n", worst, largest, c->d_down[7 * ff + 5], sum);
    return 0;
}

/* ------------------------------------------------------------------- Cases */

static void make_layer(training_case_t *c) {
    const ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = c->up, .shape = {c->d_ff, c->d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = c->down, .shape = {c->d_model, c->d_ff}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = c->gate, .shape = {c->d_ff, c->d_model}},
    };
    const ffn_layer_options_t options = {.struct_size = sizeof options, .flags = FFN_LAYER_TRAINABLE, .tensors = tensors, .tensor_count = c->gated ? 3 : 2,
                                         .activation = c->gated ? FFN_ACTIVATION_SILU : FFN_ACTIVATION_GELU};
    for (int which = 0; which < 2; which++) {
        const ffn_allocator_t allocator = {.struct_size = sizeof allocator, .user = &c->held[which], .allocate = count_up, .release = count_down};
        const ffn_context_options_t context = {.struct_size = sizeof context, .threads = (uint32_t)c->threads, .allocator = &allocator};
        const ffn_tape_options_t tape = {.struct_size = sizeof tape, .flags = which ? FFN_TAPE_RECOMPUTE : 0, .allocator = &allocator};
        require(ffn_context_create(&context, &c->context[which]));
        require(ffn_tape_create(&tape, &c->tape[which]));
    }
    require(ffn_layer_create(NULL, &options, &c->layer));
}

static void make_case(training_case_t *c) {
    int64_t in = c->d_model * c->d_ff, rows = c->tokens * c->d_model, width = c->d_ff * (1 + c->gated);
    float in_scale = sqrtf(3.0f / (float)c->d_model), down_scale = sqrtf(3.0f / (float)c->d_ff);
    c->x = measure_random(rows, 1.7f, 1), c->y = measure_random(rows, 1, 2), c->d_y = measure_random(rows, 1, 3), c->d_x = measure_random(rows, 1, 4);
    c->up = measure_random(in, in_scale, 5), c->gate = measure_random(in, in_scale, 6), c->down = measure_random(in, down_scale, 7);
    c->d_up = measure_random(in, 1, 8), c->d_gate = measure_random(in, 1, 9), c->d_down = measure_random(in, 1, 10);
    c->hidden = measure_random(c->tokens * width, 1, 11), c->d_hidden = measure_random(c->tokens * width, 1, 12);
    c->in_weight = measure_random(c->d_model * width, in_scale, 13), c->down_weight = measure_random(in, down_scale, 14);
    c->out = measure_random(rows, 1, 15);
    make_layer(c);
}

static void free_case(training_case_t *c) {
    float *arrays[] = {c->x, c->y, c->d_y, c->d_x, c->up, c->gate, c->down, c->d_up, c->d_gate, c->d_down, c->hidden, c->d_hidden, c->in_weight,
                       c->down_weight, c->out};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    for (int which = 0; which < 2; which++) {
        ffn_tape_free(c->tape[which]);
        ffn_context_free(c->context[which]);
    }
    ffn_layer_free(c->layer);
}

/* Bytes with context and tape to those of inputs, outputs and gradients alone. */
static double memory_ratio(const training_case_t *c, int which) {
    double needed = 4.0 * (4 * (double)c->tokens * (double)c->d_model + (2 + c->gated) * (double)c->d_model * (double)c->d_ff);
    return (needed + (double)c->held[which]) / needed;
}

static int run_case(const settings_t *settings, training_case_t *c) {
    openblas_set_num_threads(c->threads); /* a benchmark is a host program */
    make_case(c);
    run_recomputing(c);
    int wrong = !gradients_are_right(c), rounds = settings->rounds;
    memset(c->d_x, 0xff, (size_t)(c->tokens * c->d_model) * sizeof *c->d_x);
    run_keeping(c);
    wrong |= !gradients_are_right(c);
    contender_t contender[4] = {{.name = "keeping", .run = run_keeping, .data = c}, {.name = "bare", .run = run_bare, .data = c},
                                {.name = "recomputing", .run = run_recomputing, .data = c}, {.name = "forward", .run = run_forward, .data = c}};
    if (!wrong) {
        measure_in_turn(contender, 4, rounds);
        double step = measure_ratio(&contender[0], &contender[1], rounds), recompute = measure_ratio(&contender[2], &contender[1], rounds);
        double back = contender[0].median / contender[3].median - 1;
        printf("%5lld-%-5lld %-5s %7lld %8d %11.1f %11.1f %8.3f %8.3f %8.2f %8.2f %8.2f\n", (long long)c->d_model, (long long)c->d_ff, c->activation,
               (long long)c->tokens, c->threads, 1e6 * contender[0].median, 1e6 * contender[1].median, step, recompute, back, memory_ratio(c, 0),
               memory_ratio(c, 1));
        if (settings->tsv)
            fprintf(settings->tsv, "training\t%lld\t%lld\t%s\t%lld\t%d\t%.9g\t%.9g\t%.9g\t%.9g\t%.5f\t%.5f\t%.5f\t%.5f\t%.5f\n", (long long)c->d_model,
                    (long long)c->d_ff, c->activation, (long long)c->tokens, c->threads, contender[0].median, contender[1].median, contender[2].median,
                    contender[3].median, step, recompute, back, memory_ratio(c, 0), memory_ratio(c, 1));
        for (int i = 0; i < 4; i++) free(contender[i].seconds);
    }
    free_case(c);
    return wrong;
}

int bench_training(const settings_t *settings) {
    static const struct {
        int64_t d_model, d_ff;
        const char *activation;
        int gated;
    } standard[] = {{768, 3072, "gelu", 0}, {1024, 2816, "silu", 1}};
    int shapes = settings->d_model ? 1 : 2, wrong = 0;
    printf("A training step (forward with a tape, backward with every gradient) against the sgemm calls that it contains, in turn, %d rounds, medians.\n"
           "ratio: step to bare calls; recompute: the same without kept pre-activations; back/fwd: backward to forward; memory: with context and\n"
           "tape (keeping, recomputing) to inputs, outputs and gradients alone\n\n%-17s %7s %8s %11s %11s %8s %8s %8s %8s %8s\n",
           settings->rounds, "shape", "tokens", "threads", "step us", "bare us", "ratio", "recomp.", "back/fwd", "mem keep", "mem rec.");
    if (settings->tsv)
        fprintf(settings->tsv, "bench\td_model\td_ff\tactivation\ttokens\tthreads\tstep_s\tbare_s\trecompute_s\tforward_s\tratio\trecompute_ratio\t"
                               "backward_to_forward\tmemory_keep\tmemory_recompute\n");
    for (int s = 0; s < shapes; s++)
        for (int h = 0; h < settings->thread_counts; h++)
            for (int t = 0; t < settings->token_counts; t++) {
                training_case_t c = {.d_model = standard[s].d_model, .d_ff = standard[s].d_ff, .tokens = settings->tokens[t],
                                     .activation = standard[s].activation, .gated = standard[s].gated, .threads = settings->threads[h]};
                if (settings->d_model)
                    c.d_model = settings->d_model, c.d_ff = settings->d_ff, c.gated = settings->gated, c.activation = settings->gated ? "silu" : "gelu";
                wrong |= run_case(settings, &c);
            }
    printf("\n");
    return wrong;
}
