/* SPDX-License-Identifier: MIT
 *
 * Small checkpoints with mixtures of experts, and what their layers compute, in float64: plain matrices of random numbers, the family's own formula for
 * ids and weights, the dense oracle for each expert.
 */
#ifndef FFN_TEST_IO_MOE_FILE_H
#define FFN_TEST_IO_MOE_FILE_H

#include <ffn/ffn_io.h>

#include "io/support/family_file.h"

enum { MOE_D_MODEL = 12, MOE_D_FF = 10, MOE_D_SHARED = 14, MOE_D_LATENT = 8, MOE_MOST_EXPERTS = 16 };

/* How the file has the experts. */
typedef enum expert_storage {
    SINGLE,            /* a tensor for each expert's matrix, [out, in] */
    STACK,             /* gate_up [E, 2 d_ff, d_model] in halves, down [E, d_model, d_ff] */
    STACK_IN_OUT,      /* gate_up [E, d_model, 2 d_ff] in halves, down [E, d_ff, d_model] */
    STACK_INTERLEAVED, /* likewise, gate and up taking turns */
    FOLDED             /* gate, up and the transpose of down, each [E d_ff, d_model] */
} expert_storage_t;

/* A token's logits, and the ids and weights that a family makes of them. */
typedef struct moe_choice {
    int experts, top_k;
    const double *z;
    const double *bias; /* for the choice alone */
    int ids[MOE_MOST_EXPERTS];
    double w[MOE_MOST_EXPERTS];
    double gap; /* between what was chosen and what was not, in the numbers that the choice is by: how near the tie is */
} moe_choice_t;

typedef void moe_rule_fn(moe_choice_t *choice);

typedef struct moe_case {
    const char *family, *config;
    const char *prefix; /* of layer %d */
    /* "router=mlp.gate.weight gate=mlp.experts.{e}.gate_proj.weight ...": whole names after the prefix, of what the file has: router, router_bias,
     * selection, combine, gate, up, down, fused (gate and up), gate_bias, up_bias, down_bias, fused_bias, shared_gate, shared_up, shared_down, shared_fused,
     * shared_scale, latent_in, latent_out, in, in_bias, branch */
    const char *names;
    expert_storage_t storage;
    int experts, top_k;
    moe_rule_fn *rule;
    uint32_t activation;
    float beta, gate_max, up_limit, up_offset;
    uint32_t norm;                 /* FFN_NORM_*, at IN, or at BRANCH where the names have no `in` */
    float eps, offset;
    float residual_factor, branch_factor; /* 0: 1 */
    bool normed_residual, weigh_input;
    bool without_config;           /* recognised without config.json too, and the same */
    int capacity;                  /* tokens that an expert takes; 0: no limit */
    int64_t d_ff;                  /* 0: MOE_D_FF */
} moe_case_t;

typedef struct moe_layer {
    const moe_case_t *is;
    int64_t d_ff, width; /* width: of what experts take and give */
    char prefix[128];
    float *router, *router_bias, *selection, *combine;
    float *gate, *up, *down, *gate_bias, *up_bias, *down_bias; /* [experts, ...]; NULL: absent */
    float *shared_gate, *shared_up, *shared_down, *shared_scale;
    float *latent_in, *latent_out; /* [MOE_D_LATENT, d_model] and back */
    float *norm, *norm_bias, *branch_norm;
    int64_t parameters, active; /* as the formula has them */
} moe_layer_t;

/* Random weights, the same for the same seed. */
void moe_layer_make(moe_layer_t *layer, const moe_case_t *is, int number, uint64_t seed);
void moe_layer_free(moe_layer_t *layer);

/* Adds the layer's tensors to a file, without one of them if `skip` is not NULL: "down.3" for that of expert 3. */
void moe_layer_add(const moe_layer_t *layer, model_file_t *file, const char *skip);

/* y [tokens, d_model] in float64. Returns how near the nearest tie between what was chosen and what was not is: where it is very near, rounding could
 * change the choice. */
double moe_layer_reference(const moe_layer_t *layer, int64_t tokens, const float *x, double *y);

#endif
