/* SPDX-License-Identifier: MIT
 * What a row of the family table says about a mixture of experts: what its tensors are called and how they lie in the file, and which router it has.
 * Data alone, as in families.h; a layer of experts is a row there that points to a rule here. */
#ifndef FFNIO_EXPERTS_H
#define FFNIO_EXPERTS_H

#include <ffn/ffn_io.h>

/* Whether a tensor is there. */
typedef enum presence { ABSENT, PRESENT, IF_STORED } presence_t;

/* A linear layer: its tensors are <stem><module>.weight and .bias. module NULL: the family has none. */
typedef struct projection {
    const char *module;
    uint32_t part; /* FFN_PART_* */
} projection_t;

/* A way in which experts lie in files. Modules stand after the block's name; {i} in them is the expert's number, and without it the tensor is a stack of
 * all experts. */
typedef struct expert_layout {
    projection_t up, gate, down; /* gate.module NULL: dense experts */
    uint32_t layout, down_layout; /* FFN_LAYOUT_*: of up and gate, of down */
    const char *weight, *bias;    /* endings of the names */
    presence_t biases;
} expert_layout_t;

/* Lists are separated by spaces. What config.json says nothing about is the class default. */
typedef struct moe_rule {
    const char *blocks;       /* list: what the names begin with after the layer's prefix. A file that says no model_type is known by the first alone */
    const char *routers;      /* list: the router's module, after the block */
    presence_t router_bias;
    const char *selection_bias; /* list: the tensor, after the block. NULL: none */
    presence_t selected;        /* whether it is there */
    const expert_layout_t *const *layouts; /* those that files of the family have, up to NULL */
    const char *packed;         /* tensor, after the block, where the experts are stored in a type that is not read. NULL: none is known */
    projection_t shared_up, shared_gate, shared_down; /* the shared expert's, after the layer's prefix. NULL: none */
    presence_t shared;
    const char *shared_sigmoid; /* module of the shared expert's own gate, after the layer's prefix; there if the expert is */
    const char *combine_bias;   /* tensor, after the block: added after the combination */
    const char *latent_in, *latent_out; /* modules after the block, if they are stored: projections around the experts. NULL: none */

    const char *experts_keys, *top_k_keys; /* lists */
    int64_t top_k;
    uint32_t score;  /* FFN_MOE_SCORE_* */
    uint32_t weight; /* FFN_MOE_WEIGHT_* */
    uint32_t normalise;         /* FFN_MOE_NORMALISE_* */
    const char *normalise_key;  /* true or false: SUM or NONE */
    const char *norm_power_key; /* the p of POWER; null: not normalised */
    float eps_added, eps_least; /* where normalised */
    const char *eps_least_key;
    const char *scale_key;
    float scale;
    int scale_or_normalise;     /* weights that are normalised are not scaled (DeepSeek-V2) */
    int scale_is_rest;          /* scale is 1 less that number (NLLB's dropout of experts) */
    const char *score_key;      /* "softmax" or "sigmoid" */
    const char *method_key;     /* "greedy": no groups; "group_limited_greedy": by the largest; "noaux_tc": by the sum of the two largest */
    const char *groups_key, *top_groups_key;
    int64_t groups, top_groups;
    uint32_t group_score;       /* FFN_MOE_GROUP_* */
    const char *jitter_key;     /* the router is a SparseMixer with this threshold; the fields from score to groups are not looked at */
    float jitter;
    int weigh_input;            /* the weight multiplies the expert's input */
    const char *capacity_key;   /* tokens of a sequence that an expert takes */
    int64_t capacity;
    const char *whole_key;      /* a share that must be 1: less is not expressed */
    const char *dense;          /* the row of the model's layers that have no experts, where the caller names the family. NULL: none */
} moe_rule_t;

extern const moe_rule_t ffnio_moe_mixtral, ffnio_moe_minimax_m2, ffnio_moe_qwen2, ffnio_moe_qwen3, ffnio_moe_qwen3_vl, ffnio_moe_qwen3_next,
    ffnio_moe_qwen3_5, ffnio_moe_olmoe, ffnio_moe_flex_olmo, ffnio_moe_deepseek_v2, ffnio_moe_deepseek_v3, ffnio_moe_glm4, ffnio_moe_dots1,
    ffnio_moe_ernie4_5, ffnio_moe_hunyuan, ffnio_moe_afmoe, ffnio_moe_lfm2, ffnio_moe_gpt_oss, ffnio_moe_llama4, ffnio_moe_granite, ffnio_moe_jetmoe,
    ffnio_moe_aria, ffnio_moe_dbrx, ffnio_moe_jamba, ffnio_moe_switch, ffnio_moe_nllb, ffnio_moe_phimoe, ffnio_moe_nemotron_h;

#endif
