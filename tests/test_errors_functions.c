/* SPDX-License-Identifier: MIT
 *
 * Bad values for every parameter of every exported function. What stands behind a pointer to options is the subject of the other test_errors_*.
 */
#include "support/hostile.h"
#include "support/header.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 3, WIDTH = 5 };

/* What the rows below call with: good arguments, and outputs that hold a canary. */
typedef struct fixture {
    witness_t witness;
    ffn_context_t *context;
    const ffn_layer_t *layer;
    float x[TOKENS * WIDTH], y[TOKENS * WIDTH];
    ffn_context_t *made_context;
    ffn_layer_t *made_layer;
    uint32_t activation;
    int64_t width;
} fixture_t;

static fixture_t fixture;

static ffn_status_t forward(int64_t tokens, const void *x, int64_t x_stride, void *y, int64_t y_stride)
{
    return ffn_layer_forward(fixture.layer, NULL, tokens, x, x_stride, y, y_stride);
}

static ffn_status_t name_is_unknown(const char *name)
{
    return ffn_activation_from_name(name, &fixture.activation);
}

static ffn_status_t gated(int64_t d_ff, int64_t multiple)
{
    return ffn_gated_d_ff(d_ff, multiple, &fixture.width);
}

/* For functions that return no status: FFN_OK if the answer is as it should be, else a status that no row expects. */
static ffn_status_t when(bool right)
{
    return right ? FFN_OK : 77;
}

static ffn_status_t same_text(const char *got, const char *expected)
{
    return when(got == expected || (got && expected && strcmp(got, expected) == 0));
}

static const char *long_name(void)
{
    static char name[100000];
    memset(name, 'g', sizeof name - 1);
    return name;
}

static ffn_status_t free_nothing(void)
{
    ffn_context_free(NULL);
    ffn_layer_free(NULL);
    return FFN_OK;
}

static void *odd(void *address)
{
    return (char *)address + 1;
}

/* One call per row: function, parameter, status, words of the sentence, the call itself. */
#define ROWS(X)                                                                                                                                \
    X(ffn_version, "void", FFN_OK, "", when(ffn_version() == 65536 * FFN_VERSION_MAJOR + 256 * FFN_VERSION_MINOR + FFN_VERSION_PATCH))         \
    X(ffn_version_string, "void", FFN_OK, "", when(strlen(ffn_version_string()) >= 5))                                                         \
    X(ffn_abi_version, "void", FFN_OK, "", when(ffn_abi_version() == 0))                                                                       \
    X(ffn_build_info, "void", FFN_OK, "", when(strstr(ffn_build_info(), ffn_version_string()) && !strchr(ffn_build_info(), '\n')))             \
    X(ffn_last_error, "void", FFN_OK, "", when(ffn_last_error() && !strchr(ffn_last_error(), '\n')))                                           \
    X(ffn_status_name, "status", FFN_OK, "", same_text(ffn_status_name(1), "unknown status"))                                                  \
    X(ffn_status_name, "status", FFN_OK, "", same_text(ffn_status_name(-5), "unknown status"))                                                 \
    X(ffn_status_name, "status", FFN_OK, "", same_text(ffn_status_name(INT32_MIN), "unknown status"))                                          \
    X(ffn_status_name, "status", FFN_OK, "", same_text(ffn_status_name(INT32_MAX), "unknown status"))                                          \
    X(ffn_activation_name, "activation", FFN_OK, "", same_text(ffn_activation_name(FFN_ACTIVATION_NONE), NULL))                                \
    X(ffn_activation_name, "activation", FFN_OK, "", same_text(ffn_activation_name(FFN_ACTIVATION_XIELU + 1), NULL))                           \
    X(ffn_activation_name, "activation", FFN_OK, "", same_text(ffn_activation_name(UINT32_MAX), NULL))                                         \
    X(ffn_activation_from_name, "name", FFN_INVALID, "name|NULL", name_is_unknown(NULL))                                                       \
    X(ffn_activation_from_name, "name", FFN_INVALID, "\"\"|identity|gelu_tanh|xielu", name_is_unknown(""))                                     \
    X(ffn_activation_from_name, "name", FFN_INVALID, "\"GELU\"|identity|gelu_tanh|xielu", name_is_unknown("GELU"))                             \
    X(ffn_activation_from_name, "name", FFN_INVALID, "\"gelu \"|xielu", name_is_unknown("gelu "))                                              \
    X(ffn_activation_from_name, "name", FFN_INVALID, "\"gel\"|xielu", name_is_unknown("gel"))                                                  \
    X(ffn_activation_from_name, "name", FFN_INVALID, "\"none\"|xielu", name_is_unknown("none"))                                                \
    X(ffn_activation_from_name, "name", FFN_INVALID, "gelu_new|xielu", name_is_unknown("gelu_new"))                                            \
    X(ffn_activation_from_name, "name", FFN_INVALID, "%s%n|xielu", name_is_unknown("%s%n%d"))                                                  \
    X(ffn_activation_from_name, "name", FFN_INVALID, "ge?lu|xielu", name_is_unknown("ge\nlu"))                                                 \
    X(ffn_activation_from_name, "name", FFN_INVALID, "???|xielu", name_is_unknown("\xff\x80\x7f"))                                             \
    X(ffn_activation_from_name, "name", FFN_INVALID, "gggggggg|xielu", name_is_unknown(long_name()))                                           \
    X(ffn_activation_from_name, "name", FFN_INVALID, "no activation is called \"multiple is -123454321|xielu", name_is_unknown(ffn_last_error())) \
    X(ffn_activation_from_name, "activation", FFN_INVALID, "activation|NULL", ffn_activation_from_name("gelu", NULL))                          \
    X(ffn_context_create, "options", FFN_OK, "", ffn_context_create(NULL, &fixture.made_context))                                              \
    X(ffn_context_create, "context", FFN_INVALID, "context|NULL", ffn_context_create(NULL, NULL))                                              \
    X(ffn_context_free, "context", FFN_OK, "", free_nothing())                                                                                 \
    X(ffn_context_reserve, "context", FFN_OK, "", ffn_context_reserve(NULL, fixture.layer, 1000))                                              \
    X(ffn_context_reserve, "layer", FFN_INVALID, "layer|NULL", ffn_context_reserve(fixture.context, NULL, 1))                                  \
    X(ffn_context_reserve, "layer", FFN_INVALID, "layer|NULL", ffn_context_reserve(NULL, NULL, 0))                                             \
    X(ffn_context_reserve, "tokens", FFN_INVALID, "tokens|-1|0", ffn_context_reserve(fixture.context, fixture.layer, -1))                      \
    X(ffn_context_reserve, "tokens", FFN_INVALID, "tokens|-9223372036854775808|0", ffn_context_reserve(NULL, fixture.layer, INT64_MIN))        \
    X(ffn_context_reserve, "tokens", FFN_OK, "", ffn_context_reserve(fixture.context, fixture.layer, INT64_MAX))                               \
    X(ffn_context_info, "context", FFN_OK, "", ffn_context_info(NULL, &(ffn_context_info_t){.struct_size = sizeof(ffn_context_info_t)}))       \
    X(ffn_context_info, "info", FFN_INVALID, "info|NULL", ffn_context_info(fixture.context, NULL))                               \
    X(ffn_context_info, "info", FFN_INVALID, "info|NULL", ffn_context_info(NULL, NULL))                                          \
    X(ffn_layer_create, "context", FFN_OK, "", ffn_layer_create(NULL, &fixture.witness.test.options, &fixture.made_layer))                     \
    X(ffn_layer_create, "options", FFN_INVALID, "ffn_layer_options_t|NULL", ffn_layer_create(NULL, NULL, &fixture.made_layer))                 \
    X(ffn_layer_create, "layer", FFN_INVALID, "layer|NULL", ffn_layer_create(NULL, &fixture.witness.test.options, NULL))                       \
    X(ffn_layer_free, "layer", FFN_OK, "", free_nothing())                                                                                     \
    X(ffn_layer_info, "layer", FFN_INVALID, "layer|NULL", ffn_layer_info(NULL, &(ffn_layer_info_t){.struct_size = sizeof(ffn_layer_info_t)}))  \
    X(ffn_layer_info, "info", FFN_INVALID, "ffn_layer_info_t|NULL", ffn_layer_info(fixture.layer, NULL))                                       \
    X(ffn_layer_read, "layer", FFN_INVALID, "layer|NULL", ffn_layer_read(NULL, NULL, 0))                                                       \
    X(ffn_layer_read, "tensors", FFN_INVALID, "tensors|NULL|tensor_count|1", ffn_layer_read(fixture.layer, NULL, 1))                           \
    X(ffn_layer_read, "tensor_count", FFN_INVALID, "tensor_count|64|63", ffn_layer_read(fixture.layer, fixture.witness.test.tensors, 64))      \
    X(ffn_layer_read, "tensor_count", FFN_INVALID, "tensor_count|18446744073709551615|63",                                                    \
      ffn_layer_read(fixture.layer, fixture.witness.test.tensors, UINT64_MAX))                                                                 \
    X(ffn_layer_run, "layer", FFN_INVALID, "layer|NULL", ffn_layer_run(NULL, NULL, &(ffn_run_t){.struct_size = sizeof(ffn_run_t)}))            \
    X(ffn_layer_run, "context", FFN_OK, "", ffn_layer_run(fixture.layer, NULL, &(ffn_run_t){.struct_size = sizeof(ffn_run_t)}))                \
    X(ffn_layer_run, "run", FFN_INVALID, "ffn_run_t|NULL", ffn_layer_run(fixture.layer, fixture.context, NULL))                                \
    X(ffn_layer_forward, "layer", FFN_INVALID, "layer|NULL", ffn_layer_forward(NULL, NULL, TOKENS, fixture.x, 0, fixture.y, 0))                \
    X(ffn_layer_forward, "layer", FFN_INVALID, "layer|NULL", ffn_layer_forward(NULL, fixture.context, 0, NULL, 0, NULL, 0))                    \
    X(ffn_layer_forward, "context", FFN_OK, "", ffn_layer_forward(fixture.layer, NULL, 0, NULL, 0, NULL, 0))                                   \
    X(ffn_layer_forward, "tokens", FFN_INVALID, "tokens|-1|0", forward(-1, fixture.x, 0, fixture.y, 0))                                        \
    X(ffn_layer_forward, "tokens", FFN_INVALID, "tokens|-9223372036854775808|0", forward(INT64_MIN, fixture.x, 0, fixture.y, 0))               \
    X(ffn_layer_forward, "tokens", FFN_INVALID, "x|9223372036854775807|20", forward(INT64_MAX, fixture.x, 0, fixture.y, 0))                    \
    X(ffn_layer_forward, "tokens", FFN_INVALID, "x|576460752303423488|20", forward(INT64_C(1) << 59, fixture.x, 0, fixture.y, 0))              \
    X(ffn_layer_forward, "tokens", FFN_INVALID, "y|x", forward(INT64_C(1) << 58, fixture.x, 0, fixture.y, 0))                                  \
    X(ffn_layer_forward, "x", FFN_INVALID, "x|NULL", forward(1, NULL, 0, fixture.y, 0))                                                        \
    X(ffn_layer_forward, "x", FFN_INVALID, "x|multiple of 4", forward(1, odd(fixture.x), 0, fixture.y, 0))                                     \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "stride of x|16|20", forward(2, fixture.x, 16, fixture.y, 0))                                \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "stride of x|5|20", forward(2, fixture.x, 5, fixture.y, 0))                                  \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "stride of x|-20|20", forward(2, fixture.x, -20, fixture.y, 0))                              \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "stride of x|21|multiple of 4", forward(2, fixture.x, 21, fixture.y, 0))                     \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "x|9223372036854775804", forward(3, fixture.x, INT64_MAX - 3, fixture.y, 0))                 \
    X(ffn_layer_forward, "x_stride", FFN_INVALID, "stride of x|-9223372036854775808|20", forward(2, fixture.x, INT64_MIN, fixture.y, 0))       \
    X(ffn_layer_forward, "y", FFN_INVALID, "y|NULL", forward(1, fixture.x, 0, NULL, 0))                                                        \
    X(ffn_layer_forward, "y", FFN_INVALID, "y|multiple of 4", forward(1, fixture.x, 0, odd(fixture.y), 0))                                     \
    X(ffn_layer_forward, "y_stride", FFN_INVALID, "stride of y|16|20", forward(2, fixture.x, 0, fixture.y, 16))                                \
    X(ffn_layer_forward, "y_stride", FFN_INVALID, "stride of y|-4|20", forward(2, fixture.x, 0, fixture.y, -4))                                \
    X(ffn_layer_forward, "y_stride", FFN_INVALID, "stride of y|22|multiple of 4", forward(2, fixture.x, 0, fixture.y, 22))                     \
    X(ffn_layer_forward, "y_stride", FFN_INVALID, "y|9223372036854775804", forward(3, fixture.x, 0, fixture.y, INT64_MAX - 3))                 \
    X(ffn_gated_d_ff, "d_ff", FFN_INVALID, "d_ff|0|1|536870912", gated(0, 1))                                                                  \
    X(ffn_gated_d_ff, "d_ff", FFN_INVALID, "d_ff|-1|1|536870912", gated(-1, 1))                                                                \
    X(ffn_gated_d_ff, "d_ff", FFN_INVALID, "d_ff|536870913|1|536870912", gated(536870913, 1))                                                  \
    X(ffn_gated_d_ff, "d_ff", FFN_INVALID, "d_ff|9223372036854775807|536870912", gated(INT64_MAX, 1))                                          \
    X(ffn_gated_d_ff, "d_ff", FFN_INVALID, "d_ff|-9223372036854775808|536870912", gated(INT64_MIN, 1))                                         \
    X(ffn_gated_d_ff, "multiple", FFN_INVALID, "multiple|0|1|536870912", gated(3072, 0))                                                       \
    X(ffn_gated_d_ff, "multiple", FFN_INVALID, "multiple|-1|1|536870912", gated(3072, -1))                                                     \
    X(ffn_gated_d_ff, "multiple", FFN_INVALID, "multiple|536870913|536870912", gated(3072, 536870913))                                         \
    X(ffn_gated_d_ff, "multiple", FFN_INVALID, "multiple|9223372036854775807|536870912", gated(3072, INT64_MAX))                               \
    X(ffn_gated_d_ff, "gated_d_ff", FFN_INVALID, "d_ff|NULL", ffn_gated_d_ff(3072, 1, NULL))

typedef struct row {
    const char *function, *parameter;
} row_t;

#define ROW(function, parameter, status, words, call) {#function, parameter},
static const row_t rows[] = {ROWS(ROW)};

/* ------------------------------------------------------------------ the tests */

static void spoil_outputs(void)
{
    memset(fixture.y, 0xaa, sizeof fixture.y);
    fixture.made_context = NOWHERE;
    fixture.made_layer = NOWHERE;
    fixture.activation = 4711;
    fixture.width = 4711;
}

/* An output is untouched, or, if its function ran, it is what stands for nothing. */
static void assert_nothing_made(const char *what)
{
    for (int64_t i = 0; i < (int64_t)sizeof fixture.y; i++)
        if (((unsigned char *)fixture.y)[i] != 0xaa) fail_msg("%s: byte %lld of y was written", what, (long long)i);
    if (fixture.made_context != NOWHERE && fixture.made_context) fail_msg("%s: made a context", what);
    if (fixture.made_layer != NOWHERE && fixture.made_layer) fail_msg("%s: made a layer", what);
    if (fixture.activation != 4711 && fixture.activation != FFN_ACTIVATION_NONE) fail_msg("%s: *activation is %u", what, fixture.activation);
    if (fixture.width != 4711 && fixture.width) fail_msg("%s: *gated_d_ff is %lld", what, (long long)fixture.width);
}

static void check_row(ffn_status_t got, ffn_status_t expected, const char *words, const char *call)
{
    if (expected == FFN_OK) {
        if (got != FFN_OK) fail_msg("%s: expected success, got %d (%s)", call, got, ffn_last_error());
        if (!strstr(ffn_last_error(), "-123454321")) fail_msg("%s: success changed the last error", call);
        if (fixture.made_context != NOWHERE) ffn_context_free(fixture.made_context);
        if (fixture.made_layer != NOWHERE) ffn_layer_free(fixture.made_layer);
    } else {
        assert_refused(got, expected, words, call);
        assert_nothing_made(call);
    }
    assert_still_right(&fixture.witness, NULL, call);
    assert_still_right(&fixture.witness, fixture.context, call);
}

#define CHECK(function, parameter, status, words, call)                                                                                        \
    spoil_outputs();                                                                                                                           \
    forget_error();                                                                                                                            \
    check_row(call, status, words, #call);

static void every_parameter_refuses_bad_values(void **state)
{
    (void)state;
    ROWS(CHECK)
}

static bool has_row(const char *function, const char *parameter)
{
    for (int64_t i = 0; i < COUNT_OF(rows); i++)
        if (strcmp(rows[i].function, function) == 0 && strcmp(rows[i].parameter, parameter) == 0) return true;
    return false;
}

/* Functions whose bad input the test of their subject tries. */
static const char *const tried_elsewhere[] = {
    "ffn_weight_init",                                     /* test_init */
    "ffn_sgd_step", "ffn_adamw_step", "ffn_clip_global_norm", /* test_optimisers */
    "ffn_tape_create", "ffn_tape_free", "ffn_tape_reserve", "ffn_layer_backward", "ffn_layer_update", /* test_errors_training */
    "ffn_conv_create", "ffn_conv_free", "ffn_conv_reserve", "ffn_conv_run", "ffn_conv_info", "ffn_conv_read", "ffn_conv_backward",
    "ffn_conv_update",                                     /* test_errors_conv */
    "ffn_stats_create", "ffn_stats_free", "ffn_stats_reset", "ffn_stats_merge", "ffn_stats_info", "ffn_stats_units", "ffn_stats_experts", "ffn_stats_histogram", /* test_stats */
    "ffn_tensor_health", "ffn_update_ratio",               /* test_health */
    "ffn_moe_route",                                       /* test_moe_route */
    "ffn_moe_logits",                                      /* test_moe_logits */
    "ffn_moe_sparse_mixer", "ffn_moe_expert_choice", "ffn_moe_hash", "ffn_moe_second_expert", "ffn_moe_limit", /* test_moe_helpers */
    "ffn_moe_jitter", "ffn_moe_add_noise", "ffn_moe_add_noise_backward", /* test_moe_noise */
    "ffn_moe_sparse_mixer_sample",                         /* test_moe_mixer_sample */
    "ffn_moe_route_backward", "ffn_moe_sparse_mixer_backward", "ffn_moe_logits_backward", /* test_moe_*_backward */
    "ffn_moe_count", "ffn_moe_statistics", "ffn_moe_loss_switch", "ffn_moe_loss_gshard", "ffn_moe_loss_huggingface", "ffn_moe_loss_megatron",
    "ffn_moe_loss_deepseek", "ffn_moe_loss_z", "ffn_moe_update_bias", /* test_moe_losses */
};

static bool is_tried_elsewhere(const char *function)
{
    for (int64_t i = 0; i < COUNT_OF(tried_elsewhere); i++)
        if (strcmp(tried_elsewhere[i], function) == 0) return true;
    return false;
}

static void no_function_and_no_parameter_of_the_header_is_left_out(void **state)
{
    (void)state;
    int64_t count;
    header_item_t *functions = header_functions(&count);
    assert_true(count >= 19);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < functions[i].members; k++)
            if (!has_row(functions[i].name, functions[i].member[k]) && !is_tried_elsewhere(functions[i].name))
                fail_msg("no bad value of \"%s\" is tried on %s", functions[i].member[k], functions[i].name);
    free(functions);
}

static void every_status_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(ffn_status_name(FFN_OK), "FFN_OK");
    assert_string_equal(ffn_status_name(FFN_INVALID), "FFN_INVALID");
    assert_string_equal(ffn_status_name(FFN_NO_MEMORY), "FFN_NO_MEMORY");
    assert_string_equal(ffn_status_name(FFN_UNSUPPORTED), "FFN_UNSUPPORTED");
    assert_string_equal(ffn_status_name(FFN_BUSY), "FFN_BUSY");
    for (int32_t status = -300; status < 300; status++)
        if (status > 0 || status < FFN_BUSY) assert_string_equal(ffn_status_name(status), "unknown status");
}

static void every_activation_has_a_name_that_leads_back_to_it(void **state)
{
    (void)state;
    for (uint32_t id = 1; id <= FFN_ACTIVATION_XIELU; id++) {
        uint32_t back;
        assert_non_null(ffn_activation_name(id));
        assert_ok(ffn_activation_from_name(ffn_activation_name(id), &back));
        assert_int_equal(back, id);
    }
}

static void external_residual_is_refused_by_forward(void **state)
{
    (void)state;
    layer_case_t is = {.d_model = WIDTH, .d_ff = 7, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_EXTERNAL, .seed = 5};
    test_layer_t test;
    test_layer_make(&test, &is);
    spoil_outputs();
    assert_refused(ffn_layer_forward(test.layer, NULL, TOKENS, fixture.x, 0, fixture.y, 0), FFN_INVALID, "residual|external|ffn_layer_run",
                   "external residual");
    assert_nothing_made("external residual");
    test_layer_free(&test);
}

static int set_up(void **state)
{
    (void)state;
    memset(&fixture, 0, sizeof fixture);
    witness_make(&fixture.witness, &witness_case);
    fixture.layer = fixture.witness.test.layer;
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2};
    return ffn_context_create(&options, &fixture.context);
}

static int tear_down(void **state)
{
    (void)state;
    witness_free(&fixture.witness);
    ffn_context_free(fixture.context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_refuses_bad_values),
        cmocka_unit_test(no_function_and_no_parameter_of_the_header_is_left_out),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(every_activation_has_a_name_that_leads_back_to_it),
        cmocka_unit_test(external_residual_is_refused_by_forward),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
