/* SPDX-License-Identifier: MIT
 * The work on one layer, which bind.c and bind_experts.c share: names looked up, bindings added. */
#ifndef FFNIO_BINDER_H
#define FFNIO_BINDER_H

#include "io/bind.h"

enum { FFNIO_NAME_SIZE = 1024 }; /* no tensor that a row describes has a longer name */

typedef struct binder {
    const checkpoint_t *checkpoint;
    const family_t *family;
    section_t section;
    found_layer_t *found;
    trouble_t *trouble;
} binder_t;

/* The tensor <prefix><module><suffix>, or NULL; the name goes into `name`, cut if it is too long. */
const stored_tensor_t *ffnio_binder_find(const binder_t *binder, const char *module, const char *suffix, char name[FFNIO_NAME_SIZE]);

/* Adds a binding. */
ffn_status_t ffnio_binder_add(binder_t *binder, ffn_model_binding_t binding);

/* Binds <prefix><module><suffix> to a role, if it is there or must be. */
ffn_status_t ffnio_binder_tensor(binder_t *binder, uint32_t role, const char *module, const char *suffix, uint32_t part, presence_t presence);

/* The trouble of a tensor that must be there, or must not be. */
ffn_status_t ffnio_binder_missing(const binder_t *binder, const char *name);
ffn_status_t ffnio_binder_superfluous(const binder_t *binder, const char *name);

/* Router, experts and shared experts of a row with a rule for them, and the options of their mixture. (bind_experts.c, router.c) */
ffn_status_t ffnio_bind_experts(binder_t *binder);
ffn_status_t ffnio_bind_router_options(binder_t *binder, int64_t experts);

#endif
