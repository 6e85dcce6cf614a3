/* SPDX-License-Identifier: MIT
 * Mixtures of libffn. Variant "mixture": one layer, which routes, or is given the choices ("choose routed", "choose given"). Variant "composed": a dense
 * layer for each expert, as a program composes them. */
#include "compose.h"
#include "ffn_layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ffn_layer_t *mixture, **dense; /* one of the two */
static ffn_context_t *context;
static composition_t composition;
static int prepared_threads;
static bool is_given;

static void require(ffn_status_t status) {
    if (status != FFN_OK) worker_fail("%s", ffn_last_error());
}

static ffn_tensor_t stack(uint32_t role, const float *data, int64_t experts, int64_t rows, int64_t columns) {
    return (ffn_tensor_t){.role = role, .ndim = 3, .data = (void *)data, .shape = {experts, rows, columns}};
}

/* Softmax, the best, and their weights' sum made 1. */
static ffn_layer_t *make_mixture(const layer_t *layer) {
    const ffn_moe_router_options_t router = {.struct_size = sizeof router, .normalise = FFN_MOE_NORMALISE_SUM};
    const ffn_moe_options_t moe = {.struct_size = sizeof moe, .experts = layer->experts, .top_k = layer->top_k, .router = &router};
    const ffn_tensor_t tensors[4] = {stack(FFN_ROLE_UP_WEIGHT, layer->up, layer->experts, layer->d_ff, layer->d_model),
                                     stack(FFN_ROLE_GATE_WEIGHT, layer->gate, layer->experts, layer->d_ff, layer->d_model),
                                     stack(FFN_ROLE_DOWN_WEIGHT, layer->down, layer->experts, layer->d_model, layer->d_ff),
                                     {.role = FFN_ROLE_ROUTER_WEIGHT, .ndim = 2, .data = (void *)layer->router, .shape = {layer->experts, layer->d_model}}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .tensors = tensors, .tensor_count = 4, .moe = &moe};
    ffn_layer_t *made;
    require(ffn_activation_from_name(layer->activation, &options.activation));
    require(ffn_layer_create(NULL, &options, &made));
    return made;
}

static void make_dense(const layer_t *layer) {
    int64_t matrix = layer->d_model * layer->d_ff;
    dense = malloc((size_t)layer->experts * sizeof *dense);
    if (!dense) worker_fail("out of memory");
    for (int64_t expert = 0; expert < layer->experts; expert++) {
        layer_t one = *layer;
        one.up += expert * matrix, one.gate += expert * matrix, one.down += expert * matrix;
        dense[expert] = ffn_layer_of(&one, FFN_ENGINE_AUTO, NULL);
        if (!dense[expert]) worker_fail("%s", ffn_last_error());
    }
    composition = compose_memory(layer);
}

static const char *start(const layer_t *layer, const char *variant) {
    if (!strcmp(variant, "mixture"))
        mixture = make_mixture(layer);
    else
        make_dense(layer);
    return NULL;
}

static void run_expert(const layer_t *layer, int64_t expert, int64_t rows, const float *gathered, float *results) {
    (void)layer;
    require(ffn_layer_forward(dense[expert], context, rows, gathered, 0, results, 0));
}

static void run(const layer_t *layer) {
    const ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = composition.tokens, .experts = layer->experts, .top_k = layer->top_k,
                                       .ids = (void *)layer->ids, .weights = (void *)layer->weights};
    const ffn_moe_run_t given = {.struct_size = sizeof given, .routing = &routing};
    const ffn_run_t of_mixture = {.struct_size = sizeof of_mixture, .batch = 1, .length = composition.tokens, .x = layer->x, .y = layer->y,
                                  .moe = is_given ? &given : NULL};
    if (mixture)
        require(ffn_layer_run(mixture, context, &of_mixture));
    else
        compose_run(layer, &composition, run_expert);
}

static bool choose(const char *what) {
    is_given = !strcmp(what, "given");
    return is_given || !strcmp(what, "routed");
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    ffn_layer_info_t info = {.struct_size = sizeof info};
    composition.tokens = tokens;
    is_given = false;
    if (prepared_threads != threads) {
        ffn_context_free(context);
        context = ffn_context_of(threads);
        prepared_threads = threads;
    }
    run(layer); /* makes the scratch memory */
    require(ffn_layer_info(mixture ? mixture : dense[0], &info));
    snprintf(form, FORM_LENGTH, "%s, %s", info.engine == FFN_ENGINE_NATIVE ? "native" : "blas",
             info.isa == FFN_ISA_AVX512 ? "avx512" : info.isa == FFN_ISA_AVX2 ? "avx2" : "scalar");
    return NULL;
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run, .choose = choose};
    return worker_main(argc, argv, &engine);
}
