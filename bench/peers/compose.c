/* SPDX-License-Identifier: MIT
 * See compose.h. */
#include "compose.h"

#include <stdlib.h>
#include <string.h>

enum { SHARED_NUMBERS = 1 << 15 }; /* that are worth a thread's waking */

composition_t compose_memory(const layer_t *layer) {
    composition_t made = {.starts = malloc((size_t)(layer->experts + 1) * sizeof *made.starts),
                          .order = malloc((size_t)(layer->max_tokens * layer->top_k) * sizeof *made.order),
                          .gathered = worker_floats(layer->max_tokens * layer->d_model),
                          .results = worker_floats(layer->max_tokens * layer->d_model)};
    if (!made.starts || !made.order) worker_fail("out of memory");
    return made;
}

void compose_sort(const layer_t *layer, composition_t *composition) {
    int64_t slots = composition->tokens * layer->top_k, *starts = composition->starts;
    memset(starts, 0, (size_t)(layer->experts + 1) * sizeof *starts);
    for (int64_t slot = 0; slot < slots; slot++) starts[layer->ids[slot] + 1]++;
    for (int64_t expert = 0; expert < layer->experts; expert++) starts[expert + 1] += starts[expert];
    /* Placing a slot moves its expert's start to the next's place: afterwards each is where the next one's was. */
    for (int64_t slot = 0; slot < slots; slot++) composition->order[starts[layer->ids[slot]]++] = (int32_t)slot;
    memmove(starts + 1, starts, (size_t)layer->experts * sizeof *starts);
    starts[0] = 0;
}

static void gather(const layer_t *layer, const composition_t *composition, int64_t first, int64_t rows) {
    int64_t width = layer->d_model;
#ifdef _OPENMP
#pragma omp parallel for if (rows * width > SHARED_NUMBERS)
#endif
    for (int64_t row = 0; row < rows; row++)
        memcpy(composition->gathered + row * width, layer->x + composition->order[first + row] / layer->top_k * width, (size_t)width * sizeof(float));
}

/* An expert's rows are of different tokens. */
static void scatter(const layer_t *layer, const composition_t *composition, int64_t first, int64_t rows) {
    int64_t width = layer->d_model;
#ifdef _OPENMP
#pragma omp parallel for if (rows * width > SHARED_NUMBERS)
#endif
    for (int64_t row = 0; row < rows; row++) {
        int64_t slot = composition->order[first + row];
        float weight = layer->weights[slot], *restrict y = layer->y + slot / layer->top_k * width;
        const float *restrict result = composition->results + row * width;
        for (int64_t i = 0; i < width; i++) y[i] += weight * result[i];
    }
}

void compose_run(const layer_t *layer, composition_t *composition, expert_fn *run_expert) {
    compose_sort(layer, composition);
    memset(layer->y, 0, (size_t)(composition->tokens * layer->d_model) * sizeof *layer->y);
    for (int64_t expert = 0; expert < layer->experts; expert++) {
        int64_t first = composition->starts[expert], rows = composition->starts[expert + 1] - first;
        if (!rows) continue;
        gather(layer, composition, first, rows);
        run_expert(layer, expert, rows, composition->gathered, composition->results);
        scatter(layer, composition, first, rows);
    }
}
