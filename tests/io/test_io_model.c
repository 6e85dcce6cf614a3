/* SPDX-License-Identifier: MIT
 *
 * The model API on trained weights (../shared/data): recognised, described and made from the files alone, each gives its expected values, at the ISA
 * level of the run, with one thread and with two, read and mapped. Without that folder these tests are skipped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/support/family_file.h"
#include "io/support/files.h"
#include "support/compare.h"
#include "support/layer_check.h"
#include "support/safetensors.h"

static const double TOLERANCE = 2e-6; /* of the largest expected value */

static void assert_near_expected(const float *got, safetensor_t expected, const char *what)
{
    int64_t n = expected.shape[0] * expected.shape[1];
    double limit = TOLERANCE * largest_magnitude(expected.data, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected.data[i]) <= limit))
            fail_msg("%s [%lld]: expected %.9g, got %.9g, allowed %.3g; FFN_MAX_ISA %s", what, (long long)i, (double)expected.data[i], (double)got[i],
                     limit, test_isa_cap());
}

static ffn_context_t *context_of(uint32_t threads)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static ffn_model_t *open_shared(const char *name, const char *config, uint32_t flags)
{
    char kept[512]; /* shared_path's buffers take turns */
    snprintf(kept, sizeof kept, "%s", config ? config : "");
    ffn_model_options_t options = {.struct_size = sizeof options, .flags = flags, .config = config ? kept : NULL};
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(shared_path(name), &options, &model));
    return model;
}

/* Runs `count` descriptions one after the other on an input and holds each output against the expected one of that name. */
static void check_chain(const ffn_model_t *model, const ffn_model_layer_t *const *layers, int64_t count, const char *expected_name,
                        const char *input, const char *const *outputs)
{
    safetensors_t file = safetensors_open(expected_name);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        ffn_context_t *context = context_of(threads);
        safetensor_t x = safetensors_get(&file, "%s", input);
        size_t size = (size_t)(x.shape[0] * x.shape[1]) * sizeof(float);
        float *values = memcpy(test_alloc(size), x.data, size);
        for (int64_t i = 0; i < count; i++) {
            ffn_layer_t *layer;
            assert_io_ok(ffn_model_layer_create(model, context, layers[i], &layer));
            assert_ok(ffn_layer_forward(layer, context, x.shape[0], values, 0, values, 0));
            assert_near_expected(values, safetensors_get(&file, "%s", outputs[i]), outputs[i]);
            ffn_layer_free(layer);
        }
        free(values);
        ffn_context_free(context);
    }
    safetensors_close(&file);
}

/* All layers of a model, read and mapped, against outputs named by `format`. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void check_model(const char *name, const char *config, const char *family, int64_t count, const char *expected, const char *input,
                        const char *format, int first)
{
    for (uint32_t flags = 0; flags <= FFN_MODEL_MAP; flags += FFN_MODEL_MAP) {
        ffn_model_t *model = open_shared(name, config, flags);
        ffn_model_info_t info = {.struct_size = sizeof info};
        assert_io_ok(ffn_model_info(model, &info));
        assert_int_equal(info.layer_count, count);
        assert_string_equal(info.family, family);
        const ffn_model_layer_t *layers[8];
        char text[8][64];
        const char *outputs[8];
        for (int i = 0; i < (int)count; i++) {
            layers[i] = model_layer(model, i);
            snprintf(text[i], sizeof text[i], format, first + i);
            outputs[i] = text[i];
        }
        check_chain(model, layers, count, expected, input, outputs);
        ffn_model_free(model);
    }
}
#pragma GCC diagnostic pop

static void stories260k_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    const char *config = shared_path("stories260k-config.json"), *expected = "stories260k-expected.safetensors";
    check_model("stories260k-ffn.safetensors", config, "llama", 5, expected, "input", "layers.%d.output", 0);
    check_model("stories260k-ffn.safetensors", config, "llama", 5, expected, "pieces.input", "pieces.layers.%d.output", 0);
}

static void a_checkpoint_in_shards_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    const char *config = shared_path("stories260k-config.json"), *expected = "stories260k-expected.safetensors";
    check_model("stories260k-sharded", config, "llama", 2, expected, "pieces.input", "pieces.layers.%d.output", 0);
    check_model("stories260k-sharded/model.safetensors.index.json", config, "llama", 2, expected, "input", "layers.%d.output", 0);
}

static void half_precision_weights_are_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    const char *config = shared_path("stories260k-config.json");
    static const struct {
        const char *file, *expected, *dtype;
    } files[] = {
        {"stories260k-layer0-bf16.safetensors", "stories260k-layer0-bf16-expected.safetensors", "BF16"},
        {"stories260k-layer2-f16.safetensors", "stories260k-layer2-f16-expected.safetensors", "F16"},
    };
    for (int64_t i = 0; i < COUNT_OF(files); i++) {
        ffn_model_t *model = open_shared(files[i].file, config, 0);
        const ffn_model_layer_t *layer = model_layer(model, 0);
        assert_string_equal(layer->dtype, files[i].dtype);
        const char *output = "output";
        check_chain(model, &layer, 1, files[i].expected, "input", &output);
        ffn_model_free(model);
    }
}

static void minilm_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_model("minilm-layer0.safetensors", NULL, "bert", 1, "minilm-expected.safetensors", "model.layer.0.ffn_input", "model.layer.%d.ffn_output",
                0);
    check_model("minilm-layer0.safetensors", NULL, "bert", 1, "minilm-expected.safetensors", "embeddings", "chain.layer.%d.output", 0);
}

static void tiny_gpt2_and_tiny_t5_are_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_model("tiny-gpt2-ffn.safetensors", NULL, "gpt2", 5, "tiny-gpt2-expected.safetensors", "input", "layers.%d.output", 0);
    check_model("tiny-t5-ffn.safetensors", NULL, "t5_v1_1", 2, "tiny-t5-expected.safetensors", "input", "layers.%d.output", 0);
}

/* Its activation is the exact gelu, where ALBERT's default is the tanh form: config.json, were it there, would say so. */
static void a_shared_albert_layer_is_as_expected_at_each_step(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    static const char config[] = "{\"model_type\":\"albert\",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-12}";
    char path[512];
    snprintf(path, sizeof path, "%s", test_file("albert.json", config, sizeof config - 1));
    for (int step = 0; step < 8; step++) {
        char input[32], output[32];
        snprintf(input, sizeof input, "step.%d.ffn_input", step);
        snprintf(output, sizeof output, "step.%d.ffn_output", step);
        check_model("rxnmapper-albert-ffn.safetensors", path, "albert", 1, "rxnmapper-albert-expected.safetensors", input, output, 0);
    }
    ffn_model_t *model = open_shared("rxnmapper-albert-ffn.safetensors", NULL, 0);
    assert_int_equal(model_layer(model, 0)->options->activation, FFN_ACTIVATION_GELU_TANH);
    ffn_model_free(model);
}

static void names_of_no_scheme_are_bound_by_hand(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    ffn_model_t *model = open_shared("recall-relu-ffn.safetensors", NULL, 0);
    const ffn_model_layer_t *none;
    assert_io_refused(ffn_model_layer(model, 0, &none), FFN_UNKNOWN, "recall-relu-ffn.safetensors", "bg.ln2.b, bg.ln2.w, bg.mlp.c_fc.W");
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                   .norm = {[FFN_NORM_IN] = FFN_NORM_LAYER}};
    const ffn_model_binding_t bindings[] = {
        {.role = FFN_ROLE_DOWN_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "bg.mlp.c_proj.W"}, {.role = FFN_ROLE_DOWN_BIAS, .tensor = "bg.mlp.c_proj.b"},
        {.role = FFN_ROLE_UP_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "bg.mlp.c_fc.W"}, {.role = FFN_ROLE_UP_BIAS, .tensor = "bg.mlp.c_fc.b"},
        {.role = FFN_ROLE_NORM_IN_WEIGHT, .tensor = "bg.ln2.w"}, {.role = FFN_ROLE_NORM_IN_BIAS, .tensor = "bg.ln2.b"}};
    ffn_model_layer_t layer = {.struct_size = sizeof layer, .options = &options, .bindings = bindings, .binding_count = 6};
    const ffn_model_layer_t *layers = &layer;
    const char *output = "output";
    check_chain(model, &layers, 1, "recall-relu-expected.safetensors", "input", &output);
    ffn_model_free(model);
}

static void the_key_and_value_of_a_channel_mix_are_bound_by_hand(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    static const int numbers[] = {0, 3, 7};
    ffn_model_t *model = open_shared("rwkv5-channelmix.safetensors", NULL, FFN_MODEL_MAP);
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        char key[64], value[64], input[32], output[32];
        snprintf(key, sizeof key, "blocks.%d.ffn.key.weight", numbers[i]);
        snprintf(value, sizeof value, "blocks.%d.ffn.value.weight", numbers[i]);
        snprintf(input, sizeof input, "layers.%d.xk", numbers[i]);
        snprintf(output, sizeof output, "layers.%d.kv", numbers[i]);
        ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU2};
        const ffn_model_binding_t bindings[] = {{.role = FFN_ROLE_UP_WEIGHT, .tensor = key}, {.role = FFN_ROLE_DOWN_WEIGHT, .tensor = value}};
        ffn_model_layer_t layer = {.struct_size = sizeof layer, .options = &options, .bindings = bindings, .binding_count = 2};
        const ffn_model_layer_t *layers = &layer;
        const char *outputs = output;
        check_chain(model, &layers, 1, "rwkv5-channelmix-expected.safetensors", input, &outputs);
    }
    ffn_model_free(model);
}

/* Output, logits, weights and the loads that its README names. */
static void a_mixture_of_experts_is_as_expected(void **state)
{
    (void)state;
    enum { TOKENS = 42, EXPERTS = 5, TOP_K = 2 };
    static const int64_t loads[EXPERTS] = {18, 16, 12, 19, 19};
    if (!shared_data_present()) skip();
    const char *config = shared_path("stories260k-moe-mixtral-config.json"), *expected = "stories260k-moe-mixtral-expected.safetensors";
    check_model("stories260k-moe-mixtral.safetensors", config, "mixtral", 1, expected, "input", "output", 0);

    ffn_model_t *model = open_shared("stories260k-moe-mixtral.safetensors", config, 0);
    safetensors_t file = safetensors_open(expected);
    safetensor_t x = safetensors_get(&file, "input");
    float *y = test_alloc((size_t)(x.shape[0] * x.shape[1]) * sizeof *y), weights[TOKENS * TOP_K], logits[TOKENS * EXPERTS];
    int64_t counts[EXPERTS];
    ffn_moe_run_t routed = {.struct_size = sizeof routed, .weights = weights, .logits = logits, .counts = counts};
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = TOKENS, .x = x.data, .y = y, .moe = &routed};
    ffn_layer_t *layer;
    assert_int_equal(x.shape[0], TOKENS);
    assert_io_ok(ffn_model_layer_create(model, NULL, model_layer(model, 0), &layer));
    assert_ok(ffn_layer_run(layer, NULL, &run));
    assert_near_expected(y, safetensors_get(&file, "output"), "output");
    assert_near_expected(logits, safetensors_get(&file, "router_logits"), "router_logits");
    assert_near_expected(weights, safetensors_get(&file, "topk_weight"), "topk_weight");
    for (int e = 0; e < EXPERTS; e++) assert_int_equal(counts[e], loads[e]);
    free(y);
    ffn_layer_free(layer);
    safetensors_close(&file);
    ffn_model_free(model);
}

/* The quantised weights have another type, and are refused by name. */
static void integer_weights_are_refused_by_name(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    ffn_model_t *model = open_shared("smart-turn-int8-layer0.safetensors", NULL, 0);
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_GELU};
    const ffn_model_binding_t bindings[] = {{.role = FFN_ROLE_UP_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "encoder.layers.0.fc1.weight_quantized"},
                                            {.role = FFN_ROLE_DOWN_WEIGHT, .layout = FFN_LAYOUT_IN_OUT, .tensor = "encoder.layers.0.fc2.weight_quantized"}};
    ffn_model_layer_t layer = {.struct_size = sizeof layer, .options = &options, .bindings = bindings, .binding_count = 2};
    ffn_layer_t *made;
    assert_io_refused(ffn_model_layer_create(model, NULL, &layer, &made), FFN_UNSUPPORTED, "smart-turn", "fc1.weight_quantized|I8");
    ffn_model_free(model);
}

static void a_model_tells_what_is_in_it(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    ffn_model_t *model = open_shared("stories260k-ffn.safetensors", shared_path("stories260k-config.json"), 0);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    assert_int_equal(info.tensor_count, 21);
    assert_int_equal(info.parameters, 5 * (3 * 64 * 172 + 64) + 512 * 64);
    assert_string_equal(info.model_type, "llama");
    const ffn_model_layer_t *layer = model_layer(model, 3);
    assert_string_equal(layer->prefix, "model.layers.3.");
    assert_int_equal(layer->parameters, 3 * 64 * 172 + 64);
    int64_t index;
    assert_io_ok(ffn_model_find(model, "model.embed_tokens.weight", &index));
    assert_int_equal(index, 0);
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    assert_io_ok(ffn_model_tensor(model, index, &tensor));
    assert_string_equal(tensor.name, "model.embed_tokens.weight");
    assert_string_equal(tensor.dtype, "F32");
    assert_true(tensor.ndim == 2 && tensor.shape[0] == 512 && tensor.shape[1] == 64);
    float *out = test_alloc((size_t)tensor.elements * sizeof *out);
    assert_io_ok(ffn_model_read(model, index, out));
    safetensors_t file = safetensors_open("stories260k-ffn.safetensors");
    assert_memory_equal(out, safetensors_get(&file, "model.embed_tokens.weight").data, (size_t)tensor.bytes);
    safetensors_close(&file);
    free(out);
    assert_io_refused(ffn_model_find(model, "model.layers.3.mlp.up_prj.weight", &index), FFN_UNKNOWN, "stories260k", "model.layers.3.mlp.up_proj.weight");
    assert_int_equal(index, -1);
    ffn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories260k_is_as_expected),
        cmocka_unit_test(a_checkpoint_in_shards_is_as_expected),
        cmocka_unit_test(half_precision_weights_are_as_expected),
        cmocka_unit_test(minilm_is_as_expected),
        cmocka_unit_test(tiny_gpt2_and_tiny_t5_are_as_expected),
        cmocka_unit_test(a_shared_albert_layer_is_as_expected_at_each_step),
        cmocka_unit_test(names_of_no_scheme_are_bound_by_hand),
        cmocka_unit_test(the_key_and_value_of_a_channel_mix_are_bound_by_hand),
        cmocka_unit_test(a_mixture_of_experts_is_as_expected),
        cmocka_unit_test(integer_weights_are_refused_by_name),
        cmocka_unit_test(a_model_tells_what_is_in_it),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
