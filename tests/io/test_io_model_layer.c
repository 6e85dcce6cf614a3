/* SPDX-License-Identifier: MIT
 *
 * Making layers from descriptions: parts and layouts bound by hand, the branch alone, what is refused, files that change under a model, and threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/support/family_file.h"
#include "io/support/files.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/layer_check.h"

/* ------------------------------------------------------------- parts and layouts */

typedef struct parts_case {
    const char *name;
    layout_t layout;
    uint32_t file_layout, gate, up;
} parts_case_t;

static const parts_case_t parts[] = {
    {"[gate; up]", LAYOUT_GATE_UP, FFN_LAYOUT_OUT_IN, FFN_PART_FIRST_HALF, FFN_PART_SECOND_HALF},
    {"[up; gate]", LAYOUT_UP_GATE, FFN_LAYOUT_OUT_IN, FFN_PART_SECOND_HALF, FFN_PART_FIRST_HALF},
    {"even rows gate", LAYOUT_INTERLEAVED, FFN_LAYOUT_OUT_IN, FFN_PART_EVEN, FFN_PART_ODD},
    {"even rows up", LAYOUT_INTERLEAVED_UP, FFN_LAYOUT_OUT_IN, FFN_PART_ODD, FFN_PART_EVEN},
    {"[in, gate | up]", LAYOUT_IN_GATE_UP, FFN_LAYOUT_IN_OUT, FFN_PART_FIRST_HALF, FFN_PART_SECOND_HALF},
    {"even columns gate", LAYOUT_IN_INTERLEAVED, FFN_LAYOUT_IN_OUT, FFN_PART_EVEN, FFN_PART_ODD},
};

/* gpt-oss's expert: biases too, swish with beta, clamps and the offset, in whatever layout. */
static const layer_case_t oss = {.d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_SWISH, .beta = 1.702f, .gate_max = 7, .up_limit = 7,
                                 .up_offset = 1, .gated = true, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT,
                                 .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-5f, 0}}, .seed = 11};

enum { OSS_BINDINGS = 7 };

static void bind_oss(const parts_case_t *is, ffn_model_binding_t bindings[OSS_BINDINGS])
{
    const ffn_model_binding_t all[OSS_BINDINGS] = {
        {.role = FFN_ROLE_UP_WEIGHT, .layout = is->file_layout, .part = is->up, .tensor = "x.gate_up.weight"},
        {.role = FFN_ROLE_UP_BIAS, .part = is->up, .tensor = "x.gate_up.bias"},
        {.role = FFN_ROLE_GATE_WEIGHT, .layout = is->file_layout, .part = is->gate, .tensor = "x.gate_up.weight"},
        {.role = FFN_ROLE_GATE_BIAS, .part = is->gate, .tensor = "x.gate_up.bias"},
        {.role = FFN_ROLE_DOWN_WEIGHT, .tensor = "x.down.weight"},
        {.role = FFN_ROLE_DOWN_BIAS, .tensor = "x.down.bias"},
        {.role = FFN_ROLE_NORM_IN_WEIGHT, .tensor = "x.norm.weight"}};
    memcpy(bindings, all, sizeof all);
}

static void halves_and_interleaved_rows_and_columns_are_bound_by_hand(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(parts); i++)
        for (uint32_t flags = 0; flags <= FFN_MODEL_MAP; flags += FFN_MODEL_MAP) {
            test_layer_t test;
            layer_case_t is = oss;
            is.name = parts[i].name;
            is.layout = parts[i].layout;
            test_layer_describe(&test, &is);
            model_file_t file = {0};
            if (i & 1) model_file_add(&file, NULL, 3, 0, "a"); /* the data then starts at another offset */
            model_file_add_layer(&file, &test, "x.", "fused=gate_up down=down in=norm");
            ffn_model_options_t options = {.struct_size = sizeof options, .flags = flags};
            ffn_model_t *model;
            assert_io_ok(ffn_model_open(model_file_write(&file, NULL), &options, &model));
            ffn_model_binding_t bindings[OSS_BINDINGS];
            bind_oss(&parts[i], bindings);
            ffn_layer_options_t layer_options = test.options;
            layer_options.tensors = NULL;
            layer_options.tensor_count = 0;
            ffn_model_layer_t layer = {.struct_size = sizeof layer, .options = &layer_options, .bindings = bindings, .binding_count = OSS_BINDINGS};
            check_model_layer(model, &layer, &test);
            ffn_model_free(model);
            test_layer_free(&test);
        }
}

/* A llama layer with all around it that there is, and the oracle of its branch alone. */
static const layer_case_t wrapped = {
    .d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_GELU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
    .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-5f, 1}, [FFN_NORM_MID] = {FFN_NORM_RMS, true, false, 1e-5f, 0},
             [FFN_NORM_BRANCH] = {FFN_NORM_LAYER, true, true, 1e-5f, 0}, [FFN_NORM_OUT] = {FFN_NORM_LAYER, true, true, 1e-5f, 0}},
    .branch_scale = SCALE_VECTOR_TANH, .residual_scale = SCALE_ONE, .residual_factor = 1.5f, .seed = 12};

static void the_branch_alone_leaves_out_what_is_around_it_and_constants_need_no_tensor(void **state)
{
    (void)state;
    test_layer_t test;
    test_layer_describe(&test, &wrapped);
    model_file_t file = {0};
    model_file_add_layer(&file, &test, "x.", "gate=gate up=up down=down in=in mid=mid branch=branch out=out scale=scale");
    ffn_model_t *model = open_model(model_file_write(&file, NULL));
    ffn_layer_options_t options = test.options;
    options.tensors = NULL;
    options.tensor_count = 0;
    const ffn_model_binding_t bindings[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .tensor = "x.up.weight"}, {.role = FFN_ROLE_GATE_WEIGHT, .tensor = "x.gate.weight"},
        {.role = FFN_ROLE_DOWN_WEIGHT, .tensor = "x.down.weight"}, {.role = FFN_ROLE_NORM_IN_WEIGHT, .tensor = "x.in.weight"},
        {.role = FFN_ROLE_NORM_MID_WEIGHT, .tensor = "x.mid.weight"}, {.role = FFN_ROLE_NORM_BRANCH_WEIGHT, .tensor = "x.branch.weight"},
        {.role = FFN_ROLE_NORM_BRANCH_BIAS, .tensor = "x.branch.bias"}, {.role = FFN_ROLE_NORM_OUT_WEIGHT, .tensor = "x.out.weight"},
        {.role = FFN_ROLE_NORM_OUT_BIAS, .tensor = "x.out.bias"}, {.role = FFN_ROLE_BRANCH_SCALE, .tensor = "x.scale"},
        {.role = FFN_ROLE_RESIDUAL_SCALE, .value = 1.5f}};
    ffn_model_layer_t layer = {.struct_size = sizeof layer, .options = &options, .bindings = bindings, .binding_count = 11};
    check_model_layer(model, &layer, &test);

    layer.flags = FFN_MODEL_BRANCH;
    test.oracle.residual = FFN_RESIDUAL_NONE;
    test.oracle.branch_scale = test.oracle.residual_scale = (oracle_scale_t){NULL, 0, 0};
    test.oracle.norm[FFN_NORM_IN].kind = test.oracle.norm[FFN_NORM_BRANCH].kind = test.oracle.norm[FFN_NORM_OUT].kind = FFN_NORM_NONE;
    check_model_layer(model, &layer, &test);
    ffn_model_free(model);
    test_layer_free(&test);
}

/* ------------------------------------------------------------- refusals */

static const layer_case_t plain = {.d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_SILU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
                                   .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-6f, 0}}, .seed = 13};

static ffn_model_t *plain_model(test_layer_t *test, uint32_t flags)
{
    model_file_t file = {0};
    test_layer_describe(test, &plain);
    model_file_add_layer(&file, test, "model.layers.0.", "gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj in=post_attention_layernorm");
    ffn_model_options_t options = {.struct_size = sizeof options, .flags = flags};
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(model_file_write(&file, NULL), &options, &model));
    return model;
}

typedef struct bad_binding {
    uint64_t index;
    ffn_model_binding_t binding;
    ffn_status_t status;
    const char *words;
} bad_binding_t;

static void bindings_that_are_wrong_are_refused_with_the_tensor_s_name(void **state)
{
    (void)state;
    static const bad_binding_t bad[] = {
        {0, {.role = 0, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "role|bindings[0]"},
        {0, {.role = 7, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "role|7"},
        {0, {.role = UINT32_MAX, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "role"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .layout = 2, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "layout|2"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .part = 5, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "part|5"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .tensor = "nothing"}, FFN_UNKNOWN, "nothing"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .tensor = ""}, FFN_UNKNOWN, "\"\""},
        {0, {.role = FFN_ROLE_UP_WEIGHT}, FFN_INVALID, "bindings[0]|no tensor"},
        {0, {.role = FFN_ROLE_UP_BIAS, .tensor = "model.layers.0.post_attention_layernorm.weight"}, FFN_INVALID, "up weight"},
        {2, {.role = FFN_ROLE_UP_WEIGHT, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "twice|bindings[2]"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .part = FFN_PART_FIRST_HALF, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "down_proj"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .tensor = "model.layers.0.post_attention_layernorm.weight"}, FFN_INVALID, "matrix|[12]"},
        {0, {.role = FFN_ROLE_UP_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "model.layers.0.mlp.up_proj.weight"}, FFN_INVALID, "down_proj|[12, 20]"},
        {1, {.role = FFN_ROLE_GATE_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "model.layers.0.mlp.gate_proj.weight"}, FFN_INVALID, "gate_proj|[20, 12]"},
        {3, {.role = FFN_ROLE_NORM_MID_WEIGHT, .tensor = "model.layers.0.post_attention_layernorm.weight"}, FFN_INVALID, "layernorm|20"},
        {3, {.role = FFN_ROLE_NORM_OUT_WEIGHT, .tensor = "model.layers.0.post_attention_layernorm.weight"}, FFN_INVALID, "norm OUT"},
        {3, {.role = FFN_ROLE_XIELU_ALPHA_P, .value = 1}, FFN_INVALID, "alpha_p"},
    };
    test_layer_t test;
    ffn_model_t *model = plain_model(&test, 0);
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        ffn_model_layer_t layer = *model_layer(model, 0);
        ffn_model_binding_t bindings[4];
        assert_int_equal(layer.binding_count, 4);
        memcpy(bindings, layer.bindings, sizeof bindings);
        bindings[bad[i].index] = bad[i].binding;
        layer.bindings = bindings;
        ffn_layer_t *made = NOWHERE;
        ffn_status_t status = ffn_model_layer_create(model, NULL, &layer, &made);
        assert_io_refused(status, bad[i].status, "", bad[i].words);
        assert_null(made);
    }
    check_model_layer(model, model_layer(model, 0), &test);
    ffn_model_free(model);
    test_layer_free(&test);
}

static void descriptions_that_are_wrong_are_refused(void **state)
{
    (void)state;
    test_layer_t test;
    ffn_model_t *model = plain_model(&test, 0);
    const ffn_model_layer_t *right = model_layer(model, 0);
    ffn_layer_options_t options = *right->options;
    ffn_layer_t *made;
    ffn_model_layer_t layer = *right;
    layer.options = &options;

    assert_io_refused(ffn_model_layer_create(NULL, NULL, right, &made), FFN_INVALID, "", "model is NULL");
    assert_io_refused(ffn_model_layer_create(model, NULL, right, NULL), FFN_INVALID, "", "made is NULL");
    assert_io_refused(ffn_model_layer_create(model, NULL, NULL, &made), FFN_INVALID, "", "ffn_model_layer_t");
    layer.struct_size = 5;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "struct_size");
    layer = (ffn_model_layer_t){.struct_size = sizeof layer, .flags = 2, .options = &options, .bindings = right->bindings, .binding_count = 4};
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "flags");
    layer.flags = 0;
    layer.options = NULL;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "options");
    layer.options = &options;
    layer.bindings = NULL;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "bindings is NULL");
    layer.bindings = right->bindings;
    layer.binding_count = 1000;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "binding_count|1000");
    layer.binding_count = 0;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "up weight");
    layer.binding_count = 4;
    options.d_ff = 21;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "21");
    options.d_ff = 0;
    options.activation = FFN_ACTIVATION_NONE;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "activation");
    options.activation = FFN_ACTIVATION_SILU;
    options.tensors = test.tensors;
    options.tensor_count = 1;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_INVALID, "", "tensors");
    ffn_model_free(model);
    test_layer_free(&test);
}

static void the_model_s_functions_refuse_bad_arguments(void **state)
{
    (void)state;
    test_layer_t test;
    ffn_model_t *model = plain_model(&test, 0), *other = NOWHERE;
    const char *path = test_path("model.safetensors");
    ffn_model_info_t info = {.struct_size = 3};
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    const ffn_model_layer_t *layer;
    float numbers[240];
    int64_t index;
    assert_io_refused(ffn_model_open(path, NULL, NULL), FFN_INVALID, "", "model is NULL");
    assert_io_refused(ffn_model_open(NULL, NULL, &other), FFN_INVALID, "", "path is NULL");
    assert_null(other);
    ffn_model_options_t options = {.struct_size = sizeof options, .flags = 2};
    assert_io_refused(ffn_model_open(path, &options, &other), FFN_INVALID, "", "flags");
    options = (ffn_model_options_t){.struct_size = sizeof options, .config = "/nowhere/config.json"};
    assert_io_refused(ffn_model_open(path, &options, &other), FFN_FILE, "/nowhere/config.json", "");
    options.struct_size = 1;
    assert_io_refused(ffn_model_open(path, &options, &other), FFN_INVALID, "", "struct_size");
    assert_io_refused(ffn_model_open("/nowhere/model.safetensors", NULL, &other), FFN_FILE, "/nowhere/model.safetensors", "");
    assert_io_refused(ffn_model_info(model, &info), FFN_INVALID, "", "struct_size");
    assert_io_refused(ffn_model_info(model, NULL), FFN_INVALID, "", "NULL");
    assert_io_refused(ffn_model_info(NULL, &info), FFN_INVALID, "", "model is NULL");
    assert_io_refused(ffn_model_tensor(model, 4, &tensor), FFN_INVALID, "", "index|4|3");
    assert_io_refused(ffn_model_tensor(model, -1, &tensor), FFN_INVALID, "", "index|-1");
    assert_io_refused(ffn_model_tensor(model, 0, NULL), FFN_INVALID, "", "NULL");
    assert_io_refused(ffn_model_tensor(NULL, 0, &tensor), FFN_INVALID, "", "NULL");
    assert_io_refused(ffn_model_layer(model, 1, &layer), FFN_INVALID, "", "index");
    assert_null(layer);
    assert_io_refused(ffn_model_layer(model, 0, NULL), FFN_INVALID, "", "NULL");
    assert_io_refused(ffn_model_layer(NULL, 0, &layer), FFN_INVALID, "", "NULL");
    assert_io_refused(ffn_model_find(model, NULL, &index), FFN_INVALID, "", "name");
    assert_io_refused(ffn_model_find(model, "x", NULL), FFN_INVALID, "", "index");
    assert_io_refused(ffn_model_find(NULL, "x", &index), FFN_INVALID, "", "model");
    assert_io_refused(ffn_model_read(model, 99, numbers), FFN_INVALID, "", "index|99");
    assert_io_refused(ffn_model_read(model, 0, NULL), FFN_INVALID, "", "out is NULL");
    assert_io_refused(ffn_model_read(NULL, 0, numbers), FFN_INVALID, "", "model is NULL");
    ffn_model_free(NULL);
    ffn_model_free(model);
    test_layer_free(&test);
}

static void a_success_leaves_the_last_error_alone(void **state)
{
    (void)state;
    test_layer_t test;
    ffn_model_t *model;
    assert_int_equal(ffn_model_open(NULL, NULL, &model), FFN_INVALID);
    char before[1024];
    snprintf(before, sizeof before, "%s", ffn_io_last_error());
    model = plain_model(&test, 0); /* several rows are tried that do not fit */
    assert_string_equal(ffn_io_last_error(), before);
    ffn_model_free(model);
    test_layer_free(&test);
}

/* ------------------------------------------------------------- files and threads */

static void a_file_that_is_cut_short_after_opening_is_an_error(void **state)
{
    (void)state;
    test_layer_t test;
    ffn_model_t *model = plain_model(&test, 0);
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("model.safetensors"));
    size_t size;
    free(read_whole(path, &size));
    for (int64_t cut = 1; cut < 5; cut++) {
        assert_int_equal(truncate(path, (off_t)size - cut * 700), 0);
        ffn_layer_t *made;
        assert_io_refused(ffn_model_layer_create(model, NULL, model_layer(model, 0), &made), FFN_FILE, path, "");
        assert_null(made);
    }
    ffn_model_free(model);
    test_layer_free(&test);
}

static void a_layer_outlives_its_model(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= FFN_MODEL_MAP; flags += FFN_MODEL_MAP) {
        test_layer_t test;
        ffn_model_t *model = plain_model(&test, flags);
        make_from_model(&test, model, model_layer(model, 0));
        ffn_model_free(model);
        layer_data_t data = layer_data_make(&test, 5, 1);
        layer_data_run(&test, NULL, &data);
        assert_as_oracle(&test, &data, data.y);
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

typedef struct worker {
    pthread_t thread;
    const ffn_model_t *model;
    int failures;
} worker_t;

static void *work(void *data)
{
    worker_t *worker = data;
    for (int i = 0; i < 20; i++) {
        const ffn_model_layer_t *layer;
        ffn_layer_t *made = NULL;
        int64_t index;
        float numbers[240];
        worker->failures += ffn_model_layer(worker->model, 0, &layer) || ffn_model_layer_create(worker->model, NULL, layer, &made) ||
                            ffn_model_find(worker->model, "model.layers.0.mlp.up_proj.weight", &index) || ffn_model_read(worker->model, index, numbers);
        worker->failures += ffn_model_find(worker->model, "nothing", &index) != FFN_UNKNOWN;
        ffn_layer_free(made);
    }
    return NULL;
}

static void threads_use_one_model_at_once(void **state)
{
    (void)state;
    test_layer_t test;
    ffn_model_t *model = plain_model(&test, 0);
    worker_t workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker_t){.model = model};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    ffn_model_free(model);
    test_layer_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_and_interleaved_rows_and_columns_are_bound_by_hand),
        cmocka_unit_test(the_branch_alone_leaves_out_what_is_around_it_and_constants_need_no_tensor),
        cmocka_unit_test(bindings_that_are_wrong_are_refused_with_the_tensor_s_name),
        cmocka_unit_test(descriptions_that_are_wrong_are_refused),
        cmocka_unit_test(the_model_s_functions_refuse_bad_arguments),
        cmocka_unit_test(a_success_leaves_the_last_error_alone),
        cmocka_unit_test(a_file_that_is_cut_short_after_opening_is_an_error),
        cmocka_unit_test(a_layer_outlives_its_model),
        cmocka_unit_test(threads_use_one_model_at_once),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
