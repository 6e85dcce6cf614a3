/* SPDX-License-Identifier: MIT
 *
 * What a failing comparison of a layer prints.
 */
#include <math.h>
#include <stdio.h>

#include "support/compare.h"
#include "support/layer_case.h"
#include "support/test.h"

typedef struct text {
    char *at;
    size_t left;
} text_t;

static void put(text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text_t *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    size_t step = length < 0 ? 0 : (size_t)length < text->left ? (size_t)length : text->left - 1;
    text->at += step;
    text->left -= step;
}

static void put_number(text_t *text, const char *name, float value)
{
    if (value != 0) put(text, " %s %.9g", name, (double)value);
}

static void put_norm(text_t *text, int slot, const norm_case_t *norm)
{
    static const char *const slots[4] = {"in", "mid", "branch", "out"};
    static const char *const kinds[4] = {"none", "layer", "rms", "affine"};
    if (norm->kind == FFN_NORM_NONE) return;
    put(text, ", norm %s %s%s%s", slots[slot], kinds[norm->kind & 3], norm->weight ? " weight" : "", norm->bias ? " bias" : "");
    put_number(text, "eps", norm->eps);
    put_number(text, "offset", norm->offset);
}

void layer_case_print(const layer_case_t *is, char *buffer, size_t size)
{
    static const char *const residuals[4] = {"none", "input", "normed", "external"};
    static const char *const scales[SCALE_CASES] = {"none", "[1]", "[d_out]", "tanh [1]", "tanh [d_out]"};
    text_t text = {buffer, size};
    const char *activation = ffn_activation_name(is->activation);
    if (is->name) put(&text, "%s: ", is->name);
    put(&text, "%s %s", is->gated ? "gated" : "dense", activation ? activation : "?");
    put_number(&text, "alpha", is->alpha);
    put_number(&text, "beta", is->beta);
    put_number(&text, "gate_max", is->gate_max);
    put_number(&text, "up_limit", is->up_limit);
    put_number(&text, "up_offset", is->up_offset);
    put(&text, ", %lld-%lld-%lld", (long long)is->d_model, (long long)is->d_ff, (long long)(is->d_out ? is->d_out : is->d_model));
    put(&text, ", biases%s%s%s", is->biases & BIAS_UP ? " up" : "", is->gated && is->biases & BIAS_GATE ? " gate" : "",
        is->biases & BIAS_DOWN ? " down" : "");
    for (int slot = 0; slot < 4; slot++) put_norm(&text, slot, &is->norm[slot]);
    put(&text, ", residual %s scale %s, branch scale %s", residuals[is->residual & 3], scales[is->residual_scale], scales[is->branch_scale]);
    put(&text, ", layout %s, down %s, seed %#llx", layout_name(is->layout), layout_name(is->down_layout), (unsigned long long)is->seed);
}

static ffn_layer_info_t info_of(const test_layer_t *test)
{
    ffn_layer_info_t info = {.struct_size = sizeof info};
    if (test->layer) ffn_layer_info(test->layer, &info);
    return info;
}

static const char *isa_name(const test_layer_t *test)
{
    static const char *const names[4] = {"unknown", "scalar", "avx2", "avx512"};
    return names[info_of(test).isa & 3];
}

static const char *engine_name(const test_layer_t *test)
{
    static const char *const names[4] = {"unknown", "blas", "native", "unknown"};
    return names[info_of(test).engine & 3];
}

void test_layer_fail(const test_layer_t *test, const char *what, int64_t tokens, int64_t index, double expected, double got, double bound)
{
    char text[512];
    layer_case_print(&test->is, text, sizeof text);
    int64_t width = test->is.d_out;
    fail_msg("%s: token %lld of %lld, feature %lld: expected %.9g (%a), got %.9g (%a), off by %.3g where %.3g is allowed, %lld ulps; "
             "isa %s (FFN_MAX_ISA %s), engine %s; %s",
             what, (long long)(index / width), (long long)tokens, (long long)(index % width), expected, expected, got, got,
             fabs(got - expected), bound, (long long)ulp_distance((float)expected, (float)got), isa_name(test), test_isa_cap(),
             engine_name(test), text);
}
