/* SPDX-License-Identifier: MIT
 *
 * Every mixture of experts of the family table: a small file with the family's names and layouts, older and newer, and a config.json as published ones
 * are, recognised, made and run against the family's formula in float64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/families.h"
#include "io/support/files.h"
#include "io/support/moe_rules.h"
#include "support/random.h"
#include "support/test.h"

#define LLAMA_NORM "in=post_attention_layernorm.weight "
#define SHARED_AT(at) "shared_gate=" at ".gate_proj.weight shared_up=" at ".up_proj.weight shared_down=" at ".down_proj.weight "
#define PROJECTIONS(at) "gate=" at "experts.{e}.gate_proj.weight up=" at "experts.{e}.up_proj.weight down=" at "experts.{e}.down_proj.weight "
#define W1_W2_W3(at) "gate=" at "experts.{e}.w1.weight up=" at "experts.{e}.w3.weight down=" at "experts.{e}.w2.weight "
#define STACKS(at) "fused=" at "experts.gate_up_proj down=" at "experts.down_proj "
#define QWEN_SHARED SHARED_AT("mlp.shared_expert") "shared_scale=mlp.shared_expert_gate.weight "
#define CORRECTION "selection=mlp.gate.e_score_correction_bias "

#define SILU .activation = FFN_ACTIVATION_SILU
#define RELU .activation = FFN_ACTIVATION_RELU
#define RELU2 .activation = FFN_ACTIVATION_RELU2
#define RMS(e) .norm = FFN_NORM_RMS, .eps = e
#define LN(e)  .norm = FFN_NORM_LAYER, .eps = e
#define OF(e, k) .experts = e, .top_k = k
#define BY_NAMES .without_config = true

static const moe_case_t cases[] = {
    {"mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":6,\"num_experts_per_tok\":2,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-05}",
     "model.layers.%d.", "router=block_sparse_moe.gate.weight " W1_W2_W3("block_sparse_moe.") LLAMA_NORM, SINGLE, OF(6, 2), rule_softmax_normalised, SILU,
     RMS(1e-5f), BY_NAMES},
    {"mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":12,\"num_experts_per_tok\":3}", "model.layers.%d.",
     "router=mlp.gate.weight " STACKS("mlp.") LLAMA_NORM, STACK, OF(12, 3), rule_softmax_normalised, SILU, RMS(1e-5f)},
    {"minimax", "{\"model_type\":\"minimax\",\"num_local_experts\":6,\"mlp_alpha_factor\":1.5,\"mlp_beta_factor\":0.5}", "model.layers.%d.",
     "router=block_sparse_moe.gate.weight " W1_W2_W3("block_sparse_moe.") LLAMA_NORM, SINGLE, OF(6, 2), rule_softmax_normalised, SILU, RMS(1e-5f),
     .normed_residual = true, .residual_factor = 1.5f, .branch_factor = 0.5f},
    {"minimax_m2", "{\"model_type\":\"minimax_m2\",\"num_local_experts\":6,\"num_experts_per_tok\":3}", "model.layers.%d.",
     "router=block_sparse_moe.gate.weight selection=block_sparse_moe.e_score_correction_bias " W1_W2_W3("block_sparse_moe.") LLAMA_NORM, SINGLE, OF(6, 3),
     rule_sigmoid_biased, SILU, RMS(1e-6f)},
    {"minimax_m2", "{\"model_type\":\"minimax_m2\",\"num_experts_per_tok\":2}", "model.layers.%d.",
     "router=mlp.gate.weight selection=mlp.e_score_correction_bias " STACKS("mlp.") LLAMA_NORM, STACK, OF(5, 2), rule_sigmoid_biased, SILU, RMS(1e-6f)},
    {"phimoe", "{\"model_type\":\"phimoe\",\"num_local_experts\":6,\"router_jitter_noise\":0.01,\"num_experts_per_tok\":2}", "model.layers.%d.",
     "router=block_sparse_moe.gate.weight " W1_W2_W3("block_sparse_moe.") LLAMA_NORM "in_bias=post_attention_layernorm.bias", SINGLE, OF(6, 2),
     rule_sparse_mixer, SILU, LN(1e-5f), BY_NAMES},
    {"phimoe", "{\"model_type\":\"phimoe\"}", "model.layers.%d.",
     "router=mlp.router.weight " STACKS("mlp.") LLAMA_NORM "in_bias=post_attention_layernorm.bias", STACK, OF(6, 2), rule_sparse_mixer, SILU, LN(1e-5f)},
    {"qwen2_moe", "{\"model_type\":\"qwen2_moe\",\"num_experts\":8,\"num_experts_per_tok\":4,\"norm_topk_prob\":false,\"decoder_sparse_step\":1}",
     "model.layers.%d.", "router=mlp.gate.weight " PROJECTIONS("mlp.") QWEN_SHARED LLAMA_NORM, SINGLE, OF(8, 4), rule_softmax, SILU, RMS(1e-6f)},
    {"qwen2_moe", "{\"model_type\":\"qwen2_moe\",\"num_experts\":8,\"norm_topk_prob\":true,\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     "router=mlp.gate.weight " STACKS("mlp.") QWEN_SHARED LLAMA_NORM, STACK, OF(8, 4), rule_softmax_normalised, SILU, RMS(1e-5f)},
    {"qwen3_moe", "{\"model_type\":\"qwen3_moe\",\"num_experts\":12,\"num_experts_per_tok\":8,\"norm_topk_prob\":true}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") LLAMA_NORM, SINGLE, OF(12, 8), rule_softmax_normalised, SILU, RMS(1e-6f)},
    {"qwen3_moe", "{\"model_type\":\"qwen3_moe\",\"num_experts\":12,\"num_experts_per_tok\":2}", "model.layers.%d.",
     "router=mlp.gate.weight " STACKS("mlp.") LLAMA_NORM, STACK, OF(12, 2), rule_softmax, SILU, RMS(1e-6f)},
    {"qwen3_vl_moe", "{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"model_type\":\"qwen3_vl_moe_text\",\"num_experts\":8,\"num_experts_per_tok\":2}}",
     "model.language_model.layers.%d.", "router=mlp.gate.weight " STACKS("mlp.") LLAMA_NORM, STACK_IN_OUT, OF(8, 2), rule_softmax_normalised, SILU,
     RMS(1e-6f)},
    {"qwen3_vl_moe", "{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"num_experts\":8,\"num_experts_per_tok\":2}}", "model.language_model.layers.%d.",
     "router=mlp.gate.weight " STACKS("mlp.") LLAMA_NORM, STACK, OF(8, 2), rule_softmax_normalised, SILU, RMS(1e-6f)},
    {"qwen3_next", "{\"model_type\":\"qwen3_next\",\"num_experts\":12,\"num_experts_per_tok\":10,\"norm_topk_prob\":true}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") QWEN_SHARED LLAMA_NORM, SINGLE, OF(12, 10), rule_softmax_normalised, SILU, RMS(1e-6f), .offset = 1},
    {"qwen3_5_moe", "{\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"model_type\":\"qwen3_5_moe_text\",\"num_experts_per_tok\":3}}",
     "model.language_model.layers.%d.", "router=mlp.gate.weight " STACKS("mlp.") QWEN_SHARED LLAMA_NORM, STACK, OF(6, 3), rule_softmax_normalised, SILU,
     RMS(1e-6f), .offset = 1},
    {"olmoe", "{\"model_type\":\"olmoe\",\"num_experts\":12,\"num_experts_per_tok\":8,\"norm_topk_prob\":false}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") LLAMA_NORM, SINGLE, OF(12, 8), rule_softmax, SILU, RMS(1e-5f)},
    {"flex_olmo", "{\"model_type\":\"flex_olmo\",\"num_experts\":7}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") "branch=post_feedforward_layernorm.weight", SINGLE, OF(7, 5), rule_softmax, SILU, RMS(1e-6f)},
    {"deepseek_v2", "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"topk_method\":\"group_limited_greedy\",\"n_group\":4,"
     "\"topk_group\":2,\"routed_scaling_factor\":16.0,\"norm_topk_prob\":false,\"scoring_func\":\"softmax\",\"first_k_dense_replace\":0}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE, OF(8, 3), rule_softmax_scaled, SILU, RMS(1e-6f)},
    {"deepseek_v2", "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":3,\"topk_method\":\"greedy\",\"n_group\":1,\"topk_group\":1,"
     "\"routed_scaling_factor\":2.5}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE, OF(8, 3), rule_softmax_twice, SILU, RMS(1e-6f)},
    {"deepseek_v2", "{\"model_type\":\"deepseek\",\"num_experts_per_tok\":3,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5}", "model.layers.%d.",
     "router=mlp.gate.weight " PROJECTIONS("mlp.") LLAMA_NORM, SINGLE, OF(8, 3), rule_softmax_normalised, SILU, RMS(1e-6f)},
    {"deepseek_v3", "{\"model_type\":\"deepseek_v3\",\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2,"
     "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5}", "model.layers.%d.",
     "router=mlp.gate.weight " CORRECTION PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE, OF(8, 3), rule_sigmoid_groups, SILU,
     RMS(1e-6f)},
    {"deepseek_v3", "{\"model_type\":\"kimi_k2\",\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2}", "model.layers.%d.",
     "router=mlp.gate.weight " CORRECTION STACKS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, STACK, OF(8, 3), rule_sigmoid_groups, SILU, RMS(1e-6f)},
    {"glm4_moe", "{\"model_type\":\"glm4_moe\",\"n_routed_experts\":8,\"num_experts_per_tok\":4,\"n_group\":1,\"topk_group\":1}", "model.layers.%d.",
     "router=mlp.gate.weight " CORRECTION PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE, OF(8, 4), rule_sigmoid_biased, SILU,
     RMS(1e-5f)},
    {"dots1", "{\"model_type\":\"dots1\",\"n_routed_experts\":8,\"num_experts_per_tok\":4,\"norm_topk_prob\":true,\"n_group\":4,\"topk_group\":2,"
     "\"routed_scaling_factor\":2.5}", "model.layers.%d.",
     "router=mlp.gate.weight " CORRECTION PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE, OF(8, 4), rule_sigmoid_groups, SILU,
     RMS(1e-6f)},
    {"nemotron_h", "{\"model_type\":\"nemotron_h\",\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2,"
     "\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"mlp_hidden_act\":\"relu2\",\"layer_norm_epsilon\":1e-05}", "backbone.layers.%d.",
     "router=mixer.gate.weight selection=mixer.gate.e_score_correction_bias up=mixer.experts.{e}.up_proj.weight down=mixer.experts.{e}.down_proj.weight "
     "shared_up=mixer.shared_experts.up_proj.weight shared_down=mixer.shared_experts.down_proj.weight in=norm.weight", SINGLE, OF(8, 3),
     rule_sigmoid_groups, RELU2, RMS(1e-5f)},
    /* without groups, and latent */
    {"nemotron_h", "{\"model_type\":\"nemotron_h\",\"num_experts_per_tok\":2,\"n_group\":1,\"topk_group\":1}", "backbone.layers.%d.",
     "router=mixer.gate.weight selection=mixer.gate.e_score_correction_bias up=mixer.experts.up_proj down=mixer.experts.down_proj "
     "latent_in=mixer.fc1_latent_proj.weight latent_out=mixer.fc2_latent_proj.weight "
     "shared_up=mixer.shared_experts.up_proj.weight shared_down=mixer.shared_experts.down_proj.weight in=norm.weight", STACK, OF(6, 2),
     rule_sigmoid_biased, RELU2, RMS(1e-5f), BY_NAMES},
    {"ernie4_5_moe", "{\"model_type\":\"ernie4_5_moe\",\"moe_num_experts\":8,\"moe_k\":3,\"moe_norm_min\":1e-12}", "model.layers.%d.",
     "router=mlp.gate.weight selection=mlp.moe_statics.e_score_correction_bias " PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM, SINGLE,
     OF(8, 3), rule_softmax_biased, SILU, RMS(1e-5f)},
    {"hunyuan_v1_moe", "{\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":8,\"moe_topk\":[3,3,3,3,3,3,3,3,3,3,3]}", "model.layers.%d.",
     "router=mlp.gate.wg.weight " PROJECTIONS("mlp.") SHARED_AT("mlp.shared_mlp") LLAMA_NORM, SINGLE, OF(8, 3), rule_softmax_normalised, SILU, RMS(1e-5f)},
    {"afmoe", "{\"model_type\":\"afmoe\",\"num_experts\":8,\"num_experts_per_tok\":3}", "model.layers.%d.",
     "router=mlp.router.gate.weight selection=mlp.expert_bias " PROJECTIONS("mlp.") SHARED_AT("mlp.shared_experts")
     "in=pre_mlp_layernorm.weight branch=post_mlp_layernorm.weight", SINGLE, OF(8, 3), rule_sigmoid_biased, SILU, RMS(1e-5f)},
    {"lfm2_moe", "{\"model_type\":\"lfm2_moe\",\"num_experts\":8,\"norm_eps\":1e-05,\"norm_topk_prob\":true,\"use_expert_bias\":true}", "model.layers.%d.",
     "router=feed_forward.gate.weight selection=feed_forward.expert_bias " W1_W2_W3("feed_forward.") "in=ffn_norm.weight", SINGLE, OF(8, 4),
     rule_sigmoid_biased, SILU, RMS(1e-5f), BY_NAMES},
    {"lfm2_moe", "{\"model_type\":\"lfm2_moe\",\"num_experts_per_tok\":2}", "model.layers.%d.",
     "router=feed_forward.gate.weight selection=feed_forward.expert_bias " STACKS("feed_forward.") "in=ffn_norm.weight", STACK, OF(8, 2),
     rule_sigmoid_biased, SILU, RMS(1e-5f)},
    {"gpt_oss", "{\"model_type\":\"gpt_oss\",\"num_local_experts\":6,\"num_experts_per_tok\":4,\"swiglu_limit\":7.0,\"hidden_act\":\"silu\"}",
     "model.layers.%d.", "router=mlp.router.weight router_bias=mlp.router.bias " STACKS("mlp.")
     "fused_bias=mlp.experts.gate_up_proj_bias down_bias=mlp.experts.down_proj_bias " LLAMA_NORM, STACK_INTERLEAVED, OF(6, 4), rule_softmax_of_chosen,
     .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 7, .up_limit = 7, .up_offset = 1, RMS(1e-5f), BY_NAMES},
    /* d_ff = d_model, as published: no shape tells [in, out] from [out, in] */
    {"gpt_oss", "{\"model_type\":\"gpt_oss\",\"swiglu_limit\":1.5}", "model.layers.%d.", "router=mlp.router.weight router_bias=mlp.router.bias " STACKS("mlp.")
     "fused_bias=mlp.experts.gate_up_proj_bias down_bias=mlp.experts.down_proj_bias " LLAMA_NORM, STACK_INTERLEAVED, OF(6, 4), rule_softmax_of_chosen,
     .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 1.5f, .up_limit = 1.5f, .up_offset = 1, RMS(1e-5f), .d_ff = MOE_D_MODEL},
    {"llama4", "{\"model_type\":\"llama4\",\"text_config\":{\"model_type\":\"llama4_text\",\"num_local_experts\":6,\"num_experts_per_tok\":1,"
     "\"rms_norm_eps\":1e-05,\"interleave_moe_layer_step\":1}}", "language_model.model.layers.%d.",
     "router=feed_forward.router.weight " STACKS("feed_forward.") SHARED_AT("feed_forward.shared_expert") LLAMA_NORM, STACK_IN_OUT, OF(6, 1),
     rule_sigmoid_of_chosen, SILU, RMS(1e-5f), .weigh_input = true, BY_NAMES},
    {"llama4", "{\"model_type\":\"llama4_text\",\"num_experts_per_tok\":2}", "model.layers.%d.",
     "router=feed_forward.router.weight " STACKS("feed_forward.") SHARED_AT("feed_forward.shared_expert") LLAMA_NORM, STACK, OF(6, 2),
     rule_sigmoid_of_chosen, SILU, RMS(1e-5f), .weigh_input = true},
    /* the two squares: gate_up of an expert, and down */
    {"llama4", "{\"model_type\":\"llama4_text\"}", "model.layers.%d.",
     "router=feed_forward.router.weight " STACKS("feed_forward.") SHARED_AT("feed_forward.shared_expert") LLAMA_NORM, STACK_IN_OUT, OF(6, 1),
     rule_sigmoid_of_chosen, SILU, RMS(1e-5f), .weigh_input = true, .d_ff = MOE_D_MODEL / 2},
    {"llama4", "{\"model_type\":\"llama4_text\"}", "model.layers.%d.",
     "router=feed_forward.router.weight " STACKS("feed_forward.") SHARED_AT("feed_forward.shared_expert") LLAMA_NORM, STACK_IN_OUT, OF(6, 1),
     rule_sigmoid_of_chosen, SILU, RMS(1e-5f), .weigh_input = true, .d_ff = MOE_D_MODEL},
    {"llama4", "{\"model_type\":\"llama4_text\"}", "model.layers.%d.",
     "router=feed_forward.router.weight " STACKS("feed_forward.") SHARED_AT("feed_forward.shared_expert") LLAMA_NORM, STACK, OF(6, 1),
     rule_sigmoid_of_chosen, SILU, RMS(1e-5f), .weigh_input = true, .d_ff = MOE_D_MODEL},
    {"granitemoe", "{\"model_type\":\"granitemoe\",\"num_local_experts\":6,\"num_experts_per_tok\":2,\"residual_multiplier\":0.22}", "model.layers.%d.",
     "router=block_sparse_moe.router.layer.weight fused=block_sparse_moe.input_linear.weight down=block_sparse_moe.output_linear.weight " LLAMA_NORM, STACK,
     OF(6, 2), rule_softmax_of_chosen, SILU, RMS(1e-6f), .branch_factor = 0.22f},
    {"granitemoe", "{\"model_type\":\"granitemoehybrid\",\"num_experts_per_tok\":3,\"residual_multiplier\":0.22}", "model.layers.%d.",
     "router=block_sparse_moe.router.layer.weight fused=block_sparse_moe.input_linear.weight down=block_sparse_moe.output_linear.weight "
     "shared_fused=shared_mlp.input_linear.weight shared_down=shared_mlp.output_linear.weight " LLAMA_NORM, STACK, OF(6, 3), rule_softmax_of_chosen, SILU,
     RMS(1e-6f), .branch_factor = 0.22f},
    {"granitemoe", "{\"model_type\":\"granitemoeshared\"}", "model.layers.%d.", "router=block_sparse_moe.router.weight " STACKS("block_sparse_moe.")
     "shared_fused=shared_mlp.input_linear.weight shared_down=shared_mlp.output_linear.weight " LLAMA_NORM, STACK, OF(6, 2), rule_softmax_of_chosen, SILU,
     RMS(1e-6f)},
    {"jetmoe", "{\"model_type\":\"jetmoe\",\"num_local_experts\":6,\"activation_function\":\"silu\"}", "model.layers.%d.",
     "router=mlp.router.layer.weight combine=mlp.bias fused=mlp.input_linear.weight down=mlp.output_linear.weight " LLAMA_NORM, STACK, OF(6, 2),
     rule_softmax_of_chosen, SILU, RMS(1e-6f), BY_NAMES},
    {"aria", "{\"model_type\":\"aria\",\"text_config\":{\"model_type\":\"aria_text\",\"moe_num_experts\":6,\"moe_topk\":3}}", "language_model.model.layers.%d.",
     "router=mlp.router.weight fused=mlp.experts.fc1.weight down=mlp.experts.fc2.weight " SHARED_AT("mlp.shared_experts") LLAMA_NORM, STACK_IN_OUT, OF(6, 3),
     rule_softmax_of_chosen, SILU, RMS(1e-6f)},
    {"aria", "{\"model_type\":\"aria_text\"}", "model.layers.%d.", "router=mlp.router.weight " STACKS("mlp.") SHARED_AT("mlp.shared_experts") LLAMA_NORM,
     STACK_IN_OUT, OF(6, 2), rule_softmax_of_chosen, SILU, RMS(1e-6f)},
    {"dbrx", "{\"model_type\":\"dbrx\",\"ffn_config\":{\"moe_num_experts\":6,\"moe_top_k\":4,\"moe_normalize_expert_weights\":2,"
     "\"ffn_act_fn\":{\"name\":\"silu\"}}}", "transformer.blocks.%d.",
     "router=ffn.router.layer.weight gate=ffn.experts.mlp.w1 up=ffn.experts.mlp.v1 down=ffn.experts.mlp.w2 in=norm_attn_norm.norm_2.weight", FOLDED,
     OF(6, 4), rule_softmax_power, SILU, LN(1e-5f)},
    {"dbrx", "{\"model_type\":\"dbrx\",\"ffn_config\":{\"moe_top_k\":2,\"moe_normalize_expert_weights\":null}}", "transformer.blocks.%d.",
     "router=ffn.router.layer.weight gate=ffn.experts.mlp.w1 up=ffn.experts.mlp.v1 down=ffn.experts.mlp.w2 in=norm_attn_norm.norm_2.weight", FOLDED,
     OF(6, 2), rule_softmax, SILU, LN(1e-5f)},
    {"jamba", "{\"model_type\":\"jamba\",\"num_experts\":6,\"num_experts_per_tok\":2,\"rms_norm_eps\":1e-06}", "model.layers.%d.",
     "router=feed_forward.router.weight " PROJECTIONS("feed_forward.") "in=pre_ff_layernorm.weight", SINGLE, OF(6, 2), rule_softmax, SILU, RMS(1e-6f),
     BY_NAMES},
    {"jamba", "{\"model_type\":\"jamba\"}", "model.layers.%d.", "router=feed_forward.router.weight " STACKS("feed_forward.") "in=pre_ff_layernorm.weight",
     STACK, OF(6, 2), rule_softmax, SILU, RMS(1e-6f), BY_NAMES},
    {"switch_transformers", "{\"model_type\":\"switch_transformers\",\"num_experts\":6,\"expert_capacity\":2,\"dense_act_fn\":\"relu\"}",
     "encoder.block.%d.layer.1.",
     "router=mlp.router.classifier.weight up=mlp.experts.expert_{e}.wi.weight down=mlp.experts.expert_{e}.wo.weight in=layer_norm.weight", SINGLE, OF(6, 1),
     rule_softmax, RELU, RMS(1e-6f), .capacity = 2},
    {"switch_transformers", "{\"model_type\":\"switch_transformers\"}", "decoder.block.%d.layer.2.",
     "router=mlp.router.classifier.weight up=mlp.experts.expert_{e}.wi.weight down=mlp.experts.expert_{e}.wo.weight in=layer_norm.weight", SINGLE, OF(6, 1),
     rule_softmax, RELU, RMS(1e-6f), .capacity = 64, BY_NAMES},
    {"nllb-moe", "{\"model_type\":\"nllb-moe\",\"num_experts\":6,\"moe_token_dropout\":0.2,\"activation_function\":\"relu\"}", "model.encoder.layers.%d.",
     "router=ffn.router.classifier.weight up=ffn.experts.expert_{e}.fc1.weight up_bias=ffn.experts.expert_{e}.fc1.bias "
     "down=ffn.experts.expert_{e}.fc2.weight down_bias=ffn.experts.expert_{e}.fc2.bias in=ff_layer_norm.weight in_bias=ff_layer_norm.bias", SINGLE,
     OF(6, 2), rule_softmax_eval, RELU, LN(1e-5f), BY_NAMES},
};

/* The numbers of the layers in the file: by value, not by letter. */
static const int numbers[] = {0, 2, 10};
enum { LAYERS = 3, TOKENS = 9 };

static void check_description(const ffn_model_layer_t *layer, const moe_layer_t *is)
{
    const moe_case_t *family = is->is;
    const ffn_layer_options_t *options = layer->options;
    if (strcmp(layer->family, family->family)) fail_msg("family is %s, should be %s", layer->family, family->family);
    assert_string_equal(layer->prefix, is->prefix);
    assert_string_equal(layer->dtype, "F32");
    assert_int_equal(options->activation, family->activation);
    assert_int_equal(options->d_model, MOE_D_MODEL);
    assert_int_equal(options->d_out, MOE_D_MODEL);
    assert_int_equal(options->d_ff, is->d_ff);
    assert_non_null(options->moe);
    assert_int_equal(options->moe->experts, family->experts);
    assert_int_equal(options->moe->top_k, family->top_k);
    assert_int_equal(options->moe->capacity ? options->moe->capacity->capacity : 0, family->capacity);
    if (layer->parameters != is->parameters || layer->active_parameters != is->active)
        fail_msg("%s: %lld parameters of which %lld are active, should be %lld and %lld", family->family, (long long)layer->parameters,
                 (long long)layer->active_parameters, (long long)is->parameters, (long long)is->active);
    for (uint64_t i = 1; i < layer->binding_count; i++) {
        const ffn_model_binding_t *a = &layer->bindings[i - 1], *b = &layer->bindings[i];
        assert_true(b->role > a->role || (b->role == a->role && b->expert > a->expert));
    }
}

static void check_values(const ffn_model_t *model, const ffn_model_layer_t *described, const moe_layer_t *is, uint64_t seed)
{
    float x[TOKENS * MOE_D_MODEL], y[TOKENS * MOE_D_MODEL];
    double expected[TOKENS * MOE_D_MODEL], largest = 0;
    rng_t rng = rng_make(seed);
    ffn_layer_t *layer;
    do rng_fill_normal(&rng, x, TOKENS * MOE_D_MODEL);
    while (moe_layer_reference(is, TOKENS, x, expected) < 1e-4);
    assert_io_ok(ffn_model_layer_create(model, NULL, described, &layer));
    assert_io_ok(ffn_layer_forward(layer, NULL, TOKENS, x, 0, y, 0));
    for (int i = 0; i < TOKENS * MOE_D_MODEL; i++) largest = expected[i] > largest ? expected[i] : -expected[i] > largest ? -expected[i] : largest;
    for (int i = 0; i < TOKENS * MOE_D_MODEL; i++) {
        double off = (double)y[i] - expected[i];
        if (!(off <= 3e-6 * largest && off >= -3e-6 * largest))
            fail_msg("%s, layer %s, token %d, column %d: got %.9g, expected %.9g (seed %llu, ISA %s)", is->is->family, is->prefix, i / MOE_D_MODEL,
                     i % MOE_D_MODEL, (double)y[i], expected[i], (unsigned long long)seed, test_isa_cap());
    }
    ffn_layer_free(layer);
}

static void check_family(const moe_case_t *is, const char *config, const char *family, uint64_t seed)
{
    model_file_t file = {0};
    moe_layer_t layers[LAYERS];
    int64_t active = 30 * 12, parameters = 30 * 12;
    model_file_add(&file, NULL, 30, 12, "embeddings.word_embeddings.weight");
    for (int i = 0; i < LAYERS; i++) {
        moe_layer_make(&layers[i], is, numbers[i], seed + (uint64_t)i);
        moe_layer_add(&layers[i], &file, NULL);
        active += layers[i].active, parameters += layers[i].parameters;
    }
    /* read, or where config.json is missing mapped */
    ffn_model_options_t options = {.struct_size = sizeof options, .family = family, .flags = config ? 0 : FFN_MODEL_MAP};
    ffn_model_info_t info = {.struct_size = sizeof info};
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(model_file_write(&file, config), &options, &model));
    assert_io_ok(ffn_model_info(model, &info));
    if (info.layer_count != LAYERS) {
        const ffn_model_layer_t *layer;
        ffn_model_layer(model, 0, &layer);
        fail_msg("%s: %lld layers: %s", is->family, (long long)info.layer_count, ffn_io_last_error());
    }
    assert_string_equal(info.family, is->family);
    assert_int_equal(info.parameters, parameters);
    assert_int_equal(info.active_parameters, active);
    for (int i = 0; i < LAYERS; i++) {
        check_description(model_layer(model, i), &layers[i]);
        check_values(model, model_layer(model, i), &layers[i], seed + 100 + (uint64_t)i);
        moe_layer_free(&layers[i]);
    }
    ffn_model_free(model);
}

static void every_mixture_is_recognised_and_its_layers_are_as_the_formula(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases); i++) check_family(&cases[i], cases[i].config, NULL, (uint64_t)(1000 * i));
}

static void mixtures_with_names_of_their_own_need_no_config(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].without_config)
            check_family(&cases[i], NULL, NULL, (uint64_t)(1000 * i));
}

static void every_mixture_of_the_table_has_a_case_here(void **state)
{
    (void)state;
    for (int row = 0; row < ffnio_family_count; row++) {
        bool has = !ffnio_families[row].experts || ffnio_families[row].refuse;
        for (int64_t i = 0; i < COUNT_OF(cases) && !has; i++) has = !strcmp(cases[i].family, ffnio_families[row].name);
        if (!has) fail_msg("no case for family %s", ffnio_families[row].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mixture_is_recognised_and_its_layers_are_as_the_formula),
        cmocka_unit_test(mixtures_with_names_of_their_own_need_no_config),
        cmocka_unit_test(every_mixture_of_the_table_has_a_case_here),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
