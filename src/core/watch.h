/* SPDX-License-Identifier: MIT
 * The activation of rows that is counted. */
#ifndef FFNI_WATCH_H
#define FFNI_WATCH_H

#include "core/context.h"
#include "core/counts.h"
#include "core/network.h"

/* The activation of rows of pre-activations, gate and up side by side, counted. */
typedef struct watched_rows {
    const network_t *network;
    const counts_t *counts;
    const uint8_t *counted; /* [rows]: 0 where a row is activated, but not counted. NULL: all are counted */
    int64_t rows;
    const float *hidden;    /* [rows, d_ff or 2 d_ff] */
    int64_t hidden_stride;
    const float *bias;      /* of the activated branch; NULL: none is left to add */
    float *out;             /* [rows, d_ff], hidden itself included */
    int64_t out_stride;
} watched_rows_t;

/* The same bits as the network's activate and activate_gated, row by row. The context's threads each take columns. */
void ffni_watch_rows(ffn_context_t *context, const watched_rows_t *rows);

#endif
