/* SPDX-License-Identifier: MIT
 *
 * Bad values in every field of ffn_context_options_t, and calls into a context that is inside another one.
 */
#include "support/header.h"
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    witness_t witness;
    ffn_layer_t *layer; /* of enough work for several tasks */
    float *x, *y;
} fixture_t;

enum { TOKENS = 600, WIDTH = 40 };

static fixture_t fixture;

static void one_after_the_other(void *user, int64_t count, ffn_task_fn task, void *data)
{
    (void)user;
    for (int64_t i = 0; i < count; i++) task(data, i);
}

static void *refuse(void *user, uint64_t size, uint64_t alignment)
{
    (void)user, (void)size, (void)alignment;
    fail_msg("memory was asked for before everything was checked");
    return NULL;
}

static void never_release(void *user, void *memory, uint64_t size)
{
    (void)user, (void)memory, (void)size;
    fail_msg("memory was released that was never given");
}

static const ffn_allocator_t no_allocate = {sizeof(ffn_allocator_t), 0, NULL, NULL, never_release};
static const ffn_allocator_t no_release = {sizeof(ffn_allocator_t), 0, NULL, refuse, NULL};
static const ffn_allocator_t reserved = {sizeof(ffn_allocator_t), 3, NULL, refuse, never_release};
static const ffn_allocator_t no_size = {0, 0, NULL, refuse, never_release};

typedef struct row {
    ffn_status_t status;
    const char *words;
    patch_t patch[2];
} row_t;

#define SET(...) PATCH(ffn_context_options_t, __VA_ARGS__)

static const row_t rows[] = {
    {FFN_OK, "", {SET(threads, 0)}},
    {FFN_OK, "", {SET(threads, 1)}},
    {FFN_OK, "", {SET(threads, 1024), SET(parallel_for, one_after_the_other)}},
    {FFN_INVALID, "flags|1|0", {SET(flags, 1)}},
    {FFN_INVALID, "flags|2147483648|0", {SET(flags, 1u << 31)}},
    {FFN_INVALID, "threads|1025|1024", {SET(threads, 1025)}},
    {FFN_INVALID, "threads|4294967295|1024", {SET(threads, UINT32_MAX)}},
    {FFN_INVALID, "threads|1025|1024", {SET(threads, 1025), SET(parallel_for, one_after_the_other)}},
    {FFN_INVALID, "reserved|1|0", {SET(reserved, 1)}},
    {FFN_INVALID, "reserved|4294967295|0", {SET(reserved, UINT32_MAX)}},
    {FFN_INVALID, "parallel_user|without parallel_for", {SET(parallel_user, NOWHERE), SET(parallel_for, NULL)}},
    {FFN_INVALID, "allocator.allocate|NULL", {SET(allocator, &no_allocate)}},
    {FFN_INVALID, "allocator.release|NULL", {SET(allocator, &no_release)}},
    {FFN_INVALID, "allocator.reserved|3|0", {SET(allocator, &reserved)}},
    {FFN_INVALID, "ffn_allocator_t|struct_size|0", {SET(allocator, &no_size)}},
};

static void every_option_of_a_context_refuses_bad_values(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        ffn_context_options_t options = {.struct_size = sizeof options};
        ffn_context_t *context = NOWHERE;
        const char *what = rows[i].patch[0].text;
        for (int k = 0; k < 2; k++) patch_apply(&rows[i].patch[k], &options);
        forget_error();
        ffn_status_t status = ffn_context_create(&options, &context);
        if (rows[i].status == FFN_OK) {
            if (status != FFN_OK) fail_msg("%s: expected success, got %s: %s", what, ffn_status_name(status), ffn_last_error());
            assert_still_right(&fixture.witness, context, what);
            ffn_context_free(context);
            continue;
        }
        assert_refused(status, rows[i].status, rows[i].words, what);
        if (context) fail_msg("%s: *context is not NULL", what);
        assert_still_right(&fixture.witness, NULL, what);
    }
}

static void every_unknown_flag_is_refused(void **state)
{
    (void)state;
    for (uint32_t bit = 1; bit; bit <<= 1) {
        ffn_context_options_t options = {.struct_size = sizeof options, .flags = bit};
        ffn_context_t *context = NOWHERE;
        assert_refused(ffn_context_create(&options, &context), FFN_INVALID, "flags", "flags");
        assert_null(context);
    }
}

static void no_field_of_the_options_is_left_out(void **state)
{
    (void)state;
    header_item_t options = header_struct("ffn_context_options_t"), allocator = header_struct("ffn_allocator_t");
    assert_int_equal(allocator.members, 5); /* struct_size, reserved, allocate, release above; user may be anything */
    for (int64_t f = 1; f < options.members; f++) {
        size_t length = strlen(options.member[f]);
        bool found = false;
        for (int64_t i = 0; i < COUNT_OF(rows); i++)
            if (strncmp(rows[i].patch[0].text, options.member[f], length) == 0 && rows[i].patch[0].text[length] == ' ') found = true;
        /* Any parallel_for and any scratch_limit is right, and 0 is the default. */
        if (!found && strcmp(options.member[f], "parallel_for") && strcmp(options.member[f], "scratch_limit")) fail_msg("no bad value of %s is tried", options.member[f]);
    }
}

/* -------------------------------------------------------------------- busy */

typedef struct intruder {
    ffn_context_t *context;
    int64_t calls;
} intruder_t;

static void assert_busy(ffn_status_t status, const char *what)
{
    assert_refused(status, FFN_BUSY, "context|another call", what);
}

/* Every function that takes a context, from inside a call in it. */
static void intrude(intruder_t *intruder)
{
    ffn_context_t *context = intruder->context;
    ffn_context_info_t info, before;
    ffn_layer_t *layer = NOWHERE;
    float y[15], canary[15];
    memset(y, 0xaa, sizeof y);
    memset(canary, 0xaa, sizeof canary);
    memset(&info, 0xaa, sizeof info);
    info.struct_size = sizeof info;
    before = info;
    const test_layer_t *small = &fixture.witness.test;
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 3, .x = fixture.witness.data.x, .y = y};
    forget_error();
    assert_busy(ffn_layer_run(small->layer, context, &run), "ffn_layer_run");
    forget_error();
    assert_busy(ffn_layer_forward(small->layer, context, 3, fixture.witness.data.x, 0, y, 0), "ffn_layer_forward");
    assert_memory_equal(y, canary, sizeof y);
    forget_error();
    assert_busy(ffn_context_reserve(context, small->layer, 100000), "ffn_context_reserve");
    forget_error();
    assert_busy(ffn_context_info(context, &info), "ffn_context_info");
    assert_memory_equal(&info, &before, sizeof info);
    forget_error();
    assert_busy(ffn_layer_create(context, &small->options, &layer), "ffn_layer_create");
    assert_null(layer);
    /* Bad arguments are told as such, and what needs no context works. */
    assert_refused(ffn_layer_forward(small->layer, context, -1, NULL, 0, NULL, 0), FFN_INVALID, "tokens", "bad arguments inside");
    assert_ok(ffn_layer_forward(small->layer, context, 0, NULL, 0, NULL, 0));
    assert_still_right(&fixture.witness, NULL, "another context inside");
    intruder->calls++;
}

static void intrude_and_run(void *user, int64_t count, ffn_task_fn task, void *data)
{
    assert_true(count > 1);
    intrude(user);
    for (int64_t i = count - 1; i >= 0; i--) task(data, i);
    intrude(user);
}

static void a_context_inside_a_call_is_busy_for_every_function(void **state)
{
    (void)state;
    intruder_t intruder = {NULL, 0};
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 4, .parallel_for = intrude_and_run, .parallel_user = &intruder};
    assert_ok(ffn_context_create(&options, &intruder.context));
    float *expected = test_alloc(TOKENS * WIDTH * sizeof *expected);
    assert_ok(ffn_layer_forward(fixture.layer, NULL, TOKENS, fixture.x, 0, expected, 0));
    for (int i = 0; i < 3; i++) {
        memset(fixture.y, 0xff, TOKENS * WIDTH * sizeof *fixture.y);
        assert_ok(ffn_layer_forward(fixture.layer, intruder.context, TOKENS, fixture.x, 0, fixture.y, 0));
        assert_memory_equal(expected, fixture.y, TOKENS * WIDTH * sizeof *expected);
    }
    assert_true(intruder.calls >= 6);
    free(expected);
    ffn_context_free(intruder.context);
}

/* ------------------------------------------------------------------ threads */

static uint32_t threads_of(ffn_context_t *context, uint32_t *requested)
{
    ffn_context_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_context_info(context, &info));
    assert_int_equal(info.flags, 0);
    if (requested) *requested = info.threads_requested;
    return info.threads;
}

static void contexts_tell_how_many_threads_they_have(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 17, 64};
    uint32_t requested;
    assert_int_equal(threads_of(NULL, &requested), 1);
    assert_int_equal(requested, 1);
    for (int64_t i = 0; i < COUNT_OF(threads); i++)
        for (int own = 0; own < 2; own++) {
            ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads[i], .parallel_for = own ? one_after_the_other : NULL};
            ffn_context_t *context;
            assert_ok(ffn_context_create(&options, &context));
            assert_int_equal(threads_of(context, &requested), threads[i]);
            assert_int_equal(requested, threads[i]);
            assert_still_right(&fixture.witness, context, "threads");
            ffn_context_free(context);
        }
    ffn_context_t *context;
    assert_ok(ffn_context_create(NULL, &context));
    assert_true(threads_of(context, &requested) >= 1);
    assert_true(requested >= 1 && requested <= 1024);
    ffn_context_free(context);
}

static int set_up(void **state)
{
    (void)state;
    layer_case_t is = {.d_model = WIDTH, .d_ff = 3 * WIDTH, .activation = FFN_ACTIVATION_SILU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
                       .norm = {{FFN_NORM_RMS, true, false, 0, 0}}, .seed = 4};
    test_layer_t test;
    witness_make(&fixture.witness, &witness_case);
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, TOKENS, 9);
    fixture.layer = test.layer;
    fixture.x = data.x;
    fixture.y = data.y;
    test.layer = NULL;
    test_layer_free(&test);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ffn_layer_free(fixture.layer);
    free(fixture.x);
    free(fixture.y);
    witness_free(&fixture.witness);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_of_a_context_refuses_bad_values),
        cmocka_unit_test(every_unknown_flag_is_refused),
        cmocka_unit_test(no_field_of_the_options_is_left_out),
        cmocka_unit_test(a_context_inside_a_call_is_busy_for_every_function),
        cmocka_unit_test(contexts_tell_how_many_threads_they_have),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
