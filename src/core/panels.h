/* SPDX-License-Identifier: MIT
 * Weights in panels, the order in which the native engine's kernels read them. */
#ifndef FFNI_PANELS_H
#define FFNI_PANELS_H

#include "core/view.h"

/* One weight [columns (outputs), depth]: panels of `width` columns, element (k, column) of a panel at k * width + column. `step` elements lie
 * between the starts of its panels: depth * width, or twice that where gate and up take turns. Columns beyond the last are zeros. */
typedef struct panels {
    float *data;
    int64_t columns, depth, width, step;
} panels_t;

/* panels = view, [columns, depth]; the context's threads help. And back, on the calling thread. */
void ffni_panels_pack(ffn_context_t *context, const panels_t *panels, const view_t *view);
void ffni_panels_unpack(const view_t *view, const panels_t *panels);

#endif
