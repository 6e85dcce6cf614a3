/* SPDX-License-Identifier: MIT
 *
 * The oracle of a mixture of experts: its branch in float64, each number with its bound as in oracle.h, from a routing that a test's own rule has
 * made of float64 logits.
 */
#ifndef FFN_TEST_ORACLE_MIXTURE_H
#define FFN_TEST_ORACLE_MIXTURE_H

#include "support/oracle.h"

enum { ORACLE_EXPERTS_MOST = 512, ORACLE_NO_EXPERT = -1 };

/* A token's logits, and what a rule makes of them. */
typedef struct oracle_token {
    int experts, top_k;
    double z[ORACLE_EXPERTS_MOST], z_bound; /* of the worst */
    double bias[ORACLE_EXPERTS_MOST], scale[ORACLE_EXPERTS_MOST]; /* selection bias and scale of experts: 0 and 1 where there is none */
    double choice[ORACLE_EXPERTS_MOST]; /* what the ids are chosen by; -INFINITY: out */
    int ids[ORACLE_EXPERTS_MOST];
    double w[ORACLE_EXPERTS_MOST];
} oracle_token_t;

/* A family's rule for a token, and what it does to the tokens of a run together. */
typedef void oracle_rule_fn(oracle_token_t *token);
typedef void oracle_batch_rule_fn(oracle_token_t *tokens, int64_t count);

typedef struct oracle_mixture {
    int64_t experts, choices, top_k; /* choices: identity experts too */
    const oracle_layer_t *expert;    /* [experts]: networks without norms before and behind, residual and scales */
    const oracle_layer_t *shared;    /* NULL: none */
    const float *shared_scale;       /* [d_model]; NULL: 1 */
    int64_t d_latent;                /* 0: none */
    const float *latent_in, *latent_in_bias, *latent_out, *latent_out_bias, *combine_bias;
    const float *router, *router_bias, *selection_bias, *expert_scale;
    oracle_norm_t router_norm;
    int route_unnormed, weight_on_input;
    oracle_token_t *token; /* the routing: by oracle_mixture_route, or a test's */
} oracle_mixture_t;

/* Makes mixture->token [tokens] (the caller frees it): logits of x through the layer's norm IN, and the rules on them
 * (batch_rule NULL: none). */
void oracle_mixture_route(oracle_mixture_t *mixture, const oracle_layer_t *layer, int64_t tokens, const double *x, oracle_rule_fn *rule,
                          oracle_batch_rule_fn *batch_rule);

/* y = the branch of token `token` from its normed input. */
void oracle_mixture_run(const oracle_mixture_t *mixture, int64_t token, const oracle_row_t *n, oracle_row_t *y);

#endif
