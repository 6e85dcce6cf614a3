/* SPDX-License-Identifier: MIT
 *
 * Bad input to training: each gets its status and its sentence, nothing is written, and tape and layer are as they were.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/hostile.h"
#include "support/train_case.h"

enum { TOKENS = 6, WIDTH = 4, D_FF = 5 };

static const train_case_t base = {
    .layer = {.d_model = WIDTH, .d_ff = D_FF, .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_EXTERNAL,
              .branch_scale = SCALE_ONE, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}}, .seed = 1},
    .batch = 2, .length = 3};

/* A train whose tape is recorded, before each refusal and, as it must be, after it. */
typedef struct stage {
    train_t train;
    ffn_tape_t *tape;
    ffn_backward_t right;
} stage_t;

static void stage_make(stage_t *stage)
{
    train_make(&stage->train, &base);
    assert_ok(ffn_tape_create(NULL, &stage->tape));
    train_forward(&stage->train, NULL, stage->tape);
    stage->right = (ffn_backward_t){.struct_size = sizeof stage->right, .tape = stage->tape, .d_y = stage->train.d_y, .d_x = stage->train.d_x,
                                    .d_residual = stage->train.d_residual, .gradients = stage->train.views, .gradient_count = stage->train.view_count};
}

static void stage_free(stage_t *stage)
{
    ffn_tape_free(stage->tape);
    train_free(&stage->train);
}

static void assert_nothing_written(const stage_t *stage, const char *what)
{
    for (int64_t i = 0; i < TOKENS * WIDTH; i++)
        if (!isnan(stage->train.d_x[i]) || !isnan(stage->train.d_residual[i])) fail_msg("%s: d_x or d_residual was written", what);
    for (int role = 0; role < ROLES; role++)
        for (int64_t i = 0; stage->train.gradient[role] && i < train_elements(&stage->train, role); i++)
            if (!isnan(stage->train.gradient[role][i])) fail_msg("%s: the gradient of role %d was written", what, role);
}

static void refuse_backward(stage_t *stage, const ffn_backward_t *backward, ffn_status_t status, const char *words, const char *what)
{
    forget_error();
    assert_refused(ffn_layer_backward(stage->train.test.layer, NULL, backward), status, words, what);
    assert_nothing_written(stage, what);
}

static void assert_tape_still_good(stage_t *stage)
{
    assert_ok(ffn_layer_backward(stage->train.test.layer, NULL, &stage->right));
    assert_trained_as_oracle(&stage->train);
}

/* ------------------------------------------------------------------ Backward */

typedef struct refused {
    patch_t patch;
    ffn_status_t status;
    const char *words;
} refused_t;

#define BACK(field, ...) PATCH(ffn_backward_t, field, __VA_ARGS__)

static const refused_t backward_cases[] = {
    {BACK(struct_size, 5), FFN_INVALID, "struct_size|ffn_backward_t"},
    {BACK(flags, 2), FFN_INVALID, "flags|0x2"},
    {BACK(tape, NULL), FFN_INVALID, "tape is NULL"},
    {BACK(d_y, NULL), FFN_INVALID, "d_y is NULL"},
    {BACK(d_y, (void *)66), FFN_INVALID, "d_y is not at a multiple of 4"},
    {BACK(d_x, (void *)66), FFN_INVALID, "d_x is not at a multiple of 4"},
    {BACK(d_residual, (void *)66), FFN_INVALID, "d_residual is not at a multiple of 4"},
    {BACK(d_y_dtype, 1), FFN_UNSUPPORTED, "dtype of d_y is 1"},
    {BACK(d_x_dtype, 9), FFN_UNSUPPORTED, "dtype of d_x is 9"},
    {BACK(d_residual_dtype, 7), FFN_UNSUPPORTED, "dtype of d_residual is 7"},
    {BACK(reserved, 1), FFN_INVALID, "reserved"},
    {BACK(gradients, NULL), FFN_INVALID, "tensors is NULL"},
    {BACK(gradient_count, 64), FFN_INVALID, "64"},
};

static void wrong_fields_are_refused_and_leave_the_tape(void **state)
{
    (void)state;
    stage_t stage;
    stage_make(&stage);
    for (int64_t i = 0; i < COUNT_OF(backward_cases); i++) {
        ffn_backward_t backward = stage.right;
        patch_apply(&backward_cases[i].patch, &backward);
        refuse_backward(&stage, &backward, backward_cases[i].status, backward_cases[i].words, backward_cases[i].patch.text);
    }
    ffn_backward_t strides = stage.right;
    strides.d_x_stride[1] = 4 * WIDTH - 4;
    refuse_backward(&stage, &strides, FFN_INVALID, "row stride of d_x is 12|16", "a stride");
    refuse_backward(&stage, NULL, FFN_INVALID, "NULL", "no struct");
    assert_refused(ffn_layer_backward(NULL, NULL, &stage.right), FFN_INVALID, "layer is NULL", "no layer");
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    stage_t stage;
    stage_make(&stage);
    train_t *train = &stage.train;
    const struct {
        float *d_x, *d_residual, *gradient;
        const char *words;
    } cases[] = {
        {train->d_y + 1, NULL, NULL, "d_x overlaps d_y in part"},
        {train->x, NULL, NULL, "d_x overlaps x"},
        {train->x + WIDTH, NULL, NULL, "d_x overlaps x"},
        {train->residual, NULL, NULL, "d_x overlaps residual"},
        {NULL, train->residual, NULL, "d_residual overlaps residual"},
        {NULL, train->x, NULL, "d_residual overlaps x"},
        {NULL, train->d_y + WIDTH, NULL, "d_residual overlaps d_y in part"},
        {train->d_y, train->d_y, NULL, "d_residual overlaps d_x"},
        {train->d_x, train->d_x + 4, NULL, "d_residual overlaps d_x"},
        {NULL, NULL, train->d_y, "the gradient of the up bias overlaps d_y"},
        {NULL, NULL, train->x + 2, "the gradient of the up bias overlaps x"},
        {NULL, NULL, train->residual, "the gradient of the up bias overlaps residual"},
        {train->d_x, NULL, train->d_x + TOKENS * WIDTH - 1, "the gradient of the up bias overlaps d_x"},
        {NULL, train->d_residual, train->d_residual, "the gradient of the up bias overlaps d_residual"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const ffn_tensor_t gradient = {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = cases[i].gradient, .shape = {D_FF}};
        ffn_backward_t backward = stage.right;
        backward.d_x = cases[i].d_x, backward.d_residual = cases[i].d_residual;
        backward.gradients = &gradient, backward.gradient_count = cases[i].gradient != NULL;
        refuse_backward(&stage, &backward, FFN_INVALID, cases[i].words, cases[i].words);
    }
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

static void wrong_gradients_are_refused(void **state)
{
    (void)state;
    stage_t stage;
    stage_make(&stage);
    float room[64];
    const struct {
        ffn_tensor_t tensor[2];
        uint64_t count;
        const char *words;
    } cases[] = {
        {{{.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = room, .shape = {D_FF, WIDTH}}}, 1, "the gate weight is not in this layer"},
        {{{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = room, .shape = {WIDTH, D_FF}}}, 1, "shape[0] of the up weight is 4|5"},
        {{{.role = FFN_ROLE_BRANCH_SCALE, .ndim = 1, .data = room, .shape = {WIDTH}}}, 1, "shape[0] of the branch scale is 4|1"},
        {{{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = room, .shape = {D_FF, WIDTH}, .stride = {4, 4}}}, 1, "share an address"},
        {{{.role = FFN_ROLE_UP_WEIGHT, .ndim = 1, .data = room, .shape = {D_FF}}}, 1, "ndim of the up weight"},
        {{{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = NULL, .shape = {D_FF}}}, 1, "data of the up bias is NULL"},
        {{{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = room, .shape = {D_FF}}, {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = room + 8, .shape = {D_FF}}},
         2, "the up bias is given twice"},
        {{{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = room, .shape = {D_FF}}, {.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = room + 4, .shape = {WIDTH}}},
         2, "overlap"},
        {{{.role = 63, .ndim = 1, .data = room, .shape = {D_FF}}}, 1, "role|63"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        ffn_backward_t backward = stage.right;
        backward.gradients = cases[i].tensor, backward.gradient_count = cases[i].count;
        refuse_backward(&stage, &backward, FFN_INVALID, cases[i].words, cases[i].words);
        const bool overlaps = cases[i].count == 2 || cases[i].tensor->stride[0];
        if (overlaps && cases[i].words[0] != 't') continue; /* what is read may overlap */
        forget_error();
        assert_refused(ffn_layer_update(stage.train.test.layer, NULL, cases[i].tensor, cases[i].count), FFN_INVALID, cases[i].words, "update");
    }
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

/* --------------------------------------------------------------------- Tapes */

static void a_tape_serves_once_and_for_its_layer_as_it_was(void **state)
{
    (void)state;
    stage_t stage, other;
    stage_make(&stage);
    stage_make(&other);
    ffn_tape_t *empty;
    assert_ok(ffn_tape_create(NULL, &empty));
    ffn_backward_t backward = stage.right;
    backward.tape = empty;
    refuse_backward(&stage, &backward, FFN_INVALID, "empty|ffn_layer_run", "an empty tape");
    backward.tape = other.tape;
    refuse_backward(&stage, &backward, FFN_INVALID, "another layer", "a foreign tape");
    assert_tape_still_good(&stage);
    forget_error();
    assert_refused(ffn_layer_backward(stage.train.test.layer, NULL, &stage.right), FFN_INVALID, "used up", "a used tape");

    assert_ok(ffn_layer_update(other.train.test.layer, NULL, NULL, 0));
    refuse_backward(&other, &other.right, FFN_INVALID, "updated after", "a tape from before an update");

    /* A layer at the address of a freed one is another layer. */
    train_forward(&other.train, NULL, other.tape);
    ffn_layer_free(other.train.test.layer);
    test_layer_create(&other.train.test);
    refuse_backward(&other, &other.right, FFN_INVALID, "another layer", "a tape of a freed layer");
    train_forward(&other.train, NULL, other.tape);
    assert_tape_still_good(&other);
    ffn_tape_free(empty);
    ffn_tape_free(NULL);
    stage_free(&stage);
    stage_free(&other);
}

static void wrong_tape_options_are_refused(void **state)
{
    (void)state;
    ffn_tape_options_t options = {.struct_size = sizeof options, .flags = 2};
    ffn_tape_t *tape = NOWHERE;
    stage_t stage;
    stage_make(&stage);
    assert_refused(ffn_tape_create(NULL, NULL), FFN_INVALID, "pointer to the tape is NULL", "no pointer");
    assert_refused(ffn_tape_create(&options, &tape), FFN_INVALID, "flags of the tape is 0x2", "flags");
    assert_null(tape);
    options = (ffn_tape_options_t){.struct_size = 3};
    assert_refused(ffn_tape_create(&options, &tape), FFN_INVALID, "struct_size", "size");
    assert_refused(ffn_tape_reserve(NULL, stage.train.test.layer, 1), FFN_INVALID, "tape is NULL", "no tape");
    assert_refused(ffn_tape_reserve(stage.tape, NULL, 1), FFN_INVALID, "layer is NULL", "no layer");
    assert_refused(ffn_tape_reserve(stage.tape, stage.train.test.layer, -1), FFN_INVALID, "tokens is -1", "tokens");
    assert_refused(ffn_tape_reserve(stage.tape, stage.train.test.layer, INT64_MAX), FFN_NO_MEMORY, "tape", "too many tokens");
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

/* ---------------------------------------------------------------------- Runs */

#define DROP(field, ...) PATCH(ffn_dropout_t, field, __VA_ARGS__)

static const refused_t dropout_cases[] = {
    {DROP(struct_size, 6), FFN_INVALID, "struct_size|ffn_dropout_t"},
    {DROP(broadcast, 16), FFN_INVALID, "broadcast|0x10"},
    {DROP(step, UINT64_C(1) << 32), FFN_INVALID, "step of the dropout is 4294967296"},
    {DROP(layer, 65535), FFN_INVALID, "layer of the dropout is 65535|65534"},
    {DROP(first_row, -1), FFN_INVALID, "first_row of the dropout is -1"},
    {DROP(first_row, (INT64_C(1) << 48) - 5), FFN_INVALID, "first_row|2^48"},
    {DROP(first_sequence, -2), FFN_INVALID, "first_sequence of the dropout is -2"},
    {DROP(first_sequence, INT64_MAX), FFN_INVALID, "first_sequence|2^48"},
    {DROP(p[0], NAN), FFN_INVALID, "p[PRE_ACTIVATION] of the dropout is|0 to 1"},
    {DROP(p[1], -0.1f), FFN_INVALID, "p[ACTIVATION]|-0.1"},
    {DROP(p[2], 1.1f), FFN_INVALID, "p[HIDDEN]|1.1"},
    {DROP(p[3], INFINITY), FFN_INVALID, "p[BRANCH]|inf"},
    {DROP(p[4], 2), FFN_INVALID, "p[PATH]|2"},
    {DROP(reserved, 4), FFN_INVALID, "reserved of the dropout is 4"},
};

static void wrong_dropout_is_refused(void **state)
{
    (void)state;
    stage_t stage;
    stage_make(&stage);
    train_t *train = &stage.train;
    memset(train->y, 0xff, TOKENS * WIDTH * sizeof(float));
    for (int64_t i = 0; i < COUNT_OF(dropout_cases); i++) {
        ffn_dropout_t dropout = {.struct_size = sizeof dropout, .p = {0.1f}};
        patch_apply(&dropout_cases[i].patch, &dropout);
        ffn_run_t run = {.struct_size = sizeof run, .batch = 2, .length = 3, .x = train->x, .y = train->y, .residual = train->residual,
                         .dropout = &dropout, .tape = stage.tape};
        forget_error();
        assert_refused(ffn_layer_run(train->test.layer, NULL, &run), dropout_cases[i].status, dropout_cases[i].words, dropout_cases[i].patch.text);
        for (int64_t k = 0; k < TOKENS * WIDTH; k++) assert_true(isnan(train->y[k]));
    }
    train_forward(train, NULL, NULL);
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

static void a_tape_refuses_runs_in_place(void **state)
{
    (void)state;
    stage_t stage;
    stage_make(&stage);
    train_t *train = &stage.train;
    ffn_run_t run = {.struct_size = sizeof run, .batch = 2, .length = 3, .x = train->x, .y = train->x, .residual = train->residual, .tape = stage.tape};
    assert_refused(ffn_layer_run(train->test.layer, NULL, &run), FFN_INVALID, "y overlaps x|borrows", "y in place of x");
    run.y = train->residual;
    assert_refused(ffn_layer_run(train->test.layer, NULL, &run), FFN_INVALID, "y overlaps residual|borrows", "y in place of the residual");
    assert_tape_still_good(&stage);
    stage_free(&stage);
}

static void only_trainable_layers_train(void **state)
{
    (void)state;
    stage_t stage;
    witness_t plain;
    stage_make(&stage);
    witness_make(&plain, &witness_case);
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout};
    ffn_layer_t *layer = plain.test.layer;
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 3, .x = plain.data.x, .y = plain.data.y, .tape = stage.tape};
    assert_refused(ffn_layer_run(layer, NULL, &run), FFN_UNSUPPORTED, "tape|FFN_LAYER_TRAINABLE", "a tape");
    run.tape = NULL, run.dropout = &dropout;
    assert_refused(ffn_layer_run(layer, NULL, &run), FFN_UNSUPPORTED, "dropout|FFN_LAYER_TRAINABLE", "dropout");
    assert_refused(ffn_layer_update(layer, NULL, NULL, 0), FFN_UNSUPPORTED, "FFN_LAYER_TRAINABLE", "update");
    assert_refused(ffn_tape_reserve(stage.tape, layer, 3), FFN_UNSUPPORTED, "FFN_LAYER_TRAINABLE", "reserve");
    assert_refused(ffn_layer_backward(layer, NULL, &stage.right), FFN_UNSUPPORTED, "FFN_LAYER_TRAINABLE", "backward");
    assert_still_right(&plain, NULL, "a layer that does not train");
    assert_refused(ffn_layer_update(NULL, NULL, NULL, 0), FFN_INVALID, "layer is NULL", "no layer");

    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(stage.train.test.layer, &info));
    assert_int_equal(info.flags, FFN_LAYER_TRAINABLE);
    witness_free(&plain);
    stage_free(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_are_refused_and_leave_the_tape),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(wrong_gradients_are_refused),
        cmocka_unit_test(a_tape_serves_once_and_for_its_layer_as_it_was),
        cmocka_unit_test(wrong_tape_options_are_refused),
        cmocka_unit_test(wrong_dropout_is_refused),
        cmocka_unit_test(a_tape_refuses_runs_in_place),
        cmocka_unit_test(only_trainable_layers_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
