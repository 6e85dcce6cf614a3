/* SPDX-License-Identifier: MIT
 * The table of roles. */
#include "core/roles.h"

#include <ffn/ffn.h>

const role_t ffni_roles[ROLE_LIMIT] = {
    [FFN_ROLE_UP_WEIGHT] = {"the up weight", 2, {EXTENT_D_FF, EXTENT_D_MODEL}},
    [FFN_ROLE_UP_BIAS] = {"the up bias", 1, {EXTENT_D_FF}},
    [FFN_ROLE_GATE_WEIGHT] = {"the gate weight", 2, {EXTENT_D_FF, EXTENT_D_MODEL}},
    [FFN_ROLE_GATE_BIAS] = {"the gate bias", 1, {EXTENT_D_FF}},
    [FFN_ROLE_DOWN_WEIGHT] = {"the down weight", 2, {EXTENT_D_OUT, EXTENT_D_FF}},
    [FFN_ROLE_DOWN_BIAS] = {"the down bias", 1, {EXTENT_D_OUT}},
    [FFN_ROLE_NORM_IN_WEIGHT] = {"the weight of norm IN", 1, {EXTENT_D_MODEL}},
    [FFN_ROLE_NORM_IN_BIAS] = {"the bias of norm IN", 1, {EXTENT_D_MODEL}},
    [FFN_ROLE_NORM_MID_WEIGHT] = {"the weight of norm MID", 1, {EXTENT_D_FF}},
    [FFN_ROLE_NORM_MID_BIAS] = {"the bias of norm MID", 1, {EXTENT_D_FF}},
    [FFN_ROLE_NORM_BRANCH_WEIGHT] = {"the weight of norm BRANCH", 1, {EXTENT_D_OUT}},
    [FFN_ROLE_NORM_BRANCH_BIAS] = {"the bias of norm BRANCH", 1, {EXTENT_D_OUT}},
    [FFN_ROLE_NORM_OUT_WEIGHT] = {"the weight of norm OUT", 1, {EXTENT_D_OUT}},
    [FFN_ROLE_NORM_OUT_BIAS] = {"the bias of norm OUT", 1, {EXTENT_D_OUT}},
    [FFN_ROLE_BRANCH_SCALE] = {"the branch scale", 1, {EXTENT_ONE_OR_D_OUT}},
    [FFN_ROLE_RESIDUAL_SCALE] = {"the residual scale", 1, {EXTENT_ONE_OR_D_OUT}},
    [FFN_ROLE_XIELU_ALPHA_P] = {"xielu's alpha_p", 1, {EXTENT_ONE}},
    [FFN_ROLE_XIELU_ALPHA_N] = {"xielu's alpha_n", 1, {EXTENT_ONE}},
};
