/* SPDX-License-Identifier: MIT
 * libffn, with the engine that the variant names. */
#include "ffn_layer.h"

#include <cblas.h>

#include <stdio.h>

static ffn_layer_t *made;
static ffn_context_t *context;
static int64_t prepared_tokens;
static int prepared_threads;

static const char *start(const layer_t *layer, const char *variant) {
    made = ffn_layer_of(layer, ffn_engine_of(variant), NULL);
    return made ? NULL : ffn_last_error();
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    (void)layer;
    ffn_layer_info_t info = {.struct_size = sizeof info};
    if (prepared_threads != threads) {
        ffn_context_free(context);
        context = ffn_context_of(threads);
        prepared_threads = threads;
    }
    openblas_set_num_threads(threads);
    if (ffn_context_reserve(context, made, tokens) || ffn_layer_info(made, &info)) return ffn_last_error();
    prepared_tokens = tokens;
    snprintf(form, FORM_LENGTH, "%s, %s", info.engine == FFN_ENGINE_NATIVE ? "native" : "blas",
             info.isa == FFN_ISA_AVX512 ? "avx512" : info.isa == FFN_ISA_AVX2 ? "avx2" : "scalar");
    return NULL;
}

static void run(const layer_t *layer) {
    if (ffn_layer_forward(made, context, prepared_tokens, layer->x, 0, layer->y, 0) != FFN_OK) worker_fail("%s", ffn_last_error());
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &engine);
}
