/* SPDX-License-Identifier: MIT
 * ffn_stats_*: check, then call core. */
#include <ffn/ffn.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/stats.h"

#include <inttypes.h>

ffn_status_t ffn_stats_create(const ffn_stats_options_t *options, ffn_stats_t **stats) {
    if (!stats) return ffni_fail(FFN_INVALID, "the pointer to the stats is NULL");
    *stats = NULL;
    return ffni_stats_new(options, stats);
}

void ffn_stats_free(ffn_stats_t *stats) {
    ffni_stats_delete(stats);
}

static ffn_status_t check(const ffn_stats_t *stats) {
    return stats ? FFN_OK : ffni_fail(FFN_INVALID, "stats is NULL");
}

ffn_status_t ffn_stats_reset(ffn_stats_t *stats) {
    ffn_status_t status = check(stats);
    if (!status) ffni_stats_reset(stats);
    return status;
}

ffn_status_t ffn_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from) {
    ffn_status_t status = check(stats);
    if (status) return status;
    if (!from) return ffni_fail(FFN_INVALID, "the stats to add are NULL");
    if (from == stats) return ffni_fail(FFN_INVALID, "the stats to add are the same");
    if (from->experts != stats->experts)
        return ffni_fail(FFN_INVALID, "the stats to add are for %" PRId64 " experts, must be for %" PRId64, from->experts, stats->experts);
    if (from->d_ff != stats->d_ff)
        return ffni_fail(FFN_INVALID, "the stats to add are for a d_ff of %" PRId64 ", must be for %" PRId64, from->d_ff, stats->d_ff);
    if (from->d_shared != stats->d_shared)
        return ffni_fail(FFN_INVALID, "the stats to add are for a d_shared of %" PRId64 ", must be for %" PRId64, from->d_shared, stats->d_shared);
    ffni_stats_merge(stats, from);
    return FFN_OK;
}

ffn_status_t ffn_stats_info(const ffn_stats_t *stats, ffn_stats_info_t *info) {
    ffn_stats_info_t known;
    ffn_status_t status = check(stats);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    ffni_stats_summary(stats, &known);
    fpenv_leave(saved);
    return ffni_struct_write(info, &known, sizeof known, "ffn_stats_info_t");
}

ffn_status_t ffn_stats_units(const ffn_stats_t *stats, int64_t *positive, double *density, double *density_logit) {
    ffn_status_t status = check(stats);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    for (int64_t unit = 0; unit < stats->units; unit++) {
        if (positive) positive[unit] = stats->positive[unit];
        if (density) density[unit] = ffni_stats_density(stats, unit);
        if (density_logit) density_logit[unit] = ffni_stats_density_logit(stats, unit);
    }
    fpenv_leave(saved);
    return FFN_OK;
}

ffn_status_t ffn_stats_experts(const ffn_stats_t *stats, int64_t *positions, double *density, int64_t *dead_units) {
    ffn_status_t status = check(stats);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    for (int64_t network = 0; network < stats->networks; network++) {
        network_stats_t sum = ffni_stats_network(stats, network);
        if (positions) positions[network] = stats->positions[network];
        if (density) density[network] = sum.density;
        if (dead_units) dead_units[network] = sum.dead_units;
    }
    fpenv_leave(saved);
    return FFN_OK;
}

static ffn_status_t check_edges(int64_t bins, const double *edges) {
    const int64_t limit = 1 << 20;
    if (bins < 1 || bins > limit) return ffni_fail(FFN_INVALID, "bins is %" PRId64 ", must be 1 to %" PRId64, bins, limit);
    for (int64_t i = 0; edges && i < bins; i++)
        if (!(edges[i] < edges[i + 1]))
            return ffni_fail(FFN_INVALID, "edges[%" PRId64 "] is %s, must be above edges[%" PRId64 "], which is %s", i + 1,
                             ffni_number(edges[i + 1]).text, i, ffni_number(edges[i]).text);
    return FFN_OK;
}

ffn_status_t ffn_stats_histogram(const ffn_stats_t *stats, int64_t bins, const double *edges, int64_t *counts) {
    ffn_status_t status = check(stats);
    if (status) return status;
    if (!counts) return ffni_fail(FFN_INVALID, "counts is NULL");
    fpenv_t saved = fpenv_enter();
    status = check_edges(bins, edges);
    if (!status) ffni_stats_histogram(stats, bins, edges, counts);
    fpenv_leave(saved);
    return status;
}
