/* SPDX-License-Identifier: MIT
 * The roles of tensors: their names and shapes. A new role is a new row of the table in roles.c. */
#ifndef FFNI_ROLES_H
#define FFNI_ROLES_H

#include <stdint.h>

enum { ROLE_LIMIT = 64 }; /* roles are below it: the length of ffn_layer_info_t.parameters_of */
enum { EXPERT_ROLES = 8 }; /* those of OWNER_EXPERT in the table */

typedef enum extent {
    EXTENT_NONE,
    EXTENT_D_MODEL,
    EXTENT_D_FF,
    EXTENT_D_OUT,
    EXTENT_EXPERT_IN,  /* widths of what an expert takes and gives: d_model and d_out, or d_latent */
    EXTENT_EXPERT_OUT,
    EXTENT_CHOICES,    /* experts and identity experts */
    EXTENT_D_SHARED,
    EXTENT_D_LATENT,
    EXTENT_ONE,
    EXTENT_ONE_OR_D_OUT,
    EXTENTS
} extent_t;

/* What the extents are in a layer. */
typedef struct sizes {
    int64_t of[EXTENTS];
    int64_t experts; /* 0: a dense layer */
} sizes_t;

typedef enum owner {
    OWNER_LAYER,
    OWNER_EXPERT, /* in a mixture each expert has one; a dense layer is one expert */
    OWNER_MIXTURE /* in a mixture alone */
} owner_t;

typedef struct role {
    const char *name; /* NULL: no such role */
    uint32_t ndim;
    extent_t shape[2];
    owner_t owner;
} role_t;

extern const role_t ffni_roles[ROLE_LIMIT];

#endif
