/* SPDX-License-Identifier: MIT
 *
 * Bad values in every field of ffn_layer_options_t and of ffn_allocator_t, but for the tensors themselves (test_errors_tensors.c).
 */
#include "support/header.h"
#include "support/hostile.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The options that a row changes. */
typedef enum base { DENSE, GATED, XIELU, BASES } base_t;

static const layer_case_t bases[BASES] = {
    [DENSE] = {.d_model = 5, .d_ff = 7, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT, .seed = 1},
    [GATED] = {.d_model = 5, .d_ff = 7, .activation = FFN_ACTIVATION_SWISH, .gated = true, .residual = FFN_RESIDUAL_INPUT, .seed = 2},
    [XIELU] = {.d_model = 5, .d_ff = 7, .activation = FFN_ACTIVATION_XIELU, .seed = 3},
};

static void *refuse_to_allocate(void *user, uint64_t size, uint64_t alignment)
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

#define ALLOCATOR(size, reserved, allocate, release) (&(const ffn_allocator_t){size, reserved, NULL, allocate, release})
#define WHOLE sizeof(ffn_allocator_t)

static const ffn_moe_options_t no_moe; /* what is in one is test_moe_errors.c's */

typedef struct row {
    base_t base;
    ffn_status_t status;
    const char *words;
    patch_t patch[3];
} row_t;

#define SET(...) PATCH(ffn_layer_options_t, __VA_ARGS__)

static const row_t rows[] = {
    {DENSE, FFN_OK, "", {SET(flags, 0)}},
    {DENSE, FFN_INVALID, "FFN_LAYER_TANH_BRANCH_SCALE|branch scale", {SET(flags, FFN_LAYER_TANH_BRANCH_SCALE)}},
    {DENSE, FFN_INVALID, "FFN_LAYER_TANH_RESIDUAL_SCALE|residual scale", {SET(flags, FFN_LAYER_TANH_RESIDUAL_SCALE)}},

    {DENSE, FFN_OK, "", {SET(d_model, 5), SET(d_ff, 7), SET(d_out, 5)}},
    {DENSE, FFN_INVALID, "d_model|-1|at least 1", {SET(d_model, -1)}},
    {DENSE, FFN_INVALID, "d_model|-9223372036854775808|at least 1", {SET(d_model, INT64_MIN)}},
    {DENSE, FFN_INVALID, "d_model|536870913|at most 536870912", {SET(d_model, 536870913)}},
    {DENSE, FFN_INVALID, "d_model|9223372036854775807|at most 536870912", {SET(d_model, INT64_MAX)}},
    {DENSE, FFN_INVALID, "d_out|5|4 (d_model)", {SET(d_model, 4)}},
    {XIELU, FFN_INVALID, "shape[1] of the up weight|5|4 (d_model)", {SET(d_model, 4)}},
    {XIELU, FFN_INVALID, "shape[1] of the up weight|5|536870912 (d_model)", {SET(d_model, 536870912)}},
    {DENSE, FFN_INVALID, "d_ff|-1|at least 1", {SET(d_ff, -1)}},
    {DENSE, FFN_INVALID, "d_ff|-9223372036854775808|at least 1", {SET(d_ff, INT64_MIN)}},
    {DENSE, FFN_INVALID, "d_ff|536870913|at most 536870912", {SET(d_ff, 536870913)}},
    {DENSE, FFN_INVALID, "d_ff|9223372036854775807|at most 536870912", {SET(d_ff, INT64_MAX)}},
    {DENSE, FFN_INVALID, "shape[0] of the up weight|7|6 (d_ff)", {SET(d_ff, 6)}},
    {DENSE, FFN_INVALID, "shape[0] of the up weight|7|8 (d_ff)", {SET(d_ff, 8)}},
    {DENSE, FFN_INVALID, "d_out|-1|at least 1", {SET(d_out, -1)}},
    {DENSE, FFN_INVALID, "d_out|-9223372036854775808|at least 1", {SET(d_out, INT64_MIN)}},
    {DENSE, FFN_INVALID, "d_out|536870913|at most 536870912", {SET(d_out, 536870913)}},
    {DENSE, FFN_INVALID, "d_out|9223372036854775807|at most 536870912", {SET(d_out, INT64_MAX)}},
    {DENSE, FFN_INVALID, "d_out|6|5 (d_model)|residual", {SET(d_out, 6)}},
    {DENSE, FFN_INVALID, "d_out|4|5 (d_model)|residual", {SET(d_out, 4), SET(residual, FFN_RESIDUAL_NORMED)}},
    {XIELU, FFN_INVALID, "shape[0] of the down weight|5|6 (d_out)", {SET(d_out, 6)}},

    {DENSE, FFN_INVALID, "activation|not set", {SET(activation, FFN_ACTIVATION_NONE)}},
    {DENSE, FFN_INVALID, "activation|20|19", {SET(activation, FFN_ACTIVATION_XIELU + 1)}},
    {DENSE, FFN_INVALID, "activation|4294967295|19", {SET(activation, UINT32_MAX)}},
    {DENSE, FFN_INVALID, "xielu's alpha_p|missing", {SET(activation, FFN_ACTIVATION_XIELU)}},
    {XIELU, FFN_INVALID, "xielu's alpha_p|another", {SET(activation, FFN_ACTIVATION_RELU)}},
    {DENSE, FFN_INVALID, "residual|4|3", {SET(residual, FFN_RESIDUAL_EXTERNAL + 1)}},
    {DENSE, FFN_INVALID, "residual|4294967295|3", {SET(residual, UINT32_MAX)}},

    {DENSE, FFN_INVALID, "alpha|nan|finite", {SET(activation, FFN_ACTIVATION_ELU), SET(alpha, NAN)}},
    {DENSE, FFN_INVALID, "alpha|inf|finite", {SET(activation, FFN_ACTIVATION_LEAKY_RELU), SET(alpha, INFINITY)}},
    {DENSE, FFN_INVALID, "alpha|-inf|finite", {SET(alpha, -INFINITY)}},
    {DENSE, FFN_INVALID, "alpha|0.5|relu", {SET(alpha, 0.5f)}},
    {DENSE, FFN_INVALID, "alpha|1.40129846e-45|relu", {SET(alpha, FLT_TRUE_MIN)}},
    {DENSE, FFN_OK, "", {SET(alpha, -0.0f)}},
    {DENSE, FFN_OK, "", {SET(activation, FFN_ACTIVATION_ELU), SET(alpha, -FLT_MAX)}},
    {GATED, FFN_INVALID, "alpha|-0.5|swish", {SET(alpha, -0.5f)}},
    {GATED, FFN_INVALID, "beta|nan|finite", {SET(beta, NAN)}},
    {GATED, FFN_INVALID, "beta|-inf|finite", {SET(beta, -INFINITY)}},
    {GATED, FFN_OK, "", {SET(beta, FLT_TRUE_MIN)}},
    {GATED, FFN_OK, "", {SET(beta, -1.5f)}},
    {DENSE, FFN_INVALID, "beta|1.5|relu", {SET(beta, 1.5f)}},
    {XIELU, FFN_OK, "", {SET(alpha, -1e-5f), SET(beta, 0.25f)}},
    {XIELU, FFN_INVALID, "beta|inf|finite", {SET(beta, INFINITY)}},

    {GATED, FFN_OK, "", {SET(gate_max, FLT_MAX), SET(up_limit, FLT_TRUE_MIN), SET(up_offset, -FLT_MAX)}},
    {GATED, FFN_OK, "", {SET(gate_max, -0.0f), SET(up_limit, -0.0f), SET(up_offset, -0.0f)}},
    {GATED, FFN_INVALID, "gate_max|nan", {SET(gate_max, NAN)}},
    {GATED, FFN_INVALID, "gate_max|inf|finite", {SET(gate_max, INFINITY)}},
    {GATED, FFN_INVALID, "gate_max|-7|at least 0", {SET(gate_max, -7)}},
    {DENSE, FFN_INVALID, "gate_max|7|no gate weight", {SET(gate_max, 7)}},
    {GATED, FFN_INVALID, "up_limit|nan", {SET(up_limit, NAN)}},
    {GATED, FFN_INVALID, "up_limit|inf|finite", {SET(up_limit, INFINITY)}},
    {GATED, FFN_INVALID, "up_limit|-1.40129846e-45|at least 0", {SET(up_limit, -FLT_TRUE_MIN)}},
    {DENSE, FFN_INVALID, "up_limit|7|no gate weight", {SET(up_limit, 7)}},
    {GATED, FFN_INVALID, "up_offset|nan|finite", {SET(up_offset, NAN)}},
    {GATED, FFN_INVALID, "up_offset|-inf|finite", {SET(up_offset, -INFINITY)}},
    {DENSE, FFN_INVALID, "up_offset|1|no gate weight", {SET(up_offset, 1)}},

    {DENSE, FFN_OK, "", {SET(engine, FFN_ENGINE_BLAS)}},
    {DENSE, FFN_OK, "", {SET(engine, FFN_ENGINE_NATIVE)}},
    {DENSE, FFN_INVALID, "engine|3|2", {SET(engine, FFN_ENGINE_NATIVE + 1)}},
    {DENSE, FFN_INVALID, "engine|4294967295|2", {SET(engine, UINT32_MAX)}},
    {DENSE, FFN_OK, "", {SET(max_isa, FFN_ISA_AVX512)}},
    {DENSE, FFN_INVALID, "max_isa|4|3", {SET(max_isa, FFN_ISA_AVX512 + 1)}},
    {DENSE, FFN_INVALID, "max_isa|4294967295|3", {SET(max_isa, UINT32_MAX)}},

    {DENSE, FFN_INVALID, "norm[IN]|4|3", {SET(norm[FFN_NORM_IN], 4)}},
    {DENSE, FFN_INVALID, "norm[MID]|4294967295|3", {SET(norm[FFN_NORM_MID], UINT32_MAX)}},
    {DENSE, FFN_INVALID, "norm[BRANCH]|4|3", {SET(norm[FFN_NORM_BRANCH], 4)}},
    {DENSE, FFN_INVALID, "norm[OUT]|5|3", {SET(norm[FFN_NORM_OUT], 5)}},
    {DENSE, FFN_OK, "", {SET(norm[0], FFN_NORM_LAYER), SET(norm_eps[0], FLT_TRUE_MIN), SET(norm_offset[0], -1)}},
    {DENSE, FFN_INVALID, "norm_eps[IN]|nan", {SET(norm[0], FFN_NORM_LAYER), SET(norm_eps[0], NAN)}},
    {DENSE, FFN_INVALID, "norm_eps[MID]|inf|finite", {SET(norm[1], FFN_NORM_RMS), SET(norm_eps[1], INFINITY)}},
    {DENSE, FFN_INVALID, "norm_eps[BRANCH]|-9.99999975e-06|at least 0", {SET(norm[2], FFN_NORM_LAYER), SET(norm_eps[2], -1e-5f)}},
    {DENSE, FFN_INVALID, "norm_eps[OUT]|9.99999975e-06|no eps", {SET(norm[3], FFN_NORM_AFFINE), SET(norm_eps[3], 1e-5f)}},
    {DENSE, FFN_INVALID, "norm_eps[OUT]|1.40129846e-45|no eps", {SET(norm_eps[3], FLT_TRUE_MIN)}},
    {DENSE, FFN_INVALID, "norm_offset[IN]|nan|finite", {SET(norm[0], FFN_NORM_AFFINE), SET(norm_offset[0], NAN)}},
    {DENSE, FFN_INVALID, "norm_offset[MID]|-inf|finite", {SET(norm[1], FFN_NORM_RMS), SET(norm_offset[1], -INFINITY)}},
    {DENSE, FFN_INVALID, "norm_offset[BRANCH]|1|no norm", {SET(norm_offset[2], 1)}},
    {DENSE, FFN_INVALID, "norm_offset[OUT]|-1|no norm", {SET(norm_offset[3], -1)}},

    {DENSE, FFN_INVALID, "reserved|1|0", {SET(reserved, 1)}},
    {DENSE, FFN_INVALID, "reserved|4294967295|0", {SET(reserved, UINT32_MAX)}},
    {DENSE, FFN_INVALID, "tensors is NULL|tensor_count|2", {SET(tensors, NULL)}},
    {DENSE, FFN_INVALID, "up weight|missing", {SET(tensors, NULL), SET(tensor_count, 0)}},
    {DENSE, FFN_INVALID, "up weight|missing", {SET(tensors, NOWHERE), SET(tensor_count, 0)}},
    {DENSE, FFN_INVALID, "down weight|missing", {SET(tensor_count, 1)}},
    {DENSE, FFN_INVALID, "tensor_count|64|63", {SET(tensor_count, 64)}},
    {DENSE, FFN_INVALID, "tensor_count|18446744073709551615|63", {SET(tensors, NOWHERE), SET(tensor_count, UINT64_MAX)}},
    {DENSE, FFN_INVALID, "ffn_moe_options_t|struct_size", {SET(moe, &no_moe)}},
    {DENSE, FFN_INVALID, "ffn_allocator_t|struct_size|0", {SET(allocator, ALLOCATOR(0, 0, refuse_to_allocate, never_release))}},
    {DENSE, FFN_INVALID, "ffn_allocator_t|struct_size|30", {SET(allocator, ALLOCATOR(30, 0, refuse_to_allocate, never_release))}},
    {DENSE, FFN_INVALID, "allocator.allocate|NULL", {SET(allocator, ALLOCATOR(8, 0, refuse_to_allocate, never_release))}},
    {DENSE, FFN_INVALID, "allocator.reserved|7|0", {SET(allocator, ALLOCATOR(WHOLE, 7, refuse_to_allocate, never_release))}},
    {DENSE, FFN_INVALID, "allocator.allocate|NULL", {SET(allocator, ALLOCATOR(WHOLE, 0, NULL, never_release))}},
    {DENSE, FFN_INVALID, "allocator.release|NULL", {SET(allocator, ALLOCATOR(WHOLE, 0, refuse_to_allocate, NULL))}},
    {DENSE, FFN_INVALID, "max_isa|9", {SET(allocator, ALLOCATOR(WHOLE, 0, refuse_to_allocate, never_release)), SET(max_isa, 9)}},
};

typedef struct fixture {
    witness_t witness;
    test_layer_t base[BASES];
} fixture_t;

static fixture_t fixture;

static void row_text(const patch_t patch[3], char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < 3 && patch[i].text; i++) {
        if (i) strncat(text, ", ", size - strlen(text) - 1);
        strncat(text, patch[i].text, size - strlen(text) - 1);
    }
}

/* Creates with the options as they are now: a refusal changes neither the options nor anything else. */
static void check_create(const ffn_layer_options_t *options, ffn_status_t status, const char *words, const char *what)
{
    ffn_layer_options_t before = *options;
    ffn_layer_t *layer = NOWHERE;
    forget_error();
    ffn_status_t got = ffn_layer_create(NULL, options, &layer);
    assert_memory_equal(&before, options, sizeof before);
    if (status == FFN_OK) {
        if (got != FFN_OK) fail_msg("%s: expected success, got %s: %s", what, ffn_status_name(got), ffn_last_error());
        ffn_layer_free(layer);
        return;
    }
    assert_refused(got, status, words, what);
    if (layer) fail_msg("%s: *layer is not NULL", what);
    assert_still_right(&fixture.witness, NULL, what);
}

static void every_option_refuses_bad_values(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        ffn_layer_options_t options = fixture.base[rows[i].base].options;
        char text[160];
        for (int k = 0; k < 3; k++) patch_apply(&rows[i].patch[k], &options);
        row_text(rows[i].patch, text, sizeof text);
        check_create(&options, rows[i].status, rows[i].words, text);
    }
}

static void every_unknown_flag_is_refused(void **state)
{
    (void)state;
    const uint32_t known = FFN_LAYER_TANH_BRANCH_SCALE | FFN_LAYER_TANH_RESIDUAL_SCALE | FFN_LAYER_TRAINABLE;
    for (uint32_t bit = 1; bit; bit <<= 1) {
        ffn_layer_options_t options = fixture.base[DENSE].options;
        char words[40];
        if (bit & known) continue;
        options.flags = bit;
        snprintf(words, sizeof words, "flags|0x%x|0x7", bit);
        check_create(&options, FFN_INVALID, words, words);
    }
}

static void alpha_and_beta_are_refused_where_the_activation_takes_none(void **state)
{
    (void)state;
    for (uint32_t activation = FFN_ACTIVATION_IDENTITY; activation < FFN_ACTIVATION_XIELU; activation++) {
        bool takes_alpha = activation == FFN_ACTIVATION_LEAKY_RELU || activation == FFN_ACTIVATION_ELU;
        bool takes_beta = activation == FFN_ACTIVATION_SWISH;
        ffn_layer_options_t options = fixture.base[DENSE].options;
        char words[80];
        options.activation = activation;
        options.alpha = 0.75f;
        snprintf(words, sizeof words, "alpha is 0.75|%s", ffn_activation_name(activation));
        check_create(&options, takes_alpha ? FFN_OK : FFN_INVALID, words, words);
        options.alpha = 0;
        options.beta = 0.75f;
        snprintf(words, sizeof words, "beta is 0.75|%s", ffn_activation_name(activation));
        check_create(&options, takes_beta ? FFN_OK : FFN_INVALID, words, words);
    }
}

static void nonsense_in_FFN_MAX_ISA_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        ffn_status_t status;
        const char *words;
    } values[] = {
        {"sse2", FFN_INVALID, "FFN_MAX_ISA|\"sse2\"|scalar, avx2 or avx512"}, {"AVX2", FFN_INVALID, "FFN_MAX_ISA|\"AVX2\"|avx512"},
        {"avx2 ", FFN_INVALID, "FFN_MAX_ISA|\"avx2 \"|avx512"}, {"2", FFN_INVALID, "FFN_MAX_ISA|\"2\"|avx512"},
        {"auto", FFN_INVALID, "FFN_MAX_ISA|\"auto\"|avx512"}, {"a\nb\xff%s", FFN_INVALID, "FFN_MAX_ISA|\"a?b?%s\"|avx512"},
        {"none", FFN_INVALID, "FFN_MAX_ISA|\"none\"|avx512"}, {"", FFN_OK, ""}, {"scalar", FFN_OK, ""}, {"avx512", FFN_OK, ""},
    };
    char *before = getenv("FFN_MAX_ISA") ? strdup(getenv("FFN_MAX_ISA")) : NULL;
    for (int64_t i = 0; i < COUNT_OF(values); i++) {
        setenv("FFN_MAX_ISA", values[i].value, 1);
        check_create(&fixture.base[DENSE].options, values[i].status, values[i].words, values[i].value);
    }
    if (before) setenv("FFN_MAX_ISA", before, 1);
    else unsetenv("FFN_MAX_ISA");
    free(before);
}

/* "norm_eps" of "norm_eps[0] = 1" */
static bool is_patched(const char *field)
{
    size_t length = strlen(field);
    for (int64_t i = 0; i < COUNT_OF(rows); i++)
        for (int k = 0; k < 3 && rows[i].status != FFN_OK; k++) {
            const char *text = rows[i].patch[k].text;
            if (text && strncmp(text, field, length) == 0 && strchr(" [", text[length])) return true;
        }
    return false;
}

/* struct_size is the subject of test_errors_structs.c. */
static void no_field_of_the_options_is_left_out(void **state)
{
    (void)state;
    header_item_t options = header_struct("ffn_layer_options_t");
    assert_true(options.members > 20);
    for (int64_t i = 1; i < options.members; i++)
        if (!is_patched(options.member[i])) fail_msg("no bad value of %s is tried", options.member[i]);
}

static int set_up(void **state)
{
    (void)state;
    witness_make(&fixture.witness, &witness_case);
    for (int i = 0; i < BASES; i++) test_layer_describe(&fixture.base[i], &bases[i]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    witness_free(&fixture.witness);
    for (int i = 0; i < BASES; i++) test_layer_free(&fixture.base[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_refuses_bad_values),
        cmocka_unit_test(every_unknown_flag_is_refused),
        cmocka_unit_test(alpha_and_beta_are_refused_where_the_activation_takes_none),
        cmocka_unit_test(nonsense_in_FFN_MAX_ISA_is_refused),
        cmocka_unit_test(no_field_of_the_options_is_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
