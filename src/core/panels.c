/* SPDX-License-Identifier: MIT
 * Packing weights into panels, and reading them back. Blocks of a panel's columns times a cache line or more of each source row, so that every line
 * of either side is used whole while it is in the first-level cache. */
#include "core/panels.h"

#include "base/checked.h"
#include "core/parallel.h"

#include <string.h>

enum { DEPTH_BLOCK = 64 };

typedef struct packing {
    const panels_t *panels;
    const view_t *view;
} packing_t;

static const float *element(const view_t *view, int64_t column, int64_t k) {
    return (const float *)(const void *)(view->data + column * view->row_stride + k * view->column_stride);
}

/* Where outputs are neighbours in the source ([in, out] files), rows of the panel are runs of it. */
static void pack_runs(const packing_t *packing, int64_t first, int64_t columns, int64_t begin, int64_t end, float *panel) {
    int64_t width = packing->panels->width;
    for (int64_t k = begin; k < end; k++) memcpy(panel + k * width, element(packing->view, first, k), (size_t)columns * sizeof *panel);
}

static void pack_transposed(const packing_t *packing, int64_t first, int64_t columns, int64_t begin, int64_t end, float *panel) {
    int64_t width = packing->panels->width;
    for (int64_t column = 0; column < columns; column++) {
        const float *from = element(packing->view, first + column, begin);
        float *to = panel + begin * width + column;
        for (int64_t k = 0; k < end - begin; k++) to[k * width] = from[k];
    }
}

static void pack_strided(const packing_t *packing, int64_t first, int64_t columns, int64_t begin, int64_t end, float *panel) {
    int64_t width = packing->panels->width;
    for (int64_t column = 0; column < columns; column++)
        for (int64_t k = begin; k < end; k++) panel[k * width + column] = *element(packing->view, first + column, k);
}

static void pack_panel(const packing_t *packing, int64_t index) {
    const panels_t *panels = packing->panels;
    const view_t *view = packing->view;
    int64_t first = index * panels->width, columns = minimum(panels->width, panels->columns - first);
    float *panel = panels->data + index * panels->step;
    if (columns < panels->width) memset(panel, 0, (size_t)(panels->depth * panels->width) * sizeof *panel);
    for (int64_t begin = 0; begin < panels->depth; begin += DEPTH_BLOCK) {
        int64_t end = minimum(begin + DEPTH_BLOCK, panels->depth);
        if (view->column_stride == 4)
            pack_transposed(packing, first, columns, begin, end, panel);
        else if (view->row_stride == 4)
            pack_runs(packing, first, columns, begin, end, panel);
        else
            pack_strided(packing, first, columns, begin, end, panel);
    }
}

static void pack_panels(void *data, int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; index++) pack_panel(data, index);
}

void ffni_panels_pack(ffn_context_t *context, const panels_t *panels, const view_t *view) {
    packing_t packing = {panels, view};
    ffni_parallel_rows(context, (panels->columns - 1) / panels->width + 1, panels->width * panels->depth, pack_panels, &packing);
}

void ffni_panels_unpack(const view_t *view, const panels_t *panels) {
    for (int64_t column = 0; column < panels->columns; column++) {
        const float *from = panels->data + column / panels->width * panels->step + column % panels->width;
        char *to = view->data + column * view->row_stride;
        for (int64_t k = 0; k < panels->depth; k++) memcpy(to + k * view->column_stride, from + k * panels->width, 4);
    }
}
