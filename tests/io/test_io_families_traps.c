/* SPDX-License-Identifier: MIT
 *
 * Where recognition could go wrong: the same names with another meaning, values of config.json that do not mean what they say or are none, layers
 * that are broken, and what is in no table. Each is either right or refused with a sentence that tells what to do.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/support/family_file.h"
#include "io/support/files.h"
#include "support/layer_check.h"

#define LLAMA_NAMES "gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj in=post_attention_layernorm"
#define BERT_NAMES  "up=intermediate.dense down=output.dense out=output.LayerNorm"
#define GPT2_NAMES  "up=mlp.c_fc down=mlp.c_proj in=ln_2"

static const layer_case_t llama = {.d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_SILU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
                                   .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-6f, 0}}, .seed = 3};
static const layer_case_t bert = {.d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_GELU, .biases = BIAS_ALL,
                                  .residual = FFN_RESIDUAL_INPUT, .norm = {[FFN_NORM_OUT] = {FFN_NORM_LAYER, true, true, 1e-12f, 0}}, .seed = 4};
static const layer_case_t gpt = {.d_model = 12, .d_ff = 20, .activation = FFN_ACTIVATION_GELU_TANH, .biases = BIAS_ALL,
                                 .residual = FFN_RESIDUAL_INPUT, .norm = {[FFN_NORM_IN] = {FFN_NORM_LAYER, true, true, 1e-5f, 0}}, .seed = 5};

/* A model of one layer. */
static const char *write_one(const layer_case_t *is, const char *prefix, const char *names, const char *config)
{
    test_layer_t layer;
    model_file_t file = {0};
    test_layer_describe(&layer, is);
    model_file_add_layer(&file, &layer, prefix, names);
    test_layer_free(&layer);
    return model_file_write(&file, config);
}

static ffn_model_t *open_as(const char *path, const char *family)
{
    ffn_model_options_t options = {.struct_size = sizeof options, .family = family};
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(path, &options, &model));
    return model;
}

/* Fails the test unless no layer is recognised, for a reason with these words. */
static void assert_no_layers(const char *path, const char *family, ffn_status_t status, const char *words)
{
    ffn_model_t *model = open_as(path, family);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    assert_int_equal(info.layer_count, 0);
    assert_null(info.family);
    const ffn_model_layer_t *layer = (const void *)&info;
    assert_io_refused(ffn_model_layer(model, 0, &layer), status, path, words);
    assert_null(layer);
    ffn_model_free(model);
}

static void assert_family(const char *path, const char *named, const char *family)
{
    ffn_model_t *model = open_as(path, named);
    assert_string_equal(model_layer(model, 0)->family, family);
    ffn_model_free(model);
}

/* ------------------------------------------------------------- the same names */

static void the_layout_of_c_fc_shows_in_its_shape_unless_it_is_square(void **state)
{
    (void)state;
    layer_case_t conv1d = gpt;
    conv1d.layout = conv1d.down_layout = LAYOUT_IN_OUT;
    assert_family(write_one(&conv1d, "h.0.", GPT2_NAMES, NULL), NULL, "gpt2");
    assert_family(write_one(&gpt, "h.0.", GPT2_NAMES, NULL), NULL, "gpt_neo");
    /* wide and narrow: the bias tells which dimension is which */
    conv1d.d_ff = 5;
    assert_family(write_one(&conv1d, "h.0.", GPT2_NAMES, NULL), NULL, "gpt2");
}

static void check_square(const char *config, const char *named, const char *family, layout_t layout)
{
    layer_case_t square = gpt;
    square.d_ff = square.d_model;
    square.layout = square.down_layout = layout;
    test_layer_t layer;
    model_file_t file = {0};
    test_layer_describe(&layer, &square);
    model_file_add_layer(&file, &layer, "transformer.h.0.", GPT2_NAMES);
    ffn_model_t *model = open_as(model_file_write(&file, config), named);
    assert_string_equal(model_layer(model, 0)->family, family);
    check_model_layer(model, model_layer(model, 0), &layer);
    ffn_model_free(model);
    test_layer_free(&layer);
}

static void a_square_c_fc_takes_its_layout_from_model_type_or_from_the_caller(void **state)
{
    (void)state;
    check_square("{\"model_type\":\"gpt2\"}", NULL, "gpt2", LAYOUT_IN_OUT);
    check_square("{\"model_type\":\"gpt_neo\"}", NULL, "gpt_neo", LAYOUT_OUT_IN);
    check_square("{\"model_type\":\"gpt_bigcode\"}", NULL, "gpt_neo", LAYOUT_OUT_IN);
    check_square(NULL, "gpt2", "gpt2", LAYOUT_IN_OUT);
    check_square("{\"model_type\":\"another\"}", "gpt_neo", "gpt_neo", LAYOUT_OUT_IN);
    layer_case_t square = gpt;
    square.d_ff = square.d_model;
    assert_no_layers(write_one(&square, "h.0.", GPT2_NAMES, NULL), NULL, FFN_UNKNOWN, "h.0.mlp.c_fc.weight|gpt2, gpt_neo|family");
    assert_no_layers(write_one(&square, "h.0.", GPT2_NAMES, "{\"model_type\":\"another\"}"), NULL, FFN_UNKNOWN, "gpt2, gpt_neo");
}

static void a_gpt2_whose_shapes_are_linear_is_refused_by_name_of_the_tensor(void **state)
{
    (void)state;
    assert_no_layers(write_one(&gpt, "h.0.", GPT2_NAMES, "{\"model_type\":\"gpt2\"}"), NULL, FFN_INVALID, "h.0.mlp.c_fc.bias|[20]|12");
    assert_no_layers(write_one(&gpt, "h.0.", GPT2_NAMES, NULL), "gpt2", FFN_INVALID, "h.0.mlp.c_fc.bias");
}

static void names_that_fit_pre_and_post_norm_alike_need_to_be_told(void **state)
{
    (void)state;
    const char *path = write_one(&gpt, "model.decoder.layers.0.", "up=fc1 down=fc2 in=final_layer_norm", NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "model.decoder.layers.0.fc1.weight|bart|m2m_100|opt|family");
    assert_family(path, "opt", "opt");
    assert_family(path, "bart", "bart");
    path = write_one(&gpt, "encoder.layers.0.", "up=linear1 down=linear2 in=norm2", NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "torch_post, torch_pre|family");
    path = write_one(&gpt, "model.encoder.layers.0.", "up=mlp.fc1 down=mlp.fc2 in=layer_norm2", NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "clip, siglip|family");
}

static void the_norm_of_the_layer_is_its_own_and_not_attention_s(void **state)
{
    (void)state;
    /* All the norms of a Gemma 2 layer: two of the four are attention's. */
    test_layer_t layer;
    layer_case_t gemma = llama;
    gemma.activation = FFN_ACTIVATION_GELU_TANH;
    gemma.norm[FFN_NORM_IN] = gemma.norm[FFN_NORM_BRANCH] = (norm_case_t){FFN_NORM_RMS, true, false, 1e-6f, 1};
    for (int with_config = 0; with_config < 2; with_config++) {
        model_file_t file = {0};
        test_layer_describe(&layer, &gemma);
        model_file_add_layer(&file, &layer, "model.layers.0.",
                             "gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj in=pre_feedforward_layernorm branch=post_feedforward_layernorm");
        model_file_add(&file, NULL, 12, 0, "model.layers.0.input_layernorm.weight");
        model_file_add(&file, NULL, 12, 0, "model.layers.0.post_attention_layernorm.weight");
        ffn_model_t *model = open_model(model_file_write(&file, with_config ? "{\"model_type\":\"gemma2\"}" : NULL));
        assert_string_equal(model_layer(model, 0)->family, "gemma2");
        check_model_layer(model, model_layer(model, 0), &layer);
        ffn_model_free(model);
        test_layer_free(&layer);
    }
    /* A BERT layer beside attention's LayerNorm. */
    model_file_t file = {0};
    test_layer_describe(&layer, &bert);
    model_file_add_layer(&file, &layer, "encoder.layer.0.", BERT_NAMES);
    model_file_add(&file, NULL, 12, 0, "encoder.layer.0.attention.output.LayerNorm.weight");
    model_file_add(&file, NULL, 12, 0, "encoder.layer.0.attention.output.LayerNorm.bias");
    ffn_model_t *model = open_model(model_file_write(&file, NULL));
    check_model_layer(model, model_layer(model, 0), &layer);
    ffn_model_free(model);
    test_layer_free(&layer);
}

static void a_family_that_no_layer_expresses_is_refused_with_the_reason(void **state)
{
    (void)state;
    const char *path = write_one(&llama, "model.layers.0.", LLAMA_NAMES, "{\"model_type\":\"gemma3n_text\"}");
    assert_no_layers(path, NULL, FFN_UNSUPPORTED, "gemma3n|top-k");
    assert_no_layers(path, "gemma3n", FFN_UNSUPPORTED, "gemma3n|top-k");
    assert_family(path, "llama", "llama");
}

/* ------------------------------------------------------------- config.json */

static const ffn_layer_options_t *options_with(const layer_case_t *is, const char *prefix, const char *names, const char *config,
                                               ffn_model_t **model)
{
    *model = open_model(write_one(is, prefix, names, config));
    return model_layer(*model, 0)->options;
}

static void every_name_of_an_activation_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t activation;
    } names[] = {
        {"relu", FFN_ACTIVATION_RELU}, {"relu6", FFN_ACTIVATION_RELU6}, {"leaky_relu", FFN_ACTIVATION_LEAKY_RELU}, {"relu2", FFN_ACTIVATION_RELU2},
        {"gelu", FFN_ACTIVATION_GELU}, {"gelu_python", FFN_ACTIVATION_GELU}, {"gelu_new", FFN_ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", FFN_ACTIVATION_GELU_TANH}, {"gelu_python_tanh", FFN_ACTIVATION_GELU_TANH},
        {"gelu_accurate", FFN_ACTIVATION_GELU_TANH}, {"gelu_fast", FFN_ACTIVATION_GELU_TANH}, {"gelu_10", FFN_ACTIVATION_GELU_10},
        {"quick_gelu", FFN_ACTIVATION_QUICK_GELU}, {"silu", FFN_ACTIVATION_SILU}, {"swish", FFN_ACTIVATION_SILU},
        {"sigmoid", FFN_ACTIVATION_SIGMOID}, {"tanh", FFN_ACTIVATION_TANH}, {"linear", FFN_ACTIVATION_IDENTITY}, {"mish", FFN_ACTIVATION_MISH},
        {"laplace", FFN_ACTIVATION_LAPLACE},
    };
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"model_type\":\"bert\",\"hidden_act\":\"%s\"}", names[i].name);
        test_layer_t layer;
        model_file_t file = {0};
        layer_case_t is = bert;
        is.activation = names[i].activation;
        test_layer_describe(&layer, &is);
        model_file_add_layer(&file, &layer, "bert.encoder.layer.0.", BERT_NAMES);
        ffn_model_t *model = open_model(model_file_write(&file, config));
        if (model_layer(model, 0)->options->activation != is.activation) fail_msg("%s is %u", names[i].name, model_layer(model, 0)->options->activation);
        check_model_layer(model, model_layer(model, 0), &layer);
        ffn_model_free(model);
        test_layer_free(&layer);
    }
}

static void an_activation_of_no_known_name_is_refused_with_the_known_ones_until_it_is_overridden(void **state)
{
    (void)state;
    static const char *const unknown[] = {"prelu", "Gelu", "", "gelu ", "xielu"};
    for (int64_t i = 0; i < COUNT_OF(unknown); i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"model_type\":\"bert\",\"hidden_act\":\"%s\"}", unknown[i]);
        ffn_model_t *model;
        assert_int_equal(options_with(&bert, "encoder.layer.0.", BERT_NAMES, config, &model)->activation, FFN_ACTIVATION_NONE);
        ffn_layer_t *made = (ffn_layer_t *)(void *)config;
        assert_io_refused(ffn_model_layer_create(model, NULL, model_layer(model, 0), &made), FFN_UNSUPPORTED, test_path("config.json"),
                          "hidden_act|gelu_new|quick_gelu|silu|relu2|linear");
        assert_null(made);
        ffn_model_layer_t changed = *model_layer(model, 0);
        ffn_layer_options_t options = *changed.options;
        options.activation = FFN_ACTIVATION_RELU;
        changed.options = &options;
        assert_io_ok(ffn_model_layer_create(model, NULL, &changed, &made));
        ffn_layer_free(made);
        ffn_model_free(model);
    }
}

static void a_gemma_that_says_gelu_means_tanh(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t activation;
    } says[] = {
        {"{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\",\"hidden_activation\":null}", FFN_ACTIVATION_GELU_TANH},
        {"{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"}", FFN_ACTIVATION_GELU_TANH},
        {"{\"model_type\":\"gemma\",\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_act\":\"gelu\"}", FFN_ACTIVATION_GELU_TANH},
        {"{\"model_type\":\"gemma\"}", FFN_ACTIVATION_GELU_TANH},
        {"{\"model_type\":\"gemma\",\"hidden_activation\":\"silu\"}", FFN_ACTIVATION_SILU},
        {"{\"model_type\":\"paligemma\",\"text_config\":{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"}}", FFN_ACTIVATION_GELU_TANH},
        {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", FFN_ACTIVATION_GELU},
    };
    for (int64_t i = 0; i < COUNT_OF(says); i++) {
        ffn_model_t *model;
        const ffn_layer_options_t *options = options_with(&llama, "model.layers.0.", LLAMA_NAMES, says[i].config, &model);
        if (options->activation != says[i].activation) fail_msg("%s: %u", says[i].config, options->activation);
        assert_true(options->norm_offset[FFN_NORM_IN] == (i == COUNT_OF(says) - 1 ? 0.0f : 1.0f));
        ffn_model_free(model);
    }
}

static void eps_is_the_number_that_the_file_has(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float eps;
    } numbers[] = {
        {"1e-05", 1e-5f}, {"1e-06", 1e-6f}, {"1.5625e-07", 1.5625e-7f}, {"0.00001", 1e-5f}, {"9.999999747378752e-06", 1e-5f},
        {"1", 1}, {"0", FLT_MIN}, {"0.0", FLT_MIN}, {"null", 1e-6f},
    };
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"model_type\":\"llama\",\"rms_norm_eps\":%s}", numbers[i].text);
        ffn_model_t *model;
        const ffn_layer_options_t *options = options_with(&llama, "model.layers.0.", LLAMA_NAMES, config, &model);
        if (memcmp(&options->norm_eps[FFN_NORM_IN], &numbers[i].eps, sizeof(float)))
            fail_msg("%s: %.9g", numbers[i].text, (double)options->norm_eps[FFN_NORM_IN]);
        ffn_model_free(model);
    }
}

static void values_of_config_json_that_are_none_are_refused_with_file_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *config, *words;
    } bad[] = {
        {"{\"model_type\":\"llama\",\"rms_norm_eps\":\"1e-5\"}", "rms_norm_eps|a string|a number"},
        {"{\"model_type\":\"llama\",\"rms_norm_eps\":-1e-5}", "rms_norm_eps|at least 0"},
        {"{\"model_type\":\"llama\",\"rms_norm_eps\":true}", "rms_norm_eps"},
        {"{\"model_type\":\"llama\",\"hidden_act\":5}", "hidden_act|must be a string"},
        {"{\"model_type\":\"llama\",\"hidden_act\":[\"silu\"]}", "hidden_act|must be a string"},
        {"[]", "object"},
        {"{\"model_type\":", ""},
    };
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        const char *path = write_one(&llama, "model.layers.0.", LLAMA_NAMES, bad[i].config);
        ffn_model_t *model = (ffn_model_t *)(void *)(uintptr_t)path;
        assert_io_refused(ffn_model_open(path, NULL, &model), FFN_FORMAT, test_path("config.json"), bad[i].words);
        assert_null(model);
    }
}

static void towers_of_one_model_have_their_own_part_of_config_json(void **state)
{
    (void)state;
    test_layer_t vision, text;
    layer_case_t is = gpt;
    is.activation = FFN_ACTIVATION_GELU;
    model_file_t file = {0};
    test_layer_describe(&vision, &is);
    is.activation = FFN_ACTIVATION_QUICK_GELU;
    is.d_model = 8;
    is.norm[FFN_NORM_IN].eps = 1e-3f;
    test_layer_describe(&text, &is);
    model_file_add_layer(&file, &vision, "vision_model.encoder.layers.0.", "up=mlp.fc1 down=mlp.fc2 in=layer_norm2");
    model_file_add_layer(&file, &text, "text_model.encoder.layers.0.", "up=mlp.fc1 down=mlp.fc2 in=layer_norm2");
    ffn_model_t *model = open_model(model_file_write(&file, "{\"model_type\":\"clip\",\"text_config\":{\"layer_norm_eps\":0.001},"
                                                            "\"vision_config\":{\"hidden_act\":\"gelu\"}}"));
    check_model_layer(model, model_layer(model, 0), &text);
    check_model_layer(model, model_layer(model, 1), &vision);
    ffn_model_free(model);
    test_layer_free(&vision);
    test_layer_free(&text);
}

static void layers_come_in_the_model_s_order(void **state)
{
    (void)state;
    static const char *const order[] = {"model.encoder.layers.0.", "model.encoder.layers.9.", "model.encoder.layers.11.",
                                        "model.decoder.layers.0.", "model.decoder.layers.2.", "model.decoder.layers.10."};
    static const int written[] = {5, 2, 0, 4, 1, 3};
    test_layer_t layer;
    model_file_t file = {0};
    test_layer_describe(&layer, &gpt);
    for (int64_t i = 0; i < COUNT_OF(order); i++)
        model_file_add_layer(&file, &layer, order[written[i]], "up=fc1 down=fc2 in=final_layer_norm");
    test_layer_free(&layer);
    ffn_model_t *model = open_model(model_file_write(&file, "{\"model_type\":\"whisper\"}"));
    for (int64_t i = 0; i < COUNT_OF(order); i++) assert_string_equal(model_layer(model, i)->prefix, order[i]);
    ffn_model_free(model);
}

/* ------------------------------------------------------------- broken and unknown */

static void a_broken_layer_among_good_ones_is_an_error_that_names_the_tensor(void **state)
{
    (void)state;
    test_layer_t layer;
    for (int kind = 0; kind < 3; kind++) {
        model_file_t file = {0};
        test_layer_describe(&layer, &llama);
        for (int i = 0; i < 4; i++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "model.layers.%d.", i);
            model_file_add_layer(&file, &layer, prefix, i != 2 ? LLAMA_NAMES : "gate=mlp.gate_proj up=mlp.up_proj in=post_attention_layernorm");
            if (i == 2 && kind == 1) model_file_add(&file, NULL, 12, 19, "%smlp.down_proj.weight", prefix);
            if (i == 2 && kind == 2) model_file_add(&file, NULL, 240, 0, "%smlp.down_proj.weight", prefix);
        }
        test_layer_free(&layer);
        const char *path = model_file_write(&file, kind == 1 ? NULL : "{\"model_type\":\"llama\"}");
        assert_no_layers(path, NULL, kind ? FFN_INVALID : FFN_UNKNOWN,
                         kind == 0 ? "no tensor|model.layers.2.mlp.down_proj.weight|llama"
                         : kind == 1 ? "model.layers.2.mlp.down_proj.weight|[12, 19]|20"
                                     : "model.layers.2.mlp.down_proj.weight|[240]|matrix");
    }
}

static void a_model_type_whose_tensors_are_not_there_is_not_taken_for_another_family(void **state)
{
    (void)state;
    const char *path = write_one(&llama, "model.layers.0.", LLAMA_NAMES, "{\"model_type\":\"gemma2\"}");
    assert_no_layers(path, NULL, FFN_UNKNOWN, "model.layers.0.pre_feedforward_layernorm.weight|gemma2");
    path = write_one(&bert, "bert.encoder.layer.0.", "up=intermediate.dense down=output.dense", "{\"model_type\":\"bert\"}");
    assert_no_layers(path, NULL, FFN_UNKNOWN, "bert.encoder.layer.0.output.LayerNorm.weight");
}

static void a_bias_that_config_json_promises_must_be_there(void **state)
{
    (void)state;
    const char *path = write_one(&llama, "model.layers.0.", LLAMA_NAMES, "{\"model_type\":\"llama\",\"mlp_bias\":true}");
    assert_no_layers(path, NULL, FFN_UNKNOWN, "model.layers.0.mlp.up_proj.bias");
}

static void an_unknown_model_is_told_by_the_kinds_of_its_names(void **state)
{
    (void)state;
    model_file_t file = {0};
    for (int i = 0; i < 20; i++) model_file_add(&file, NULL, 4, 4, "net.%d.mixer.ln2.w", i);
    model_file_add(&file, NULL, 4, 4, "head.weight");
    const char *path = model_file_write(&file, NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "head.weight, net.{i}.mixer.ln2.w|by hand");
    assert_no_layers(path, "llama", FFN_UNKNOWN, "family llama|net.{i}.mixer.ln2.w");
    assert_false(strstr(ffn_io_last_error(), "net.1."));
    for (int i = 0; i < 300; i++) model_file_add(&file, NULL, 1, 0, "part%03d.of.a.model.with.very.many.kinds.of.names.weight", i);
    path = model_file_write(&file, NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "part000.of.a.model.with.very.many.kinds.of.names.weight|...");
    path = test_safetensors("empty.safetensors", "{}", "", 0);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "none");
}

static void a_family_that_is_in_no_row_is_refused_with_the_rows(void **state)
{
    (void)state;
    const char *path = write_one(&llama, "model.layers.0.", LLAMA_NAMES, NULL);
    ffn_model_options_t options = {.struct_size = sizeof options, .family = "lama"};
    ffn_model_t *model;
    assert_int_equal(ffn_model_open(path, &options, &model), FFN_UNKNOWN);
    assert_null(model);
    assert_non_null(strstr(ffn_io_last_error(), "\"lama\""));
    assert_non_null(strstr(ffn_io_last_error(), "bert, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_of_c_fc_shows_in_its_shape_unless_it_is_square),
        cmocka_unit_test(a_square_c_fc_takes_its_layout_from_model_type_or_from_the_caller),
        cmocka_unit_test(a_gpt2_whose_shapes_are_linear_is_refused_by_name_of_the_tensor),
        cmocka_unit_test(names_that_fit_pre_and_post_norm_alike_need_to_be_told),
        cmocka_unit_test(the_norm_of_the_layer_is_its_own_and_not_attention_s),
        cmocka_unit_test(a_family_that_no_layer_expresses_is_refused_with_the_reason),
        cmocka_unit_test(every_name_of_an_activation_is_known),
        cmocka_unit_test(an_activation_of_no_known_name_is_refused_with_the_known_ones_until_it_is_overridden),
        cmocka_unit_test(a_gemma_that_says_gelu_means_tanh),
        cmocka_unit_test(eps_is_the_number_that_the_file_has),
        cmocka_unit_test(values_of_config_json_that_are_none_are_refused_with_file_and_key),
        cmocka_unit_test(towers_of_one_model_have_their_own_part_of_config_json),
        cmocka_unit_test(layers_come_in_the_model_s_order),
        cmocka_unit_test(a_broken_layer_among_good_ones_is_an_error_that_names_the_tensor),
        cmocka_unit_test(a_model_type_whose_tensors_are_not_there_is_not_taken_for_another_family),
        cmocka_unit_test(a_bias_that_config_json_promises_must_be_there),
        cmocka_unit_test(an_unknown_model_is_told_by_the_kinds_of_its_names),
        cmocka_unit_test(a_family_that_is_in_no_row_is_refused_with_the_rows),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
