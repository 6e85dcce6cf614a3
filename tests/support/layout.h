/* SPDX-License-Identifier: MIT
 *
 * The ways in which files store weight matrices: each puts one matrix, or gate and up together, somewhere into memory, and says with which
 * strides it is found there again.
 */
#ifndef FFN_TEST_LAYOUT_H
#define FFN_TEST_LAYOUT_H

#include <stdint.h>

typedef enum layout {
    LAYOUT_OUT_IN,             /* each matrix [out, in], contiguous (torch's Linear) */
    LAYOUT_IN_OUT,             /* each [in, out] (Conv1D, TF and Flax kernels) */
    LAYOUT_GATE_UP,            /* one [2 out, in]: gate's rows, then up's */
    LAYOUT_UP_GATE,            /* one [2 out, in]: up's rows, then gate's */
    LAYOUT_INTERLEAVED,        /* one [2 out, in]: even rows gate, odd rows up */
    LAYOUT_INTERLEAVED_UP,     /* one [2 out, in]: even rows up, odd rows gate */
    LAYOUT_IN_GATE_UP,         /* one [in, 2 out]: gate's columns, then up's (Flax's wi_fused [in, 2, out]) */
    LAYOUT_IN_INTERLEAVED,     /* one [in, 2 out]: even columns gate, odd columns up (gpt-oss) */
    LAYOUT_PADDED,             /* [out, in] with a gap after each row */
    LAYOUT_REVERSED_ROWS,      /* [out, in], the last row first in memory: a negative stride */
    LAYOUT_REVERSED,           /* both dimensions backwards */
    LAYOUT_IN_OUT_REVERSED,    /* [in, out], in backwards */
    LAYOUTS
} layout_t;

const char *layout_name(layout_t layout);

/* Where an [out, in] matrix lies, in floats: element [j, i] is at base + j * row + i * column. */
typedef struct place {
    int64_t base, row, column;
} place_t;

/* The place of one matrix by itself; layouts that join gate and up put a gate of NaNs beside it. Returns the floats of memory it takes. */
int64_t layout_single(layout_t layout, int64_t out, int64_t in, place_t *place);

/* The places of gate and up in one block of memory. Returns the floats of memory that it takes. */
int64_t layout_pair(layout_t layout, int64_t out, int64_t in, place_t *gate, place_t *up);

/* The places of the biases of gate and up, which are fused as the weights are: [2 out] halves, or pairs. Row strides only. Returns the floats. */
int64_t layout_bias_pair(layout_t layout, int64_t out, place_t *gate, place_t *up);

/* Copies a contiguous [out, in] matrix to its place in memory, and back. */
void layout_store(const place_t *place, int64_t out, int64_t in, const float *plain, float *memory);
void layout_load(const place_t *place, int64_t out, int64_t in, const float *memory, float *plain);

#endif
