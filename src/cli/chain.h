/* SPDX-License-Identifier: MIT
 * The layers that a run goes through, one after the other: which, made from the model, and run on blocks of rows. */
#ifndef FFN_CLI_CHAIN_H
#define FFN_CLI_CHAIN_H

#include "cli/load.h"
#include "cli/overrides.h"
#include "cli/progress.h"

/* Layer numbers as the command line has them: "all", or numbers and ranges, "0,3-5". */
typedef struct selection {
    int all;
    int64_t *number; /* in the order given; a layer may come more than once */
    int64_t count;
} selection_t;

void selection_take(selection_t *selection, const arguments_t *arguments);
/* Fills in what depends on the model: "all", or the only layer where none was asked for; checks that the layers are
 * there, unless they are described by hand. Complains; returns an exit status. */
int selection_resolve(selection_t *selection, const ffn_model_t *model, const char *path, const overrides_t *overrides);
void selection_free(selection_t *selection);

/* One layer in the chain. */
typedef struct step {
    int64_t number;
    const char *family; /* the model's; NULL: by hand */
    ffn_layer_t *layer;
    int shared; /* the layer is an earlier step's */
    ffn_layer_info_t info;
    ffn_stats_t *stats; /* of its runs; NULL: none are wanted. The chain's */
    double seconds; /* of all blocks so far */
    load_t load;    /* of its experts, likewise */
} step_t;

typedef struct chain {
    step_t *step;
    int64_t count;
    double load_seconds;
    float *a, *b; /* a block of rows, before and after a step */
    int64_t block_rows;
    int64_t length; /* of a sequence of the input; set before loading */
    int whole;      /* a layer looks at sequences as a whole: blocks are of whole sequences */
    int each; /* every step gets the block itself: no chain */
} chain_t;

/* Each complains and returns an exit status. chain_load makes the layers; chain_fit checks that the widths follow each other, from `columns` on,
 * and makes room for blocks of at most `rows` rows; chain_run takes chain->a [rows, columns] through all steps and leaves the result there
 * (with `each`, chain->a as it was). */
int chain_load(chain_t *chain, const ffn_model_t *model, ffn_context_t *context, const selection_t *selection, const overrides_t *overrides,
               progress_t *progress);
int chain_fit(chain_t *chain, const char *input_path, int64_t columns, int64_t rows);
int chain_run(chain_t *chain, ffn_context_t *context, int64_t rows);
void chain_free(chain_t *chain);

/* Prints where the tokens of a step went that has experts, and what their hidden units did (NULL: was not counted). */
void step_print_load(const step_t *step, const units_t *units);

#endif
