/* SPDX-License-Identifier: MIT
 * The table of roles. */
#include "io/roles.h"

#include <stddef.h>

#define MATRIX(text, outputs, ...) {.name = text, .matrix = 1, .out = outputs, .in = __VA_ARGS__}
#define VECTOR(text, ...)          {.name = text, .out = __VA_ARGS__}
#define EXPERT .expert = 1
#define MOE    .moe = 1

static const role_t roles[FFNIO_ROLES] = {
    [FFN_ROLE_UP_WEIGHT] = MATRIX("up weight", D_FF, EXPERT_IN, EXPERT),
    [FFN_ROLE_UP_BIAS] = VECTOR("up bias", D_FF, EXPERT),
    [FFN_ROLE_GATE_WEIGHT] = MATRIX("gate weight", D_FF, EXPERT_IN, EXPERT),
    [FFN_ROLE_GATE_BIAS] = VECTOR("gate bias", D_FF, EXPERT),
    [FFN_ROLE_DOWN_WEIGHT] = MATRIX("down weight", EXPERT_OUT, D_FF, EXPERT),
    [FFN_ROLE_DOWN_BIAS] = VECTOR("down bias", EXPERT_OUT, EXPERT),
    [FFN_ROLE_NORM_IN_WEIGHT] = VECTOR("weight of norm IN", D_MODEL),
    [FFN_ROLE_NORM_IN_BIAS] = VECTOR("bias of norm IN", D_MODEL),
    [FFN_ROLE_NORM_MID_WEIGHT] = VECTOR("weight of norm MID", D_FF, EXPERT),
    [FFN_ROLE_NORM_MID_BIAS] = VECTOR("bias of norm MID", D_FF, EXPERT),
    [FFN_ROLE_NORM_BRANCH_WEIGHT] = VECTOR("weight of norm BRANCH", D_OUT),
    [FFN_ROLE_NORM_BRANCH_BIAS] = VECTOR("bias of norm BRANCH", D_OUT),
    [FFN_ROLE_NORM_OUT_WEIGHT] = VECTOR("weight of norm OUT", D_OUT),
    [FFN_ROLE_NORM_OUT_BIAS] = VECTOR("bias of norm OUT", D_OUT),
    [FFN_ROLE_BRANCH_SCALE] = VECTOR("branch scale", D_OUT, .constant = 1),
    [FFN_ROLE_RESIDUAL_SCALE] = VECTOR("residual scale", D_OUT, .constant = 1),
    [FFN_ROLE_XIELU_ALPHA_P] = VECTOR("alpha_p of xielu", ONE, .constant = 1),
    [FFN_ROLE_XIELU_ALPHA_N] = VECTOR("alpha_n of xielu", ONE, .constant = 1),
    [FFN_ROLE_ROUTER_WEIGHT] = MATRIX("router weight", ROUTED, D_MODEL, MOE),
    [FFN_ROLE_ROUTER_BIAS] = VECTOR("router bias", ROUTED, MOE),
    [FFN_ROLE_ROUTER_NORM_WEIGHT] = VECTOR("weight of the router's norm", D_MODEL, MOE),
    [FFN_ROLE_SELECTION_BIAS] = VECTOR("selection bias", ROUTED, MOE),
    [FFN_ROLE_EXPERT_SCALE] = VECTOR("expert scale", ROUTED, MOE),
    [FFN_ROLE_COMBINE_BIAS] = VECTOR("combine bias", D_OUT, MOE),
    [FFN_ROLE_SHARED_UP_WEIGHT] = MATRIX("shared up weight", D_SHARED, D_MODEL, MOE),
    [FFN_ROLE_SHARED_UP_BIAS] = VECTOR("shared up bias", D_SHARED, MOE),
    [FFN_ROLE_SHARED_GATE_WEIGHT] = MATRIX("shared gate weight", D_SHARED, D_MODEL, MOE),
    [FFN_ROLE_SHARED_GATE_BIAS] = VECTOR("shared gate bias", D_SHARED, MOE),
    [FFN_ROLE_SHARED_DOWN_WEIGHT] = MATRIX("shared down weight", D_OUT, D_SHARED, MOE),
    [FFN_ROLE_SHARED_DOWN_BIAS] = VECTOR("shared down bias", D_OUT, MOE),
    [FFN_ROLE_SHARED_SCALE_WEIGHT] = MATRIX("shared scale weight", ONE, D_MODEL, MOE),
    [FFN_ROLE_LATENT_IN_WEIGHT] = MATRIX("weight of the latent projection in", D_LATENT, D_MODEL, MOE),
    [FFN_ROLE_LATENT_IN_BIAS] = VECTOR("bias of the latent projection in", D_LATENT, MOE),
    [FFN_ROLE_LATENT_OUT_WEIGHT] = MATRIX("weight of the latent projection out", D_OUT, D_LATENT, MOE),
    [FFN_ROLE_LATENT_OUT_BIAS] = VECTOR("bias of the latent projection out", D_OUT, MOE),
};

const role_t *ffnio_role(uint32_t role) {
    return role < FFNIO_ROLES && roles[role].name ? &roles[role] : NULL;
}

int ffnio_role_is_matrix(uint32_t role) {
    const role_t *known = ffnio_role(role);
    return known && known->matrix;
}

int ffnio_role_is_expert(uint32_t role) {
    const role_t *known = ffnio_role(role);
    return known && known->expert;
}

int64_t ffnio_dimension(const sizes_t *sizes, dimension_t dimension) {
    switch (dimension) {
    case ONE: return 1;
    case D_MODEL: return sizes->d_model;
    case D_FF: return sizes->d_ff;
    case D_OUT: return sizes->d_out;
    case EXPERT_IN: return sizes->d_latent >= 0 ? sizes->d_latent : sizes->d_model;
    case EXPERT_OUT: return sizes->d_latent >= 0 ? sizes->d_latent : sizes->d_out;
    case ROUTED: return sizes->routed;
    case D_SHARED: return sizes->d_shared;
    case D_LATENT: return sizes->d_latent;
    }
    return -1;
}
