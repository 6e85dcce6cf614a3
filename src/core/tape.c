/* SPDX-License-Identifier: MIT
 * Making tapes and giving them room. */
#include "core/tape.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>

ffn_status_t ffni_tape_new(const ffn_tape_options_t *given, ffn_tape_t **tape) {
    ffn_tape_options_t options = {.struct_size = sizeof options};
    ffn_allocator_t allocator;
    ffn_status_t status = given ? ffni_struct_read(&options, sizeof options, given, "ffn_tape_options_t") : FFN_OK;
    if (status) return status;
    if (options.flags & ~(uint32_t)FFN_TAPE_RECOMPUTE)
        return ffni_fail(FFN_INVALID, "flags of the tape is 0x%" PRIx32 ", must be FFN_TAPE_RECOMPUTE or 0", options.flags);
    status = ffni_allocator_read(options.allocator, &allocator);
    if (status) return status;
    ffn_tape_t *made = ffni_allocate(&allocator, sizeof *made, "a tape");
    if (!made) return FFN_NO_MEMORY;
    *made = (ffn_tape_t){.allocator = allocator, .flags = options.flags};
    *tape = made;
    return FFN_OK;
}

void ffni_tape_delete(ffn_tape_t *tape) {
    if (!tape) return;
    ffn_allocator_t allocator = tape->allocator;
    ffni_release(&allocator, tape->memory, tape->bytes);
    ffni_release(&allocator, tape, sizeof *tape);
}

int ffni_tape_keeps_branch(const ffn_layer_t *layer) {
    return layer->norm_slot[FFN_NORM_BRANCH] != FFN_NORM_NONE || layer->norm_slot[FFN_NORM_OUT] != FFN_NORM_NONE || layer->branch_scale;
}

/* Memory of that size, and the arena over it. */
static ffn_status_t grow(ffn_tape_t *tape, int64_t tokens, const arena_t *measure, arena_t *arena) {
    if (measure->overflowed) return ffni_fail(FFN_NO_MEMORY, "a tape of %" PRId64 " tokens is more than 2^63 bytes", tokens);
    if (measure->used > tape->bytes) {
        char *memory = ffni_allocate(&tape->allocator, measure->used, "a tape");
        if (!memory) return FFN_NO_MEMORY;
        ffni_release(&tape->allocator, tape->memory, tape->bytes);
        tape->memory = memory;
        tape->bytes = measure->used;
    }
    *arena = (arena_t){.base = tape->memory};
    return FFN_OK;
}

typedef struct layout {
    float *hidden, *branch;
    mixture_tape_t mixture;
} layout_t;

static void put(ffn_tape_t *tape, const layout_t *layout) {
    tape->hidden = layout->hidden;
    tape->branch = layout->branch;
    tape->mixture = layout->mixture;
    tape->state = TAPE_EMPTY;
}

static layout_t lay_out(const ffn_tape_t *tape, int64_t tokens, int64_t hidden_width, int64_t branch_width, arena_t *arena) {
    const int64_t element = sizeof(float);
    layout_t layout = {0};
    if (!(tape->flags & FFN_TAPE_RECOMPUTE)) layout.hidden = ffni_arena_take(arena, tokens, hidden_width * element);
    if (branch_width) layout.branch = ffni_arena_take(arena, tokens, branch_width * element);
    return layout;
}

ffn_status_t ffni_tape_make_room(ffn_tape_t *tape, int64_t tokens, int64_t hidden_width, int64_t branch_width) {
    arena_t measure = {0}, arena;
    lay_out(tape, tokens, hidden_width, branch_width, &measure);
    ffn_status_t status = grow(tape, tokens, &measure, &arena);
    if (status) return status;
    layout_t layout = lay_out(tape, tokens, hidden_width, branch_width, &arena);
    put(tape, &layout);
    return FFN_OK;
}

static layout_t lay_out_mixture(const ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens, int64_t top_k, arena_t *arena) {
    const int64_t element = sizeof(float), shared = layer->shared.d_ff * (1 + layer->shared.gated), latent = layer->sizes.of[EXTENT_D_LATENT];
    layout_t layout = {.mixture = {.top_k = top_k}};
    mixture_tape_t *mixture = &layout.mixture;
    mixture->ids = ffni_arena_take(arena, tokens, top_k * element);
    mixture->made_ids = ffni_arena_take(arena, tokens, top_k * element);
    mixture->weights = ffni_arena_take(arena, tokens, top_k * element);
    mixture->mask = ffni_arena_take(arena, tokens, 1);
    if (ffni_layer_has(layer, FFN_ROLE_ROUTER_WEIGHT)) mixture->logits = ffni_arena_take(arena, tokens, layer->mixture.choices * element);
    if (latent) mixture->mixed = ffni_arena_take(arena, tokens, latent * element);
    if (ffni_tape_keeps_branch(layer)) layout.branch = ffni_arena_take(arena, tokens, layer->d_out * element);
    if (tape->flags & FFN_TAPE_RECOMPUTE) return layout;
    mixture->hidden = ffni_arena_take(arena, tokens, top_k * layer->hidden_width * element);
    if (shared) mixture->shared_hidden = ffni_arena_take(arena, tokens, shared * element);
    return layout;
}

ffn_status_t ffni_tape_reserve_choices(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens, int64_t top_k) {
    arena_t measure = {0}, arena;
    lay_out_mixture(tape, layer, tokens, top_k, &measure);
    ffn_status_t status = grow(tape, tokens, &measure, &arena);
    if (status) return status;
    layout_t layout = lay_out_mixture(tape, layer, tokens, top_k, &arena);
    put(tape, &layout);
    return FFN_OK;
}

ffn_status_t ffni_tape_reserve(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens) {
    if (layer->mixture.experts) return ffni_tape_reserve_choices(tape, layer, tokens, layer->mixture.top_k);
    return ffni_tape_make_room(tape, tokens, layer->hidden_width, ffni_tape_keeps_branch(layer) ? layer->d_out : 0);
}
