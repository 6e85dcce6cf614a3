/* SPDX-License-Identifier: MIT
 * The activation passes, from cache, at every ISA level of this CPU, against the multiply-add peak of the same level measured in the same rounds:
 * how many FLOP could have been done in the time of one element. */
#include "measure.h"

#include "dispatch/cpu.h"
#include "kernels/kernels.h"
#include "peak.h"

#include <ffn/ffn.h>

#include <math.h>
#include <stdlib.h>

enum { ELEMENTS = 2048, REPEATS = 64, PEAK_ROUNDS = 20000 };

typedef struct level {
    const char *name;
    const kernel_table_t *kernels;
    peak_fn *peak;
} level_t;

static const level_t levels[] = {
    {"scalar", &ffni_kernels_scalar, peak_scalar},
#if defined(FFNI_X86_64)
    {"avx2", &ffni_kernels_avx2, peak_avx2},
    {"avx512", &ffni_kernels_avx512, peak_avx512},
#endif
};

typedef struct pass {
    const level_t *level;
    activation_t activation;
    const float *in, *bias;
    float *out;
    double flop;
    float sink;
} pass_t;

static double relu(double z) {
    return z > 0 ? z : 0;
}

static double gelu(double z) {
    return 0.5 * z * erfc(-z / sqrt(2));
}

static double gelu_tanh(double z) {
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

static double silu(double z) {
    return z / (1 + exp(-z));
}

static const struct {
    const char *name;
    activation_kind_t kind;
    double (*formula)(double);
} passes[] = {
    {"relu", ACTIVATION_RELU, relu},
    {"gelu", ACTIVATION_GELU, gelu},
    {"gelu_tanh", ACTIVATION_GELU_TANH, gelu_tanh},
    {"silu", ACTIVATION_SWISH, silu},
};

static void run_pass(void *data) {
    pass_t *pass = data;
    for (int i = 0; i < REPEATS; i++)
        pass->level->kernels->activate[pass->activation.kind](&pass->activation, ELEMENTS, pass->out, pass->in, pass->bias);
}

static void run_peak(void *data) {
    pass_t *pass = data;
    pass->flop = pass->level->peak(PEAK_ROUNDS, &pass->sink);
}

static int output_is_right(const pass_t *pass, double (*formula)(double)) {
    for (int i = 0; i < ELEMENTS; i++) {
        double right = formula((double)(pass->in[i] + pass->bias[i]));
        if (fabs(pass->out[i] - right) <= 1e-5 * fabs(right) + 1e-30) continue;
        fprintf(stderr, "ffn_bench: an activation is wrong: %g gives %g, not %g\n", (double)(pass->in[i] + pass->bias[i]), (double)pass->out[i], right);
        return 0;
    }
    return 1;
}

static int run_case(const settings_t *settings, const level_t *level, int which, const float *in, const float *bias, float *out) {
    pass_t pass = {.level = level, .in = in, .bias = bias, .out = out,
                   .activation = {.kind = passes[which].kind, .beta = 1, .clip_max = INFINITY, .gate_max = INFINITY, .up_limit = INFINITY}};
    contender_t contender[2] = {{.name = passes[which].name, .run = run_pass, .data = &pass}, {.name = "peak", .run = run_peak, .data = &pass}};
    run_pass(&pass);
    if (!output_is_right(&pass, passes[which].formula)) return 1;
    measure_in_turn(contender, 2, settings->rounds);
    double element = contender[0].median / (ELEMENTS * REPEATS);
    double flop = pass.flop * measure_ratio(&contender[0], &contender[1], settings->rounds) / (ELEMENTS * REPEATS);
    printf("%-10s %-8s %12.3f %16.1f %14.1f\n", passes[which].name, level->name, 1e9 * element, 1e-9 * pass.flop / contender[1].median, flop);
    if (settings->tsv)
        fprintf(settings->tsv, "activation\t%s\t%s\t%.9g\t%.9g\t%.5f\n", passes[which].name, level->name, element, pass.flop / contender[1].median,
                flop);
    free(contender[0].seconds);
    free(contender[1].seconds);
    return 0;
}

int bench_activation(const settings_t *settings) {
    float *in = measure_random(ELEMENTS, 4, 1), *bias = measure_random(ELEMENTS, 0.1f, 2), *out = measure_random(ELEMENTS, 1, 3);
    int wrong = 0;
    printf("Activation passes with a bias, %d elements from cache, against the multiply-add peak of the same level, in turn, %d rounds\n\n"
           "%-10s %-8s %12s %16s %14s\n", ELEMENTS, settings->rounds, "pass", "level", "ns/element", "peak GFLOP/s", "FLOP/element");
    if (settings->tsv) fprintf(settings->tsv, "bench\tactivation\tlevel\telement_s\tpeak_flop_per_s\tflop_per_element\n");
    for (size_t which = 0; which < sizeof passes / sizeof *passes; which++)
        for (size_t l = 0; l < sizeof levels / sizeof *levels && l < ffni_cpu_isa(); l++)
            wrong |= run_case(settings, &levels[l], (int)which, in, bias, out);
    printf("\n");
    free(in);
    free(bias);
    free(out);
    return wrong;
}
