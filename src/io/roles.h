/* SPDX-License-Identifier: MIT
 * What is known of a role: which dimensions its tensor has. */
#ifndef FFNIO_ROLES_H
#define FFNIO_ROLES_H

#include "io/bind.h"

/* A dimension. EXPERT_IN and EXPERT_OUT are the width that the experts compute on: the latent one, or the layer's own. */
typedef enum dimension { ONE, D_MODEL, D_FF, D_OUT, EXPERT_IN, EXPERT_OUT, ROUTED, D_SHARED, D_LATENT } dimension_t;

typedef struct role {
    const char *name;    /* NULL: there is no such role */
    dimension_t out, in; /* in ONE: a vector, or SHARED_SCALE_WEIGHT's single row */
    int matrix;
    int expert;          /* each expert has its own */
    int moe;             /* only in a mixture of experts */
    int constant;        /* may be a number, and [1] in place of a vector */
} role_t;

enum { FFNIO_ROLES = 64 };

/* Its row, or NULL. */
const role_t *ffnio_role(uint32_t role);

/* -1: the layer has no such dimension, or it is not known yet. */
int64_t ffnio_dimension(const sizes_t *sizes, dimension_t dimension);

#endif
