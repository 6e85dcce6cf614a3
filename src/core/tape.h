/* SPDX-License-Identifier: MIT
 * The tape: what the forward pass of training leaves for the backward pass. */
#ifndef FFNI_TAPE_H
#define FFNI_TAPE_H

#include "core/dropout.h"
#include "core/layer.h"
#include "core/rows.h"

typedef enum tape_state { TAPE_EMPTY, TAPE_RECORDED, TAPE_USED } tape_state_t;

/* What a mixture leaves beside that. Slots are in the order of tokens, rows of hidden sorted by expert in each chunk. */
typedef struct mixture_tape {
    int64_t top_k, window, chunk; /* as the tokens went through */
    int made;                     /* weights were made by the layer, of the logits */
    int32_t *ids, *made_ids;      /* [tokens, top_k]: in the end, and when the weights were made */
    float *weights;               /* [tokens, top_k] */
    float *logits;                /* [tokens, choices] */
    uint8_t *mask;                /* [tokens] */
    float *mixed;                 /* [tokens, d_latent] */
    float *hidden;                /* [tokens * top_k, hidden_width]; NULL: to be computed again */
    float *shared_hidden;         /* [tokens, the shared experts' hidden width]; likewise */
} mixture_tape_t;

struct ffn_tape {
    ffn_allocator_t allocator;
    uint32_t flags;
    char *memory;
    uint64_t bytes;

    tape_state_t state;
    uint64_t layer_serial, layer_generation; /* of the layer that was run */
    int64_t batch, length;
    rows_t x, residual; /* borrowed; residual only where it is external */
    const uint8_t *mask; /* borrowed, of a convolutional layer; NULL: none */
    int64_t mask_stride;
    dropout_t dropout;
    float *hidden; /* [tokens, hidden_width], products without bias; NULL: to be computed again */
    float *branch; /* [tokens, d_out], likewise; NULL: not needed */
    mixture_tape_t mixture;
};

ffn_status_t ffni_tape_new(const ffn_tape_options_t *given, ffn_tape_t **tape);
void ffni_tape_delete(ffn_tape_t *tape);

/* Makes room for so many tokens of the layer, places hidden and branch, and leaves the tape empty. FFN_NO_MEMORY: the tape is as before. */
ffn_status_t ffni_tape_reserve(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens);

/* The same by the widths of the pre-activations and of the down product, which is 0 where the backward pass does not read that. */
ffn_status_t ffni_tape_make_room(ffn_tape_t *tape, int64_t tokens, int64_t hidden_width, int64_t branch_width);

/* The same for a mixture of which each token has that many choices. */
ffn_status_t ffni_tape_reserve_choices(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens, int64_t top_k);

/* Whether the backward pass of the layer reads the down product. */
int ffni_tape_keeps_branch(const ffn_layer_t *layer);

#endif
