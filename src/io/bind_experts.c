/* SPDX-License-Identifier: MIT
 * Binding the tensors of a mixture of experts: the router, every expert's matrices in whichever layout the file has, and the shared experts. */
#include "io/binder.h"

#include <stdio.h>
#include <string.h>

enum { MODULE_SIZE = 256 };

/* Where a layer's experts are: the block's name, the router's tensor and the experts' layout. */
typedef struct place {
    char block[64], router[64];
    const stored_tensor_t *weight; /* the router's */
    const expert_layout_t *layout;
    int64_t experts, d_model; /* as the router's weight has them */
} place_t;

/* ---------------------------------------------------------------- Names */

/* <block><module>, {i} in the module replaced by the expert's number. */
static const char *expert_module(const place_t *place, const char *module, int64_t expert, char text[MODULE_SIZE]) {
    const char *number = strstr(module, "{i}");
    if (number) snprintf(text, MODULE_SIZE, "%s%.*s%" PRId64 "%s", place->block, (int)(number - module), module, expert, number + 3);
    else snprintf(text, MODULE_SIZE, "%s%s", place->block, module);
    return text;
}

static int is_stack(const projection_t *projection) {
    return !strstr(projection->module, "{i}");
}

/* A tensor of an expert, or the stack of all of them. */
static const stored_tensor_t *expert_tensor(const binder_t *binder, const place_t *place, const expert_layout_t *layout,
                                            const projection_t *projection, int64_t expert) {
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    return ffnio_binder_find(binder, expert_module(place, projection->module, expert, module), layout->weight, name);
}

/* Copies the word of that length, if it fits. */
static int take_word(char text[64], const char *word, size_t length) {
    if (length >= 64) return 0;
    memcpy(text, word, length);
    text[length] = 0;
    return 1;
}

/* ---------------------------------------------------------------- What the file has */

static int has_experts(const binder_t *binder, const place_t *place, const expert_layout_t *layout) {
    return expert_tensor(binder, place, layout, &layout->up, 0) || expert_tensor(binder, place, layout, &layout->down, 0);
}

static int find_router_in(const binder_t *binder, place_t *place) {
    size_t length;
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    for (const char *list = ffnio_next_word(binder->family->experts->routers, &length); length; list = ffnio_next_word(list + length, &length)) {
        if (!take_word(place->router, list, length)) continue;
        place->weight = ffnio_binder_find(binder, expert_module(place, place->router, 0, module), ".weight", name);
        if (place->weight) return 1;
    }
    return 0;
}

/* The block that has the router; FFN_UNKNOWN: there is none, and the sentence names the tensor where experts are. */
static ffn_status_t find_router(const binder_t *binder, place_t *place) {
    const moe_rule_t *rule = binder->family->experts;
    place_t fallback = {.weight = NULL};
    size_t length;
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    for (const char *list = ffnio_next_word(rule->blocks, &length); length; list = ffnio_next_word(list + length, &length)) {
        if (!take_word(place->block, list, length)) continue;
        if (find_router_in(binder, place)) return FFN_OK;
        for (int i = 0; rule->layouts[i]; i++)
            if (!*fallback.block && has_experts(binder, place, rule->layouts[i])) fallback = *place;
    }
    if (*fallback.block) *place = fallback;
    ffnio_next_word(rule->routers, &length);
    take_word(place->router, rule->routers, length);
    snprintf(module, sizeof module, "%s%s", place->block, place->router);
    ffnio_binder_find(binder, module, ".weight", name);
    return ffnio_binder_missing(binder, name);
}

/* Whether stacks have the shapes that a layout gives them. Two layouts may have the same names: [experts, out, in] and [experts, in, out]. Both fit
 * only where gate_up is square and down is too, which cannot be: the one is [d_ff, 2 d_ff], the other [d_ff, d_ff]. */
static int stacks_fit(const binder_t *binder, const place_t *place, const expert_layout_t *layout) {
    const stored_tensor_t *up = expert_tensor(binder, place, layout, &layout->up, 0), *down = expert_tensor(binder, place, layout, &layout->down, 0);
    int64_t up_out, up_in, down_out, down_in;
    uint32_t experts = (uint32_t)place->experts;
    if (!up || !down) return 0;
    if (!ffnio_matrix_shape(up, layout->layout, experts, &up_out, &up_in)) return 0;
    if (!ffnio_matrix_shape(down, layout->down_layout, experts, &down_out, &down_in)) return 0;
    if (layout->up.part != FFN_PART_WHOLE) up_out /= 2;
    return up_in == place->d_model && down_in == up_out;
}

/* The layout that the file has; of none, the first, whose missing tensors the sentence names. */
static const expert_layout_t *find_layout(const binder_t *binder, const place_t *place) {
    const expert_layout_t *const *layouts = binder->family->experts->layouts, *there = NULL;
    for (int i = 0; layouts[i]; i++) {
        if (!has_experts(binder, place, layouts[i])) continue;
        if (!there) there = layouts[i];
        if (!is_stack(&layouts[i]->up) || stacks_fit(binder, place, layouts[i])) return layouts[i];
    }
    return there ? there : layouts[0];
}

static ffn_status_t check_packed(const binder_t *binder, const place_t *place) {
    const char *packed = binder->family->experts->packed;
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    if (!packed || !ffnio_binder_find(binder, expert_module(place, packed, 0, module), "", name)) return FFN_OK;
    return ffnio_trouble(binder->trouble, FFN_UNSUPPORTED, "tensor %s has experts packed in blocks of few bits, which are not read: convert them to BF16 first",
                         ffnio_quote(name).text);
}

static ffn_status_t find_place(const binder_t *binder, place_t *place) {
    ffn_status_t status = find_router(binder, place);
    if (!status) status = check_packed(binder, place);
    if (status) return status;
    if (!ffnio_matrix_shape(place->weight, FFN_LAYOUT_OUT_IN, 0, &place->experts, &place->d_model) || place->experts < 1)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "tensor %s has %" PRIu32 " dimensions and %" PRId64 " elements, must be a matrix [experts, d_model]",
                             ffnio_quote(place->weight->name).text, place->weight->ndim, place->weight->elements);
    if (place->experts > FFN_MOE_EXPERTS_MOST)
        return ffnio_trouble(binder->trouble, FFN_UNSUPPORTED, "tensor %s has %" PRId64 " rows, must be one for each of at most %d experts",
                             ffnio_quote(place->weight->name).text, place->experts, FFN_MOE_EXPERTS_MOST);
    place->layout = find_layout(binder, place);
    return FFN_OK;
}

/* ---------------------------------------------------------------- Binding */

static ffn_status_t bind_router(binder_t *binder, const place_t *place) {
    const moe_rule_t *rule = binder->family->experts;
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    size_t length;
    expert_module(place, place->router, 0, module);
    ffn_status_t status = ffnio_binder_tensor(binder, FFN_ROLE_ROUTER_WEIGHT, module, ".weight", FFN_PART_WHOLE, PRESENT);
    if (!status) status = ffnio_binder_tensor(binder, FFN_ROLE_ROUTER_BIAS, module, ".bias", FFN_PART_WHOLE, rule->router_bias);
    if (!status && rule->combine_bias)
        status = ffnio_binder_tensor(binder, FFN_ROLE_COMBINE_BIAS, expert_module(place, rule->combine_bias, 0, module), "", FFN_PART_WHOLE, PRESENT);
    if (status || !rule->selection_bias) return status;
    for (const char *list = ffnio_next_word(rule->selection_bias, &length); length; list = ffnio_next_word(list + length, &length)) {
        snprintf(module, sizeof module, "%s%.*s", place->block, (int)length, list);
        if (ffnio_binder_find(binder, module, "", name))
            return ffnio_binder_tensor(binder, FFN_ROLE_SELECTION_BIAS, module, "", FFN_PART_WHOLE, PRESENT);
    }
    return rule->selected == PRESENT ? ffnio_binder_missing(binder, name) : FFN_OK;
}

static ffn_status_t bind_expert(binder_t *binder, const place_t *place, uint32_t role, const projection_t *projection, int64_t expert) {
    const expert_layout_t *layout = place->layout;
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    int bias = role == FFN_ROLE_UP_BIAS || role == FFN_ROLE_GATE_BIAS || role == FFN_ROLE_DOWN_BIAS;
    expert_module(place, projection->module, expert, module);
    const stored_tensor_t *tensor = ffnio_binder_find(binder, module, bias ? layout->bias : layout->weight, name);
    presence_t presence = bias ? layout->biases : PRESENT;
    if (!tensor) return presence == PRESENT ? ffnio_binder_missing(binder, name) : FFN_OK;
    if (presence == ABSENT) return ffnio_binder_superfluous(binder, name);
    ffn_model_binding_t binding = {.role = role, .part = projection->part, .tensor = tensor->name, .expert = (uint32_t)expert};
    if (!bias) binding.layout = role == FFN_ROLE_DOWN_WEIGHT ? layout->down_layout : layout->layout;
    if (is_stack(projection)) binding.experts = (uint32_t)place->experts;
    return ffnio_binder_add(binder, binding);
}

static ffn_status_t bind_projection(binder_t *binder, const place_t *place, uint32_t role, const projection_t *projection) {
    char module[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    int64_t count = projection->module && is_stack(projection) ? 1 : place->experts;
    if (!projection->module) return FFN_OK;
    ffn_status_t status = FFN_OK;
    for (int64_t expert = 0; !status && expert < count; expert++) {
        status = bind_expert(binder, place, role, projection, expert);
        if (!status) status = bind_expert(binder, place, role + 1, projection, expert);
    }
    if (status || is_stack(projection)) return status;
    if (!ffnio_binder_find(binder, expert_module(place, projection->module, count, module), place->layout->weight, name)) return FFN_OK;
    return ffnio_trouble(binder->trouble, FFN_INVALID, "tensor %s is there, but router %s has rows for %" PRId64 " experts", ffnio_quote(name).text,
                         ffnio_quote(place->weight->name).text, place->experts);
}

static ffn_status_t bind_linear(binder_t *binder, uint32_t role, const projection_t *projection) {
    if (!projection->module) return FFN_OK;
    ffn_status_t status = ffnio_binder_tensor(binder, role, projection->module, ".weight", projection->part, PRESENT);
    return status ? status : ffnio_binder_tensor(binder, role + 1, projection->module, ".bias", projection->part, IF_STORED);
}

static ffn_status_t bind_shared(binder_t *binder) {
    const moe_rule_t *rule = binder->family->experts;
    char name[FFNIO_NAME_SIZE];
    if (!rule->shared_up.module) return FFN_OK;
    if (rule->shared == IF_STORED && !ffnio_binder_find(binder, rule->shared_up.module, ".weight", name)) return FFN_OK;
    ffn_status_t status = bind_linear(binder, FFN_ROLE_SHARED_UP_WEIGHT, &rule->shared_up);
    if (!status) status = bind_linear(binder, FFN_ROLE_SHARED_GATE_WEIGHT, &rule->shared_gate);
    if (!status) status = bind_linear(binder, FFN_ROLE_SHARED_DOWN_WEIGHT, &rule->shared_down);
    if (!status && rule->shared_sigmoid)
        status = ffnio_binder_tensor(binder, FFN_ROLE_SHARED_SCALE_WEIGHT, rule->shared_sigmoid, ".weight", FFN_PART_WHOLE, PRESENT);
    return status;
}

/* One alone is half a pair: its missing tensor is named. */
static ffn_status_t bind_latent(binder_t *binder, const place_t *place) {
    const moe_rule_t *rule = binder->family->experts;
    char in[MODULE_SIZE], out[MODULE_SIZE], name[FFNIO_NAME_SIZE];
    if (!rule->latent_in) return FFN_OK;
    expert_module(place, rule->latent_in, 0, in);
    expert_module(place, rule->latent_out, 0, out);
    if (!ffnio_binder_find(binder, in, ".weight", name) && !ffnio_binder_find(binder, out, ".weight", name)) return FFN_OK;
    ffn_status_t status = bind_linear(binder, FFN_ROLE_LATENT_IN_WEIGHT, &(projection_t){in, FFN_PART_WHOLE});
    return status ? status : bind_linear(binder, FFN_ROLE_LATENT_OUT_WEIGHT, &(projection_t){out, FFN_PART_WHOLE});
}

ffn_status_t ffnio_bind_experts(binder_t *binder) {
    place_t place = {.weight = NULL};
    ffn_status_t status = find_place(binder, &place);
    if (!status) status = bind_router(binder, &place);
    if (!status) status = bind_projection(binder, &place, FFN_ROLE_UP_WEIGHT, &place.layout->up);
    if (!status) status = bind_projection(binder, &place, FFN_ROLE_GATE_WEIGHT, &place.layout->gate);
    if (!status) status = bind_projection(binder, &place, FFN_ROLE_DOWN_WEIGHT, &place.layout->down);
    if (!status) status = bind_shared(binder);
    if (!status) status = bind_latent(binder, &place);
    if (!status) status = ffnio_bind_router_options(binder, place.experts);
    return status;
}
