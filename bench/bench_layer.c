/* SPDX-License-Identifier: MIT
 * The whole layer against its bare products: two calls of cblas_sgemm on the same shapes, once with weights as files have them, [out, in], and
 * once transposed, [in, out]; the faster of the two is what the layer is held against. */
#include "measure.h"

#include <cblas.h>
#include <ffn/ffn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer_case {
    int64_t d_model, d_ff, tokens;
    const char *activation;
    int gated, threads;
    float *x, *y, *hidden, *out;
    float *up, *gate, *down, *up_bias, *down_bias;
    float *gate_in_out, *down_in_out; /* another copy: each contender comes to weights that the others' have pushed out of the nearer caches */
    ffn_layer_t *layer;
    ffn_context_t *context;
} layer_case_t;

static void require(ffn_status_t status) {
    if (!status) return;
    fprintf(stderr, "ffn_bench: %s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(1);
}

static void run_layer(void *data) {
    layer_case_t *c = data;
    require(ffn_layer_forward(c->layer, c->context, c->tokens, c->x, 0, c->y, 0));
}

/* The weights' contents do not matter for the time. Gate and up go in one call. */
static void run_bare(layer_case_t *c, CBLAS_TRANSPOSE transpose, const float *in, const float *down) {
    int tokens = (int)c->tokens, model = (int)c->d_model, ff = (int)c->d_ff, width = ff * (1 + c->gated);
    int in_stride = transpose == CblasTrans ? model : width, down_stride = transpose == CblasTrans ? ff : model;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose, tokens, width, model, 1, c->x, model, in, in_stride, 0, c->hidden, width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose, tokens, model, ff, 1, c->hidden, width, down, down_stride, 0, c->out, model);
}

static void run_bare_out_in(void *data) {
    layer_case_t *c = data;
    run_bare(c, CblasTrans, c->gate, c->down);
}

static void run_bare_in_out(void *data) {
    layer_case_t *c = data;
    run_bare(c, CblasNoTrans, c->gate_in_out, c->down_in_out);
}

static double activate(const char *name, double z) {
    if (!strcmp(name, "relu")) return z > 0 ? z : 0;
    if (!strcmp(name, "gelu")) return 0.5 * z * erfc(-z / sqrt(2));
    if (!strcmp(name, "gelu_tanh")) return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
    if (!strcmp(name, "silu")) return z / (1 + exp(-z));
    return NAN;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* The first, the middle and the last row against float64. */
static int output_is_right(const layer_case_t *c) {
    double *hidden = malloc((size_t)c->d_ff * sizeof *hidden), largest = 0, worst = 0;
    for (int i = 0; i < 3; i++) {
        int64_t row = i * (c->tokens - 1) / 2;
        const float *x = c->x + row * c->d_model;
        for (int64_t j = 0; j < c->d_ff; j++) {
            double up = dot(x, c->up + j * c->d_model, c->d_model) + c->up_bias[j];
            hidden[j] = c->gated ? activate(c->activation, dot(x, c->gate + j * c->d_model, c->d_model)) * up : activate(c->activation, up);
        }
        for (int64_t o = 0; o < c->d_model; o++) {
            double right = c->down_bias[o];
            for (int64_t j = 0; j < c->d_ff; j++) right += hidden[j] * c->down[o * c->d_ff + j];
            largest = fmax(largest, fabs(right));
            worst = fmax(worst, fabs(right - c->y[row * c->d_model + o]));
        }
    }
    free(hidden);
    if (worst <= 1e-5 * largest) return 1;
    fprintf(stderr, "ffn_bench: the output is wrong: off by %g of %g\n", worst, largest);
    return 0;
}

static void make_case(layer_case_t *c) {
    int64_t in = c->d_model * c->d_ff;
    float in_scale = sqrtf(3.0f / (float)c->d_model), down_scale = sqrtf(3.0f / (float)c->d_ff);
    c->x = measure_random(c->tokens * c->d_model, 1.7f, 1);
    c->y = measure_random(c->tokens * c->d_model, 1, 2);
    c->out = measure_random(c->tokens * c->d_model, 1, 3);
    c->hidden = measure_random(c->tokens * c->d_ff * (1 + c->gated), 1, 4);
    c->gate = measure_random(in * (1 + c->gated), in_scale, 5); /* gate, then up */
    c->up = c->gate + (c->gated ? in : 0);
    c->down = measure_random(in, down_scale, 6);
    c->gate_in_out = measure_random(in * (1 + c->gated), in_scale, 9);
    c->down_in_out = measure_random(in, down_scale, 10);
    c->up_bias = measure_random(c->d_ff, 0.1f, 7);
    c->down_bias = measure_random(c->d_model, 0.1f, 8);
    ffn_tensor_t tensors[5] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = c->up, .shape = {c->d_ff, c->d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = c->down, .shape = {c->d_model, c->d_ff}},
        {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = c->up_bias, .shape = {c->d_ff}},
        {.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = c->down_bias, .shape = {c->d_model}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = c->gate, .shape = {c->d_ff, c->d_model}},
    };
    ffn_layer_options_t options = {.struct_size = sizeof options, .tensors = tensors, .tensor_count = c->gated ? 5 : 4};
    ffn_context_options_t context = {.struct_size = sizeof context, .threads = (uint32_t)c->threads};
    require(ffn_activation_from_name(c->activation, &options.activation));
    require(ffn_context_create(&context, &c->context));
    require(ffn_layer_create(c->context, &options, &c->layer));
}

static void free_case(layer_case_t *c) {
    float *arrays[] = {c->x, c->y, c->out, c->hidden, c->gate, c->down, c->gate_in_out, c->down_in_out, c->up_bias, c->down_bias};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    ffn_layer_free(c->layer);
    ffn_context_free(c->context);
}

static int run_case(const settings_t *settings, layer_case_t *c) {
    char shape[64];
    openblas_set_num_threads(c->threads); /* a benchmark is a host program */
    make_case(c);
    run_layer(c);
    int wrong = !output_is_right(c), rounds = settings->rounds;
    contender_t contender[3] = {{.name = "layer", .run = run_layer, .data = c}, {.name = "bare [out, in]", .run = run_bare_out_in, .data = c},
                                {.name = "bare [in, out]", .run = run_bare_in_out, .data = c}};
    if (!wrong) {
        measure_in_turn(contender, 3, rounds);
        const contender_t *bare = contender[1].median < contender[2].median ? &contender[1] : &contender[2];
        double flop = 2.0 * (double)c->tokens * (double)c->d_model * (double)c->d_ff * (2 + c->gated);
        double ratio = measure_ratio(&contender[0], bare, rounds);
        snprintf(shape, sizeof shape, "%lld-%lld %s%s", (long long)c->d_model, (long long)c->d_ff, c->activation, c->gated ? " gated" : "");
        printf("%-22s %7lld %8d %11.1f %11.1f %11.1f %8.3f %9.1f\n", shape, (long long)c->tokens, c->threads, 1e6 * contender[0].median,
               1e6 * contender[1].median, 1e6 * contender[2].median, ratio, 1e-9 * flop / contender[0].median);
        if (settings->tsv)
            fprintf(settings->tsv, "layer\t%lld\t%lld\t%s\t%d\t%lld\t%d\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%.5f\n", (long long)c->d_model,
                    (long long)c->d_ff, c->activation, c->gated, (long long)c->tokens, c->threads, contender[0].median, contender[0].low,
                    contender[0].high, contender[1].median, contender[2].median, ratio);
        for (int i = 0; i < 3; i++) free(contender[i].seconds);
    }
    free_case(c);
    return wrong;
}

int bench_layer(const settings_t *settings) {
    static const struct {
        int64_t d_model, d_ff;
        const char *activation;
        int gated;
    } standard[] = {{512, 2048, "relu", 0}, {512, 2048, "gelu", 0}, {768, 3072, "gelu", 0}, {1024, 2816, "silu", 1}};
    int shapes = settings->d_model ? 1 : (int)(sizeof standard / sizeof *standard), wrong = 0;
    printf("The layer with its biases and activation against its two bare sgemm calls, in turn, %d rounds, medians; ratio: to the faster bare form,\n"
           "median over the rounds\n\n%-22s %7s %8s %11s %11s %11s %8s %9s\n",
           settings->rounds, "shape", "tokens", "threads", "layer us", "[out,in] us", "[in,out] us", "ratio", "GFLOP/s");
    if (settings->tsv)
        fprintf(settings->tsv, "bench\td_model\td_ff\tactivation\tgated\ttokens\tthreads\tlayer_s\tlayer_p10_s\tlayer_p90_s\tbare_out_in_s\t"
                               "bare_in_out_s\tratio\n");
    for (int s = 0; s < shapes; s++)
        for (int h = 0; h < settings->thread_counts; h++)
            for (int t = 0; t < settings->token_counts; t++) {
                layer_case_t c = {.d_model = standard[s].d_model, .d_ff = standard[s].d_ff, .tokens = settings->tokens[t],
                                  .activation = standard[s].activation, .gated = standard[s].gated, .threads = settings->threads[h]};
                if (settings->d_model)
                    c.d_model = settings->d_model, c.d_ff = settings->d_ff, c.gated = settings->gated, c.activation = "gelu";
                if (settings->activation) c.activation = settings->activation;
                wrong |= run_case(settings, &c);
            }
    printf("\n");
    return wrong;
}
