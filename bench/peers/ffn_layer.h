/* SPDX-License-Identifier: MIT
 * libffn's layer from the driver's files. */
#ifndef BENCH_PEERS_FFN_LAYER_H
#define BENCH_PEERS_FFN_LAYER_H

#include "worker.h"

#include <ffn/ffn.h>

/* engine: FFN_ENGINE_*. NULL on failure: ffn_last_error() has why. */
ffn_layer_t *ffn_layer_of(const layer_t *layer, uint32_t engine, ffn_context_t *context);

/* A context of so many threads; ends the program on failure. */
ffn_context_t *ffn_context_of(int threads);

/* FFN_ENGINE_* by name: "native", "blas", "auto". Ends the program for any other. */
uint32_t ffn_engine_of(const char *name);

#endif
