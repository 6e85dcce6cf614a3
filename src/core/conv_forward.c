/* SPDX-License-Identifier: MIT
 * The forward pass of a convolutional layer.
 *
 * Each block of rows of y takes the hidden rows that its taps reach: those that the block before has computed stay in a window, the others are computed,
 * from the rows of x that their taps reach. Products by the engine, everything else on the context's threads. */
#include "core/conv_forward.h"

#include "base/arena.h"
#include "base/checked.h"
#include "core/parallel.h"
#include "core/watch.h"

typedef struct scratch {
    float *input;  /* [hidden rows, depth of the first product], where that is not x itself */
    float *hidden; /* the window, [hidden rows, width] */
    float *second; /* [rows, depth of the second product], where that is not the window itself */
    float *value;  /* [rows, width] */
    float *tiles;
    counts_t counts;
    uint8_t *counted; /* [hidden rows] */
} scratch_t;

typedef struct forward_block {
    conv_pass_t pass;
    const rows_t *y;
    ffn_tape_t *tape; /* NULL: none, or it keeps no pre-activations */
    ffn_stats_t *stats; /* NULL: nothing is counted */
    scratch_t scratch;
    window_t hidden;
    span_t span;
} forward_block_t;

/* Hidden rows that a block of so many can need. */
static int64_t hidden_rows(const ffn_conv_t *conv, int64_t count, int64_t rows) {
    return minimum(count, rows + conv->part[SECOND].kernel - 1);
}

static scratch_t lay_out(const ffn_conv_t *conv, int64_t count, int64_t rows, arena_t *arena) {
    const convolution_t *first = &conv->part[FIRST], *second = &conv->part[SECOND];
    const int64_t element = sizeof(float), many = hidden_rows(conv, count, rows);
    scratch_t scratch = {0};
    scratch.input = ffni_arena_take(arena, many, first->depth * element);
    scratch.hidden = ffni_arena_take(arena, many, first->width * element);
    if (ffni_conv_takes_scratch(second)) scratch.second = ffni_arena_take(arena, rows, second->depth * element);
    scratch.value = ffni_arena_take(arena, rows, second->width * element);
    scratch.tiles = ffni_arena_take(arena, maximum(ffni_conv_tiles_size(conv, first, many), ffni_conv_tiles_size(conv, second, rows)), element);
    scratch.counts = ffni_counts_lay_out(conv->sizes.d_ff, arena);
    scratch.counted = ffni_arena_take(arena, many, 1);
    return scratch;
}

static uint64_t bytes_of(const ffn_conv_t *conv, int64_t count, int64_t rows) {
    arena_t measure = {0};
    lay_out(conv, count, rows, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

ffn_status_t ffni_conv_rows(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, int64_t most, conv_bytes_fn *bytes, int64_t *rows) {
    while (most && context->scratch_limit && bytes(conv, count, minimum(most, count)) > context->scratch_limit) most /= 2;
    if (!most) return ffni_context_limit_error(context, bytes(conv, count, 1));
    int64_t blocks = (count - 1) / most + 1;
    *rows = (count - 1) / blocks + 1;
    return FFN_OK;
}

/* The native engine's hidden rows stay in the caches: in blocks of 512 rows it took 1.05x to 1.2x of the time (512-2048 and 384-1536, one thread). */
static int64_t most_rows(const ffn_conv_t *conv, const ffn_context_t *context) {
    return conv->engine == FFN_ENGINE_NATIVE ? minimum(CONV_ROWS, CONV_NATIVE_ROWS * (int64_t)context->threads_requested) : CONV_ROWS;
}

/* What is enough for many rows is for fewer. */
ffn_status_t ffni_conv_forward_scratch(const ffn_conv_t *conv, const ffn_context_t *context, int64_t count, uint64_t *bytes) {
    int64_t rows;
    *bytes = 0;
    if (!count) return FFN_OK;
    ffn_status_t status = ffni_conv_rows(conv, context, INT64_MAX, most_rows(conv, context), bytes_of, &rows);
    if (status) return status;
    *bytes = bytes_of(conv, count, minimum(count, most_rows(conv, context)));
    if (context->scratch_limit && *bytes > context->scratch_limit) *bytes = context->scratch_limit;
    return FFN_OK;
}

static float *kept_row(const forward_block_t *block, int64_t row) {
    return block->tape->hidden + row * block->pass.conv->sizes.d_ff;
}

typedef struct rows_task {
    const forward_block_t *block;
    int64_t first;
} rows_task_t;

static void activate_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const forward_block_t *block = task->block;
    for (int64_t row = task->first + begin; row < task->first + end; row++) {
        float *act = window_row(&block->hidden, row), *hidden = block->tape ? kept_row(block, row) : act;
        ffni_conv_prepare_hidden(&block->pass, row, hidden);
        ffni_conv_activate(&block->pass, row, act, hidden);
    }
}

/* The same in three passes where activations are counted: what the scale and dropout do goes by rows, counting by columns. */
static void prepare_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const forward_block_t *block = task->block;
    for (int64_t row = task->first + begin; row < task->first + end; row++)
        ffni_conv_prepare_hidden(&block->pass, row, block->tape ? kept_row(block, row) : window_row(&block->hidden, row));
}

static void drop_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const forward_block_t *block = task->block;
    for (int64_t row = task->first + begin; row < task->first + end; row++) ffni_conv_drop_hidden(&block->pass, row, window_row(&block->hidden, row));
}

static void activate_and_count(rows_task_t *task, int64_t rows) {
    const forward_block_t *block = task->block;
    const conv_pass_t *pass = &block->pass;
    const ffn_conv_t *conv = pass->conv;
    const network_t network = {.kernels = conv->kernels, .activation = conv->activation, .d_ff = conv->sizes.d_ff};
    uint8_t *counted = block->scratch.counted;
    float *act = window_row(&block->hidden, task->first), *hidden = block->tape ? kept_row(block, task->first) : act;
    for (int64_t i = 0; i < rows; i++) {
        counted[i] = !ffni_conv_is_padding(pass, task->first + i);
        block->stats->positions[0] += counted[i];
    }
    const watched_rows_t watched = {.network = &network, .counts = &block->scratch.counts, .counted = pass->mask ? counted : NULL, .rows = rows,
                                    .hidden = hidden, .hidden_stride = block->tape ? network.d_ff : block->hidden.stride,
                                    .bias = ffni_conv_hidden_bias(pass), .out = act, .out_stride = block->hidden.stride};
    ffni_parallel_rows(pass->context, rows, network.d_ff, prepare_rows, task);
    ffni_watch_rows(pass->context, &watched);
    ffni_parallel_rows(pass->context, rows, network.d_ff, drop_rows, task);
}

static void finish_rows(void *data, int64_t begin, int64_t end) {
    const rows_task_t *task = data;
    const forward_block_t *block = task->block;
    const convolution_t *second = &block->pass.conv->part[SECOND];
    for (int64_t i = begin; i < end; i++) {
        float *y = rows_at(block->y, task->first + i);
        block->pass.conv->kernels->combine(second->out, y, block->scratch.value + i * second->width, second->bias, second->scale, NULL, NULL);
        ffni_conv_drop_output(&block->pass, task->first + i, y);
    }
}

static void extend_hidden(forward_block_t *block) {
    const conv_pass_t *pass = &block->pass;
    const convolution_t *first = &pass->conv->part[FIRST];
    stencil_t stencil = ffni_conv_stencil(&pass->conv->part[SECOND]);
    span_t added = ffni_window_move(&block->hidden, ffni_conv_reach(pass, &stencil, block->span));
    int64_t rows = span_rows(added);
    if (!rows) return;
    const row_source_t x = {.rows = pass->x, .masked = first->masked && pass->mask};
    operand_t input = ffni_conv_take(pass, first, &x, added, block->scratch.input);
    ffni_conv_multiply(pass, first, rows, input, block->scratch.tiles,
                       block->tape ? kept_row(block, added.begin) : window_row(&block->hidden, added.begin));
    rows_task_t task = {block, added.begin};
    if (block->stats) activate_and_count(&task, rows);
    else ffni_parallel_rows(pass->context, rows, first->out, activate_rows, &task);
}

static void run_block(forward_block_t *block) {
    const conv_pass_t *pass = &block->pass;
    const convolution_t *second = &pass->conv->part[SECOND];
    const row_source_t hidden = {.window = &block->hidden, .masked = second->masked && pass->mask};
    extend_hidden(block);
    operand_t input = ffni_conv_take(pass, second, &hidden, block->span, block->scratch.second);
    ffni_conv_multiply(pass, second, span_rows(block->span), input, block->scratch.tiles, block->scratch.value);
    rows_task_t task = {block, block->span.begin};
    ffni_parallel_rows(pass->context, span_rows(block->span), second->out, finish_rows, &task);
}

ffn_status_t ffni_conv_forward(const conv_pass_t *pass, const rows_t *y, ffn_tape_t *tape, ffn_stats_t *stats) {
    const ffn_conv_t *conv = pass->conv;
    int64_t count = pass->count, rows = 0;
    ffn_status_t status = ffni_conv_rows(conv, pass->context, count, most_rows(conv, pass->context), bytes_of, &rows);
    if (!status) status = ffni_context_scratch(pass->context, bytes_of(conv, count, rows));
    if (!status && tape) status = ffni_tape_make_room(tape, count, conv->sizes.d_ff, 0);
    if (status) return status;
    arena_t arena = {.base = pass->context->scratch};
    forward_block_t block = {.pass = *pass, .y = y, .tape = tape && tape->hidden ? tape : NULL, .stats = stats,
                             .scratch = lay_out(conv, count, rows, &arena)};
    block.hidden = (window_t){.data = block.scratch.hidden, .stride = conv->part[FIRST].width};
    if (stats) ffni_counts_clear(&block.scratch.counts, conv->sizes.d_ff);
    for (int64_t begin = 0; begin < count; begin += rows) {
        block.span = (span_t){begin, minimum(begin + rows, count)};
        run_block(&block);
    }
    if (stats) ffni_stats_add(stats, 0, conv->sizes.d_ff, &block.scratch.counts);
    return FFN_OK;
}
