/* SPDX-License-Identifier: MIT
 * Checking views against a layer. */
#include "core/layer_views.h"

#include "base/error.h"

#include <inttypes.h>

ffn_status_t ffni_layer_check_view(const ffn_layer_t *layer, const ffn_tensor_t *tensor) {
    const char *name = ffni_roles[tensor->role].name;
    if (!ffni_layer_has(layer, (int)tensor->role)) return ffni_fail(FFN_INVALID, "%s is not in this layer", name);
    ffn_status_t status = ffni_tensor_check(&layer->sizes, tensor);
    if (status) return status;
    int64_t columns = ffni_view_of(tensor).columns, stored = layer->stored[tensor->role].columns;
    if (columns != stored) return ffni_fail(FFN_INVALID, "shape[0] of %s is %" PRId64 ", must be %" PRId64, name, columns, stored);
    return FFN_OK;
}

static ffn_status_t check_output(const ffn_layer_t *layer, const ffn_tensor_t *tensor) {
    ffn_status_t status = ffni_layer_check_view(layer, tensor);
    if (status) return status;
    view_t view = ffni_view_of(tensor);
    if (!ffni_view_is_writable(&view))
        return ffni_fail(FFN_INVALID, "the strides of %s let elements share an address", ffni_roles[tensor->role].name);
    return FFN_OK;
}

/* ------------------------------------------------------- Whether views are apart */

/* As many as a bound list can have. Short numbers, because all are on the stack. */
enum { VIEWS_MOST = ROLE_LIMIT + EXPERT_ROLES * FFN_MOE_EXPERTS_MOST };

typedef struct item {
    uint16_t tensor, expert; /* the expert of a stack, from its first on */
} item_t;

typedef struct items {
    const ffn_tensor_t *tensors;
    int64_t count;
    item_t item[VIEWS_MOST];
} items_t;

static view_t view_of(const items_t *items, int64_t i) {
    return ffni_view_of_expert(&items->tensors[items->item[i].tensor], items->item[i].expert);
}

static uintptr_t low_of(const items_t *items, int64_t i) {
    uintptr_t low, high;
    view_t view = view_of(items, i);
    ffni_view_range(&view, &low, &high);
    return low;
}

static void exchange(items_t *items, int64_t i, int64_t j) {
    item_t item = items->item[i];
    items->item[i] = items->item[j];
    items->item[j] = item;
}

/* Moves item i down to where the heap of `count` items is one again: no item has a lower address than those below it. */
static void sift(items_t *items, int64_t i, int64_t count) {
    uintptr_t low = low_of(items, i);
    for (int64_t child = 2 * i + 1; child < count; i = child, child = 2 * i + 1) {
        uintptr_t child_low = low_of(items, child), next_low = child + 1 < count ? low_of(items, child + 1) : 0;
        if (next_low > child_low) child++, child_low = next_low;
        if (child_low <= low) return;
        exchange(items, i, child);
    }
}

static int is_sorted(const items_t *items) {
    uintptr_t low = 0, next;
    for (int64_t i = 0; i < items->count; i++, low = next) {
        next = low_of(items, i);
        if (next < low) return 0;
    }
    return 1;
}

/* By lowest address. A heap sort: it needs no memory, and there are thousands where experts are many. Most callers' are in order. */
static void sort(items_t *items) {
    if (is_sorted(items)) return;
    for (int64_t i = items->count / 2; i-- > 0;) sift(items, i, items->count);
    for (int64_t last = items->count; last-- > 1;) {
        exchange(items, 0, last);
        sift(items, 0, last);
    }
}

static ffn_status_t fail_overlap(const items_t *items, int64_t i, int64_t j) {
    uint16_t a = items->item[i].tensor, b = items->item[j].tensor;
    const ffn_tensor_t *first = &items->tensors[a < b ? a : b], *second = &items->tensors[a < b ? b : a];
    return ffni_fail(FFN_INVALID, "the views of %s and %s overlap", ffni_roles[first->role].name, ffni_roles[second->role].name);
}

/* Of views in the order of their addresses, only those that begin before one ends can share an element with it. */
static ffn_status_t check_apart(const ffn_tensor_t *tensors, uint64_t count) {
    items_t items;
    items.tensors = tensors;
    items.count = 0;
    for (uint64_t i = 0; i < count; i++)
        for (int64_t expert = 0; expert < ffni_tensor_experts(&tensors[i]); expert++)
            items.item[items.count++] = (item_t){(uint16_t)i, (uint16_t)expert};
    sort(&items);
    for (int64_t i = 0; i < items.count; i++) {
        uintptr_t low, high;
        view_t view = view_of(&items, i);
        ffni_view_range(&view, &low, &high);
        for (int64_t j = i + 1; j < items.count && low_of(&items, j) < high; j++) {
            view_t other = view_of(&items, j);
            if (ffni_views_overlap(&view, &other)) return fail_overlap(&items, i, j);
        }
    }
    return FFN_OK;
}

ffn_status_t ffni_layer_check_outputs(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        ffn_status_t status = check_output(layer, &tensors[i]);
        if (status) return status;
    }
    return check_apart(tensors, count);
}
