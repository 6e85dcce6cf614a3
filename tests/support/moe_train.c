/* SPDX-License-Identifier: MIT */
#include "support/moe_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

/* --------------------------------------------------------------------- Making */

static float *rows(rng_t *rng, int64_t n)
{
    float *v = test_alloc((size_t)(n ? n : 1) * sizeof *v);
    if (rng) rng_fill_normal(rng, v, n);
    else memset(v, 0xff, (size_t)n * sizeof *v);
    return v;
}

static bool is_experts(int role)
{
    return (role >= FFN_ROLE_UP_WEIGHT && role <= FFN_ROLE_DOWN_BIAS) || role == FFN_ROLE_NORM_MID_WEIGHT || role == FFN_ROLE_NORM_MID_BIAS;
}

int64_t moe_train_elements(const moe_train_t *train, int role)
{
    const int64_t *shape = train->test.shape[role];
    return shape[0] * (shape[1] ? shape[1] : 1) * (is_experts(role) ? train->test.experts : 1);
}

static void make_gradients(moe_train_t *train)
{
    for (int role = 0; role < ROLES; role++) {
        const int64_t *shape = train->test.shape[role];
        if (!train->test.plain[role]) continue;
        train->gradient[role] = rows(NULL, moe_train_elements(train, role));
        ffn_tensor_t *view = &train->views[train->view_count++];
        *view = (ffn_tensor_t){.role = (uint32_t)role, .ndim = shape[1] ? 2 : 1, .data = train->gradient[role], .shape = {shape[0], shape[1]}};
        if (!is_experts(role)) continue;
        view->ndim++;
        view->shape[0] = train->test.experts, view->shape[1] = shape[0], view->shape[2] = shape[1];
    }
}

static void choose_at_random(moe_train_t *train, rng_t *rng)
{
    for (int64_t t = 0; t < train->tokens; t++) {
        const int64_t start = rng_below(rng, train->test.choices);
        for (int64_t k = 0; k < train->top_k; k++) {
            const bool none = rng_below(rng, 5) == 0;
            train->ids[t * train->top_k + k] = none ? FFN_MOE_NO_EXPERT : (int32_t)((start + k) % train->test.choices);
            train->weights[t * train->top_k + k] = none ? 0 : rng_uniform(rng, -1, 1);
        }
    }
}

void moe_train_make(moe_train_t *train, const moe_train_case_t *is)
{
    memset(train, 0, sizeof *train);
    train->is = *is;
    train->tokens = is->batch * is->length;
    train->top_k = is->layer.moe.top_k;
    test_moe_describe(&train->test, &is->layer);
    train->test.options.flags |= FFN_LAYER_TRAINABLE;
    train->test.options.engine = FFN_ENGINE_AUTO;
    test_moe_create(&train->test);
    rng_t rng = rng_make(is->layer.seed ^ 0x7e57);
    const int64_t in = train->tokens * is->layer.d_model, out = train->tokens * train->test.is.d_out, all = train->tokens * train->test.choices;
    const int64_t slots = train->tokens * train->top_k;
    const bool external = is->layer.residual == FFN_RESIDUAL_EXTERNAL;
    train->x = rows(&rng, in), train->d_y = rows(&rng, out), train->residual = external ? rows(&rng, out) : NULL;
    train->d_scores = rows(&rng, all), train->d_logits = rows(&rng, all);
    train->y = rows(NULL, out), train->d_x = rows(NULL, in), train->d_residual = external ? rows(NULL, out) : NULL;
    train->weights = rows(NULL, slots), train->d_weights = rows(NULL, slots), train->logits = rows(NULL, all);
    train->ids = test_alloc((size_t)slots * 4), train->made_ids = test_alloc((size_t)slots * 4);
    train->counts = test_alloc((size_t)train->test.choices * sizeof(int64_t));
    train->mask = test_alloc((size_t)train->tokens + 1);
    for (int64_t token = 0; token < train->tokens; token++) train->mask[token] = !moe_train_is_padding(train, token);
    if (is->given || is->given_ids) choose_at_random(train, &rng);
    make_gradients(train);
}

void moe_train_free(moe_train_t *train)
{
    float *const all[] = {train->x, train->d_y, train->residual, train->d_scores, train->d_logits, train->y, train->d_x, train->d_residual,
                          train->weights, train->d_weights, train->logits};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
    for (int role = 0; role < ROLES; role++) free(train->gradient[role]);
    free(train->ids), free(train->made_ids), free(train->counts), free(train->mask);
    test_moe_free(&train->test);
}

/* -------------------------------------------------------------------- Running */

ffn_status_t moe_train_forward(moe_train_t *train, ffn_context_t *context, ffn_tape_t *tape)
{
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = train->tokens, .experts = train->test.choices, .top_k = train->top_k,
                                       .ids = train->ids, .weights = train->is.given ? train->weights : NULL};
    ffn_moe_run_t moe = {.struct_size = sizeof moe, .counts = train->counts};
    ffn_run_t run = {.struct_size = sizeof run, .batch = train->is.batch, .length = train->is.length, .x = train->x, .y = train->y,
                     .residual = train->residual, .tape = tape, .moe = &moe};
    if (train->is.given || train->is.given_ids) moe.routing = &routing;
    if (!train->is.given) moe.weights = train->weights, moe.logits = train->logits;
    if (!train->is.given && !train->is.given_ids) moe.ids = train->ids;
    if (train->is.masked) moe.mask = train->mask;
    if (train->is.dropout.struct_size) run.dropout = &train->is.dropout;
    const ffn_status_t status = ffn_layer_run(train->test.layer, context, &run);
    if (!status) moe_train_make_ids(train);
    return status;
}

ffn_status_t moe_train_backward(moe_train_t *train, ffn_context_t *context, ffn_tape_t *tape, uint32_t flags)
{
    ffn_moe_backward_t moe = {.struct_size = sizeof moe, .d_weights = train->d_weights};
    if (!train->is.given) moe.d_logits = train->d_logits;
    if (!train->is.given && train->is.layer.moe.choose != FFN_MOE_CHOOSE_SPARSE_MIXER) moe.d_scores = train->d_scores;
    const ffn_backward_t backward = {.struct_size = sizeof backward, .flags = flags, .tape = tape, .d_y = train->d_y, .d_x = train->d_x,
                                     .d_residual = train->d_residual, .gradients = train->views, .gradient_count = train->view_count, .moe = &moe};
    return ffn_layer_backward(train->test.layer, context, &backward);
}

void moe_train_step(moe_train_t *train, ffn_context_t *context)
{
    const ffn_tape_options_t options = {.struct_size = sizeof options, .flags = train->is.tape_flags};
    ffn_tape_t *tape;
    assert_ok(ffn_tape_create(&options, &tape));
    assert_ok(moe_train_forward(train, context, tape));
    assert_ok(moe_train_backward(train, context, tape, 0));
    ffn_tape_free(tape);
}

/* ----------------------------------------------------------------- Differences */

/* One tensor: what the library gave, and the variable of the loss. */
typedef struct output {
    char name[32];
    int64_t n;
    const float *got;
    double *variable;
} output_t;

enum { OUTPUTS_MOST = ROLES + 4, SAMPLE = 24 };

static int list_outputs(const moe_train_t *train, const moe_variables_t *v, output_t outputs[OUTPUTS_MOST])
{
    const int64_t in = train->tokens * train->is.layer.d_model, out = train->tokens * train->test.is.d_out;
    int count = 0;
    outputs[count++] = (output_t){"d_x", in, train->d_x, v->x};
    if (train->residual) outputs[count++] = (output_t){"d_residual", out, train->d_residual, v->residual};
    if (train->is.given) outputs[count++] = (output_t){"d_weights", train->tokens * train->top_k, train->d_weights, v->weights};
    for (int role = 0; role < ROLES; role++) {
        if (!train->gradient[role]) continue;
        outputs[count] = (output_t){"", moe_train_elements(train, role), train->gradient[role], v->role[role]};
        snprintf(outputs[count++].name, sizeof outputs->name, "gradient of role %d", role);
    }
    return count;
}

static moe_variables_t variables_of(const moe_train_t *train)
{
    const int64_t out = train->tokens * train->test.is.d_out;
    moe_variables_t v = {.x = oracle_widen(train->x, train->tokens * train->is.layer.d_model),
                         .residual = train->residual ? oracle_widen(train->residual, out) : NULL,
                         .weights = oracle_widen(train->weights, train->tokens * train->top_k), .y = test_alloc((size_t)out * sizeof(double))};
    for (int role = 0; role < ROLES; role++)
        if (train->test.plain[role]) v.role[role] = oracle_widen(train->test.plain[role], moe_train_elements(train, role));
    return v;
}

static void fail_element(const moe_train_t *train, const output_t *o, int64_t i, double expected, double got, double bound)
{
    fail_msg("%s, tape flags %u, dropout %d, %s: %s [%lld]: expected %.9g, got %.9g, off by %.3g where %.3g is allowed", train->is.layer.name,
             train->is.tape_flags, train->is.dropout.struct_size != 0, test_isa_cap(), o->name, (long long)i, expected, got, fabs(got - expected), bound);
}

/* The largest of the tensor's numbers gives the scale of its rounding errors. A kink between the two sides shows in their disagreement: left out. */
static void check_output(const moe_train_t *train, const moe_variables_t *v, const output_t *o, double here, int64_t *checked, int64_t *tried)
{
    const int64_t stride = o->n > SAMPLE ? o->n / SAMPLE | 1 : 1;
    const double largest = largest_magnitude(o->got, o->n), bound = 2e-5 * largest + 2e-6;
    for (int64_t i = 0; i < o->n; i++)
        if (!isfinite(o->got[i])) fail_element(train, o, i, 0, (double)o->got[i], 0);
    for (int64_t i = (int64_t)train->is.layer.seed % stride; i < o->n; i += stride) {
        const double at = o->variable[i], step = 1e-5;
        (*tried)++;
        o->variable[i] = at + step;
        const double above = (moe_train_loss(train, v) - here) / step;
        o->variable[i] = at - step;
        const double below = (here - moe_train_loss(train, v)) / step;
        o->variable[i] = at;
        if (fabs(above - below) > 0.01 * largest + 1e-3) continue;
        (*checked)++;
        const double middle = 0.5 * (above + below);
        if (!(fabs((double)o->got[i] - middle) <= bound)) fail_element(train, o, i, middle, (double)o->got[i], bound);
    }
}

void assert_moe_trained(moe_train_t *train)
{
    output_t outputs[OUTPUTS_MOST];
    moe_variables_t v = variables_of(train);
    const int count = list_outputs(train, &v, outputs);
    const double here = moe_train_loss(train, &v);
    double largest = 1;
    int64_t checked = 0, tried = 0;
    for (int64_t i = 0; i < train->tokens * train->test.is.d_out; i++) largest = fmax(largest, fabs(v.y[i]));
    for (int64_t i = 0; i < train->tokens * train->test.is.d_out; i++)
        if (!(fabs((double)train->y[i] - v.y[i]) <= 4e-6 * largest))
            fail_element(train, &(output_t){.name = "y"}, i, v.y[i], (double)train->y[i], 4e-6 * largest);
    free(v.y);
    v.y = NULL;
    for (int o = 0; o < count; o++) check_output(train, &v, &outputs[o], here, &checked, &tried);
    if (checked < tried * 9 / 10) fail_msg("%s: only %lld of %lld differences could be taken", train->is.layer.name, (long long)checked, (long long)tried);
    free(v.x), free(v.residual), free(v.weights);
    for (int role = 0; role < ROLES; role++) free(v.role[role]);
}

/* ------------------------------------------------------------------------ Bits */

void assert_same_moe_training(const moe_train_t *expected, const moe_train_t *got, const char *what)
{
    const int64_t in = expected->tokens * expected->is.layer.d_model, out = expected->tokens * expected->test.is.d_out;
    char name[96];
    assert_same_bits(expected->y, got->y, out, what);
    assert_same_bits(expected->d_x, got->d_x, in, what);
    assert_same_bits(expected->d_weights, got->d_weights, expected->tokens * expected->top_k, what);
    if (expected->d_residual) assert_same_bits(expected->d_residual, got->d_residual, out, what);
    for (int role = 0; role < ROLES; role++) {
        if (!expected->gradient[role]) continue;
        snprintf(name, sizeof name, "%s: gradient of role %d", what, role);
        assert_same_bits(expected->gradient[role], got->gradient[role], moe_train_elements(expected, role), name);
    }
}
