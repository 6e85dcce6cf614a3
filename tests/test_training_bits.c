/* SPDX-License-Identifier: MIT
 *
 * What the native engine promises of training: the same bits for 1 to 7 threads and for any blocks; matrices' gradients as sums of chains over 256
 * tokens, whatever their layout and when calls of whole chains accumulate; and y with a tape as without. On shapes with tails everywhere, that fill
 * several groups of rows and of panels, and whose depths are cut.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/test.h"
#include "support/train_case.h"

typedef struct shape {
    int64_t d_model, d_ff, d_out, tokens;
    bool gated, norms;
} shape_t;

/* Deep ones are cut at 1024; 577 tokens are two blocks of the kept tape and three of the recomputed one. */
static const shape_t shapes[] = {{65, 131, 0, 577, true, true}, {33, 300, 70, 101, false, false}, {300, 33, 21, 70, true, false},
                                 {1050, 20, 0, 33, false, false}, {20, 550, 0, 40, true, false}};

static train_case_t case_of(const shape_t *shape, uint32_t tape_flags)
{
    train_case_t is = {.layer = {.d_model = shape->d_model, .d_ff = shape->d_ff, .d_out = shape->d_out, .gated = shape->gated,
                                 .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL, .seed = 11},
                       .batch = 1, .length = shape->tokens, .tape_flags = tape_flags};
    if (shape->norms) {
        is.layer.norm[FFN_NORM_IN] = (norm_case_t){FFN_NORM_LAYER, true, true, 0, 0};
        is.layer.norm[FFN_NORM_MID] = (norm_case_t){FFN_NORM_RMS, true, true, 0, 0};
        is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 5, .p = {0.1f, 0.1f, 0.1f, 0.1f, 0.1f}};
    }
    return is;
}

static void make(train_t *train, const train_case_t *is)
{
    train_make(train, is);
    if (train->test.options.engine == FFN_ENGINE_NATIVE) return;
    ffn_layer_free(train->test.layer);
    train->test.options.engine = FFN_ENGINE_NATIVE;
    test_layer_create(&train->test);
}

static ffn_context_t *context_of(uint32_t threads, uint64_t scratch_limit)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .scratch_limit = scratch_limit};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static void check_same(const train_t *expected, const train_case_t *is, uint32_t threads, uint64_t scratch_limit, const char *what)
{
    ffn_context_t *context = context_of(threads, scratch_limit);
    train_t train;
    make(&train, is);
    train_step(&train, context);
    assert_same_training(expected, &train, what);
    train_free(&train);
    ffn_context_free(context);
}

static int64_t shapes_to_run(void)
{
    return test_quick() ? 1 : COUNT_OF(shapes);
}

static void gradients_are_right_and_the_same_for_any_threads_and_blocks(void **state)
{
    (void)state;
    for (int64_t s = 0; s < shapes_to_run(); s++) {
        train_case_t is = case_of(&shapes[s], 0);
        train_t expected;
        make(&expected, &is);
        train_step(&expected, NULL);
        if (!test_quick()) assert_trained_as_oracle(&expected);
        for (uint32_t threads = 1; threads <= 7; threads += test_quick() ? 2 : 1) {
            is.tape_flags = threads & 1 ? FFN_TAPE_RECOMPUTE : 0; /* blocks of 256, or of 512 tokens */
            check_same(&expected, &is, threads, 0, "threads");
        }
        train_free(&expected);
    }
}

/* A limit of scratch memory shortens the chains, but for any threads alike. */
static void a_limit_of_scratch_memory_is_the_same_for_any_threads(void **state)
{
    (void)state;
    const train_case_t is = case_of(&shapes[0], FFN_TAPE_RECOMPUTE);
    ffn_context_t *context = context_of(1, 700000);
    train_t expected;
    make(&expected, &is);
    train_step(&expected, context);
    if (!test_quick()) assert_trained_as_oracle(&expected);
    for (uint32_t threads = 2; threads <= 7; threads += 5) check_same(&expected, &is, threads, 700000, "threads within a limit");
    train_free(&expected);
    ffn_context_free(context);
}

/* ----------------------------------------------------------------- Matrices */

static void place_matrices(train_t *train, layout_t layout, float *memory[ROLES])
{
    for (uint64_t v = 0; v < train->view_count; v++) {
        ffn_tensor_t *view = &train->views[v];
        place_t place;
        if (view->ndim != 2) continue;
        const int64_t n = layout_single(layout, view->shape[0], view->shape[1], &place);
        memory[view->role] = test_alloc((size_t)n * sizeof(float));
        view->data = memory[view->role] + place.base;
        view->stride[0] = 4 * place.row, view->stride[1] = 4 * place.column;
    }
}

static void a_gradient_has_the_same_bits_in_every_layout(void **state)
{
    (void)state;
    const train_case_t is = case_of(&shapes[1], 0);
    train_t expected;
    make(&expected, &is);
    train_step(&expected, NULL);
    for (layout_t layout = 0; layout < LAYOUTS; layout++) {
        train_t train;
        float *memory[ROLES] = {NULL};
        make(&train, &is);
        place_matrices(&train, layout, memory);
        train_step(&train, NULL);
        for (int role = 0; role < ROLES; role++) {
            place_t place;
            if (!memory[role]) continue;
            const int64_t *shape = train.test.shape[role];
            layout_single(layout, shape[0], shape[1], &place);
            layout_load(&place, shape[0], shape[1], memory[role], train.gradient[role]);
            free(memory[role]);
        }
        assert_same_training(&expected, &train, "layout");
        train_free(&train);
    }
    train_free(&expected);
}

/* Calls of 256 tokens, or of a multiple, add up what one call does. */
static void accumulating_whole_chains_has_the_bits_of_one_call(void **state)
{
    (void)state;
    const train_case_t is = case_of(&(shape_t){30, 33, 21, 700, true, false}, 0);
    train_t expected, train;
    ffn_tape_t *tape;
    make(&expected, &is);
    make(&train, &is);
    train_step(&expected, NULL);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (int64_t begin = 0, rows; begin < is.length; begin += rows) {
        rows = minimum(256, is.length - begin);
        const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = rows, .x = train.x + begin * is.layer.d_model, .y = train.y, .tape = tape};
        const ffn_backward_t backward = {.struct_size = sizeof backward, .flags = begin ? FFN_BACKWARD_ACCUMULATE : 0, .tape = tape,
                                         .d_y = train.d_y + begin * is.layer.d_out, .gradients = train.views, .gradient_count = train.view_count};
        assert_ok(ffn_layer_run(train.test.layer, NULL, &run));
        assert_ok(ffn_layer_backward(train.test.layer, NULL, &backward));
    }
    for (int role = FFN_ROLE_UP_WEIGHT; role <= FFN_ROLE_DOWN_WEIGHT; role += 2)
        assert_same_bits(expected.gradient[role], train.gradient[role], train_elements(&train, role), "in two calls");
    ffn_tape_free(tape);
    train_free(&expected);
    train_free(&train);
}

static void a_tape_changes_no_bit_of_y(void **state)
{
    (void)state;
    for (int64_t s = 0; s < COUNT_OF(shapes); s++) {
        train_case_t is = case_of(&shapes[s], (uint32_t)s & 1);
        train_t train, plain;
        ffn_tape_t *tape;
        memset(&is.dropout, 0, sizeof is.dropout);
        if (!is.layer.d_out) {
            is.layer.residual = FFN_RESIDUAL_INPUT;
            is.layer.branch_scale = SCALE_VECTOR;
            is.layer.residual_scale = SCALE_ONE;
        }
        make(&train, &is);
        make(&plain, &is);
        assert_ok(ffn_tape_create(NULL, &tape));
        train_forward(&train, NULL, tape);
        train_forward(&plain, NULL, NULL);
        assert_same_bits(plain.y, train.y, train.tokens * train.test.is.d_out, "y with a tape");
        ffn_tape_free(tape);
        train_free(&train);
        train_free(&plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_right_and_the_same_for_any_threads_and_blocks),
        cmocka_unit_test(a_limit_of_scratch_memory_is_the_same_for_any_threads),
        cmocka_unit_test(a_gradient_has_the_same_bits_in_every_layout),
        cmocka_unit_test(accumulating_whole_chains_has_the_bits_of_one_call),
        cmocka_unit_test(a_tape_changes_no_bit_of_y),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
