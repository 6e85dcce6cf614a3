/* SPDX-License-Identifier: MIT
 * Reading the counts of a layer's hidden units, and telling those of each expert. */
#include "cli/units.h"

#include <stdlib.h>

int units_read(units_t *units, const ffn_stats_t *stats) {
    *units = (units_t){.info.struct_size = sizeof units->info};
    if (ffn_stats_info(stats, &units->info)) return complain("%s", ffn_last_error());
    const ffn_stats_info_t *info = &units->info;
    units->networks = info->experts ? info->experts + (info->d_shared > 0) : 1;
    units->positions = calloc((size_t)units->networks, sizeof *units->positions);
    units->dead_units = calloc((size_t)units->networks, sizeof *units->dead_units);
    units->density = calloc((size_t)units->networks, sizeof *units->density);
    if (!units->positions || !units->dead_units || !units->density) return complain_memory();
    if (ffn_stats_experts(stats, units->positions, units->density, units->dead_units)) return complain("%s", ffn_last_error());
    return EXIT_FINE;
}

void units_free(units_t *units) {
    free(units->positions);
    free(units->dead_units);
    free(units->density);
    *units = (units_t){0};
}

/* All units of a network have the same positions. */
static int64_t unseen_units(const units_t *units, int64_t network) {
    int shared = units->info.experts && network == units->info.experts;
    return units->positions[network] ? 0 : shared ? units->info.d_shared : units->info.d_ff;
}

void units_add_heading(table_t *table) {
    table_add(table, "density");
    table_add(table, "dead units");
    table_add(table, "unseen units");
}

void units_add_network(table_t *table, const units_t *units, int64_t network) {
    int seen = network >= 0 && units->positions[network];
    table_add(table, "%s", seen ? percent(units->density[network], 1).text : "-");
    table_add(table, "%s", seen ? grouped(units->dead_units[network]).text : "-");
    table_add(table, "%s", network >= 0 ? grouped(unseen_units(units, network)).text : "-");
}

json_t *units_network_json(const units_t *units, int64_t network) {
    return json_pack("{s:I, s:o, s:I, s:I}", "positions", (json_int_t)units->positions[network], "density", json_figure(units->density[network]),
                     "dead_units", (json_int_t)units->dead_units[network], "unseen_units", (json_int_t)unseen_units(units, network));
}
