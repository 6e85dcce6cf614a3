/* SPDX-License-Identifier: MIT
 * Where the gradients of the networks of a mixture go: each expert's into views of its own, in stacks or one by one, and those of the shared experts. */
#ifndef FFNI_MOE_GRADIENTS_H
#define FFNI_MOE_GRADIENTS_H

#include "core/gradients.h"

/* The tensors of a network. */
typedef enum part { PART_UP, PART_GATE, PART_DOWN, PART_UP_BIAS, PART_GATE_BIAS, PART_DOWN_BIAS, PART_MID_WEIGHT, PART_MID_BIAS, PARTS, PART_VECTORS = PART_UP_BIAS } part_t;

typedef struct network_views {
    view_t part[PARTS]; /* data NULL: not wanted */
    int written;        /* they hold this pass's sums already */
} network_views_t;

typedef struct moe_gradients {
    int accumulate, has_odd;
    int64_t experts;
    network_views_t *networks; /* [experts + 1]: the last are the shared ones' */

    /* While a network's rows go through */
    int has_vectors;               /* that are wanted */
    int64_t offset[PARTS], record; /* of its vectors in the records below */
    float *partial;                /* [chunks of a block, record] */
    double *total;                 /* [record] */
    float *matrix;                 /* for a view that sgemm cannot write */
} moe_gradients_t;

/* Takes memory for networks of the layer, and blocks of so many rows; for views that sgemm cannot write, if gradients->has_odd. */
void ffni_moe_gradients_lay_out(moe_gradients_t *gradients, const ffn_layer_t *layer, int64_t rows, arena_t *arena);

/* Whether a network's view is one. */
int ffni_moe_gradients_are_odd(const ffn_tensor_t *tensors, uint64_t count);

/* Takes the views of networks out of the layer's gradients. */
void ffni_moe_gradients_begin(moe_gradients_t *gradients, gradients_t *rest, const ffn_tensor_t *tensors, uint64_t count);

/* Before a network's first block. */
void ffni_moe_gradients_open(moe_gradients_t *gradients, const network_views_t *views);

/* The running sum of a vector for a chunk of a block's rows, or NULL. */
float *ffni_moe_gradients_sum(const moe_gradients_t *gradients, const network_views_t *views, part_t part, int64_t chunk);

/* Before and behind the passes over a block's rows. */
void ffni_moe_gradients_clear(const moe_gradients_t *gradients, int64_t rows);
void ffni_moe_gradients_collect(const moe_gradients_t *gradients, int64_t rows);

/* gradient of a matrix += d^T input; `first`: of the network's blocks. */
void ffni_moe_gradients_multiply(const moe_gradients_t *gradients, const network_views_t *views, part_t part, int64_t rows, operand_t d, operand_t input,
                                 int first);

/* Behind a network's last block. */
void ffni_moe_gradients_close(const moe_gradients_t *gradients, network_views_t *views);

/* Zeros for the networks without rows. */
void ffni_moe_gradients_finish(const moe_gradients_t *gradients);

#endif
