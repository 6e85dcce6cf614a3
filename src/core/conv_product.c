/* SPDX-License-Identifier: MIT
 * The products of a convolutional layer: by BLAS on the calling thread, or on packed panels by the context's threads, each of which takes some rows times
 * some panels. A number is one chain of multiply-adds through all taps, whatever the cut. */
#include "base/checked.h"
#include "core/conv_pass.h"
#include "core/parallel.h"
#include "core/tiling.h"

typedef struct native_product {
    const convolution_t *is;
    const kernel_table_t *kernels;
    int64_t rows, chunks, panels, groups;
    operand_t a;
    float *tiles, *out;
} native_product_t;

static int64_t chunk_begin(const native_product_t *product, int64_t chunk) {
    return chunk * (product->rows / product->chunks) + minimum(chunk, product->rows % product->chunks);
}

static tiling_t tiling_of(const native_product_t *product, int64_t chunk) {
    return ffni_tiling_of(product->kernels, chunk_begin(product, chunk + 1) - chunk_begin(product, chunk));
}

static float *tiles_of(const native_product_t *product, int64_t chunk) {
    return product->tiles + ffni_tiled_size(chunk_begin(product, chunk), product->is->depth);
}

static void fill_tiles(void *data, int64_t begin, int64_t end) {
    const native_product_t *product = data;
    int64_t depth = product->is->depth;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        tiling_t tiling = tiling_of(product, chunk);
        const float *row = product->a.data + chunk_begin(product, chunk) * product->a.stride;
        for (int64_t tile = 0; tile < tiling.tiles; tile++)
            for (int64_t i = 0; i < ffni_tile_rows(&tiling, tile); i++, row += product->a.stride)
                ffni_tile_put_row(&tiling, tiles_of(product, chunk), depth, tile, i, row);
    }
}

/* Neighbouring tasks share the panels. */
static void multiply_groups(void *data, int64_t begin, int64_t end) {
    const native_product_t *product = data;
    int64_t width = product->kernels->panel_width, depth = product->is->depth;
    for (int64_t index = begin; index < end; index++) {
        int64_t chunk = index % product->chunks, group = index / product->chunks;
        int64_t first = group * product->panels / product->groups, panels = (group + 1) * product->panels / product->groups - first;
        tiling_t tiling = tiling_of(product, chunk);
        ffni_multiply_into(&tiling, tiles_of(product, chunk), depth, product->is->weight + first * width * depth, panels,
                           product->out + chunk_begin(product, chunk) * product->is->width + first * width, product->is->width);
    }
}

static void multiply_native(const conv_pass_t *pass, const convolution_t *is, int64_t rows, operand_t a, float *tiles, float *out) {
    native_product_t product = {.is = is, .kernels = pass->conv->kernels, .rows = rows, .chunks = (rows - 1) / CONV_NATIVE_ROWS + 1,
                                .panels = is->width / pass->conv->kernels->panel_width, .a = a, .tiles = tiles, .out = out};
    int64_t chunk_rows = (rows - 1) / product.chunks + 1;
    product.groups = (product.panels - 1) / GROUP_PANELS_LEAST + 1;
    ffni_parallel_rows(pass->context, product.chunks, chunk_rows * is->depth, fill_tiles, &product);
    ffni_parallel_rows(pass->context, product.groups * product.chunks, chunk_rows * is->depth * GROUP_PANELS_LEAST, multiply_groups, &product);
}

int64_t ffni_conv_tiles_size(const ffn_conv_t *conv, const convolution_t *is, int64_t rows) {
    return conv->engine == FFN_ENGINE_NATIVE ? ffni_tiled_size(rows, is->depth) : 0;
}

void ffni_conv_multiply(const conv_pass_t *pass, const convolution_t *is, int64_t rows, operand_t a, float *tiles, float *out) {
    if (pass->conv->engine == FFN_ENGINE_NATIVE)
        multiply_native(pass, is, rows, a, tiles, out);
    else
        ffni_gemm(rows, is->out, is->depth, a.data, a.stride, is->weight, out);
}
