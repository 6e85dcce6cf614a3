/* SPDX-License-Identifier: MIT
 * How a run of the native engine is cut into blocks of rows for the threads, and the scratch memory that this takes. */
#ifndef FFNI_PLAN_H
#define FFNI_PLAN_H

#include "core/counts.h"
#include "core/groups.h"
#include "core/layer.h"

typedef struct scratch {
    float *input;       /* [rows, d_model] in tiles */
    float *normed;      /* [rows, d_model]; NULL without norm IN */
    float *hidden;      /* [rows, d_ff] in tiles */
    float *hidden_rows; /* [rows, d_ff]; NULL without norm MID */
    float *branch;      /* [rows, d_out]; NULL where no norm follows the branch */
    counts_t counts;
    counter_t *counters; /* per slot */
    float *sums;        /* per slot */
    int64_t sums_step;  /* from a slot's to the next's, in elements */
} scratch_t;

scratch_t ffni_scratch_lay_out(const ffn_layer_t *layer, int64_t rows, int64_t slots, arena_t *arena);

typedef struct plan {
    int whole_blocks;    /* threads take whole blocks; else they share one block after the other */
    int64_t slots;       /* threads that work */
    int64_t block_rows;  /* the most */
    int64_t tile_rows;   /* of the products of many rows, the most */
    uint64_t slot_bytes; /* of one block's scratch */
    uint64_t bytes;      /* of all */
} plan_t;

/* FFN_NO_MEMORY: not even one row at a time fits the context's limit of scratch memory. tokens > 0. */
ffn_status_t ffni_plan_make(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, plan_t *plan);

/* Rows of the next block, when so many are left. */
int64_t ffni_plan_rows(const plan_t *plan, int64_t left);

/* Bytes that a run of any number of tokens up to `tokens` needs, in that context. */
ffn_status_t ffni_plan_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes);

#endif
