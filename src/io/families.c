/* SPDX-License-Identifier: MIT
 * The table of known families. docs/families.md tells users what is in it.
 *
 * The formulas are the model classes' of huggingface/transformers (modeling_*.py), or of the project named in the row. Class defaults apply only
 * where config.json has no value.
 *
 * Parallel blocks (GPT-J, GPT-NeoX, Falcon, Phi, Cohere, StableLM 2 12B): the model computes r + attention + f(Norm(r)). Attention is outside of
 * a feed-forward layer, and so these rows are r + f(Norm(r)), with the norm that f reads from: own or shared with attention. A caller who adds
 * attention takes the residual out, or makes it external (options->residual). */
#include "io/families.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Projections: two matrices, three, or gate and up in one tensor. */
#define DENSE(first, second)          .up = {first, FFN_PART_WHOLE}, .down = {second, FFN_PART_WHOLE}
#define GATED(gated, linear, second)  .gate = {gated, FFN_PART_WHOLE}, .up = {linear, FFN_PART_WHOLE}, .down = {second, FFN_PART_WHOLE}
#define FUSED_GATE_UP(first, second)  .gate = {first, FFN_PART_FIRST_HALF}, .up = {first, FFN_PART_SECOND_HALF}, .down = {second, FFN_PART_WHOLE}
#define FUSED_UP_GATE(first, second)  .up = {first, FFN_PART_FIRST_HALF}, .gate = {first, FFN_PART_SECOND_HALF}, .down = {second, FFN_PART_WHOLE}
#define LLAMA_PROJECTIONS             .stems = "layers.{i}.", GATED("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), .biases = IF_STORED
#define IN_OUT                        .layout = FFN_LAYOUT_IN_OUT
#define EXPERTS(rule)                 .experts = &ffnio_moe_##rule

/* Norms. */
#define LAYER_NORM(module, eps)       {FFN_NORM_LAYER, module, PRESENT, eps, 0}
#define LAYER_NORM_1P(module, eps)    {FFN_NORM_LAYER, module, PRESENT, eps, 1}
#define LAYER_NORM_W(module, eps)     {FFN_NORM_LAYER, module, IF_STORED, eps, 0}
#define RMS_NORM(module, eps)         {FFN_NORM_RMS, module, ABSENT, eps, 0}
#define RMS_NORM_1P(module, eps)      {FFN_NORM_RMS, module, ABSENT, eps, 1}
#define NO_NORM(module)               {FFN_NORM_AFFINE, module, PRESENT, 0, 0}

/* Placements, all with the layer's input as residual. */
#define PRE(...)                      .residual = FFN_RESIDUAL_INPUT, .norm[FFN_NORM_IN] = __VA_ARGS__
#define POST(...)                     .residual = FFN_RESIDUAL_INPUT, .norm[FFN_NORM_OUT] = __VA_ARGS__
#define BRANCH(...)                   .residual = FFN_RESIDUAL_INPUT, .norm[FFN_NORM_BRANCH] = __VA_ARGS__
#define ALSO_BRANCH(...)              .norm[FFN_NORM_BRANCH] = __VA_ARGS__
#define ALSO_MID(...)                 .norm[FFN_NORM_MID] = __VA_ARGS__

/* The activation and where config.json has it. */
#define ACTIVATION(id, keys)          .activation = FFN_ACTIVATION_##id, .activation_keys = keys

const family_t ffnio_families[] = {
    /* ------------------------------------------------------------ BERT and its kin: norm after the residual */
    {.name = "bert", .choice = BY_NAMES, .model_types = "bert roberta xlm-roberta camembert electra layoutlm mpnet "
     "data2vec-text ernie bert-generation splinter xmod big_bird nezha markuplm lilt tapas",
     .stems = "layer.{i}.", DENSE("intermediate.dense", "output.dense"), .biases = PRESENT, ACTIVATION(GELU, "hidden_act"),
     POST(LAYER_NORM("output.LayerNorm", 1e-12f)), .eps_keys = "layer_norm_eps", .without = "LayerNorm.weight intermediate.LayerNorm.weight"},
    {.name = "deberta", .model_types = "deberta deberta-v2", .stems = "layer.{i}.", DENSE("intermediate.dense", "output.dense"), .biases = PRESENT,
     ACTIVATION(GELU, "hidden_act"), POST(LAYER_NORM("output.LayerNorm", 1e-7f)), .eps_keys = "layer_norm_eps"},
    {.name = "esm", .choice = BY_NAMES, .model_types = "esm", .stems = "layer.{i}.", DENSE("intermediate.dense", "output.dense"),
     .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("LayerNorm", 1e-12f)), .eps_keys = "layer_norm_eps"},
    {.name = "megatron-bert", .choice = BY_NAMES, .model_types = "megatron-bert", .stems = "layer.{i}.",
     DENSE("intermediate.dense", "output.dense"), .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("ln", 1e-12f)),
     .eps_keys = "layer_norm_eps"},
    {.name = "roberta-prelayernorm", .choice = BY_NAMES, .model_types = "roberta-prelayernorm", .stems = "layer.{i}.",
     DENSE("intermediate.dense", "output.dense"), .biases = PRESENT, ACTIVATION(GELU, "hidden_act"),
     PRE(LAYER_NORM("intermediate.LayerNorm", 1e-12f)), .eps_keys = "layer_norm_eps"},
    /* Four sublayers in a row: ffn.0, ffn.1, ffn.2, then the main one. */
    {.name = "mobilebert", .model_types = "mobilebert", .stems = "layer.{i}.ffn.{i}. layer.{i}.", DENSE("intermediate.dense", "output.dense"),
     .biases = PRESENT, ACTIVATION(RELU, "hidden_act"), POST(NO_NORM("output.LayerNorm")),
     .layer_norms_if = "normalization_type=layer_norm", .eps_keys = "layer_norm_eps"},
    {.name = "distilbert", .choice = BY_NAMES, .model_types = "distilbert", .stems = "layer.{i}.", DENSE("ffn.lin1", "ffn.lin2"),
     .biases = PRESENT, ACTIVATION(GELU, "activation"), POST(LAYER_NORM("output_layer_norm", 1e-12f))},
    {.name = "albert", .choice = BY_NAMES, .model_types = "albert", .stems = "albert_layers.{i}.", DENSE("ffn", "ffn_output"), .biases = PRESENT,
     ACTIVATION(GELU_TANH, "hidden_act"), POST(LAYER_NORM("full_layer_layer_norm", 1e-12f)), .eps_keys = "layer_norm_eps"},
    {.name = "xlnet", .choice = BY_NAMES, .model_types = "xlnet", .stems = "layer.{i}.", DENSE("ff.layer_1", "ff.layer_2"), .biases = PRESENT,
     ACTIVATION(GELU, "ff_activation"), POST(LAYER_NORM("ff.layer_norm", 1e-12f)), .eps_keys = "layer_norm_eps"},
    {.name = "modernbert", .choice = BY_NAMES, .model_types = "modernbert", .stems = "layers.{i}.", FUSED_GATE_UP("mlp.Wi", "mlp.Wo"),
     .biases = IF_STORED, .bias_key = "mlp_bias", ACTIVATION(GELU, "hidden_activation"), PRE(LAYER_NORM_W("mlp_norm", 1e-5f)),
     .eps_keys = "norm_eps"},
    /* nomic-ai/contrastors: fc12 is the activated branch. */
    {.name = "nomic_bert", .choice = BY_NAMES, .model_types = "nomic_bert", .stems = "layers.{i}.", GATED("mlp.fc12", "mlp.fc11", "mlp.fc2"),
     .biases = IF_STORED, ACTIVATION(SILU, "activation_function"), POST(LAYER_NORM("norm2", 1e-12f)), .eps_keys = "layer_norm_epsilon",
     .move_norm_if = "prenorm", .without = "mlp.norm.weight"},

    /* ------------------------------------------------------------ GPT and its kin */
    {.name = "gpt2", .choice = BY_NAMES, .model_types = "gpt2 imagegpt decision_transformer", .stems = "h.{i}.",
     DENSE("mlp.c_fc", "mlp.c_proj"), IN_OUT, .biases = PRESENT, ACTIVATION(GELU_TANH, "activation_function"), PRE(LAYER_NORM("ln_2", 1e-5f)),
     .eps_keys = "layer_norm_epsilon"},
    {.name = "gpt_neo", .choice = BY_NAMES, .model_types = "gpt_neo gpt_bigcode", .stems = "h.{i}.", DENSE("mlp.c_fc", "mlp.c_proj"),
     .biases = PRESENT, ACTIVATION(GELU_TANH, "activation_function"), PRE(LAYER_NORM("ln_2", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    /* "gelu" was the tanh form in GPT-1. */
    {.name = "openai-gpt", .choice = BY_TYPE, .model_types = "openai-gpt", .stems = "h.{i}.", DENSE("mlp.c_fc", "mlp.c_proj"), IN_OUT,
     .biases = PRESENT, ACTIVATION(GELU_TANH, "afn"), .gelu_is_tanh = 1, POST(LAYER_NORM("ln_2", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "gptj", .choice = BY_NAMES, .model_types = "gptj codegen", .stems = "h.{i}.", DENSE("mlp.fc_in", "mlp.fc_out"), .biases = PRESENT,
     ACTIVATION(GELU_TANH, "activation_function"), PRE(LAYER_NORM("ln_1", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    /* use_parallel_residual tells where attention's sum goes; this layer is the same. */
    {.name = "gpt_neox", .choice = BY_NAMES, .model_types = "gpt_neox", .stems = "layers.{i}.",
     DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), .biases = PRESENT, ACTIVATION(GELU, "hidden_act"),
     PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps"},
    {.name = "persimmon", .model_types = "persimmon fuyu", .stems = "layers.{i}.", DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
     .biases = PRESENT, ACTIVATION(RELU2, "hidden_act"), PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps"},
    {.name = "bloom", .choice = BY_NAMES, .model_types = "bloom", .stems = "h.{i}.", DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
     .biases = PRESENT, .activation = FFN_ACTIVATION_GELU_TANH, PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)),
     .eps_keys = "layer_norm_epsilon", .normed_residual_if = "apply_residual_connection_post_layernorm"},
    {.name = "falcon_rw", .model_types = "falcon RefinedWeb RefinedWebModel", .stems = "h.{i}.",
     DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), .biases = IF_STORED, .bias_key = "bias", ACTIVATION(GELU, "activation"),
     PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "falcon", .model_types = "falcon RefinedWeb RefinedWebModel", .stems = "h.{i}.",
     DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), .biases = IF_STORED, .bias_key = "bias", ACTIVATION(GELU, "activation"),
     PRE(LAYER_NORM("input_layernorm", 1e-5f)), .eps_keys = "layer_norm_epsilon", .without = "post_attention_layernorm.weight ln_mlp.weight"},
    {.name = "falcon_40b", .choice = BY_NAMES, .model_types = "falcon RefinedWeb RefinedWebModel", .stems = "h.{i}.",
     DENSE("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), .biases = IF_STORED, .bias_key = "bias", ACTIVATION(GELU, "activation"),
     PRE(LAYER_NORM("ln_mlp", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "mpt", .choice = BY_NAMES, .model_types = "mpt", .stems = "blocks.{i}.", DENSE("ffn.up_proj", "ffn.down_proj"), .biases = IF_STORED,
     .activation = FFN_ACTIVATION_GELU, PRE(LAYER_NORM_W("norm_2", 1e-5f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "phi", .choice = BY_NAMES, .model_types = "phi", .stems = "layers.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT,
     ACTIVATION(GELU_TANH, "hidden_act"), PRE(LAYER_NORM("input_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps",
     .without = "post_attention_layernorm.weight final_layernorm.weight"},
    {.name = "starcoder2", .choice = BY_NAMES, .model_types = "starcoder2", .stems = "layers.{i}.", DENSE("mlp.c_fc", "mlp.c_proj"),
     .biases = PRESENT, .bias_key = "use_bias", ACTIVATION(GELU_TANH, "hidden_act"), PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)),
     .eps_keys = "norm_epsilon"},
    {.name = "nemotron", .model_types = "nemotron", .stems = "layers.{i}.", DENSE("mlp.up_proj", "mlp.down_proj"), .biases = IF_STORED,
     .bias_key = "mlp_bias", ACTIVATION(RELU2, "hidden_act"), PRE(LAYER_NORM_1P("post_attention_layernorm", 1e-5f)), .eps_keys = "norm_eps",
     .without = "mlp.gate_proj.weight"},
    {.name = "jais2", .model_types = "jais2", .stems = "layers.{i}.", DENSE("mlp.up_proj", "mlp.down_proj"), .biases = IF_STORED,
     .bias_key = "mlp_bias", ACTIVATION(RELU2, "hidden_act"), PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)),
     .eps_keys = "layer_norm_eps", .without = "mlp.gate_proj.weight"},
    {.name = "arcee", .choice = BY_NAMES, .model_types = "arcee", .stems = "layers.{i}.", DENSE("mlp.up_proj", "mlp.down_proj"),
     .biases = IF_STORED, .bias_key = "mlp_bias", ACTIVATION(RELU2, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1e-5f)),
     .eps_keys = "rms_norm_eps", .without = "mlp.gate_proj.weight"},
    {.name = "apertus", .choice = BY_NAMES, .model_types = "apertus", .stems = "layers.{i}.", DENSE("mlp.up_proj", "mlp.down_proj"),
     .biases = IF_STORED, ACTIVATION(XIELU, "hidden_act"), .xielu = "mlp.act_fn", PRE(RMS_NORM("feedforward_layernorm", 1e-5f)),
     .eps_keys = "rms_norm_eps"},

    /* ------------------------------------------------------------ encoders with decoders */
    {.name = "t5", .choice = BY_NAMES, .model_types = "t5 mt5 umt5 longt5 pop2piano pix2struct_text_model udop",
     .stems = "encoder.block.{i}.layer.1. decoder.block.{i}.layer.2.", DENSE("DenseReluDense.wi", "DenseReluDense.wo"), .biases = IF_STORED,
     ACTIVATION(RELU, "feed_forward_proj dense_act_fn"), PRE(RMS_NORM("layer_norm", 1e-6f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "t5_v1_1", .choice = BY_NAMES, .model_types = "t5 mt5 umt5 longt5 pop2piano udop",
     .stems = "encoder.block.{i}.layer.1. decoder.block.{i}.layer.2.",
     GATED("DenseReluDense.wi_0", "DenseReluDense.wi_1", "DenseReluDense.wo"), .biases = IF_STORED,
     ACTIVATION(GELU_TANH, "feed_forward_proj dense_act_fn"), PRE(RMS_NORM("layer_norm", 1e-6f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "switch_transformers_dense", .choice = BY_NAMES, .model_types = "switch_transformers",
     .stems = "encoder.block.{i}.layer.1. decoder.block.{i}.layer.2.", DENSE("mlp.wi", "mlp.wo"), .biases = IF_STORED,
     ACTIVATION(RELU, "dense_act_fn"), PRE(RMS_NORM("layer_norm", 1e-6f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "bart", .model_types = "bart marian led mvp blenderbot-small plbart", .stems = "encoder.layers.{i}. decoder.layers.{i}.",
     DENSE("fc1", "fc2"), .biases = PRESENT, ACTIVATION(GELU, "activation_function"), POST(LAYER_NORM("final_layer_norm", 1e-5f))},
    {.name = "whisper", .choice = BY_NAMES_BESIDE, .beside = "encoder.conv1.weight", .model_types = "whisper mbart pegasus blenderbot",
     .stems = "encoder.layers.{i}. decoder.layers.{i}.", DENSE("fc1", "fc2"), .biases = PRESENT, ACTIVATION(GELU, "activation_function"),
     PRE(LAYER_NORM("final_layer_norm", 1e-5f))},
    {.name = "m2m_100", .model_types = "m2m_100 nllb speech_to_text", .stems = "encoder.layers.{i}. decoder.layers.{i}.", DENSE("fc1", "fc2"),
     .biases = PRESENT, ACTIVATION(RELU, "activation_function"), PRE(LAYER_NORM("final_layer_norm", 1e-5f))},
    {.name = "xglm", .model_types = "xglm", .stems = "layers.{i}.", DENSE("fc1", "fc2"), .biases = PRESENT,
     ACTIVATION(GELU, "activation_function"), PRE(LAYER_NORM("final_layer_norm", 1e-5f))},
    {.name = "nllb-moe_dense", .choice = BY_NAMES, .model_types = "nllb-moe", .stems = "encoder.layers.{i}. decoder.layers.{i}.",
     DENSE("ffn.fc1", "ffn.fc2"), .biases = PRESENT, ACTIVATION(RELU, "activation_function"), PRE(LAYER_NORM("ff_layer_norm", 1e-5f))},
    {.name = "opt", .model_types = "opt", .stems = "decoder.layers.{i}.", DENSE("fc1", "fc2"), .biases = PRESENT, .bias_key = "enable_bias",
     ACTIVATION(RELU, "activation_function"), PRE(LAYER_NORM("final_layer_norm", 1e-5f)), .move_norm_if = "!do_layer_norm_before",
     .bare_norms_if = "!layer_norm_elementwise_affine"},
    {.name = "kosmos-2", .choice = BY_NAMES, .model_types = "kosmos-2 kosmos_2_text_model", .stems = "layers.{i}.", DENSE("ffn.fc1", "ffn.fc2"),
     .biases = PRESENT, ACTIVATION(GELU, "activation_function"), PRE(LAYER_NORM("final_layer_norm", 1e-5f)),
     ALSO_MID(LAYER_NORM("ffn.ffn_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps"},
    /* torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: norm_first and activation are not in the file. */
    {.name = "torch_post", .stems = "layers.{i}.", DENSE("linear1", "linear2"), .biases = IF_STORED, .activation = FFN_ACTIVATION_RELU,
     POST(LAYER_NORM_W("norm2", 1e-5f)), .without = "norm3.weight"},
    {.name = "torch_pre", .stems = "layers.{i}.", DENSE("linear1", "linear2"), .biases = IF_STORED, .activation = FFN_ACTIVATION_RELU,
     PRE(LAYER_NORM_W("norm2", 1e-5f)), .without = "norm3.weight"},
    {.name = "torch_decoder_post", .stems = "layers.{i}.", DENSE("linear1", "linear2"), .biases = IF_STORED, .activation = FFN_ACTIVATION_RELU,
     POST(LAYER_NORM_W("norm3", 1e-5f))},
    {.name = "torch_decoder_pre", .stems = "layers.{i}.", DENSE("linear1", "linear2"), .biases = IF_STORED, .activation = FFN_ACTIVATION_RELU,
     PRE(LAYER_NORM_W("norm3", 1e-5f))},

    /* ------------------------------------------------------------ speech */
    {.name = "wav2vec2", .choice = BY_NAMES, .model_types = "wav2vec2 hubert wavlm unispeech unispeech-sat data2vec-audio sew",
     .stems = "encoder.layers.{i}.", DENSE("feed_forward.intermediate_dense", "feed_forward.output_dense"), .biases = PRESENT,
     ACTIVATION(GELU, "hidden_act"), POST(LAYER_NORM("final_layer_norm", 1e-5f)), .eps_keys = "layer_norm_eps",
     .move_norm_if = "do_stable_layer_norm"},
    /* Two half-step sublayers in each block; the block's own final norm is not part of them. */
    {.name = "wav2vec2-conformer", .choice = BY_NAMES, .model_types = "wav2vec2-conformer wav2vec2-bert seamless_m4t seamless_m4t_v2",
     .stems = "layers.{i}.ffn1 layers.{i}.ffn2", DENSE(".intermediate_dense", ".output_dense"), .biases = PRESENT,
     ACTIVATION(SILU, "speech_encoder_hidden_act hidden_act"), PRE(LAYER_NORM("_layer_norm", 1e-5f)), .eps_keys = "layer_norm_eps",
     .branch_scale = {.value = 0.5f}},
    {.name = "moonshine_encoder", .model_types = "moonshine", .stems = "encoder.layers.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT,
     ACTIVATION(GELU, "encoder_hidden_act"), PRE(LAYER_NORM_W("post_attention_layernorm", 1e-5f))},
    {.name = "moonshine_decoder", .model_types = "moonshine", .stems = "decoder.layers.{i}.", FUSED_UP_GATE("mlp.fc1", "mlp.fc2"),
     .biases = PRESENT, ACTIVATION(SILU, "decoder_hidden_act"), PRE(LAYER_NORM_W("final_layernorm", 1e-5f))},
    {.name = "moshi", .model_types = "moshi", .stems = "layers.{i}.", FUSED_GATE_UP("mlp.fc1", "mlp.fc2"), .biases = IF_STORED,
     ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1e-8f)), .eps_keys = "rms_norm_eps"},

    /* ------------------------------------------------------------ vision */
    {.name = "vit", .choice = BY_NAMES, .model_types = "vit deit vit_mae vit_msn yolos audio-spectrogram-transformer videomae", .stems = "layer.{i}.",
     DENSE("intermediate.dense", "output.dense"), .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("layernorm_after", 1e-12f)),
     .eps_keys = "layer_norm_eps", .without = "lambda_2"},
    {.name = "beit", .choice = BY_NAMES, .model_types = "beit data2vec-vision", .stems = "layer.{i}.", DENSE("intermediate.dense", "output.dense"),
     .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("layernorm_after", 1e-12f)), .eps_keys = "layer_norm_eps",
     .branch_scale = {.tensor = "lambda_2"}},
    {.name = "timm_vit", .choice = BY_NAMES, .stems = "blocks.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT,
     .activation = FFN_ACTIVATION_GELU, PRE(LAYER_NORM("norm2", 1e-6f)), .without = "ls2.gamma gamma_2"},
    {.name = "clip", .choice = BY_NAMES_BESIDE, .beside = "vision_model.pre_layrnorm.weight text_projection.weight",
     .model_types = "clip clip_text_model clip_vision_model", .stems = "encoder.layers.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT,
     ACTIVATION(QUICK_GELU, "hidden_act"), PRE(LAYER_NORM("layer_norm2", 1e-5f)), .eps_keys = "layer_norm_eps"},
    {.name = "siglip", .choice = BY_NAMES_BESIDE, .beside = "vision_model.head.probe",
     .model_types = "siglip siglip_text_model siglip_vision_model siglip2 siglip2_text_model siglip2_vision_model",
     .stems = "encoder.layers.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT, ACTIVATION(GELU_TANH, "hidden_act"),
     PRE(LAYER_NORM("layer_norm2", 1e-6f)), .eps_keys = "layer_norm_eps"},
    /* The pooling head: a + MLP(LN(a)) */
    {.name = "siglip_head", .choice = BY_NAMES, .model_types = "siglip siglip_vision_model siglip2 siglip2_vision_model", .stems = "head.",
     DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT, ACTIVATION(GELU_TANH, "hidden_act"), PRE(LAYER_NORM("layernorm", 1e-6f)),
     .eps_keys = "layer_norm_eps"},
    {.name = "dinov2", .choice = BY_NAMES, .model_types = "dinov2 dinov2_with_registers", .stems = "layer.{i}.", DENSE("mlp.fc1", "mlp.fc2"),
     .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("norm2", 1e-6f)), .eps_keys = "layer_norm_eps",
     .branch_scale = {.tensor = "layer_scale2.lambda1"}},
    {.name = "dinov2_swiglu", .choice = BY_NAMES, .model_types = "dinov2 dinov2_with_registers", .stems = "layer.{i}.",
     FUSED_GATE_UP("mlp.weights_in", "mlp.weights_out"), .biases = PRESENT, .activation = FFN_ACTIVATION_SILU,
     PRE(LAYER_NORM("norm2", 1e-6f)), .eps_keys = "layer_norm_eps", .branch_scale = {.tensor = "layer_scale2.lambda1"}},
    /* facebookresearch/dinov2's own files */
    {.name = "dinov2_native", .choice = BY_NAMES, .stems = "blocks.{i}.", DENSE("mlp.fc1", "mlp.fc2"), .biases = PRESENT,
     .activation = FFN_ACTIVATION_GELU, PRE(LAYER_NORM("norm2", 1e-6f)), .branch_scale = {.tensor = "ls2.gamma"}},
    {.name = "dinov2_native_swiglu", .choice = BY_NAMES, .stems = "blocks.{i}.", FUSED_GATE_UP("mlp.w12", "mlp.w3"), .biases = PRESENT,
     .activation = FFN_ACTIVATION_SILU, PRE(LAYER_NORM("norm2", 1e-6f)), .branch_scale = {.tensor = "ls2.gamma"}},
    {.name = "dinov3_vit", .choice = BY_NAMES, .model_types = "dinov3_vit", .stems = "layer.{i}.", DENSE("mlp.up_proj", "mlp.down_proj"),
     .biases = IF_STORED, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("norm2", 1e-5f)), .eps_keys = "layer_norm_eps",
     .branch_scale = {.tensor = "layer_scale2.lambda1"}, .without = "mlp.gate_proj.weight"},
    {.name = "dinov3_vit_gated", .choice = BY_NAMES, .model_types = "dinov3_vit", .stems = "layer.{i}.",
     GATED("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"),
     PRE(LAYER_NORM("norm2", 1e-5f)), .eps_keys = "layer_norm_eps", .branch_scale = {.tensor = "layer_scale2.lambda1"}},
    {.name = "intern_vit", .choice = BY_NAMES, .model_types = "intern_vit_6b", .stems = "layers.{i}.", DENSE("mlp.fc1", "mlp.fc2"),
     .biases = PRESENT, ACTIVATION(GELU, "hidden_act"), PRE(LAYER_NORM("norm2", 1e-6f)), .eps_keys = "layer_norm_eps",
     .branch_scale = {.tensor = "ls2"}},
    {.name = "qwen2_5_vl_vision", .choice = BY_NAMES, .model_types = "qwen2_5_vl", .stems = "blocks.{i}.",
     GATED("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), .biases = PRESENT, ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("norm2", 1e-6f))},
    {.name = "pixtral", .choice = BY_NAMES, .model_types = "pixtral", .stems = "layers.{i}.",
     GATED("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"), .biases = IF_STORED, ACTIVATION(GELU, "hidden_act"),
     PRE(RMS_NORM("ffn_norm", 1e-5f))},

    /* ------------------------------------------------------------ LLaMA and its kin: gated */
    {.name = "llama", .choice = BY_NAMES, .model_types = "llama mistral ministral mistral3 qwen2 qwen3 smollm3 seed_oss diffllama baichuan yi "
     "deepseek deepseek_v2 deepseek_v3 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl_text internlm aquila mllama mllama_text_model "
     "kimi_k2 qwen2_moe qwen3_moe qwen3_vl_moe qwen3_vl_moe_text glm4_moe glm4v_moe glm4v_moe_text solar_open dots1 ernie4_5_moe hunyuan_v1_moe",
     LLAMA_PROJECTIONS, .bias_key = "mlp_bias", ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1e-6f)),
     .eps_keys = "rms_norm_eps", .without = "pre_feedforward_layernorm.weight post_feedforward_layernorm.weight mlp.ffn_sub_norm.weight "
     "cross_attn_mlp_gate pre_mlp_layernorm.weight"},
    {.name = "helium", .model_types = "helium", LLAMA_PROJECTIONS, .bias_key = "mlp_bias", ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-8f)), .eps_keys = "rms_norm_eps"},
    {.name = "granite", .model_types = "granite", LLAMA_PROJECTIONS, .bias_key = "mlp_bias", ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps", .branch_scale = {.key = "residual_multiplier", .value = 1}},
    /* Norms are (1 + w). */
    {.name = "qwen3_5", .model_types = "qwen3_5 qwen3_5_text qwen3_next qwen3_5_moe qwen3_5_moe_text", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM_1P("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    /* The image tokens' mask, which zeroes whole rows of the branch, is the caller's. */
    {.name = "mllama_cross", .choice = BY_NAMES, .model_types = "mllama mllama_text_model", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps", .branch_scale = {.tensor = "cross_attn_mlp_gate", .tanh = 1}},
    {.name = "bitnet", .choice = BY_NAMES, .model_types = "bitnet", LLAMA_PROJECTIONS, ACTIVATION(RELU2, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-5f)), ALSO_MID(RMS_NORM("mlp.ffn_sub_norm", 1e-5f)), .eps_keys = "rms_norm_eps"},
    {.name = "gemma", .model_types = "gemma", LLAMA_PROJECTIONS, ACTIVATION(GELU_TANH, "hidden_activation hidden_act"), .gelu_is_tanh = 1,
     PRE(RMS_NORM_1P("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    /* Here post_attention_layernorm belongs to attention. */
    {.name = "gemma2", .choice = BY_NAMES, .model_types = "gemma2 gemma3 gemma3_text t5gemma t5_gemma_module", LLAMA_PROJECTIONS,
     ACTIVATION(GELU_TANH, "hidden_activation hidden_act"), .gelu_is_tanh = 1, PRE(RMS_NORM_1P("pre_feedforward_layernorm", 1e-6f)),
     ALSO_BRANCH(RMS_NORM_1P("post_feedforward_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "vaultgemma", .choice = BY_NAMES, .model_types = "vaultgemma", LLAMA_PROJECTIONS,
     ACTIVATION(GELU_TANH, "hidden_activation hidden_act"), .gelu_is_tanh = 1, PRE(RMS_NORM_1P("pre_feedforward_layernorm", 1e-6f)),
     .eps_keys = "rms_norm_eps", .without = "post_feedforward_layernorm.weight"},
    {.name = "gemma3n", .model_types = "gemma3n gemma3n_text", LLAMA_PROJECTIONS,
     .refuse = "its first layers keep only the largest part of the gate (a Gaussian top-k), which libffn does not compute"},
    {.name = "gemma4", .model_types = "gemma4 gemma4_text", LLAMA_PROJECTIONS, .refuse = "its layers are not described yet"},
    {.name = "recurrent_gemma", .choice = BY_NAMES, .model_types = "recurrent_gemma", .stems = "layers.{i}.",
     GATED("mlp_block.gate_proj", "mlp_block.up_proj", "mlp_block.down_proj"), .biases = PRESENT, ACTIVATION(GELU_TANH, "hidden_activation"),
     .gelu_is_tanh = 1, PRE(RMS_NORM_1P("channel_pre_norm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "olmo", .model_types = "olmo", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"), PRE({FFN_NORM_LAYER, NULL, ABSENT, 1e-5f, 0})},
    {.name = "olmo2", .choice = BY_NAMES, .model_types = "olmo2 olmo3 exaone4", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     BRANCH(RMS_NORM("post_feedforward_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps", .without = "pre_feedforward_layernorm.weight"},
    {.name = "stablelm", .choice = BY_NAMES, .model_types = "stablelm stablelm_epoch", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps"},
    {.name = "stablelm_parallel", .model_types = "stablelm", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(LAYER_NORM("input_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps", .without = "post_attention_layernorm.weight"},
    {.name = "cohere", .model_types = "cohere cohere2", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(LAYER_NORM_W("input_layernorm", 1e-5f)), .eps_keys = "layer_norm_eps"},
    {.name = "phi3", .choice = BY_NAMES, .model_types = "phi3 phi4", .stems = "layers.{i}.", FUSED_GATE_UP("mlp.gate_up_proj", "mlp.down_proj"),
     .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps",
     .without = "post_mlp_layernorm.weight"},
    {.name = "glm", .model_types = "glm", .stems = "layers.{i}.", FUSED_GATE_UP("mlp.gate_up_proj", "mlp.down_proj"), .biases = IF_STORED,
     ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1.5625e-7f)), .eps_keys = "rms_norm_eps"},
    {.name = "glm4", .choice = BY_NAMES, .model_types = "glm4", .stems = "layers.{i}.", FUSED_GATE_UP("mlp.gate_up_proj", "mlp.down_proj"),
     .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", 1.5625e-7f)),
     ALSO_BRANCH(RMS_NORM("post_mlp_layernorm", 1.5625e-7f)), .eps_keys = "rms_norm_eps"},
    {.name = "chatglm", .choice = BY_NAMES, .model_types = "chatglm", .stems = "layers.{i}.",
     FUSED_GATE_UP("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), .biases = IF_STORED, .activation = FFN_ACTIVATION_SILU,
     PRE(RMS_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "layernorm_epsilon"},
    /* w1 is the linear branch, w2 the activated one. */
    {.name = "qwen", .choice = BY_NAMES, .model_types = "qwen", .stems = "h.{i}.", GATED("mlp.w2", "mlp.w1", "mlp.c_proj"), .biases = IF_STORED,
     .activation = FFN_ACTIVATION_SILU, PRE(RMS_NORM("ln_2", 1e-6f)), .eps_keys = "layer_norm_epsilon"},
    /* meta-llama/llama-models' own names; w1 is the activated branch, w3 the linear one. */
    {.name = "llama_native", .choice = BY_NAMES, .model_types = "internlm2 lfm2 lfm2_moe", .stems = "layers.{i}.",
     GATED("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"), .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("ffn_norm", 1e-5f)), .eps_keys = "rms_norm_eps norm_eps"},

    /* ------------------------------------------------------------ mixtures of experts: experts.c has what is said of the experts */
#define MOE_LAYER(rule, eps) .stems = "layers.{i}.", EXPERTS(rule), ACTIVATION(SILU, "hidden_act"), PRE(RMS_NORM("post_attention_layernorm", eps)), \
                             .eps_keys = "rms_norm_eps"
    {.name = "mixtral", .choice = BY_NAMES, .model_types = "mixtral", MOE_LAYER(mixtral, 1e-5f),
     .without = "block_sparse_moe.e_score_correction_bias mlp.e_score_correction_bias mlp.gate.e_score_correction_bias"},
    {.name = "minimax", .model_types = "minimax", .stems = "layers.{i}.", EXPERTS(mixtral), ACTIVATION(SILU, "hidden_act"),
     .residual = FFN_RESIDUAL_NORMED, .norm[FFN_NORM_IN] = RMS_NORM("post_attention_layernorm", 1e-5f), .eps_keys = "rms_norm_eps",
     .residual_scale = {.key = "mlp_alpha_factor", .value = 1}, .branch_scale = {.key = "mlp_beta_factor", .value = 1}},
    {.name = "minimax_m2", .choice = BY_NAMES, .model_types = "minimax_m2", MOE_LAYER(minimax_m2, 1e-6f)},
    {.name = "phimoe", .choice = BY_NAMES, .model_types = "phimoe", .stems = "layers.{i}.", EXPERTS(phimoe), ACTIVATION(SILU, "hidden_act"),
     PRE(LAYER_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps"},
    {.name = "qwen2_moe", .model_types = "qwen2_moe", MOE_LAYER(qwen2, 1e-6f)},
    {.name = "qwen3_moe", .model_types = "qwen3_moe", MOE_LAYER(qwen3, 1e-6f)},
    {.name = "qwen3_vl_moe", .model_types = "qwen3_vl_moe qwen3_vl_moe_text", MOE_LAYER(qwen3_vl, 1e-6f)},
    {.name = "qwen3_next", .model_types = "qwen3_next", .stems = "layers.{i}.", EXPERTS(qwen3_next), ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM_1P("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "qwen3_5_moe", .model_types = "qwen3_5_moe qwen3_5_moe_text", .stems = "layers.{i}.", EXPERTS(qwen3_5), ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM_1P("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "olmoe", .model_types = "olmoe", MOE_LAYER(olmoe, 1e-5f)},
    {.name = "flex_olmo", .model_types = "flex_olmo", .stems = "layers.{i}.", EXPERTS(flex_olmo), ACTIVATION(SILU, "hidden_act"),
     BRANCH(RMS_NORM("post_feedforward_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "deepseek_v2", .model_types = "deepseek_v2 deepseek", MOE_LAYER(deepseek_v2, 1e-6f)},
    {.name = "deepseek_v3", .model_types = "deepseek_v3 deepseek_v32 kimi_k2", MOE_LAYER(deepseek_v3, 1e-6f)},
    {.name = "glm4_moe", .model_types = "glm4_moe glm4v_moe glm4v_moe_text solar_open", MOE_LAYER(glm4, 1e-5f)},
    /* Each block is one thing: attention, Mamba, experts or this. */
    {.name = "nemotron_h", .choice = BY_NAMES, .model_types = "nemotron_h", .stems = "layers.{i}.", EXPERTS(nemotron_h),
     ACTIVATION(RELU2, "mlp_hidden_act"), PRE(RMS_NORM("norm", 1e-5f)), .eps_keys = "layer_norm_epsilon norm_eps"},
    {.name = "nemotron_h_dense", .choice = BY_NAMES, .model_types = "nemotron_h", .stems = "layers.{i}.", DENSE("mixer.up_proj", "mixer.down_proj"),
     .biases = IF_STORED, .bias_key = "mlp_bias", ACTIVATION(RELU2, "mlp_hidden_act"), PRE(RMS_NORM("norm", 1e-5f)),
     .eps_keys = "layer_norm_epsilon norm_eps"},
    {.name = "dots1", .model_types = "dots1", MOE_LAYER(dots1, 1e-6f)},
    {.name = "ernie4_5_moe", .model_types = "ernie4_5_moe", MOE_LAYER(ernie4_5, 1e-5f)},
    {.name = "hunyuan_v1_moe", .model_types = "hunyuan_v1_moe hunyuan", MOE_LAYER(hunyuan, 1e-5f)},
    {.name = "gpt_oss", .choice = BY_NAMES, .model_types = "gpt_oss", .stems = "layers.{i}.", EXPERTS(gpt_oss), .activation = FFN_ACTIVATION_SWISH,
     .beta = 1.702f, .limit_key = "swiglu_limit", .limit = 7, .up_offset = 1, PRE(RMS_NORM("post_attention_layernorm", 1e-5f)),
     .eps_keys = "rms_norm_eps"},
    {.name = "llama4", .choice = BY_NAMES, .model_types = "llama4 llama4_text", MOE_LAYER(llama4, 1e-5f)},
    {.name = "llama4_dense", .choice = BY_NAMES, .model_types = "llama4 llama4_text", .stems = "layers.{i}.",
     GATED("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"), .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps"},
    {.name = "granitemoe", .model_types = "granitemoe granitemoeshared granitemoehybrid", MOE_LAYER(granite, 1e-6f),
     .branch_scale = {.key = "residual_multiplier", .value = 1}},
    {.name = "granitemoe_dense", .model_types = "granitemoehybrid", .stems = "layers.{i}.",
     FUSED_GATE_UP("shared_mlp.input_linear", "shared_mlp.output_linear"), .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps", .branch_scale = {.key = "residual_multiplier", .value = 1},
     .without = "block_sparse_moe.router.layer.weight block_sparse_moe.router.weight"},
    {.name = "jetmoe", .choice = BY_NAMES, .model_types = "jetmoe", .stems = "layers.{i}.", EXPERTS(jetmoe), ACTIVATION(SILU, "activation_function"),
     PRE(RMS_NORM("post_attention_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "aria", .model_types = "aria aria_text", MOE_LAYER(aria, 1e-6f)},
    {.name = "dbrx", .model_types = "dbrx", .stems = "blocks.{i}.", EXPERTS(dbrx), ACTIVATION(SILU, "ffn_config.ffn_act_fn.name"),
     PRE(LAYER_NORM_W("norm_attn_norm.norm_2", 1e-5f))},
    {.name = "jamba", .choice = BY_NAMES, .model_types = "jamba", .stems = "layers.{i}.", EXPERTS(jamba), ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("pre_ff_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "jamba_dense", .choice = BY_NAMES, .model_types = "jamba", .stems = "layers.{i}.",
     GATED("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"), .biases = IF_STORED, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("pre_ff_layernorm", 1e-6f)), .eps_keys = "rms_norm_eps"},
    {.name = "lfm2_moe", .choice = BY_NAMES, .model_types = "lfm2_moe", .stems = "layers.{i}.", EXPERTS(lfm2), .activation = FFN_ACTIVATION_SILU,
     PRE(RMS_NORM("ffn_norm", 1e-5f)), .eps_keys = "norm_eps"},
    {.name = "afmoe", .choice = BY_NAMES, .model_types = "afmoe", .stems = "layers.{i}.", EXPERTS(afmoe), ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("pre_mlp_layernorm", 1e-5f)), ALSO_BRANCH(RMS_NORM("post_mlp_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps"},
    {.name = "afmoe_dense", .choice = BY_NAMES, .model_types = "afmoe", LLAMA_PROJECTIONS, ACTIVATION(SILU, "hidden_act"),
     PRE(RMS_NORM("pre_mlp_layernorm", 1e-5f)), ALSO_BRANCH(RMS_NORM("post_mlp_layernorm", 1e-5f)), .eps_keys = "rms_norm_eps"},
    {.name = "switch_transformers", .choice = BY_NAMES, .model_types = "switch_transformers",
     .stems = "encoder.block.{i}.layer.1. decoder.block.{i}.layer.2.", EXPERTS(switch), ACTIVATION(RELU, "dense_act_fn"),
     PRE(RMS_NORM("layer_norm", 1e-6f)), .eps_keys = "layer_norm_epsilon"},
    {.name = "nllb-moe", .choice = BY_NAMES, .model_types = "nllb-moe", .stems = "encoder.layers.{i}. decoder.layers.{i}.", EXPERTS(nllb),
     ACTIVATION(RELU, "activation_function"), PRE(LAYER_NORM("ff_layer_norm", 1e-5f))},
};

_Static_assert(COUNT(ffnio_families) <= FFNIO_FAMILIES, "more rows than recognise.c has room for");

const int ffnio_family_count = COUNT(ffnio_families);
