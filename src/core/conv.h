/* SPDX-License-Identifier: MIT
 * The convolutional layer: weights, packed, and configuration, checked. It never changes after it was made, but by ffni_conv_update. */
#ifndef FFNI_CONV_H
#define FFNI_CONV_H

#include "core/conv_tensors.h"
#include "core/panels.h"
#include "kernels/kernels.h"

enum { FIRST, SECOND, CONVOLUTIONS }; /* of a layer */

/* One of the two convolutions. A dense one is the product of `kernel` neighbouring rows side by side with its taps' matrices one below the other; a
 * separable one the product of their sums, channel by channel, with its one matrix. */
typedef struct convolution {
    int64_t in, out;
    int64_t kernel, left; /* taps, and those before the position */
    int separable;
    int masked; /* padding is zeros in its input, where the run has a mask */
    int64_t depth; /* of the product: in, or kernel * in */
    int64_t width; /* of a row of the product: out, or for the native engine that in whole panels */
    const float *weight; /* [depth, out], or panels */
    const float *taps;   /* [kernel, in] of a separable one */
    const float *bias;   /* NULL: none */
    const float *scale;  /* [out], all kernel^-1/2. NULL: 1 */
} convolution_t;

struct ffn_conv {
    ffn_allocator_t allocator;
    uint64_t bytes;
    uint64_t serial, generation; /* as a layer's */
    uint32_t flags, padding, mask, activation_name, engine;
    conv_sizes_t sizes;
    activation_t activation;
    const kernel_table_t *kernels;
    convolution_t part[CONVOLUTIONS];
    conv_view_t stored[ROLE_LIMIT]; /* every tensor as it was given; of packed weights the shape alone */
};

typedef struct conv_config {
    ffn_conv_options_t options;
    conv_sizes_t sizes;
    ffn_allocator_t allocator;
    activation_t activation;
    const kernel_table_t *kernels;
    const ffn_tensor_t *tensor[ROLE_LIMIT]; /* the caller's, by role; NULL: absent */
    uint32_t engine;                        /* resolved */
} conv_config_t;

ffn_status_t ffni_conv_options_read(const ffn_conv_options_t *given, conv_config_t *config);

ffn_status_t ffni_conv_new(ffn_context_t *context, const conv_config_t *config, ffn_conv_t **conv);
void ffni_conv_delete(ffn_conv_t *conv);

/* A caller's views of a layer's tensors: what was found right about a tensor when the layer was made must be right about them. */
ffn_status_t ffni_conv_check_views(const ffn_conv_t *conv, const ffn_tensor_t *const bound[ROLE_LIMIT]);

/* Copies a tensor into a view of its shape; and bound views, which have been checked, into a layer of the blas engine. */
void ffni_conv_read(const ffn_conv_t *conv, int role, const conv_view_t *view);
void ffni_conv_update(ffn_conv_t *conv, ffn_context_t *context, const ffn_tensor_t *const bound[ROLE_LIMIT]);

/* The role of a convolution's weight, bias and taps. */
static inline int conv_weight_role(int part) {
    return part == FIRST ? FFN_ROLE_UP_WEIGHT : FFN_ROLE_DOWN_WEIGHT;
}

static inline int conv_bias_role(int part) {
    return part == FIRST ? FFN_ROLE_UP_BIAS : FFN_ROLE_DOWN_BIAS;
}

static inline int conv_taps_role(int part) {
    return part == FIRST ? FFN_ROLE_UP_TAPS : FFN_ROLE_DOWN_TAPS;
}

#endif
