/* SPDX-License-Identifier: MIT
 *
 * The life of a training step: the same bits whatever the threads, long runs in blocks, accumulation, layouts and strides of gradients, subsets, in place,
 * no tokens, updates, memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/random.h"
#include "support/strided.h"
#include "support/test.h"
#include "support/train_case.h"

/* Every part that has a gradient. */
static train_case_t whole_case(uint32_t tape_flags, int64_t batch, int64_t length)
{
    return (train_case_t){
        .layer = {.d_model = 6, .d_ff = 9, .activation = FFN_ACTIVATION_XIELU, .gate_max = 2, .up_limit = 2, .up_offset = 1, .gated = true,
                  .biases = BIAS_ALL, .residual = FFN_RESIDUAL_EXTERNAL, .branch_scale = SCALE_VECTOR, .residual_scale = SCALE_ONE_TANH,
                  .norm = {{FFN_NORM_LAYER, true, true, 0.0625f, 0}, {FFN_NORM_RMS, true, true, 0, 1}, {FFN_NORM_AFFINE, true, true, 0, 0},
                           {FFN_NORM_LAYER, true, true, 0.0625f, 1}},
                  .seed = 3},
        .batch = batch, .length = length, .tape_flags = tape_flags,
        .dropout = {.struct_size = sizeof(ffn_dropout_t), .seed = 5, .p = {0.1f, 0.1f, 0.1f, 0.1f, 0.1f}}};
}

static ffn_context_t *context_of(uint32_t threads, uint64_t scratch_limit)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .scratch_limit = scratch_limit};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

/* ----------------------------------------------------------- Blocks and threads */

/* Runs longer than a block, of lengths that chunks and blocks do not divide. */
static void long_runs_are_as_the_oracle(void **state)
{
    (void)state;
    static const int64_t tokens[] = {31, 32, 33, 511, 513, 1031};
    for (int64_t t = 0; t < (test_quick() ? 2 : COUNT_OF(tokens)); t++)
        for (uint32_t flags = 0; flags <= FFN_TAPE_RECOMPUTE; flags++) {
            const train_case_t is = whole_case(flags, 1, tokens[t]);
            train_t train;
            train_make(&train, &is);
            train_step(&train, NULL);
            assert_trained_as_oracle(&train);
            train_free(&train);
        }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 7, 16};
    for (uint32_t flags = 0; flags <= FFN_TAPE_RECOMPUTE; flags++) {
        train_t expected;
        train_case_t is = whole_case(flags, 7, 101);
        is.layer.d_model = 65, is.layer.d_ff = 130; /* work for more than one thread */
        train_make(&expected, &is);
        train_step(&expected, NULL);
        for (int64_t t = 0; t < COUNT_OF(threads); t++) {
            ffn_context_t *context = context_of(threads[t], 0);
            train_t train;
            train_make(&train, &is);
            train_step(&train, context);
            assert_same_training(&expected, &train, "threads");
            train_free(&train);
            ffn_context_free(context);
        }
        train_free(&expected);
    }
}

/* Same products, same passes. */
static void recomputing_gives_the_bits_of_keeping(void **state)
{
    (void)state;
    train_case_t is = whole_case(0, 2, 50);
    train_t kept, recomputed;
    train_make(&kept, &is);
    train_step(&kept, NULL);
    is.tape_flags = FFN_TAPE_RECOMPUTE;
    train_make(&recomputed, &is);
    train_step(&recomputed, NULL);
    assert_same_training(&kept, &recomputed, "recomputed");
    train_free(&kept);
    train_free(&recomputed);
}

static void a_limit_of_scratch_memory_makes_blocks_smaller(void **state)
{
    (void)state;
    const train_case_t is = whole_case(FFN_TAPE_RECOMPUTE, 1, 600);
    ffn_context_t *context = context_of(1, 40000), *small = context_of(1, 1000);
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_tape_t *tape;
    train_t train;
    train_make(&train, &is);
    train_step(&train, context);
    assert_trained_as_oracle(&train);
    assert_ok(ffn_context_info(context, &info));
    assert_true(info.scratch_bytes <= 40000);
    assert_ok(ffn_tape_create(NULL, &tape));
    train_forward(&train, NULL, tape);
    assert_int_equal(train_backward(&train, small, tape, 0), FFN_NO_MEMORY);
    assert_non_null(strstr(ffn_last_error(), "scratch_limit"));
    assert_ok(train_backward(&train, NULL, tape, 0)); /* the tape is as it was */
    assert_trained_as_oracle(&train);
    ffn_tape_free(tape);
    ffn_context_free(context);
    ffn_context_free(small);
    train_free(&train);
}

/* ------------------------------------------------------- Where gradients go */

static void accumulating_adds_and_overwriting_does_not_read(void **state)
{
    (void)state;
    const train_case_t is = whole_case(0, 1, 70);
    train_t once, twice;
    ffn_tape_t *tape;
    train_make(&once, &is);
    train_make(&twice, &is); /* filled with NaN */
    train_step(&once, NULL);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (uint32_t pass = 0; pass < 2; pass++) {
        train_forward(&twice, NULL, tape);
        assert_ok(train_backward(&twice, NULL, tape, pass ? FFN_BACKWARD_ACCUMULATE : 0));
    }
    for (int role = 0; role < ROLES; role++)
        for (int64_t i = 0; once.gradient[role] && i < train_elements(&once, role); i++)
            assert_near((double)twice.gradient[role][i], 2 * (double)once.gradient[role][i],
                        1e-5 * largest_magnitude(once.gradient[role], train_elements(&once, role)));
    ffn_tape_free(tape);
    train_free(&once);
    train_free(&twice);
}

/* Gate, up and down in every layout that files have, accumulated into memory whose other bytes stay as they are. */
static void check_layout(const train_t *expected, layout_t layout, uint32_t flags)
{
    train_t train;
    ffn_tape_t *tape;
    place_t gate, up, down;
    const int64_t d_ff = expected->test.is.d_ff, d_model = expected->test.is.d_model, d_out = expected->test.is.d_out;
    const int64_t pair = layout_pair(layout, d_ff, d_model, &gate, &up), single = layout_single(layout, d_out, d_ff, &down);
    float *memory = test_alloc((size_t)(pair + single) * sizeof *memory), *lone = memory + pair;
    for (int64_t i = 0; i < pair + single; i++) memory[i] = flags ? 0.5f : NAN;
    train_make(&train, &expected->is);
    for (uint64_t v = 0; v < train.view_count; v++) {
        ffn_tensor_t *view = &train.views[v];
        const place_t *place = view->role == FFN_ROLE_GATE_WEIGHT ? &gate : view->role == FFN_ROLE_UP_WEIGHT ? &up : &down;
        if (view->ndim != 2) {
            if (flags)
                for (int64_t i = 0; i < view->shape[0]; i++) ((float *)view->data)[i] = 0.5f;
            continue;
        }
        view->data = (view->role == FFN_ROLE_DOWN_WEIGHT ? lone : memory) + place->base;
        view->stride[0] = 4 * place->row, view->stride[1] = 4 * place->column;
    }
    assert_ok(ffn_tape_create(NULL, &tape));
    train_forward(&train, NULL, tape);
    assert_ok(train_backward(&train, NULL, tape, flags));
    for (int role = 0; role < ROLES; role++) {
        if (!train.gradient[role]) continue;
        const place_t *place = role == FFN_ROLE_GATE_WEIGHT ? &gate : role == FFN_ROLE_UP_WEIGHT ? &up : &down;
        const int64_t n = train_elements(&train, role), *shape = train.test.shape[role];
        if (shape[1]) layout_load(place, shape[0], shape[1], role == FFN_ROLE_DOWN_WEIGHT ? lone : memory, train.gradient[role]);
        const double largest = largest_magnitude(expected->gradient[role], n);
        for (int64_t i = 0; i < n; i++) {
            const double target = (double)expected->gradient[role][i] + (flags ? 0.5 : 0);
            if (!(fabs((double)train.gradient[role][i] - target) <= 4e-6 * (largest + 1)))
                fail_msg("layout %s, flags %u, role %d [%lld]: expected %.9g, got %.9g", layout_name(layout), flags, role, (long long)i, target,
                         (double)train.gradient[role][i]);
        }
    }
    ffn_tape_free(tape);
    train_free(&train);
    free(memory);
}

static void gradients_go_into_every_layout(void **state)
{
    (void)state;
    const train_case_t is = whole_case(0, 1, 40);
    train_t expected;
    train_make(&expected, &is);
    train_step(&expected, NULL);
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t flags = 0; flags <= FFN_BACKWARD_ACCUMULATE; flags++) check_layout(&expected, (layout_t)layout, flags);
    train_free(&expected);
}

static void any_subset_of_gradients_has_the_same_bits(void **state)
{
    (void)state;
    const train_case_t is = whole_case(FFN_TAPE_RECOMPUTE, 1, 40);
    train_t expected, train;
    ffn_tape_t *tape;
    train_make(&expected, &is);
    train_make(&train, &is);
    train_step(&expected, NULL);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (uint64_t v = 0; v <= expected.view_count; v++)
        for (int with_d_x = 0; with_d_x < 2; with_d_x++) {
            ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = train.d_y, .d_x = with_d_x ? train.d_x : NULL,
                                       .gradients = &train.views[v], .gradient_count = v < expected.view_count};
            train_forward(&train, NULL, tape);
            assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
            if (v < expected.view_count)
                assert_same_bits(expected.gradient[expected.views[v].role], train.gradient[expected.views[v].role],
                                 train_elements(&train, (int)expected.views[v].role), "one gradient");
            if (with_d_x) assert_same_bits(expected.d_x, train.d_x, train.tokens * train.test.is.d_model, "d_x");
        }
    ffn_tape_free(tape);
    train_free(&expected);
    train_free(&train);
}

/* Sequences and rows with gaps, d_y at the end of a page, d_residual in d_y's place. */
static void strided_rows_and_rows_in_place_have_the_same_bits(void **state)
{
    (void)state;
    const train_case_t is = whole_case(0, 3, 5);
    const int64_t d_model = is.layer.d_model;
    const gaps_t gaps = {3, 7};
    train_t expected, train;
    ffn_tape_t *tape;
    train_make(&expected, &is);
    train_make(&train, &is);
    train_step(&expected, NULL);
    strided_t x = strided_make(3, 5, d_model, gaps, GUARD_AFTER), y = strided_make(3, 5, d_model, gaps, GUARD_BEFORE);
    strided_t d_y = strided_make(3, 5, d_model, gaps, GUARD_AFTER), d_x = strided_make(3, 5, d_model, gaps, GUARD_AFTER);
    strided_store(&x, train.x);
    strided_store(&d_y, train.d_y);
    assert_ok(ffn_tape_create(NULL, &tape));
    ffn_run_t run = {.struct_size = sizeof run, .batch = 3, .length = 5, .x = x.memory.data, .y = y.memory.data, .residual = train.residual,
                     .x_stride = {x.stride[0], x.stride[1]}, .y_stride = {y.stride[0], y.stride[1]}, .dropout = &is.dropout, .tape = tape};
    assert_ok(ffn_layer_run(train.test.layer, NULL, &run));
    ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = d_y.memory.data, .d_x = d_x.memory.data,
                               .d_residual = d_y.memory.data, .d_y_stride = {d_y.stride[0], d_y.stride[1]}, .d_x_stride = {d_x.stride[0], d_x.stride[1]},
                               .d_residual_stride = {d_y.stride[0], d_y.stride[1]}, .gradients = train.views, .gradient_count = train.view_count};
    assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
    strided_load(&y, train.y);
    strided_load(&d_x, train.d_x);
    strided_load(&d_y, train.d_residual);
    assert_same_training(&expected, &train, "strided");
    assert_gaps_untouched(&d_x, "d_x");
    assert_gaps_untouched(&d_y, "d_y");
    strided_free(&x), strided_free(&y), strided_free(&d_y), strided_free(&d_x);
    ffn_tape_free(tape);
    train_free(&expected);
    train_free(&train);
}

static void d_x_may_take_the_place_of_d_y(void **state)
{
    (void)state;
    train_case_t is = whole_case(0, 1, 600);
    is.layer.residual = FFN_RESIDUAL_INPUT;
    train_t expected, train;
    ffn_tape_t *tape;
    train_make(&expected, &is);
    train_make(&train, &is);
    train_step(&expected, NULL);
    assert_ok(ffn_tape_create(NULL, &tape));
    train_forward(&train, NULL, tape);
    ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = train.d_y, .d_x = train.d_y, .gradients = train.views,
                               .gradient_count = train.view_count};
    assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
    memcpy(train.d_x, train.d_y, (size_t)(600 * is.layer.d_model) * sizeof(float));
    assert_same_training(&expected, &train, "in place");
    ffn_tape_free(tape);
    train_free(&expected);
    train_free(&train);
}

static void no_tokens_give_zero_gradients_and_add_nothing(void **state)
{
    (void)state;
    train_case_t is = whole_case(0, 1, 4);
    train_t train;
    ffn_tape_t *tape;
    train_make(&train, &is);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (uint32_t flags = FFN_BACKWARD_ACCUMULATE + 1; flags-- > 0;)
        for (int64_t batch = 0; batch < 2; batch++) {
            ffn_run_t run = {.struct_size = sizeof run, .batch = batch, .length = 1 - batch, .tape = tape};
            ffn_backward_t backward = {.struct_size = sizeof backward, .flags = flags, .tape = tape, .gradients = train.views,
                                       .gradient_count = train.view_count};
            assert_ok(ffn_layer_run(train.test.layer, NULL, &run));
            assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
            for (int role = 0; role < ROLES; role++)
                for (int64_t i = 0; train.gradient[role] && i < train_elements(&train, role); i++)
                    assert_true(flags ? isnan(train.gradient[role][i]) : train.gradient[role][i] == 0);
        }
    ffn_tape_free(tape);
    train_free(&train);
}

/* ------------------------------------------------------------------- Updates */

/* A layer that takes another's tensors is that other one, to the bit. */
static void an_updated_layer_is_one_made_with_the_new_values(void **state)
{
    (void)state;
    train_case_t is = whole_case(0, 1, 9), other = is;
    other.layer.seed = 99;
    other.layer.layout = LAYOUT_IN_INTERLEAVED, other.layer.down_layout = LAYOUT_IN_OUT;
    train_t train, target;
    train_make(&train, &is);
    train_make(&target, &other);
    const int64_t in = train.tokens * is.layer.d_model;
    memcpy(train.x, target.x, (size_t)in * 4), memcpy(train.residual, target.residual, (size_t)in * 4), memcpy(train.d_y, target.d_y, (size_t)in * 4);
    assert_ok(ffn_layer_update(train.test.layer, NULL, target.test.options.tensors, target.test.options.tensor_count));
    train_step(&train, NULL);
    train_step(&target, NULL);
    assert_same_training(&target, &train, "updated");
    for (int role = 0; role < ROLES; role++) {
        if (!train.gradient[role]) continue;
        const ffn_tensor_t *view = NULL;
        for (uint64_t v = 0; v < train.view_count; v++)
            if (train.views[v].role == (uint32_t)role) view = &train.views[v];
        assert_ok(ffn_layer_read(train.test.layer, view, 1));
        assert_same_bits(target.test.plain[role], train.gradient[role], train_elements(&train, role), "read back");
    }
    train_free(&train);
    train_free(&target);
}

static void a_part_may_be_updated_and_nothing_at_all(void **state)
{
    (void)state;
    const train_case_t is = whole_case(0, 1, 9);
    train_t train;
    train_make(&train, &is);
    assert_ok(ffn_layer_update(train.test.layer, NULL, NULL, 0));
    train_step(&train, NULL);
    assert_trained_as_oracle(&train);
    train.test.plain[FFN_ROLE_RESIDUAL_SCALE][0] = 0.75f;
    train.test.plain[FFN_ROLE_XIELU_ALPHA_N][0] = -0.5f;
    for (int64_t i = 0; i < is.layer.d_ff; i++) train.test.plain[FFN_ROLE_GATE_BIAS][i] *= -0.5f;
    const ffn_tensor_t part[] = {
        {.role = FFN_ROLE_RESIDUAL_SCALE, .ndim = 1, .shape = {1}, .data = train.test.plain[FFN_ROLE_RESIDUAL_SCALE]},
        {.role = FFN_ROLE_XIELU_ALPHA_N, .ndim = 1, .shape = {1}, .data = train.test.plain[FFN_ROLE_XIELU_ALPHA_N]},
        {.role = FFN_ROLE_GATE_BIAS, .ndim = 1, .shape = {is.layer.d_ff}, .data = train.test.plain[FFN_ROLE_GATE_BIAS]}};
    assert_ok(ffn_layer_update(train.test.layer, NULL, part, COUNT_OF(part)));
    train_step(&train, NULL);
    assert_trained_as_oracle(&train);
    train_free(&train);
}

/* -------------------------------------------------------------------- Memory */

static void a_reserved_context_and_tape_allocate_nothing(void **state)
{
    (void)state;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    for (uint32_t flags = 0; flags <= FFN_TAPE_RECOMPUTE; flags++) {
        ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 2, .allocator = &allocator.hook};
        ffn_tape_options_t tape_options = {.struct_size = sizeof tape_options, .flags = flags, .allocator = &allocator.hook};
        const train_case_t is = whole_case(flags, 1, 700);
        ffn_context_t *context;
        ffn_tape_t *tape;
        train_t train;
        train_make(&train, &is);
        assert_ok(ffn_context_create(&context_options, &context));
        assert_ok(ffn_tape_create(&tape_options, &tape));
        assert_ok(ffn_context_reserve(context, train.test.layer, 700));
        assert_ok(ffn_tape_reserve(tape, train.test.layer, 700));
        failing_allocator_arm(&allocator, 1, true);
        for (int step = 0; step < 3; step++) {
            train_forward(&train, context, tape);
            assert_ok(train_backward(&train, context, tape, 0));
        }
        assert_int_equal(allocator.asked, 0);
        failing_allocator_disarm(&allocator);
        assert_trained_as_oracle(&train);
        ffn_tape_free(tape);
        ffn_context_free(context);
        train_free(&train);
        assert_int_equal(allocator.held, 0);
    }
}

static void a_step_survives_the_failure_of_each_allocation(void **state)
{
    (void)state;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 1, .allocator = &allocator.hook};
    ffn_tape_options_t tape_options = {.struct_size = sizeof tape_options, .allocator = &allocator.hook};
    const train_case_t is = whole_case(0, 1, 20);
    ffn_context_t *context;
    ffn_tape_t *tape = NULL;
    train_t train;
    train_make(&train, &is);
    assert_ok(ffn_context_create(&context_options, &context));
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 20, .x = train.x, .y = train.y, .residual = train.residual, .dropout = &is.dropout};
    failing_allocator_arm(&allocator, 1, false);
    assert_int_equal(ffn_tape_create(&tape_options, &tape), FFN_NO_MEMORY);
    assert_null(tape);
    assert_ok(ffn_tape_create(&tape_options, &tape));
    run.tape = tape;
    for (int64_t fail_at = 1; fail_at <= 2; fail_at++) { /* scratch memory, which stays; then the tape's */
        if (fail_at == 2) assert_ok(ffn_context_reserve(context, train.test.layer, 20));
        failing_allocator_arm(&allocator, 1, false);
        assert_int_equal(ffn_layer_run(train.test.layer, context, &run), FFN_NO_MEMORY);
        assert_true(isnan(train.y[0]));
    }
    failing_allocator_disarm(&allocator);
    assert_int_equal(train_backward(&train, context, tape, 0), FFN_INVALID);
    assert_ok(ffn_layer_run(train.test.layer, context, &run));
    ffn_context_free(context);
    assert_ok(ffn_context_create(&context_options, &context));
    failing_allocator_arm(&allocator, 1, false);
    assert_int_equal(train_backward(&train, context, tape, 0), FFN_NO_MEMORY);
    failing_allocator_disarm(&allocator);
    assert_ok(train_backward(&train, context, tape, 0));
    assert_trained_as_oracle(&train);
    ffn_tape_free(tape);
    ffn_context_free(context);
    train_free(&train);
    assert_int_equal(allocator.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_runs_are_as_the_oracle),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(recomputing_gives_the_bits_of_keeping),
        cmocka_unit_test(a_limit_of_scratch_memory_makes_blocks_smaller),
        cmocka_unit_test(accumulating_adds_and_overwriting_does_not_read),
        cmocka_unit_test(gradients_go_into_every_layout),
        cmocka_unit_test(any_subset_of_gradients_has_the_same_bits),
        cmocka_unit_test(strided_rows_and_rows_in_place_have_the_same_bits),
        cmocka_unit_test(d_x_may_take_the_place_of_d_y),
        cmocka_unit_test(no_tokens_give_zero_gradients_and_add_nothing),
        cmocka_unit_test(an_updated_layer_is_one_made_with_the_new_values),
        cmocka_unit_test(a_part_may_be_updated_and_nothing_at_all),
        cmocka_unit_test(a_reserved_context_and_tape_allocate_nothing),
        cmocka_unit_test(a_step_survives_the_failure_of_each_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
