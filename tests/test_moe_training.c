/* SPDX-License-Identifier: MIT
 *
 * Training a mixture of experts: every tensor's gradient against central differences in float64, family by family; idle experts; threads, chunks, layouts of
 * gradients, dropout's streams, updates, memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/hostile.h"
#include "support/moe_train.h"
#include "support/random.h"
#include "support/test.h"

#define ROUTER(...) (&(const ffn_moe_router_options_t){.struct_size = sizeof(ffn_moe_router_options_t), __VA_ARGS__})
#define CAPACITY(...) (&(const ffn_moe_capacity_options_t){.struct_size = sizeof(ffn_moe_capacity_options_t), __VA_ARGS__})
#define SECOND(...) (&(const ffn_moe_second_options_t){.struct_size = sizeof(ffn_moe_second_options_t), __VA_ARGS__})

#define RMS {FFN_NORM_RMS, .weight = true}

static const moe_train_case_t families[] = {
    {.layer = {.name = "Mixtral", .d_model = 10, .d_ff = 7, .gated = true, .activation = FFN_ACTIVATION_SILU, .residual = FFN_RESIDUAL_INPUT, .norm = {RMS},
               .moe = {.experts = 5, .top_k = 2, .router = ROUTER(.normalise = FFN_MOE_NORMALISE_SUM)}}},
    {.layer = {.name = "gpt-oss", .d_model = 9, .d_ff = 9, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f,
               .gate_max = 1, .up_limit = 1, .up_offset = 1, .router_bias = true, .norm = {RMS}, .layout = LAYOUT_INTERLEAVED, .form = MOE_STACKS,
               .moe = {.experts = 4, .top_k = 2, .router = ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX)}}},
    {.layer = {.name = "DeepSeek-V3", .d_model = 10, .d_ff = 6, .d_shared = 9, .gated = true, .activation = FFN_ACTIVATION_SILU, .selection_bias = true,
               .residual = FFN_RESIDUAL_INPUT, .norm = {RMS},
               .moe = {.experts = 8, .top_k = 3, .router = ROUTER(.score = FFN_MOE_SCORE_SIGMOID, .groups = 4, .top_groups = 2,
                       .group_score = FFN_MOE_GROUP_TOP2_SUM, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f, .scale = 2.5f)}}},
    {.layer = {.name = "Llama-4", .d_model = 8, .d_ff = 11, .d_shared = 5, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU,
               .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 4, .top_k = 2,
                       .router = ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SIGMOID)}}},
    {.layer = {.name = "Qwen2-MoE", .d_model = 10, .d_ff = 6, .d_shared = 13, .shared_scale = true, .gated = true, .activation = FFN_ACTIVATION_SILU,
               .residual = FFN_RESIDUAL_INPUT, .norm = {RMS}, .form = MOE_PARTS, .moe = {.experts = 6, .top_k = 3}}},
    {.layer = {.name = "Gemma-4", .d_model = 10, .d_ff = 6, .gated = true, .activation = FFN_ACTIVATION_GELU_TANH, .router_norm_weight = true,
               .expert_scale = true, .norm = {RMS, {0}, RMS}, .residual = FFN_RESIDUAL_INPUT,
               .moe = {.flags = FFN_MOE_ROUTE_UNNORMED, .experts = 6, .top_k = 2, .router_norm = FFN_NORM_RMS,
                       .router = ROUTER(.normalise = FFN_MOE_NORMALISE_SUM)}}},
    {.layer = {.name = "LongCat", .d_model = 10, .d_ff = 6, .gated = true, .activation = FFN_ACTIVATION_SILU, .selection_bias = true, .norm = {RMS},
               .moe = {.experts = 4, .identity_experts = 3, .top_k = 3, .router = ROUTER(.scale = 6)}}},
    {.layer = {.name = "Nemotron-H", .d_model = 12, .d_ff = 9, .d_latent = 7, .d_shared = 8, .latent_biases = true, .activation = FFN_ACTIVATION_RELU2,
               .residual = FFN_RESIDUAL_INPUT, .norm = {RMS},
               .moe = {.experts = 6, .identity_experts = 1, .top_k = 3, .router = ROUTER(.score = FFN_MOE_SCORE_SIGMOID,
                       .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f)}}},
    {.layer = {.name = "JetMoE, post-norm", .d_model = 10, .d_ff = 6, .d_out = 10, .gated = true, .activation = FFN_ACTIVATION_SILU, .combine_bias = true,
               .biases = BIAS_DOWN, .residual = FFN_RESIDUAL_EXTERNAL, .branch_factor = 0.5f, .router_norm_weight = true,
               .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, true, 0.0625f, 0}, {FFN_NORM_LAYER, true, true, 0, 0},
                        {FFN_NORM_LAYER, true, true, 0, 1}},
               .moe = {.experts = 5, .top_k = 2, .router_norm = FFN_NORM_LAYER,
                       .router = ROUTER(.score = FFN_MOE_SCORE_NONE, .weight = FFN_MOE_WEIGHT_SOFTMAX)}}},
    {.layer = {.name = "Switch", .d_model = 8, .d_ff = 12, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT, .norm = {RMS},
               .moe = {.experts = 4, .top_k = 1, .capacity = CAPACITY(.factor = 1, .minimum = 1)}}},
    {.layer = {.name = "GShard", .d_model = 8, .d_ff = 12, .activation = FFN_ACTIVATION_GELU, .norm = {RMS},
               .moe = {.experts = 4, .top_k = 2, .router = ROUTER(.normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-9f),
                       .capacity = CAPACITY(.capacity = 3, .group_tokens = 6)}}, .drops_after = true},
    {.layer = {.name = "NLLB", .d_model = 8, .d_ff = 12, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_RELU, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}},
               .moe = {.flags = FFN_MOE_NORMALISE_LAST, .experts = 4, .top_k = 2, .router = ROUTER(.normalise = FFN_MOE_NORMALISE_SUM,
                       .eps_least = 1.1920929e-7f), .second = SECOND(.policy = FFN_MOE_SECOND_THRESHOLD, .threshold = 0.2f),
                       .capacity = CAPACITY(.capacity = 5)}}},
    {.layer = {.name = "V-MoE, experts choose", .d_model = 8, .d_ff = 9, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_GELU, .norm = {RMS},
               .moe = {.choose = FFN_MOE_CHOOSE_BY_EXPERTS, .experts = 4, .top_k = 4, .capacity = CAPACITY(.capacity = 4)}}},
    {.layer = {.name = "PhiMoE", .d_model = 8, .d_ff = 9, .gated = true, .activation = FFN_ACTIVATION_SILU, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}},
               .residual = FFN_RESIDUAL_NORMED, .moe = {.choose = FFN_MOE_CHOOSE_SPARSE_MIXER, .jitter_eps = 0.4f, .experts = 5, .top_k = 2}}},
    {.layer = {.name = "DeepSeek-V4", .d_model = 8, .d_ff = 9, .d_shared = 6, .gated = true, .activation = FFN_ACTIVATION_SILU, .gate_max = 0.5f,
               .up_limit = 0.5f, .norm = {RMS}, .moe = {.flags = FFN_MOE_SHARED_UNCLAMPED, .experts = 6, .top_k = 2,
               .router = ROUTER(.score = FFN_MOE_SCORE_SQRT_SOFTPLUS, .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f, .scale = 1.5f)}}},
    {.layer = {.name = "hash", .d_model = 8, .d_ff = 9, .gated = true, .activation = FFN_ACTIVATION_SILU, .norm = {RMS},
               .moe = {.experts = 5, .top_k = 2, .router = ROUTER(.flags = FFN_MOE_GIVEN_IDS, .score = FFN_MOE_SCORE_SQRT_SOFTPLUS,
                       .normalise = FFN_MOE_NORMALISE_SUM, .eps_added = 1e-20f)}}, .given_ids = true},
    {.layer = {.name = "xielu, padding", .d_model = 8, .d_ff = 9, .d_shared = 4, .activation = FFN_ACTIVATION_XIELU, .norm = {RMS},
               .residual = FFN_RESIDUAL_INPUT, .moe = {.experts = 5, .top_k = 2}}, .masked = true},
    {.layer = {.name = "given weights", .d_model = 8, .d_ff = 9, .d_out = 6, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU,
               .no_router = true, .form = MOE_BACKWARDS, .moe = {.experts = 5, .top_k = 3}}, .given = true},
    {.layer = {.name = "given weights on the input", .d_model = 8, .d_ff = 9, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_GELU,
               .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 5, .identity_experts = 1, .top_k = 2}}, .given = true},
};

static moe_train_case_t case_of(int64_t i, int64_t length, uint32_t tape_flags, bool drops)
{
    moe_train_case_t is = families[i];
    is.layer.seed = (uint64_t)i + 10;
    is.batch = 2, is.length = length, is.tape_flags = tape_flags;
    if (drops)
        is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 77, .step = 5, .layer = 3, .first_row = INT64_C(5000000000), .first_sequence = 9,
                                     .p = {0.2f, 0.15f, 0.1f, 0.2f, 0.3f}};
    return is;
}

static void every_family_has_its_gradients(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i++)
        for (int variant = 0; variant < 4; variant++) {
            const moe_train_case_t is = case_of(i, 6, variant & 1 ? FFN_TAPE_RECOMPUTE : 0, variant >= 2);
            moe_train_t train;
            if (test_quick() && variant != i % 4) continue;
            moe_train_make(&train, &is);
            moe_train_step(&train, NULL);
            assert_moe_trained(&train);
            moe_train_free(&train);
        }
}

/* ---------------------------------------------------------------------- Idle */

static bool is_experts(int role)
{
    return (role >= FFN_ROLE_UP_WEIGHT && role <= FFN_ROLE_DOWN_BIAS) || role == FFN_ROLE_NORM_MID_WEIGHT || role == FFN_ROLE_NORM_MID_BIAS;
}

/* Of 40 experts and 4 tokens most are idle. Written over NaN, and added to what is there. */
static void an_idle_expert_has_gradients_of_exactly_0(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= FFN_BACKWARD_ACCUMULATE; flags++) {
        moe_train_case_t is = case_of(1, 2, 0, false);
        is.layer.moe.experts = 40;
        moe_train_t train;
        ffn_tape_t *tape;
        int64_t idle = 0;
        moe_train_make(&train, &is);
        assert_ok(ffn_tape_create(NULL, &tape));
        assert_ok(moe_train_forward(&train, NULL, tape));
        for (int role = 0; flags && role < ROLES; role++)
            for (int64_t i = 0; train.gradient[role] && i < moe_train_elements(&train, role); i++) train.gradient[role][i] = 0.75f;
        assert_ok(moe_train_backward(&train, NULL, tape, flags));
        for (int64_t e = 0; e < 40; e++) {
            if (train.counts[e]) continue;
            idle++;
            for (int role = 0; role < ROLES; role++) {
                const int64_t n = train.gradient[role] ? moe_train_elements(&train, role) / 40 : 0;
                for (int64_t i = 0; is_experts(role) && i < n; i++) assert_true(train.gradient[role][e * n + i] == (flags ? 0.75f : 0));
            }
        }
        assert_true(idle >= 32);
        ffn_tape_free(tape);
        moe_train_free(&train);
    }
}

static void accumulating_adds_and_overwriting_does_not_read(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i += 3) {
        const moe_train_case_t is = case_of(i, 5, 0, false);
        moe_train_t once, twice;
        ffn_tape_t *tape;
        moe_train_make(&once, &is);
        moe_train_make(&twice, &is);
        moe_train_step(&once, NULL);
        assert_ok(ffn_tape_create(NULL, &tape));
        for (uint32_t pass = 0; pass < 2; pass++) {
            assert_ok(moe_train_forward(&twice, NULL, tape));
            assert_ok(moe_train_backward(&twice, NULL, tape, pass ? FFN_BACKWARD_ACCUMULATE : 0));
        }
        for (int role = 0; role < ROLES; role++)
            for (int64_t e = 0; once.gradient[role] && e < moe_train_elements(&once, role); e++)
                assert_near((double)twice.gradient[role][e], 2 * (double)once.gradient[role][e],
                            1e-5 * largest_magnitude(once.gradient[role], moe_train_elements(&once, role)));
        ffn_tape_free(tape);
        moe_train_free(&once);
        moe_train_free(&twice);
    }
}

/* ------------------------------------------------------------- Threads and chunks */

static ffn_context_t *context_of(uint32_t threads, uint64_t scratch_limit)
{
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .scratch_limit = scratch_limit};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t cases[] = {2, 4, 5, 7};
    for (int64_t c = 0; c < COUNT_OF(cases); c++)
        for (uint32_t flags = 0; flags <= FFN_TAPE_RECOMPUTE; flags++) {
            moe_train_case_t is = case_of(cases[c], 150, flags, true);
            moe_train_t expected;
            is.layer.d_model = 40, is.layer.d_ff = 30; /* work for more than one thread */
            moe_train_make(&expected, &is);
            moe_train_step(&expected, NULL);
            for (uint32_t threads = 1; threads <= 7; threads += test_quick() ? 3 : 1) {
                ffn_context_t *context = context_of(threads, 0);
                moe_train_t train;
                moe_train_make(&train, &is);
                moe_train_step(&train, context);
                assert_same_moe_training(&expected, &train, "threads");
                moe_train_free(&train);
                ffn_context_free(context);
            }
            moe_train_free(&expected);
        }
}

static void recomputing_gives_the_bits_of_keeping(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i++) {
        moe_train_case_t is = case_of(i, 20, 0, true);
        moe_train_t kept, recomputed;
        moe_train_make(&kept, &is);
        moe_train_step(&kept, NULL);
        is.tape_flags = FFN_TAPE_RECOMPUTE;
        moe_train_make(&recomputed, &is);
        assert_ok(moe_train_forward(&recomputed, NULL, NULL));
        assert_same_bits(kept.y, recomputed.y, kept.tokens * kept.test.is.d_out, "without a tape");
        moe_train_step(&recomputed, NULL);
        assert_same_moe_training(&kept, &recomputed, is.layer.name);
        moe_train_free(&kept);
        moe_train_free(&recomputed);
    }
}

/* Chunks of a few tokens, and blocks of an expert's rows: more than 512 of them. */
static void chunks_and_blocks_add_up(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i++) {
        moe_train_case_t is = case_of(i, 9, i % 2 ? FFN_TAPE_RECOMPUTE : 0, i % 3 == 0);
        moe_train_t train;
        if (test_quick() && i % 5) continue;
        is.layer.moe.chunk_bytes = 3000;
        moe_train_make(&train, &is);
        moe_train_step(&train, NULL);
        assert_moe_trained(&train);
        moe_train_free(&train);
    }
    if (test_quick()) return;
    moe_train_case_t is = case_of(4, 261, 0, true);
    moe_train_t train;
    is.layer.moe.experts = 2, is.layer.moe.top_k = 2;
    moe_train_make(&train, &is);
    moe_train_step(&train, NULL);
    assert_moe_trained(&train);
    moe_train_free(&train);
}

static void a_limit_of_scratch_memory_makes_chunks_smaller(void **state)
{
    (void)state;
    moe_train_case_t is = case_of(2, 60, FFN_TAPE_RECOMPUTE, false);
    ffn_context_t *tight = context_of(1, 60000), *none = context_of(1, 2000);
    ffn_context_info_t info = {.struct_size = sizeof info};
    moe_train_t train;
    ffn_tape_t *tape;
    moe_train_make(&train, &is);
    moe_train_step(&train, tight);
    assert_moe_trained(&train);
    assert_ok(ffn_context_info(tight, &info));
    assert_true(info.scratch_bytes <= 60000);
    assert_ok(ffn_tape_create(NULL, &tape));
    assert_ok(moe_train_forward(&train, NULL, tape));
    assert_refused(moe_train_backward(&train, none, tape, 0), FFN_NO_MEMORY, "scratch_limit", "limit");
    assert_ok(moe_train_backward(&train, NULL, tape, 0)); /* the tape is as it was */
    assert_moe_trained(&train);
    ffn_tape_free(tape);
    ffn_context_free(tight);
    ffn_context_free(none);
    moe_train_free(&train);
}

/* --------------------------------------------------------- Where gradients go */

/* One tensor per expert, last expert first, every matrix with gaps between its numbers, which stay as they are. */
static void gradients_go_into_single_tensors_with_gaps(void **state)
{
    (void)state;
    const moe_train_case_t is = case_of(1, 6, 0, false);
    moe_train_t expected, train;
    ffn_tape_t *tape;
    ffn_tensor_t views[64];
    float *memory[64];
    uint64_t count = 0;
    moe_train_make(&expected, &is);
    moe_train_make(&train, &is);
    moe_train_step(&expected, NULL);
    for (int role = 0; role < ROLES; role++) {
        const int64_t *shape = train.test.shape[role], rows = shape[0], columns = shape[1] ? shape[1] : 1;
        const int64_t experts = is_experts(role) ? train.test.experts : 1;
        for (int64_t e = experts - 1; train.gradient[role] && e >= 0; e--) {
            memory[count] = test_alloc((size_t)(rows * columns * 3 + rows) * sizeof(float));
            for (int64_t i = 0; i < rows * columns * 3 + rows; i++) memory[count][i] = 42;
            views[count] = (ffn_tensor_t){.role = (uint32_t)role, .expert = (uint32_t)e, .ndim = shape[1] ? 2 : 1, .data = memory[count],
                                          .shape = {rows, shape[1]}, .stride = {4 * (3 * columns + 1), shape[1] ? 12 : 0}};
            count++;
        }
    }
    memcpy(train.views, views, sizeof views);
    train.view_count = count;
    assert_ok(ffn_tape_create(NULL, &tape));
    assert_ok(moe_train_forward(&train, NULL, tape));
    assert_ok(moe_train_backward(&train, NULL, tape, 0));
    for (uint64_t v = 0; v < count; v++) {
        const int64_t *shape = views[v].shape, columns = shape[1] ? shape[1] : 1, row = 3 * columns + 1;
        const float *right = expected.gradient[views[v].role] + views[v].expert * shape[0] * columns;
        const double largest = largest_magnitude(expected.gradient[views[v].role], moe_train_elements(&expected, (int)views[v].role));
        for (int64_t i = 0; i < shape[0] * row; i++) {
            const int64_t c = i % row;
            if (c % 3 == 0 && c / 3 < columns) assert_near((double)memory[v][i], (double)right[i / row * columns + c / 3], 1e-6 * largest);
            else assert_true(memory[v][i] == 42);
        }
        free(memory[v]);
    }
    ffn_tape_free(tape);
    moe_train_free(&expected);
    moe_train_free(&train);
}

static void any_subset_of_gradients_has_the_same_bits(void **state)
{
    (void)state;
    const moe_train_case_t is = case_of(7, 6, FFN_TAPE_RECOMPUTE, true);
    moe_train_t expected, train;
    ffn_tape_t *tape;
    moe_train_make(&expected, &is);
    moe_train_make(&train, &is);
    moe_train_step(&expected, NULL);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (uint64_t v = 0; v <= expected.view_count; v++) {
        const ffn_moe_backward_t moe = {.struct_size = sizeof moe, .d_logits = train.d_logits, .d_scores = train.d_scores};
        const ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = train.d_y, .d_x = v % 2 ? train.d_x : NULL,
                                         .gradients = &train.views[v], .gradient_count = v < expected.view_count, .moe = &moe};
        assert_ok(moe_train_forward(&train, NULL, tape));
        assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
        if (v < expected.view_count)
            assert_same_bits(expected.gradient[expected.views[v].role], train.gradient[expected.views[v].role],
                             moe_train_elements(&train, (int)expected.views[v].role), "one gradient");
        if (v % 2) assert_same_bits(expected.d_x, train.d_x, train.tokens * is.layer.d_model, "d_x");
    }
    ffn_tape_free(tape);
    moe_train_free(&expected);
    moe_train_free(&train);
}

static void no_tokens_give_zero_gradients(void **state)
{
    (void)state;
    const moe_train_case_t is = case_of(4, 3, 0, false);
    moe_train_t train;
    ffn_tape_t *tape;
    moe_train_make(&train, &is);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (uint32_t flags = FFN_BACKWARD_ACCUMULATE + 1; flags-- > 0;) {
        const ffn_run_t run = {.struct_size = sizeof run, .tape = tape};
        const ffn_backward_t backward = {.struct_size = sizeof backward, .flags = flags, .tape = tape, .gradients = train.views,
                                         .gradient_count = train.view_count};
        assert_ok(ffn_layer_run(train.test.layer, NULL, &run));
        assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
        for (int role = 0; role < ROLES; role++)
            for (int64_t i = 0; train.gradient[role] && i < moe_train_elements(&train, role); i++)
                assert_true(flags ? isnan(train.gradient[role][i]) : train.gradient[role][i] == 0);
    }
    ffn_tape_free(tape);
    moe_train_free(&train);
}

/* ---------------------------------------------------------------------- Updates */

static void an_updated_mixture_is_one_made_with_the_new_values(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i += 2) {
        moe_train_case_t is = case_of(i, 5, 0, true), other = is;
        moe_train_t train, target;
        other.layer.seed = 99, other.layer.form = MOE_STACKS, other.layer.layout = LAYOUT_IN_INTERLEAVED, other.layer.down_layout = LAYOUT_IN_OUT;
        moe_train_make(&train, &is);
        moe_train_make(&target, &other);
        memcpy(train.x, target.x, (size_t)(train.tokens * is.layer.d_model) * 4), memcpy(train.d_y, target.d_y, (size_t)(train.tokens * train.test.is.d_out) * 4);
        if (train.residual) memcpy(train.residual, target.residual, (size_t)(train.tokens * train.test.is.d_out) * 4);
        memcpy(train.d_scores, target.d_scores, (size_t)(train.tokens * train.test.choices) * 4);
        memcpy(train.d_logits, target.d_logits, (size_t)(train.tokens * train.test.choices) * 4);
        memcpy(train.ids, target.ids, (size_t)(train.tokens * train.top_k) * 4), memcpy(train.weights, target.weights, (size_t)(train.tokens * train.top_k) * 4);
        assert_ok(ffn_layer_update(train.test.layer, NULL, target.test.options.tensors, target.test.options.tensor_count));
        moe_train_step(&train, NULL);
        moe_train_step(&target, NULL);
        assert_same_moe_training(&target, &train, "updated");
        moe_train_free(&train);
        moe_train_free(&target);
    }
}

/* ----------------------------------------------------------------------- Memory */

static void a_reserved_context_and_tape_allocate_nothing(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(families); i++) {
        failing_allocator_t allocator;
        failing_allocator_init(&allocator);
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator.hook};
        const ffn_tape_options_t tape_options = {.struct_size = sizeof tape_options, .flags = i % 2 ? FFN_TAPE_RECOMPUTE : 0, .allocator = &allocator.hook};
        const moe_train_case_t is = case_of(i, 30, 0, true);
        ffn_context_t *context;
        ffn_tape_t *tape;
        moe_train_t train;
        moe_train_make(&train, &is);
        assert_ok(ffn_context_create(&options, &context));
        assert_ok(ffn_tape_create(&tape_options, &tape));
        failing_allocator_arm(&allocator, 1, true);
        assert_refused(moe_train_forward(&train, context, tape), FFN_NO_MEMORY, "cannot allocate", "scratch memory");
        failing_allocator_disarm(&allocator);
        assert_ok(ffn_context_reserve(context, train.test.layer, 60));
        failing_allocator_arm(&allocator, 1, true);
        assert_refused(moe_train_forward(&train, context, tape), FFN_NO_MEMORY, "cannot allocate|a tape", "tape");
        assert_true(isnan(train.y[0]));
        failing_allocator_disarm(&allocator);
        assert_ok(ffn_tape_reserve(tape, train.test.layer, 60));
        failing_allocator_arm(&allocator, 1, true);
        for (int step = 0; step < 2; step++) {
            assert_ok(moe_train_forward(&train, context, tape));
            assert_ok(moe_train_backward(&train, context, tape, 0));
        }
        failing_allocator_disarm(&allocator);
        ffn_context_free(context);
        assert_ok(moe_train_forward(&train, NULL, tape));
        assert_ok(ffn_context_create(&options, &context));
        failing_allocator_arm(&allocator, 1, false);
        assert_int_equal(moe_train_backward(&train, context, tape, 0), FFN_NO_MEMORY);
        failing_allocator_disarm(&allocator);
        assert_ok(moe_train_backward(&train, context, tape, 0));
        ffn_tape_free(tape);
        ffn_context_free(context);
        moe_train_free(&train);
        assert_int_equal(allocator.held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_its_gradients),
        cmocka_unit_test(an_idle_expert_has_gradients_of_exactly_0),
        cmocka_unit_test(accumulating_adds_and_overwriting_does_not_read),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(recomputing_gives_the_bits_of_keeping),
        cmocka_unit_test(chunks_and_blocks_add_up),
        cmocka_unit_test(a_limit_of_scratch_memory_makes_chunks_smaller),
        cmocka_unit_test(gradients_go_into_single_tensors_with_gaps),
        cmocka_unit_test(any_subset_of_gradients_has_the_same_bits),
        cmocka_unit_test(no_tokens_give_zero_gradients),
        cmocka_unit_test(an_updated_mixture_is_one_made_with_the_new_values),
        cmocka_unit_test(a_reserved_context_and_tape_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
