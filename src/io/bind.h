/* SPDX-License-Identifier: MIT
 * From a row of the family table and the names of a file to a description of one layer; and the shapes that a description's tensors must have. */
#ifndef FFNIO_BIND_H
#define FFNIO_BIND_H

#include "io/config.h"
#include "io/families.h"
#include "io/safetensors.h"

/* Why something does not fit. It becomes the thread's last sentence only if nothing else fits either. */
typedef struct trouble {
    ffn_status_t status; /* FFN_OK: none */
    char text[FFNIO_ERROR_SIZE];
} trouble_t;

/* Sets the trouble and returns status. */
FFNIO_PRINTF(3, 4) ffn_status_t ffnio_trouble(trouble_t *trouble, ffn_status_t status, const char *format, ...);

typedef struct found_layer {
    ffn_model_layer_t layer; /* its options are pointed to by ffnio_layer_link */
    ffn_layer_options_t options;
    ffn_moe_options_t moe; /* of a mixture of experts */
    ffn_moe_router_options_t router;
    ffn_moe_capacity_options_t capacity;
    ffn_model_binding_t *bindings; /* owned: room for binding_room, of which layer.binding_count are there */
    uint64_t binding_room;
    char *prefix;            /* owned */
    int64_t anchor;          /* index of the tensor that the layer was found by */
    const char *activation;  /* config.json's name where it is not known, else NULL */
    char activation_key[64];
} found_layer_t;

/* -1: the layer has no such size. */
typedef struct sizes {
    int64_t d_model, d_ff, d_out;
    int64_t experts, routed;    /* with weights, and those that a router chooses among; 0: a dense layer */
    int64_t d_shared, d_latent; /* hidden width of the shared experts, width of the latent projections */
} sizes_t;

/* Where in a name, whose first `end` characters count, the pattern begins that they end with, {i} in it being all the digits of a number; -1: they do
 * not. */
int64_t ffnio_name_before(const char *name, size_t end, const char *pattern, size_t length);

/* Fills in *found by the row, for the layer whose tensors' names begin with found->prefix. Where the row does not fit, trouble has the reason, in
 * a sentence that names a tensor. Fails itself (FFN_FORMAT) where config.json has a value that is none. */
ffn_status_t ffnio_bind(const checkpoint_t *checkpoint, const config_t *config, const family_t *family, found_layer_t *found,
                        trouble_t *trouble);

/* Points the description at its own options and bindings, where it will stay. */
void ffnio_layer_link(found_layer_t *found);

/* Frees what a layer owns. One that was never filled in is fine. */
void ffnio_found_free(found_layer_t *found);

/* Checks the bindings' roles and names, layouts, parts and shapes against each other, and gives the layer's sizes. moe NULL: a dense layer's. */
ffn_status_t ffnio_bindings_check(const checkpoint_t *checkpoint, const ffn_model_binding_t *bindings, uint64_t count, const ffn_moe_options_t *moe,
                                  sizes_t *sizes, trouble_t *trouble);

/* A matrix's two dimensions as [out, in], other dimensions of size 1 passed over (out is the whole tensor's, before parts); of a stack, which `experts`
 * says, those of one expert. 0: not a matrix. */
int ffnio_matrix_shape(const stored_tensor_t *tensor, uint32_t layout, uint32_t experts, int64_t *out, int64_t *in);

/* What is known of a role. */
int ffnio_role_is_matrix(uint32_t role);
int ffnio_role_is_expert(uint32_t role); /* each expert has one of its own */

#endif
