/* SPDX-License-Identifier: MIT
 * The table of activations. A new name is a new row; a new formula also a kernel. */
#include "core/activation.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TAKES_ALPHA = 1, TAKES_BETA = 2 };

typedef struct row {
    const char *name;
    activation_kind_t kind;
    unsigned takes;
    float alpha, beta; /* defaults, or the fixed values of a name that takes none */
    float clip_max;    /* 0: none */
} row_t;

static const row_t table[] = {
    [FFN_ACTIVATION_IDENTITY] = {"identity", ACTIVATION_IDENTITY, 0, 0, 0, 0},
    [FFN_ACTIVATION_RELU] = {"relu", ACTIVATION_RELU, 0, 0, 0, 0},
    [FFN_ACTIVATION_LEAKY_RELU] = {"leaky_relu", ACTIVATION_LEAKY_RELU, TAKES_ALPHA, 0.01f, 0, 0},
    [FFN_ACTIVATION_RELU6] = {"relu6", ACTIVATION_RELU, 0, 0, 0, 6},
    [FFN_ACTIVATION_RELU2] = {"relu2", ACTIVATION_RELU2, 0, 0, 0, 0},
    [FFN_ACTIVATION_GELU] = {"gelu", ACTIVATION_GELU, 0, 0, 0, 0},
    [FFN_ACTIVATION_GELU_TANH] = {"gelu_tanh", ACTIVATION_GELU_TANH, 0, 0, 0, 0},
    [FFN_ACTIVATION_QUICK_GELU] = {"quick_gelu", ACTIVATION_SWISH, 0, 0, 1.702f, 0},
    /* gelu is above -0.17: of the clip to [-10, 10] only the upper end acts. */
    [FFN_ACTIVATION_GELU_10] = {"gelu_10", ACTIVATION_GELU, 0, 0, 0, 10},
    [FFN_ACTIVATION_SILU] = {"silu", ACTIVATION_SWISH, 0, 0, 1, 0},
    [FFN_ACTIVATION_SWISH] = {"swish", ACTIVATION_SWISH, TAKES_BETA, 0, 1, 0},
    [FFN_ACTIVATION_SIGMOID] = {"sigmoid", ACTIVATION_SIGMOID, 0, 0, 0, 0},
    [FFN_ACTIVATION_TANH] = {"tanh", ACTIVATION_TANH, 0, 0, 0, 0},
    [FFN_ACTIVATION_MISH] = {"mish", ACTIVATION_MISH, 0, 0, 0, 0},
    [FFN_ACTIVATION_ELU] = {"elu", ACTIVATION_ELU, TAKES_ALPHA, 1, 0, 0},
    [FFN_ACTIVATION_HARDSWISH] = {"hardswish", ACTIVATION_HARDSWISH, 0, 0, 0, 0},
    [FFN_ACTIVATION_SOFTPLUS] = {"softplus", ACTIVATION_SOFTPLUS, 0, 0, 0, 0},
    [FFN_ACTIVATION_LAPLACE] = {"laplace", ACTIVATION_LAPLACE, 0, 0, 0, 0},
    [FFN_ACTIVATION_XIELU] = {"xielu", ACTIVATION_XIELU, TAKES_ALPHA | TAKES_BETA, -1e-6f, 0.5f, 0},
};

enum { ROWS = sizeof table / sizeof *table };

const char *ffni_activation_name(uint32_t activation) {
    return activation < ROWS ? table[activation].name : NULL;
}

uint32_t ffni_activation_from_name(const char *name) {
    for (uint32_t i = FFN_ACTIVATION_NONE + 1; i < ROWS; i++)
        if (!strcmp(name, table[i].name)) return i;
    return FFN_ACTIVATION_NONE;
}

static ffn_status_t check_parameter(const char *name, float value, int taken, const char *activation) {
    if (!isfinite(value)) return ffni_fail(FFN_INVALID, "%s is %s, must be finite", name, ffni_number(value).text);
    if (value != 0 && !taken) return ffni_fail(FFN_INVALID, "%s is %s, but activation %s has no %s", name, ffni_number(value).text, activation, name);
    return FFN_OK;
}

static ffn_status_t check_gate_parameter(const char *name, float value, int may_be_negative, int gated) {
    if (!isfinite(value)) return ffni_fail(FFN_INVALID, "%s is %s, must be finite", name, ffni_number(value).text);
    if (value < 0 && !may_be_negative) return ffni_fail(FFN_INVALID, "%s is %s, must be at least 0", name, ffni_number(value).text);
    if (value != 0 && !gated) return ffni_fail(FFN_INVALID, "%s is %s, but the layer has no gate weight", name, ffni_number(value).text);
    return FFN_OK;
}

ffn_status_t ffni_activation_check(const ffn_layer_options_t *options, int gated) {
    if (options->activation == FFN_ACTIVATION_NONE) return ffni_fail(FFN_INVALID, "activation is not set");
    if (options->activation >= ROWS)
        return ffni_fail(FFN_INVALID, "activation is %" PRIu32 ", must be one of FFN_ACTIVATION_*, at most %d", options->activation, ROWS - 1);
    const row_t *row = &table[options->activation];
    ffn_status_t status = check_parameter("alpha", options->alpha, row->takes & TAKES_ALPHA, row->name);
    if (!status) status = check_parameter("beta", options->beta, row->takes & TAKES_BETA, row->name);
    if (!status) status = check_gate_parameter("gate_max", options->gate_max, 0, gated);
    if (!status) status = check_gate_parameter("up_limit", options->up_limit, 0, gated);
    if (!status) status = check_gate_parameter("up_offset", options->up_offset, 1, gated);
    return status;
}

static double softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

activation_t ffni_activation_resolve(const ffn_layer_options_t *options) {
    const row_t *row = &table[options->activation];
    return (activation_t){
        .kind = row->kind,
        .alpha = options->alpha != 0 ? options->alpha : row->alpha,
        .beta = options->beta != 0 ? options->beta : row->beta,
        .clip_max = row->clip_max > 0 ? row->clip_max : INFINITY,
        .gate_max = options->gate_max > 0 ? options->gate_max : INFINITY,
        .up_limit = options->up_limit > 0 ? options->up_limit : INFINITY,
        .up_offset = options->up_offset,
    };
}

void ffni_activation_learn(activation_t *activation, float alpha_p, float alpha_n) {
    activation->xielu_p = (float)softplus(alpha_p);
    activation->xielu_n = (float)(activation->beta + softplus(alpha_n));
}
