/* SPDX-License-Identifier: MIT
 * Reading the options that describe a layer. */
#include "cli/overrides.h"

#include <string.h>

overrides_t overrides_none(void) {
    overrides_t none = {.residual = -1, .top_k = -1, .capacity = -1, .score = -1, .normalise = -1};
    for (int slot = 0; slot < NORMS; slot++) none.norm[slot] = -1;
    return none;
}

int overrides_name_tensors(const overrides_t *overrides) {
    for (int role = 0; role < ROLES; role++)
        if (overrides->tensor[role].name) return 1;
    return 0;
}

/* Takes the last ":word" of the name off if it says how the tensor is used, which each kind of word does once: "a:even:even" are the even rows of
 * "a:even". */
static int take_suffix(tensor_override_t *tensor) {
    size_t colon = tensor->name_length;
    while (colon > 0 && tensor->name[colon - 1] != ':') colon--;
    if (!colon) return 0;
    const char *word = tensor->name + colon;
    size_t length = tensor->name_length - colon;
    int part = part_from(word, length);
    if (part > 0 && !tensor->part) tensor->part = (uint32_t)part;
    else if (length == 6 && !tensor->layout && !memcmp(word, "in_out", length)) tensor->layout = FFN_LAYOUT_IN_OUT;
    else if (length == 4 && !tensor->tanh && !memcmp(word, "tanh", length)) tensor->tanh = 1;
    else return 0; /* belongs to the name */
    tensor->name_length = colon - 1;
    return 1;
}

static void take_tensor(overrides_t *overrides, const arguments_t *arguments) {
    const char *equals = strchr(arguments->value, '=');
    char roles[1024];
    if (!equals) arguments_refuse(arguments, "--tensor is \"%s\", must be ROLE=NAME", arguments->value);
    int role = role_from(arguments->value, (size_t)(equals - arguments->value));
    if (role < 0) {
        role_names(roles, sizeof roles);
        arguments_refuse(arguments, "\"%.*s\" is no role: they are %s", (int)(equals - arguments->value), arguments->value, roles);
    }
    tensor_override_t tensor = {.given = 1};
    if (equals[1]) {
        tensor.name = equals + 1;
        tensor.name_length = strlen(tensor.name);
        while (take_suffix(&tensor)) continue;
        if (tensor.tanh && role != FFN_ROLE_BRANCH_SCALE && role != FFN_ROLE_RESIDUAL_SCALE)
            arguments_refuse(arguments, ":tanh is for branch-scale and residual-scale, not for %s", role_name((uint32_t)role));
    }
    overrides->tensor[role] = tensor;
}

static void take_scale(overrides_t *overrides, const arguments_t *arguments, uint32_t role) {
    overrides->tensor[role] = (tensor_override_t){.given = 1, .is_number = 1, .value = arguments_float(arguments)};
}

static void take_norm(overrides_t *overrides, const arguments_t *arguments, int slot) {
    int kind = kind_from(arguments->value);
    if (kind < 0) arguments_refuse(arguments, "--%s is \"%s\", must be none, layer, rms or affine", arguments->option->name, arguments->value);
    overrides->norm[slot] = kind;
}

/* A number for one slot, "in=1e-6", or for all. */
static void take_per_slot(const arguments_t *arguments, given_float_t *slots, given_float_t *every) {
    const char *equals = strchr(arguments->value, '='), *name = arguments->option->name;
    if (!equals) {
        *every = (given_float_t){1, arguments_float(arguments)};
        return;
    }
    int slot = slot_from(arguments->value, (size_t)(equals - arguments->value));
    if (slot < 0)
        arguments_refuse(arguments, "--%s is for \"%.*s\", must be for in, mid, branch or out", name, (int)(equals - arguments->value),
                         arguments->value);
    slots[slot] = (given_float_t){1, float_from(arguments, name, equals + 1)};
}

static void take_residual(overrides_t *overrides, const arguments_t *arguments) {
    int residual = residual_from(arguments->value);
    if (residual < 0 || residual == FFN_RESIDUAL_EXTERNAL)
        arguments_refuse(arguments, "--residual is \"%s\", must be none, input or normed", arguments->value);
    overrides->residual = residual;
}

static void take_score(overrides_t *overrides, const arguments_t *arguments) {
    overrides->score = score_from(arguments->value);
    if (overrides->score < 0) arguments_refuse(arguments, "--score is \"%s\", must be softmax, sigmoid, sqrt_softplus or none", arguments->value);
}

static void take_normalisation(overrides_t *overrides, const arguments_t *arguments) {
    overrides->normalise = normalisation_from(arguments->value);
    if (overrides->normalise < 0 || overrides->normalise == FFN_MOE_NORMALISE_POWER)
        arguments_refuse(arguments, "--normalise is \"%s\", must be none or sum", arguments->value);
}

static void take_activation(overrides_t *overrides, const arguments_t *arguments) {
    if (ffn_activation_from_name(arguments->value, &overrides->activation)) arguments_refuse(arguments, "%s", ffn_last_error());
}

void overrides_take(overrides_t *overrides, const arguments_t *arguments, int id) {
    given_float_t *number = NULL;
    switch (id) {
    case OVERRIDE_BRANCH: overrides->branch = 1; break;
    case OVERRIDE_BY_HAND: overrides->by_hand = 1; break;
    case OVERRIDE_TENSOR: take_tensor(overrides, arguments); break;
    case OVERRIDE_ACTIVATION: take_activation(overrides, arguments); break;
    case OVERRIDE_NORM_IN: take_norm(overrides, arguments, FFN_NORM_IN); break;
    case OVERRIDE_NORM_MID: take_norm(overrides, arguments, FFN_NORM_MID); break;
    case OVERRIDE_NORM_BRANCH: take_norm(overrides, arguments, FFN_NORM_BRANCH); break;
    case OVERRIDE_NORM_OUT: take_norm(overrides, arguments, FFN_NORM_OUT); break;
    case OVERRIDE_EPS: take_per_slot(arguments, overrides->eps, &overrides->every_eps); break;
    case OVERRIDE_OFFSET: take_per_slot(arguments, overrides->offset, &overrides->every_offset); break;
    case OVERRIDE_RESIDUAL: take_residual(overrides, arguments); break;
    case OVERRIDE_BRANCH_SCALE: take_scale(overrides, arguments, FFN_ROLE_BRANCH_SCALE); break;
    case OVERRIDE_RESIDUAL_SCALE: take_scale(overrides, arguments, FFN_ROLE_RESIDUAL_SCALE); break;
    case OVERRIDE_EXPERTS: overrides->experts = arguments_integer(arguments, 1, FFN_MOE_EXPERTS_MOST); break;
    case OVERRIDE_SCORE: take_score(overrides, arguments); break;
    case OVERRIDE_NORMALISE: take_normalisation(overrides, arguments); break;
    case OVERRIDE_TOP_K: overrides->top_k = arguments_integer(arguments, 1, FFN_MOE_EXPERTS_MOST); break;
    case OVERRIDE_CAPACITY: overrides->capacity = arguments_integer(arguments, 0, INT32_MAX); break;
    case OVERRIDE_ALPHA: number = &overrides->alpha; break;
    case OVERRIDE_BETA: number = &overrides->beta; break;
    case OVERRIDE_GATE_MAX: number = &overrides->gate_max; break;
    case OVERRIDE_UP_LIMIT: number = &overrides->up_limit; break;
    case OVERRIDE_UP_OFFSET: number = &overrides->up_offset; break;
    default: arguments_refuse(arguments, "\"%s\" is one word too many", arguments->value);
    }
    if (number) *number = (given_float_t){1, arguments_float(arguments)};
}
