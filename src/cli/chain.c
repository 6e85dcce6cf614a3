/* SPDX-License-Identifier: MIT
 * Making the layers of a run, and running blocks of rows through them. */
#include "cli/chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A block has at most this many rows and this many bytes (of its widest row). Large enough that a block costs what its products cost, small enough
 * to be beside the point in memory. */
enum { BLOCK_ROWS = 4096, BLOCK_BYTES = 16 << 20 };

static const step_t *earlier(const chain_t *chain, int64_t number) {
    for (int64_t i = 0; i < chain->count; i++)
        if (chain->step[i].number == number) return &chain->step[i];
    return NULL;
}

static int load_step(chain_t *chain, step_t *step, const ffn_model_t *model, ffn_context_t *context, const overrides_t *overrides) {
    described_t described;
    int status = describe(model, step->number, overrides, &described);
    if (!status && described.options.moe && described.moe.capacity) { /* which is of a sequence */
        described.capacity.group_tokens = chain->length;
        chain->whole = 1;
    }
    if (!status && ffn_model_layer_create(model, context, &described.layer, &step->layer))
        status = complain("layer %" PRId64 ": %s", step->number, ffn_io_last_error());
    step->family = described.layer.family;
    step->info.struct_size = sizeof step->info;
    if (!status && ffn_layer_info(step->layer, &step->info)) status = complain("%s", ffn_last_error());
    described_free(&described);
    return status ? status : load_make(&step->load, &step->info);
}

int chain_load(chain_t *chain, const ffn_model_t *model, ffn_context_t *context, const selection_t *selection, const overrides_t *overrides,
               progress_t *progress) {
    double start = seconds_now();
    chain->step = calloc((size_t)selection->count, sizeof *chain->step);
    if (!chain->step) return complain_memory();
    for (int64_t i = 0; i < selection->count; i++) {
        const step_t *same = earlier(chain, selection->number[i]);
        step_t *step = &chain->step[i];
        if (same) {
            *step = *same;
            step->shared = 1;
            if (load_make(&step->load, &step->info)) return EXIT_FAILED;
        } else {
            step->number = selection->number[i];
            if (load_step(chain, step, model, context, overrides)) return EXIT_FAILED;
        }
        chain->count++;
        progress_update(progress, "loading", i + 1, selection->count);
    }
    chain->load_seconds = seconds_now() - start;
    return EXIT_FINE;
}

int chain_fit(chain_t *chain, const char *input_path, int64_t columns, int64_t rows) {
    int64_t width = columns, widest = columns;
    for (int64_t i = 0; i < chain->count; i++) {
        const step_t *step = &chain->step[i];
        if (chain->each) width = columns;
        if (width != step->info.d_model && i && !chain->each)
            return complain("layer %" PRId64 " gives rows of %" PRId64 " numbers, layer %" PRId64 " takes %" PRId64, step[-1].number, width,
                            step->number, step->info.d_model);
        if (width != step->info.d_model)
            return complain("%s: its rows have %" PRId64 " numbers, layer %" PRId64 " takes %" PRId64, input_path, width, step->number,
                            step->info.d_model);
        width = step->info.d_out;
        if (width > widest) widest = width;
    }
    int64_t most = BLOCK_BYTES / (int64_t)sizeof(float) / widest;
    if (most > BLOCK_ROWS) most = BLOCK_ROWS;
    if (chain->whole && chain->length > 0) most = most > chain->length ? most - most % chain->length : chain->length;
    if (most > rows) most = rows;
    chain->block_rows = most > 0 ? most : 1;
    chain->a = calloc((size_t)(chain->block_rows * widest), sizeof *chain->a);
    chain->b = calloc((size_t)(chain->block_rows * widest), sizeof *chain->b);
    return chain->a && chain->b ? EXIT_FINE : complain_memory();
}

int chain_run(chain_t *chain, ffn_context_t *context, int64_t rows) {
    for (int64_t i = 0; i < chain->count; i++) {
        step_t *step = &chain->step[i];
        double start = seconds_now();
        if (load_run(&step->load, step->layer, context, step->stats, rows, chain->a, chain->b))
            return complain("layer %" PRId64 ": %s", step->number, ffn_last_error());
        step->seconds += seconds_now() - start;
        if (chain->each) continue;
        float *result = chain->b;
        chain->b = chain->a;
        chain->a = result;
    }
    return EXIT_FINE;
}

void chain_free(chain_t *chain) {
    for (int64_t i = 0; i < chain->count; i++) {
        if (!chain->step[i].shared) ffn_layer_free(chain->step[i].layer);
        load_free(&chain->step[i].load);
        ffn_stats_free(chain->step[i].stats);
    }
    free(chain->step);
    free(chain->a);
    free(chain->b);
    *chain = (chain_t){0};
}

void step_print_load(const step_t *step, const units_t *units) {
    printf("layer %" PRId64 ": %s tokens, each to %" PRId64 " of %" PRId64 " experts\n", step->number, grouped(step->load.tokens).text,
           step->info.top_k, step->load.experts);
    load_print(&step->load, units);
}
