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
    ffn_model_binding_t given[ROLES];
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

/* A layer of experts keeps its router and takes other numbers. */
static int set_experts(const overrides_t *overrides, int64_t number, described_t *described) {
    const ffn_moe_options_t *found = described->options.moe;
    if (!found && (overrides->top_k >= 0 || overrides->capacity >= 0))
        return complain("layer %" PRId64 " has no experts: --top-k and --capacity are for layers that have some", number);
    if (!found) return EXIT_FINE;
    described->moe = *found;
    described->options.moe = &described->moe;
    if (overrides->top_k >= 0) described->moe.top_k = overrides->top_k;
    if (found->capacity) described->capacity = *found->capacity;
    if (overrides->capacity > 0) described->capacity.capacity = overrides->capacity;
    described->capacity.struct_size = sizeof described->capacity;
    int limited = overrides->capacity < 0 ? found->capacity != NULL : overrides->capacity > 0;
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

/* The name with every {i} replaced by the layer's number; NULL: no memory. */
static char *name_for(const tensor_override_t *tensor, int64_t number) {
    size_t places = 0, used = 0;
    for (size_t i = 0; i + 3 <= tensor->name_length; i++) places += !memcmp(tensor->name + i, "{i}", 3);
    size_t size = tensor->name_length + 20 * places + 1;
    char *name = malloc(size);
    if (!name) return NULL;
    for (size_t i = 0; i < tensor->name_length; i++) {
        if (i + 3 <= tensor->name_length && !memcmp(tensor->name + i, "{i}", 3)) {
            used += (size_t)snprintf(name + used, size - used, "%" PRId64, number);
            i += 2;
        } else {
            name[used++] = tensor->name[i];
        }
    }
    name[used] = 0;
    return name;
}

static int set_tensor(const overrides_t *overrides, int64_t number, described_t *described, draft_t *draft, uint32_t role) {
    const tensor_override_t *given = &overrides->tensor[role];
    uint32_t flag = role == FFN_ROLE_BRANCH_SCALE ? FFN_LAYER_TANH_BRANCH_SCALE : role == FFN_ROLE_RESIDUAL_SCALE ? FFN_LAYER_TANH_RESIDUAL_SCALE : 0;
    if (!given->given) return EXIT_FINE;
    described->options.flags &= ~flag;
    take_away(draft, role);
    if (!given->name && !given->is_number) return EXIT_FINE;
    if (given->tanh) described->options.flags |= flag;
    if (given->name && !(described->names[role] = name_for(given, number))) return complain_memory();
    draft->given[role] = (ffn_model_binding_t){.role = role, .layout = given->layout, .part = given->part, .value = given->value,
                                               .tensor = described->names[role]};
    draft->there[role] = draft->is_given[role] = 1;
    return EXIT_FINE;
}

static int collect(described_t *described, const draft_t *draft) {
    uint64_t count = 0, found = draft->found ? draft->found->binding_count : 0;
    described->bindings = calloc((size_t)found + ROLES, sizeof *described->bindings);
    if (!described->bindings) return complain_memory();
    for (uint64_t i = 0; i < found; i++) {
        uint32_t role = draft->found->bindings[i].role;
        if (role < ROLES && draft->there[role] && !draft->is_given[role]) described->bindings[count++] = draft->found->bindings[i];
    }
    for (int role = 0; role < ROLES; role++)
        if (draft->is_given[role]) described->bindings[count++] = draft->given[role];
    described->layer.binding_count = count;
    described->layer.bindings = described->bindings;
    described->layer.options = &described->options;
    described->layer.struct_size = sizeof described->layer;
    described->options.struct_size = sizeof described->options;
    return EXIT_FINE;
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
    for (uint32_t role = 0; role < ROLES && !status; role++) status = set_tensor(overrides, number, described, &draft, role);
    for (uint32_t slot = 0; slot < NORMS; slot++) set_norm(overrides, described, &draft, slot);
    set_residual(overrides, described, &draft);
    if (!status) status = set_experts(overrides, number, described);
    if (named) described->options.d_model = described->options.d_ff = described->options.d_out = 0; /* the named tensors' */
    if (overrides->branch) described->layer.flags |= FFN_MODEL_BRANCH;
    return status ? status : collect(described, &draft);
}

void described_free(described_t *described) {
    for (int role = 0; role < ROLES; role++) free(described->names[role]);
    free(described->bindings);
    memset(described, 0, sizeof *described);
}
