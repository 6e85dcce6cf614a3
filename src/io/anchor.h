/* SPDX-License-Identifier: MIT
 * Anchors: the tensors by whose names layers are found. A dense layer's is its up projection, a mixture's its router, or where that is missing the first
 * of its experts: a broken layer is to be seen, not passed over. */
#ifndef FFNIO_ANCHOR_H
#define FFNIO_ANCHOR_H

#include "io/families.h"
#include "io/safetensors.h"

/* A row that a tensor may be the anchor of. */
typedef struct candidate {
    const family_t *row;
    size_t prefix; /* length of the layer's prefix */
    int by_names;  /* whether names alone may choose the row */
} candidate_t;

enum { FFNIO_CANDIDATES = 64 };

/* The rows that tensor `anchor` of the file may belong to, as many as have room; only: this row and the one of its dense layers, or NULL. */
int ffnio_candidates(const checkpoint_t *checkpoint, int64_t anchor, const family_t *only, candidate_t candidates[FFNIO_CANDIDATES]);

#endif
