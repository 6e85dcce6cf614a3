/* SPDX-License-Identifier: MIT
 *
 * The kernel table: the element-wise and row-wise passes of a layer, and the native engine's matrix products, one record per ISA level.
 *
 * Contract of every kernel: any n >= 0; pointers to float32 at any multiple of 4; reads nothing outside its operands and writes nothing
 * outside out[0 .. n-1]; `out` may be exactly one of the inputs, and overlaps none otherwise; no allocation, no state, no large stack arrays;
 * the value of an element does not depend on its index, on n or on its neighbours (element-wise kernels); NaN in, NaN out.
 *
 * Kernels are static in their file and leave it through its table only. This header includes nothing of the library's.
 */
#ifndef FFNI_KERNELS_H
#define FFNI_KERNELS_H

#include <stdint.h>

/* The activations that the public names resolve to (core/activation.c). */
typedef enum activation_kind {
    ACTIVATION_IDENTITY,
    ACTIVATION_RELU,
    ACTIVATION_LEAKY_RELU, /* alpha */
    ACTIVATION_RELU2,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_SWISH, /* beta */
    ACTIVATION_SIGMOID,
    ACTIVATION_TANH,
    ACTIVATION_MISH,
    ACTIVATION_ELU, /* alpha */
    ACTIVATION_HARDSWISH,
    ACTIVATION_SOFTPLUS,
    ACTIVATION_LAPLACE,
    ACTIVATION_XIELU, /* alpha (the formula's epsilon), beta, xielu_p, xielu_n */
    ACTIVATION_KINDS
} activation_kind_t;

/* What an activation pass is given. Absent limits are +inf. */
typedef struct activation {
    activation_kind_t kind;
    float alpha, beta;
    float xielu_p, xielu_n;
    float clip_max;   /* min(act(x), clip_max): relu6, gelu_10 */
    float gate_max;   /* gated: min(gate, gate_max) before the activation */
    float up_limit;   /* gated: clip(up, -up_limit, up_limit) */
    float up_offset;  /* gated: added to up after the clip */
} activation_t;

/* out[i] = min(act(up[i] + up_bias[i]), clip_max). up_bias may be NULL. */
typedef void activate_fn(const activation_t *activation, int64_t n, float *out, const float *up, const float *up_bias);

/* out[i] = min(act(min(gate[i] + gate_bias[i], gate_max)), clip_max) * (clip(up[i] + up_bias[i], +-up_limit) + up_offset).
 * Either bias may be NULL. `out` may be gate or up. */
typedef void activate_gated_fn(const activation_t *activation, int64_t n, float *out, const float *gate, const float *gate_bias,
                               const float *up, const float *up_bias);

/* A norm over one row of n numbers; weight and bias may be NULL. */
typedef struct norm {
    float eps, offset;
    const float *weight, *bias;
} norm_t;

typedef enum norm_kind { NORM_LAYER, NORM_RMS, NORM_AFFINE, NORM_KINDS } norm_kind_t;

/* layer:  out[i] = ((x[i] - mean) / sqrt(mean((x - mean)^2) + eps)) * (offset + weight[i]) + bias[i]
 * rms:    out[i] = (x[i] / sqrt(mean(x^2) + eps)) * (offset + weight[i]) + bias[i]
 * affine: out[i] = x[i] * (offset + weight[i]) + bias[i]
 * Without a weight the factor (offset + weight) is 1. Sums are two-pass, in float64, in an order that depends on n alone; the quotient is
 * formed in float64 and rounded to float32 before the weight is applied. */
typedef void normalise_fn(const norm_t *norm, int64_t n, float *out, const float *x);

/* out[i] = residual_scale[i] * residual[i] + branch_scale[i] * (branch[i] + bias[i]).
 * bias, branch_scale, residual and residual_scale may each be NULL: 0, 1, 0 and 1. residual_scale is only given with a residual. */
typedef void combine_fn(int64_t n, float *out, const float *branch, const float *bias, const float *branch_scale, const float *residual,
                        const float *residual_scale);

/* out[i] = weights[0] * rows[0][i] + weights[1] * rows[1][i] + ..., each product and each sum rounded, in this order; 0 with no rows. `out` may be
 * any of the rows. */
typedef void mix_fn(int64_t n, float *out, int64_t count, const float *const *rows, const float *weights);

/* A depthwise convolution along the rows, on n columns:
 *     out[r * out_step + i] = start + w_0[i] in[r][i] + w_1[i] in[r + 1][i] + ... w_{taps-1}[i] in[r + taps - 1][i],    w_j = weight + j * weight_step
 * for r = 0 .. rows-1: one chain of multiply-adds in the order of the taps, fused at the vector levels, rounded apart at the scalar level. `start` is 0,
 * or with `continued` what is in out. A row of the input that is NULL is left out. `out` overlaps no input. Its error is at most taps * 2^-24 (vector
 * levels; twice that at the scalar level) times the sum of |w in|, to first order. */
enum { DEPTHWISE_ROWS_MOST = 32, DEPTHWISE_TAPS_MOST = 32 };

typedef struct depthwise {
    int64_t n, rows, taps; /* rows and taps at most as many */
    const float *const *in; /* [rows + taps - 1] */
    const float *weight;
    int64_t weight_step; /* may be negative */
    float *out;
    int64_t out_step;
    int continued;
} depthwise_t;

typedef void depthwise_fn(const depthwise_t *depthwise);

typedef struct training_table training_table_t; /* kernels/training.h */
typedef struct activity activity_t;             /* kernels/activity.h */

/* Matrix products over packed panels: rows of `a` times columns of `b`.
 *
 * A panel is `panel_width` columns (outputs) of a weight: element (k, column) at b[k * panel_width + column]. A tile of `rows` rows of `a` is in
 * chunks of TILE_CHUNK numbers: element (row, k) at a[k / TILE_CHUNK * TILE_CHUNK * rows + row * TILE_CHUNK + k % TILE_CHUNK]; one row alone is
 * a plain array. Columns of `sums` stand panel by panel, panel_width apart.
 *
 *     sums[row][panel * panel_width + column] = start + a(row, 0) b(0, column) + a(row, 1) b(1, column) + ... a(row, depth - 1) b(depth - 1, column)
 *
 * Each number is one chain of multiply-adds in this order, whatever the shape of the tile: fused ones at the vector levels, rounded apart at the
 * scalar level. `start` is 0, or with `continued` what is in sums: a long product may be cut anywhere. With `added` the chain is in the end
 * added to what is in sums, and rounded once more. Its error is at most depth * 2^-24 (vector
 * levels; twice that at the scalar level) times the sum of |a b|, to first order. */
enum { TILE_CHUNK = 16, TILE_ROWS_MOST = 14 };

typedef enum tile_prefetch {
    PREFETCH_NONE,
    PREFETCH_NEXT,  /* `prefetch`, stepping on by prefetch_step bytes with each k: what comes after this product, to the second-level cache */
    PREFETCH_AHEAD, /* prefetch_step bytes ahead of b: this product's own panels, to the first-level cache */
    PREFETCH_FAR,   /* the same, to the second-level cache */
    PREFETCH_KINDS
} tile_prefetch_t;

typedef struct product {
    int64_t depth;
    const float *a, *b;
    int64_t panel_step; /* from a panel to the next, in elements */
    float *sums;
    int64_t sums_step; /* from a row to the next */
    int continued, added;
    const char *prefetch;
    int64_t prefetch_step;
} product_t;

typedef void product_fn(const product_t *product);

/* Panels of a product: 1, 2 or 4, by their binary logarithm. */
enum { TILE_PANELS_KINDS = 3 };

/* The activation of a tile of sums, columns 0 .. columns-1 of every row:
 *     out(row, column) = what activate and activate_gated give for the same numbers
 * Dense: column c is sums[row * sums_step + c]. Gated: panels of gate and up take turns, gate first, so that column c of the gate is at
 * (c / panel * 2) * panel + c % panel and of up a panel further. Biases belong to column 0 and may be NULL. Row r, column c of
 * the result is out[r * out_row + c / TILE_CHUNK * out_chunk + c % TILE_CHUNK]; out may be sums where every number has its place (gated: of the gate).
 *
 * The watching kernels count besides, of a = min(act(...), clip_max), before the product with up: positive[c] += 1 for each a > 0, and all a are
 * added to `activity`. At most TILE_ROWS_MOST rows. `positive` may be read and written, its values kept, up to a multiple of TILE_CHUNK columns. */
typedef struct activation_tile {
    int64_t rows, columns;
    const float *sums;
    int64_t sums_step;
    int64_t panel; /* gated: a multiple of TILE_CHUNK, or at least `columns` */
    const float *gate_bias, *up_bias;
    float *out;
    int64_t out_row, out_chunk;
    uint32_t *positive;   /* the watching kernels: of column 0. Else not looked at */
    activity_t *activity; /* likewise */
} activation_tile_t;

typedef void activate_tile_fn(const activation_t *activation, const activation_tile_t *tile);

typedef struct kernel_table {
    uint32_t isa; /* FFN_ISA_* of the public header */
    const training_table_t *training;
    activate_fn *activate[ACTIVATION_KINDS];
    activate_gated_fn *activate_gated[ACTIVATION_KINDS];
    normalise_fn *normalise[NORM_KINDS];
    combine_fn *combine;
    mix_fn *mix;
    depthwise_fn *depthwise;

    int64_t panel_width;                    /* a multiple of TILE_CHUNK */
    int64_t tile_rows[TILE_PANELS_KINDS];   /* the most rows of a product of 1, 2 and 4 panels */
    int panels_log_of_many;                 /* the panels of a product that measure fastest for many rows */
    product_fn *product[PREFETCH_KINDS][TILE_PANELS_KINDS][TILE_ROWS_MOST + 1]; /* [..][..][rows]; NULL above tile_rows */
    activate_tile_fn *activate_tile, *activate_gated_tile;
    activate_tile_fn *watch_tile, *watch_gated_tile;
} kernel_table_t;

/* scalar.c: every CPU. avx2.c, avx512.c: built for x86-64 only; call them only where dispatch/cpu.h finds the level. */
extern const kernel_table_t ffni_kernels_scalar;
extern const kernel_table_t ffni_kernels_avx2;
extern const kernel_table_t ffni_kernels_avx512;

#endif
