/* SPDX-License-Identifier: MIT
 *
 * Bad input for mixtures of experts: each fault has its status and its sentence, and nothing is made or written. And memory that fails.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/failing_allocator.h"
#include "support/hostile.h"
#include "support/moe_case.h"
#include "support/test.h"

enum { TOKENS = 4, E = 5 };

static const moe_case_t plain = {.name = "plain", .d_model = 6, .d_ff = 8, .d_shared = 4, .gated = true, .biases = BIAS_ALL, .router_bias = true,
                                 .activation = FFN_ACTIVATION_SILU, .residual = FFN_RESIDUAL_INPUT, .seed = 1, .moe = {.experts = E, .top_k = 2}};

/* ------------------------------------------------------------------- Options */

static const ffn_moe_router_options_t bad_router = {.struct_size = sizeof bad_router, .score = 9};
static const ffn_moe_router_options_t good_router = {.struct_size = sizeof good_router, .normalise = FFN_MOE_NORMALISE_SUM};
static const ffn_moe_router_options_t many_groups = {.struct_size = sizeof many_groups, .groups = 5, .top_groups = 1};
static const ffn_moe_router_options_t given_ids = {.struct_size = sizeof given_ids, .flags = FFN_MOE_GIVEN_IDS};
static const ffn_moe_capacity_options_t nan_capacity = {.struct_size = sizeof nan_capacity, .factor = NAN};
static const ffn_moe_capacity_options_t no_capacity = {.struct_size = sizeof no_capacity};
static const ffn_moe_capacity_options_t good_capacity = {.struct_size = sizeof good_capacity, .capacity = 3};
static const ffn_moe_second_options_t bad_second = {.struct_size = sizeof bad_second, .policy = 7};
static const ffn_moe_second_options_t streaming = {.struct_size = sizeof streaming, .policy = FFN_MOE_SECOND_NONE, .stream = 3};
static const ffn_moe_second_options_t second = {.struct_size = sizeof second, .policy = FFN_MOE_SECOND_NONE};

typedef struct row {
    const char *words;
    patch_t patch[3];
} row_t;

#define SET(...) PATCH(ffn_moe_options_t, __VA_ARGS__)

static const row_t option_rows[] = {
    {"struct_size|ffn_moe_options_t|4", {SET(struct_size, 4)}},
    {"flags of the mixture|0x10", {SET(flags, 16)}},
    {"experts|-1|1 to 768", {SET(experts, -1)}},
    {"experts|769|768", {SET(experts, 769)}},
    {"expert of|must be 0 to 3", {SET(experts, 4)}},
    {"shape[0] of the router weight|5|6 (experts", {SET(experts, 6)}},
    {"identity_experts|-1", {SET(identity_experts, -1)}},
    {"identity_experts|764|763", {SET(identity_experts, 764)}},
    {"shape[0] of the router weight|5|7 (experts and identity experts)", {SET(identity_experts, 2)}},
    {"top_k|0|1 to 5", {SET(top_k, 0)}},
    {"top_k|6|1 to 5", {SET(top_k, 6)}},
    {"top_k|-3", {SET(top_k, -3)}},
    {"choose|3|0 to 2", {SET(choose, 3)}},
    {"jitter_eps|nan", {SET(jitter_eps, NAN), SET(choose, FFN_MOE_CHOOSE_SPARSE_MIXER)}},
    {"jitter_eps|0.5|SPARSE_MIXER", {SET(jitter_eps, 0.5f)}},
    {"top_k|3|2 for SparseMixer", {SET(top_k, 3), SET(choose, FFN_MOE_CHOOSE_SPARSE_MIXER)}},
    {"router is given|SparseMixer", {SET(router, &good_router), SET(choose, FFN_MOE_CHOOSE_SPARSE_MIXER)}},
    {"router_norm|3", {SET(router_norm, FFN_NORM_AFFINE)}},
    {"router_norm_eps|-1", {SET(router_norm_eps, -1), SET(router_norm, FFN_NORM_RMS)}},
    {"router_norm_eps|inf", {SET(router_norm_eps, INFINITY), SET(router_norm, FFN_NORM_RMS)}},
    {"router_norm_eps|FFN_NORM_NONE", {SET(router_norm_eps, 1e-5f)}},
    {"score|9", {SET(router, &bad_router)}},
    {"top_groups|1 experts|top_k is 2", {SET(router, &many_groups)}},
    {"policy|7", {SET(second, &bad_second)}},
    {"stream|the run's", {SET(second, &streaming)}},
    {"top_k|3|second choices", {SET(second, &second), SET(top_k, 3)}},
    {"factor|nan", {SET(capacity, &nan_capacity)}},
    {"factor|0|above 0", {SET(capacity, &no_capacity)}},
    {"capacity is NULL|BY_EXPERTS", {SET(choose, FFN_MOE_CHOOSE_BY_EXPERTS)}},
    {"top_k|2|5 (all experts)", {SET(choose, FFN_MOE_CHOOSE_BY_EXPERTS), SET(capacity, &good_capacity)}},
    {"GIVEN_IDS|nothing to choose", {SET(router, &given_ids), SET(choose, FFN_MOE_CHOOSE_BY_EXPERTS), SET(capacity, &good_capacity)}},
};

static void apply(void *object, const row_t *row)
{
    for (int i = 0; i < 3 && row->patch[i].text; i++) memcpy((char *)object + row->patch[i].offset, row->patch[i].value, row->patch[i].size);
}

static void assert_not_made(const ffn_layer_options_t *options, ffn_status_t status, const char *words, const char *what)
{
    ffn_layer_t *layer = NOWHERE;
    assert_refused(ffn_layer_create(NULL, options, &layer), status, words, what);
    assert_null(layer);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(option_rows); i++) {
        test_moe_t test;
        test_moe_describe(&test, &plain);
        apply(&test.is.moe, &option_rows[i]);
        assert_not_made(&test.options, FFN_INVALID, option_rows[i].words, option_rows[i].patch[0].text);
        test_moe_free(&test);
    }
}

/* ------------------------------------------------------------------- Tensors */

/* The view of a role, of that expert. */
static ffn_tensor_t *find(test_moe_t *test, uint32_t role, uint32_t expert)
{
    for (uint64_t i = 0; i < test->options.tensor_count; i++)
        if (test->tensors[i].role == role && test->tensors[i].expert == expert) return &test->tensors[i];
    fail_msg("role %u of expert %u is not there", role, expert);
    return NULL;
}

static void take_out(test_moe_t *test, ffn_tensor_t *tensor)
{
    *tensor = test->tensors[--test->options.tensor_count];
}

static void expert_tensors_must_be_complete_and_alike(void **state)
{
    (void)state;
    for (int fault = 0; fault < 12; fault++) {
        static const char *const words[] = {"the up weight of expert 3 is missing|4 of 5", "the down bias of expert 0 is missing",
                                            "the gate weight of expert 4 is missing", "the up weight of expert 2 is given twice",
                                            "the up weight of expert 2 is given twice", "shape[0] of the up weight of expert 1|7|8 (d_ff)",
                                            "shape[1] of the down weight of expert 4", "expert of the up weight is 5|0 to 4",
                                            "shape[0] of the up weight is 3 experts from expert 3 on|1 to 2", "shape[0] of the up weight is 0 experts",
                                            "expert of the router weight is 1", "ndim of the router weight is 3|2"};
        test_moe_t test;
        test_moe_describe(&test, &plain);
        ffn_tensor_t *up = find(&test, FFN_ROLE_UP_WEIGHT, 2);
        ffn_tensor_t stack = {.role = FFN_ROLE_UP_WEIGHT, .expert = 2, .ndim = 3, .data = up->data, .shape = {1, 8, 6}};
        switch (fault) {
        case 0: take_out(&test, find(&test, FFN_ROLE_UP_WEIGHT, 3)); break;
        case 1: take_out(&test, find(&test, FFN_ROLE_DOWN_BIAS, 0)); break;
        case 2: take_out(&test, find(&test, FFN_ROLE_GATE_WEIGHT, 4)); break;
        case 3: test.tensors[test.options.tensor_count++] = *up; break;
        case 4: test.tensors[test.options.tensor_count++] = stack; break;
        case 5: find(&test, FFN_ROLE_UP_WEIGHT, 1)->shape[0] = 7; break;
        case 6: find(&test, FFN_ROLE_DOWN_WEIGHT, 4)->shape[1] = 9; break;
        case 7: find(&test, FFN_ROLE_UP_WEIGHT, 4)->expert = 5; break;
        case 8: stack.expert = 3, stack.shape[0] = 3, test.tensors[test.options.tensor_count++] = stack; break;
        case 9: stack.shape[0] = 0, test.tensors[test.options.tensor_count++] = stack; break;
        case 10: find(&test, FFN_ROLE_ROUTER_WEIGHT, 0)->expert = 1; break;
        default: find(&test, FFN_ROLE_ROUTER_WEIGHT, 0)->ndim = 3;
        }
        assert_not_made(&test.options, FFN_INVALID, words[fault], words[fault]);
        test_moe_free(&test);
    }
}

static void tensors_need_their_companions(void **state)
{
    (void)state;
    static const struct {
        uint32_t role;
        uint32_t ndim;
        int64_t shape[2];
        const char *words;
    } rows[] = {
        {FFN_ROLE_ROUTER_NORM_WEIGHT, 1, {6}, "router's norm|FFN_NORM_NONE"},
        {FFN_ROLE_SHARED_DOWN_BIAS, 1, {7}, "shape[0] of the shared down bias|7|6"},
        {FFN_ROLE_SHARED_SCALE_WEIGHT, 2, {2, 6}, "shape[0] of the shared scale weight|2|1"},
        {FFN_ROLE_LATENT_IN_WEIGHT, 2, {3, 6}, "latent in weight|without|latent out weight"},
        {FFN_ROLE_LATENT_OUT_BIAS, 1, {6}, "latent out bias|without"},
        {FFN_ROLE_COMBINE_BIAS, 1, {5}, "shape[0] of the combine bias|5|6 (d_out)"},
    };
    static float room[64];
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        test_moe_t test;
        test_moe_describe(&test, &plain);
        for (uint64_t k = 0; k < test.options.tensor_count; k++)
            if (test.tensors[k].role == rows[i].role) take_out(&test, &test.tensors[k]);
        test.tensors[test.options.tensor_count++] = (ffn_tensor_t){.role = rows[i].role, .ndim = rows[i].ndim, .data = room,
                                                                   .shape = {rows[i].shape[0], rows[i].shape[1]}};
        assert_not_made(&test.options, FFN_INVALID, rows[i].words, rows[i].words);
        test_moe_free(&test);
    }
    test_moe_t test;
    test_moe_describe(&test, &plain);
    take_out(&test, find(&test, FFN_ROLE_ROUTER_WEIGHT, 0));
    assert_not_made(&test.options, FFN_INVALID, "router bias is given without the router weight", "no router");
    test.options.moe = NULL;
    assert_not_made(&test.options, FFN_INVALID, "no mixture|", "no moe");
    test_moe_free(&test);
    moe_case_t is = plain;
    is.d_out = 4, is.residual = FFN_RESIDUAL_NONE, is.moe.identity_experts = 1;
    test_moe_describe(&test, &is);
    assert_not_made(&test.options, FFN_INVALID, "d_out|4|6|identity", "identity");
    test_moe_free(&test);
}

/* Before experts are counted in it. */
static void lists_of_any_length_are_refused_unread(void **state)
{
    (void)state;
    test_moe_t test;
    test_moe_describe(&test, &plain);
    ffn_moe_options_t moe = *test.options.moe;
    moe.experts = 0;
    test.options.moe = &moe;
    const uint64_t count = test.options.tensor_count;
    test.options.tensor_count = UINT64_MAX;
    assert_not_made(&test.options, FFN_INVALID, "tensor_count is 18446744073709551615|each role once for each expert", "endless");
    test.options.tensor_count = count;
    test.options.tensors = NULL;
    assert_not_made(&test.options, FFN_INVALID, "tensors is NULL|tensor_count", "absent");
    test_moe_free(&test);
}

/* ---------------------------------------------------------------------- Runs */

static test_moe_t routed, unrouted, weighing;
static moe_data_t data;

static int32_t ids[TOKENS * 2], twice[TOKENS * 2] = {0, 1, 2, 2, 0, 1, 3, 4}, beyond[TOKENS * 2] = {0, 1, 2, 3, 0, 5, 3, 4};
static int32_t negative[TOKENS * 2] = {0, 1, -2, 3, 0, 1, 3, 4}, good[TOKENS * 2] = {0, 1, 2, FFN_MOE_NO_EXPERT, 0, 1, 3, 4};
static float weights[TOKENS * 2];

typedef struct run_row {
    const test_moe_t *test;
    const char *words;
    ffn_moe_routing_t routing; /* struct_size 0: none */
    patch_t patch[3];
} run_row_t;

#define ROUTING .struct_size = sizeof(ffn_moe_routing_t), .tokens = TOKENS, .experts = E, .top_k = 2
#define RUN(...) PATCH(ffn_moe_run_t, __VA_ARGS__)

static void bad_runs_are_refused(void **state)
{
    (void)state;
    const run_row_t rows[] = {
        {&routed, "struct_size|ffn_moe_run_t", {0}, {RUN(struct_size, 3)}},
        {&routed, "flags of the mixture's run|1", {0}, {RUN(flags, 1)}},
        {&routed, "stream|nothing at random", {0}, {RUN(stream, 1)}},
        {&routed, "first_token|nothing at random", {0}, {RUN(first_token, 1)}},
        {&routed, "logits|multiple of 4", {0}, {RUN(logits, (float *)((char *)data.logits + 1))}},
        {&routed, "logits overlaps scores", {0}, {RUN(logits, data.logits), RUN(scores, data.logits)}},
        {&routed, "ids overlaps y", {0}, {RUN(ids, (int32_t *)data.y)}},
        {&routed, "weights overlaps x", {0}, {RUN(weights, data.x)}},
        {&routed, "mask overlaps y", {0}, {RUN(mask, (uint8_t *)data.y)}},
        {&routed, "struct_size|ffn_moe_statistics_t", {0}, {RUN(statistics, &(ffn_moe_statistics_t){.struct_size = 2})}},
        {&unrouted, "no routing|no router weight", {0}, {RUN(flags, 0)}},
        {&unrouted, "logits is given|does not route", {ROUTING, .ids = good, .weights = weights}, {RUN(logits, data.logits)}},
        {&weighing, "no routing|GIVEN_IDS", {0}, {RUN(flags, 0)}},
        {&weighing, "weights of the routing is given|GIVEN_IDS", {ROUTING, .ids = good, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "mask|beside a routing", {ROUTING, .ids = good, .weights = weights}, {RUN(mask, (uint8_t *)ids)}},
        {&routed, "scores is given|does not route", {ROUTING, .ids = good, .weights = weights}, {RUN(scores, data.scores)}},
        {&routed, "token 1 has expert 2 twice", {ROUTING, .ids = twice, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "token 2 is 5|0 to 4", {ROUTING, .ids = beyond, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "token 1 is -2", {ROUTING, .ids = negative, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "ids of the routing is NULL", {ROUTING, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "weights of the routing is NULL", {ROUTING, .ids = good}, {RUN(flags, 0)}},
        {&routed, "tokens of the routing is 3|4", {.struct_size = sizeof(ffn_moe_routing_t), .tokens = 3, .experts = E, .top_k = 2, .ids = good, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "experts of the routing is 4|5", {.struct_size = sizeof(ffn_moe_routing_t), .tokens = TOKENS, .experts = 4, .top_k = 2, .ids = good, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "top_k is 0", {.struct_size = sizeof(ffn_moe_routing_t), .tokens = TOKENS, .experts = E, .ids = good, .weights = weights}, {RUN(flags, 0)}},
        {&routed, "top_k is 6", {.struct_size = sizeof(ffn_moe_routing_t), .tokens = TOKENS, .experts = E, .top_k = 6, .ids = good, .weights = weights}, {RUN(flags, 0)}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        ffn_moe_run_t moe = {.struct_size = sizeof moe};
        ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = data.x, .y = data.y, .moe = &moe};
        if (rows[i].routing.struct_size) moe.routing = &rows[i].routing;
        for (int k = 0; k < 3 && rows[i].patch[k].text; k++)
            memcpy((char *)&moe + rows[i].patch[k].offset, rows[i].patch[k].value, rows[i].patch[k].size);
        memset(data.y, 0xaa, TOKENS * 6 * sizeof(float));
        forget_error();
        assert_refused(ffn_layer_run(rows[i].test->layer, NULL, &run), FFN_INVALID, rows[i].words, rows[i].words);
        for (size_t k = 0; k < TOKENS * 6 * sizeof(float); k++)
            if (((unsigned char *)data.y)[k] != 0xaa) fail_msg("%s: y was written", rows[i].words);
    }
    assert_refused(ffn_layer_forward(unrouted.layer, NULL, TOKENS, data.x, 0, data.y, 0), FFN_INVALID, "no routing", "forward");
}

/* In place, where no array is apart from y: the sanitizers see the products of sizes that are made before the refusal. */
static void slots_beyond_int64_are_refused(void **state)
{
    (void)state;
    const moe_case_t is = {.name = "narrow", .d_model = 1, .d_ff = 1, .activation = FFN_ACTIVATION_RELU, .seed = 3,
                           .moe = {.experts = FFN_MOE_EXPERTS_MOST, .top_k = FFN_MOE_EXPERTS_MOST}};
    const float before = 7;
    float xy = before;
    test_moe_t test;
    test_moe_make(&test, &is);
    assert_refused(ffn_layer_forward(test.layer, NULL, INT64_C(1) << 55, &xy, 0, &xy, 0), FFN_INVALID, "36028797018963968 tokens of 768 experts", "tokens");
    assert_true(xy == before);
    test_moe_free(&test);
}

/* Slots of padding are not looked at, and padding is its residual and shared experts. */
static void padding_is_not_looked_at(void **state)
{
    (void)state;
    static const uint8_t mask[TOKENS] = {1, 0, 1, 1};
    int32_t counts_of[TOKENS * 2];
    memcpy(counts_of, twice, sizeof counts_of);
    int64_t counts[E];
    ffn_moe_routing_t given = {ROUTING, .ids = counts_of, .weights = weights, .mask = mask};
    ffn_moe_run_t moe = {.struct_size = sizeof moe, .routing = &given, .ids = ids, .counts = counts};
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = data.x, .y = data.y, .moe = &moe};
    assert_ok(ffn_layer_run(routed.layer, NULL, &run));
    assert_int_equal(ids[2], FFN_MOE_NO_EXPERT);
    assert_int_equal(ids[3], FFN_MOE_NO_EXPERT);
    assert_int_equal(counts[2], 0);
    assert_int_equal(counts[0], 2);
}

/* ------------------------------------------------------------------- Memory */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    test_moe_t test;
    test_moe_describe(&test, &plain);
    test.options.allocator = &allocator.hook;
    failing_allocator_arm(&allocator, 1, false);
    assert_not_made(&test.options, FFN_NO_MEMORY, "cannot allocate|a layer", "layer");
    failing_allocator_disarm(&allocator);
    test_moe_create(&test);
    assert_int_equal(allocator.held, 1);
    ffn_context_t *context;
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2, .allocator = &allocator.hook};
    assert_ok(ffn_context_create(&options, &context));
    failing_allocator_arm(&allocator, 1, false);
    memset(data.y, 0xaa, TOKENS * 6 * sizeof(float));
    assert_refused(ffn_layer_forward(test.layer, context, TOKENS, data.x, 0, data.y, 0), FFN_NO_MEMORY, "cannot allocate|scratch", "run");
    assert_int_equal(((unsigned char *)data.y)[0], 0xaa);
    failing_allocator_disarm(&allocator);
    assert_ok(ffn_context_reserve(context, test.layer, TOKENS));
    failing_allocator_arm(&allocator, 1, true); /* a reserved run asks for nothing */
    assert_ok(ffn_layer_forward(test.layer, context, TOKENS, data.x, 0, data.y, 0));
    failing_allocator_disarm(&allocator);
    ffn_context_free(context);
    test_moe_free(&test);
    assert_int_equal(allocator.held, 0);
}

static int set_up(void **state)
{
    (void)state;
    moe_case_t is = plain;
    test_moe_make(&routed, &is);
    is.moe.router = &given_ids;
    test_moe_make(&weighing, &is);
    is.moe.router = NULL;
    is.no_router = true, is.router_bias = false;
    test_moe_make(&unrouted, &is);
    data = moe_data_make(&routed, TOKENS, 2);
    for (int i = 0; i < TOKENS * 2; i++) weights[i] = 0.5f;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    moe_data_free(&data);
    test_moe_free(&routed);
    test_moe_free(&unrouted);
    test_moe_free(&weighing);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(expert_tensors_must_be_complete_and_alike),
        cmocka_unit_test(tensors_need_their_companions),
        cmocka_unit_test(lists_of_any_length_are_refused_unread),
        cmocka_unit_test(bad_runs_are_refused),
        cmocka_unit_test(slots_beyond_int64_are_refused),
        cmocka_unit_test(padding_is_not_looked_at),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
