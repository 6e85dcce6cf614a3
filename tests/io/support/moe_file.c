/* SPDX-License-Identifier: MIT */
#include "io/support/moe_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/random.h"
#include "support/test.h"

enum { D = MOE_D_MODEL, S = MOE_D_SHARED, L = MOE_D_LATENT };

/* ------------------------------------------------------------- Names */

/* The name that a key has in the case's list, {e} replaced by the expert's number; false: it has none. */
static bool name_of(const moe_layer_t *layer, const char *key, int expert, char name[256])
{
    size_t length = strlen(key);
    for (const char *word = layer->is->names; word && *word; word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL) {
        if (strncmp(word, key, length) || word[length] != '=') continue;
        const char *value = word + length + 1;
        size_t end = strcspn(value, " ");
        char pattern[120];
        snprintf(pattern, sizeof pattern, "%.*s", (int)end, value);
        char *number = strstr(pattern, "{e}");
        if (number) snprintf(name, 256, "%s%.*s%d%s", layer->prefix, (int)(number - pattern), pattern, expert, number + 3);
        else snprintf(name, 256, "%s%s", layer->prefix, pattern);
        return true;
    }
    return false;
}

static bool has(const moe_layer_t *layer, const char *key)
{
    char name[256];
    return name_of(layer, key, 0, name);
}

/* ------------------------------------------------------------- Weights */

static float *random_array(rng_t *rng, bool there, int64_t n, float scale)
{
    if (!there) return NULL;
    float *made = test_alloc((size_t)n * sizeof *made);
    for (int64_t i = 0; i < n; i++) made[i] = scale * rng_normal(rng);
    return made;
}

static int64_t size_if(const float *array, int64_t size)
{
    return array ? size : 0;
}

static void count(moe_layer_t *layer)
{
    int64_t F = layer->d_ff, W = layer->width, E = layer->is->experts, K = layer->is->top_k;
    int64_t each = size_if(layer->gate, F * W) + size_if(layer->up, F * W) + size_if(layer->down, W * F) + size_if(layer->gate_bias, F) +
                   size_if(layer->up_bias, F) + size_if(layer->down_bias, W);
    int64_t other = E * D + size_if(layer->router_bias, E) + size_if(layer->selection, E) + size_if(layer->combine, D) +
                    size_if(layer->shared_gate, S * D) + size_if(layer->shared_up, S * D) + size_if(layer->shared_down, D * S) +
                    size_if(layer->shared_scale, D) + size_if(layer->latent_in, L * D) + size_if(layer->latent_out, D * L) +
                    size_if(layer->norm, D) + size_if(layer->norm_bias, D) + size_if(layer->branch_norm, D);
    layer->parameters = other + E * each;
    layer->active = other + K * each;
}

void moe_layer_make(moe_layer_t *layer, const moe_case_t *is, int number, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    int64_t F = is->d_ff ? is->d_ff : MOE_D_FF, E = is->experts;
    *layer = (moe_layer_t){.is = is, .d_ff = F};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(layer->prefix, sizeof layer->prefix, is->prefix, number);
#pragma GCC diagnostic pop
    const int64_t W = layer->width = has(layer, "latent_in") ? L : D;
    bool gated = has(layer, "gate") || has(layer, "fused"), biases = has(layer, "down_bias"), shared = has(layer, "shared_down");
    layer->router = random_array(&rng, true, E * D, 0.3f); /* logits near 1: the scores of the last choices are far enough from those of the others */
    layer->router_bias = random_array(&rng, has(layer, "router_bias"), E, 1);
    layer->selection = random_array(&rng, has(layer, "selection"), E, 0.5f);
    layer->combine = random_array(&rng, has(layer, "combine"), D, 0.5f);
    layer->gate = random_array(&rng, gated, E * F * W, 0.5f);
    layer->up = random_array(&rng, true, E * F * W, 0.5f);
    layer->down = random_array(&rng, true, E * W * F, 0.5f);
    layer->gate_bias = random_array(&rng, gated && biases, E * F, 0.5f);
    layer->up_bias = random_array(&rng, biases, E * F, 0.5f);
    layer->down_bias = random_array(&rng, biases, E * W, 0.5f);
    layer->shared_gate = random_array(&rng, shared && gated, S * D, 0.5f);
    layer->shared_up = random_array(&rng, shared, S * D, 0.5f);
    layer->shared_down = random_array(&rng, shared, D * S, 0.5f);
    layer->shared_scale = random_array(&rng, has(layer, "shared_scale"), D, 0.5f);
    layer->latent_in = random_array(&rng, has(layer, "latent_in"), L * D, 0.5f);
    layer->latent_out = random_array(&rng, has(layer, "latent_out"), D * L, 0.5f);
    layer->norm = random_array(&rng, has(layer, "in"), D, 1);
    layer->norm_bias = random_array(&rng, has(layer, "in_bias"), D, 1);
    layer->branch_norm = random_array(&rng, has(layer, "branch"), D, 1);
    count(layer);
}

void moe_layer_free(moe_layer_t *layer)
{
    float *const all[] = {layer->router, layer->router_bias, layer->selection, layer->combine, layer->gate, layer->up, layer->down,
                          layer->gate_bias, layer->up_bias, layer->down_bias, layer->shared_gate, layer->shared_up, layer->shared_down,
                          layer->shared_scale, layer->latent_in, layer->latent_out, layer->norm, layer->norm_bias, layer->branch_norm};
    for (int64_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
    memset(layer, 0, sizeof *layer);
}

/* ------------------------------------------------------------- The file */

typedef struct writing {
    const moe_layer_t *layer;
    model_file_t *file;
    const char *skip;
} writing_t;

static void add(const writing_t *to, const char *key, int expert, const float *data, int ndim, int64_t a, int64_t b, int64_t c)
{
    char name[256], called[64];
    snprintf(called, sizeof called, "%s.%d", key, expert);
    if (!data || !name_of(to->layer, key, expert, name) || (to->skip && !strcmp(to->skip, called))) return;
    model_file_add_shaped(to->file, data, ndim, (const int64_t[]){a, b, c}, name);
}

/* Element (e, row, column) of gate (0) and up (1), or of their bias, with 1 column. */
static float fused_at(const float *gate, const float *up, int64_t rows, int64_t columns, bool interleaved, int64_t e, int64_t row, int64_t column)
{
    const float *from = interleaved ? row % 2 ? up : gate : row < rows ? gate : up;
    int64_t r = interleaved ? row / 2 : row % rows;
    return from[(e * rows + r) * columns + column];
}

/* Gate and up in one tensor of `experts` experts, [E, 2 rows, columns] or its transpose. */
static void add_fused(const writing_t *to, const char *key, const float *gate, const float *up, int64_t experts, int64_t rows, int64_t columns)
{
    bool interleaved = to->layer->is->storage == STACK_INTERLEAVED, transposed = interleaved || to->layer->is->storage == STACK_IN_OUT;
    if (!gate || !up) return;
    float *all = test_alloc((size_t)(experts * 2 * rows * columns) * sizeof *all);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t row = 0; row < 2 * rows; row++)
            for (int64_t column = 0; column < columns; column++)
                all[e * 2 * rows * columns + (transposed ? column * 2 * rows + row : row * columns + column)] =
                    fused_at(gate, up, rows, columns, interleaved, e, row, column);
    if (columns == 1) add(to, key, 0, all, 2, experts, 2 * rows, 0);
    else if (experts == 1) add(to, key, 0, all, 2, 2 * rows, columns, 0);
    else add(to, key, 0, all, 3, experts, transposed ? columns : 2 * rows, transposed ? 2 * rows : columns);
    free(all);
}

static void add_down(const writing_t *to)
{
    const moe_layer_t *layer = to->layer;
    int64_t F = layer->d_ff, W = layer->width, E = layer->is->experts;
    float *turned = test_alloc((size_t)(E * W * F) * sizeof *turned);
    for (int64_t e = 0; e < E; e++)
        for (int64_t o = 0; o < W; o++)
            for (int64_t i = 0; i < F; i++) turned[(e * F + i) * W + o] = layer->down[(e * W + o) * F + i];
    if (layer->is->storage == STACK) add(to, "down", 0, layer->down, 3, E, W, F);
    else if (layer->is->storage == FOLDED) add(to, "down", 0, turned, 2, E * F, W, 0);
    else add(to, "down", 0, turned, 3, E, F, W);
    free(turned);
}

static void add_experts(const writing_t *to)
{
    const moe_layer_t *layer = to->layer;
    int64_t F = layer->d_ff, W = layer->width, E = layer->is->experts;
    for (int e = 0; e < E && layer->is->storage == SINGLE; e++) {
        add(to, "gate", e, layer->gate ? layer->gate + e * F * W : NULL, 2, F, W, 0);
        add(to, "up", e, layer->up + e * F * W, 2, F, W, 0);
        add(to, "down", e, layer->down + e * W * F, 2, W, F, 0);
        add(to, "gate_bias", e, layer->gate_bias ? layer->gate_bias + e * F : NULL, 1, F, 0, 0);
        add(to, "up_bias", e, layer->up_bias ? layer->up_bias + e * F : NULL, 1, F, 0, 0);
        add(to, "down_bias", e, layer->down_bias ? layer->down_bias + e * W : NULL, 1, W, 0, 0);
    }
    if (layer->is->storage == SINGLE) return;
    if (layer->is->storage == FOLDED) {
        add(to, "gate", 0, layer->gate, 2, E * F, W, 0);
        add(to, "up", 0, layer->up, 2, E * F, W, 0);
    } else {
        if (!layer->gate) add(to, "up", 0, layer->up, 3, E, F, W);
        add_fused(to, "fused", layer->gate, layer->up, E, F, W);
        add_fused(to, "fused_bias", layer->gate_bias, layer->up_bias, E, F, 1);
        add(to, "down_bias", 0, layer->down_bias, 2, E, W, 0);
    }
    add_down(to);
}

void moe_layer_add(const moe_layer_t *layer, model_file_t *file, const char *skip)
{
    const writing_t to = {layer, file, skip};
    int64_t E = layer->is->experts;
    add(&to, "router", 0, layer->router, 2, E, D, 0);
    add(&to, "router_bias", 0, layer->router_bias, 1, E, 0, 0);
    add(&to, "selection", 0, layer->selection, 1, E, 0, 0);
    add(&to, "combine", 0, layer->combine, 1, D, 0, 0);
    add_experts(&to);
    add(&to, "shared_gate", 0, layer->shared_gate, 2, S, D, 0);
    add(&to, "shared_up", 0, layer->shared_up, 2, S, D, 0);
    add(&to, "shared_down", 0, layer->shared_down, 2, D, S, 0);
    if (has(layer, "shared_fused")) add_fused(&to, "shared_fused", layer->shared_gate, layer->shared_up, 1, S, D);
    add(&to, "shared_scale", 0, layer->shared_scale, 2, 1, D, 0);
    add(&to, "latent_in", 0, layer->latent_in, 2, L, D, 0);
    add(&to, "latent_out", 0, layer->latent_out, 2, D, L, 0);
    add(&to, "in", 0, layer->norm, 1, D, 0, 0);
    add(&to, "in_bias", 0, layer->norm_bias, 1, D, 0, 0);
    add(&to, "branch", 0, layer->branch_norm, 1, D, 0, 0);
}

/* ------------------------------------------------------------- The formula */

static void normed(const moe_layer_t *layer, const float *weight, const float *bias, const double *x, double *n)
{
    double mean = 0, square = 0;
    for (int i = 0; i < D; i++) mean += x[i] / D;
    if (layer->is->norm == FFN_NORM_RMS) mean = 0;
    for (int i = 0; i < D; i++) square += (x[i] - mean) * (x[i] - mean) / D;
    for (int i = 0; i < D; i++)
        n[i] = (x[i] - mean) / sqrt(square + (double)layer->is->eps) * ((double)layer->is->offset + (double)weight[i]) + (bias ? (double)bias[i] : 0);
}

/* y += c network(x), of the layer's activation, from and to rows of that width. */
static void add_network(const moe_layer_t *layer, const oracle_layer_t *network, int64_t width, double c, const double *x, double *y)
{
    double out[D], bound[D];
    oracle_layer_t whole = *network;
    whole.d_model = whole.d_out = width;
    whole.activation = (oracle_activation_t){.id = layer->is->activation, .beta = layer->is->beta};
    whole.gate_max = layer->is->gate_max, whole.up_limit = layer->is->up_limit, whole.up_offset = layer->is->up_offset;
    oracle_run(&whole, 1, x, NULL, out, bound);
    for (int64_t i = 0; i < width; i++) y[i] += c * out[i];
}

static const float *part(const float *array, int64_t at)
{
    return array ? array + at : NULL;
}

static void add_expert(const moe_layer_t *layer, int e, double w, const double *n, double *y)
{
    double weighed[D];
    int64_t F = layer->d_ff, W = layer->width;
    const oracle_layer_t expert = {.d_ff = F, .up = layer->up + e * F * W, .gate = part(layer->gate, e * F * W), .down = layer->down + e * W * F,
                                   .up_bias = part(layer->up_bias, e * F), .gate_bias = part(layer->gate_bias, e * F),
                                   .down_bias = part(layer->down_bias, e * W)};
    for (int64_t i = 0; i < W; i++) weighed[i] = layer->is->weigh_input ? w * n[i] : n[i];
    add_network(layer, &expert, W, layer->is->weigh_input ? 1 : w, weighed, y);
}

static double dot(const float *w, const double *x)
{
    double sum = 0;
    for (int i = 0; i < D; i++) sum += (double)w[i] * x[i];
    return sum;
}

static void add_shared(const moe_layer_t *layer, const double *n, double *y)
{
    const oracle_layer_t shared = {.d_ff = S, .up = layer->shared_up, .gate = layer->shared_gate, .down = layer->shared_down};
    if (!layer->shared_up) return;
    add_network(layer, &shared, D, layer->shared_scale ? 1 / (1 + exp(-dot(layer->shared_scale, n))) : 1, n, y);
}

/* Returns the gap of its choice. */
static double token(const moe_layer_t *layer, const float *given, int *taken, double *y)
{
    const moe_case_t *is = layer->is;
    double x[D], n[D], z[MOE_MOST_EXPERTS], bias[MOE_MOST_EXPERTS] = {0}, branch[D] = {0}, f[D], latent[L], mixed[L] = {0};
    for (int i = 0; i < D; i++) x[i] = n[i] = (double)given[i];
    if (layer->norm) normed(layer, layer->norm, layer->norm_bias, x, n);
    for (int e = 0; e < is->experts; e++) {
        z[e] = dot(layer->router + e * D, n) + (layer->router_bias ? (double)layer->router_bias[e] : 0);
        if (layer->selection) bias[e] = (double)layer->selection[e];
    }
    moe_choice_t choice = {.experts = is->experts, .top_k = is->top_k, .z = z, .bias = bias, .gap = INFINITY};
    is->rule(&choice);
    const double *input = n;
    for (int i = 0; i < L && layer->latent_in; i++) latent[i] = dot(layer->latent_in + i * D, n), input = latent;
    double *sum = layer->latent_out ? mixed : branch;
    for (int k = 0; k < is->top_k; k++) {
        if (is->capacity && taken[choice.ids[k]]++ >= is->capacity) continue;
        add_expert(layer, choice.ids[k], choice.w[k], input, sum);
    }
    for (int i = 0; i < D && layer->latent_out; i++)
        for (int k = 0; k < L; k++) branch[i] += (double)layer->latent_out[i * L + k] * mixed[k];
    add_shared(layer, n, branch);
    for (int i = 0; i < D; i++) f[i] = branch[i] += layer->combine ? (double)layer->combine[i] : 0;
    if (layer->branch_norm) normed(layer, layer->branch_norm, NULL, branch, f);
    for (int i = 0; i < D; i++) {
        double a = is->residual_factor != 0 ? (double)is->residual_factor : 1, c = is->branch_factor != 0 ? (double)is->branch_factor : 1;
        y[i] = a * (is->normed_residual ? n[i] : x[i]) + c * f[i];
    }
    return choice.gap;
}

double moe_layer_reference(const moe_layer_t *layer, int64_t tokens, const float *x, double *y)
{
    int taken[MOE_MOST_EXPERTS] = {0};
    double gap = INFINITY;
    for (int64_t t = 0; t < tokens; t++) gap = fmin(gap, token(layer, x + t * D, taken, y + t * D));
    return gap;
}
