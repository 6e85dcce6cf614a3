/* SPDX-License-Identifier: MIT
 * A mixture as a program composes it of dense layers: rows gathered for each expert, its layer, and the results scattered. */
#ifndef BENCH_PEERS_COMPOSE_H
#define BENCH_PEERS_COMPOSE_H

#include "worker.h"

typedef struct composition {
    int64_t tokens;
    int64_t *starts;           /* [experts + 1]: where an expert's slots begin in order */
    int32_t *order;            /* slots sorted by expert */
    float *gathered, *results; /* [tokens, d_model] of one expert */
} composition_t;

/* For at most so many tokens as the layer's most. */
composition_t compose_memory(const layer_t *layer);

/* Sorts the slots of the choices. run() does it too: what a program knows are ids and weights. */
void compose_sort(const layer_t *layer, composition_t *composition);

/* An expert's network: results = expert(gathered). */
typedef void expert_fn(const layer_t *layer, int64_t expert, int64_t rows, const float *gathered, float *results);

/* y = the sums of the chosen experts by their weights, for composition->tokens. Compiled with OpenMP, its threads share the rows. */
void compose_run(const layer_t *layer, composition_t *composition, expert_fn *run_expert);

#endif
