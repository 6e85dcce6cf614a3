/* SPDX-License-Identifier: MIT
 * Putting a layer's description together: the family's, then what the command line says otherwise. Parts that would contradict what was said are
 * taken away with it: a norm that is replaced by none takes its tensors along. */
#include "cli/overrides.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While the description is put together, `there` says which roles the layer has; what is not given is as the family has it: of experts more than
 * one tensor. */
typedef struct draft {
    const ffn_model_layer_t *found; /* NULL: by hand */
    int is_given[ROLES], there[ROLES];
} draft_t;

static void take_away(draft_t *draft, uint32_t role) {
    draft->there[role] = draft->is_given[role] = 0;
}

/* What was asked for stays, to be refused with the sentence that says why. */
static void take_away_unless_asked_for(draft_t *draft, const overrides_t *overrides, uint32_t role) {
    if (!overrides->tensor[role].given) take_away(draft, role);
}

static void start_from_family(const ffn_model_layer_t *found, described_t *described, draft_t *draft) {
    described->layer = *found;
    described->options = *found->options;
    draft->found = found;
    for (uint64_t i = 0; i < found->binding_count; i++)
        if (found->bindings[i].role < ROLES) draft->there[found->bindings[i].role] = 1;
}

static void set_activation(const overrides_t *overrides, described_t *described, draft_t *draft) {
    ffn_layer_options_t *options = &described->options;
    if (overrides->activation) { /* the family's parameters were for its own activation */
        options->activation = overrides->activation;
        options->alpha = options->beta = 0;
        if (overrides->activation != FFN_ACTIVATION_XIELU) {
            take_away(draft, FFN_ROLE_XIELU_ALPHA_P);
            take_away(draft, FFN_ROLE_XIELU_ALPHA_N);
        }
    }
    if (overrides->alpha.given) options->alpha = overrides->alpha.value;
    if (overrides->beta.given) options->beta = overrides->beta.value;
    if (overrides->gate_max.given) options->gate_max = overrides->gate_max.value;
    if (overrides->up_limit.given) options->up_limit = overrides->up_limit.value;
    if (overrides->up_offset.given) options->up_offset = overrides->up_offset.value;
}

static void set_norm(const overrides_t *overrides, described_t *described, draft_t *draft, uint32_t slot) {
    ffn_layer_options_t *options = &described->options;
    if (overrides->norm[slot] >= 0) options->norm[slot] = (uint32_t)overrides->norm[slot];
    uint32_t kind = options->norm[slot];
    int has_eps = kind == FFN_NORM_LAYER || kind == FFN_NORM_RMS;
    if (kind == FFN_NORM_NONE) {
        take_away_unless_asked_for(draft, overrides, norm_weight_role(slot));
        take_away_unless_asked_for(draft, overrides, norm_bias_role(slot));
        options->norm_offset[slot] = 0;
    }
    if (!has_eps) options->norm_eps[slot] = 0;
    if (overrides->every_eps.given && has_eps) options->norm_eps[slot] = overrides->every_eps.value;
    if (overrides->every_offset.given && kind) options->norm_offset[slot] = overrides->every_offset.value;
    if (overrides->eps[slot].given) options->norm_eps[slot] = overrides->eps[slot].value;
    if (overrides->offset[slot].given) options->norm_offset[slot] = overrides->offset[slot].value;
}

static void set_router(const overrides_t *overrides, described_t *described) {
    const ffn_moe_router_options_t *found = described->moe.router;
    if (overrides->score < 0 && overrides->normalise < 0) return;
    described->router = found ? *found : (ffn_moe_router_options_t){.struct_size = sizeof described->router};
    if (overrides->score >= 0) described->router.score = (uint32_t)overrides->score, described->router.weight = FFN_MOE_WEIGHT_SCORE;
    if (overrides->normalise >= 0) {
        described->router.normalise = (uint32_t)overrides->normalise;
        described->router.norm_power = described->router.eps_added = described->router.eps_least = 0;
    }
    described->moe.router = &described->router;
}

/* A layer of experts takes other numbers, and what is said of its router; by hand it has --experts. */
static int set_experts(const overrides_t *overrides, int64_t number, described_t *described) {
    const ffn_moe_options_t *found = described->options.moe;
    int by_hand = !found && overrides->experts;
    if (!found && !by_hand && (overrides->top_k >= 0 || overrides->capacity >= 0 || overrides->score >= 0 || overrides->normalise >= 0))
        return complain("layer %" PRId64 " has no experts: --top-k, --capacity, --score and --normalise are for layers that have some", number);
    if (!found && !by_hand) return EXIT_FINE;
    if (by_hand && overrides->top_k < 0) return complain("--experts needs --top-k: how many of them a token goes to");
    described->moe = found ? *found : (ffn_moe_options_t){.struct_size = sizeof described->moe};
    described->options.moe = &described->moe;
    if (overrides->experts) described->moe.experts = overrides->experts;
    if (overrides->top_k >= 0) described->moe.top_k = overrides->top_k;
    set_router(overrides, described);
    const ffn_moe_capacity_options_t *limit = described->moe.capacity;
    if (limit) described->capacity = *limit;
    if (overrides->capacity > 0) described->capacity.capacity = overrides->capacity;
    described->capacity.struct_size = sizeof described->capacity;
    int limited = overrides->capacity < 0 ? limit != NULL : overrides->capacity > 0;
    described->moe.capacity = limited ? &described->capacity : NULL;
    return EXIT_FINE;
}

static void set_residual(const overrides_t *overrides, described_t *described, draft_t *draft) {
    if (overrides->residual >= 0) described->options.residual = (uint32_t)overrides->residual;
    if (described->options.residual) return;
    if (overrides->tensor[FFN_ROLE_RESIDUAL_SCALE].given) return;
    take_away(draft, FFN_ROLE_RESIDUAL_SCALE);
    described->options.flags &= ~(uint32_t)FFN_LAYER_TANH_RESIDUAL_SCALE;
}

/* The name with every {i} replaced by the layer's number and every {e} by the expert's, kept with the description; NULL: no memory. */
static const char *name_for(const tensor_override_t *tensor, int64_t number, int64_t expert, described_t *described) {
    size_t places = 0, used = 0;
    for (size_t i = 0; i + 3 <= tensor->name_length; i++) places += tensor->name[i] == '{';
    size_t size = tensor->name_length + 20 * places + 1;
    char *name = malloc(size);
    if (!name) return NULL;
    for (size_t i = 0; i < tensor->name_length; i++) {
        int layer = i + 3 <= tensor->name_length && !memcmp(tensor->name + i, "{i}", 3);
        if (layer || (i + 3 <= tensor->name_length && !memcmp(tensor->name + i, "{e}", 3))) {
            used += (size_t)snprintf(name + used, size - used, "%" PRId64, layer ? number : expert);
            i += 2;
        } else {
            name[used++] = tensor->name[i];
        }
    }
    name[used] = 0;
    return described->names[described->name_count++] = name;
}

static void set_tensor(const overrides_t *overrides, described_t *described, draft_t *draft, uint32_t role) {
    const tensor_override_t *given = &overrides->tensor[role];
    uint32_t flag = role == FFN_ROLE_BRANCH_SCALE ? FFN_LAYER_TANH_BRANCH_SCALE : role == FFN_ROLE_RESIDUAL_SCALE ? FFN_LAYER_TANH_RESIDUAL_SCALE : 0;
    if (!given->given) return;
    described->options.flags &= ~flag;
    take_away(draft, role);
    if (!given->name && !given->is_number) return;
    if (given->tanh) described->options.flags |= flag;
    draft->there[role] = draft->is_given[role] = 1;
}

static int names_expert(const tensor_override_t *tensor) {
    for (size_t i = 0; i + 3 <= tensor->name_length; i++)
        if (!memcmp(tensor->name + i, "{e}", 3)) return 1;
    return 0;
}

/* Roles that each expert has of its own. */
static int is_expert_role(uint32_t role) {
    return role <= FFN_ROLE_DOWN_BIAS || role == FFN_ROLE_NORM_MID_WEIGHT || role == FFN_ROLE_NORM_MID_BIAS;
}

/* Adds what --tensor says of a role: one binding, or one for each expert. */
static int add_given(const overrides_t *overrides, int64_t number, described_t *described, uint32_t role) {
    const tensor_override_t *given = &overrides->tensor[role];
    int64_t experts = described->options.moe && is_expert_role(role) ? described->moe.experts : 0;
    int each = experts && given->name && names_expert(given);
    for (int64_t expert = 0; expert < (each ? experts : 1); expert++) {
        ffn_model_binding_t *binding = &described->bindings[described->layer.binding_count++];
        *binding = (ffn_model_binding_t){.role = role, .layout = given->layout, .part = given->part, .value = given->value, .expert = (uint32_t)expert};
        if (experts && !each) binding->experts = (uint32_t)experts;
        if (given->name && !(binding->tensor = name_for(given, number, expert, described))) return complain_memory();
    }
    return EXIT_FINE;
}

static int collect(const overrides_t *overrides, int64_t number, described_t *described, const draft_t *draft) {
    uint64_t found = draft->found ? draft->found->binding_count : 0, given = 0;
    int status = EXIT_FINE;
    for (int role = 0; role < ROLES; role++)
        if (draft->is_given[role]) given += described->options.moe ? (uint64_t)described->moe.experts + 1 : 1;
    described->bindings = calloc((size_t)(found + given) + 1, sizeof *described->bindings);
    described->names = calloc((size_t)given + 1, sizeof *described->names);
    if (!described->bindings || !described->names) return complain_memory();
    described->layer.binding_count = 0;
    for (uint64_t i = 0; i < found; i++) {
        uint32_t role = draft->found->bindings[i].role;
        if (role < ROLES && draft->there[role] && !draft->is_given[role])
            described->bindings[described->layer.binding_count++] = draft->found->bindings[i];
    }
    for (uint32_t role = 0; role < ROLES && !status; role++)
        if (draft->is_given[role]) status = add_given(overrides, number, described, role);
    described->layer.bindings = described->bindings;
    described->layer.options = &described->options;
    described->layer.struct_size = sizeof described->layer;
    described->options.struct_size = sizeof described->options;
    return status;
}

int describe(const ffn_model_t *model, int64_t number, const overrides_t *overrides, described_t *described) {
    draft_t draft = {0};
    ffn_model_info_t info = {.struct_size = sizeof info};
    memset(described, 0, sizeof *described);
    int named = overrides_name_tensors(overrides), status = EXIT_FINE;
    if (ffn_model_info(model, &info)) return complain("%s", ffn_io_last_error());
    if (!overrides->by_hand && (info.layer_count || !named)) {
        const ffn_model_layer_t *found;
        if (ffn_model_layer(model, number, &found)) return complain("%s", ffn_io_last_error());
        start_from_family(found, described, &draft);
    }
    set_activation(overrides, described, &draft);
    for (uint32_t role = 0; role < ROLES; role++) set_tensor(overrides, described, &draft, role);
    for (uint32_t slot = 0; slot < NORMS; slot++) set_norm(overrides, described, &draft, slot);
    set_residual(overrides, described, &draft);
    status = set_experts(overrides, number, described);
    if (named) described->options.d_model = described->options.d_ff = described->options.d_out = 0; /* the named tensors' */
    if (overrides->branch) described->layer.flags |= FFN_MODEL_BRANCH;
    return status ? status : collect(overrides, number, described, &draft);
}

void described_free(described_t *described) {
    for (uint64_t i = 0; i < described->name_count; i++) free(described->names[i]);
    free(described->names);
    free(described->bindings);
    memset(described, 0, sizeof *described);
}
