/* SPDX-License-Identifier: MIT
 * The names of activations in config files. */
#include "io/activations.h"

#include <stdio.h>
#include <string.h>

/* What transformers' ACT2FN (activations.py) and others call libffn's activations. libffn's own names come on top. */
static const struct {
    const char *name;
    uint32_t activation;
} spellings[] = {
    {"swish", FFN_ACTIVATION_SILU}, /* in config files without a beta */
    {"linear", FFN_ACTIVATION_IDENTITY},
    {"relu_squared", FFN_ACTIVATION_RELU2},
    {"squared_relu", FFN_ACTIVATION_RELU2},
    {"gelu_python", FFN_ACTIVATION_GELU},
    {"gelu_new", FFN_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", FFN_ACTIVATION_GELU_TANH},
    {"gelu_python_tanh", FFN_ACTIVATION_GELU_TANH},
    {"gelu_accurate", FFN_ACTIVATION_GELU_TANH},
    {"gelu_fast", FFN_ACTIVATION_GELU_TANH}, /* the same function with a shorter constant */
    {"swiglu", FFN_ACTIVATION_SILU},
    {"geglu", FFN_ACTIVATION_GELU},
    {"glu", FFN_ACTIVATION_SIGMOID},
    {"reglu", FFN_ACTIVATION_RELU},
};

static uint32_t own_name(const char *name) {
    for (uint32_t id = 1; ffn_activation_name(id); id++)
        if (strcmp(ffn_activation_name(id), name) == 0) return id;
    return FFN_ACTIVATION_NONE;
}

uint32_t ffnio_activation(const char *name) {
    /* T5 means the tanh form when it says gated-gelu, and the exact one when it says gelu. */
    if (strcmp(name, "gated-gelu") == 0) return FFN_ACTIVATION_GELU_TANH;
    if (strncmp(name, "gated-", 6) == 0) name += 6;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(spellings[i].name, name) == 0) return spellings[i].activation;
    return own_name(name);
}

static void append(char *text, size_t size, const char *name) {
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", length ? ", " : "", name);
}

void ffnio_activation_names(char *text, size_t size) {
    *text = 0;
    for (uint32_t id = 1; ffn_activation_name(id); id++) append(text, size, ffn_activation_name(id));
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (!own_name(spellings[i].name)) append(text, size, spellings[i].name);
}
