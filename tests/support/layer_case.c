/* SPDX-License-Identifier: MIT */
#include "support/layer_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/test.h"

static int64_t elements(const test_layer_t *test, uint32_t role)
{
    return test->shape[role][0] * (test->shape[role][1] ? test->shape[role][1] : 1);
}

static float *add(test_layer_t *test, uint32_t role, int64_t rows, int64_t columns)
{
    test->shape[role][0] = rows;
    test->shape[role][1] = columns;
    test->plain[role] = test_alloc((size_t)elements(test, role) * sizeof(float));
    return test->plain[role];
}

/* Rows of very different gain, so that the pre-activations reach the tails and the clamps: about +-2, +-2, +-6 and +-20. */
static void fill_first(test_layer_t *test, uint32_t role, rng_t *rng)
{
    static const float gains[4] = {1, 1, 3, 9};
    int64_t rows = test->is.d_ff, columns = test->is.d_model, groups = test->is.groups;
    float *w = add(test, role, rows, columns);
    float unit = 2 / sqrtf((float)columns);
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < columns; i++) {
            bool inside = groups < 2 || j * groups / rows == i * groups / columns;
            w[j * columns + i] = inside ? rng_uniform(rng, -unit, unit) * gains[j & 3] : 0;
        }
}

static void fill_down(test_layer_t *test, rng_t *rng)
{
    int64_t rows = test->is.d_out, columns = test->is.d_ff, groups = test->is.groups;
    float *w = add(test, FFN_ROLE_DOWN_WEIGHT, rows, columns);
    float unit = 2 / sqrtf((float)columns);
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < columns; i++) {
            bool inside = groups < 2 || j * groups / rows == i * groups / columns;
            w[j * columns + i] = inside ? rng_uniform(rng, -unit, unit) : 0;
        }
}

static void fill_vector(test_layer_t *test, uint32_t role, int64_t n, float low, float high, rng_t *rng)
{
    rng_fill_uniform(rng, add(test, role, n, 0), n, low, high);
}

static void fill_norms(test_layer_t *test, rng_t *rng)
{
    const int64_t width[4] = {test->is.d_model, test->is.d_ff, test->is.d_out, test->is.d_out};
    for (int slot = 0; slot < 4; slot++) {
        const norm_case_t *norm = &test->is.norm[slot];
        if (norm->kind == FFN_NORM_NONE) continue;
        uint32_t weight = FFN_ROLE_NORM_IN_WEIGHT + 2 * (uint32_t)slot, bias = weight + 1;
        if (norm->weight) fill_vector(test, weight, width[slot], 0.5f - norm->offset, 1.5f - norm->offset, rng);
        if (norm->bias) fill_vector(test, bias, width[slot], -1, 1, rng);
    }
}

static void fill_scale(test_layer_t *test, uint32_t role, scale_case_t scale, float factor, rng_t *rng)
{
    if (scale == SCALE_NONE) return;
    bool one = scale == SCALE_ONE || scale == SCALE_ONE_TANH;
    fill_vector(test, role, one ? 1 : test->is.d_out, -1.5f, 1.5f, rng);
    if (one && factor != 0) test->plain[role][0] = factor;
}

static void fill_weights(test_layer_t *test)
{
    rng_t rng = rng_make(test->is.seed);
    fill_first(test, FFN_ROLE_UP_WEIGHT, &rng);
    if (test->is.biases & BIAS_UP) fill_vector(test, FFN_ROLE_UP_BIAS, test->is.d_ff, -1, 1, &rng);
    if (test->is.gated) {
        fill_first(test, FFN_ROLE_GATE_WEIGHT, &rng);
        if (test->is.biases & BIAS_GATE) fill_vector(test, FFN_ROLE_GATE_BIAS, test->is.d_ff, -1, 1, &rng);
    }
    fill_down(test, &rng);
    if (test->is.biases & BIAS_DOWN) fill_vector(test, FFN_ROLE_DOWN_BIAS, test->is.d_out, -1, 1, &rng);
    fill_norms(test, &rng);
    fill_scale(test, FFN_ROLE_BRANCH_SCALE, test->is.branch_scale, test->is.branch_factor, &rng);
    fill_scale(test, FFN_ROLE_RESIDUAL_SCALE, test->is.residual_scale, test->is.residual_factor, &rng);
    if (test->is.activation == FFN_ACTIVATION_XIELU) {
        fill_vector(test, FFN_ROLE_XIELU_ALPHA_P, 1, -1, 1, &rng);
        fill_vector(test, FFN_ROLE_XIELU_ALPHA_N, 1, -1, 1, &rng);
    }
}

static float *store(test_layer_t *test, uint32_t role, int64_t floats)
{
    test->stored[role] = test_alloc((size_t)floats * sizeof(float));
    test->stored_floats[role] = floats;
    memset(test->stored[role], 0xff, (size_t)floats * sizeof(float));
    return test->stored[role];
}

static void view(test_layer_t *test, uint32_t role, const place_t *place, float *memory)
{
    int64_t rows = test->shape[role][0], columns = test->shape[role][1];
    layout_store(place, rows, columns ? columns : 1, test->plain[role], memory);
    ffn_tensor_t *tensor = &test->tensors[test->options.tensor_count++];
    *tensor = (ffn_tensor_t){.role = role, .ndim = columns ? 2 : 1, .data = memory + place->base, .shape = {rows, columns}};
    tensor->stride[0] = place->row * (int64_t)sizeof(float);
    if (columns) tensor->stride[1] = place->column * (int64_t)sizeof(float);
}

/* Gate and up, and their biases, into shared blocks; the rest by itself. */
static void store_weights(test_layer_t *test)
{
    int64_t d_ff = test->is.d_ff, d_model = test->is.d_model, d_out = test->is.d_out;
    place_t gate, up, down, vector = {0, 1, 0};
    float *memory = store(test, FFN_ROLE_UP_WEIGHT, layout_pair(test->is.layout, d_ff, d_model, &gate, &up));
    view(test, FFN_ROLE_UP_WEIGHT, &up, memory);
    if (test->is.gated) view(test, FFN_ROLE_GATE_WEIGHT, &gate, memory);
    memory = store(test, FFN_ROLE_UP_BIAS, layout_bias_pair(test->is.layout, d_ff, &gate, &up));
    if (test->plain[FFN_ROLE_UP_BIAS]) view(test, FFN_ROLE_UP_BIAS, &up, memory);
    if (test->plain[FFN_ROLE_GATE_BIAS]) view(test, FFN_ROLE_GATE_BIAS, &gate, memory);
    memory = store(test, FFN_ROLE_DOWN_WEIGHT, layout_single(test->is.down_layout, d_out, d_ff, &down));
    view(test, FFN_ROLE_DOWN_WEIGHT, &down, memory);
    for (uint32_t role = FFN_ROLE_DOWN_BIAS; role < ROLES; role++)
        if (test->plain[role]) view(test, role, &vector, store(test, role, test->shape[role][0]));
}

static void describe_options(test_layer_t *test)
{
    const layer_case_t *is = &test->is;
    ffn_layer_options_t *options = &test->options;
    options->struct_size = sizeof *options;
    options->activation = is->activation;
    options->engine = test_engine();
    options->residual = is->residual;
    options->alpha = is->alpha;
    options->beta = is->beta;
    options->gate_max = is->gate_max;
    options->up_limit = is->up_limit;
    options->up_offset = is->up_offset;
    if (is->branch_scale >= SCALE_ONE_TANH) options->flags |= FFN_LAYER_TANH_BRANCH_SCALE;
    if (is->residual_scale >= SCALE_ONE_TANH) options->flags |= FFN_LAYER_TANH_RESIDUAL_SCALE;
    for (int slot = 0; slot < 4; slot++) {
        options->norm[slot] = is->norm[slot].kind;
        options->norm_eps[slot] = is->norm[slot].eps;
        options->norm_offset[slot] = is->norm[slot].offset;
    }
    options->tensors = test->tensors;
}

static oracle_scale_t oracle_scale(const test_layer_t *test, uint32_t role, scale_case_t scale)
{
    return (oracle_scale_t){test->plain[role], test->shape[role][0], scale >= SCALE_ONE_TANH};
}

static void describe_oracle(test_layer_t *test)
{
    const layer_case_t *is = &test->is;
    float **plain = test->plain;
    test->oracle = (oracle_layer_t){
        .d_model = is->d_model, .d_ff = is->d_ff, .d_out = is->d_out,
        .activation = {.id = is->activation, .alpha = is->alpha, .beta = is->beta},
        .gate_max = is->gate_max, .up_limit = is->up_limit, .up_offset = is->up_offset,
        .up = plain[FFN_ROLE_UP_WEIGHT], .gate = plain[FFN_ROLE_GATE_WEIGHT], .down = plain[FFN_ROLE_DOWN_WEIGHT],
        .up_bias = plain[FFN_ROLE_UP_BIAS], .gate_bias = plain[FFN_ROLE_GATE_BIAS], .down_bias = plain[FFN_ROLE_DOWN_BIAS],
        .residual = is->residual,
        .branch_scale = oracle_scale(test, FFN_ROLE_BRANCH_SCALE, is->branch_scale),
        .residual_scale = oracle_scale(test, FFN_ROLE_RESIDUAL_SCALE, is->residual_scale)};
    if (is->activation == FFN_ACTIVATION_XIELU) {
        test->oracle.activation.alpha_p = plain[FFN_ROLE_XIELU_ALPHA_P][0];
        test->oracle.activation.alpha_n = plain[FFN_ROLE_XIELU_ALPHA_N][0];
    }
    for (int slot = 0; slot < 4; slot++) {
        uint32_t weight = FFN_ROLE_NORM_IN_WEIGHT + 2 * (uint32_t)slot;
        test->oracle.norm[slot] = (oracle_norm_t){is->norm[slot].kind, is->norm[slot].eps, is->norm[slot].offset,
                                                  plain[weight], plain[weight + 1]};
    }
}

void test_layer_describe(test_layer_t *test, const layer_case_t *is)
{
    memset(test, 0, sizeof *test);
    test->is = *is;
    if (!test->is.d_out) test->is.d_out = test->is.d_model;
    test->is.seed += test_seed() << 32;
    fill_weights(test);
    describe_options(test);
    store_weights(test);
    describe_oracle(test);
}

void test_layer_create(test_layer_t *test)
{
    ffn_status_t status = ffn_layer_create(NULL, &test->options, &test->layer);
    if (status == FFN_OK) return;
    char text[512];
    layer_case_print(&test->is, text, sizeof text);
    fail_msg("ffn_layer_create: %s: %s; %s", ffn_status_name(status), ffn_last_error(), text);
}

void test_layer_make(test_layer_t *test, const layer_case_t *is)
{
    test_layer_describe(test, is);
    test_layer_create(test);
}

void test_layer_free(test_layer_t *test)
{
    ffn_layer_free(test->layer);
    for (int role = 0; role < ROLES; role++) {
        free(test->plain[role]);
        free(test->stored[role]);
    }
    memset(test, 0, sizeof *test);
}

ffn_tensor_t *test_layer_view(test_layer_t *test, uint32_t role)
{
    for (uint64_t i = 0; i < test->options.tensor_count; i++)
        if (test->tensors[i].role == role) return &test->tensors[i];
    fail_msg("the test's layer has no tensor of role %u", role);
    return NULL;
}
