/* SPDX-License-Identifier: MIT
 * The rules of known mixtures of experts. docs/routing.md tells users which options of a router stand for them, docs/families.md which names.
 *
 * Sources: the model and configuration classes of huggingface/transformers, and what its conversion_mapping.py makes of the names of older files: it
 * saves the experts as stacks. DeepSeek's and OpenAI's own code where the row says so. */
#include "io/experts.h"

#include <stddef.h>

/* ---------------------------------------------------------------- Layouts */

/* One tensor for each matrix of each expert. */
static const expert_layout_t w1_w2_w3 = {
    .up = {"experts.{i}.w3", 0}, .gate = {"experts.{i}.w1", 0}, .down = {"experts.{i}.w2", 0}, .weight = ".weight", .bias = ".bias"};
static const expert_layout_t projections = {
    .up = {"experts.{i}.up_proj", 0}, .gate = {"experts.{i}.gate_proj", 0}, .down = {"experts.{i}.down_proj", 0}, .weight = ".weight", .bias = ".bias"};
static const expert_layout_t up_down = {
    .up = {"experts.{i}.up_proj", 0}, .down = {"experts.{i}.down_proj", 0}, .weight = ".weight", .bias = ".bias"};
static const expert_layout_t wi_wo = {
    .up = {"experts.expert_{i}.wi", 0}, .down = {"experts.expert_{i}.wo", 0}, .weight = ".weight", .bias = ".bias"};
static const expert_layout_t fc1_fc2 = {
    .up = {"experts.expert_{i}.fc1", 0}, .down = {"experts.expert_{i}.fc2", 0}, .weight = ".weight", .bias = ".bias", .biases = PRESENT};

/* Stacks. The first half of gate_up is the gate. What Transformers 5 saves is [experts, out, in] ... */
#define HALVES(module) .gate = {module, FFN_PART_FIRST_HALF}, .up = {module, FFN_PART_SECOND_HALF}
#define IN_OUT         .layout = FFN_LAYOUT_IN_OUT, .down_layout = FFN_LAYOUT_IN_OUT
static const expert_layout_t stacks = {HALVES("experts.gate_up_proj"), .down = {"experts.down_proj", 0}, .weight = "", .bias = "_bias"};
static const expert_layout_t stacks_up_down = {.up = {"experts.up_proj", 0}, .down = {"experts.down_proj", 0}, .weight = "", .bias = "_bias"};
/* ... but for the models whose experts are products from the left: [experts, in, out]. */
static const expert_layout_t stacks_in_out = {
    HALVES("experts.gate_up_proj"), .down = {"experts.down_proj", 0}, IN_OUT, .weight = "", .bias = "_bias"};
/* Column 2 j is the gate's, 2 j + 1 the linear branch's. */
static const expert_layout_t stacks_interleaved = {.gate = {"experts.gate_up_proj", FFN_PART_EVEN}, .up = {"experts.gate_up_proj", FFN_PART_ODD},
                                                   .down = {"experts.down_proj", 0}, IN_OUT, .weight = "", .bias = "_bias", .biases = PRESENT};
static const expert_layout_t linears = {HALVES("input_linear"), .down = {"output_linear", 0}, .weight = ".weight", .bias = ".bias"};
static const expert_layout_t fc1_fc2_in_out = {
    HALVES("experts.fc1"), .down = {"experts.fc2", 0}, IN_OUT, .weight = ".weight", .bias = ".bias"};
/* [experts * d_ff, d_model], all three: the down matrix is the transpose of what its shape says. */
static const expert_layout_t folded = {.gate = {"experts.mlp.w1", 0}, .up = {"experts.mlp.v1", 0}, .down = {"experts.mlp.w2", 0},
                                       .down_layout = FFN_LAYOUT_IN_OUT, .weight = "", .bias = "_bias"};

#define LAYOUTS(...) .layouts = (const expert_layout_t *const[]){__VA_ARGS__, NULL}

/* ---------------------------------------------------------------- Routers */

#define SHARED(prefix) .shared_up = {prefix "up_proj", 0}, .shared_gate = {prefix "gate_proj", 0}, .shared_down = {prefix "down_proj", 0}
#define BY_NORM_TOPK_PROB .normalise_key = "norm_topk_prob"
#define ALWAYS_NORMALISED .normalise = FFN_MOE_NORMALISE_SUM
#define SOFTMAX_OF_CHOSEN .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX

const moe_rule_t ffnio_moe_mixtral = {
    .blocks = "block_sparse_moe. mlp.", .routers = "gate", LAYOUTS(&w1_w2_w3, &stacks), ALWAYS_NORMALISED, .experts_keys = "num_local_experts num_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 2};

const moe_rule_t ffnio_moe_minimax_m2 = {
    .blocks = "block_sparse_moe. mlp.", .routers = "gate", .selection_bias = "e_score_correction_bias gate.e_score_correction_bias", .selected = PRESENT,
    LAYOUTS(&w1_w2_w3, &stacks), .score = FFN_MOE_SCORE_SIGMOID, ALWAYS_NORMALISED, .experts_keys = "num_local_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 8};

const moe_rule_t ffnio_moe_phimoe = {
    .blocks = "block_sparse_moe. mlp.", .routers = "gate router", LAYOUTS(&w1_w2_w3, &stacks), .experts_keys = "num_local_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 2, .jitter_key = "router_jitter_noise", .jitter = 0.01f};

#define QWEN .blocks = "mlp.", .routers = "gate", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok", .dense = "llama"
#define QWEN_SHARED SHARED("mlp.shared_expert."), .shared = PRESENT, .shared_sigmoid = "mlp.shared_expert_gate"

const moe_rule_t ffnio_moe_qwen2 = {QWEN, QWEN_SHARED, LAYOUTS(&projections, &stacks), BY_NORM_TOPK_PROB, .top_k = 4};
const moe_rule_t ffnio_moe_qwen3 = {QWEN, LAYOUTS(&projections, &stacks), BY_NORM_TOPK_PROB, .top_k = 8};
const moe_rule_t ffnio_moe_qwen3_vl = {QWEN, LAYOUTS(&projections, &stacks_in_out, &stacks), ALWAYS_NORMALISED, .top_k = 8};
const moe_rule_t ffnio_moe_qwen3_next = {.blocks = "mlp.", .routers = "gate", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok",
                                         QWEN_SHARED, LAYOUTS(&projections, &stacks), BY_NORM_TOPK_PROB, ALWAYS_NORMALISED, .top_k = 10,
                                         .dense = "qwen3_5"};
const moe_rule_t ffnio_moe_qwen3_5 = {.blocks = "mlp.", .routers = "gate", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok",
                                      QWEN_SHARED, LAYOUTS(&projections, &stacks), ALWAYS_NORMALISED, .top_k = 8, .dense = "qwen3_5"};

const moe_rule_t ffnio_moe_olmoe = {.blocks = "mlp.", .routers = "gate", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok",
                                    LAYOUTS(&projections, &stacks), BY_NORM_TOPK_PROB, .top_k = 8};
const moe_rule_t ffnio_moe_flex_olmo = {.blocks = "mlp.", .routers = "gate", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok",
                                        LAYOUTS(&projections, &stacks), BY_NORM_TOPK_PROB, .top_k = 5};

#define DEEPSEEK                                                                                                                               \
    .blocks = "mlp.", .routers = "gate", LAYOUTS(&projections, &stacks), SHARED("mlp.shared_experts."), .shared = IF_STORED, BY_NORM_TOPK_PROB,  \
    .eps_added = 1e-20f, .scale_key = "routed_scaling_factor", .groups_key = "n_group", .top_groups_key = "topk_group",                        \
    .experts_keys = "n_routed_experts num_experts num_local_experts", .top_k_keys = "num_experts_per_tok", .dense = "llama"
#define SIGMOID_GROUPS                                                                                                                         \
    .score = FFN_MOE_SCORE_SIGMOID, .group_score = FFN_MOE_GROUP_TOP2_SUM, .selection_bias = "gate.e_score_correction_bias"

/* Either normalised or scaled, in DeepSeek's own code. */
const moe_rule_t ffnio_moe_deepseek_v2 = {DEEPSEEK, .score_key = "scoring_func", .method_key = "topk_method", .scale_or_normalise = 1, .top_k = 6};
/* A file without the bias was trained with losses instead (topk_method). */
const moe_rule_t ffnio_moe_deepseek_v3 = {DEEPSEEK, SIGMOID_GROUPS, .selected = IF_STORED, ALWAYS_NORMALISED, .score_key = "scoring_func", .scale = 2.5f,
                                          .groups = 8, .top_groups = 4, .top_k = 8};
const moe_rule_t ffnio_moe_glm4 = {DEEPSEEK, SIGMOID_GROUPS, .selected = PRESENT, ALWAYS_NORMALISED, .top_k = 8};
const moe_rule_t ffnio_moe_dots1 = {DEEPSEEK, SIGMOID_GROUPS, .selected = PRESENT, .top_k = 8};

/* Experts and shared experts of two matrices. Some models (latent) have the routed ones between two projections. */
const moe_rule_t ffnio_moe_nemotron_h = {
    .blocks = "mixer.", .routers = "gate", SIGMOID_GROUPS, .selected = PRESENT, LAYOUTS(&up_down, &stacks_up_down),
    .shared_up = {"mixer.shared_experts.up_proj", 0}, .shared_down = {"mixer.shared_experts.down_proj", 0}, .shared = IF_STORED,
    .latent_in = "fc1_latent_proj", .latent_out = "fc2_latent_proj", ALWAYS_NORMALISED, BY_NORM_TOPK_PROB, .eps_added = 1e-20f,
    .scale_key = "routed_scaling_factor", .groups_key = "n_group", .top_groups_key = "topk_group", .experts_keys = "n_routed_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 2, .dense = "nemotron_h_dense"};

const moe_rule_t ffnio_moe_ernie4_5 = {
    .blocks = "mlp.", .routers = "gate", LAYOUTS(&projections, &stacks), .selected = PRESENT, SHARED("mlp.shared_experts."), .shared = IF_STORED,
    .selection_bias = "moe_statics.e_score_correction_bias gate.moe_statics.e_score_correction_bias", ALWAYS_NORMALISED, .eps_least = 1e-12f,
    .eps_least_key = "moe_norm_min", .experts_keys = "moe_num_experts", .top_k_keys = "moe_k", .top_k = 6, .dense = "llama"};
const moe_rule_t ffnio_moe_hunyuan = {
    .blocks = "mlp.", .routers = "gate.wg gate", LAYOUTS(&projections, &stacks), SHARED("mlp.shared_mlp."), .shared = IF_STORED, ALWAYS_NORMALISED,
    .experts_keys = "num_experts", .top_k_keys = "moe_topk", .top_k = 1, .dense = "llama"};
const moe_rule_t ffnio_moe_afmoe = {
    .blocks = "mlp.", .routers = "router.gate", LAYOUTS(&projections, &stacks), SHARED("mlp.shared_experts."), .shared = IF_STORED,
    .selection_bias = "expert_bias", .selected = PRESENT, .score = FFN_MOE_SCORE_SIGMOID, ALWAYS_NORMALISED, .normalise_key = "route_norm",
    .eps_added = 1e-20f, .scale_key = "route_scale", .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok", .top_k = 6, .dense = "afmoe_dense"};
const moe_rule_t ffnio_moe_lfm2 = {
    .blocks = "feed_forward.", .routers = "gate", LAYOUTS(&w1_w2_w3, &stacks), .selection_bias = "expert_bias", .selected = IF_STORED,
    .score = FFN_MOE_SCORE_SIGMOID, ALWAYS_NORMALISED, BY_NORM_TOPK_PROB, .eps_added = 1e-6f, .scale_key = "routed_scaling_factor",
    .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok", .top_k = 4, .dense = "llama_native"};

const moe_rule_t ffnio_moe_gpt_oss = {
    .blocks = "mlp.", .routers = "router", .router_bias = PRESENT, LAYOUTS(&stacks_interleaved), .packed = "experts.gate_up_proj_blocks",
    SOFTMAX_OF_CHOSEN, .experts_keys = "num_local_experts", .top_k_keys = "num_experts_per_tok experts_per_token", .top_k = 4};
const moe_rule_t ffnio_moe_llama4 = {
    .blocks = "feed_forward.", .routers = "router", LAYOUTS(&stacks_in_out, &stacks), SHARED("feed_forward.shared_expert."), .shared = PRESENT,
    .score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SIGMOID, .weigh_input = 1, .experts_keys = "num_local_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 1, .dense = "llama4_dense"};
const moe_rule_t ffnio_moe_granite = {
    .blocks = "block_sparse_moe.", .routers = "router.layer router", LAYOUTS(&linears, &stacks), SOFTMAX_OF_CHOSEN,
    .shared_gate = {"shared_mlp.input_linear", FFN_PART_FIRST_HALF}, .shared_up = {"shared_mlp.input_linear", FFN_PART_SECOND_HALF},
    .shared_down = {"shared_mlp.output_linear", 0}, .shared = IF_STORED, .experts_keys = "num_local_experts", .top_k_keys = "num_experts_per_tok",
    .top_k = 2, .dense = "granitemoe_dense"};
const moe_rule_t ffnio_moe_jetmoe = {
    .blocks = "mlp.", .routers = "router.layer", LAYOUTS(&linears), SOFTMAX_OF_CHOSEN, .combine_bias = "bias", .experts_keys = "num_local_experts",
    .top_k_keys = "num_experts_per_tok", .top_k = 2};
const moe_rule_t ffnio_moe_aria = {
    .blocks = "mlp.", .routers = "router", LAYOUTS(&fc1_fc2_in_out, &stacks_in_out), SOFTMAX_OF_CHOSEN, SHARED("mlp.shared_experts."), .shared = PRESENT,
    .experts_keys = "moe_num_experts", .top_k_keys = "moe_topk", .top_k = 2};
const moe_rule_t ffnio_moe_dbrx = {
    .blocks = "ffn.", .routers = "router.layer", LAYOUTS(&folded), .normalise = FFN_MOE_NORMALISE_POWER,
    .norm_power_key = "ffn_config.moe_normalize_expert_weights", .experts_keys = "ffn_config.moe_num_experts", .top_k_keys = "ffn_config.moe_top_k",
    .top_k = 1};
const moe_rule_t ffnio_moe_jamba = {
    .blocks = "feed_forward.", .routers = "router", LAYOUTS(&projections, &stacks), .experts_keys = "num_experts", .top_k_keys = "num_experts_per_tok",
    .top_k = 2, .dense = "jamba_dense"};

/* The one expert's weight is its probability and not 1. */
const moe_rule_t ffnio_moe_switch = {
    .blocks = "mlp.", .routers = "router.classifier", .router_bias = IF_STORED, LAYOUTS(&wi_wo), .experts_keys = "num_experts", .top_k = 1,
    .capacity_key = "expert_capacity", .capacity = 64, .dense = "switch_transformers_dense"};
/* As at inference, where every choice stands and the experts' outputs are scaled by what training drops of them. */
const moe_rule_t ffnio_moe_nllb = {
    .blocks = "ffn.", .routers = "router.classifier", .router_bias = IF_STORED, LAYOUTS(&fc1_fc2), ALWAYS_NORMALISED, .eps_least = 1.1920929e-7f,
    .scale_key = "moe_token_dropout", .scale = 0.2f, .scale_is_rest = 1, .whole_key = "moe_eval_capacity_token_fraction", .experts_keys = "num_experts",
    .top_k = 2, .dense = "nllb-moe_dense"};
