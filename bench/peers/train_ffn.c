/* SPDX-License-Identifier: MIT
 * Training steps of libffn, with the engine that the variant names: keeping the pre-activations or computing them again. */
#include "worker.h"

#include <cblas.h>
#include <ffn/ffn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEPING, RECOMPUTING, WAYS };

/* Memory of the library's beside the layer. */
typedef struct held {
    uint64_t now, most;
} held_t;

static ffn_layer_t *made;
static ffn_context_t *context[WAYS];
static ffn_tape_t *tape[WAYS];
static int64_t prepared_tokens;
static int way;

static void require(ffn_status_t status) {
    if (status != FFN_OK) worker_fail("%s", ffn_last_error());
}

static void *count_up(void *user, uint64_t size, uint64_t alignment) {
    held_t *counted = user;
    counted->now += size;
    if (counted->now > counted->most) counted->most = counted->now;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void count_down(void *user, void *memory, uint64_t size) {
    ((held_t *)user)->now -= size;
    free(memory);
}

static uint64_t list_matrices(const layer_t *layer, const float *up, const float *gate, const float *down, ffn_tensor_t tensors[3]) {
    tensors[0] = (ffn_tensor_t){.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = (void *)up, .shape = {layer->d_ff, layer->d_model}};
    tensors[1] = (ffn_tensor_t){.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = (void *)down, .shape = {layer->d_model, layer->d_ff}};
    tensors[2] = (ffn_tensor_t){.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = (void *)gate, .shape = {layer->d_ff, layer->d_model}};
    return layer->gated ? 3 : 2;
}

static const char *start(const layer_t *layer, const char *variant) {
    ffn_tensor_t tensors[3];
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = FFN_LAYER_TRAINABLE, .tensors = tensors,
                                   .engine = strcmp(variant, "native") ? FFN_ENGINE_BLAS : FFN_ENGINE_NATIVE};
    options.tensor_count = list_matrices(layer, layer->up, layer->gate, layer->down, tensors);
    require(ffn_activation_from_name(layer->activation, &options.activation));
    return ffn_layer_create(NULL, &options, &made) ? ffn_last_error() : NULL;
}

static void run(const layer_t *layer) {
    ffn_tensor_t gradients[3];
    const ffn_run_t forward = {.struct_size = sizeof forward, .batch = 1, .length = prepared_tokens, .x = layer->x, .y = layer->y, .tape = tape[way]};
    ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape[way], .d_y = layer->d_y, .d_x = layer->d_x, .gradients = gradients};
    backward.gradient_count = list_matrices(layer, layer->d_up, layer->d_gate, layer->d_down, gradients);
    require(ffn_layer_run(made, context[way], &forward));
    worker_forward_done();
    require(ffn_layer_backward(made, context[way], &backward));
}

static bool choose(const char *what) {
    way = strcmp(what, "recomputing") ? KEEPING : RECOMPUTING;
    return way || !strcmp(what, "keeping");
}

/* To that of inputs, outputs and gradients alone. */
static double memory_ratio(const layer_t *layer, const held_t *counted) {
    double matrices = (double)(2 + layer->gated) * (double)layer->d_model * (double)layer->d_ff;
    double needed = 4 * (4 * (double)prepared_tokens * (double)layer->d_model + matrices);
    return (needed + (double)counted->most) / needed;
}

static void make_ready(const layer_t *layer, int threads, const ffn_allocator_t *allocator) {
    const ffn_context_options_t of_context = {.struct_size = sizeof of_context, .threads = (uint32_t)threads, .allocator = allocator};
    const ffn_tape_options_t of_tape = {.struct_size = sizeof of_tape, .flags = way == RECOMPUTING ? FFN_TAPE_RECOMPUTE : 0, .allocator = allocator};
    ffn_tape_free(tape[way]);
    ffn_context_free(context[way]);
    tape[way] = NULL;
    require(ffn_context_create(&of_context, &context[way]));
    require(ffn_tape_create(&of_tape, &tape[way]));
    run(layer);
}

/* The peak of a step, counted in a context of its own: what is timed has its memory from the library's own allocator. */
static double count_memory(const layer_t *layer, int threads) {
    held_t held = {0};
    const ffn_allocator_t allocator = {.struct_size = sizeof allocator, .user = &held, .allocate = count_up, .release = count_down};
    make_ready(layer, threads, &allocator);
    double ratio = memory_ratio(layer, &held);
    make_ready(layer, threads, NULL);
    return ratio;
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    ffn_layer_info_t info = {.struct_size = sizeof info};
    double memory[WAYS];
    prepared_tokens = tokens;
    openblas_set_num_threads(threads);
    for (way = 0; way < WAYS; way++) memory[way] = count_memory(layer, threads);
    way = KEEPING;
    require(ffn_layer_info(made, &info));
    snprintf(form, FORM_LENGTH, "%s, %s; memory %.3f %.3f", info.engine == FFN_ENGINE_NATIVE ? "native" : "blas",
             info.isa == FFN_ISA_AVX512 ? "avx512" : info.isa == FFN_ISA_AVX2 ? "avx2" : "scalar", memory[KEEPING], memory[RECOMPUTING]);
    return NULL;
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run, .choose = choose};
    return worker_main(argc, argv, &engine);
}
