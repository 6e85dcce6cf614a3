/* SPDX-License-Identifier: MIT
 * A matrix in panels times rows: routers, and projections around experts. */
#ifndef FFNI_LINEAR_H
#define FFNI_LINEAR_H

#include "base/arena.h"
#include "core/panels.h"
#include "core/rows.h"
#include "kernels/kernels.h"

typedef struct linear {
    const kernel_table_t *kernels;
    panels_t panels;
    const float *bias; /* NULL: none */
    int has_norm; /* of each row before the matrix */
    norm_kind_t norm_kind;
    norm_t norm;
} linear_t;

typedef struct linear_scratch {
    char *memory; /* each thread's own, one after the other */
    uint64_t slot_bytes;
    int64_t slots, block_rows;
} linear_scratch_t;

/* Takes scratch memory for that many threads, and blocks of that many rows (or of a fixed number, if that is less). */
linear_scratch_t ffni_linear_lay_out(const linear_t *linear, int64_t rows, int64_t slots, arena_t *arena);

/* out[i] = W norm(in[first + i]) + bias, for i = 0 .. rows-1; out is contiguous. A row's bits depend on it and the matrix alone. */
void ffni_linear_run(ffn_context_t *context, const linear_t *linear, const linear_scratch_t *scratch, const rows_t *in, int64_t first, int64_t rows,
                     float *out);

#endif
