/* SPDX-License-Identifier: MIT
 * Collecting counts, and what is read from them. */
#include "core/stats.h"

#include "base/alloc.h"
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
    return ffni_allocator_read(options->allocator, allocator);
}

ffn_status_t ffni_stats_new(const ffn_stats_options_t *given, ffn_stats_t **stats) {
    ffn_stats_options_t options;
    ffn_allocator_t allocator;
    ffn_status_t status = read_options(given, &options, &allocator);
    if (status) return status;
    uint64_t bytes = sizeof **stats + (uint64_t)options.d_ff * sizeof *(*stats)->positive;
    ffn_stats_t *made = ffni_allocate(&allocator, bytes, "stats");
    if (!made) return FFN_NO_MEMORY;
    *made = (ffn_stats_t){.allocator = allocator, .bytes = bytes, .d_ff = options.d_ff, .positive = (int64_t *)(void *)(made + 1)};
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
    stats->positions = 0;
    stats->activity = (activity_t){0};
    memset(stats->positive, 0, (size_t)stats->d_ff * sizeof *stats->positive);
}

void ffni_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from) {
    stats->positions += from->positions;
    activity_merge(&stats->activity, &from->activity);
    for (int64_t unit = 0; unit < stats->d_ff; unit++) stats->positive[unit] += from->positive[unit];
}

/* Its sum is 0 where nothing is larger than 0. Most are so: threads begin at few of the chunks. */
static int is_empty(const activity_t *activity) {
    return activity->largest == 0 && !activity->non_finite;
}

void ffni_stats_add(ffn_stats_t *stats, const counts_t *counts) {
    const uint32_t *counted = counts->positive;
    int64_t *positive = stats->positive, units = stats->d_ff, chunks = ffni_counts_chunks(units); /* no store changes these: the loop is vectorised */
    for (int64_t unit = 0; unit < units; unit++) positive[unit] += counted[unit];
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        if (!is_empty(&counts->activity[chunk])) activity_merge(&stats->activity, &counts->activity[chunk]);
}

/* --------------------------------------------------------------------- Reading */

/* 0 / 0 is NaN here, as the interface has it. */
double ffni_stats_density(const ffn_stats_t *stats, int64_t unit) {
    return (double)stats->positive[unit] / (double)stats->positions;
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

void ffni_stats_summary(const ffn_stats_t *stats, ffn_stats_info_t *info) {
    double all = (double)stats->positions * (double)stats->d_ff;
    *info = (ffn_stats_info_t){.d_ff = stats->d_ff, .positions = stats->positions, .non_finite = stats->activity.non_finite,
                               .largest = (double)stats->activity.largest};
    for (int64_t unit = 0; unit < stats->d_ff; unit++) {
        info->positive += stats->positive[unit];
        info->dead_units += stats->positions && !stats->positive[unit];
    }
    info->density = (double)info->positive / all;
    info->mean = sum_of(&stats->activity) / (all - (double)stats->activity.non_finite);
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
    for (int64_t unit = 0; unit < stats->d_ff; unit++) {
        int64_t bin = bin_of(&bins, ffni_stats_density_logit(stats, unit));
        if (bin >= 0) counts[bin]++;
    }
}
