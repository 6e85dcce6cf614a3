/* SPDX-License-Identifier: MIT
 *
 * Bad tensors given to ffn_layer_create: every field of ffn_tensor_t with every kind of bad value, for every role.
 */
#include "support/header.h"
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer in which every role is present and d_model, d_ff and d_out differ. */
static const layer_case_t whole_case = {
    .d_model = 5, .d_ff = 7, .d_out = 6, .activation = FFN_ACTIVATION_XIELU, .gated = true, .biases = BIAS_ALL,
    .residual = FFN_RESIDUAL_EXTERNAL, .branch_scale = SCALE_VECTOR, .residual_scale = SCALE_VECTOR,
    .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, true, 0, 0}, {FFN_NORM_LAYER, true, true, 0, 0},
             {FFN_NORM_AFFINE, true, true, 0, 0}},
    .seed = 77};

typedef struct fixture {
    witness_t witness;
    test_layer_t whole;
} fixture_t;

static fixture_t fixture;

/* The names that sentences have for the roles. */
static const char *const role_names[ROLES] = {
    [FFN_ROLE_UP_WEIGHT] = "the up weight", [FFN_ROLE_UP_BIAS] = "the up bias", [FFN_ROLE_GATE_WEIGHT] = "the gate weight",
    [FFN_ROLE_GATE_BIAS] = "the gate bias", [FFN_ROLE_DOWN_WEIGHT] = "the down weight", [FFN_ROLE_DOWN_BIAS] = "the down bias",
    [FFN_ROLE_NORM_IN_WEIGHT] = "the weight of norm IN", [FFN_ROLE_NORM_IN_BIAS] = "the bias of norm IN",
    [FFN_ROLE_NORM_MID_WEIGHT] = "the weight of norm MID", [FFN_ROLE_NORM_MID_BIAS] = "the bias of norm MID",
    [FFN_ROLE_NORM_BRANCH_WEIGHT] = "the weight of norm BRANCH", [FFN_ROLE_NORM_BRANCH_BIAS] = "the bias of norm BRANCH",
    [FFN_ROLE_NORM_OUT_WEIGHT] = "the weight of norm OUT", [FFN_ROLE_NORM_OUT_BIAS] = "the bias of norm OUT",
    [FFN_ROLE_BRANCH_SCALE] = "the branch scale", [FFN_ROLE_RESIDUAL_SCALE] = "the residual scale",
    [FFN_ROLE_XIELU_ALPHA_P] = "xielu's alpha_p", [FFN_ROLE_XIELU_ALPHA_N] = "xielu's alpha_n"};

/* What a case starts from: options with a tensor for every role and all sizes given, free to be spoilt. */
typedef struct given {
    ffn_tensor_t tensors[MAX_TENSORS];
    ffn_layer_options_t options;
} given_t;

static given_t *take(void)
{
    static given_t given;
    memcpy(given.tensors, fixture.whole.tensors, sizeof given.tensors);
    given.options = fixture.whole.options;
    given.options.tensors = given.tensors;
    given.options.d_model = whole_case.d_model;
    given.options.d_ff = whole_case.d_ff;
    given.options.d_out = whole_case.d_out;
    return &given;
}

static ffn_tensor_t *tensor_of(given_t *given, uint32_t role)
{
    for (uint64_t i = 0; i < given->options.tensor_count; i++)
        if (given->tensors[i].role == role) return &given->tensors[i];
    fail_msg("no tensor of role %u", role);
    return NULL;
}

static void check_create(const given_t *given, ffn_status_t status, const char *words, const char *what)
{
    given_t before = *given;
    ffn_layer_t *layer = NOWHERE;
    forget_error();
    ffn_status_t got = ffn_layer_create(NULL, &given->options, &layer);
    assert_memory_equal(&before, given, sizeof before);
    if (status == FFN_OK) {
        if (got != FFN_OK) fail_msg("%s: expected success, got %s: %s", what, ffn_status_name(got), ffn_last_error());
        ffn_layer_free(layer);
        return;
    }
    assert_refused(got, status, words, what);
    if (layer) fail_msg("%s: *layer is not NULL", what);
    assert_still_right(&fixture.witness, NULL, what);
}

/* Sets one field of the role's tensor and creates; `words` and the role's name are expected in the sentence. */
static void check_field(uint32_t role, const patch_t *patch, ffn_status_t status, const char *words)
{
    given_t *given = take();
    char all_words[160], what[160];
    patch_apply(patch, tensor_of(given, role));
    snprintf(all_words, sizeof all_words, "%s|%s", role_names[role], words);
    snprintf(what, sizeof what, "%s: %s", role_names[role], patch->text);
    check_create(given, status, all_words, what);
}

static void the_whole_layer_is_accepted(void **state)
{
    (void)state;
    int64_t roles = 0;
    for (int role = 0; role < ROLES; role++) roles += role_names[role] != NULL;
    assert_int_equal(fixture.whole.options.tensor_count, roles);
    check_create(take(), FFN_OK, "", "the whole layer");
}

/* ------------------------------------------------------------- fields, for every role */

typedef struct row {
    ffn_status_t status;
    const char *words;
    patch_t patch;
} row_t;

#define SET(...) PATCH(ffn_tensor_t, __VA_ARGS__)

static const row_t rows[] = {
    {FFN_INVALID, "expert|1|0", SET(expert, 1)},
    {FFN_INVALID, "expert|4294967295|0", SET(expert, UINT32_MAX)},
    {FFN_UNSUPPORTED, "dtype|1|FFN_DTYPE_F32", SET(dtype, 1)},
    {FFN_UNSUPPORTED, "dtype|4294967295|FFN_DTYPE_F32", SET(dtype, UINT32_MAX)},
    {FFN_INVALID, "ndim|0", SET(ndim, 0)},
    {FFN_INVALID, "ndim|4", SET(ndim, 4)},
    {FFN_INVALID, "ndim|4294967295", SET(ndim, UINT32_MAX)},
    {FFN_INVALID, "data|NULL", SET(data, NULL)},
    {FFN_INVALID, "data|multiple of 4", SET(data, (void *)65)},
    {FFN_INVALID, "data|multiple of 4", SET(data, (void *)66)},
    {FFN_INVALID, "data|multiple of 4", SET(data, (void *)67)},
    {FFN_INVALID, "shape[0]|0", SET(shape[0], 0)},
    {FFN_INVALID, "shape[0]|-1", SET(shape[0], -1)},
    {FFN_INVALID, "shape[0]|536870913", SET(shape[0], 536870913)},
    {FFN_INVALID, "shape[0]|9223372036854775807", SET(shape[0], INT64_MAX)},
    {FFN_INVALID, "shape[0]|-9223372036854775808", SET(shape[0], INT64_MIN)},
    {FFN_INVALID, "shape[2]|ndim", SET(shape[2], 1)},
    {FFN_INVALID, "shape[3]|ndim", SET(shape[3], -1)},
    {FFN_INVALID, "stride[2]|ndim", SET(stride[2], 4)},
    {FFN_INVALID, "stride[3]|ndim", SET(stride[3], INT64_MIN)},
    {FFN_UNSUPPORTED, "quant|NULL", SET(quant, NOWHERE)},
    {FFN_UNSUPPORTED, "reserved[0]|0", SET(reserved[0], 1)},
    {FFN_UNSUPPORTED, "reserved[1]|0", SET(reserved[1], UINT64_MAX)},
    {FFN_UNSUPPORTED, "reserved[2]|0", SET(reserved[2], UINT64_C(1) << 63)},
    {FFN_UNSUPPORTED, "reserved[3]|0", SET(reserved[3], 1)},
};

static void every_field_refuses_bad_values_for_every_role(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++)
        for (int64_t i = 0; role_names[role] && i < COUNT_OF(rows); i++) check_field(role, &rows[i].patch, rows[i].status, rows[i].words);
}

/* Of dimensions that have more than one element: the stride of a dimension of one is ignored. */
static const row_t stride_rows[] = {
    {FFN_INVALID, "stride[0]|multiple of 4", SET(stride[0], 1)},
    {FFN_INVALID, "stride[0]|-6|multiple of 4", SET(stride[0], -6)},
    {FFN_INVALID, "stride[0]|9223372036854775807|multiple of 4", SET(stride[0], INT64_MAX)},
    {FFN_INVALID, "strides|address space", SET(stride[0], INT64_MAX - 3)},
    {FFN_INVALID, "strides|address space", SET(stride[0], INT64_MIN)},
    {FFN_INVALID, "strides|address space", SET(stride[0], INT64_MIN + 4)},
    {FFN_INVALID, "strides|address space", SET(stride[0], -(INT64_C(1) << 47))},
};
static const row_t row_stride_rows[] = {
    {FFN_INVALID, "stride[1]|2|multiple of 4", SET(stride[1], 2)},
    {FFN_INVALID, "strides|address space", SET(stride[1], INT64_MAX - 3)},
    {FFN_INVALID, "strides|address space", SET(stride[1], INT64_MIN)},
    {FFN_INVALID, "shape[1]|0", SET(shape[1], 0)},
    {FFN_INVALID, "shape[1]|-1", SET(shape[1], -1)},
    {FFN_INVALID, "shape[1]|9223372036854775807", SET(shape[1], INT64_MAX)},
    {FFN_INVALID, "shape[1]|-9223372036854775808", SET(shape[1], INT64_MIN)},
    {FFN_INVALID, "strides|address space", SET(data, (void *)(UINTPTR_MAX - 15))},
};

static void strides_that_leave_the_address_space_are_refused(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++) {
        if (!role_names[role]) continue;
        const ffn_tensor_t *tensor = tensor_of(take(), role);
        for (int64_t i = 0; tensor->shape[0] > 1 && i < COUNT_OF(stride_rows); i++)
            check_field(role, &stride_rows[i].patch, stride_rows[i].status, stride_rows[i].words);
        for (int64_t i = 0; tensor->ndim == 2 && i < COUNT_OF(row_stride_rows); i++)
            check_field(role, &row_stride_rows[i].patch, row_stride_rows[i].status, row_stride_rows[i].words);
    }
}

/* One dimension more than the role has is a stack of experts, which a dense layer has none of. The sizes of the layer come from the tensors here,
 * and do not agree: what is wrong with one tensor is told first. */
static void wrong_numbers_of_dimensions_are_told_before_wrong_sizes(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++) {
        if (!role_names[role]) continue;
        for (uint32_t ndim = 1; ndim <= 3; ndim++) {
            given_t *given = take();
            ffn_tensor_t *tensor = tensor_of(given, role);
            uint32_t right = tensor->ndim;
            char words[100];
            if (ndim == right) continue;
            given->options.d_model = given->options.d_ff = given->options.d_out = 0;
            given->options.residual = FFN_RESIDUAL_INPUT;
            tensor->ndim = ndim;
            if (ndim < right) tensor->shape[ndim] = tensor->stride[ndim] = 0;
            if (ndim == right + 1) memmove(tensor->shape + 1, tensor->shape, 3 * sizeof *tensor->shape);
            if (ndim == right + 1) tensor->shape[0] = 8;
            snprintf(words, sizeof words, "ndim of %s is %u, must be %u", role_names[role], ndim, right);
            check_create(given, FFN_INVALID, words, words);
        }
    }
}

static void shapes_off_by_one_are_refused(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++) {
        if (!role_names[role]) continue;
        for (uint32_t i = 0; i < tensor_of(take(), role)->ndim; i++)
            for (int64_t by = -1; by <= 1; by += 2) {
                given_t *given = take();
                ffn_tensor_t *tensor = tensor_of(given, role);
                char words[100];
                snprintf(words, sizeof words, "shape[%u] of %s is %lld, must be %lld", i, role_names[role], (long long)(tensor->shape[i] + by),
                         (long long)tensor->shape[i]);
                tensor->shape[i] += by;
                check_create(given, FFN_INVALID, words, words);
            }
    }
}

/* ------------------------------------------------------------------- roles */

static void unknown_roles_are_refused(void **state)
{
    (void)state;
    static const uint32_t others[] = {64, 65, 255, 256, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
    for (int64_t i = 0; i < ROLES + COUNT_OF(others); i++) {
        uint32_t role = i < ROLES ? (uint32_t)i : others[i - ROLES];
        if (i < ROLES && role_names[i]) continue;
        given_t *given = take();
        char words[60];
        given->tensors[3].role = role;
        if (role >= FFN_ROLE_ROUTER_WEIGHT && role <= FFN_ROLE_LATENT_OUT_BIAS)
            snprintf(words, sizeof words, "no mixture");
        else
            snprintf(words, sizeof words, "role of tensors[3] is %u", role);
        check_create(given, FFN_INVALID, words, words);
    }
}

static void a_role_may_come_once(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++) {
        if (!role_names[role]) continue;
        given_t *given = take();
        char words[100];
        snprintf(words, sizeof words, "%s|twice|tensors[%llu]", role_names[role], (unsigned long long)given->options.tensor_count);
        given->tensors[given->options.tensor_count++] = *tensor_of(given, role);
        check_create(given, FFN_INVALID, words, words);
    }
}

static void required_roles_may_not_be_missing_and_others_may(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < ROLES; role++) {
        if (!role_names[role]) continue;
        given_t *given = take();
        *tensor_of(given, role) = given->tensors[given->options.tensor_count - 1];
        given->options.tensor_count--;
        if (role == FFN_ROLE_GATE_WEIGHT) {
            check_create(given, FFN_INVALID, "the gate bias|without a gate weight", "gate bias without gate weight");
            continue;
        }
        bool required = role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT || role >= FFN_ROLE_XIELU_ALPHA_P;
        char words[100];
        snprintf(words, sizeof words, "%s|missing", role_names[role]);
        check_create(given, required ? FFN_INVALID : FFN_OK, words, words);
    }
}

static void tensors_without_what_they_belong_to_are_refused(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < 4; slot++)
        for (uint32_t part = 0; part < 2; part++) { /* weight and bias alone */
            given_t *given = take();
            uint32_t role = FFN_ROLE_NORM_IN_WEIGHT + 2 * slot + part;
            char words[100];
            given->options.norm[slot] = FFN_NORM_NONE;
            *tensor_of(given, role ^ 1) = given->tensors[given->options.tensor_count - 1];
            given->options.tensor_count--;
            snprintf(words, sizeof words, "%s|none", role_names[role]);
            check_create(given, FFN_INVALID, words, words);
        }
    given_t *given = take();
    given->options.residual = FFN_RESIDUAL_NONE;
    check_create(given, FFN_INVALID, "the residual scale|none", "residual scale without residual");
    given = take();
    given->options.activation = FFN_ACTIVATION_MISH;
    check_create(given, FFN_INVALID, "xielu's alpha_p|another", "xielu's scalars without xielu");
}

/* -------------------------------------------------------------------- sizes */

typedef struct asked {
    int64_t times;
    uint64_t size, alignment;
} asked_t;

static void *refuse(void *user, uint64_t size, uint64_t alignment)
{
    asked_t *asked = user;
    *asked = (asked_t){asked->times + 1, size, alignment};
    return NULL;
}

static void release_nothing(void *user, void *memory, uint64_t size)
{
    (void)user, (void)memory, (void)size;
    fail_msg("memory was released that was never given");
}

/* The weights are not looked at before there is memory for them: there are none. */
static void the_largest_sizes_are_accepted_and_need_memory(void **state)
{
    (void)state;
    const int64_t most = 1 << 29;
    asked_t asked = {0, 0, 0};
    ffn_allocator_t allocator = {.struct_size = sizeof allocator, .user = &asked, .allocate = refuse, .release = release_nothing};
    given_t *given = take();
    given->options.allocator = &allocator;
    given->options.d_model = given->options.d_ff = given->options.d_out = 0;
    for (uint64_t i = 0; i < given->options.tensor_count; i++) {
        ffn_tensor_t *tensor = &given->tensors[i];
        for (uint32_t k = 0; k < tensor->ndim; k++)
            if (tensor->shape[k] > 1) tensor->shape[k] = most;
        tensor->data = NOWHERE;
        tensor->stride[0] = tensor->stride[1] = 0;
    }
    check_create(given, FFN_NO_MEMORY, "cannot allocate|bytes|layer", "the largest layer");
    assert_int_equal(asked.times, 1);
    assert_true(asked.size > 3 * 4 * (uint64_t)most * (uint64_t)most);
    assert_true(asked.alignment >= 64 && (asked.alignment & (asked.alignment - 1)) == 0);
}

static void strides_of_dimensions_of_one_element_are_not_looked_at(void **state)
{
    (void)state;
    static const int64_t strides[] = {1, -1, 2, 8, -8, INT64_MAX, INT64_MAX - 3, INT64_MIN, INT64_MIN + 4};
    layer_case_t is = whole_case;
    is.d_model = is.d_ff = is.d_out = 1;
    test_layer_t test;
    test_layer_make(&test, &is);
    for (int64_t i = 0; i < COUNT_OF(strides); i++)
        for (uint32_t dimensions = 1; dimensions < 4; dimensions++) {
            float values[MAX_TENSORS];
            ffn_tensor_t into[MAX_TENSORS];
            ffn_layer_t *layer;
            for (uint64_t k = 0; k < test.options.tensor_count; k++) {
                for (uint32_t d = 0; d < test.tensors[k].ndim; d++)
                    test.tensors[k].stride[d] = dimensions & (1u << d) ? strides[i] : 0;
                into[k] = test.tensors[k];
                into[k].data = &values[k];
            }
            assert_ok(ffn_layer_create(NULL, &test.options, &layer));
            assert_ok(ffn_layer_read(layer, into, test.options.tensor_count));
            for (uint64_t k = 0; k < test.options.tensor_count; k++) assert_memory_equal(&values[k], test.tensors[k].data, sizeof(float));
            ffn_layer_free(layer);
        }
    test_layer_free(&test);
}

/* "ndim" of "ndim = 4" */
static bool is_patched(const char *field)
{
    size_t length = strlen(field);
    for (int64_t i = 0; i < COUNT_OF(rows) + COUNT_OF(stride_rows); i++) {
        const char *text = i < COUNT_OF(rows) ? rows[i].patch.text : stride_rows[i - COUNT_OF(rows)].patch.text;
        if (strncmp(text, field, length) == 0 && strchr(" [", text[length])) return true;
    }
    return strcmp(field, "role") == 0;
}

static void no_field_of_a_tensor_is_left_out(void **state)
{
    (void)state;
    header_item_t tensor = header_struct("ffn_tensor_t");
    assert_int_equal(tensor.members, 9);
    for (int64_t i = 0; i < tensor.members; i++)
        if (!is_patched(tensor.member[i])) fail_msg("no bad value of %s is tried", tensor.member[i]);
}

static int set_up(void **state)
{
    (void)state;
    witness_make(&fixture.witness, &witness_case);
    test_layer_describe(&fixture.whole, &whole_case);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    witness_free(&fixture.witness);
    test_layer_free(&fixture.whole);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_layer_is_accepted),
        cmocka_unit_test(every_field_refuses_bad_values_for_every_role),
        cmocka_unit_test(strides_that_leave_the_address_space_are_refused),
        cmocka_unit_test(wrong_numbers_of_dimensions_are_told_before_wrong_sizes),
        cmocka_unit_test(shapes_off_by_one_are_refused),
        cmocka_unit_test(unknown_roles_are_refused),
        cmocka_unit_test(a_role_may_come_once),
        cmocka_unit_test(required_roles_may_not_be_missing_and_others_may),
        cmocka_unit_test(tensors_without_what_they_belong_to_are_refused),
        cmocka_unit_test(the_largest_sizes_are_accepted_and_need_memory),
        cmocka_unit_test(strides_of_dimensions_of_one_element_are_not_looked_at),
        cmocka_unit_test(no_field_of_a_tensor_is_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
