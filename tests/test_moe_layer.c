/* SPDX-License-Identifier: MIT
 *
 * A mixture of experts in the layer: what holds of every one, whatever its router's rule.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/hostile.h"
#include "support/moe_case.h"
#include "support/random.h"
#include "support/test.h"

/* Distinct ids, some slots of no expert, weights of either sign. */
static void choose_at_random(const test_moe_t *test, moe_data_t *data, uint64_t seed)
{
    rng_t rng = rng_make(seed);
    for (int64_t t = 0; t < data->tokens; t++) {
        int64_t start = rng_below(&rng, test->choices), step = 1;
        for (int64_t k = 0; k < data->top_k; k++) {
            const bool none = rng_below(&rng, 5) == 0;
            data->ids[t * data->top_k + k] = none ? FFN_MOE_NO_EXPERT : (int32_t)((start + k * step) % test->choices);
            data->weights[t * data->top_k + k] = none ? 0 : rng_uniform(&rng, -1, 1);
        }
    }
}

static const moe_case_t forms[] = {
    {.name = "dense", .d_model = 24, .d_ff = 40, .activation = FFN_ACTIVATION_RELU, .moe = {.experts = 5, .top_k = 2}},
    {.name = "gated with biases", .d_model = 33, .d_ff = 20, .d_out = 17, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU,
     .form = MOE_STACKS, .moe = {.experts = 4, .top_k = 3}},
    {.name = "norms, residual, scale", .d_model = 24, .d_ff = 40, .gated = true, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT,
     .norm = {{FFN_NORM_RMS, .weight = true}, {FFN_NORM_RMS, .weight = true}, {FFN_NORM_LAYER, .weight = true, .bias = true}, {.kind = FFN_NORM_RMS}},
     .branch_factor = 0.5f, .form = MOE_PARTS, .moe = {.experts = 7, .top_k = 4}},
    {.name = "shared", .d_model = 24, .d_ff = 12, .d_shared = 50, .shared_scale = true, .gated = true, .biases = BIAS_ALL,
     .activation = FFN_ACTIVATION_SILU, .residual = FFN_RESIDUAL_EXTERNAL, .form = MOE_BACKWARDS, .moe = {.experts = 6, .top_k = 2}},
    {.name = "latent and identity", .d_model = 40, .d_ff = 24, .d_latent = 16, .d_shared = 30, .latent_biases = true, .combine_bias = true,
     .activation = FFN_ACTIVATION_RELU2, .residual = FFN_RESIDUAL_NORMED, .norm = {{FFN_NORM_RMS, .weight = true}},
     .moe = {.experts = 6, .identity_experts = 3, .top_k = 4}},
    {.name = "weight on input", .d_model = 24, .d_ff = 40, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU, .d_shared = 8,
     .form = MOE_STACKS, .layout = LAYOUT_IN_GATE_UP, .down_layout = LAYOUT_IN_OUT,
     .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 5, .identity_experts = 1, .top_k = 2}},
    {.name = "clamped, shared not", .d_model = 24, .d_ff = 40, .gated = true, .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 0.7f,
     .up_limit = 0.6f, .up_offset = 1, .d_shared = 20, .layout = LAYOUT_INTERLEAVED, .form = MOE_STACKS,
     .moe = {.flags = FFN_MOE_SHARED_UNCLAMPED, .experts = 3, .top_k = 3}},
    {.name = "512 experts", .d_model = 9, .d_ff = 8, .activation = FFN_ACTIVATION_IDENTITY, .form = MOE_STACKS, .moe = {.experts = 512, .top_k = 32}},
    {.name = "768 choices, as LongCat-Flash", .d_model = 9, .d_ff = 8, .gated = true, .activation = FFN_ACTIVATION_SILU, .form = MOE_STACKS,
     .moe = {.experts = 512, .identity_experts = 256, .top_k = 12}},
};

static moe_case_t form_of(int64_t i)
{
    moe_case_t is = forms[i];
    is.no_router = true;
    is.seed = (uint64_t)i + 1;
    return is;
}

static void every_form_is_the_formula(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 7, 65, 200};
    for (int64_t i = 0; i < COUNT_OF(forms) - test_quick(); i++) {
        test_moe_t test;
        const moe_case_t is = form_of(i);
        test_moe_make(&test, &is);
        for (int64_t c = 0; c < COUNT_OF(counts); c++) {
            if (c > 2 && (i == COUNT_OF(forms) - 1 || test_quick())) continue;
            moe_data_t data = moe_data_make(&test, counts[c], is.seed);
            choose_at_random(&test, &data, is.seed + 1000);
            assert_ok(moe_data_run(&test, NULL, &data, true));
            assert_moe_as_given(&test, &data);
            moe_data_free(&data);
        }
        test_moe_free(&test);
    }
}

static ffn_context_t *context_of(uint32_t threads)
{
    ffn_context_t *context;
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

/* Any mixture: sizes, parts, forms, layouts, chunks and threads by chance. */
static moe_case_t random_case(rng_t *rng)
{
    moe_case_t is = {.name = "random", .no_router = true, .seed = rng_u32(rng)};
    is.d_model = 1 + rng_below(rng, 50), is.d_ff = 1 + rng_below(rng, 70);
    is.d_out = rng_below(rng, 3) ? is.d_model : 1 + rng_below(rng, 50);
    is.d_latent = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 40), is.latent_biases = is.d_latent && rng_below(rng, 2);
    is.d_shared = rng_below(rng, 2) ? 0 : 1 + rng_below(rng, 80), is.shared_scale = is.d_shared && rng_below(rng, 2);
    is.activation = (uint32_t[]){FFN_ACTIVATION_RELU, FFN_ACTIVATION_SILU, FFN_ACTIVATION_GELU, FFN_ACTIVATION_IDENTITY}[rng_below(rng, 4)];
    is.gated = rng_below(rng, 3), is.biases = (uint32_t)rng_below(rng, 8), is.combine_bias = !rng_below(rng, 3);
    for (int slot = 0; slot < 4; slot++)
        if (!rng_below(rng, 3)) is.norm[slot] = (norm_case_t){.kind = (uint32_t)rng_below(rng, 3), .eps = 0.1f};
    for (int slot = 0; slot < 4; slot++)
        if (is.norm[slot].kind == FFN_NORM_NONE) is.norm[slot].eps = 0;
    is.residual = (uint32_t[]){FFN_RESIDUAL_NONE, FFN_RESIDUAL_EXTERNAL, FFN_RESIDUAL_INPUT, FFN_RESIDUAL_NORMED}[rng_below(rng, is.d_out == is.d_model ? 4 : 2)];
    is.form = (moe_form_t)rng_below(rng, MOE_FORMS), is.layout = (layout_t)rng_below(rng, LAYOUTS), is.down_layout = (layout_t)rng_below(rng, 2);
    is.moe.experts = 1 + rng_below(rng, 12);
    if (is.d_latent || is.d_out == is.d_model) is.moe.identity_experts = rng_below(rng, 3);
    is.moe.top_k = 1 + rng_below(rng, is.moe.experts + is.moe.identity_experts);
    is.moe.flags = rng_below(rng, 3) ? 0 : FFN_MOE_WEIGHT_ON_INPUT;
    is.moe.chunk_bytes = rng_below(rng, 2) ? 0 : (uint64_t)(1 + rng_below(rng, 100000));
    return is;
}

static void random_mixtures_are_the_formula(void **state)
{
    (void)state;
    rng_t rng = rng_make(test_seed() + 12345);
    ffn_context_t *context[3] = {context_of(1), context_of(2), context_of(3)};
    for (int i = 0; i < (test_quick() ? 4 : 120); i++) {
        const moe_case_t is = random_case(&rng);
        test_moe_t test;
        test_moe_make(&test, &is);
        moe_data_t data = moe_data_make(&test, 1 + rng_below(&rng, 40), is.seed);
        choose_at_random(&test, &data, is.seed + 1);
        assert_ok(moe_data_run(&test, context[i % 3], &data, true));
        assert_moe_as_given(&test, &data);
        moe_data_free(&data);
        test_moe_free(&test);
    }
    for (int i = 0; i < 3; i++) ffn_context_free(context[i]);
}

/* ------------------------------------------------------------------ Threads */

static bool is_native(const test_moe_t *test)
{
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(test->layer, &info));
    return info.engine == FFN_ENGINE_NATIVE;
}

/* Large enough that the threads are worth waking: one item for all, many items, one expert that all tokens choose. */
static const moe_case_t large[] = {
    {.name = "shared and scaled", .d_model = 130, .d_ff = 200, .d_shared = 300, .shared_scale = true, .gated = true, .biases = BIAS_ALL,
     .norm = {{.kind = FFN_NORM_RMS}, {FFN_NORM_RMS, .weight = true}}, .activation = FFN_ACTIVATION_SILU, .moe = {.experts = 12, .top_k = 3}},
    {.name = "weight on input", .d_model = 200, .d_ff = 160, .gated = true, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT,
     .moe = {.flags = FFN_MOE_WEIGHT_ON_INPUT, .experts = 30, .top_k = 1}},
    {.name = "latent", .d_model = 300, .d_ff = 180, .d_latent = 120, .latent_biases = true, .activation = FFN_ACTIVATION_RELU2,
     .moe = {.experts = 9, .identity_experts = 2, .top_k = 5}},
};

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 3, 70, 260};
    for (int64_t i = 0; i < COUNT_OF(large); i++)
        for (int64_t c = 0; c < COUNT_OF(counts); c++) {
            moe_case_t is = large[i];
            is.seed = (uint64_t)(i + 11);
            if (test_quick() && (c % 2 || i)) continue;
            test_moe_t test;
            test_moe_make(&test, &is);
            moe_data_t data = moe_data_make(&test, counts[c], 3);
            float *expected = test_alloc((size_t)(counts[c] * test.is.d_out) * sizeof(float));
            int32_t *ids = test_alloc((size_t)(counts[c] * data.top_k) * sizeof *ids);
            for (uint32_t threads = 1; is_native(&test) && threads <= 7; threads += test_quick() ? 3 : 1) {
                ffn_context_t *context = context_of(threads);
                assert_ok(moe_data_run(&test, context, &data, false));
                if (threads == 1) memcpy(expected, data.y, (size_t)(counts[c] * test.is.d_out) * sizeof(float));
                if (threads == 1) memcpy(ids, data.ids, (size_t)(counts[c] * data.top_k) * sizeof *ids);
                assert_memory_equal(ids, data.ids, (size_t)(counts[c] * data.top_k) * sizeof *ids);
                assert_same_bits(expected, data.y, counts[c] * test.is.d_out, is.name);
                ffn_context_free(context);
            }
            free(expected);
            free(ids);
            moe_data_free(&data);
            test_moe_free(&test);
        }
}

/* 600 tokens that all choose expert 2 first, on three threads: blocks of one expert, beside idle ones. */
static void one_expert_may_take_all_tokens(void **state)
{
    (void)state;
    moe_case_t is = {.name = "one expert", .d_model = 64, .d_ff = 96, .gated = true, .activation = FFN_ACTIVATION_SILU, .no_router = true, .seed = 4,
                     .moe = {.experts = 4, .top_k = 1}};
    test_moe_t test;
    test_moe_make(&test, &is);
    ffn_context_t *context = context_of(3);
    for (int64_t tokens = 40; tokens <= (test_quick() ? 40 : 600); tokens += 280) {
        moe_data_t data = moe_data_make(&test, tokens, 5);
        for (int64_t t = 0; t < tokens; t++) data.ids[t] = 2, data.weights[t] = 0.5f;
        assert_ok(moe_data_run(&test, context, &data, true));
        assert_moe_as_given(&test, &data);
        assert_int_equal(data.counts[2], tokens);
        assert_int_equal(data.counts[0] + data.counts[1] + data.counts[3], 0);
        assert_int_equal(data.statistics.idle_experts, 3);
        moe_data_free(&data);
    }
    ffn_context_free(context);
    test_moe_free(&test);
}

/* ------------------------------------------------------------- Other tokens */

/* The bits of a token alone are those of the token among others; a NaN among them stays with its token. */
static void a_token_does_not_depend_on_the_others(void **state)
{
    (void)state;
    enum { TOKENS = 70 };
    for (int64_t i = 0; i < (test_quick() ? 1 : COUNT_OF(large)); i++) {
        moe_case_t is = large[i];
        is.seed = (uint64_t)(i + 21);
        test_moe_t test;
        test_moe_make(&test, &is);
        moe_data_t data = moe_data_make(&test, TOKENS, 6);
        for (int64_t k = 0; k < is.d_model; k++) data.x[33 * is.d_model + k] = NAN;
        assert_ok(moe_data_run(&test, NULL, &data, false));
        for (int64_t k = 0; k < test.is.d_out; k++) assert_true(isnan(data.y[33 * test.is.d_out + k]));
        for (int64_t t = 0; t < TOKENS; t += 11) {
            float *one = test_alloc((size_t)test.is.d_out * sizeof *one);
            assert_ok(ffn_layer_forward(test.layer, NULL, 1, data.x + t * is.d_model, 0, one, 0));
            if (t != 33 && is_native(&test)) assert_same_bits(one, data.y + t * test.is.d_out, test.is.d_out, is.name);
            if (t != 33)
                for (int64_t k = 0; k < test.is.d_out; k++) assert_true(isfinite(data.y[t * test.is.d_out + k]));
            free(one);
        }
        moe_data_free(&data);
        test_moe_free(&test);
    }
}

/* Small chunks, in a context with a limit, and whole: the same bits. */
static void chunks_change_no_bit(void **state)
{
    (void)state;
    const int64_t tokens = test_quick() ? 12 : 90;
    moe_case_t is = large[0];
    is.seed = 31;
    float *expected = NULL;
    for (uint64_t bytes = 1; bytes <= 1 << 20; bytes *= 1 << 10) {
        test_moe_t test;
        is.moe.chunk_bytes = bytes;
        test_moe_make(&test, &is);
        moe_data_t data = moe_data_make(&test, tokens, 7);
        assert_ok(moe_data_run(&test, NULL, &data, false));
        if (!expected) {
            expected = test_alloc((size_t)(tokens * test.is.d_out) * sizeof(float));
            memcpy(expected, data.y, (size_t)(tokens * test.is.d_out) * sizeof(float));
        }
        if (is_native(&test)) assert_same_bits(expected, data.y, tokens * test.is.d_out, "chunks");
        moe_data_free(&data);
        test_moe_free(&test);
    }
    free(expected);
}

/* Scratch memory stays within the context's limit, and one token too large for it is refused. */
static void the_limit_of_scratch_memory_is_kept(void **state)
{
    (void)state;
    const int64_t tokens = test_quick() ? 15 : 200;
    moe_case_t is = large[0];
    is.seed = 41;
    test_moe_t test;
    test_moe_make(&test, &is);
    moe_data_t data = moe_data_make(&test, tokens, 8);
    for (uint64_t limit = 1000; limit < 100000000; limit *= 3) {
        ffn_context_t *context;
        ffn_context_info_t info = {.struct_size = sizeof info};
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2, .scratch_limit = limit};
        assert_ok(ffn_context_create(&options, &context));
        memset(data.y, 0xff, (size_t)(tokens * test.is.d_out) * sizeof(float));
        ffn_status_t status = moe_data_run(&test, context, &data, false);
        if (status) assert_refused(status, FFN_NO_MEMORY, "scratch_limit|must be at least", "limit");
        else assert_true(isfinite(data.y[tokens * test.is.d_out - 1]));
        assert_ok(ffn_context_info(context, &info));
        assert_true(info.scratch_bytes <= limit);
        if (limit > 20000000) assert_ok(status);
        ffn_context_free(context);
    }
    moe_data_free(&data);
    test_moe_free(&test);
}

/* A run after a reservation, of as many tokens or fewer, allocates nothing. */
static void a_reservation_covers_the_run(void **state)
{
    (void)state;
    for (int64_t i = 0; i < (test_quick() ? 1 : COUNT_OF(large)); i++)
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            moe_case_t is = large[i];
            is.seed = 51;
            test_moe_t test;
            test_moe_make(&test, &is);
            ffn_context_t *context = context_of(threads);
            ffn_context_info_t before = {.struct_size = sizeof before}, after = before;
            assert_ok(ffn_context_reserve(context, test.layer, 150));
            assert_ok(ffn_context_info(context, &before));
            for (int64_t tokens = 1; tokens <= 150; tokens += test_quick() ? 149 : 37) {
                moe_data_t data = moe_data_make(&test, tokens, 9);
                assert_ok(moe_data_run(&test, context, &data, false));
                moe_data_free(&data);
            }
            assert_ok(ffn_context_info(context, &after));
            assert_int_equal(before.scratch_bytes, after.scratch_bytes);
            assert_ok(ffn_context_reserve(context, test.layer, INT64_MAX));
            ffn_context_free(context);
            test_moe_free(&test);
        }
}

/* --------------------------------------------------------------- Properties */

/* k = E, all weights given: the sum of the experts' dense layers. Which has the oracle's own shape: here the layers are the library's. */
static void all_experts_are_the_dense_mixture(void **state)
{
    (void)state;
    enum { TOKENS = 9, E = 5 };
    moe_case_t is = {.name = "dense mixture", .d_model = 20, .d_ff = 30, .gated = true, .activation = FFN_ACTIVATION_SILU, .seed = 61,
                     .moe = {.experts = E, .top_k = E}};
    test_moe_t test;
    test_moe_make(&test, &is);
    moe_data_t data = moe_data_make(&test, TOKENS, 10);
    double *sum = test_alloc(TOKENS * 20 * sizeof *sum), *size = test_alloc(TOKENS * 20 * sizeof *size);
    float *y = test_alloc(TOKENS * 20 * sizeof *y);
    assert_ok(moe_data_run(&test, NULL, &data, false)); /* softmax over all experts */
    for (int i = 0; i < TOKENS * 20; i++) sum[i] = size[i] = 0;
    for (int e = 0; e < E; e++) {
        ffn_tensor_t tensors[3] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = test_moe_plain(&test, 1, e), .shape = {30, 20}},
                                   {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = test_moe_plain(&test, 3, e), .shape = {30, 20}},
                                   {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = test_moe_plain(&test, 5, e), .shape = {20, 30}}};
        const ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_SILU, .tensors = tensors, .tensor_count = 3};
        ffn_layer_t *layer;
        assert_ok(ffn_layer_create(NULL, &options, &layer));
        assert_ok(ffn_layer_forward(layer, NULL, TOKENS, data.x, 0, y, 0));
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < 20; i++) {
                sum[t * 20 + i] += (double)data.scores[t * E + e] * (double)y[t * 20 + i];
                size[t * 20 + i] += fabs((double)data.scores[t * E + e] * (double)y[t * 20 + i]);
            }
        ffn_layer_free(layer);
    }
    /* roundings of E products and sums; the blas engine's own results may differ by their bound, some more */
    for (int i = 0; i < TOKENS * 20; i++) assert_near((double)data.y[i], sum[i], (2 * E + 40) * 0x1p-24 * size[i]);
    free(sum);
    free(size);
    free(y);
    moe_data_free(&data);
    test_moe_free(&test);
}

/* Experts in another order, with the router's rows in that order: the same outputs. To the bit, with sigmoid scores, whose sum is that of the chosen in
 * their order; a softmax sums all of them, and its last bits depend on the order. */
static void permuting_experts_changes_nothing_else(void **state)
{
    (void)state;
    enum { TOKENS = 40, E = 7 };
    static const ffn_moe_router_options_t sigmoid = {.struct_size = sizeof sigmoid, .score = FFN_MOE_SCORE_SIGMOID,
                                                     .normalise = FFN_MOE_NORMALISE_SUM};
    moe_case_t is = {.name = "permuted", .d_model = 24, .d_ff = 32, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU, .seed = 71,
                     .router_bias = true, .moe = {.experts = E, .top_k = 3, .router = &sigmoid}};
    test_moe_t plain, permuted;
    test_moe_make(&plain, &is);
    test_moe_describe(&permuted, &is);
    for (int64_t i = 0; i < (int64_t)permuted.options.tensor_count; i++) {
        ffn_tensor_t *tensor = &permuted.tensors[i];
        if (tensor->role <= FFN_ROLE_DOWN_BIAS) tensor->expert = (tensor->expert * 3 + 2) % E;
        if (tensor->role < FFN_ROLE_ROUTER_WEIGHT) continue;
        const int64_t columns = tensor->role == FFN_ROLE_ROUTER_WEIGHT ? 24 : 1;
        for (int64_t e = 0; e < E; e++)
            memcpy((float *)tensor->data + (e * 3 + 2) % E * columns, permuted.plain[tensor->role] + e * columns, (size_t)columns * sizeof(float));
    }
    test_moe_create(&permuted);
    moe_data_t a = moe_data_make(&plain, TOKENS, 11), b = moe_data_make(&permuted, TOKENS, 11);
    assert_ok(moe_data_run(&plain, NULL, &a, false));
    assert_ok(moe_data_run(&permuted, NULL, &b, false));
    for (int64_t slot = 0; slot < TOKENS * 3; slot++) assert_int_equal(b.ids[slot], (a.ids[slot] * 3 + 2) % E);
    for (int64_t e = 0; e < E; e++) assert_int_equal(b.counts[(e * 3 + 2) % E], a.counts[e]);
    assert_same_bits(a.weights, b.weights, TOKENS * 3, "weights");
    if (is_native(&plain)) assert_same_bits(a.y, b.y, TOKENS * 24, "permuted");
    for (int64_t i = 0; i < TOKENS * 24; i++) assert_near((double)b.y[i], (double)a.y[i], 1e-5 * largest_magnitude(a.y, TOKENS * 24));
    moe_data_free(&a);
    moe_data_free(&b);
    test_moe_free(&plain);
    test_moe_free(&permuted);
}

/* ------------------------------------------------------- Faults of other libraries */

/* All tokens to one expert, y full of NaN before; no tokens, and no pointers. */
static void idle_experts_and_no_tokens_leave_nothing_undone(void **state)
{
    (void)state;
    moe_case_t is = {.name = "idle", .d_model = 20, .d_ff = 20, .activation = FFN_ACTIVATION_RELU, .seed = 81, .router_bias = true,
                     .moe = {.experts = 4, .top_k = 1}};
    test_moe_t test;
    test_moe_describe(&test, &is);
    for (int64_t i = 0; i < (int64_t)test.options.tensor_count; i++)
        if (test.tensors[i].role == FFN_ROLE_ROUTER_BIAS) ((float *)test.tensors[i].data)[2] = 1000;
    test_moe_create(&test);
    moe_data_t data = moe_data_make(&test, 30, 12);
    assert_ok(moe_data_run(&test, NULL, &data, false));
    for (int64_t t = 0; t < 30; t++) assert_int_equal(data.ids[t], 2);
    for (int64_t i = 0; i < 30 * 20; i++) assert_true(isfinite(data.y[i]));
    assert_ok(ffn_layer_forward(test.layer, NULL, 0, NULL, 0, NULL, 0));
    int64_t counts[4] = {7, 7, 7, 7};
    ffn_moe_run_t moe = {.struct_size = sizeof moe, .counts = counts};
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 3, .length = 0, .moe = &moe};
    assert_ok(ffn_layer_run(test.layer, NULL, &run));
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 0);
    moe_data_free(&data);
    test_moe_free(&test);
}

/* Rows of logits that are no numbers: distinct valid ids, NaN for that token alone. Equal logits: the lowest ids. */
static void logits_that_are_no_numbers_stay_with_their_token(void **state)
{
    (void)state;
    static const float rows[][2] = {{NAN, 1}, {INFINITY, 1}, {-INFINITY, -INFINITY}, {NAN, NAN}, {0, 0}, {1, 0}};
    for (int64_t top_k = 1; top_k <= 8; top_k += 7) {
        moe_case_t is = {.name = "no numbers", .d_model = 2, .d_ff = 6, .activation = FFN_ACTIVATION_IDENTITY, .seed = 91,
                         .moe = {.experts = 8, .top_k = top_k}};
        test_moe_t test;
        test_moe_make(&test, &is);
        moe_data_t data = moe_data_make(&test, COUNT_OF(rows), 13);
        memcpy(data.x, rows, sizeof rows);
        assert_ok(moe_data_run(&test, NULL, &data, false));
        for (int64_t t = 0; t < COUNT_OF(rows); t++) {
            unsigned seen = 0;
            for (int64_t k = 0; k < top_k; k++) {
                const int32_t id = data.ids[t * top_k + k];
                assert_true(id >= 0 && id < 8 && !(seen >> id & 1));
                seen |= 1u << id;
                if (t == 4) assert_int_equal(id, k); /* all logits are 0 */
            }
            for (int64_t i = 0; i < 2; i++) assert_int_equal(isnan(data.y[2 * t + i]) != 0, t < 4);
        }
        moe_data_free(&data);
        test_moe_free(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_the_formula),
        cmocka_unit_test(random_mixtures_are_the_formula),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(one_expert_may_take_all_tokens),
        cmocka_unit_test(a_token_does_not_depend_on_the_others),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(the_limit_of_scratch_memory_is_kept),
        cmocka_unit_test(a_reservation_covers_the_run),
        cmocka_unit_test(all_experts_are_the_dense_mixture),
        cmocka_unit_test(permuting_experts_changes_nothing_else),
        cmocka_unit_test(idle_experts_and_no_tokens_leave_nothing_undone),
        cmocka_unit_test(logits_that_are_no_numbers_stay_with_their_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
