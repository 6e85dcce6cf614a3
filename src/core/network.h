/* SPDX-License-Identifier: MIT
 * One dense or gated network - a dense layer's, an expert's, the shared experts' - and its steps on the native engine's panels. */
#ifndef FFNI_NETWORK_H
#define FFNI_NETWORK_H

#include "core/counts.h"
#include "core/tiling.h"

typedef struct network {
    const kernel_table_t *kernels;
    activation_t activation;
    int64_t d_in, d_ff, d_out;
    int gated;
    /* For the blas engine [d_in, d_ff or, gate and up side by side, 2 d_ff] and [d_ff, d_out]; for the native one panels, gate and up in turn. */
    const float *in_weight, *down_weight;
    int64_t in_panels, down_panels;
    const float *gate_bias, *up_bias, *down_bias; /* NULL: absent */
    int has_norm; /* MID */
    norm_kind_t norm_kind;
    norm_t norm;
} network_t;

/* Where the hidden units of a block of rows go. */
typedef struct hidden {
    float *tiled; /* [rows, d_ff] in tiles */
    float *rows;  /* [rows, d_ff], where a norm needs whole rows first; else NULL */
    const counts_t *counts; /* what the activations add to; NULL: they are not counted */
    int64_t counts_column;  /* of the first counter: a multiple of TILE_CHUNK */
    const uint8_t *counted; /* [rows]: 0 where a row is not. NULL: all are */
} hidden_t;

/* The hidden units of `panels` panels of gate and up from `first` on, both whole pairs in a gated network. `input` is the block in tiles. `sums` has
 * room for rows * panels * panel_width. */
void ffni_network_hidden(const network_t *network, const tiling_t *tiling, const float *input, const hidden_t *hidden, int64_t first, int64_t panels,
                         float *sums);

/* The kernel that activates a tile, and counts if it is wanted. */
activate_tile_fn *ffni_network_activation(const network_t *network, int is_counted);

/* Norm MID of a tile, into tiles. */
void ffni_network_normalise_tile(const network_t *network, const tiling_t *tiling, const hidden_t *hidden, int64_t tile);

/* sums[rows, panels * panel_width] = the down product, without its bias, of `panels` panels from `first` on. */
void ffni_network_down(const network_t *network, const tiling_t *tiling, const hidden_t *hidden, int64_t first, int64_t panels, float *sums);

#endif
