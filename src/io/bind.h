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

enum { FFNIO_BINDINGS = 18 }; /* as many as there are roles */

typedef struct found_layer {
    ffn_model_layer_t layer; /* its options and bindings are pointed to by ffnio_layer_link */
    ffn_layer_options_t options;
    ffn_model_binding_t bindings[FFNIO_BINDINGS];
    char *prefix;            /* owned */
    int64_t anchor;          /* index of the tensor that the layer was found by */
    const char *activation;  /* config.json's name where it is not known, else NULL */
    char activation_key[64];
} found_layer_t;

typedef struct sizes {
    int64_t d_model, d_ff, d_out;
} sizes_t;

/* 1 if a name of that length is <any prefix that ends in '.', or none><stem><tail>, where {i} in the stem is a number; *prefix_length is then the
 * length of all before the tail. */
int ffnio_name_matches(const char *name, size_t length, const char *stem, size_t stem_length, const char *tail, size_t tail_length,
                       size_t *prefix_length);

/* Fills in *found by the row, for the layer whose tensors' names begin with found->prefix. Where the row does not fit, trouble has the reason, in
 * a sentence that names a tensor. Fails itself (FFN_FORMAT) where config.json has a value that is none. */
ffn_status_t ffnio_bind(const checkpoint_t *checkpoint, const config_t *config, const family_t *family, found_layer_t *found,
                        trouble_t *trouble);

/* Points the description at its own options and bindings, where it will stay. */
void ffnio_layer_link(found_layer_t *found);

/* Checks the bindings' roles and names, layouts, parts and shapes against each other, and gives the layer's sizes. */
ffn_status_t ffnio_bindings_check(const checkpoint_t *checkpoint, const ffn_model_binding_t *bindings, uint64_t count, sizes_t *sizes,
                                  trouble_t *trouble);

/* A matrix's two dimensions as [out, in], other dimensions of size 1 passed over (out is the whole tensor's, before parts). 0: not a matrix. */
int ffnio_matrix_shape(const stored_tensor_t *tensor, uint32_t layout, int64_t *out, int64_t *in);

#endif
