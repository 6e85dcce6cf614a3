/* SPDX-License-Identifier: MIT
 * The load of a mixture's experts over all blocks of a run: tokens per expert, their entropy, what was dropped. */
#ifndef FFN_CLI_LOAD_H
#define FFN_CLI_LOAD_H

#include <ffn/ffn.h>

#include "cli/units.h"

typedef struct load {
    int64_t experts; /* identities too. 0: a dense layer, of which there is nothing to tell */
    int64_t *counts; /* tokens of each */
    int64_t tokens, assignments, dropped, lost_tokens;
    double router_entropy; /* sum over the tokens, in nats */
} load_t;

/* Makes room. Complains; returns an exit status. */
int load_make(load_t *load, const ffn_layer_info_t *info);
void load_free(load_t *load);

/* Runs rows through the layer, and adds where they went, and to stats (NULL: not wanted) what its hidden units did. */
ffn_status_t load_run(load_t *load, const ffn_layer_t *layer, ffn_context_t *context, ffn_stats_t *stats, int64_t rows, const float *x, float *y);

/* Entropy of the experts' shares of the assignments, in nats; log(experts) is the most. */
double load_entropy(const load_t *load);

/* {"tokens_per_expert": [...], "entropy": ..., "entropy_most": ..., "router_entropy": ..., "dropped": ..., ...} */
json_t *load_json(const load_t *load);

/* A bar for each expert, beside it what its hidden units did (NULL: was not counted), and the numbers below. */
void load_print(const load_t *load, const units_t *units);

#endif
