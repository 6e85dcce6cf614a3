/* SPDX-License-Identifier: MIT
 * Collecting counts, and what is read from them. */
#include "core/stats.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ The handle */

static ffn_status_t read_options(const ffn_stats_options_t *given, ffn_stats_options_t *options, ffn_allocator_t *allocator) {
    const int64_t limit = 1 << 29;
    ffn_status_t status = ffni_struct_read(options, sizeof *options, given, "ffn_stats_options_t");
    if (status) return status;
    if (options->flags) return ffni_fail(FFN_INVALID, "flags of the stats is %" PRIu32 ", must be 0", options->flags);
    if (options->d_ff < 1 || options->d_ff > limit)
        return ffni_fail(FFN_INVALID, "d_ff of the stats is %" PRId64 ", must be 1 to %" PRId64, options->d_ff, limit);
    if (options->experts < 0 || options->experts > FFN_MOE_EXPERTS_MOST)
        return ffni_fail(FFN_INVALID, "experts of the stats is %" PRId64 ", must be 0 to %d", options->experts, FFN_MOE_EXPERTS_MOST);
    if (options->d_shared < 0 || options->d_shared > limit)
        return ffni_fail(FFN_INVALID, "d_shared of the stats is %" PRId64 ", must be 0 to %" PRId64, options->d_shared, limit);
    if (options->d_shared && !options->experts)
        return ffni_fail(FFN_INVALID, "d_shared of the stats is %" PRId64 ", but experts is 0", options->d_shared);
    return ffni_allocator_read(options->allocator, allocator);
}

ffn_status_t ffni_stats_new(const ffn_stats_options_t *given, ffn_stats_t **stats) {
    ffn_stats_options_t options;
    ffn_allocator_t allocator;
    ffn_status_t status = read_options(given, &options, &allocator);
    if (status) return status;
    int64_t networks = maximum(1, options.experts) + (options.d_shared > 0), units = maximum(1, options.experts) * options.d_ff + options.d_shared;
    uint64_t bytes = sizeof **stats + (uint64_t)(networks + units) * sizeof *(*stats)->positive;
    ffn_stats_t *made = ffni_allocate(&allocator, bytes, "stats");
    if (!made) return FFN_NO_MEMORY;
    *made = (ffn_stats_t){.allocator = allocator, .bytes = bytes, .experts = options.experts, .d_ff = options.d_ff, .d_shared = options.d_shared,
                          .networks = networks, .units = units, .positions = (int64_t *)(void *)(made + 1)};
    made->positive = made->positions + networks;
    ffni_stats_reset(made);
    *stats = made;
    return FFN_OK;
}

void ffni_stats_delete(ffn_stats_t *stats) {
    if (!stats) return;
    ffn_allocator_t allocator = stats->allocator;
    ffni_release(&allocator, stats, stats->bytes);
}

void ffni_stats_reset(ffn_stats_t *stats) {
    stats->activity = (activity_t){0};
    memset(stats->positions, 0, (size_t)stats->networks * sizeof *stats->positions);
    memset(stats->positive, 0, (size_t)stats->units * sizeof *stats->positive);
}

void ffni_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from) {
    activity_merge(&stats->activity, &from->activity);
    for (int64_t network = 0; network < stats->networks; network++) stats->positions[network] += from->positions[network];
    for (int64_t unit = 0; unit < stats->units; unit++) stats->positive[unit] += from->positive[unit];
}

int64_t ffni_stats_first_unit(const ffn_stats_t *stats, int64_t network) {
    return network * stats->d_ff;
}

int64_t ffni_stats_width(const ffn_stats_t *stats, int64_t network) {
    return stats->experts && network == stats->experts ? stats->d_shared : stats->d_ff;
}

static int64_t network_of(const ffn_stats_t *stats, int64_t unit) {
    return minimum(unit / stats->d_ff, stats->networks - 1);
}

/* Counters of a run have 32 bits. */
ffn_status_t ffni_stats_check(const ffn_stats_t *stats, int64_t experts, int64_t d_ff, int64_t d_shared, int64_t positions) {
    if (!stats) return FFN_OK;
    if (stats->experts != experts)
        return ffni_fail(FFN_INVALID, "the stats are for %" PRId64 " experts, the layer has %" PRId64, stats->experts, experts);
    if (stats->d_ff != d_ff) return ffni_fail(FFN_INVALID, "the stats are for a d_ff of %" PRId64 ", the layer has %" PRId64, stats->d_ff, d_ff);
    if (stats->d_shared != d_shared)
        return ffni_fail(FFN_INVALID, "the stats are for a d_shared of %" PRId64 ", the layer has %" PRId64, stats->d_shared, d_shared);
    if (positions > INT32_MAX)
        return ffni_fail(FFN_INVALID, "the run has %" PRId64 " positions, with stats it must have at most %" PRId32, positions, INT32_MAX);
    return FFN_OK;
}

/* Its sum is 0 where nothing is larger than 0. Most are so: threads begin at few of the chunks. */
static int is_empty(const activity_t *activity) {
    return activity->largest == 0 && !activity->non_finite;
}

void ffni_stats_add(ffn_stats_t *stats, int64_t first, int64_t units, const counts_t *counts) {
    const uint32_t *counted = counts->positive;
    int64_t *positive = stats->positive + first, chunks = ffni_counts_chunks(units); /* no store changes these: the loop is vectorised */
    for (int64_t unit = 0; unit < units; unit++) positive[unit] += counted[unit];
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        if (!is_empty(&counts->activity[chunk])) activity_merge(&stats->activity, &counts->activity[chunk]);
}

/* --------------------------------------------------------------------- Reading */

/* 0 / 0 is NaN here, as the interface has it. */
double ffni_stats_density(const ffn_stats_t *stats, int64_t unit) {
    return (double)stats->positive[unit] / (double)stats->positions[network_of(stats, unit)];
}

static double logit(double density) {
    const double floor = exp(-10);
    return log(density + floor) - log(1 - density + floor);
}

double ffni_stats_density_logit(const ffn_stats_t *stats, int64_t unit) {
    return logit(ffni_stats_density(stats, unit));
}

static double sum_of(const activity_t *activity) {
    double sum = 0;
    for (int word = 3; word >= 0; word--) sum = sum * 0x1p64 + (double)activity->sum[word];
    return sum / ACTIVITY_UNITS;
}

network_stats_t ffni_stats_network(const ffn_stats_t *stats, int64_t network) {
    int64_t positions = stats->positions[network], width = ffni_stats_width(stats, network);
    const int64_t *positive = stats->positive + ffni_stats_first_unit(stats, network);
    network_stats_t sum = {0};
    for (int64_t unit = 0; unit < width; unit++) {
        sum.positive += positive[unit];
        sum.dead_units += positions && !positive[unit];
    }
    sum.density = (double)sum.positive / ((double)positions * (double)width);
    return sum;
}

void ffni_stats_summary(const ffn_stats_t *stats, ffn_stats_info_t *info) {
    *info = (ffn_stats_info_t){.d_ff = stats->d_ff, .non_finite = stats->activity.non_finite, .largest = (double)stats->activity.largest,
                               .experts = stats->experts, .d_shared = stats->d_shared, .units = stats->units};
    for (int64_t network = 0; network < stats->networks; network++) {
        int64_t positions = stats->positions[network], width = ffni_stats_width(stats, network);
        network_stats_t sum = ffni_stats_network(stats, network);
        info->positions += positions;
        info->positive += sum.positive;
        info->dead_units += sum.dead_units;
        info->unseen_units += positions ? 0 : width;
        info->activations += positions * width;
    }
    info->density = (double)info->positive / (double)info->activations;
    info->mean = sum_of(&stats->activity) / ((double)info->activations - (double)info->non_finite);
}

/* edges NULL: equal bins over the whole range of the logit. */
typedef struct bins {
    int64_t count;
    const double *edges;
    double low, high;
} bins_t;

static double edge_of(const bins_t *bins, int64_t i) {
    if (bins->edges) return bins->edges[i];
    return i == bins->count ? bins->high : bins->low + (bins->high - bins->low) * ((double)i / (double)bins->count);
}

/* The last bin whose lower edge is not above the value; -1: outside. */
static int64_t bin_of(const bins_t *bins, double value) {
    int64_t low = 0, high = bins->count;
    if (!(value >= edge_of(bins, 0) && value <= edge_of(bins, bins->count))) return -1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (edge_of(bins, middle) <= value) low = middle;
        else high = middle;
    }
    return low;
}

void ffni_stats_histogram(const ffn_stats_t *stats, int64_t count, const double *edges, int64_t *counts) {
    const bins_t bins = {count, edges, logit(0), logit(1)};
    memset(counts, 0, (size_t)count * sizeof *counts);
    for (int64_t unit = 0; unit < stats->units; unit++) {
        int64_t bin = bin_of(&bins, ffni_stats_density_logit(stats, unit));
        if (bin >= 0) counts[bin]++;
    }
}
