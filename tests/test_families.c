/* SPDX-License-Identifier: MIT
 *
 * The feed-forward sublayers of published models, family by family: the options that express each, run with random weights in the layout of the
 * family's files, against the oracle with plain matrices.
 *
 * Dropout is the identity when a model runs, and is left out. Where a family has two placements there are two rows. Names after '/' are other
 * models with the same sublayer.
 *
 * Not expressible by one layer, and so not here:
 *     HYPER (DeepSeek-V4's streams)          several residual streams, mixed per token; the FFN inside is the "DeepSeek-V4" row
 *     RWKV's channel mix as a whole          times sigmoid(W_r q), a third projection of another input, and a token shift; W_v relu2(W_k k) is a row
 *     Gemma3n's first layers                 Gaussian top-k over the features of the gate; its other layers are a row
 *     Gemma3n audio's clips                  clips on the residual stream; without them it is a row
 *     t2t's noam and l2 norms                other denominators (rsqrt(max(sum, eps)) sqrt(H); a sum where the variance is a mean)
 *     Mllama's row mask                      a factor per token; without it the cross-attention layer is a row
 *     MMS's adapters, Zamba2's adapters      extra low-rank terms; the sublayers they are added to are rows
 *     mtf's and flaxformer's products        of three and more projections; of two they are rows
 *     Megatron's block-interleaved gates     a view has two strides; three would be needed. Copy the blocks apart first
 *     the fp16 clamps of T5, Whisper, NLLB   limits of a narrow type, which float32 does not have
 *     Moshi's depth decoder                  weights chosen by position: one layer per codebook
 *     convolutions with k > 1 (section 5b)   not position-wise
 */
#include <string.h>

#include "support/layer_check.h"
#include "support/test.h"

/* Norms by the catalogue's names (section 3). */
#define LN(e)         {FFN_NORM_LAYER, true, true, e, 0}
#define LN_NOBIAS(e)  {FFN_NORM_LAYER, true, false, e, 0}
#define LN_NOAFFINE   {FFN_NORM_LAYER, false, false, 1e-5f, 0}
#define LN_1P(e)      {FFN_NORM_LAYER, true, true, e, 1}
#define RMS(e)        {FFN_NORM_RMS, true, false, e, 0}
#define RMS_1P(e)     {FFN_NORM_RMS, true, false, e, 1}
#define RMS_NOW       {FFN_NORM_RMS, false, false, 1e-6f, 0}
#define NO_NORM       {FFN_NORM_AFFINE, true, true, 0, 0}

/* Placement templates (section 4). */
#define NORM_AT(slot, ...)  .norm[slot] = __VA_ARGS__
#define POST(...)           .residual = FFN_RESIDUAL_INPUT, NORM_AT(FFN_NORM_OUT, __VA_ARGS__)
#define PRE(...)            .residual = FFN_RESIDUAL_INPUT, NORM_AT(FFN_NORM_IN, __VA_ARGS__)
#define SANDWICH(...)       .residual = FFN_RESIDUAL_INPUT, NORM_AT(FFN_NORM_IN, __VA_ARGS__), NORM_AT(FFN_NORM_BRANCH, __VA_ARGS__)
#define OUTNORM(...)        .residual = FFN_RESIDUAL_INPUT, NORM_AT(FFN_NORM_BRANCH, __VA_ARGS__)
/* Parallel blocks: the caller runs attention first and gives r + Attn as the residual. With one norm for both (PAR-1), the normed input is at
 * hand and no norm is needed here; with the FFN's own norm (PAR-2), or to save the caller the shared one, the layer norms r itself. */
#define PAR_GIVEN_NORMED    .residual = FFN_RESIDUAL_EXTERNAL
#define PAR(...)            .residual = FFN_RESIDUAL_EXTERNAL, NORM_AT(FFN_NORM_IN, __VA_ARGS__)
#define NRES(...)           .residual = FFN_RESIDUAL_NORMED, NORM_AT(FFN_NORM_IN, __VA_ARGS__)
#define TIMES(c)            .branch_scale = SCALE_ONE, .branch_factor = c
#define RESIDUAL_TIMES(a)   .residual_scale = SCALE_ONE, .residual_factor = a
#define LSCALE              .branch_scale = SCALE_VECTOR
#define TANHGATE(g)         .branch_scale = SCALE_ONE_TANH, .branch_factor = g

/* Activations. */
#define ACT(name)           .activation = FFN_ACTIVATION_##name
#define GATED(name)         .activation = FFN_ACTIVATION_##name, .gated = true
#define BIASED              .biases = BIAS_ALL

/* Layouts. */
#define CONV1D              .layout = LAYOUT_IN_OUT, .down_layout = LAYOUT_IN_OUT
#define FUSED_GATE_UP       .layout = LAYOUT_GATE_UP
#define FUSED_UP_GATE       .layout = LAYOUT_UP_GATE

static const layer_case_t dense[] = {
    {.name = "Transformer v1 / t2t dan", ACT(RELU), BIASED, POST(LN(1e-6f)), CONV1D},
    {.name = "Transformer v2 / t2t n, da", ACT(RELU), BIASED, PRE(LN(1e-6f)), CONV1D},
    {.name = "t2t z: r + gamma x", ACT(RELU), BIASED, .residual = FFN_RESIDUAL_INPUT, TIMES(0), CONV1D},
    {.name = "BERT / ELECTRA, XLM-R, Megatron-BERT, DeBERTa", ACT(GELU), BIASED, POST(LN(1e-12f))},
    {.name = "RoBERTa", ACT(GELU), BIASED, POST(LN(1e-5f))},
    {.name = "ESM / RoBERTa-PreLN", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "DistilBERT", ACT(GELU), BIASED, POST(LN(1e-12f))},
    {.name = "ALBERT", ACT(GELU_TANH), BIASED, POST(LN(1e-12f))},
    {.name = "MobileBERT, NoNorm", ACT(RELU), BIASED, POST(NO_NORM)},
    {.name = "SqueezeBERT, four groups", ACT(GELU), BIASED, POST(LN(1e-12f)), .groups = 4},
    {.name = "XLNet / Funnel, ProphetNet", ACT(GELU), BIASED, POST(LN(1e-12f))},
    {.name = "Reformer, the other stream as residual", ACT(RELU), BIASED, PAR(LN(1e-12f))},
    {.name = "GPT-1", ACT(GELU_TANH), BIASED, POST(LN(1e-5f)), CONV1D},
    {.name = "GPT-2 / ImageGPT, DecisionTransformer", ACT(GELU_TANH), BIASED, PRE(LN(1e-5f)), CONV1D},
    {.name = "GPT-BigCode", ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))},
    {.name = "GPT-Neo", ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))},
    {.name = "GPT-J / CodeGen, PAR-1", ACT(GELU_TANH), BIASED, PAR(LN(1e-5f))},
    {.name = "GPT-J, normed input given", ACT(GELU_TANH), BIASED, PAR_GIVEN_NORMED},
    {.name = "GPT-NeoX / Pythia, PAR-2", ACT(GELU), BIASED, PAR(LN(1e-5f))},
    {.name = "GPT-NeoX, sequential", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "GPT-NeoX-20B, gelu_fast", ACT(GELU_TANH), BIASED, PAR(LN(1e-5f))},
    {.name = "OPT", ACT(RELU), BIASED, PRE(LN(1e-5f))},
    {.name = "OPT-350m", ACT(RELU), BIASED, POST(LN(1e-5f))},
    {.name = "OPT, enable_bias false, no affine", ACT(RELU), PRE(LN_NOAFFINE)},
    {.name = "BLOOM", ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))},
    {.name = "BLOOM, residual after the norm", ACT(GELU_TANH), BIASED, NRES(LN(1e-5f))},
    {.name = "Falcon-RW", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "Falcon-7B / Falcon2-11B, PAR-1", ACT(GELU), PAR(LN(1e-5f))},
    {.name = "Falcon-40B / 180B, PAR-2", ACT(GELU), PAR(LN(1e-5f))},
    {.name = "MPT", ACT(GELU), PRE(LN_NOBIAS(1e-5f))},
    {.name = "T5 v1.0 / LongT5, Switch dense", ACT(RELU), PRE(RMS(1e-6f))},
    {.name = "Phi-1 / 1.5 / 2, PAR-1", ACT(GELU_TANH), BIASED, PAR(LN(1e-5f))},
    {.name = "Starcoder2", ACT(GELU_TANH), BIASED, PRE(LN(1e-5f))},
    {.name = "Starcoder2, use_bias false", ACT(GELU_TANH), PRE(LN(1e-5f))},
    {.name = "Nemotron-3/4", ACT(RELU2), PRE(LN_1P(1e-5f))},
    {.name = "Arcee", ACT(RELU2), PRE(RMS(1e-5f))},
    {.name = "Jais2", ACT(RELU2), BIASED, PRE(LN(1e-5f))},
    {.name = "Persimmon / Fuyu", ACT(RELU2), BIASED, PRE(LN(1e-5f))},
    {.name = "Apertus", ACT(XIELU), PRE(RMS(1e-5f))},
    {.name = "NanoChat", ACT(RELU2), PRE(RMS_NOW)},
    {.name = "ViT / DeiT", ACT(GELU), BIASED, PRE(LN(1e-12f))},
    {.name = "CLIP", ACT(QUICK_GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "CLIP as swish", ACT(SWISH), .beta = 1.702f, BIASED, PRE(LN(1e-5f))},
    {.name = "OpenCLIP", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "SigLIP / SigLIP 2, layers and pooling head", ACT(GELU_TANH), BIASED, PRE(LN(1e-6f))},
    {.name = "DINOv2 S/B/L / BEiT, InternVL-ViT, DINOv3", ACT(GELU), BIASED, PRE(LN(1e-6f)), LSCALE},
    {.name = "Whisper / M2M, NLLB dense, XGLM", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "BART / Marian", ACT(GELU), BIASED, POST(LN(1e-5f))},
    {.name = "wav2vec2 / HuBERT, WavLM", ACT(GELU), BIASED, POST(LN(1e-5f))},
    {.name = "wav2vec2, do_stable_layer_norm", ACT(GELU), BIASED, PRE(LN(1e-5f))},
    {.name = "Conformer, first half / SeamlessM4T, Parakeet, Granite-Speech", ACT(SILU), BIASED, PRE(LN(1e-5f)), TIMES(0.5f)},
    {.name = "Conformer, second half with the final norm", ACT(SILU), BIASED, PRE(LN(1e-5f)), NORM_AT(FFN_NORM_OUT, LN(1e-5f)), TIMES(0.5f)},
    {.name = "Parakeet without attention_bias", ACT(SILU), PRE(LN(1e-5f)), TIMES(0.5f)},
    {.name = "LASR", ACT(SILU), PRE(LN_NOBIAS(1e-6f)), RESIDUAL_TIMES(1.5f), TIMES(0.5f)},
    {.name = "Gemma3n audio without the clips", ACT(SILU), SANDWICH(RMS(1e-6f)), TIMES(0.5f)},
    {.name = "Kosmos-2 text", ACT(GELU), BIASED, PRE(LN(1e-5f)), NORM_AT(FFN_NORM_MID, LN(1e-5f))},
    {.name = "RWKV-4/5 key and value", ACT(RELU2)},
    {.name = "fairseq NormFormer, scale_fc and scale_resids", ACT(GELU), BIASED, .residual = FFN_RESIDUAL_INPUT,
     NORM_AT(FFN_NORM_MID, LN(1e-5f)), .residual_scale = SCALE_VECTOR},
    {.name = "Mllama vision, global layers", ACT(GELU), BIASED, PRE(LN(1e-5f)), TANHGATE(0.7853982f)},
    {.name = "Moonshine encoder", ACT(GELU), BIASED, PRE(LN_NOBIAS(1e-5f))},
};

static const layer_case_t gated[] = {
    {.name = "LLaMA / Mistral, Qwen2/3, SmolLM3, Seed-OSS", GATED(SILU), PRE(RMS(1e-5f))},
    {.name = "LLaMA, mlp_bias", GATED(SILU), BIASED, PRE(RMS(1e-6f))},
    {.name = "Helium", GATED(SILU), PRE(RMS(1e-8f))},
    {.name = "LLaMA-4 native, fc1 = [w1; w3]", GATED(SILU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "Gemma 1", GATED(GELU_TANH), PRE(RMS_1P(1e-6f))},
    {.name = "Gemma 2/3", GATED(GELU_TANH), SANDWICH(RMS_1P(1e-6f))},
    {.name = "Gemma 3n text, layers without top-k / Gemma 4", GATED(GELU_TANH), SANDWICH(RMS(1e-6f))},
    {.name = "Phi-3/3.5/4 / Dia", GATED(SILU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "GLM", GATED(SILU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "GLM-4", GATED(SILU), SANDWICH(RMS(1.5625e-7f)), FUSED_GATE_UP},
    {.name = "StableLM-3B/2", GATED(SILU), PRE(LN(1e-5f))},
    {.name = "StableLM-2-12B, PAR-1", GATED(SILU), PAR(LN(1e-5f))},
    {.name = "OLMo-1", GATED(SILU), PRE(LN_NOAFFINE)},
    {.name = "OLMo native, ff_proj = [up; gate]", GATED(SILU), PRE(LN_NOAFFINE), FUSED_UP_GATE},
    {.name = "OLMo native, norm_after", GATED(SILU), BIASED, OUTNORM(RMS(1e-5f)), FUSED_UP_GATE},
    {.name = "OLMo-2/3 / EXAONE-4, FlexOlmo", GATED(SILU), OUTNORM(RMS(1e-5f))},
    {.name = "Granite 3", GATED(SILU), PRE(RMS(1e-6f)), TIMES(0.22f)},
    {.name = "Granite 3, mlp_bias", GATED(SILU), BIASED, PRE(RMS(1e-6f)), TIMES(0.22f)},
    {.name = "Cohere / Command-R, Cohere2, PAR-1", GATED(SILU), PAR(LN_NOBIAS(1e-5f))},
    /* d down(up * silu(g gate)): silu(g z) = g z sigmoid(g z), so swish with beta g, and d g on the branch. Here g = 0.8, d = 0.3. */
    {.name = "Falcon-H1", GATED(SWISH), .beta = 0.8f, PRE(RMS(1e-5f)), TIMES(0.24f)},
    {.name = "T5 v1.1 / Flan-T5, mT5, UMT5, ByT5", GATED(GELU_TANH), PRE(RMS(1e-6f))},
    {.name = "UL2 / Flan-UL2", GATED(SILU), PRE(RMS(1e-6f))},
    {.name = "flaxformer ('gelu','linear'), kernels", GATED(GELU_TANH), PRE(RMS(1e-6f)), CONV1D},
    {.name = "flaxformer ('gelu','linear'), wi_fused [H,2,I]", GATED(GELU_TANH), PRE(RMS(1e-6f)), .layout = LAYOUT_IN_GATE_UP,
     .down_layout = LAYOUT_IN_OUT},
    {.name = "T5Gemma", GATED(GELU_TANH), SANDWICH(RMS_1P(1e-6f))},
    {.name = "RecurrentGemma", GATED(GELU_TANH), BIASED, PRE(RMS_1P(1e-6f))},
    {.name = "ModernBERT, Wi = [gate; up]", GATED(GELU), PRE(LN_NOBIAS(1e-5f)), FUSED_GATE_UP},
    {.name = "ModernBERT, mlp_bias", GATED(GELU), BIASED, PRE(LN_NOBIAS(1e-5f)), FUSED_GATE_UP},
    {.name = "NomicBERT swiglu", GATED(SILU), POST(LN(1e-12f))},
    {.name = "NomicBERT glu", GATED(SIGMOID), BIASED, POST(LN(1e-12f))},
    {.name = "NomicBERT geglu, prenorm", GATED(GELU), PRE(LN(1e-12f))},
    {.name = "NomicBERT, only mlp_fc2_bias", GATED(SILU), .biases = BIAS_DOWN, POST(LN(1e-12f))},
    {.name = "NomicBERT norm_mlp / EVA", GATED(SILU), BIASED, PRE(LN(1e-6f)), NORM_AT(FFN_NORM_MID, LN(1e-6f))},
    {.name = "flash-attn GatedMlp, fc1 = [up; gate]", GATED(SIGMOID), BIASED, FUSED_UP_GATE},
    {.name = "flash-attn GatedMlp, silu", GATED(SILU), BIASED, FUSED_UP_GATE},
    {.name = "Megatron-LM SwiGLU", GATED(SILU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "Megatron-LM, clamp and offset", GATED(SWISH), .beta = 1.702f, .gate_max = 7, .up_limit = 7, .up_offset = 1, BIASED,
     PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "DINOv2-g, weights_in = [gate; up]", GATED(SILU), BIASED, PRE(LN(1e-6f)), LSCALE, FUSED_GATE_UP},
    {.name = "DINOv3 gated", GATED(SILU), BIASED, PRE(LN(1e-5f)), LSCALE},
    {.name = "AIMv2", GATED(SILU), PRE(RMS(1e-5f))},
    {.name = "Pixtral vision", GATED(GELU), PRE(RMS(1e-5f))},
    {.name = "Qwen2.5-VL vision", GATED(SILU), BIASED, PRE(RMS(1e-6f))},
    {.name = "Moonshine decoder, fc1 = [up; gate]", GATED(SILU), BIASED, PRE(LN_NOBIAS(1e-5f)), FUSED_UP_GATE},
    {.name = "Phi-4-multimodal audio, [up; gate]", GATED(SILU), BIASED, PRE(LN(1e-5f)), TIMES(0.5f), FUSED_UP_GATE},
    {.name = "Moshi / Kyutai, fc1 = [gate; up]", GATED(SILU), PRE(RMS(1e-8f)), FUSED_GATE_UP},
    {.name = "BitNet b1.58", GATED(RELU2), PRE(RMS(1e-5f)), NORM_AT(FFN_NORM_MID, RMS(1e-5f))},
    {.name = "LFM2", GATED(SILU), PRE(RMS(1e-5f))},
    {.name = "Zamba2 without the adapter", GATED(GELU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "CPM-Ant", GATED(GELU), PRE(RMS(1e-6f))},
    {.name = "Qwen-1 / InternLM2, Baichuan", GATED(SILU), PRE(RMS(1e-6f))},
    {.name = "ChatGLM2/3, dense_h_to_4h = [gate; up]", GATED(SILU), PRE(RMS(1e-5f)), FUSED_GATE_UP},
    {.name = "PaLM, PAR-1", GATED(SILU), PAR(LN_NOBIAS(1e-5f)), CONV1D},
    {.name = "MiniMax-01, NRES with factors", GATED(SILU), NRES(RMS(1e-5f)), RESIDUAL_TIMES(3.5565588f), TIMES(1)},
    {.name = "Mllama cross-attention layers / Flamingo", GATED(SILU), PRE(RMS(1e-5f)), TANHGATE(0.3f)},
    {.name = "gpt-oss, one expert, interleaved rows", GATED(SWISH), .beta = 1.702f, .gate_max = 7, .up_limit = 7, .up_offset = 1, BIASED,
     PRE(RMS(1e-5f)), .layout = LAYOUT_INTERLEAVED},
    {.name = "gpt-oss, one expert as [in, 2I] interleaved", GATED(SWISH), .beta = 1.702f, .gate_max = 7, .up_limit = 7, .up_offset = 1, BIASED,
     PRE(RMS(1e-5f)), .layout = LAYOUT_IN_INTERLEAVED, .down_layout = LAYOUT_IN_OUT},
    {.name = "DeepSeek-V4, one expert", GATED(SILU), .gate_max = 10, .up_limit = 10},
    {.name = "GLU variants: bilinear", GATED(IDENTITY), PRE(RMS(1e-6f))},
    {.name = "GLU variants: ReGLU", GATED(RELU), PRE(RMS(1e-6f))},
};

static void check_families(const layer_case_t *families, int64_t count, uint64_t seed)
{
    static const int64_t shapes[][2] = {{16, 32}, {12, 20}};
    for (int64_t i = 0; i < count; i++)
        for (int64_t s = 0; s < COUNT_OF(shapes); s++) {
            layer_case_t is = families[i];
            is.d_model = shapes[s][0];
            is.d_ff = shapes[s][1];
            is.seed = seed + (uint64_t)(2 * i + s);
            check_case(&is, 1);
            check_case(&is, 11);
        }
}

static void every_dense_family_is_expressed_and_as_the_oracle(void **state)
{
    (void)state;
    check_families(dense, COUNT_OF(dense), 1000);
}

static void every_gated_family_is_expressed_and_as_the_oracle(void **state)
{
    (void)state;
    check_families(gated, COUNT_OF(gated), 2000);
}

/* t2t's gamma, Flamingo's gate and LayerScale may start at 0, which is a number and no default: the branch is gone, the residual is left. */
static void a_learned_scale_of_zero_leaves_the_residual(void **state)
{
    (void)state;
    for (int scale = SCALE_ONE; scale < SCALE_CASES; scale++) {
        layer_case_t is = {.name = "scale of 0", ACT(GELU), BIASED, PRE(LN(1e-5f)), .branch_scale = (scale_case_t)scale, .d_model = 16,
                           .d_ff = 32, .seed = 3000};
        test_layer_t test;
        test_layer_describe(&test, &is);
        memset(test_layer_view(&test, FFN_ROLE_BRANCH_SCALE)->data, 0, (size_t)test.shape[FFN_ROLE_BRANCH_SCALE][0] * sizeof(float));
        test_layer_create(&test);
        layer_data_t data = layer_data_make(&test, 11, 1);
        layer_data_run(&test, NULL, &data);
        assert_same_output(&test, 11, data.x, data.y, "the residual alone");
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dense_family_is_expressed_and_as_the_oracle),
        cmocka_unit_test(every_gated_family_is_expressed_and_as_the_oracle),
        cmocka_unit_test(a_learned_scale_of_zero_leaves_the_residual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
