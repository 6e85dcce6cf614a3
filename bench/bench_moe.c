/* SPDX-License-Identifier: MIT
 * A mixture of experts against what a program composes of dense layers: logits by sgemm, ffn_moe_route, then rows gathered for each expert, its layer,
 * and the results scattered. And against the machine's own limit on one thread: the multiply-adds of the chosen experts, or the bytes of those that are
 * touched, whichever takes longer. */
#include "measure.h"

#include "dispatch/ladder.h"
#include "peak.h"
#include "peers/limits.h"

#include <cblas.h>
#include <ffn/ffn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CONTENDERS = 6, PEAK_ROUNDS = 100000, READ_FLOATS = 64 << 20 };

typedef struct moe_case {
    int64_t experts, top_k, d_model, d_ff, tokens;
    int threads;
    float *router, *gate, *up, *down; /* [experts, ...] */
    float *x, *y, *composed_y, *gathered, *results, *logits;
    int32_t *ids;
    float *weights;
    ffn_layer_t *layer, **dense;
    ffn_context_t *context;
    ffn_moe_routing_t routing;
    ffn_moe_run_t given;
    peak_fn *peak;
    read_fn *read;
    float *numbers; /* to read */
    double flop;
    float sink;
} moe_case_t;

static void require(ffn_status_t status) {
    if (!status) return;
    fprintf(stderr, "ffn_bench: %s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(1);
}

static const ffn_moe_router_options_t sums_to_one = {.struct_size = sizeof sums_to_one, .normalise = FFN_MOE_NORMALISE_SUM};

/* ----------------------------------------------------------------- Contenders */

static void run_mixture(void *data) {
    moe_case_t *c = data;
    require(ffn_layer_forward(c->layer, c->context, c->tokens, c->x, 0, c->y, 0));
}

static void run_given(void *data) {
    moe_case_t *c = data;
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = c->tokens, .x = c->x, .y = c->y, .moe = &c->given};
    require(ffn_layer_run(c->layer, c->context, &run));
}

/* Rows of one expert from their tokens, and their slots. */
static int64_t gather(const moe_case_t *c, int64_t expert, int64_t *slots) {
    int64_t rows = 0;
    for (int64_t slot = 0; slot < c->tokens * c->top_k; slot++) {
        if (c->ids[slot] != expert) continue;
        memcpy(c->gathered + rows * c->d_model, c->x + slot / c->top_k * c->d_model, (size_t)c->d_model * sizeof(float));
        slots[rows++] = slot;
    }
    return rows;
}

static void run_composed(void *data) {
    moe_case_t *c = data;
    int64_t *slots = malloc((size_t)c->tokens * sizeof *slots);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)c->tokens, (int)c->experts, (int)c->d_model, 1, c->x, (int)c->d_model, c->router,
                (int)c->d_model, 0, c->logits, (int)c->experts);
    require(ffn_moe_route(c->context, &sums_to_one, c->logits, NULL, NULL, NULL, &c->routing));
    memset(c->composed_y, 0, (size_t)(c->tokens * c->d_model) * sizeof(float));
    for (int64_t expert = 0; expert < c->experts; expert++) {
        int64_t rows = gather(c, expert, slots);
        if (rows) require(ffn_layer_forward(c->dense[expert], c->context, rows, c->gathered, 0, c->results, 0));
        for (int64_t row = 0; row < rows; row++) {
            float *y = c->composed_y + slots[row] / c->top_k * c->d_model;
            for (int64_t i = 0; i < c->d_model; i++) y[i] += c->weights[slots[row]] * c->results[row * c->d_model + i];
        }
    }
    free(slots);
}

static void run_peak(void *data) {
    moe_case_t *c = data;
    c->flop = c->peak(PEAK_ROUNDS, &c->sink);
}

/* Memory prefers one stream or four, depending on the machine: the faster is the limit. */
static void run_read(void *data) {
    moe_case_t *c = data;
    c->sink += c->read(c->numbers, READ_FLOATS, 1);
}

static void run_read_in_four(void *data) {
    moe_case_t *c = data;
    c->sink += c->read(c->numbers, READ_FLOATS, 4);
}

/* ----------------------------------------------------------------------- Case */

static ffn_tensor_t tensor(uint32_t role, float *data, int64_t experts, int64_t rows, int64_t columns) {
    if (experts) return (ffn_tensor_t){.role = role, .ndim = 3, .data = data, .shape = {experts, rows, columns}};
    return (ffn_tensor_t){.role = role, .ndim = 2, .data = data, .shape = {rows, columns}};
}

static ffn_layer_t *make_layer(const moe_case_t *c, int64_t expert) {
    const ffn_moe_options_t moe = {.struct_size = sizeof moe, .experts = c->experts, .top_k = c->top_k, .router = &sums_to_one};
    int64_t first = expert < 0 ? 0 : expert, stack = expert < 0 ? c->experts : 0, size = c->d_model * c->d_ff;
    ffn_tensor_t tensors[4] = {
        tensor(FFN_ROLE_UP_WEIGHT, c->up + first * size, stack, c->d_ff, c->d_model),
        tensor(FFN_ROLE_GATE_WEIGHT, c->gate + first * size, stack, c->d_ff, c->d_model),
        tensor(FFN_ROLE_DOWN_WEIGHT, c->down + first * size, stack, c->d_model, c->d_ff),
        tensor(FFN_ROLE_ROUTER_WEIGHT, c->router, 0, c->experts, c->d_model),
    };
    const ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_SILU, .tensors = tensors,
                                         .tensor_count = stack ? 4 : 3, .moe = stack ? &moe : NULL};
    ffn_layer_t *layer;
    require(ffn_layer_create(c->context, &options, &layer));
    return layer;
}

static void choose_level(moe_case_t *c) {
    const kernel_table_t *kernels;
    require(ffni_ladder_choose(FFN_ISA_AUTO, &kernels));
    c->peak = peak_scalar, c->read = read_scalar;
#if defined(FFNI_X86_64)
    if (kernels->isa == FFN_ISA_AVX2) c->peak = peak_avx2, c->read = read_avx2;
    if (kernels->isa == FFN_ISA_AVX512) c->peak = peak_avx512, c->read = read_avx512;
#endif
}

/* Layers of all threads and tokens share the weights. */
static void make_weights(moe_case_t *c) {
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1};
    int64_t size = c->experts * c->d_model * c->d_ff;
    require(ffn_context_create(&options, &c->context));
    c->router = measure_random(c->experts * c->d_model, 0.1f, 1);
    c->gate = measure_random(size, sqrtf(3.0f / (float)c->d_model), 2);
    c->up = measure_random(size, sqrtf(3.0f / (float)c->d_model), 3);
    c->down = measure_random(size, sqrtf(3.0f / (float)c->d_ff), 4);
    c->layer = make_layer(c, -1);
    c->dense = malloc((size_t)c->experts * sizeof *c->dense);
    for (int64_t expert = 0; expert < c->experts; expert++) c->dense[expert] = make_layer(c, expert);
    free(c->gate);
    free(c->up);
    free(c->down);
    c->numbers = mmap(NULL, READ_FLOATS * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->numbers == MAP_FAILED) {
        perror("ffn_bench: mmap");
        exit(1);
    }
    madvise(c->numbers, READ_FLOATS * sizeof(float), MADV_HUGEPAGE); /* as the library's weights; refused: then without */
    for (int64_t i = 0; i < READ_FLOATS; i++) c->numbers[i] = 1;
    choose_level(c);
    ffn_context_free(c->context);
}

static void free_weights(moe_case_t *c) {
    for (int64_t expert = 0; expert < c->experts; expert++) ffn_layer_free(c->dense[expert]);
    ffn_layer_free(c->layer);
    free(c->dense);
    free(c->router);
    munmap(c->numbers, READ_FLOATS * sizeof(float));
}

static void make_rows(moe_case_t *c) {
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = (uint32_t)c->threads};
    int64_t n = c->tokens * c->d_model;
    require(ffn_context_create(&options, &c->context));
    c->x = measure_random(n, 1.7f, 6);
    c->y = measure_random(n, 1, 7);
    c->composed_y = measure_random(n, 1, 8);
    c->gathered = measure_random(n, 1, 9);
    c->results = measure_random(n, 1, 10);
    c->logits = measure_random(c->tokens * c->experts, 1, 11);
    c->ids = malloc((size_t)(c->tokens * c->top_k) * sizeof *c->ids);
    c->weights = malloc((size_t)(c->tokens * c->top_k) * sizeof *c->weights);
    c->routing = (ffn_moe_routing_t){.struct_size = sizeof c->routing, .tokens = c->tokens, .experts = c->experts, .top_k = c->top_k, .ids = c->ids,
                                     .weights = c->weights};
    c->given = (ffn_moe_run_t){.struct_size = sizeof c->given, .ids = c->ids, .weights = c->weights};
    run_given(c); /* which tells the routing */
    c->given = (ffn_moe_run_t){.struct_size = sizeof c->given, .routing = &c->routing};
}

static void free_rows(moe_case_t *c) {
    float *arrays[] = {c->x, c->y, c->composed_y, c->gathered, c->results, c->logits, c->weights};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(c->ids);
    ffn_context_free(c->context);
}

/* The composition's sums have another order. */
static int output_is_right(const moe_case_t *c) {
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < c->tokens * c->d_model; i++) {
        largest = fmax(largest, fabs((double)c->composed_y[i]));
        worst = fmax(worst, fabs((double)c->y[i] - (double)c->composed_y[i]));
    }
    if (worst <= 1e-5 * largest) return 1;
    fprintf(stderr, "ffn_bench: the mixture's output is wrong: off by %g of %g\n", worst, largest);
    return 0;
}

static int64_t experts_touched(const moe_case_t *c) {
    int64_t touched = 0;
    for (int64_t expert = 0; expert < c->experts; expert++)
        for (int64_t slot = 0; slot < c->tokens * c->top_k; slot++)
            if (c->ids[slot] == expert) {
                touched++;
                break;
            }
    return touched;
}

/* On one thread. */
static double limit_seconds(const moe_case_t *c, double peak_seconds, double read_seconds) {
    double size = 3.0 * (double)c->d_model * (double)c->d_ff;
    double compute = 2 * size * (double)(c->tokens * c->top_k) / c->flop * peak_seconds;
    double read = size * (double)experts_touched(c) / READ_FLOATS * read_seconds;
    return fmax(compute, read);
}

static int run_case(const settings_t *settings, moe_case_t *c) {
    int rounds = settings->rounds;
    make_rows(c);
    run_mixture(c);
    run_composed(c);
    int wrong = !output_is_right(c);
    contender_t contender[CONTENDERS] = {{.name = "mixture", .run = run_mixture, .data = c}, {.name = "composed", .run = run_composed, .data = c},
                                         {.name = "given", .run = run_given, .data = c}, {.name = "peak", .run = run_peak, .data = c},
                                         {.name = "read", .run = run_read, .data = c}, {.name = "read in four", .run = run_read_in_four, .data = c}};
    if (!wrong) {
        measure_in_turn(contender, CONTENDERS, rounds);
        double ratio = measure_ratio(&contender[0], &contender[1], rounds), routing = 1 - measure_ratio(&contender[2], &contender[0], rounds);
        double share = limit_seconds(c, contender[3].median, fmin(contender[4].median, contender[5].median)) / contender[0].median;
        printf("%3lld top %lld of %lld-%-6lld %7lld %8d %13.1f %13.1f %8.3f %9.3f", (long long)c->experts, (long long)c->top_k, (long long)c->d_model,
               (long long)c->d_ff, (long long)c->tokens, c->threads, 1e6 * contender[0].median, 1e6 * contender[1].median, ratio, routing);
        if (c->threads == 1) printf(" %9.3f", share);
        printf("\n");
        if (settings->tsv)
            fprintf(settings->tsv, "moe\t%lld\t%lld\t%lld\t%lld\t%lld\t%d\t%.9g\t%.9g\t%.9g\t%.5f\t%.5f\n", (long long)c->experts, (long long)c->top_k,
                    (long long)c->d_model, (long long)c->d_ff, (long long)c->tokens, c->threads, contender[0].median, contender[1].median,
                    contender[2].median, ratio, share);
        for (int i = 0; i < CONTENDERS; i++) free(contender[i].seconds);
    }
    free_rows(c);
    return wrong;
}

int bench_moe(const settings_t *settings) {
    static const moe_case_t standard[] = {{.experts = 8, .top_k = 2, .d_model = 1024, .d_ff = 2816}, {.experts = 64, .top_k = 6, .d_model = 1024, .d_ff = 704}};
    int wrong = 0;
    openblas_set_num_threads(1); /* for the composition's logits; a benchmark is a host program */
    printf("SwiGLU mixtures against gather, a dense layer per expert, and scatter, in turn, %d rounds, medians; ratio: to the composition; routing: its\n"
           "share of the time; limit: share of the machine's limit on one thread\n\n%-22s %7s %8s %13s %13s %8s %9s %9s\n",
           settings->rounds, "experts", "tokens", "threads", "mixture us", "composed us", "ratio", "routing", "limit");
    if (settings->tsv) fprintf(settings->tsv, "bench\texperts\ttop_k\td_model\td_ff\ttokens\tthreads\tmixture_s\tcomposed_s\tgiven_s\tratio\tlimit_share\n");
    for (size_t s = 0; s < sizeof standard / sizeof *standard; s++) {
        moe_case_t c = standard[s];
        make_weights(&c);
        for (int h = 0; h < settings->thread_counts; h++)
            for (int t = 0; t < settings->token_counts; t++) {
                c.tokens = settings->tokens[t], c.threads = settings->threads[h];
                wrong |= run_case(settings, &c);
            }
        free_weights(&c);
    }
    printf("\n");
    return wrong;
}
