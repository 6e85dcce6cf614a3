/* SPDX-License-Identifier: MIT
 * The handle that collects what runs count of hidden units. */
#ifndef FFNI_STATS_H
#define FFNI_STATS_H

#include <ffn/ffn.h>

#include "core/counts.h"

/* Units are those of the experts, one after the other, then the shared ones'. */
struct ffn_stats {
    ffn_allocator_t allocator;
    uint64_t bytes;
    int64_t experts, d_ff, d_shared; /* experts 0: a layer of d_ff units, which is one network */
    int64_t networks, units;
    int64_t *positions; /* [networks], behind this struct */
    int64_t *positive;  /* [units], behind these */
    activity_t activity;
};

ffn_status_t ffni_stats_new(const ffn_stats_options_t *given, ffn_stats_t **stats);
void ffni_stats_delete(ffn_stats_t *stats);
void ffni_stats_reset(ffn_stats_t *stats);
void ffni_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from);

/* Refuses stats (NULL: none) that are not for such a layer, and runs of more positions than counters have room for. */
ffn_status_t ffni_stats_check(const ffn_stats_t *stats, int64_t experts, int64_t d_ff, int64_t d_shared, int64_t positions);

/* Adds what a run, or a part of one, has counted of units first .. first + units - 1; positions are added by themselves. */
void ffni_stats_add(ffn_stats_t *stats, int64_t first, int64_t units, const counts_t *counts);

/* Where a network's units begin, and how many they are. */
int64_t ffni_stats_first_unit(const ffn_stats_t *stats, int64_t network);
int64_t ffni_stats_width(const ffn_stats_t *stats, int64_t network);

typedef struct network_stats {
    int64_t positive, dead_units;
    double density;
} network_stats_t;

/* What is read. Without a position of the unit's network: NaN. */
network_stats_t ffni_stats_network(const ffn_stats_t *stats, int64_t network);
double ffni_stats_density(const ffn_stats_t *stats, int64_t unit);
double ffni_stats_density_logit(const ffn_stats_t *stats, int64_t unit);
void ffni_stats_summary(const ffn_stats_t *stats, ffn_stats_info_t *info);

/* edges [bins + 1], ascending; NULL: equal bins over the whole range of density_logit. */
void ffni_stats_histogram(const ffn_stats_t *stats, int64_t bins, const double *edges, int64_t *counts);

#endif
