/* SPDX-License-Identifier: MIT
 *
 * Bad input to convolutional layers: each gets its status and its sentence, nothing is written, and layer and tape are as they were. And memory that
 * runs out anywhere.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/conv_case.h"
#include "support/failing_allocator.h"
#include "support/hostile.h"

enum { IN = 3, FF = 4, OUT = 5, BATCH = 2, LENGTH = 6 };

static const conv_case_t base = {.d_model = IN, .d_ff = FF, .d_out = OUT, .kernel = {3, 5}, .separable = {false, true}, .activation = FFN_ACTIVATION_RELU,
                                 .up_bias = true, .down_bias = true, .batch = BATCH, .length = LENGTH, .masked = true, .flags = FFN_CONV_TRAINABLE, .seed = 3};

typedef struct refused {
    patch_t patch;
    ffn_status_t status;
    const char *words;
} refused_t;

/* -------------------------------------------------------------------- Options */

#define OPTION(field, ...) PATCH(ffn_conv_options_t, field, __VA_ARGS__)

static const refused_t option_cases[] = {
    {OPTION(struct_size, 3), FFN_INVALID, "struct_size|ffn_conv_options_t"},
    {OPTION(flags, 2), FFN_INVALID, "flags is 0x2|FFN_CONV_TRAINABLE"},
    {OPTION(flags, 0x80000000u), FFN_INVALID, "flags is 0x80000000"},
    {OPTION(d_model, -1), FFN_INVALID, "d_model is -1|1"},
    {OPTION(d_model, 4), FFN_INVALID, "shape[1] of the up weight is 3|4 (d_model)"},
    {OPTION(d_model, INT64_MAX), FFN_INVALID, "d_model is 9223372036854775807|536870912"},
    {OPTION(d_ff, -7), FFN_INVALID, "d_ff is -7|1"},
    {OPTION(d_ff, 5), FFN_INVALID, "shape[0] of the up weight is 4|5 (d_ff)"},
    {OPTION(d_out, 536870913), FFN_INVALID, "d_out is 536870913|536870912"},
    {OPTION(d_out, 4), FFN_INVALID, "shape[0] of the down weight is 5|4 (d_out)"},
    {OPTION(kernel_size, -3), FFN_INVALID, "kernel_size is -3|1"},
    {OPTION(kernel_size, 1025), FFN_INVALID, "kernel_size is 1025|1024"},
    {OPTION(kernel_size, 1), FFN_INVALID, "shape[2] of the up weight is 3|1"},
    {OPTION(kernel_size, 9), FFN_INVALID, "shape[2] of the up weight is 3|9 (kernel_size)"},
    {OPTION(second_kernel_size, INT64_MIN), FFN_INVALID, "second_kernel_size is -9223372036854775808|1"},
    {OPTION(second_kernel_size, 3), FFN_INVALID, "shape[1] of the down taps is 5|3 (second_kernel_size)"},
    {OPTION(padding, 2), FFN_INVALID, "padding is 2|FFN_CONV_SAME|1"},
    {OPTION(mask, 2), FFN_INVALID, "mask is 2|FFN_CONV_MASK_|1"},
    {OPTION(activation, 0), FFN_INVALID, "activation is not set"},
    {OPTION(activation, 20), FFN_INVALID, "activation is 20"},
    {OPTION(activation, FFN_ACTIVATION_XIELU), FFN_INVALID, "alpha_p is missing"},
    {OPTION(alpha, 1), FFN_INVALID, "alpha"},
    {OPTION(alpha, NAN), FFN_INVALID, "alpha"},
    {OPTION(beta, INFINITY), FFN_INVALID, "beta"},
    {OPTION(engine, 3), FFN_INVALID, "engine is 3"},
    {OPTION(engine, FFN_ENGINE_NATIVE), FFN_UNSUPPORTED, "native|FFN_CONV_TRAINABLE|blas"},
    {OPTION(max_isa, 4), FFN_INVALID, "max_isa is 4"},
    {OPTION(reserved, 1), FFN_INVALID, "reserved is 1"},
    {OPTION(tensors, NULL), FFN_INVALID, "tensors is NULL"},
    {OPTION(tensor_count, 0), FFN_INVALID, "the up weight is missing"},
    {OPTION(tensor_count, 64), FFN_INVALID, "tensor_count is 64|63"},
    {OPTION(allocator, &(ffn_allocator_t){.struct_size = sizeof(ffn_allocator_t)}), FFN_INVALID, "allocat"},
};

static void refuse_create(const ffn_conv_options_t *options, ffn_status_t status, const char *words, const char *what)
{
    ffn_conv_t *conv = NOWHERE;
    forget_error();
    assert_refused(ffn_conv_create(NULL, options, &conv), status, words, what);
    assert_null(conv);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    conv_test_t test;
    conv_test_describe(&test, &base);
    for (int64_t i = 0; i < COUNT_OF(option_cases); i++) {
        ffn_conv_options_t options = test.options;
        patch_apply(&option_cases[i].patch, &options);
        refuse_create(&options, option_cases[i].status, option_cases[i].words, option_cases[i].patch.text);
    }
    refuse_create(NULL, FFN_INVALID, "ffn_conv_options_t is NULL", "no options");
    assert_refused(ffn_conv_create(NULL, &test.options, NULL), FFN_INVALID, "pointer|NULL", "no pointer");
    conv_test_free(&test);
}

typedef struct refused_tensor {
    uint32_t role;
    patch_t patch;
    ffn_status_t status;
    const char *words;
} refused_tensor_t;

#define TENSOR(field, ...) PATCH(ffn_tensor_t, field, __VA_ARGS__)

static const refused_tensor_t tensor_cases[] = {
    {FFN_ROLE_UP_WEIGHT, TENSOR(role, 0), FFN_INVALID, "role of tensors[0] is 0"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(role, FFN_ROLE_GATE_WEIGHT), FFN_INVALID, "role of tensors[0] is 3|convolutional"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(role, 64), FFN_INVALID, "role of tensors[0] is 64"},
    {FFN_ROLE_UP_BIAS, TENSOR(role, FFN_ROLE_DOWN_BIAS), FFN_INVALID, "the down bias is given twice"},
    {FFN_ROLE_UP_BIAS, TENSOR(role, FFN_ROLE_XIELU_ALPHA_N), FFN_INVALID, "alpha_n is given"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(expert, 1), FFN_INVALID, "expert of the up weight is 1"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(dtype, 1), FFN_UNSUPPORTED, "dtype of the up weight is 1"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(ndim, 4), FFN_INVALID, "ndim of the up weight is 4|2 or 3"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(ndim, 2), FFN_INVALID, "shape[2]|the up weight|ndim is 2"},
    {FFN_ROLE_DOWN_TAPS, TENSOR(ndim, 1), FFN_INVALID, "ndim of the down taps is 1|2"},
    {FFN_ROLE_UP_BIAS, TENSOR(ndim, 3), FFN_INVALID, "ndim of the up bias is 3|1"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(data, NULL), FFN_INVALID, "data of the up weight is NULL"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(data, (void *)66), FFN_INVALID, "data of the up weight|multiple of 4"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(shape[3], 1), FFN_INVALID, "shape[3]|the up weight"},
    {FFN_ROLE_DOWN_WEIGHT, TENSOR(shape[1], 5), FFN_INVALID, "shape[1] of the down weight is 5|4 (d_ff)"},
    {FFN_ROLE_DOWN_WEIGHT, TENSOR(shape[2], 3), FFN_INVALID, "shape[2] of the down weight is 3|1"},
    {FFN_ROLE_DOWN_TAPS, TENSOR(shape[0], 3), FFN_INVALID, "shape[0] of the down taps is 3|4 (d_ff)"},
    {FFN_ROLE_DOWN_TAPS, TENSOR(shape[1], 0), FFN_INVALID, "second_kernel_size is 0|1"},
    {FFN_ROLE_UP_BIAS, TENSOR(shape[0], 5), FFN_INVALID, "shape[0] of the up bias is 5|4 (d_ff)"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(stride[0], 6), FFN_INVALID, "stride[0] of the up weight is 6|multiple of 4"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(stride[2], INT64_MAX - 3), FFN_INVALID, "the strides of the up weight reach beyond"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(quant, NOWHERE), FFN_UNSUPPORTED, "quant of the up weight"},
    {FFN_ROLE_UP_WEIGHT, TENSOR(reserved[2], 1), FFN_UNSUPPORTED, "reserved[2] of the up weight"},
};

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    conv_test_t test;
    conv_test_describe(&test, &base);
    for (int64_t i = 0; i < COUNT_OF(tensor_cases); i++) {
        ffn_tensor_t *tensor = conv_test_view(&test, tensor_cases[i].role), kept = *tensor;
        patch_apply(&tensor_cases[i].patch, tensor);
        refuse_create(&test.options, tensor_cases[i].status, tensor_cases[i].words, tensor_cases[i].patch.text);
        *tensor = kept;
    }
    /* Taps that are only numbers in an option. */
    ffn_tensor_t *taps = conv_test_view(&test, FFN_ROLE_DOWN_TAPS), without[CONV_TENSORS];
    uint64_t count = 0;
    for (uint64_t i = 0; i < test.tensor_count; i++)
        if (&test.tensors[i] != taps) without[count++] = test.tensors[i];
    ffn_conv_options_t options = test.options;
    options.tensors = without, options.tensor_count = count, options.second_kernel_size = 5;
    for (uint64_t i = 0; i < count; i++)
        if (without[i].role == FFN_ROLE_DOWN_WEIGHT && without[i].ndim == 3) without[i].ndim = 2, without[i].shape[2] = without[i].stride[2] = 0;
    refuse_create(&options, FFN_INVALID, "ndim of the down weight is 2|3|5 taps", "taps without a tensor");
    /* Too deep a product: nothing of these tensors is read. */
    ffn_tensor_t deep[2] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = NOWHERE, .shape = {1, 1 << 29, 1024}},
                            {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = NOWHERE, .shape = {1, 1}}};
    options.tensors = deep, options.tensor_count = 2, options.second_kernel_size = 0;
    refuse_create(&options, FFN_INVALID, "kernel_size is 1024|536870912 inputs|1073741824", "depth");
    conv_test_free(&test);
}

/* ------------------------------------------------------------------------- Run */

/* y holds NaN before; a refused run leaves it so. */
static void refuse_run(conv_test_t *test, const ffn_conv_run_t *run, ffn_status_t status, const char *words, const char *what)
{
    forget_error();
    assert_refused(ffn_conv_run(test->conv, NULL, run), status, words, what);
    for (int64_t i = 0; i < test->y_floats; i++)
        if (!isnan(test->y[i])) fail_msg("%s: y was written", what);
}

#define RUN(field, ...) PATCH(ffn_conv_run_t, field, __VA_ARGS__)

static const refused_t run_cases[] = {
    {RUN(struct_size, 7), FFN_INVALID, "struct_size|ffn_conv_run_t"},
    {RUN(flags, 1), FFN_INVALID, "flags of the run is 1"},
    {RUN(batch, -1), FFN_INVALID, "batch is -1"},
    {RUN(length, -2), FFN_INVALID, "length is -2"},
    {RUN(length, INT64_MAX), FFN_INVALID, "2^63 positions"},
    {RUN(x, NULL), FFN_INVALID, "x is NULL"},
    {RUN(y, NULL), FFN_INVALID, "y is NULL"},
    {RUN(x, (void *)66), FFN_INVALID, "x is not at a multiple of 4"},
    {RUN(y, (void *)67), FFN_INVALID, "y is not at a multiple of 4"},
    {RUN(x_stride[1], 8), FFN_INVALID, "row stride of x is 8|12"},
    {RUN(y_stride[0], -4), FFN_INVALID, "sequence stride of y is -4"},
    {RUN(mask, NULL), FFN_INVALID, "mask_stride is 9|mask is NULL"},
    {RUN(mask_stride, 5), FFN_INVALID, "mask_stride is 5|6 (length)"},
    {RUN(mask_stride, -6), FFN_INVALID, "mask_stride is -6"},
    {RUN(mask_stride, INT64_MAX), FFN_INVALID, "mask reach beyond"},
    {RUN(x_dtype, 1), FFN_UNSUPPORTED, "dtype of x is 1"},
    {RUN(y_dtype, 2), FFN_UNSUPPORTED, "dtype of y is 2"},
};

static void wrong_runs_are_refused(void **state)
{
    (void)state;
    conv_test_t test;
    conv_test_make(&test, &base);
    for (int64_t i = 0; i < COUNT_OF(run_cases); i++) {
        ffn_conv_run_t run = conv_test_run(&test, NULL);
        patch_apply(&run_cases[i].patch, &run);
        refuse_run(&test, &run, run_cases[i].status, run_cases[i].words, run_cases[i].patch.text);
    }
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout, .p = {0, NAN}};
    ffn_conv_run_t run = conv_test_run(&test, NULL);
    run.dropout = &dropout;
    refuse_run(&test, &run, FFN_INVALID, "p[ACTIVATION]|nan", "a p that is no number");
    run = conv_test_run(&test, NULL);
    run.y = (float *)(uintptr_t)run.x + 1;
    refuse_run(&test, &run, FFN_INVALID, "y overlaps x", "y in x");
    run.y = (void *)(uintptr_t)run.x;
    refuse_run(&test, &run, FFN_INVALID, "y overlaps x", "y is x");
    run = conv_test_run(&test, NULL);
    run.mask = (const uint8_t *)test.y, run.mask_stride = 0;
    refuse_run(&test, &run, FFN_INVALID, "y overlaps mask", "mask in y");
    refuse_run(&test, NULL, FFN_INVALID, "ffn_conv_run_t is NULL", "no run");
    assert_refused(ffn_conv_run(NULL, NULL, &run), FFN_INVALID, "conv is NULL", "no layer");
    conv_test_forward(&test, NULL);
    assert_conv_as_oracle(&test);
    conv_test_free(&test);
}

static void what_only_a_trainable_layer_has_is_refused(void **state)
{
    (void)state;
    conv_case_t is = base;
    conv_test_t test;
    ffn_tape_t *tape;
    is.flags = 0;
    conv_test_make(&test, &is);
    assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_dropout_t dropout = {.struct_size = sizeof dropout};
    ffn_conv_run_t run = conv_test_run(&test, tape);
    refuse_run(&test, &run, FFN_UNSUPPORTED, "tape|FFN_CONV_TRAINABLE", "a tape");
    run.tape = NULL, run.dropout = &dropout;
    refuse_run(&test, &run, FFN_UNSUPPORTED, "dropout|FFN_CONV_TRAINABLE", "dropout");
    const ffn_backward_t backward = conv_test_backward(&test, tape);
    assert_refused(ffn_conv_backward(test.conv, NULL, &backward), FFN_UNSUPPORTED, "FFN_CONV_TRAINABLE", "backward");
    assert_refused(ffn_conv_update(test.conv, NULL, test.tensors, 1), FFN_UNSUPPORTED, "FFN_CONV_TRAINABLE", "update");
    assert_refused(ffn_conv_reserve(test.conv, NULL, tape, 1, 1), FFN_UNSUPPORTED, "tape|FFN_CONV_TRAINABLE", "reserve");
    ffn_tape_free(tape);
    conv_test_free(&test);
}

/* -------------------------------------------------------------------- Backward */

static void refuse_backward(conv_test_t *test, const ffn_backward_t *backward, const char *words, const char *what)
{
    forget_error();
    const ffn_status_t status = ffn_conv_backward(test->conv, NULL, backward);
    assert_refused(status, strstr(words, "dtype") ? FFN_UNSUPPORTED : FFN_INVALID, words, what);
    for (int64_t i = 0; i < test->x_floats; i++)
        if (!isnan(test->d_x[i])) fail_msg("%s: d_x was written", what);
    for (int role = 1; role < CONV_ROLES; role++) {
        if (!test->plain[role]) continue;
        float *gradient = conv_test_gradient(test, role);
        for (int64_t i = 0; i < conv_oracle_elements(&test->oracle, role); i++)
            if (!isnan(gradient[i])) fail_msg("%s: the gradient of role %d was written", what, role);
        free(gradient);
    }
}

#define BACK(field, ...) PATCH(ffn_backward_t, field, __VA_ARGS__)

static const refused_t backward_cases[] = {
    {BACK(struct_size, 5), FFN_INVALID, "struct_size|ffn_backward_t"},
    {BACK(flags, 2), FFN_INVALID, "flags|0x2"},
    {BACK(tape, NULL), FFN_INVALID, "tape is NULL"},
    {BACK(d_y, NULL), FFN_INVALID, "d_y is NULL"},
    {BACK(d_y, (void *)66), FFN_INVALID, "d_y is not at a multiple of 4"},
    {BACK(d_x, (void *)66), FFN_INVALID, "d_x is not at a multiple of 4"},
    {BACK(d_residual, NOWHERE), FFN_INVALID, "d_residual is given|no residual"},
    {BACK(moe, NOWHERE), FFN_INVALID, "moe of the backward pass is given|no mixture of experts"},
    {BACK(d_x_stride[1], 8), FFN_INVALID, "row stride of d_x is 8|12"},
    {BACK(d_y_dtype, 1), FFN_UNSUPPORTED, "dtype of d_y is 1"},
    {BACK(d_x_dtype, 9), FFN_UNSUPPORTED, "dtype of d_x is 9"},
    {BACK(d_residual_dtype, 7), FFN_UNSUPPORTED, "dtype of d_residual is 7"},
    {BACK(reserved, 1), FFN_INVALID, "reserved"},
    {BACK(gradients, NULL), FFN_INVALID, "tensors is NULL"},
    {BACK(gradient_count, 64), FFN_INVALID, "64"},
};

static void wrong_backward_passes_are_refused_and_leave_the_tape(void **state)
{
    (void)state;
    conv_test_t test;
    ffn_tape_t *tape;
    conv_test_make(&test, &base);
    assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_backward_t right = conv_test_backward(&test, tape);
    refuse_backward(&test, &right, "the tape is empty", "an empty tape");
    const ffn_conv_run_t run = conv_test_run(&test, tape);
    assert_ok(ffn_conv_run(test.conv, NULL, &run));
    for (int64_t i = 0; i < COUNT_OF(backward_cases); i++) {
        ffn_backward_t backward = right;
        patch_apply(&backward_cases[i].patch, &backward);
        refuse_backward(&test, &backward, backward_cases[i].words, backward_cases[i].patch.text);
    }
    refuse_backward(&test, NULL, "ffn_backward_t is NULL", "no struct");
    assert_refused(ffn_conv_backward(NULL, NULL, &right), FFN_INVALID, "conv is NULL", "no layer");
    const struct {
        ffn_tensor_t gradient;
        float *d_x;
        const char *words;
    } cases[] = {
        {{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = test.d_y, .shape = {FF}}, NULL, "the gradient of the up bias overlaps d_y"},
        {{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = test.x + 2, .shape = {FF}}, NULL, "the gradient of the up bias overlaps x"},
        {{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = test.d_x + BATCH * LENGTH * IN - FF, .shape = {FF}}, test.d_x, "the up bias overlaps d_x"},
        {{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = test.mask, .shape = {FF}}, NULL, "the gradient of the up bias overlaps mask"},
        {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = test.d_y, .shape = {FF, IN, 3}}, NULL, "the gradient of the up weight overlaps d_y"},
        {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = test.gradient[FFN_ROLE_UP_WEIGHT], .shape = {FF, IN, 3}, .stride = {12 * IN, 4, 4}}, NULL,
         "the strides of the up weight let elements share an address"},
        {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 3, .data = test.gradient[FFN_ROLE_UP_WEIGHT], .shape = {FF, IN, 2}}, NULL, "shape[2] of the up weight is 2|3"},
        {{.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = test.gradient[FFN_ROLE_UP_BIAS], .shape = {3}}, NULL, "shape[0] of the up bias is 3|4"},
        {{.role = FFN_ROLE_UP_TAPS, .ndim = 2, .data = test.gradient[FFN_ROLE_UP_BIAS], .shape = {IN, 1}}, NULL, "the up taps is not in this layer"},
        {{.role = FFN_ROLE_GATE_BIAS, .ndim = 1, .data = test.gradient[FFN_ROLE_UP_BIAS], .shape = {FF}}, NULL, "role of tensors[0] is 4"},
        {{0}, test.d_y + 4, "d_x overlaps d_y"},
        {{0}, test.d_y, "d_x overlaps d_y"},
        {{0}, test.x + IN, "d_x overlaps x"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        ffn_backward_t backward = right;
        backward.gradients = &cases[i].gradient, backward.gradient_count = cases[i].gradient.role != 0, backward.d_x = cases[i].d_x;
        refuse_backward(&test, &backward, cases[i].words, cases[i].words);
    }
    ffn_tensor_t two[2] = {test.gradients[0], test.gradients[1]};
    two[1].data = (float *)two[0].data + 3;
    ffn_backward_t overlapping = right;
    overlapping.gradients = two, overlapping.gradient_count = 2;
    refuse_backward(&test, &overlapping, "the views of the up weight and the down weight overlap", "two gradients");
    assert_ok(ffn_conv_backward(test.conv, NULL, &right));
    assert_conv_trained_as_oracle(&test);
    ffn_tape_free(tape);
    conv_test_free(&test);
}

/* Tapes know whose they are, position-wise layers among them. */
static void a_foreign_tape_is_refused(void **state)
{
    (void)state;
    conv_test_t one, other;
    ffn_tape_t *tape;
    conv_test_make(&one, &base);
    conv_test_make(&other, &base);
    assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_conv_run_t run = conv_test_run(&one, tape);
    const ffn_backward_t backward = conv_test_backward(&other, tape);
    assert_ok(ffn_conv_run(one.conv, NULL, &run));
    refuse_backward(&other, &backward, "recorded by a run of another layer", "another convolutional layer's tape");
    conv_case_t flat = base;
    flat.kernel[0] = flat.kernel[1] = 1, flat.separable[1] = false, flat.masked = false, flat.seed = 4;
    conv_test_t wise;
    conv_test_make(&wise, &flat);
    ffn_layer_options_t options = {.struct_size = sizeof options, .flags = FFN_LAYER_TRAINABLE, .activation = flat.activation, .tensors = wise.tensors,
                                   .tensor_count = wise.tensor_count};
    ffn_layer_t *layer;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    assert_refused(ffn_layer_backward(layer, NULL, &backward), FFN_INVALID, "recorded by a run of another layer", "a convolutional layer's tape");
    const ffn_run_t position_wise = {.struct_size = sizeof position_wise, .batch = BATCH, .length = LENGTH, .x = wise.x, .y = wise.y, .tape = tape};
    assert_ok(ffn_layer_run(layer, NULL, &position_wise));
    const ffn_backward_t back = conv_test_backward(&wise, tape);
    refuse_backward(&wise, &back, "recorded by a run of another layer", "a layer's tape");
    ffn_layer_free(layer);
    ffn_tape_free(tape);
    conv_test_free(&wise), conv_test_free(&one), conv_test_free(&other);
}

/* ------------------------------------------------------------------------ Rest */

static void the_other_functions_refuse_bad_values(void **state)
{
    (void)state;
    conv_test_t test;
    conv_test_make(&test, &base);
    ffn_conv_info_t info = {.struct_size = sizeof info};
    ffn_tensor_t same[2] = {test.gradients[0], test.gradients[0]};
    ffn_tensor_t wrong = {.role = FFN_ROLE_DOWN_TAPS, .ndim = 2, .data = test.gradient[FFN_ROLE_DOWN_TAPS], .shape = {FF, 3}};
    ffn_conv_free(NULL);
    assert_refused(ffn_conv_info(NULL, &info), FFN_INVALID, "conv is NULL", "info");
    assert_refused(ffn_conv_info(test.conv, NULL), FFN_INVALID, "ffn_conv_info_t is NULL", "info");
    assert_refused(ffn_conv_read(NULL, NULL, 0), FFN_INVALID, "conv is NULL", "read");
    assert_refused(ffn_conv_read(test.conv, NULL, 1), FFN_INVALID, "tensors is NULL", "read");
    assert_refused(ffn_conv_read(test.conv, same, 2), FFN_INVALID, "given twice", "read");
    assert_refused(ffn_conv_read(test.conv, &wrong, 1), FFN_INVALID, "shape[1] of the down taps is 3|5", "read");
    assert_refused(ffn_conv_update(NULL, NULL, NULL, 0), FFN_INVALID, "conv is NULL", "update");
    assert_refused(ffn_conv_update(test.conv, NULL, &wrong, 1), FFN_INVALID, "shape[1] of the down taps is 3|5", "update");
    assert_refused(ffn_conv_reserve(NULL, NULL, NULL, 1, 1), FFN_INVALID, "conv is NULL", "reserve");
    assert_refused(ffn_conv_reserve(test.conv, NULL, NULL, -1, 1), FFN_INVALID, "batch is -1", "reserve");
    assert_refused(ffn_conv_reserve(test.conv, NULL, NULL, 1, -1), FFN_INVALID, "length is -1", "reserve");
    assert_refused(ffn_conv_reserve(test.conv, NULL, NULL, INT64_MAX, 2), FFN_INVALID, "2^63 positions", "reserve");
    assert_ok(ffn_conv_reserve(test.conv, NULL, NULL, 1, INT64_MAX));
    assert_ok(ffn_conv_update(test.conv, NULL, NULL, 0));
    conv_test_free(&test);
}

/* A layer's own taps stay out of a position-wise layer. */
static void a_position_wise_layer_has_no_taps(void **state)
{
    (void)state;
    conv_case_t is = base;
    conv_test_t test;
    is.kernel[0] = 1, is.seed = 4;
    conv_test_describe(&test, &is);
    const ffn_layer_options_t options = {.struct_size = sizeof options, .activation = is.activation, .tensors = test.tensors,
                                         .tensor_count = test.tensor_count};
    ffn_layer_t *layer = NOWHERE;
    assert_refused(ffn_layer_create(NULL, &options, &layer), FFN_INVALID, "role of tensors|61", "taps");
    assert_null(layer);
    conv_test_free(&test);
}

/* ---------------------------------------------------------------------- Memory */

/* A whole life, each step of which is repeated with memory if it fails without, and is then right. Returns whether one failed. */
static bool live(int64_t n, bool and_all_after)
{
    failing_allocator_t allocator;
    conv_test_t test;
    ffn_context_t *context = NULL;
    ffn_tape_t *tape = NULL;
    bool failed = false;
    failing_allocator_init(&allocator);
    conv_test_describe(&test, &base);
    test.options.allocator = &allocator.hook;
    const ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 2, .allocator = &allocator.hook};
    const ffn_tape_options_t tape_options = {.struct_size = sizeof tape_options, .allocator = &allocator.hook};
    failing_allocator_arm(&allocator, n, and_all_after);
    for (int step = 0; step < 6; step++) {
        const int64_t held = allocator.held;
        ffn_status_t status;
        for (int attempt = 0; attempt < 2; attempt++) {
            const ffn_conv_run_t run = conv_test_run(&test, tape);
            const ffn_backward_t backward = conv_test_backward(&test, tape);
            forget_error();
            status = step == 0   ? ffn_context_create(&context_options, &context)
                     : step == 1 ? ffn_conv_create(context, &test.options, &test.conv)
                     : step == 2 ? ffn_tape_create(&tape_options, &tape)
                     : step == 3 ? ffn_conv_run(test.conv, context, &run)
                     : step == 4 ? ffn_conv_backward(test.conv, context, &backward)
                                 : ffn_conv_reserve(test.conv, context, tape, 40, 40);
            if (!status) break;
            assert_refused(status, FFN_NO_MEMORY, "cannot allocate|bytes for", "a step without memory");
            assert_int_equal(attempt, 0);
            if (step < 3) assert_int_equal(allocator.held, held);
            failing_allocator_disarm(&allocator);
            failed = true;
        }
        assert_int_equal(status, FFN_OK);
    }
    assert_conv_trained_as_oracle(&test);
    ffn_tape_free(tape);
    conv_test_free(&test);
    ffn_context_free(context);
    assert_int_equal(allocator.held, 0);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int and_all_after = 0; and_all_after < 2; and_all_after++) {
        int64_t n = 1;
        while (live(n, and_all_after)) n++;
        assert_true(n - 1 >= 8); /* context, pool, layer, tape, scratch twice, the tape's room twice; scratch of reserve */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_tensors_are_refused),
        cmocka_unit_test(wrong_runs_are_refused),
        cmocka_unit_test(what_only_a_trainable_layer_has_is_refused),
        cmocka_unit_test(wrong_backward_passes_are_refused_and_leave_the_tape),
        cmocka_unit_test(a_foreign_tape_is_refused),
        cmocka_unit_test(the_other_functions_refuse_bad_values),
        cmocka_unit_test(a_position_wise_layer_has_no_taps),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
