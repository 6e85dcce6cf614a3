/* SPDX-License-Identifier: MIT
 * The handle that collects what runs count of hidden units. */
#ifndef FFNI_STATS_H
#define FFNI_STATS_H

#include <ffn/ffn.h>

#include "core/counts.h"

struct ffn_stats {
    ffn_allocator_t allocator;
    uint64_t bytes;
    int64_t d_ff, positions;
    int64_t *positive; /* [d_ff], behind this struct */
    activity_t activity;
};

ffn_status_t ffni_stats_new(const ffn_stats_options_t *given, ffn_stats_t **stats);
void ffni_stats_delete(ffn_stats_t *stats);
void ffni_stats_reset(ffn_stats_t *stats);
void ffni_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from);

/* Adds what a run, or a part of one, has counted; positions are added by themselves. */
void ffni_stats_add(ffn_stats_t *stats, const counts_t *counts);

/* What is read. Without a position: NaN. */
double ffni_stats_density(const ffn_stats_t *stats, int64_t unit);
double ffni_stats_density_logit(const ffn_stats_t *stats, int64_t unit);
void ffni_stats_summary(const ffn_stats_t *stats, ffn_stats_info_t *info);

/* edges [bins + 1], ascending; NULL: equal bins over the whole range of density_logit. */
void ffni_stats_histogram(const ffn_stats_t *stats, int64_t bins, const double *edges, int64_t *counts);

#endif
