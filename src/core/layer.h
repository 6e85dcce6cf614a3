/* SPDX-License-Identifier: MIT
 * The layer: weights, packed, and configuration, checked. It never changes after it was made, but by core/update.c. */
#ifndef FFNI_LAYER_H
#define FFNI_LAYER_H

#include "core/network.h"
#include "core/options.h"
#include "core/panels.h"

struct ffn_layer {
    ffn_allocator_t allocator;
    uint64_t bytes;
    uint64_t serial, generation; /* tell this layer from every other of the process, and its weights from those before an update */
    int64_t d_model, d_ff, d_out;
    int64_t hidden_width; /* of a row of pre-activations: d_ff, or gate and up side by side, 2 * d_ff */
    int gated;
    uint32_t flags, activation_name, residual, engine;
    uint32_t norm_slot[4]; /* FFN_NORM_* */
    norm_t norm[4];
    activation_t activation;
    const kernel_table_t *kernels;

    uint64_t weight_bytes; /* of the matrices, as packed; of one expert's */

    /* What the forward pass reads, in a mixture of the first expert. NULL: absent. For the blas engine weights are [in, out], the order in which sgemm and sgemv do best; for the native
     * one they are panels (core/panels.h), those of gate and up in turn. */
    const float *in_weight;   /* [d_model (d_latent), hidden_width] */
    const float *down_weight; /* [d_ff, d_out] */
    int64_t in_panels, down_panels;
    const float *back_in_weight;   /* trainable and native: panels of the transposed weights, which the backward pass multiplies by; [hidden_width, d_model] */
    const float *back_down_weight; /* [d_out, d_ff] */
    const float *gate_bias, *up_bias, *down_bias;
    const float *branch_bias;             /* [d_out], of the whole branch: down_bias, or the combine bias */
    float *branch_scale, *residual_scale; /* [d_out], tanh applied */

    view_t stored[ROLE_LIMIT]; /* every tensor as it was given, [out, in]; of packed matrices the shape alone. Of an expert's role the first expert's */
    panels_t packed[ROLE_LIMIT]; /* the matrices of the native engine, and those of a router for either */
    panels_t packed_back[ROLE_LIMIT]; /* trainable and native: the matrices, transposed */
    int64_t expert_step[ROLE_LIMIT]; /* elements from an expert's to the next expert's */
    sizes_t sizes;

    mixture_t mixture;
    network_t shared;   /* of a mixture; d_ff 0: none */
    norm_t router_norm; /* of a mixture with one */
};

/* The kernels' name of a FFN_NORM_* that is a norm. */
static inline norm_kind_t ffni_norm_kind(uint32_t norm) {
    return norm == FFN_NORM_LAYER ? NORM_LAYER : norm == FFN_NORM_RMS ? NORM_RMS : NORM_AFFINE;
}

ffn_status_t ffni_layer_new(ffn_context_t *context, const config_t *config, ffn_layer_t **layer);
void ffni_layer_delete(ffn_layer_t *layer);

/* A number that no other layer of the process has, convolutional ones included: tapes know whose they are by it. */
uint64_t ffni_layer_next_serial(void);

/* Computes again what is derived from the tensors: the scales' [d_out] form and xielu's factors. */
void ffni_layer_derive(ffn_layer_t *layer);

int ffni_layer_has(const ffn_layer_t *layer, int role);

/* The network of an expert; of a dense layer (expert 0) its own. */
network_t ffni_layer_expert(const ffn_layer_t *layer, int64_t expert);

/* A tensor of the layer, of that expert if it is an expert's own (else 0), as one vector; NULL: absent. */
const float *ffni_layer_vector(const ffn_layer_t *layer, int role, int64_t expert);

/* Copies a tensor of the layer into a view of its shape, or the other way round. */
void ffni_layer_read(const ffn_layer_t *layer, int role, int64_t expert, const view_t *view);
void ffni_layer_write(ffn_layer_t *layer, ffn_context_t *context, int role, int64_t expert, const view_t *view);

#endif
