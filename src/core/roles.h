/* SPDX-License-Identifier: MIT
 * The roles of tensors: their names and shapes. A new role is a new row of the table in roles.c. */
#ifndef FFNI_ROLES_H
#define FFNI_ROLES_H

#include <stdint.h>

enum { ROLE_LIMIT = 64 }; /* roles are below it: the length of ffn_layer_info_t.parameters_of */

typedef enum extent { EXTENT_NONE, EXTENT_D_MODEL, EXTENT_D_FF, EXTENT_D_OUT, EXTENT_ONE, EXTENT_ONE_OR_D_OUT } extent_t;

typedef struct role {
    const char *name; /* NULL: no such role */
    uint32_t ndim;
    extent_t shape[2];
} role_t;

extern const role_t ffni_roles[ROLE_LIMIT];

#endif
