/* SPDX-License-Identifier: MIT
 * Cutting a run of a mixture into windows and chunks, and the scratch memory that this takes. */
#include "core/moe.h"

#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>
#include <limits.h>

static int is_routed(const ffn_layer_t *layer) {
    return ffni_layer_has(layer, FFN_ROLE_ROUTER_WEIGHT);
}

/* Whether a group of tokens is routed as one. */
static int has_groups(const mixture_t *mixture) {
    return mixture->capacity.struct_size != 0;
}

linear_t ffni_moe_linear(const ffn_layer_t *layer, int weight_role, int bias_role) {
    return (linear_t){.kernels = layer->kernels, .panels = layer->packed[weight_role], .bias = ffni_layer_vector(layer, bias_role, 0)};
}

/* ---------------------------------------------------------------------- Memory */

static linear_scratch_t lay_out_linear(const ffn_layer_t *layer, int role, const moe_plan_t *plan, arena_t *arena) {
    linear_t linear = ffni_moe_linear(layer, role, FFN_ROLE_NONE);
    linear.has_norm = role == FFN_ROLE_ROUTER_WEIGHT && layer->mixture.router_norm != FFN_NORM_NONE;
    if (!linear.panels.data) return (linear_scratch_t){0};
    return ffni_linear_lay_out(&linear, plan->chunk, plan->slots, arena);
}

/* What is used by turns, in one place. */
static void lay_out_linears(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena, moe_memory_t *memory) {
    static const int roles[4] = {FFN_ROLE_ROUTER_WEIGHT, FFN_ROLE_SHARED_SCALE_WEIGHT, FFN_ROLE_LATENT_IN_WEIGHT, FFN_ROLE_LATENT_OUT_WEIGHT};
    linear_scratch_t *const scratch[4] = {&memory->router, &memory->shared_gate, &memory->latent_in, &memory->latent_out};
    uint64_t begin = arena->used, end = begin;
    for (int i = 0; i < 4; i++) {
        arena->used = begin;
        *scratch[i] = lay_out_linear(layer, roles[i], plan, arena);
        if (arena->used > end) end = arena->used;
    }
    arena->used = end;
}

static void lay_out_window(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena, moe_memory_t *memory) {
    const mixture_t *mixture = &layer->mixture;
    const ffn_moe_routing_t routing = {.tokens = plan->window, .experts = mixture->choices, .top_k = plan->top_k};
    int by_experts = mixture->choose == FFN_MOE_CHOOSE_BY_EXPERTS, last = (mixture->flags & FFN_MOE_NORMALISE_LAST) != 0;
    memory->ids = ffni_arena_take(arena, plan->window, plan->top_k * (int64_t)sizeof(int32_t));
    memory->weights = ffni_arena_take(arena, plan->window, plan->top_k * (int64_t)sizeof(float));
    if (!is_routed(layer)) return;
    memory->logits = ffni_arena_take(arena, last ? plan->window : plan->chunk, mixture->choices * (int64_t)sizeof(float));
    memory->scores = ffni_arena_take(arena, by_experts ? plan->window : plan->chunk, mixture->choices * (int64_t)sizeof(float));
    if (by_experts)
        memory->capacity = ffni_expert_choice_lay_out(mixture->capacity.group_tokens ? mixture->capacity.group_tokens : plan->window, &routing, arena);
    else if (has_groups(mixture))
        memory->capacity = ffni_limit_lay_out(&mixture->capacity, &routing, arena);
}

static void lay_out_chunk(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena, moe_memory_t *memory) {
    const int64_t *size = layer->sizes.of, element = sizeof(float);
    int64_t slots = plan->chunk * plan->top_k, items = layer->mixture.experts + 1 + (slots + plan->chunk) / MOE_ROWS_LEAST;
    if (layer->norm_slot[FFN_NORM_IN] != FFN_NORM_NONE) memory->normed = ffni_arena_take(arena, plan->chunk, size[EXTENT_D_MODEL] * element);
    if (size[EXTENT_D_LATENT]) {
        memory->latent = ffni_arena_take(arena, plan->chunk, size[EXTENT_D_LATENT] * element);
        memory->mixed = ffni_arena_take(arena, plan->chunk, size[EXTENT_D_LATENT] * element);
    }
    memory->order = ffni_arena_take(arena, slots, sizeof(int32_t));
    memory->place = ffni_arena_take(arena, slots, sizeof(int32_t));
    memory->starts = ffni_arena_take(arena, layer->mixture.experts + 1, sizeof(int64_t));
    memory->rows = ffni_arena_take(arena, slots, size[EXTENT_EXPERT_OUT] * element);
    if (layer->shared.d_ff) memory->shared = ffni_arena_take(arena, plan->chunk, size[EXTENT_D_OUT] * element);
    if (ffni_layer_has(layer, FFN_ROLE_SHARED_SCALE_WEIGHT)) memory->shared_scale = ffni_arena_take(arena, plan->chunk, element);
    memory->branch = ffni_arena_take(arena, plan->chunk, size[EXTENT_D_OUT] * element);
    memory->unsorted_items = ffni_arena_take(arena, items, sizeof(moe_item_t));
    memory->items = ffni_arena_take(arena, items, sizeof(moe_item_t));
}

static void lay_out_engine(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena, moe_memory_t *memory) {
    uint64_t bytes = layer->engine == FFN_ENGINE_NATIVE ? ffni_moe_native_bytes(layer, plan) : ffni_moe_blas_bytes(layer, plan);
    if (bytes > INT64_MAX)
        arena->overflowed = 1;
    else
        memory->engine = ffni_arena_take(arena, 1, (int64_t)bytes);
}

moe_memory_t ffni_moe_lay_out(const ffn_layer_t *layer, const moe_plan_t *plan, arena_t *arena) {
    moe_memory_t memory = {0};
    lay_out_window(layer, plan, arena, &memory);
    lay_out_chunk(layer, plan, arena, &memory);
    lay_out_linears(layer, plan, arena, &memory);
    lay_out_engine(layer, plan, arena, &memory);
    return memory;
}

/* ------------------------------------------------------------------------ Plan */

/* UINT64_MAX: beyond any memory. */
static uint64_t plan_bytes(const ffn_layer_t *layer, const moe_plan_t *plan) {
    arena_t measure = {0};
    ffni_moe_lay_out(layer, plan, &measure);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

static uint64_t chunk_bytes(const ffn_layer_t *layer, const moe_plan_t *plan) {
    arena_t measure = {0};
    moe_memory_t memory = {0};
    lay_out_chunk(layer, plan, &measure, &memory);
    return measure.overflowed ? UINT64_MAX : measure.used;
}

/* The window of so large a chunk: whole groups, as many as it holds, at least one. */
static int64_t window_of(const mixture_t *mixture, int64_t tokens, int64_t chunk) {
    int64_t group = mixture->capacity.group_tokens ? minimum(mixture->capacity.group_tokens, tokens) : tokens;
    if (!has_groups(mixture)) return chunk;
    return minimum(tokens, group * maximum(1, chunk / group));
}

static int fits(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, moe_plan_t *plan, int64_t chunk) {
    plan->chunk = chunk;
    plan->window = window_of(&layer->mixture, tokens, chunk);
    plan->bytes = plan_bytes(layer, plan);
    if (context->scratch_limit && plan->bytes > context->scratch_limit) return 0;
    return plan->bytes < UINT64_MAX && (chunk == 1 || chunk_bytes(layer, plan) <= layer->mixture.chunk_bytes);
}

ffn_status_t ffni_moe_plan(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, int64_t top_k, moe_plan_t *plan) {
    *plan = (moe_plan_t){.top_k = top_k, .slots = context->threads_requested};
    int64_t least = 1, most = minimum(tokens, INT32_MAX / top_k);
    while (!fits(layer, context, tokens, plan, 1)) {
        if (!context->scratch_limit)
            return ffni_fail(FFN_NO_MEMORY, "the scratch memory of %" PRId64 " tokens of one capacity, or of one token, overflows", plan->window);
        if (plan->slots == 1) return ffni_context_limit_error(context, plan->bytes);
        plan->slots = plan->slots / 2;
    }
    if (fits(layer, context, tokens, plan, most)) return FFN_OK;
    while (most - least > 1) {
        int64_t middle = least + (most - least) / 2;
        if (fits(layer, context, tokens, plan, middle)) least = middle;
        else most = middle;
    }
    fits(layer, context, tokens, plan, least);
    return FFN_OK;
}

ffn_status_t ffni_moe_scratch(const ffn_layer_t *layer, const ffn_context_t *context, int64_t tokens, uint64_t *bytes) {
    moe_plan_t plan;
    *bytes = 0;
    if (tokens < 1) return FFN_OK;
    ffn_status_t status = ffni_moe_plan(layer, context, tokens, layer->mixture.top_k, &plan);
    *bytes = plan.bytes;
    return status;
}
