/* SPDX-License-Identifier: MIT
 *
 * The activation of a tile of sums that a product has left in the first-level cache: bias, activation and gate product in registers, one store.
 * The arithmetic is that of the passes over rows, vector by vector.
 */
#ifndef FFNI_ACTIVATION_TILES_TEMPLATE_H
#define FFNI_ACTIVATION_TILES_TEMPLATE_H

INLINE const float *bias_from(const float *bias, int64_t column) { return bias ? bias + column : bias; }

INLINE float *tile_place(const activation_tile_t *tile, int64_t row, int64_t column)
{
    return tile->out + row * tile->out_row + column / TILE_CHUNK * tile->out_chunk;
}

INLINE void dense_tile(vector_activation *act, const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column);
        const float *up_bias = bias_from(tile->up_bias, column);
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *up = tile->sums + row * tile->sums_step + column;
            store_count(tile_place(tile, row, column), 0, count, dense_vector(act, &a, 0, count, up, up_bias));
        }
    }
}

/* Where the gate's column stands in a row of sums, from that of the column before it on. */
INLINE int64_t gate_place(const activation_tile_t *tile, int64_t column, int64_t *panels_of_up)
{
    if (column - *panels_of_up == tile->panel) *panels_of_up += tile->panel;
    return *panels_of_up + column;
}

INLINE void gated_tile(vector_activation *act, const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    int64_t panels_of_up = 0;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column), place = gate_place(tile, column, &panels_of_up);
        const float *gate_bias = bias_from(tile->gate_bias, column), *up_bias = bias_from(tile->up_bias, column);
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *gate = tile->sums + row * tile->sums_step + place, *up = gate + tile->panel;
            store_count(tile_place(tile, row, column), 0, count, gated_vector(act, &a, 0, count, gate, gate_bias, up, up_bias));
        }
    }
}

/* The two halves of gated_tile, for what looks at the activated gate in between. */
INLINE void gate_of_tile(vector_activation *act, const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    int64_t panels_of_up = 0;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column), place = gate_place(tile, column, &panels_of_up);
        const float *gate_bias = bias_from(tile->gate_bias, column);
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *gate = tile->sums + row * tile->sums_step + place;
            store_count(tile_place(tile, row, column), 0, count, gate_vector(act, &a, 0, count, gate, gate_bias));
        }
    }
}

static void multiply_tile_by_up(const activation_t *activation, const activation_tile_t *tile)
{
    const activation_t a = *activation;
    int64_t panels_of_up = 0;
    for (int64_t column = 0; column < tile->columns; column += VF_LANES) {
        const int64_t count = lanes_left(tile->columns - column), place = gate_place(tile, column, &panels_of_up) + tile->panel;
        const float *up_bias = bias_from(tile->up_bias, column);
        for (int64_t row = 0; row < tile->rows; row++) {
            const float *up = tile->sums + row * tile->sums_step + place;
            float *out = tile_place(tile, row, column);
            store_count(out, 0, count, vf_mul(load_count(out, 0, count), up_vector(&a, 0, count, up, up_bias)));
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

static void activate_gate_of_tile(const activation_t *activation, const activation_tile_t *tile) { EACH_ACTIVATION(gate_of_tile) }

#undef EACH_ACTIVATION

#endif
