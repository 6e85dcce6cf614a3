/* SPDX-License-Identifier: MIT
 *
 * The activation of a tile of sums that a product has left in the first-level cache: bias, activation and gate product in registers, one store.
 * The arithmetic is that of the passes over rows, vector by vector.
 */
#ifndef FFNI_ACTIVATION_TILES_TEMPLATE_H
#define FFNI_ACTIVATION_TILES_TEMPLATE_H

INLINE const float *bias_from(const float *bias, int64_t column) { return bias ? bias + column : bias; }

INLINE void store_tile_vector(const activation_tile_t *tile, int64_t row, int64_t column, int64_t count, vf result)
{
    float *out = tile->out + row * tile->out_row + column / TILE_CHUNK * tile->out_chunk;
    store_count(out, 0, count, result);
}

INLINE void dense_tile(vector_activation *act, const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column);
        const float *up_bias = bias_from(tile->up_bias, column);
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *up = tile->sums + row * tile->sums_step + column;
            store_tile_vector(tile, row, column, count, dense_vector(act, &a, 0, count, up, up_bias));
        }
    }
}

INLINE void gated_tile(vector_activation *act, const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column);
        const float *gate_bias = bias_from(tile->gate_bias, column), *up_bias = bias_from(tile->up_bias, column);
        const int64_t place = column / PANEL_WIDTH * 2 * PANEL_WIDTH + column % PANEL_WIDTH;
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *gate = tile->sums + row * tile->sums_step + place, *up = gate + PANEL_WIDTH;
            store_tile_vector(tile, row, column, count, gated_vector(act, &a, 0, count, gate, gate_bias, up, up_bias));
        }
    }
}

#define EACH_ACTIVATION(APPLY) \
    switch (activation->kind) { \
    case ACTIVATION_IDENTITY: APPLY(identity, activation, tile); break; \
    case ACTIVATION_RELU: APPLY(relu, activation, tile); break; \
    case ACTIVATION_LEAKY_RELU: APPLY(leaky_relu, activation, tile); break; \
    case ACTIVATION_RELU2: APPLY(relu2, activation, tile); break; \
    case ACTIVATION_GELU: APPLY(gelu, activation, tile); break; \
    case ACTIVATION_GELU_TANH: APPLY(gelu_tanh, activation, tile); break; \
    case ACTIVATION_SWISH: APPLY(swish, activation, tile); break; \
    case ACTIVATION_SIGMOID: APPLY(sigmoid, activation, tile); break; \
    case ACTIVATION_TANH: APPLY(hyperbolic_tangent, activation, tile); break; \
    case ACTIVATION_MISH: APPLY(mish, activation, tile); break; \
    case ACTIVATION_ELU: APPLY(elu, activation, tile); break; \
    case ACTIVATION_HARDSWISH: APPLY(hardswish, activation, tile); break; \
    case ACTIVATION_SOFTPLUS: APPLY(softplus, activation, tile); break; \
    case ACTIVATION_LAPLACE: APPLY(laplace, activation, tile); break; \
    case ACTIVATION_XIELU: APPLY(xielu, activation, tile); break; \
    case ACTIVATION_KINDS: break; \
    }

static void activate_tile(const activation_t *activation, const activation_tile_t *tile) { EACH_ACTIVATION(dense_tile) }

static void activate_gated_tile(const activation_t *activation, const activation_tile_t *tile) { EACH_ACTIVATION(gated_tile) }

#undef EACH_ACTIVATION

#endif
