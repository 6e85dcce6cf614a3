/* SPDX-License-Identifier: MIT
 * Asked of every tensor of a file, most of which are nobody's: no more than comparisons of characters. */
#include "io/anchor.h"

#include <stdio.h>
#include <string.h>

#include "io/bind.h"

/* Cuts an ending off; 0: the name has another. */
static int cut(const char *name, size_t *length, const char *ending) {
    size_t ending_length = strlen(ending);
    if (*length < ending_length || memcmp(name + *length - ending_length, ending, ending_length) != 0) return 0;
    *length -= ending_length;
    return 1;
}

/* One of the row's stems before the first `end` characters, after any prefix that ends in '.'. */
static int has_stem(const family_t *row, const char *name, size_t end) {
    size_t length;
    for (const char *stem = ffnio_next_word(row->stems, &length); length; stem = ffnio_next_word(stem + length, &length)) {
        int64_t at = ffnio_name_before(name, end, stem, length);
        if (at == 0 || (at > 0 && name[at - 1] == '.')) return 1;
    }
    return 0;
}

static int is_dense_anchor(const family_t *row, const char *name, candidate_t *candidate) {
    size_t length = strlen(name);
    if (!cut(name, &length, ".weight") || !cut(name, &length, row->up.module) || !has_stem(row, name, length)) return 0;
    candidate->prefix = length;
    candidate->by_names = 1;
    return 1;
}

/* A block of the rule, and a stem, before the first `end` characters. */
static int has_block(const family_t *row, const char *name, size_t end, candidate_t *candidate) {
    size_t length;
    int first = 1;
    for (const char *block = ffnio_next_word(row->experts->blocks, &length); length; block = ffnio_next_word(block + length, &length)) {
        int64_t at = ffnio_name_before(name, end, block, length);
        if (at >= 0 && has_stem(row, name, (size_t)at)) {
            candidate->prefix = (size_t)at;
            candidate->by_names = first;
            return 1;
        }
        first = 0;
    }
    return 0;
}

static int is_router(const family_t *row, const char *name, candidate_t *candidate) {
    size_t length = strlen(name), module;
    if (!cut(name, &length, ".weight")) return 0;
    for (const char *router = ffnio_next_word(row->experts->routers, &module); module; router = ffnio_next_word(router + module, &module)) {
        int64_t at = ffnio_name_before(name, length, router, module);
        if (at >= 0 && has_block(row, name, (size_t)at, candidate)) return 1;
    }
    return 0;
}

/* 1 if the layer has one of the row's routers, whichever block it is in. */
static int has_router(const checkpoint_t *checkpoint, const family_t *row, const char *name, size_t prefix) {
    char router[1024];
    size_t block_length, length;
    for (const char *block = ffnio_next_word(row->experts->blocks, &block_length); block_length; block = ffnio_next_word(block + block_length, &block_length))
        for (const char *list = ffnio_next_word(row->experts->routers, &length); length; list = ffnio_next_word(list + length, &length)) {
            snprintf(router, sizeof router, "%.*s%.*s%.*s.weight", (int)prefix, name, (int)block_length, block, (int)length, list);
            if (ffnio_checkpoint_find(checkpoint, router) >= 0) return 1;
        }
    return 0;
}

/* 1 if the layer has a router of any row: that is the layer's anchor then. */
static int router_is_there(const checkpoint_t *checkpoint, const char *name, size_t prefix) {
    for (int i = 0; i < ffnio_family_count; i++)
        if (ffnio_families[i].experts && has_router(checkpoint, &ffnio_families[i], name, prefix)) return 1;
    return 0;
}

/* The first expert's, or the stack's: the number in the name is 0. */
static int is_first_expert(const family_t *row, const char *name, candidate_t *candidate) {
    for (int i = 0; row->experts->layouts[i]; i++) {
        const expert_layout_t *layout = row->experts->layouts[i];
        const char *module = layout->up.module, *number = strstr(module, "{i}");
        size_t length = strlen(name), tail = number ? strlen(number + 3) : 0;
        if (!cut(name, &length, layout->weight)) continue;
        int64_t at = ffnio_name_before(name, length, module, strlen(module));
        if (at < 0 || (number && memcmp(name + at + (number - module), "0", 1) != 0)) continue;
        if (number && length - (size_t)at - (size_t)(number - module) - tail != 1) continue;
        if (has_block(row, name, (size_t)at, candidate)) return 1;
    }
    return 0;
}

static int is_anchor(const checkpoint_t *checkpoint, const family_t *row, const char *name, candidate_t *candidate) {
    if (!row->experts) return is_dense_anchor(row, name, candidate);
    if (is_router(row, name, candidate)) return 1;
    return is_first_expert(row, name, candidate) && !router_is_there(checkpoint, name, candidate->prefix);
}

static int is_asked_for(const family_t *row, const family_t *only) {
    return !only || row == only || (only->experts && only->experts->dense && strcmp(row->name, only->experts->dense) == 0);
}

int ffnio_candidates(const checkpoint_t *checkpoint, int64_t anchor, const family_t *only, candidate_t candidates[FFNIO_CANDIDATES]) {
    int count = 0;
    for (int i = 0; i < ffnio_family_count && count < FFNIO_CANDIDATES; i++) {
        const family_t *row = &ffnio_families[i];
        candidates[count].row = row;
        if (is_asked_for(row, only) && is_anchor(checkpoint, row, checkpoint->tensors[anchor].name, &candidates[count])) count++;
    }
    return count;
}
