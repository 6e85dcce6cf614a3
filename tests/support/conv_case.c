/* SPDX-License-Identifier: MIT */
#include "support/conv_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"

/* ------------------------------------------------------------------ Tensors */

/* Where element (o, i, j) of [size 0, size 1, size 2] lies: at base + o * step 0 + i * step 1 + j * step 2, in floats. */
typedef struct place3 {
    int64_t size[3], step[3], base, floats;
} place3_t;

static place3_t place_of(conv_layout_t layout, int64_t out, int64_t in, int64_t taps)
{
    const int64_t steps[CONV_LAYOUTS][3] = {
        [CONV_OUT_IN_TAPS] = {in * taps, taps, 1},    [CONV_TAPS_IN_OUT] = {1, out, in * out},
        [CONV_TAPS_OUT_IN] = {in, 1, in * out},       [CONV_IN_OUT_TAPS] = {taps, out * taps, 1},
        [CONV_PADDED] = {in * (2 * taps + 1) + 3, 2 * taps + 1, 2}, [CONV_REVERSED] = {-in * taps, -taps, -1},
    };
    place3_t place = {.size = {out, in, taps}, .floats = 1};
    memcpy(place.step, steps[layout], sizeof place.step);
    for (int d = 0; d < 3; d++) {
        const int64_t reach = (place.size[d] - 1) * place.step[d];
        if (reach < 0) place.base -= reach;
        place.floats += llabs(reach);
    }
    return place;
}

static place3_t place_of_role(const conv_test_t *test, int role)
{
    const conv_case_t *is = &test->is;
    switch (role) {
    case FFN_ROLE_UP_WEIGHT: return place_of(is->layout, is->d_ff, is->d_model, is->separable[0] ? 1 : is->kernel[0]);
    case FFN_ROLE_DOWN_WEIGHT: return place_of(is->layout, is->d_out, is->d_ff, is->separable[1] ? 1 : is->kernel[1]);
    case FFN_ROLE_UP_TAPS: return place_of(is->layout, is->d_model, 1, is->kernel[0]);
    case FFN_ROLE_DOWN_TAPS: return place_of(is->layout, is->d_ff, 1, is->kernel[1]);
    case FFN_ROLE_UP_BIAS: return place_of(CONV_OUT_IN_TAPS, is->d_ff, 1, 1);
    case FFN_ROLE_DOWN_BIAS: return place_of(CONV_OUT_IN_TAPS, is->d_out, 1, 1);
    default: return place_of(CONV_OUT_IN_TAPS, 1, 1, 1);
    }
}

static void move(const place3_t *place, float *plain, float *stored, bool back)
{
    for (int64_t o = 0; o < place->size[0]; o++)
        for (int64_t i = 0; i < place->size[1]; i++)
            for (int64_t j = 0; j < place->size[2]; j++) {
                float *at = stored + place->base + o * place->step[0] + i * place->step[1] + j * place->step[2];
                if (back) *plain++ = *at;
                else *at = *plain++;
            }
}

/* With the third dimension where there are taps, and where a case's seed says so. */
static ffn_tensor_t view_of(const conv_test_t *test, int role, float *stored)
{
    const place3_t place = place_of_role(test, role);
    const bool weight = role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT, taps = role == FFN_ROLE_UP_TAPS || role == FFN_ROLE_DOWN_TAPS;
    ffn_tensor_t view = {.role = (uint32_t)role, .ndim = 1, .data = stored + place.base, .shape = {place.size[0]}, .stride = {4 * place.step[0]}};
    if (weight) view.ndim = place.size[2] > 1 || test->is.seed % 2 ? 3 : 2;
    if (taps) view.ndim = 2;
    for (uint32_t d = 1; d < view.ndim; d++) {
        const int from = taps ? 2 : (int)d;
        view.shape[d] = place.size[from], view.stride[d] = 4 * place.step[from];
    }
    if (test->is.layout == CONV_OUT_IN_TAPS) memset(view.stride, 0, sizeof view.stride);
    return view;
}

static float *nan_floats(int64_t n)
{
    float *v = test_alloc((size_t)n * sizeof *v);
    memset(v, 0xff, (size_t)n * sizeof *v);
    return v;
}

static void make_tensor(conv_test_t *test, rng_t *rng, int role, int64_t fan_in)
{
    const place3_t place = place_of_role(test, role);
    const int64_t n = place.size[0] * place.size[1] * place.size[2];
    const float reach = 1.5f / sqrtf((float)fan_in);
    test->plain[role] = test_alloc((size_t)n * sizeof(float));
    rng_fill_uniform(rng, test->plain[role], n, -reach, reach);
    test->stored[role] = nan_floats(place.floats);
    test->gradient[role] = nan_floats(place.floats);
    move(&place, test->plain[role], test->stored[role], false);
    test->gradients[test->tensor_count] = view_of(test, role, test->gradient[role]);
    test->tensors[test->tensor_count++] = view_of(test, role, test->stored[role]);
}

static void make_tensors(conv_test_t *test, rng_t *rng)
{
    const conv_case_t *is = &test->is;
    make_tensor(test, rng, FFN_ROLE_UP_WEIGHT, is->d_model * (is->separable[0] ? 1 : is->kernel[0]));
    make_tensor(test, rng, FFN_ROLE_DOWN_WEIGHT, is->d_ff * (is->separable[1] ? 1 : is->kernel[1]));
    if (is->separable[0]) make_tensor(test, rng, FFN_ROLE_UP_TAPS, is->kernel[0]);
    if (is->separable[1]) make_tensor(test, rng, FFN_ROLE_DOWN_TAPS, is->kernel[1]);
    if (is->up_bias) make_tensor(test, rng, FFN_ROLE_UP_BIAS, 1);
    if (is->down_bias) make_tensor(test, rng, FFN_ROLE_DOWN_BIAS, 1);
    if (is->activation == FFN_ACTIVATION_XIELU) {
        make_tensor(test, rng, FFN_ROLE_XIELU_ALPHA_P, 1);
        make_tensor(test, rng, FFN_ROLE_XIELU_ALPHA_N, 1);
    }
}

/* --------------------------------------------------------------------- Rows */

static int64_t strided_floats(const conv_case_t *is, int64_t width, int64_t stride[2])
{
    const int64_t row = width + is->row_gap, sequence = row * is->length + is->sequence_gap;
    if (is->row_gap || is->sequence_gap) stride[0] = 4 * sequence, stride[1] = 4 * row;
    return is->batch > 0 && is->length > 0 ? (is->batch - 1) * sequence + (is->length - 1) * row + width : 0;
}

static float *row_of(const conv_case_t *is, float *rows, int64_t width, int64_t position)
{
    const int64_t row = width + is->row_gap, sequence = row * is->length + is->sequence_gap;
    return rows + position / is->length * sequence + position % is->length * row;
}

static float *take_rows(conv_test_t *test, int which, int64_t floats)
{
    test->memory[which] = guard_alloc((size_t)(floats ? floats : 1) * sizeof(float), test->is.seed % 3 ? GUARD_AFTER : GUARD_BEFORE);
    return test->memory[which].data;
}

static void fill_rows(const conv_test_t *test, rng_t *rng, float *rows, int64_t width)
{
    for (int64_t p = 0; p < test->is.batch * test->is.length; p++) rng_fill_normal(rng, row_of(&test->is, rows, width, p), width);
}

static void make_mask(conv_test_t *test, rng_t *rng)
{
    const int64_t batch = test->is.batch, length = test->is.length;
    if (!test->is.masked) return;
    test->mask = test_alloc((size_t)(batch * (length + 3) + 1));
    test->oracle_mask = test_alloc((size_t)(batch * length + 1));
    memset(test->mask, 0, (size_t)(batch * (length + 3) + 1));
    for (int64_t p = 0; p < batch * length; p++) {
        const uint8_t kept = rng_below(rng, 3) ? (uint8_t)(1 + rng_below(rng, 255)) : 0;
        test->oracle_mask[p] = test->mask[p / length * (length + 3) + p % length] = kept;
    }
}

/* -------------------------------------------------------------------- Making */

static void make_oracle(conv_test_t *test)
{
    const conv_case_t *is = &test->is;
    test->oracle = (conv_oracle_t){.d_model = is->d_model, .d_ff = is->d_ff, .d_out = is->d_out, .batch = is->batch, .length = is->length,
                                   .scaled = (is->flags & FFN_CONV_SCALE_BY_TAPS) != 0, .mask_all = is->mask_kind == FFN_CONV_MASK_ALL,
                                   .activation = {is->activation, is->alpha, is->beta, 0, 0}, .mask = test->oracle_mask, .dropout = &test->masks};
    for (int part = 0; part < 2; part++) {
        test->oracle.kernel[part] = is->kernel[part];
        test->oracle.separable[part] = is->separable[part];
        test->oracle.left[part] = is->padding == FFN_CONV_LEFT ? is->kernel[part] - 1 : (is->kernel[part] - 1) / 2;
    }
    if (is->dropout.struct_size) test->masks = oracle_masks_make(&is->dropout, is->batch, is->length, is->d_ff, is->d_out);
}

void conv_test_describe(conv_test_t *test, const conv_case_t *is)
{
    memset(test, 0, sizeof *test);
    test->is = *is;
    if (!test->is.d_out) test->is.d_out = is->d_model;
    for (int part = 0; part < 2; part++)
        if (!test->is.kernel[part]) test->is.kernel[part] = 1;
    rng_t rng = rng_make(is->seed);
    make_tensors(test, &rng);
    test->x_floats = strided_floats(&test->is, test->is.d_model, test->x_stride);
    test->y_floats = strided_floats(&test->is, test->is.d_out, test->y_stride);
    test->x = take_rows(test, 0, test->x_floats), test->y = take_rows(test, 1, test->y_floats);
    test->d_y = take_rows(test, 2, test->y_floats), test->d_x = take_rows(test, 3, test->x_floats);
    fill_rows(test, &rng, test->x, test->is.d_model);
    fill_rows(test, &rng, test->d_y, test->is.d_out);
    make_mask(test, &rng);
    make_oracle(test);
    test->options = (ffn_conv_options_t){.struct_size = sizeof test->options, .flags = is->flags, .padding = is->padding, .mask = is->mask_kind,
                                         .activation = is->activation, .alpha = is->alpha, .beta = is->beta, .engine = is->engine,
                                         .tensors = test->tensors, .tensor_count = test->tensor_count};
}

void conv_test_create(conv_test_t *test)
{
    assert_ok(ffn_conv_create(NULL, &test->options, &test->conv));
}

void conv_test_make(conv_test_t *test, const conv_case_t *is)
{
    conv_test_describe(test, is);
    conv_test_create(test);
}

void conv_test_free(conv_test_t *test)
{
    ffn_conv_free(test->conv);
    for (int role = 0; role < CONV_ROLES; role++) free(test->plain[role]), free(test->stored[role]), free(test->gradient[role]);
    for (int i = 0; i < 4; i++) guard_free(&test->memory[i]);
    free(test->mask), free(test->oracle_mask);
    oracle_masks_free(&test->masks);
}

ffn_tensor_t *conv_test_view(conv_test_t *test, uint32_t role)
{
    for (uint64_t i = 0; i < test->tensor_count; i++)
        if (test->tensors[i].role == role) return &test->tensors[i];
    fail_msg("the case has no tensor of role %u", role);
    return NULL;
}

/* ------------------------------------------------------------------- Running */

ffn_conv_run_t conv_test_run(conv_test_t *test, ffn_tape_t *tape)
{
    const conv_case_t *is = &test->is;
    ffn_conv_run_t run = {.struct_size = sizeof run, .batch = is->batch, .length = is->length, .x = test->x, .y = test->y, .mask = test->mask,
                          .mask_stride = test->mask ? is->length + 3 : 0, .tape = tape};
    memcpy(run.x_stride, test->x_stride, sizeof run.x_stride);
    memcpy(run.y_stride, test->y_stride, sizeof run.y_stride);
    if (is->dropout.struct_size) run.dropout = &is->dropout;
    return run;
}

ffn_backward_t conv_test_backward(conv_test_t *test, ffn_tape_t *tape)
{
    ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = test->d_y, .d_x = test->d_x, .gradients = test->gradients,
                               .gradient_count = test->tensor_count};
    memcpy(backward.d_y_stride, test->y_stride, sizeof backward.d_y_stride);
    memcpy(backward.d_x_stride, test->x_stride, sizeof backward.d_x_stride);
    return backward;
}

void conv_test_forward(conv_test_t *test, ffn_context_t *context)
{
    const ffn_conv_run_t run = conv_test_run(test, NULL);
    assert_ok(ffn_conv_run(test->conv, context, &run));
}

void conv_test_step(conv_test_t *test, ffn_context_t *context)
{
    const ffn_tape_options_t options = {.struct_size = sizeof options, .flags = test->is.tape_flags};
    ffn_tape_t *tape;
    assert_ok(ffn_tape_create(&options, &tape));
    const ffn_conv_run_t run = conv_test_run(test, tape);
    const ffn_backward_t backward = conv_test_backward(test, tape);
    assert_ok(ffn_conv_run(test->conv, context, &run));
    assert_ok(ffn_conv_backward(test->conv, context, &backward));
    ffn_tape_free(tape);
}

static float *without_gaps(const conv_test_t *test, float *rows, int64_t width)
{
    const int64_t positions = test->is.batch * test->is.length;
    float *out = test_alloc((size_t)(positions * width + 1) * sizeof *out);
    for (int64_t p = 0; p < positions; p++) memcpy(out + p * width, row_of(&test->is, rows, width, p), (size_t)width * sizeof *out);
    return out;
}

float *conv_test_output(const conv_test_t *test)
{
    return without_gaps(test, test->y, test->is.d_out);
}

float *conv_test_gradient(const conv_test_t *test, int role)
{
    const place3_t place = place_of_role(test, role);
    float *plain = test_alloc((size_t)(place.size[0] * place.size[1] * place.size[2]) * sizeof *plain);
    move(&place, plain, test->gradient[role], true);
    return plain;
}

/* -------------------------------------------------------------------- Oracle */

typedef struct exact {
    double *x, *d_y, *y, *d_x;
    conv_oracle_t oracle; /* with tensors of its own */
    double *gradient[CONV_ROLES];
} exact_t;

static double *widened_rows(const conv_test_t *test, float *rows, int64_t width)
{
    float *plain = without_gaps(test, rows, width);
    double *wide = oracle_widen(plain, test->is.batch * test->is.length * width);
    free(plain);
    return wide;
}

static exact_t exact_make(const conv_test_t *test)
{
    const int64_t positions = test->is.batch * test->is.length;
    exact_t exact = {.x = widened_rows(test, test->x, test->is.d_model), .d_y = widened_rows(test, test->d_y, test->is.d_out),
                     .y = test_alloc((size_t)(positions * test->is.d_out + 1) * sizeof(double)),
                     .d_x = test_alloc((size_t)(positions * test->is.d_model + 1) * sizeof(double)), .oracle = test->oracle};
    for (int role = 0; role < CONV_ROLES; role++) {
        if (!test->plain[role]) continue;
        exact.oracle.tensor[role] = oracle_widen(test->plain[role], conv_oracle_elements(&test->oracle, role));
        exact.gradient[role] = test_alloc((size_t)conv_oracle_elements(&test->oracle, role) * sizeof(double));
    }
    return exact;
}

static void exact_free(exact_t *exact)
{
    free(exact->x), free(exact->d_y), free(exact->y), free(exact->d_x);
    for (int role = 0; role < CONV_ROLES; role++) free(exact->oracle.tensor[role]), free(exact->gradient[role]);
}

static void exact_compute(exact_t *exact, bool trained)
{
    conv_oracle_t *o = &exact->oracle;
    if (o->activation.id == FFN_ACTIVATION_XIELU) {
        o->activation.alpha_p = (float)o->tensor[FFN_ROLE_XIELU_ALPHA_P][0];
        o->activation.alpha_n = (float)o->tensor[FFN_ROLE_XIELU_ALPHA_N][0];
    }
    conv_oracle_forward(o, exact->x, exact->y);
    if (trained) conv_oracle_backward(o, exact->x, exact->d_y, exact->d_x, exact->gradient);
}

/* One tensor of outputs. role 0: y, -1: d_x. */
typedef struct output {
    int role;
    int64_t n;
    double *exact;
} output_t;

enum { OUTPUTS_MOST = CONV_TENSORS + 2 };

static int list_outputs(const exact_t *exact, bool trained, output_t outputs[OUTPUTS_MOST])
{
    const conv_oracle_t *o = &exact->oracle;
    int count = 0;
    outputs[count++] = (output_t){0, o->batch * o->length * o->d_out, exact->y};
    if (!trained) return count;
    outputs[count++] = (output_t){-1, o->batch * o->length * o->d_model, exact->d_x};
    for (int role = 1; role < CONV_ROLES; role++)
        if (o->tensor[role]) outputs[count++] = (output_t){role, conv_oracle_elements(o, role), exact->gradient[role]};
    return count;
}

static float *got_of(const conv_test_t *test, const output_t *output)
{
    if (output->role > 0) return conv_test_gradient(test, output->role);
    return output->role ? without_gaps(test, test->d_x, test->is.d_model) : conv_test_output(test);
}

static void fail_output(const conv_test_t *test, const char *what, int role, int64_t i, double expected, double got, double bound)
{
    const conv_case_t *is = &test->is;
    fail_msg("%s: %s %d [%lld]: expected %.9g, got %.9g, off by %.3g where %.3g is allowed; %lld-%lld-%lld, kernels %lld%s %lld%s, padding %u, mask %d/%u, "
             "flags %u, activation %u, layout %d, batch %lld, length %lld, gaps %lld %lld, tape flags %u, seed %llu; FFN_MAX_ISA %s",
             what, role ? role > 0 ? "gradient of role" : "d_x" : "y", role, (long long)i, expected, got, fabs(got - expected), bound, (long long)is->d_model,
             (long long)is->d_ff, (long long)is->d_out, (long long)is->kernel[0], is->separable[0] ? "s" : "", (long long)is->kernel[1],
             is->separable[1] ? "s" : "", is->padding, is->masked, is->mask_kind, is->flags, is->activation, (int)is->layout, (long long)is->batch,
             (long long)is->length, (long long)is->row_gap, (long long)is->sequence_gap, is->tape_flags, (unsigned long long)is->seed, test_isa_cap());
}

static const double U = 0x1p-24;

static void jitter(rng_t *rng, double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] *= 1 + 8 * U * (double)rng_uniform(rng, -1, 1);
}

static void measure_sensitivity(const conv_test_t *test, bool trained, const output_t *outputs, int count, double sensitivity[OUTPUTS_MOST])
{
    enum { DRAWS = 4 };
    const int64_t positions = test->is.batch * test->is.length;
    rng_t rng = rng_make(17);
    for (int o = 0; o < count; o++) sensitivity[o] = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        output_t moved[OUTPUTS_MOST];
        exact_t exact = exact_make(test);
        jitter(&rng, exact.x, positions * test->is.d_model);
        jitter(&rng, exact.d_y, positions * test->is.d_out);
        for (int role = 0; role < CONV_ROLES; role++)
            if (exact.oracle.tensor[role]) jitter(&rng, exact.oracle.tensor[role], conv_oracle_elements(&exact.oracle, role));
        exact_compute(&exact, trained);
        list_outputs(&exact, trained, moved);
        for (int o = 0; o < count; o++)
            for (int64_t i = 0; i < outputs[o].n; i++) sensitivity[o] = fmax(sensitivity[o], fabs(moved[o].exact[i] - outputs[o].exact[i]));
        exact_free(&exact);
    }
}

static void assert_gaps_untouched(const conv_test_t *test, const float *rows, int64_t floats, int64_t width, const char *what)
{
    const int64_t row = width + test->is.row_gap, sequence = row * test->is.length + test->is.sequence_gap;
    for (int64_t i = 0; i < floats; i++) {
        const int64_t t = i % sequence / row, column = i % sequence % row;
        if ((t >= test->is.length || column >= width) && !isnan(rows[i])) fail_msg("%s: float %lld, between rows, was written", what, (long long)i);
    }
}

static void assert_outputs(conv_test_t *test, bool trained)
{
    output_t outputs[OUTPUTS_MOST];
    double sensitivity[OUTPUTS_MOST];
    exact_t exact = exact_make(test);
    exact_compute(&exact, trained);
    const int count = list_outputs(&exact, trained, outputs);
    measure_sensitivity(test, trained, outputs, count, sensitivity);
    for (int o = 0; o < count; o++) {
        float *got = got_of(test, &outputs[o]);
        double largest = 0;
        for (int64_t i = 0; i < outputs[o].n; i++) largest = fmax(largest, fabs(outputs[o].exact[i]));
        const double bound = 4 * sensitivity[o] + 16 * U * largest + 1e-37;
        for (int64_t i = 0; i < outputs[o].n; i++)
            if (!(fabs((double)got[i] - outputs[o].exact[i]) <= bound))
                fail_output(test, "library against oracle", outputs[o].role, i, outputs[o].exact[i], (double)got[i], bound);
        free(got);
    }
    assert_gaps_untouched(test, test->y, test->y_floats, test->is.d_out, "y");
    assert_gaps_untouched(test, test->d_x, test->x_floats, test->is.d_model, "d_x");
    exact_free(&exact);
}

void assert_conv_as_oracle(conv_test_t *test)
{
    assert_outputs(test, false);
}

void assert_conv_trained_as_oracle(conv_test_t *test)
{
    assert_outputs(test, true);
}

/* --------------------------------------------------------------- Differences */

static double loss(exact_t *exact)
{
    const int64_t n = exact->oracle.batch * exact->oracle.length * exact->oracle.d_out;
    double sum = 0;
    exact_compute(exact, false);
    for (int64_t i = 0; i < n; i++) sum += exact->d_y[i] * exact->y[i];
    return sum;
}

/* Over steps to both sides: where they disagree, a kink lies between, or the curvature is large. Learned scalars are float32. */
static void differences(exact_t *exact, double *number, double quotient[2])
{
    const double at = *number, step = fmax(1, fabs(at)) * 0x1p-14, here = loss(exact);
    for (int side = 0; side < 2; side++) {
        *number = (double)(float)(side ? at + step : at - step);
        quotient[side] = (loss(exact) - here) / (*number - at);
    }
    *number = at;
}

void assert_conv_oracle_as_differences(conv_test_t *test)
{
    output_t outputs[OUTPUTS_MOST];
    exact_t exact = exact_make(test);
    exact_compute(&exact, true);
    const int count = list_outputs(&exact, true, outputs);
    int64_t checked = 0, total = 0;
    for (int o = 1; o < count; o++) {
        double largest = 0, quotient[2];
        for (int64_t i = 0; i < outputs[o].n; i++) largest = fmax(largest, fabs(outputs[o].exact[i]));
        for (int64_t i = 0; i < outputs[o].n; i++, total++) {
            differences(&exact, outputs[o].role > 0 ? exact.oracle.tensor[outputs[o].role] + i : exact.x + i, quotient);
            const double middle = 0.5 * (quotient[0] + quotient[1]), gap = fabs(quotient[1] - quotient[0]);
            if (gap > 0.02 * largest + 1e-6) continue;
            checked++;
            const double bound = 2e-5 * largest + 0.01 * gap + 1e-7;
            if (!(fabs(middle - outputs[o].exact[i]) <= bound))
                fail_output(test, "oracle against central differences", outputs[o].role, i, middle, outputs[o].exact[i], bound);
        }
    }
    if (checked * 5 < total * 4) fail_msg("only %lld of %lld derivatives could be checked by differences", (long long)checked, (long long)total);
    exact_free(&exact);
}

void assert_same_conv(const conv_test_t *expected, const conv_test_t *got, bool trained, const char *what)
{
    output_t outputs[OUTPUTS_MOST];
    const exact_t shapes = {.oracle = expected->oracle};
    const int count = list_outputs(&shapes, trained, outputs);
    for (int o = 0; o < count; o++) {
        float *a = got_of(expected, &outputs[o]), *b = got_of(got, &outputs[o]);
        const int64_t i = first_different_bits(a, b, outputs[o].n);
        if (i >= 0) fail_output(got, what, outputs[o].role, i, (double)a[i], (double)b[i], 0);
        free(a), free(b);
    }
    for (int role = 1; trained && role < CONV_ROLES; role++) {
        if (!expected->plain[role]) continue;
        float *a = conv_test_gradient(expected, role), *b = conv_test_gradient(got, role);
        const int64_t i = first_different_bits(a, b, conv_oracle_elements(&expected->oracle, role));
        if (i >= 0) fail_output(got, what, role, i, (double)a[i], (double)b[i], 0);
        free(a), free(b);
    }
}
