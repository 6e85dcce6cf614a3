/* SPDX-License-Identifier: MIT
 * The experts of the native engine.
 *
 * An item is some rows of one expert. Where there are many, or one thread, each thread takes an item after the other, with memory of its own, the
 * largest first. Where few items would leave threads waiting for the largest - one token, or one expert that most choose - the threads share all of
 * them, panel group by panel group: the hidden units of all items, then their down products, with one wait between. */
#include "core/moe.h"

#include "base/checked.h"
#include "core/groups.h"
#include "core/parallel.h"
#include "core/tiling.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    /* An item that is one thread's takes at the most 1 / ITEMS_PER_SLOT of what each thread has to do. */
    ITEMS_PER_SLOT = 4,
    /* Rows that take the time of one: fewer are bound by reading the weights. */
    ROWS_OF_ONE = 4,
    /* Multiply-adds that are worth waking a thread for, as in core/plan.c. */
    SHARED_WORK = 1 << 20
};

/* Memory of one item. */
typedef struct place {
    float *input;  /* [rows, d_in] in tiles */
    float *scaled; /* a row */
    hidden_t hidden;
} place_t;

/* The two projections of items that threads share. */
enum { HIDDEN, DOWN };

/* Where an item's rows begin, and its groups of panels. */
typedef struct begin {
    int64_t row, group[2];
} begin_t;

/* Items that threads share: each with rows of its own in one place. */
typedef struct shared {
    int64_t rows;    /* that there is room for */
    place_t place;   /* of all; scaled: a row for each item */
    begin_t *begins; /* [items + 1]; NULL: threads do not share items */
    counter_t *counters;
} shared_t;

typedef struct scratch {
    place_t *own; /* per slot */
    float *sums;  /* per slot: of a group, and behind them the counters of its columns */
    int64_t sums_step, counters_at, columns;
    shared_t shared;
} scratch_t;

typedef struct work {
    const moe_pass_t *pass;
    scratch_t scratch;
    int64_t slots;
    atomic_int_fast64_t next; /* item */
    pthread_mutex_t *counting; /* held to add to the stats: an expert's rows may be with two threads */
} work_t;

/* ---------------------------------------------------------------------- Memory */

static int64_t widest_in(const ffn_layer_t *layer) {
    return maximum(layer->sizes.of[EXTENT_EXPERT_IN], layer->shared.d_in);
}

static int64_t widest_ff(const ffn_layer_t *layer) {
    return maximum(layer->d_ff, layer->shared.d_ff);
}

static int scales_input(const ffn_layer_t *layer) {
    return (layer->mixture.flags & FFN_MOE_WEIGHT_ON_INPUT) != 0;
}

static place_t lay_out_place(const ffn_layer_t *layer, int64_t rows, int64_t scaled_rows, arena_t *arena) {
    const int64_t element = sizeof(float);
    place_t place = {.input = ffni_arena_take(arena, ffni_tiled_size(rows, widest_in(layer)), element)};
    if (scales_input(layer)) place.scaled = ffni_arena_take(arena, scaled_rows * widest_in(layer), element);
    place.hidden.tiled = ffni_arena_take(arena, ffni_tiled_size(rows, widest_ff(layer)), element);
    if (layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE) place.hidden.rows = ffni_arena_take(arena, rows * layer->d_ff, element);
    return place;
}

/* The most rows that threads may come to share: beyond, no item is more than its part of a thread's work. */
static int64_t shared_rows(const ffn_layer_t *layer, const moe_plan_t *plan) {
    int64_t all = plan->chunk * (plan->top_k + (layer->shared.d_ff > 0));
    return plan->slots > 1 ? minimum(all, WHOLE_ROWS_MOST * ITEMS_PER_SLOT * plan->slots) : 0;
}

static shared_t lay_out_shared(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena) {
    shared_t shared = {.rows = shared_rows(layer, plan)};
    if (!shared.rows) return shared;
    shared.place = lay_out_place(layer, shared.rows, shared.rows, arena);
    shared.begins = ffni_arena_take(arena, shared.rows + 1, sizeof *shared.begins); /* every item has a row */
    shared.counters = ffni_arena_take(arena, plan->slots, sizeof *shared.counters);
    return shared;
}

static scratch_t lay_out(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena) {
    int64_t own_rows = minimum(plan->chunk, WHOLE_ROWS_MOST), rows = plan->slots > 1 ? minimum(plan->chunk, MOE_ROWS_MOST) : own_rows;
    int64_t sums = ffni_group_sums(layer->kernels, rows), columns = GROUP_PANELS_MOST * layer->kernels->panel_width;
    arena_t counters = {0};
    ffni_counts_lay_out(columns, &counters);
    scratch_t scratch = {.own = ffni_arena_take(arena, plan->slots, sizeof *scratch.own), .counters_at = sums, .columns = columns,
                         .sums_step = sums + (int64_t)(counters.used / sizeof *scratch.sums)};
    for (int64_t slot = 0; slot < plan->slots; slot++) {
        place_t place = lay_out_place(layer, own_rows, 1, arena);
        if (scratch.own) scratch.own[slot] = place;
    }
    scratch.sums = ffni_arena_take(arena, plan->slots * scratch.sums_step, sizeof(float));
    scratch.shared = lay_out_shared(layer, plan, arena);
    return scratch;
}

uint64_t ffni_moe_native_bytes(const ffn_layer_t *layer, const moe_plan_t *plan) {
    arena_t measure = {0};
    lay_out(layer, plan, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* ------------------------------------------------------------------------ Rows */

/* What row `row` of an item reads. */
static const float *input_row(const moe_pass_t *pass, const moe_item_t *item, int64_t row, float *scaled) {
    int64_t position = item->first + row, width = pass->layer->sizes.of[EXTENT_EXPERT_IN];
    if (item->expert == MOE_SHARED) return moe_input(pass, position);
    const float *input = ffni_moe_expert_input(pass, pass->memory.order[position] / pass->plan.top_k);
    if (!scaled) return input;
    float weight = ffni_moe_input_weight(pass, position);
    pass->layer->kernels->mix(width, scaled, 1, &input, &weight);
    return scaled;
}

/* One row in a tile is a plain row: read where it is. */
static const float *gather(const moe_pass_t *pass, const moe_item_t *item, const network_t *network, const tiling_t *tiling, const place_t *place) {
    if (item->rows == 1) return input_row(pass, item, 0, place->scaled);
    for (int64_t tile = 0; tile < tiling->tiles; tile++)
        for (int64_t i = 0; i < ffni_tile_rows(tiling, tile); i++)
            ffni_tile_put_row(tiling, place->input, network->d_in, tile, i, input_row(pass, item, ffni_tile_start(tiling, tile) + i, place->scaled));
    return place->input;
}

static void normalise_hidden(const network_t *network, const tiling_t *tiling, const hidden_t *hidden) {
    for (int64_t tile = 0; network->has_norm && tile < tiling->tiles; tile++) ffni_network_normalise_tile(network, tiling, hidden, tile);
}

/* A group of the down projection, into the rows that wait to be combined. */
static void project_down(const moe_pass_t *pass, const moe_item_t *item, const network_t *network, const tiling_t *tiling, const hidden_t *hidden,
                         int64_t first, int64_t panels, float *sums) {
    int64_t width = network->kernels->panel_width, column = first * width, columns = minimum(panels * width, network->d_out - column);
    float *out = (item->expert == MOE_SHARED ? pass->memory.shared : pass->memory.rows) + item->first * network->d_out;
    ffni_network_down(network, tiling, hidden, first, panels, sums);
    for (int64_t row = 0; row < item->rows; row++)
        network->kernels->combine(columns, out + row * network->d_out + column, sums + row * panels * width,
                                  network->down_bias ? network->down_bias + column : NULL, NULL, NULL, NULL);
}

static network_t network_of(const ffn_layer_t *layer, const moe_item_t *item) {
    return item->expert == MOE_SHARED ? layer->shared : ffni_layer_expert(layer, item->expert);
}

/* ------------------------------------------------------------------ Hidden units */

/* One item, as a thread sees it. */
typedef struct item_view {
    const moe_item_t *item;
    network_t network;
    tiling_t tiling;
    place_t place;
    int64_t in_group, down_group; /* panels */
} item_view_t;

static void count_hidden(const work_t *work, const item_view_t *view, const float *input, int64_t first, int64_t panels, float *sums) {
    const network_t *network = &view->network;
    int64_t width = network->kernels->panel_width, turns = 1 + network->gated, column = first / turns * width;
    int64_t columns = minimum(panels / turns * width, network->d_ff - column);
    arena_t arena = {.base = (char *)(sums + work->scratch.counters_at)};
    const counts_t counts = ffni_counts_lay_out(work->scratch.columns, &arena);
    hidden_t hidden = view->place.hidden;
    hidden.counts = &counts, hidden.counts_column = column, hidden.counted = ffni_moe_counted(work->pass, view->item->expert, view->item->first);
    ffni_counts_clear(&counts, columns);
    ffni_network_hidden(network, &view->tiling, input, &hidden, first, panels, sums);
    pthread_mutex_lock(work->counting);
    ffni_moe_add_counts(work->pass, view->item->expert, column, columns, &counts);
    pthread_mutex_unlock(work->counting);
}

/* Of some panels of gate and up. */
static void compute_hidden(const work_t *work, const item_view_t *view, const float *input, int64_t first, int64_t panels, float *sums) {
    if (work->pass->forward->stats) count_hidden(work, view, input, first, panels, sums);
    else ffni_network_hidden(&view->network, &view->tiling, input, &view->place.hidden, first, panels, sums);
}

/* ------------------------------------------------------- Items of one thread each */

static void run_item(const work_t *work, const moe_item_t *item, const place_t *place, float *sums) {
    const moe_pass_t *pass = work->pass;
    item_view_t view = {.item = item, .network = network_of(pass->layer, item), .place = *place};
    const network_t *network = &view.network;
    const tiling_t tiling = view.tiling = ffni_tiling_of(network->kernels, item->rows);
    if (!network->has_norm) view.place.hidden.rows = NULL;
    const float *input = gather(pass, item, network, &tiling, place);
    int64_t group = ffni_tiling_group(&tiling);
    for (int64_t first = 0; first < network->in_panels; first += group)
        compute_hidden(work, &view, input, first, minimum(group, network->in_panels - first), sums);
    normalise_hidden(network, &tiling, &view.place.hidden);
    for (int64_t first = 0; first < network->down_panels; first += group)
        project_down(pass, item, network, &tiling, &view.place.hidden, first, minimum(group, network->down_panels - first), sums);
}

static void work_on_items(void *data, int64_t slot) {
    work_t *work = data;
    const moe_pass_t *pass = work->pass;
    int64_t index;
    while ((index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) < pass->item_count)
        run_item(work, &pass->memory.items[index], &work->scratch.own[slot], work->scratch.sums + slot * work->scratch.sums_step);
}

/* ------------------------------------------------------ Items that threads share */

static item_view_t view_item(const work_t *work, int64_t index) {
    const moe_pass_t *pass = work->pass;
    const shared_t *shared = &work->scratch.shared;
    const moe_item_t *item = &pass->memory.items[index];
    item_view_t view = {.item = item, .network = network_of(pass->layer, item)};
    const network_t *network = &view.network;
    int64_t row = shared->begins[index].row, least = 1 + network->gated, in_width = round_up(widest_in(pass->layer), TILE_CHUNK);
    view.tiling = ffni_tiling_of(network->kernels, item->rows);
    view.place.input = shared->place.input + row * in_width;
    if (shared->place.scaled) view.place.scaled = shared->place.scaled + row * widest_in(pass->layer);
    view.place.hidden.tiled = shared->place.hidden.tiled + row * round_up(widest_ff(pass->layer), TILE_CHUNK);
    if (network->has_norm) view.place.hidden.rows = shared->place.hidden.rows + row * network->d_ff;
    /* Of all items together: many items need no small groups. */
    view.in_group = ffni_group_panels(work->slots, network->in_panels * pass->item_count, ffni_tiling_group(&view.tiling), least);
    view.down_group = ffni_group_panels(work->slots, network->down_panels * pass->item_count, ffni_tiling_group(&view.tiling), 1);
    return view;
}

/* The item that a group of a projection belongs to. */
static int64_t item_of_group(const work_t *work, int projection, int64_t group) {
    int64_t low = 0, high = work->pass->item_count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (work->scratch.shared.begins[middle].group[projection] <= group) low = middle;
        else high = middle;
    }
    return low;
}

static void gather_items(void *data, int64_t begin, int64_t end) {
    const work_t *work = data;
    for (int64_t index = begin; index < end; index++) {
        item_view_t view = view_item(work, index);
        gather(work->pass, view.item, &view.network, &view.tiling, &view.place);
    }
}

static void normalise_items(void *data, int64_t begin, int64_t end) {
    const work_t *work = data;
    for (int64_t index = begin; index < end; index++) {
        item_view_t view = view_item(work, index);
        normalise_hidden(&view.network, &view.tiling, &view.place.hidden);
    }
}

/* What was gathered for an item. */
static const float *gathered(const moe_pass_t *pass, const item_view_t *view) {
    if (view->item->rows > 1) return view->place.input;
    if (view->place.scaled && view->item->expert != MOE_SHARED) return view->place.scaled;
    return input_row(pass, view->item, 0, NULL);
}

static void hidden_group(const void *data, int64_t group, float *sums) {
    const work_t *work = data;
    int64_t index = item_of_group(work, HIDDEN, group);
    item_view_t view = view_item(work, index);
    int64_t first = (group - work->scratch.shared.begins[index].group[HIDDEN]) * view.in_group;
    compute_hidden(work, &view, gathered(work->pass, &view), first, minimum(view.in_group, view.network.in_panels - first), sums);
}

static void down_group(const void *data, int64_t group, float *sums) {
    const work_t *work = data;
    int64_t index = item_of_group(work, DOWN, group);
    item_view_t view = view_item(work, index);
    int64_t first = (group - work->scratch.shared.begins[index].group[DOWN]) * view.down_group;
    project_down(work->pass, view.item, &view.network, &view.tiling, &view.place.hidden, first,
                 minimum(view.down_group, view.network.down_panels - first), sums);
}

static void number_groups(const work_t *work) {
    begin_t *begins = work->scratch.shared.begins;
    begins[0] = (begin_t){0, {0, 0}};
    for (int64_t index = 0; index < work->pass->item_count; index++) {
        item_view_t view = view_item(work, index);
        begins[index + 1] = (begin_t){begins[index].row + view.item->rows,
                                      {begins[index].group[HIDDEN] + groups_of(view.network.in_panels, view.in_group),
                                       begins[index].group[DOWN] + groups_of(view.network.down_panels, view.down_group)}};
    }
}

static void each_group_of_items(const work_t *work, int projection, group_fn *function) {
    const scratch_t *scratch = &work->scratch;
    groups_t groups = {.data = work, .work = function, .count = scratch->shared.begins[work->pass->item_count].group[projection],
                       .slots = work->slots, .counters = scratch->shared.counters, .sums = scratch->sums, .sums_step = scratch->sums_step};
    ffni_each_group(work->pass->context, &groups);
}

static void share_items(work_t *work) {
    const moe_pass_t *pass = work->pass;
    int64_t items = pass->item_count, most_rows = pass->memory.items[0].rows;
    number_groups(work);
    ffni_parallel_rows(pass->context, items, widest_in(pass->layer) * most_rows, gather_items, work);
    each_group_of_items(work, HIDDEN, hidden_group);
    if (pass->layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE)
        ffni_parallel_rows(pass->context, items, pass->layer->d_ff * most_rows, normalise_items, work);
    each_group_of_items(work, DOWN, down_group);
}

/* --------------------------------------------------------------------- Choice */

static double size_of(const network_t *network) {
    return (double)network->d_ff * (double)(network->d_in * (1 + network->gated) + network->d_out);
}

/* Work of an item, in multiply-adds. */
static double cost_of(const moe_pass_t *pass, const moe_item_t *item) {
    network_t network = network_of(pass->layer, item);
    return size_of(&network) * (double)maximum(item->rows, ROWS_OF_ONE);
}

/* Whether threads would wait long for the one that has the largest item. */
static int is_better_shared(const work_t *work) {
    const moe_pass_t *pass = work->pass;
    double most = 0, total = 0;
    int64_t rows = 0;
    for (int64_t index = 0; index < pass->item_count; index++) {
        double cost = cost_of(pass, &pass->memory.items[index]);
        if (cost > most) most = cost;
        total += cost;
        rows += pass->memory.items[index].rows;
    }
    return rows <= work->scratch.shared.rows && most * ITEMS_PER_SLOT * (double)work->slots > total;
}

static int64_t useful_slots(const moe_pass_t *pass) {
    double work = 0;
    for (int64_t index = 0; index < pass->item_count && work < SHARED_WORK; index++) work += cost_of(pass, &pass->memory.items[index]);
    return work < SHARED_WORK ? 1 : pass->plan.slots;
}

static void work_on_chunk(moe_pass_t *pass, work_t *work) {
    work->slots = useful_slots(pass);
    if (work->scratch.shared.begins && work->slots > 1 && is_better_shared(work)) {
        ffni_moe_cut(pass, MOE_ROWS_MOST);
        share_items(work);
        return;
    }
    atomic_init(&work->next, 0);
    ffni_parallel_slots(pass->context, minimum(work->slots, pass->item_count), work_on_items, work);
}

void ffni_moe_native_experts(moe_pass_t *pass) {
    pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
    arena_t arena = {.base = pass->memory.engine};
    work_t work = {.pass = pass, .scratch = lay_out(pass->layer, &pass->plan, &arena), .counting = &counting};
    ffni_moe_dispatch(pass);
    ffni_moe_cut(pass, WHOLE_ROWS_MOST);
    if (pass->item_count) work_on_chunk(pass, &work);
    pthread_mutex_destroy(&counting);
}
