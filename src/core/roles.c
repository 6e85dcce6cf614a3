/* SPDX-License-Identifier: MIT
 * The table of roles. */
#include "core/roles.h"

#include <ffn/ffn.h>

const role_t ffni_roles[ROLE_LIMIT] = {
    [FFN_ROLE_UP_WEIGHT] = {"the up weight", 2, {EXTENT_D_FF, EXTENT_EXPERT_IN}, OWNER_EXPERT},
    [FFN_ROLE_UP_BIAS] = {"the up bias", 1, {EXTENT_D_FF}, OWNER_EXPERT},
    [FFN_ROLE_GATE_WEIGHT] = {"the gate weight", 2, {EXTENT_D_FF, EXTENT_EXPERT_IN}, OWNER_EXPERT},
    [FFN_ROLE_GATE_BIAS] = {"the gate bias", 1, {EXTENT_D_FF}, OWNER_EXPERT},
    [FFN_ROLE_DOWN_WEIGHT] = {"the down weight", 2, {EXTENT_EXPERT_OUT, EXTENT_D_FF}, OWNER_EXPERT},
    [FFN_ROLE_DOWN_BIAS] = {"the down bias", 1, {EXTENT_EXPERT_OUT}, OWNER_EXPERT},
    [FFN_ROLE_NORM_IN_WEIGHT] = {"the weight of norm IN", 1, {EXTENT_D_MODEL}, OWNER_LAYER},
    [FFN_ROLE_NORM_IN_BIAS] = {"the bias of norm IN", 1, {EXTENT_D_MODEL}, OWNER_LAYER},
    [FFN_ROLE_NORM_MID_WEIGHT] = {"the weight of norm MID", 1, {EXTENT_D_FF}, OWNER_EXPERT},
    [FFN_ROLE_NORM_MID_BIAS] = {"the bias of norm MID", 1, {EXTENT_D_FF}, OWNER_EXPERT},
    [FFN_ROLE_NORM_BRANCH_WEIGHT] = {"the weight of norm BRANCH", 1, {EXTENT_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_NORM_BRANCH_BIAS] = {"the bias of norm BRANCH", 1, {EXTENT_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_NORM_OUT_WEIGHT] = {"the weight of norm OUT", 1, {EXTENT_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_NORM_OUT_BIAS] = {"the bias of norm OUT", 1, {EXTENT_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_BRANCH_SCALE] = {"the branch scale", 1, {EXTENT_ONE_OR_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_RESIDUAL_SCALE] = {"the residual scale", 1, {EXTENT_ONE_OR_D_OUT}, OWNER_LAYER},
    [FFN_ROLE_XIELU_ALPHA_P] = {"xielu's alpha_p", 1, {EXTENT_ONE}, OWNER_LAYER},
    [FFN_ROLE_XIELU_ALPHA_N] = {"xielu's alpha_n", 1, {EXTENT_ONE}, OWNER_LAYER},
    [FFN_ROLE_ROUTER_WEIGHT] = {"the router weight", 2, {EXTENT_CHOICES, EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_ROUTER_BIAS] = {"the router bias", 1, {EXTENT_CHOICES}, OWNER_MIXTURE},
    [FFN_ROLE_ROUTER_NORM_WEIGHT] = {"the weight of the router's norm", 1, {EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_SELECTION_BIAS] = {"the selection bias", 1, {EXTENT_CHOICES}, OWNER_MIXTURE},
    [FFN_ROLE_EXPERT_SCALE] = {"the scale of experts", 1, {EXTENT_CHOICES}, OWNER_MIXTURE},
    [FFN_ROLE_COMBINE_BIAS] = {"the combine bias", 1, {EXTENT_D_OUT}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_UP_WEIGHT] = {"the shared up weight", 2, {EXTENT_D_SHARED, EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_UP_BIAS] = {"the shared up bias", 1, {EXTENT_D_SHARED}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_GATE_WEIGHT] = {"the shared gate weight", 2, {EXTENT_D_SHARED, EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_GATE_BIAS] = {"the shared gate bias", 1, {EXTENT_D_SHARED}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_DOWN_WEIGHT] = {"the shared down weight", 2, {EXTENT_D_OUT, EXTENT_D_SHARED}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_DOWN_BIAS] = {"the shared down bias", 1, {EXTENT_D_OUT}, OWNER_MIXTURE},
    [FFN_ROLE_SHARED_SCALE_WEIGHT] = {"the shared scale weight", 2, {EXTENT_ONE, EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_LATENT_IN_WEIGHT] = {"the latent in weight", 2, {EXTENT_D_LATENT, EXTENT_D_MODEL}, OWNER_MIXTURE},
    [FFN_ROLE_LATENT_IN_BIAS] = {"the latent in bias", 1, {EXTENT_D_LATENT}, OWNER_MIXTURE},
    [FFN_ROLE_LATENT_OUT_WEIGHT] = {"the latent out weight", 2, {EXTENT_D_OUT, EXTENT_D_LATENT}, OWNER_MIXTURE},
    [FFN_ROLE_LATENT_OUT_BIAS] = {"the latent out bias", 1, {EXTENT_D_OUT}, OWNER_MIXTURE},
};
