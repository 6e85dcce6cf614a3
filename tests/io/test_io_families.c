/* SPDX-License-Identifier: MIT
 *
 * Every row of the family table: a small file with the family's names, shapes and layouts and a config.json as published ones are, recognised, made
 * and run against the oracle, which gets plain matrices and the formula as the catalogue of families has it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/families.h"
#include "io/support/family_file.h"
#include "io/support/files.h"
#include "support/layer_check.h"

typedef struct family_case {
    const char *family, *config;
    const char *prefix; /* of layer %d */
    const char *names;  /* as model_file_add_layer has it */
    layer_case_t is;
    const char *beside; /* another tensor of the file */
    bool without_config; /* recognised without config.json too, and the same */
} family_case_t;

#define LN(e)        {FFN_NORM_LAYER, true, true, e, 0}
#define LN_NOBIAS(e) {FFN_NORM_LAYER, true, false, e, 0}
#define LN_1P(e)     {FFN_NORM_LAYER, true, true, e, 1}
#define LN_BARE      {FFN_NORM_LAYER, false, false, 1e-5f, 0}
#define RMS(e)       {FFN_NORM_RMS, true, false, e, 0}
#define RMS_1P(e)    {FFN_NORM_RMS, true, false, e, 1}
#define AFFINE       {FFN_NORM_AFFINE, true, true, 0, 0}
#define AT(slot, ...) .norm[FFN_NORM_##slot] = __VA_ARGS__
#define PRE(...)     .residual = FFN_RESIDUAL_INPUT, AT(IN, __VA_ARGS__)
#define POST(...)    .residual = FFN_RESIDUAL_INPUT, AT(OUT, __VA_ARGS__)
#define ACT(name)    .activation = FFN_ACTIVATION_##name
#define BIASED       .biases = BIAS_ALL
#define GATED        .gated = true
#define CONV1D       .layout = LAYOUT_IN_OUT, .down_layout = LAYOUT_IN_OUT
#define GATE_UP      .gated = true, .layout = LAYOUT_GATE_UP
#define UP_GATE      .gated = true, .layout = LAYOUT_UP_GATE

#define BERT    "up=intermediate.dense down=output.dense "
#define C_FC    "up=mlp.c_fc down=mlp.c_proj "
#define FC      "up=fc1 down=fc2 in=final_layer_norm out=final_layer_norm"
#define MLP_FC  "up=mlp.fc1 down=mlp.fc2 "
#define H_4H    "up=mlp.dense_h_to_4h down=mlp.dense_4h_to_h "
#define LLAMA   "gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj "
#define UP_DOWN "up=mlp.up_proj down=mlp.down_proj "

static const family_case_t cases[] = {
    {"bert", "{\"model_type\":\"bert\",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-12,\"intermediate_size\":20}", "bert.encoder.layer.%d.",
     BERT "out=output.LayerNorm", {ACT(GELU), BIASED, POST(LN(1e-12f))}, NULL, true},
    {"bert", "{\"model_type\":\"bert\"}", "bert.encoder.layer.%d.", BERT "out_old=output.LayerNorm", {ACT(GELU), BIASED, POST(LN(1e-12f))}, NULL,
     true},
    {"bert", "{\"model_type\":\"roberta\",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-05}", "roberta.encoder.layer.%d.",
     BERT "out=output.LayerNorm", {ACT(GELU), BIASED, POST(LN(1e-5f))}, NULL, false},
    {"bert", NULL, "encoder.layer.%d.", BERT "out=output.LayerNorm", {ACT(GELU), BIASED, POST(LN(1e-12f))}, NULL, true},
    {"deberta", "{\"model_type\":\"deberta-v2\"}", "deberta.encoder.layer.%d.", BERT "out=output.LayerNorm",
     {ACT(GELU), BIASED, POST(LN(1e-7f))}, NULL, false},
    {"esm", "{\"model_type\":\"esm\",\"layer_norm_eps\":1e-05}", "esm.encoder.layer.%d.", BERT "in=LayerNorm",
     {ACT(GELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"megatron-bert", "{\"model_type\":\"megatron-bert\"}", "bert.encoder.layer.%d.", BERT "in=ln", {ACT(GELU), BIASED, PRE(LN(1e-12f))}, NULL,
     true},
    {"roberta-prelayernorm", "{\"model_type\":\"roberta-prelayernorm\"}", "roberta_prelayernorm.encoder.layer.%d.",
     BERT "in=intermediate.LayerNorm", {ACT(GELU), BIASED, PRE(LN(1e-12f))}, NULL, true},
    {"mobilebert", "{\"model_type\":\"mobilebert\",\"hidden_act\":\"relu\",\"normalization_type\":\"no_norm\"}",
     "mobilebert.encoder.layer.%d.ffn.0.", BERT "out=output.LayerNorm", {ACT(RELU), BIASED, POST(AFFINE)}, NULL, false},
    {"mobilebert", "{\"model_type\":\"mobilebert\",\"hidden_act\":\"relu\",\"normalization_type\":\"layer_norm\",\"layer_norm_eps\":1e-12}",
     "mobilebert.encoder.layer.%d.", BERT "out=output.LayerNorm", {ACT(RELU), BIASED, POST(LN(1e-12f))}, NULL, false},
    {"distilbert", "{\"model_type\":\"distilbert\",\"activation\":\"gelu\",\"n_layers\":3,\"dim\":12,\"hidden_dim\":20}",
     "distilbert.transformer.layer.%d.", "up=ffn.lin1 down=ffn.lin2 out=output_layer_norm", {ACT(GELU), BIASED, POST(LN(1e-12f))}, NULL, true},
    {"albert", "{\"model_type\":\"albert\",\"hidden_act\":\"gelu_new\",\"num_hidden_groups\":1,\"num_hidden_layers\":12}",
     "albert.encoder.albert_layer_groups.0.albert_layers.%d.", "up=ffn down=ffn_output out=full_layer_layer_norm",
     {ACT(GELU_TANH), BIASED, POST(LN(1e-12f))}, NULL, true},
    {"xlnet", "{\"model_type\":\"xlnet\",\"ff_activation\":\"gelu\",\"d_inner\":20}", "transformer.layer.%d.",
     "up=ff.layer_1 down=ff.layer_2 out=ff.layer_norm", {ACT(GELU), BIASED, POST(LN(1e-12f))}, NULL, true},
    {"modernbert", "{\"model_type\":\"modernbert\",\"hidden_activation\":\"gelu\",\"norm_eps\":1e-05,\"mlp_bias\":false}", "model.layers.%d.",
     "fused=mlp.Wi down=mlp.Wo in=mlp_norm", {ACT(GELU), GATE_UP, PRE(LN_NOBIAS(1e-5f))}, NULL, true},
    {"nomic_bert", "{\"model_type\":\"nomic_bert\",\"activation_function\":\"swiglu\",\"prenorm\":false,\"layer_norm_epsilon\":1e-12}",
     "encoder.layers.%d.", "up=mlp.fc11 gate=mlp.fc12 down=mlp.fc2 out=norm2", {ACT(SILU), GATED, POST(LN(1e-12f))}, NULL, true},
    {"nomic_bert", "{\"model_type\":\"nomic_bert\",\"activation_function\":\"geglu\",\"prenorm\":true}", "encoder.layers.%d.",
     "up=mlp.fc11 gate=mlp.fc12 down=mlp.fc2 in=norm2", {ACT(GELU), GATED, BIASED, PRE(LN(1e-12f))}, NULL, false},

    {"gpt2", "{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_new\",\"n_inner\":null,\"layer_norm_epsilon\":1e-05}", "transformer.h.%d.",
     C_FC "in=ln_2", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f)), CONV1D}, NULL, true},
    {"gpt2", NULL, "h.%d.", C_FC "in=ln_2", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f)), CONV1D}, NULL, true},
    {"gpt_neo", "{\"model_type\":\"gpt_neo\",\"activation_function\":\"gelu_new\"}", "transformer.h.%d.", C_FC "in=ln_2",
     {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"gpt_neo", "{\"model_type\":\"gpt_bigcode\",\"activation_function\":\"gelu_pytorch_tanh\",\"n_inner\":20}", "transformer.h.%d.",
     C_FC "in=ln_2", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"openai-gpt", "{\"model_type\":\"openai-gpt\",\"afn\":\"gelu\"}", "transformer.h.%d.", C_FC "out=ln_2",
     {ACT(GELU_TANH), BIASED, POST(LN(1e-5f)), CONV1D}, NULL, false},
    {"gptj", "{\"model_type\":\"gptj\",\"activation_function\":\"gelu_new\"}", "transformer.h.%d.", "up=mlp.fc_in down=mlp.fc_out in=ln_1",
     {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"gpt_neox", "{\"model_type\":\"gpt_neox\",\"hidden_act\":\"gelu\",\"use_parallel_residual\":true,\"layer_norm_eps\":1e-05}",
     "gpt_neox.layers.%d.", H_4H "in=post_attention_layernorm", {ACT(GELU), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"gpt_neox", "{\"model_type\":\"gpt_neox\",\"hidden_act\":\"gelu_fast\",\"use_parallel_residual\":false}", "gpt_neox.layers.%d.",
     H_4H "in=post_attention_layernorm", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"persimmon", "{\"model_type\":\"persimmon\",\"hidden_act\":\"relu2\"}", "model.layers.%d.", H_4H "in=post_attention_layernorm",
     {ACT(RELU2), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"bloom", "{\"model_type\":\"bloom\",\"apply_residual_connection_post_layernorm\":false,\"hidden_act\":\"relu\"}", "transformer.h.%d.",
     H_4H "in=post_attention_layernorm", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"bloom", "{\"model_type\":\"bloom\",\"apply_residual_connection_post_layernorm\":true}", "transformer.h.%d.",
     H_4H "in=post_attention_layernorm", {ACT(GELU_TANH), BIASED, .residual = FFN_RESIDUAL_NORMED, AT(IN, LN(1e-5f))}, NULL, false},
    {"falcon_rw", "{\"model_type\":\"falcon\",\"bias\":true}", "transformer.h.%d.", H_4H "in=post_attention_layernorm",
     {ACT(GELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"falcon", "{\"model_type\":\"falcon\",\"bias\":false,\"parallel_attn\":true}", "transformer.h.%d.", H_4H "in=input_layernorm",
     {ACT(GELU), PRE(LN(1e-5f))}, NULL, false},
    {"falcon_40b", "{\"model_type\":\"falcon\",\"new_decoder_architecture\":true}", "transformer.h.%d.", H_4H "in=ln_mlp",
     {ACT(GELU), PRE(LN(1e-5f))}, NULL, true},
    {"mpt", "{\"model_type\":\"mpt\",\"expansion_ratio\":4,\"layer_norm_epsilon\":1e-05}", "transformer.blocks.%d.",
     "up=ffn.up_proj down=ffn.down_proj in=norm_2", {ACT(GELU), PRE(LN_NOBIAS(1e-5f))}, NULL, true},
    {"phi", "{\"model_type\":\"phi\",\"hidden_act\":\"gelu_new\"}", "model.layers.%d.", MLP_FC "in=input_layernorm",
     {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"starcoder2", "{\"model_type\":\"starcoder2\",\"hidden_act\":\"gelu_pytorch_tanh\",\"use_bias\":true,\"norm_epsilon\":1e-05}",
     "model.layers.%d.", C_FC "in=post_attention_layernorm", {ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"starcoder2", "{\"model_type\":\"starcoder2\",\"use_bias\":false}", "model.layers.%d.", C_FC "in=post_attention_layernorm",
     {ACT(GELU_TANH), PRE(LN(1e-5f))}, NULL, false},
    {"nemotron", "{\"model_type\":\"nemotron\",\"hidden_act\":\"relu2\",\"norm_eps\":1e-05}", "model.layers.%d.",
     UP_DOWN "in=post_attention_layernorm", {ACT(RELU2), PRE(LN_1P(1e-5f))}, NULL, false},
    {"nemotron_h_dense", "{\"model_type\":\"nemotron_h\",\"mlp_hidden_act\":\"relu2\",\"layer_norm_epsilon\":1e-05}", "backbone.layers.%d.",
     "up=mixer.up_proj down=mixer.down_proj in=norm", {ACT(RELU2), PRE(RMS(1e-5f))}, NULL, true},
    {"jais2", "{\"model_type\":\"jais2\",\"hidden_act\":\"relu2\",\"mlp_bias\":true}", "model.layers.%d.", UP_DOWN "in=post_attention_layernorm",
     {ACT(RELU2), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"arcee", "{\"model_type\":\"arcee\",\"hidden_act\":\"relu2\",\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     UP_DOWN "in=post_attention_layernorm", {ACT(RELU2), PRE(RMS(1e-5f))}, NULL, true},
    {"apertus", "{\"model_type\":\"apertus\",\"hidden_act\":\"xielu\",\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     UP_DOWN "in=feedforward_layernorm alpha=mlp.act_fn", {ACT(XIELU), PRE(RMS(1e-5f))}, NULL, true},

    {"t5", "{\"model_type\":\"t5\",\"feed_forward_proj\":\"relu\",\"layer_norm_epsilon\":1e-06}", "encoder.block.%d.layer.1.",
     "up=DenseReluDense.wi down=DenseReluDense.wo in=layer_norm", {ACT(RELU), PRE(RMS(1e-6f))}, NULL, true},
    {"t5", "{\"model_type\":\"t5\",\"feed_forward_proj\":\"gelu\"}", "decoder.block.%d.layer.2.",
     "up=DenseReluDense.wi down=DenseReluDense.wo in=layer_norm", {ACT(GELU), PRE(RMS(1e-6f))}, NULL, false},
    {"t5_v1_1", "{\"model_type\":\"t5\",\"feed_forward_proj\":\"gated-gelu\"}", "decoder.block.%d.layer.2.",
     "gate=DenseReluDense.wi_0 up=DenseReluDense.wi_1 down=DenseReluDense.wo in=layer_norm", {ACT(GELU_TANH), GATED, PRE(RMS(1e-6f))}, NULL, true},
    {"t5_v1_1", "{\"model_type\":\"t5\",\"feed_forward_proj\":\"gated-silu\"}", "encoder.block.%d.layer.1.",
     "gate=DenseReluDense.wi_0 up=DenseReluDense.wi_1 down=DenseReluDense.wo in=layer_norm", {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, false},
    {"switch_transformers_dense", "{\"model_type\":\"switch_transformers\",\"dense_act_fn\":\"relu\"}", "encoder.block.%d.layer.1.",
     "up=mlp.wi down=mlp.wo in=layer_norm", {ACT(RELU), PRE(RMS(1e-6f))}, NULL, true},
    {"bart", "{\"model_type\":\"bart\",\"activation_function\":\"gelu\",\"normalize_before\":false}", "model.encoder.layers.%d.", FC,
     {ACT(GELU), BIASED, POST(LN(1e-5f))}, NULL, false},
    {"bart", "{\"model_type\":\"marian\",\"activation_function\":\"swish\"}", "model.decoder.layers.%d.", FC,
     {ACT(SILU), BIASED, POST(LN(1e-5f))}, NULL, false},
    {"whisper", "{\"model_type\":\"whisper\",\"activation_function\":\"gelu\"}", "model.encoder.layers.%d.", FC,
     {ACT(GELU), BIASED, PRE(LN(1e-5f))}, "model.encoder.conv1.weight", true},
    {"m2m_100", "{\"model_type\":\"m2m_100\"}", "model.decoder.layers.%d.", FC, {ACT(RELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"xglm", "{\"model_type\":\"xglm\"}", "model.layers.%d.", FC, {ACT(GELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"nllb-moe_dense", "{\"model_type\":\"nllb-moe\"}", "model.encoder.layers.%d.", "up=ffn.fc1 down=ffn.fc2 in=ff_layer_norm",
     {ACT(RELU), BIASED, PRE(LN(1e-5f))}, NULL, true},
    {"opt", "{\"model_type\":\"opt\",\"activation_function\":\"relu\",\"do_layer_norm_before\":true}", "model.decoder.layers.%d.", FC,
     {ACT(RELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"opt", "{\"model_type\":\"opt\",\"do_layer_norm_before\":false}", "decoder.layers.%d.", FC, {ACT(RELU), BIASED, POST(LN(1e-5f))}, NULL,
     false},
    {"opt", "{\"model_type\":\"opt\",\"enable_bias\":false,\"layer_norm_elementwise_affine\":false}", "model.decoder.layers.%d.", FC,
     {ACT(RELU), PRE(LN_BARE)}, NULL, false},
    {"kosmos-2", "{\"model_type\":\"kosmos-2\",\"text_config\":{\"activation_function\":\"gelu\"}}", "text_model.model.layers.%d.",
     "up=ffn.fc1 down=ffn.fc2 in=final_layer_norm mid=ffn.ffn_layernorm", {ACT(GELU), BIASED, PRE(LN(1e-5f)), AT(MID, LN(1e-5f))}, NULL, true},

    {"wav2vec2", "{\"model_type\":\"wav2vec2\",\"do_stable_layer_norm\":false,\"hidden_act\":\"gelu\"}", "wav2vec2.encoder.layers.%d.",
     "up=feed_forward.intermediate_dense down=feed_forward.output_dense out=final_layer_norm", {ACT(GELU), BIASED, POST(LN(1e-5f))}, NULL, true},
    {"wav2vec2", "{\"model_type\":\"hubert\",\"do_stable_layer_norm\":true}", "hubert.encoder.layers.%d.",
     "up=feed_forward.intermediate_dense down=feed_forward.output_dense in=final_layer_norm", {ACT(GELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"wav2vec2-conformer", "{\"model_type\":\"wav2vec2-conformer\",\"hidden_act\":\"swish\"}", "wav2vec2_conformer.encoder.layers.%d.ffn1",
     "up=.intermediate_dense down=.output_dense in=_layer_norm",
     {ACT(SILU), BIASED, PRE(LN(1e-5f)), .branch_scale = SCALE_ONE, .branch_factor = 0.5f}, NULL, true},
    {"moonshine_encoder", "{\"model_type\":\"moonshine\",\"encoder_hidden_act\":\"gelu\"}", "model.encoder.layers.%d.",
     MLP_FC "in=post_attention_layernorm", {ACT(GELU), BIASED, PRE(LN_NOBIAS(1e-5f))}, NULL, false},
    {"moonshine_decoder", "{\"model_type\":\"moonshine\",\"decoder_hidden_act\":\"silu\"}", "model.decoder.layers.%d.",
     "fused=mlp.fc1 down=mlp.fc2 in=final_layernorm", {ACT(SILU), UP_GATE, BIASED, PRE(LN_NOBIAS(1e-5f))}, NULL, false},
    {"moshi", "{\"model_type\":\"moshi\",\"hidden_act\":\"silu\"}", "decoder.model.layers.%d.",
     "fused=mlp.fc1 down=mlp.fc2 in=post_attention_layernorm", {ACT(SILU), GATE_UP, PRE(RMS(1e-8f))}, NULL, false},

    {"vit", "{\"model_type\":\"vit\",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-12}", "vit.encoder.layer.%d.", BERT "in=layernorm_after",
     {ACT(GELU), BIASED, PRE(LN(1e-12f))}, NULL, true},
    {"beit", "{\"model_type\":\"beit\"}", "beit.encoder.layer.%d.", BERT "in=layernorm_after scale=lambda_2",
     {ACT(GELU), BIASED, PRE(LN(1e-12f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"timm_vit", NULL, "blocks.%d.", MLP_FC "in=norm2", {ACT(GELU), BIASED, PRE(LN(1e-6f))}, NULL, true},
    {"clip", "{\"model_type\":\"clip\",\"vision_config\":{\"model_type\":\"clip_vision_model\",\"hidden_act\":\"quick_gelu\"},"
     "\"text_config\":{\"hidden_act\":\"gelu\"}}", "vision_model.encoder.layers.%d.", MLP_FC "in=layer_norm2",
     {ACT(QUICK_GELU), BIASED, PRE(LN(1e-5f))}, "vision_model.pre_layrnorm.weight", true},
    {"siglip", "{\"model_type\":\"siglip\",\"vision_config\":{\"model_type\":\"siglip_vision_model\",\"hidden_act\":\"gelu_pytorch_tanh\"}}",
     "vision_model.encoder.layers.%d.", MLP_FC "in=layer_norm2", {ACT(GELU_TANH), BIASED, PRE(LN(1e-6f))}, "vision_model.head.probe", true},
    {"siglip_head", "{\"model_type\":\"siglip\"}", "vision_model.head.", MLP_FC "in=layernorm", {ACT(GELU_TANH), BIASED, PRE(LN(1e-6f))},
     NULL, true},
    {"dinov2", "{\"model_type\":\"dinov2\",\"hidden_act\":\"gelu\",\"use_swiglu_ffn\":false}", "encoder.layer.%d.",
     MLP_FC "in=norm2 scale=layer_scale2.lambda1", {ACT(GELU), BIASED, PRE(LN(1e-6f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"dinov2_swiglu", "{\"model_type\":\"dinov2\",\"hidden_act\":\"gelu\",\"use_swiglu_ffn\":true}", "dinov2.encoder.layer.%d.",
     "fused=mlp.weights_in down=mlp.weights_out in=norm2 scale=layer_scale2.lambda1",
     {ACT(SILU), GATE_UP, BIASED, PRE(LN(1e-6f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"dinov2_native", NULL, "blocks.%d.", MLP_FC "in=norm2 scale=ls2.gamma",
     {ACT(GELU), BIASED, PRE(LN(1e-6f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"dinov2_native_swiglu", NULL, "blocks.%d.", "fused=mlp.w12 down=mlp.w3 in=norm2 scale=ls2.gamma",
     {ACT(SILU), GATE_UP, BIASED, PRE(LN(1e-6f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"dinov3_vit", "{\"model_type\":\"dinov3_vit\"}", "layer.%d.", UP_DOWN "in=norm2 scale=layer_scale2.lambda1",
     {ACT(GELU), BIASED, PRE(LN(1e-5f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"dinov3_vit_gated", "{\"model_type\":\"dinov3_vit\",\"hidden_act\":\"silu\",\"use_gated_mlp\":true}", "layer.%d.",
     LLAMA "in=norm2 scale=layer_scale2.lambda1", {ACT(SILU), GATED, BIASED, PRE(LN(1e-5f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"intern_vit", "{\"model_type\":\"internvl_chat\",\"vision_config\":{\"model_type\":\"intern_vit_6b\",\"hidden_act\":\"gelu\"}}",
     "vision_model.encoder.layers.%d.", MLP_FC "in=norm2 scale=ls2", {ACT(GELU), BIASED, PRE(LN(1e-6f)), .branch_scale = SCALE_VECTOR}, NULL, true},
    {"qwen2_5_vl_vision", "{\"model_type\":\"qwen2_5_vl\",\"hidden_act\":\"relu\",\"vision_config\":{\"hidden_act\":\"silu\"}}",
     "visual.blocks.%d.", LLAMA "in=norm2", {ACT(SILU), GATED, BIASED, PRE(RMS(1e-6f))}, NULL, true},
    {"pixtral", "{\"model_type\":\"llava\",\"vision_config\":{\"model_type\":\"pixtral\",\"hidden_act\":\"gelu\"}}",
     "vision_tower.transformer.layers.%d.", "gate=feed_forward.gate_proj up=feed_forward.up_proj down=feed_forward.down_proj in=ffn_norm",
     {ACT(GELU), GATED, PRE(RMS(1e-5f))}, NULL, true},

    {"llama", "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-05,\"mlp_bias\":false}", "model.layers.%d.",
     LLAMA "in=post_attention_layernorm", {ACT(SILU), GATED, PRE(RMS(1e-5f))}, NULL, false},
    {"llama", "{\"model_type\":\"llama\",\"mlp_bias\":true}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, BIASED, PRE(RMS(1e-6f))}, NULL, true},
    {"llama", "{\"model_type\":\"mistral\",\"rms_norm_eps\":1e-06}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, true},
    {"llama", "{\"model_type\":\"qwen2\",\"rms_norm_eps\":1e-06}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, true},
    {"llama", "{\"model_type\":\"qwen3\",\"rms_norm_eps\":1e-06}", "layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, true},
    {"helium", "{\"model_type\":\"helium\"}", "model.layers.%d.", LLAMA "in=post_attention_layernorm", {ACT(SILU), GATED, PRE(RMS(1e-8f))}, NULL,
     false},
    {"granite", "{\"model_type\":\"granite\",\"residual_multiplier\":0.22,\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     LLAMA "in=post_attention_layernorm", {ACT(SILU), GATED, PRE(RMS(1e-5f)), .branch_scale = SCALE_ONE, .branch_factor = 0.22f}, NULL, false},
    {"qwen3_5", "{\"model_type\":\"qwen3_next\"}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS_1P(1e-6f))}, NULL, false},
    {"mllama_cross", "{\"model_type\":\"mllama\",\"text_config\":{\"model_type\":\"mllama_text_model\",\"rms_norm_eps\":1e-05}}",
     "language_model.model.layers.%d.", LLAMA "in=post_attention_layernorm scale=cross_attn_mlp_gate",
     {ACT(SILU), GATED, PRE(RMS(1e-5f)), .branch_scale = SCALE_ONE_TANH, .branch_factor = 0.3f}, NULL, true},
    {"bitnet", "{\"model_type\":\"bitnet\",\"hidden_act\":\"relu2\"}", "model.layers.%d.",
     LLAMA "in=post_attention_layernorm mid=mlp.ffn_sub_norm", {ACT(RELU2), GATED, PRE(RMS(1e-5f)), AT(MID, RMS(1e-5f))}, NULL, true},
    {"gemma", "{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\",\"hidden_activation\":null}", "model.layers.%d.",
     LLAMA "in=post_attention_layernorm", {ACT(GELU_TANH), GATED, PRE(RMS_1P(1e-6f))}, NULL, false},
    {"gemma2", "{\"model_type\":\"gemma2\",\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\"}", "model.layers.%d.",
     LLAMA "in=pre_feedforward_layernorm branch=post_feedforward_layernorm",
     {ACT(GELU_TANH), GATED, PRE(RMS_1P(1e-6f)), AT(BRANCH, RMS_1P(1e-6f))}, "model.layers.0.post_attention_layernorm.weight", true},
    {"gemma2", "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_activation\":\"gelu_pytorch_tanh\"}}",
     "language_model.model.layers.%d.", LLAMA "in=pre_feedforward_layernorm branch=post_feedforward_layernorm",
     {ACT(GELU_TANH), GATED, PRE(RMS_1P(1e-6f)), AT(BRANCH, RMS_1P(1e-6f))}, "language_model.model.layers.0.post_attention_layernorm.weight", true},
    {"vaultgemma", "{\"model_type\":\"vaultgemma\"}", "model.layers.%d.", LLAMA "in=pre_feedforward_layernorm",
     {ACT(GELU_TANH), GATED, PRE(RMS_1P(1e-6f))}, NULL, true},
    {"recurrent_gemma", "{\"model_type\":\"recurrent_gemma\",\"intermediate_size\":40}", "model.layers.%d.",
     "gate=mlp_block.gate_proj up=mlp_block.up_proj down=mlp_block.down_proj in=channel_pre_norm",
     {ACT(GELU_TANH), GATED, BIASED, PRE(RMS_1P(1e-6f))}, NULL, true},
    {"olmo", "{\"model_type\":\"olmo\"}", "model.layers.%d.", LLAMA, {ACT(SILU), GATED, PRE(LN_BARE)}, NULL, false},
    {"olmo2", "{\"model_type\":\"olmo2\",\"rms_norm_eps\":1e-05}", "model.layers.%d.", LLAMA "branch=post_feedforward_layernorm",
     {ACT(SILU), GATED, .residual = FFN_RESIDUAL_INPUT, AT(BRANCH, RMS(1e-5f))}, "model.layers.0.post_attention_layernorm.weight", true},
    {"stablelm", "{\"model_type\":\"stablelm\",\"use_parallel_residual\":false}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(LN(1e-5f))}, NULL, true},
    {"stablelm_parallel", "{\"model_type\":\"stablelm\",\"use_parallel_residual\":true}", "model.layers.%d.", LLAMA "in=input_layernorm",
     {ACT(SILU), GATED, PRE(LN(1e-5f))}, NULL, false},
    {"cohere", "{\"model_type\":\"cohere\",\"layer_norm_eps\":1e-05}", "model.layers.%d.", LLAMA "in=input_layernorm",
     {ACT(SILU), GATED, PRE(LN_NOBIAS(1e-5f))}, NULL, false},
    {"phi3", "{\"model_type\":\"phi3\",\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     "fused=mlp.gate_up_proj down=mlp.down_proj in=post_attention_layernorm", {ACT(SILU), GATE_UP, PRE(RMS(1e-5f))}, NULL, true},
    {"glm", "{\"model_type\":\"glm\",\"rms_norm_eps\":1.5625e-07}", "model.layers.%d.",
     "fused=mlp.gate_up_proj down=mlp.down_proj in=post_attention_layernorm", {ACT(SILU), GATE_UP, PRE(RMS(1.5625e-7f))}, NULL, false},
    {"glm4", "{\"model_type\":\"glm4\"}", "model.layers.%d.",
     "fused=mlp.gate_up_proj down=mlp.down_proj in=post_attention_layernorm branch=post_mlp_layernorm",
     {ACT(SILU), GATE_UP, PRE(RMS(1.5625e-7f)), AT(BRANCH, RMS(1.5625e-7f))}, NULL, true},
    {"chatglm", "{\"model_type\":\"chatglm\",\"layernorm_epsilon\":1e-05,\"rmsnorm\":true}", "transformer.encoder.layers.%d.",
     "fused=mlp.dense_h_to_4h down=mlp.dense_4h_to_h in=post_attention_layernorm", {ACT(SILU), GATE_UP, PRE(RMS(1e-5f))}, NULL, true},
    {"qwen", "{\"model_type\":\"qwen\",\"layer_norm_epsilon\":1e-06,\"intermediate_size\":40}", "transformer.h.%d.",
     "up=mlp.w1 gate=mlp.w2 down=mlp.c_proj in=ln_2", {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, true},
    {"llama_native", NULL, "layers.%d.", "gate=feed_forward.w1 up=feed_forward.w3 down=feed_forward.w2 in=ffn_norm",
     {ACT(SILU), GATED, PRE(RMS(1e-5f))}, NULL, true},
    {"llama_native", "{\"model_type\":\"internlm2\",\"rms_norm_eps\":1e-06}", "model.layers.%d.",
     "gate=feed_forward.w1 up=feed_forward.w3 down=feed_forward.w2 in=ffn_norm", {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, false},

    /* the layers without experts of models that have some with */
    {"llama4_dense", "{\"model_type\":\"llama4_text\",\"rms_norm_eps\":1e-05}", "model.layers.%d.",
     "gate=feed_forward.gate_proj up=feed_forward.up_proj down=feed_forward.down_proj in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-5f))}, NULL, true},
    {"jamba_dense", "{\"model_type\":\"jamba\",\"rms_norm_eps\":1e-06}", "model.layers.%d.",
     "gate=feed_forward.gate_proj up=feed_forward.up_proj down=feed_forward.down_proj in=pre_ff_layernorm", {ACT(SILU), GATED, PRE(RMS(1e-6f))},
     NULL, true},
    {"afmoe_dense", "{\"model_type\":\"afmoe\"}", "model.layers.%d.", LLAMA "in=pre_mlp_layernorm branch=post_mlp_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-5f)), AT(BRANCH, RMS(1e-5f))}, NULL, true},
    {"granitemoe_dense", "{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"residual_multiplier\":0.22}", "model.layers.%d.",
     "fused=shared_mlp.input_linear down=shared_mlp.output_linear in=post_attention_layernorm",
     {ACT(SILU), GATE_UP, PRE(RMS(1e-6f)), .branch_scale = SCALE_ONE, .branch_factor = 0.22f}, NULL, false},
    {"llama", "{\"model_type\":\"deepseek_v3\",\"first_k_dense_replace\":3}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, false},
    {"llama", "{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":[0,2,10]}", "model.layers.%d.", LLAMA "in=post_attention_layernorm",
     {ACT(SILU), GATED, PRE(RMS(1e-6f))}, NULL, false},
};

/* torch's own layers do not say where their norm is: the caller does. */
static const family_case_t named[] = {
    {"torch_post", NULL, "encoder.layers.%d.", "up=linear1 down=linear2 out=norm2", {ACT(RELU), BIASED, POST(LN(1e-5f))}, NULL, false},
    {"torch_pre", NULL, "encoder.layers.%d.", "up=linear1 down=linear2 in=norm2", {ACT(RELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
    {"torch_decoder_post", NULL, "decoder.layers.%d.", "up=linear1 down=linear2 out=norm3", {ACT(RELU), BIASED, POST(LN(1e-5f))}, NULL, false},
    {"torch_decoder_pre", NULL, "decoder.layers.%d.", "up=linear1 down=linear2 in=norm3", {ACT(RELU), BIASED, PRE(LN(1e-5f))}, NULL, false},
};

/* The numbers of the layers in the file: by value, not by letter. */
static const int numbers[] = {0, 2, 10};
enum { LAYERS = 3 };

typedef struct family_file {
    const char *path;
    test_layer_t layer[LAYERS];
    char prefix[LAYERS][128];
    int64_t layers;
} family_file_t;

static void write_family(family_file_t *made, const family_case_t *is, const char *config, uint64_t seed)
{
    model_file_t file = {0};
    made->layers = strchr(is->prefix, '%') ? LAYERS : 1;
    if (is->beside) model_file_add(&file, NULL, 12, 0, "%s", is->beside);
    model_file_add(&file, NULL, 30, 12, "embeddings.word_embeddings.weight");
    for (int64_t i = 0; i < made->layers; i++) {
        layer_case_t layer = is->is;
        layer.name = is->family;
        layer.d_model = 12;
        layer.d_ff = 20;
        layer.seed = seed + (uint64_t)i;
        test_layer_describe(&made->layer[i], &layer);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(made->prefix[i], sizeof made->prefix[i], is->prefix, numbers[i]);
#pragma GCC diagnostic pop
        model_file_add_layer(&file, &made->layer[i], made->prefix[i], is->names);
        model_file_add(&file, NULL, 12, 12, "%sattention.output.dense.weight", made->prefix[i]);
    }
    made->path = model_file_write(&file, config);
}

static int64_t parameters_of(const test_layer_t *layer, const ffn_model_layer_t *described)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < described->binding_count; i++) {
        uint32_t role = described->bindings[i].role;
        if (described->bindings[i].tensor) sum += layer->shape[role][0] * (layer->shape[role][1] ? layer->shape[role][1] : 1);
    }
    return sum;
}

static void check_description(const family_file_t *made, int64_t i, const ffn_model_layer_t *layer)
{
    const layer_case_t *is = &made->layer[i].is;
    if (strcmp(layer->family, is->name)) fail_msg("family is %s, should be %s", layer->family, is->name);
    assert_string_equal(layer->prefix, made->prefix[i]);
    assert_string_equal(layer->dtype, "F32");
    const ffn_layer_options_t *options = layer->options;
    if (options->activation != is->activation) fail_msg("%s: activation %u, should be %u", is->name, options->activation, is->activation);
    assert_int_equal(options->residual, is->residual);
    assert_int_equal(options->d_model, 12);
    assert_int_equal(options->d_ff, 20);
    assert_int_equal(options->d_out, 12);
    assert_int_equal(layer->parameters, parameters_of(&made->layer[i], layer));
    for (int slot = 0; slot < 4; slot++) {
        assert_int_equal(options->norm[slot], is->norm[slot].kind);
        if (memcmp(&options->norm_eps[slot], &is->norm[slot].eps, sizeof(float)))
            fail_msg("%s: eps %g, should be %g", is->name, (double)options->norm_eps[slot], (double)is->norm[slot].eps);
    }
    for (uint64_t k = 1; k < layer->binding_count; k++) assert_true(layer->bindings[k].role > layer->bindings[k - 1].role);
}

static void check_family(const family_case_t *is, const char *config, const char *family, uint64_t seed)
{
    family_file_t made;
    write_family(&made, is, config, seed);
    ffn_model_options_t options = {.struct_size = sizeof options, .family = family};
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(made.path, &options, &model));
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    if (info.layer_count != made.layers) {
        const ffn_model_layer_t *layer;
        ffn_model_layer(model, 0, &layer);
        fail_msg("%s: %lld layers: %s", is->family, (long long)info.layer_count, ffn_io_last_error());
    }
    assert_string_equal(info.family, is->family);
    for (int64_t i = 0; i < made.layers; i++) {
        const ffn_model_layer_t *layer = model_layer(model, i);
        check_description(&made, i, layer);
        check_model_layer(model, layer, &made.layer[i]);
        test_layer_free(&made.layer[i]);
    }
    ffn_model_free(model);
}

static void every_family_is_recognised_and_its_layers_are_as_the_oracle(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases); i++) check_family(&cases[i], cases[i].config, NULL, (uint64_t)(10 * i));
}

static void families_with_names_of_their_own_need_no_config(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].without_config) check_family(&cases[i], NULL, NULL, (uint64_t)(10 * i));
}

static void a_family_that_is_named_needs_neither(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(named); i++) check_family(&named[i], NULL, named[i].family, (uint64_t)(10 * i));
}

static void every_row_of_the_table_has_a_case_here(void **state)
{
    (void)state;
    for (int row = 0; row < ffnio_family_count; row++) {
        bool has = ffnio_families[row].refuse || ffnio_families[row].experts; /* those are test_io_families_experts.c's */
        for (int64_t i = 0; i < COUNT_OF(cases) && !has; i++) has = !strcmp(cases[i].family, ffnio_families[row].name);
        for (int64_t i = 0; i < COUNT_OF(named) && !has; i++) has = !strcmp(named[i].family, ffnio_families[row].name);
        if (!has) fail_msg("no case for family %s", ffnio_families[row].name);
        for (int other = 0; other < row; other++)
            if (!strcmp(ffnio_families[row].name, ffnio_families[other].name)) fail_msg("two rows %s", ffnio_families[row].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_recognised_and_its_layers_are_as_the_oracle),
        cmocka_unit_test(families_with_names_of_their_own_need_no_config),
        cmocka_unit_test(a_family_that_is_named_needs_neither),
        cmocka_unit_test(every_row_of_the_table_has_a_case_here),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
