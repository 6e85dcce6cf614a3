/* SPDX-License-Identifier: MIT
 * The steps on one row. */
#include "core/expert_rows.h"

#include "base/checked.h"

#include <stddef.h>

int64_t ffni_moe_first_column(const ffn_layer_t *layer, int64_t expert) {
    return (expert < 0 ? layer->mixture.experts : expert) * round_up(layer->d_ff, 4);
}

static int acts(const expert_row_t *at, int site) {
    return at->dropout && ffni_dropout_acts(at->dropout, site);
}

static void drop(const expert_row_t *at, int site, float *v) {
    if (acts(at, site))
        ffni_drop_from(at->dropout, at->network->kernels->training, site, at->row, at->first_column, at->network->d_ff, v);
}

static const float *activated_bias(const network_t *network) {
    return network->gated ? network->gate_bias : network->up_bias;
}

void ffni_expert_drop_hidden(const expert_row_t *at, float *hidden) {
    const float *bias = activated_bias(at->network);
    if (!acts(at, FFN_DROPOUT_PRE_ACTIVATION)) return;
    if (bias) at->network->kernels->combine(at->network->d_ff, hidden, hidden, bias, NULL, NULL, NULL);
    drop(at, FFN_DROPOUT_PRE_ACTIVATION, hidden);
}

const float *ffni_expert_bias(const expert_row_t *at) {
    return acts(at, FFN_DROPOUT_PRE_ACTIVATION) ? NULL : activated_bias(at->network);
}

void ffni_expert_drop_activated(const expert_row_t *at, float *act) {
    drop(at, FFN_DROPOUT_ACTIVATION, act);
    drop(at, FFN_DROPOUT_HIDDEN, act);
}

void ffni_expert_activate(const expert_row_t *at, float *act, const float *hidden) {
    const network_t *network = at->network;
    const activation_t *activation = &network->activation;
    const float *bias = ffni_expert_bias(at);
    if (network->gated)
        network->kernels->activate_gated[activation->kind](activation, network->d_ff, act, hidden, bias, hidden + network->d_ff, network->up_bias);
    else
        network->kernels->activate[activation->kind](activation, network->d_ff, act, hidden, bias);
    ffni_expert_drop_activated(at, act);
}
