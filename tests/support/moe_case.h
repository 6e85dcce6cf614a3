/* SPDX-License-Identifier: MIT
 *
 * A mixture of experts as the tests describe it, with random weights, the oracle's layer and the library's, as layer_case.h has them for a dense
 * layer.
 */
#ifndef FFN_TEST_MOE_CASE_H
#define FFN_TEST_MOE_CASE_H

#include "support/layer_case.h"
#include "support/oracle_mixture.h"

/* How the experts' tensors are given. */
typedef enum moe_form {
    MOE_SINGLY,     /* one tensor per expert, in the order of experts */
    MOE_BACKWARDS,  /* likewise, the last expert first */
    MOE_STACKS,     /* one tensor with a dimension more */
    MOE_PARTS,      /* expert 0 alone, then a stack of the rest */
    MOE_FORMS
} moe_form_t;

/* Zero means absent, or the library's default. d_out 0: d_model. */
typedef struct moe_case {
    const char *name;
    int64_t d_model, d_ff, d_out, d_shared, d_latent;
    uint32_t activation;
    float beta, gate_max, up_limit, up_offset;
    bool gated, shared_scale, latent_biases, no_router, router_bias, router_norm_weight, selection_bias, expert_scale, combine_bias;
    uint32_t biases; /* BIAS_*: of experts and shared experts */
    norm_case_t norm[4];
    uint32_t residual;
    float branch_factor; /* of a branch scale [1]; 0: none */
    moe_form_t form;
    layout_t layout, down_layout; /* of each expert's matrices */
    ffn_moe_options_t moe; /* struct_size is filled in */
    oracle_rule_fn *rule;  /* NULL: the test gives the routing */
    oracle_batch_rule_fn *batch_rule; /* NULL: none */
    uint64_t seed;
} moe_case_t;

typedef struct test_moe {
    moe_case_t is;
    int64_t experts, choices;
    float *plain[ROLES];   /* by role: contiguous [out, in], of experts one after the other */
    int64_t shape[ROLES][2];
    float *stored[ROLES];
    ffn_tensor_t *tensors;
    ffn_layer_options_t options;
    oracle_layer_t oracle;
    oracle_mixture_t mixture;
    oracle_layer_t *experts_oracle, shared_oracle;
    ffn_layer_t *layer;
} test_moe_t;

void test_moe_describe(test_moe_t *test, const moe_case_t *is);
void test_moe_create(test_moe_t *test);
void test_moe_make(test_moe_t *test, const moe_case_t *is); /* both */
void test_moe_free(test_moe_t *test);

/* A plain tensor of an expert, or of the layer (expert 0). */
float *test_moe_plain(const test_moe_t *test, uint32_t role, int64_t expert);

/* A run with its arrays: x, residual if the layer's is external, y (filled with NaN), ids, weights, logits, scores. */
typedef struct moe_data {
    int64_t tokens, top_k;
    float *x, *residual, *y, *weights, *logits, *scores;
    int32_t *ids;
    int64_t *counts;
    ffn_moe_statistics_t statistics;
    ffn_moe_routing_t routing; /* of ids and weights, which a test may give */
    ffn_moe_run_t moe;
} moe_data_t;

/* Of a layer that routes all outputs are asked for. */
moe_data_t moe_data_make(const test_moe_t *test, int64_t tokens, uint64_t seed);
void moe_data_free(moe_data_t *data);

/* One sequence. With `given` the data's ids and weights are the routing. */
ffn_status_t moe_data_run(const test_moe_t *test, ffn_context_t *context, moe_data_t *data, bool given);

/* Fails the test unless ids and outputs are the oracle's by the case's rule. Tokens whose choice float32 cannot tell apart are left out: few. */
void assert_moe_as_rule(test_moe_t *test, const moe_data_t *data);

/* Fails the test unless outputs are the oracle's for the data's ids and weights. */
void assert_moe_as_given(test_moe_t *test, const moe_data_t *data);

#endif
