/* SPDX-License-Identifier: MIT
 * Adding up the load block by block, and telling it. */
#include "cli/load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BAR = 50 }; /* characters of the busiest expert's */

int load_make(load_t *load, const ffn_layer_info_t *info) {
    *load = (load_t){.experts = info->experts ? info->experts + info->identity_experts : 0};
    if (!load->experts) return EXIT_FINE;
    load->counts = calloc((size_t)load->experts, sizeof *load->counts);
    return load->counts ? EXIT_FINE : complain_memory();
}

void load_free(load_t *load) {
    free(load->counts);
    *load = (load_t){0};
}

ffn_status_t load_run(load_t *load, const ffn_layer_t *layer, ffn_context_t *context, ffn_stats_t *stats, int64_t rows, const float *x, float *y) {
    int64_t counts[FFN_MOE_EXPERTS_MOST];
    ffn_moe_statistics_t statistics = {.struct_size = sizeof statistics};
    const ffn_moe_run_t moe = {.struct_size = sizeof moe, .counts = counts, .statistics = &statistics};
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = rows, .x = x, .y = y, .moe = load->experts ? &moe : NULL, .stats = stats};
    ffn_status_t status = ffn_layer_run(layer, context, &run);
    if (status || !load->experts) return status;
    for (int64_t e = 0; e < load->experts; e++) load->counts[e] += counts[e];
    load->tokens += statistics.tokens;
    load->assignments += statistics.assignments;
    load->dropped += statistics.dropped;
    load->lost_tokens += statistics.lost_tokens;
    load->router_entropy += statistics.router_entropy * (double)statistics.tokens;
    return FFN_OK;
}

double load_entropy(const load_t *load) {
    double entropy = 0;
    for (int64_t e = 0; e < load->experts; e++) {
        double share = load->assignments ? (double)load->counts[e] / (double)load->assignments : 0;
        if (share > 0) entropy -= share * log(share);
    }
    return entropy;
}

static double mean(double sum, int64_t count) {
    return count ? sum / (double)count : 0;
}

static int64_t idle_experts(const load_t *load) {
    int64_t idle = 0;
    for (int64_t e = 0; e < load->experts; e++) idle += !load->counts[e];
    return idle;
}

json_t *load_json(const load_t *load) {
    json_t *counts = json_array();
    for (int64_t e = 0; e < load->experts; e++) json_array_append_new(counts, json_integer(load->counts[e]));
    return json_pack("{s:o, s:f, s:f, s:o, s:I, s:I, s:I}", "tokens_per_expert", counts, "entropy", load_entropy(load), "entropy_most",
                     log((double)load->experts), "router_entropy", json_figure(mean(load->router_entropy, load->tokens)), "dropped",
                     (json_int_t)load->dropped, "lost_tokens", (json_int_t)load->lost_tokens, "idle_experts", (json_int_t)idle_experts(load));
}

static void print_experts(const load_t *load, const units_t *units) {
    int64_t largest = 0, weighted = units ? units->info.experts : 0; /* identities have no units */
    table_t table = table_make(units ? "rrrrrrl" : "rrrl");
    char bar[BAR + 1];
    table_add(&table, "expert");
    table_add(&table, "tokens");
    table_add(&table, "share");
    if (units) units_add_heading(&table);
    table_add(&table, "%s", "");
    for (int64_t e = 0; e < load->experts; e++)
        if (load->counts[e] > largest) largest = load->counts[e];
    for (int64_t e = 0; e < load->experts; e++) {
        int width = largest ? (int)(((double)load->counts[e] / (double)largest) * BAR + 0.5) : 0;
        for (int i = 0; i < BAR; i++) bar[i] = '#';
        bar[width] = 0;
        table_add(&table, "%" PRId64, e);
        table_add(&table, "%s", grouped(load->counts[e]).text);
        table_add(&table, "%s", percent((double)load->counts[e], (double)load->assignments).text);
        if (units) units_add_network(&table, units, e < weighted ? e : -1);
        table_add(&table, "%s", bar);
    }
    if (units && units->networks > weighted) { /* no router chooses them */
        table_add(&table, "shared");
        table_add(&table, "%s", grouped(units->positions[weighted]).text);
        table_add(&table, "-");
        units_add_network(&table, units, weighted);
        table_add(&table, "%s", "");
    }
    table_print(&table);
}

void load_print(const load_t *load, const units_t *units) {
    print_experts(load, units);
    printf("entropy %.3f of at most %.3f nats, of a token's scores %.3f; %s choice%s dropped, %s token%s without an expert, %" PRId64 " idle expert%s\n",
           load_entropy(load), log((double)load->experts), mean(load->router_entropy, load->tokens), grouped(load->dropped).text,
           load->dropped == 1 ? "" : "s", grouped(load->lost_tokens).text, load->lost_tokens == 1 ? "" : "s", idle_experts(load),
           idle_experts(load) == 1 ? "" : "s");
}
