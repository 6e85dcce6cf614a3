/* SPDX-License-Identifier: MIT
 * What the hidden units of one layer did on an array: of all of them together, and of a mixture by expert. */
#ifndef FFN_CLI_UNITS_H
#define FFN_CLI_UNITS_H

#include <ffn/ffn.h>

#include "cli/text.h"

typedef struct units {
    ffn_stats_info_t info;
    int64_t networks;    /* the experts, and the shared ones behind them as one; of a dense layer 1 */
    int64_t *positions;  /* of each network */
    int64_t *dead_units;
    double *density;     /* NaN without a position */
} units_t;

/* Complains; returns an exit status. Whatever happened, units_free does no harm. */
int units_read(units_t *units, const ffn_stats_t *stats);
void units_free(units_t *units);

/* Cells of a table: density, dead and unseen units, as a heading and of a network; -1: one that has no units. */
void units_add_heading(table_t *table);
void units_add_network(table_t *table, const units_t *units, int64_t network);

/* {"positions": ..., "density": ..., "dead_units": ..., "unseen_units": ...} */
json_t *units_network_json(const units_t *units, int64_t network);

#endif
