/* SPDX-License-Identifier: MIT */
#include "support/train_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/random.h"
#include "support/test.h"

static const double U = 0x1p-24;

/* ------------------------------------------------------------------- Making */

static float *random_rows(rng_t *rng, int64_t n)
{
    float *rows = test_alloc((size_t)n * sizeof *rows);
    rng_fill_normal(rng, rows, n);
    return rows;
}

static float *nan_rows(int64_t n)
{
    float *rows = test_alloc((size_t)n * sizeof *rows);
    memset(rows, 0xff, (size_t)n * sizeof *rows);
    return rows;
}

int64_t train_elements(const train_t *train, int role)
{
    const int64_t *shape = train->test.shape[role];
    return shape[0] * (shape[1] ? shape[1] : 1);
}

static void make_gradients(train_t *train)
{
    for (int role = 0; role < ROLES; role++) {
        if (!train->test.plain[role]) continue;
        const int64_t *shape = train->test.shape[role];
        train->gradient[role] = nan_rows(train_elements(train, role));
        train->views[train->view_count++] = (ffn_tensor_t){.role = (uint32_t)role, .ndim = shape[1] ? 2 : 1, .data = train->gradient[role],
                                                           .shape = {shape[0], shape[1]}};
    }
}

void train_make(train_t *train, const train_case_t *is)
{
    memset(train, 0, sizeof *train);
    train->is = *is;
    train->tokens = is->batch * is->length;
    test_layer_describe(&train->test, &is->layer);
    train->test.options.flags |= FFN_LAYER_TRAINABLE;
    test_layer_create(&train->test);
    rng_t rng = rng_make(train->test.is.seed ^ 0x7e57);
    const int64_t in = train->tokens * train->test.is.d_model, out = train->tokens * train->test.is.d_out;
    const bool external = is->layer.residual == FFN_RESIDUAL_EXTERNAL;
    train->x = random_rows(&rng, in);
    train->residual = external ? random_rows(&rng, out) : NULL;
    train->d_y = random_rows(&rng, out);
    train->y = nan_rows(out);
    train->d_x = nan_rows(in);
    train->d_residual = external ? nan_rows(out) : NULL;
    make_gradients(train);
    if (is->dropout.struct_size) train->masks = oracle_masks_make(&is->dropout, is->batch, is->length, train->test.is.d_ff, train->test.is.d_out);
}

void train_free(train_t *train)
{
    float *const all[] = {train->x, train->residual, train->d_y, train->y, train->d_x, train->d_residual};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
    for (int role = 0; role < ROLES; role++) free(train->gradient[role]);
    oracle_masks_free(&train->masks);
    test_layer_free(&train->test);
}

/* ------------------------------------------------------------------ Running */

void train_forward(train_t *train, ffn_context_t *context, ffn_tape_t *tape)
{
    ffn_run_t run = {.struct_size = sizeof run, .batch = train->is.batch, .length = train->is.length, .x = train->x, .y = train->y,
                     .residual = train->residual, .tape = tape};
    if (train->is.dropout.struct_size) run.dropout = &train->is.dropout;
    assert_ok(ffn_layer_run(train->test.layer, context, &run));
}

ffn_status_t train_backward(train_t *train, ffn_context_t *context, ffn_tape_t *tape, uint32_t flags)
{
    ffn_backward_t backward = {.struct_size = sizeof backward, .flags = flags, .tape = tape, .d_y = train->d_y, .d_x = train->d_x,
                               .d_residual = train->d_residual, .gradients = train->views, .gradient_count = train->view_count};
    return ffn_layer_backward(train->test.layer, context, &backward);
}

void train_step(train_t *train, ffn_context_t *context)
{
    ffn_tape_options_t options = {.struct_size = sizeof options, .flags = train->is.tape_flags};
    ffn_tape_t *tape;
    assert_ok(ffn_tape_create(&options, &tape));
    train_forward(train, context, tape);
    assert_ok(train_backward(train, context, tape, 0));
    ffn_tape_free(tape);
}

/* ------------------------------------------------------------------- Oracle */

/* Inputs in float64, and the gradients there. */
typedef struct exact {
    double *x, *residual, *d_y, *y;
    oracle_gradients_t gradients;
} exact_t;

static double *zeros(int64_t n)
{
    double *v = calloc((size_t)(n ? n : 1), sizeof *v);
    if (!v) fail_msg("the test itself is out of memory");
    return v;
}

static exact_t exact_make(const train_t *train)
{
    const int64_t in = train->tokens * train->test.is.d_model, out = train->tokens * train->test.is.d_out;
    exact_t exact = {oracle_widen(train->x, in), train->residual ? oracle_widen(train->residual, out) : NULL, oracle_widen(train->d_y, out),
                     zeros(out), {{NULL}, zeros(in), train->residual ? zeros(out) : NULL, {0}}};
    for (int role = 0; role < ROLES; role++)
        if (train->gradient[role]) exact.gradients.role[role] = zeros(train_elements(train, role));
    return exact;
}

static void exact_free(exact_t *exact)
{
    double *const all[] = {exact->x, exact->residual, exact->d_y, exact->y, exact->gradients.x, exact->gradients.residual, 0};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
    for (int role = 0; role < ROLES; role++) free(exact->gradients.role[role]);
}

static void take_scalars(train_t *train)
{
    oracle_activation_t *a = &train->test.oracle.activation;
    if (a->id != FFN_ACTIVATION_XIELU) return;
    a->alpha_p = train->test.plain[FFN_ROLE_XIELU_ALPHA_P][0];
    a->alpha_n = train->test.plain[FFN_ROLE_XIELU_ALPHA_N][0];
}

static void exact_compute(train_t *train, exact_t *exact)
{
    take_scalars(train);
    oracle_train(&train->test.oracle, &train->masks, train->tokens, exact->x, exact->residual, exact->y);
    oracle_backward(&train->test.oracle, &train->masks, train->tokens, exact->x, exact->residual, exact->d_y, &exact->gradients);
}

/* One tensor of outputs: what the library gave, and the oracle's. */
typedef struct output {
    char name[24];
    int64_t n;
    const float *got;
    const double *exact;
    double terms; /* as oracle_gradients_t.terms */
} output_t;

enum { MAX_OUTPUTS = MAX_TENSORS + 3 };

static int list_outputs(const train_t *train, const exact_t *exact, output_t outputs[MAX_OUTPUTS])
{
    const int64_t in = train->tokens * train->test.is.d_model, out = train->tokens * train->test.is.d_out;
    int count = 0;
    outputs[count++] = (output_t){"y", out, train->y, exact->y, 0};
    outputs[count++] = (output_t){"d_x", in, train->d_x, exact->gradients.x, 0};
    if (train->residual) outputs[count++] = (output_t){"d_residual", out, train->d_residual, exact->gradients.residual, 0};
    for (int role = 0; role < ROLES; role++) {
        if (!train->gradient[role]) continue;
        outputs[count] = (output_t){"", train_elements(train, role), train->gradient[role], exact->gradients.role[role],
                                    exact->gradients.terms[role]};
        snprintf(outputs[count++].name, sizeof outputs->name, "gradient of role %d", role);
    }
    return count;
}

/* Each number moved by up to 8 roundings. */
static void jitter_wide(rng_t *rng, double *v, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = (double)from[i] * (1 + 8 * U * (double)rng_uniform(rng, -1, 1));
}

static void jitter_weights(train_t *train, rng_t *rng, float *saved[ROLES])
{
    for (int role = 0; role < ROLES; role++) {
        if (!train->gradient[role]) continue;
        const int64_t n = train_elements(train, role);
        saved[role] = test_alloc((size_t)n * sizeof(float));
        memcpy(saved[role], train->test.plain[role], (size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++) train->test.plain[role][i] = (float)((double)saved[role][i] * (1 + 8 * U * (double)rng_uniform(rng, -1, 1)));
    }
}

static void restore_weights(train_t *train, float *saved[ROLES])
{
    for (int role = 0; role < ROLES; role++) {
        if (!saved[role]) continue;
        memcpy(train->test.plain[role], saved[role], (size_t)train_elements(train, role) * sizeof(float));
        free(saved[role]);
    }
    take_scalars(train);
}

static void measure_sensitivity(train_t *train, const output_t *outputs, int count, double sensitivity[MAX_OUTPUTS])
{
    enum { DRAWS = 4 };
    rng_t rng = rng_make(17);
    const int64_t in = train->tokens * train->test.is.d_model, out = train->tokens * train->test.is.d_out;
    for (int o = 0; o < count; o++) sensitivity[o] = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        float *saved[ROLES] = {NULL};
        output_t moved[MAX_OUTPUTS];
        exact_t exact = exact_make(train);
        jitter_wide(&rng, exact.x, train->x, in);
        if (train->residual) jitter_wide(&rng, exact.residual, train->residual, out);
        jitter_wide(&rng, exact.d_y, train->d_y, out);
        jitter_weights(train, &rng, saved);
        exact_compute(train, &exact);
        list_outputs(train, &exact, moved);
        for (int o = 0; o < count; o++)
            for (int64_t i = 0; i < outputs[o].n; i++) sensitivity[o] = fmax(sensitivity[o], fabs(moved[o].exact[i] - outputs[o].exact[i]));
        restore_weights(train, saved);
        exact_free(&exact);
    }
}

static void fail_output(const train_t *train, const char *what, const output_t *output, int64_t i, double expected, double got, double bound)
{
    char text[512];
    layer_case_print(&train->test.is, text, sizeof text);
    fail_msg("%s: %s [%lld]: expected %.9g, got %.9g, off by %.3g where %.3g is allowed; batch %lld, length %lld, tape flags %u; FFN_MAX_ISA %s; %s", what,
             output->name, (long long)i, expected, got, fabs(got - expected), bound, (long long)train->is.batch, (long long)train->is.length,
             train->is.tape_flags, test_isa_cap(), text);
}

void assert_trained_as_oracle(train_t *train)
{
    output_t outputs[MAX_OUTPUTS];
    double sensitivity[MAX_OUTPUTS];
    exact_t exact = exact_make(train);
    exact_compute(train, &exact);
    const int count = list_outputs(train, &exact, outputs);
    measure_sensitivity(train, outputs, count, sensitivity);
    for (int o = 0; o < count; o++) {
        double largest = 0;
        for (int64_t i = 0; i < outputs[o].n; i++) largest = fmax(largest, fabs(outputs[o].exact[i]));
        const double bound = 4 * sensitivity[o] + 16 * U * largest + 8 * U * outputs[o].terms + 1e-37;
        for (int64_t i = 0; i < outputs[o].n; i++)
            if (!(fabs((double)outputs[o].got[i] - outputs[o].exact[i]) <= bound))
                fail_output(train, "library against oracle", &outputs[o], i, outputs[o].exact[i], (double)outputs[o].got[i], bound);
    }
    exact_free(&exact);
}

/* -------------------------------------------------------------- Differences */

static double loss(train_t *train, exact_t *exact)
{
    const int64_t n = train->tokens * train->test.is.d_out;
    double sum = 0;
    take_scalars(train);
    oracle_train(&train->test.oracle, &train->masks, train->tokens, exact->x, exact->residual, exact->y);
    for (int64_t i = 0; i < n; i++) sum += exact->d_y[i] * exact->y[i];
    return sum;
}

/* The loss's difference quotients over steps to both sides of *wide or *narrow. Where they disagree, a kink lies between, or the curvature is large. */
static void differences(train_t *train, exact_t *exact, double *wide, float *narrow, double quotient[2])
{
    const double here = loss(train, exact), at = wide ? *wide : (double)*narrow, step = fmax(1, fabs(at)) * 0x1p-14;
    for (int side = 0; side < 2; side++) {
        const double target = side ? at + step : at - step;
        if (wide) *wide = target;
        else *narrow = (float)target;
        const double now = wide ? *wide : (double)*narrow;
        quotient[side] = (loss(train, exact) - here) / (now - at);
    }
    if (wide) *wide = at;
    else *narrow = (float)at;
}

static void check_difference(train_t *train, const output_t *output, int64_t i, const double quotient[2], double largest, int *checked)
{
    const double middle = 0.5 * (quotient[0] + quotient[1]), gap = fabs(quotient[1] - quotient[0]);
    if (gap > 0.02 * largest + 1e-6) return;
    (*checked)++;
    if (!(fabs(middle - output->exact[i]) <= 2e-5 * largest + 0.01 * gap + 1e-7))
        fail_output(train, "oracle against central differences", output, i, middle, output->exact[i], 2e-5 * largest + 0.01 * gap + 1e-7);
}

void assert_oracle_as_differences(train_t *train)
{
    output_t outputs[MAX_OUTPUTS];
    exact_t exact = exact_make(train);
    exact_compute(train, &exact);
    const int count = list_outputs(train, &exact, outputs);
    int checked = 0, total = 0;
    for (int o = 1; o < count; o++) {
        double largest = 0, quotient[2];
        for (int64_t i = 0; i < outputs[o].n; i++) largest = fmax(largest, fabs(outputs[o].exact[i]));
        for (int64_t i = 0; i < outputs[o].n; i++, total++) {
            int role = -1;
            sscanf(outputs[o].name, "gradient of role %d", &role);
            double *wide = role >= 0 ? NULL : outputs[o].exact == exact.gradients.x ? exact.x + i : exact.residual + i;
            differences(train, &exact, wide, role >= 0 ? train->test.plain[role] + i : NULL, quotient);
            check_difference(train, &outputs[o], i, quotient, largest, &checked);
        }
    }
    take_scalars(train);
    if (checked * 5 < total * 4) fail_msg("only %d of %d derivatives could be checked by differences", checked, total);
    exact_free(&exact);
}

/* -------------------------------------------------------------------- Whole */

void assert_same_training(const train_t *expected, const train_t *got, const char *what)
{
    output_t a[MAX_OUTPUTS], b[MAX_OUTPUTS];
    exact_t none = {0};
    const int count = list_outputs(expected, &none, a);
    list_outputs(got, &none, b);
    for (int o = 0; o < count; o++) {
        const int64_t i = first_different_bits(a[o].got, b[o].got, a[o].n);
        if (i >= 0) fail_output(got, what, &b[o], i, (double)a[o].got[i], (double)b[o].got[i], 0);
    }
}

void check_training(const train_case_t *is)
{
    train_t train;
    train_make(&train, is);
    train_step(&train, NULL);
    assert_oracle_as_differences(&train);
    assert_trained_as_oracle(&train);
    train_free(&train);
}
