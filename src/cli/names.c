/* SPDX-License-Identifier: MIT
 * Names of the parts of a layer. */
#include "cli/names.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char *const roles[ROLES] = {
    [FFN_ROLE_UP_WEIGHT] = "up",
    [FFN_ROLE_UP_BIAS] = "up-bias",
    [FFN_ROLE_GATE_WEIGHT] = "gate",
    [FFN_ROLE_GATE_BIAS] = "gate-bias",
    [FFN_ROLE_DOWN_WEIGHT] = "down",
    [FFN_ROLE_DOWN_BIAS] = "down-bias",
    [FFN_ROLE_NORM_IN_WEIGHT] = "norm-in",
    [FFN_ROLE_NORM_IN_BIAS] = "norm-in-bias",
    [FFN_ROLE_NORM_MID_WEIGHT] = "norm-mid",
    [FFN_ROLE_NORM_MID_BIAS] = "norm-mid-bias",
    [FFN_ROLE_NORM_BRANCH_WEIGHT] = "norm-branch",
    [FFN_ROLE_NORM_BRANCH_BIAS] = "norm-branch-bias",
    [FFN_ROLE_NORM_OUT_WEIGHT] = "norm-out",
    [FFN_ROLE_NORM_OUT_BIAS] = "norm-out-bias",
    [FFN_ROLE_BRANCH_SCALE] = "branch-scale",
    [FFN_ROLE_RESIDUAL_SCALE] = "residual-scale",
    [FFN_ROLE_XIELU_ALPHA_P] = "xielu-alpha-p",
    [FFN_ROLE_XIELU_ALPHA_N] = "xielu-alpha-n",
    [FFN_ROLE_ROUTER_WEIGHT] = "router",
    [FFN_ROLE_ROUTER_BIAS] = "router-bias",
    [FFN_ROLE_ROUTER_NORM_WEIGHT] = "router-norm",
    [FFN_ROLE_SELECTION_BIAS] = "selection-bias",
    [FFN_ROLE_EXPERT_SCALE] = "expert-scale",
    [FFN_ROLE_COMBINE_BIAS] = "combine-bias",
    [FFN_ROLE_SHARED_UP_WEIGHT] = "shared-up",
    [FFN_ROLE_SHARED_UP_BIAS] = "shared-up-bias",
    [FFN_ROLE_SHARED_GATE_WEIGHT] = "shared-gate",
    [FFN_ROLE_SHARED_GATE_BIAS] = "shared-gate-bias",
    [FFN_ROLE_SHARED_DOWN_WEIGHT] = "shared-down",
    [FFN_ROLE_SHARED_DOWN_BIAS] = "shared-down-bias",
    [FFN_ROLE_SHARED_SCALE_WEIGHT] = "shared-scale",
    [FFN_ROLE_LATENT_IN_WEIGHT] = "latent-in",
    [FFN_ROLE_LATENT_IN_BIAS] = "latent-in-bias",
    [FFN_ROLE_LATENT_OUT_WEIGHT] = "latent-out",
    [FFN_ROLE_LATENT_OUT_BIAS] = "latent-out-bias",
};
static const char *const slots[] = {"in", "mid", "branch", "out"};
static const char *const kinds[] = {"none", "layer", "rms", "affine"};
static const char *const residuals[] = {"none", "input", "normed", "external"};
static const char *const layouts[] = {"out_in", "in_out"};
static const char *const parts[] = {"whole", "first", "second", "even", "odd"};
static const char *const scores[] = {"softmax", "sigmoid", "sqrt_softplus", "none"};
static const char *const normalisations[] = {"none", "sum", "power"};
static const char *const isas[] = {"auto", "scalar", "avx2", "avx512"};

static const char *name_of(const char *const *names, int count, uint32_t id) {
    return id < (uint32_t)count ? names[id] : NULL;
}

const char *role_name(uint32_t role) {
    return name_of(roles, COUNT(roles), role);
}
const char *slot_name(uint32_t slot) {
    return name_of(slots, COUNT(slots), slot);
}
const char *kind_name(uint32_t kind) {
    return name_of(kinds, COUNT(kinds), kind);
}
const char *residual_name(uint32_t residual) {
    return name_of(residuals, COUNT(residuals), residual);
}
const char *layout_name(uint32_t layout) {
    return name_of(layouts, COUNT(layouts), layout);
}
const char *part_name(uint32_t part) {
    return name_of(parts, COUNT(parts), part);
}
const char *score_name(uint32_t score) {
    return name_of(scores, COUNT(scores), score);
}
const char *normalisation_name(uint32_t normalisation) {
    return name_of(normalisations, COUNT(normalisations), normalisation);
}
const char *isa_name(uint32_t isa) {
    return name_of(isas, COUNT(isas), isa);
}

static int find(const char *const *names, int count, const char *name, size_t length) {
    for (int i = 0; i < count; i++)
        if (names[i] && strlen(names[i]) == length && !memcmp(names[i], name, length)) return i;
    return -1;
}

int role_from(const char *name, size_t length) {
    return find(roles, COUNT(roles), name, length);
}
int slot_from(const char *name, size_t length) {
    return find(slots, COUNT(slots), name, length);
}
int kind_from(const char *name) {
    return find(kinds, COUNT(kinds), name, strlen(name));
}
int residual_from(const char *name) {
    return find(residuals, COUNT(residuals), name, strlen(name));
}
int score_from(const char *name) {
    return find(scores, COUNT(scores), name, strlen(name));
}
int normalisation_from(const char *name) {
    return find(normalisations, COUNT(normalisations), name, strlen(name));
}
int part_from(const char *name, size_t length) {
    return find(parts, COUNT(parts), name, length);
}

void role_names(char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < COUNT(roles) && used < size; i++)
        if (roles[i]) used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", roles[i]);
}

uint32_t norm_weight_role(uint32_t slot) {
    return FFN_ROLE_NORM_IN_WEIGHT + 2 * slot;
}
uint32_t norm_bias_role(uint32_t slot) {
    return norm_weight_role(slot) + 1;
}
