/* SPDX-License-Identifier: MIT
 *
 * Mixtures of experts that are broken or could be mistaken: experts, routers and values of config.json that are missing, too many or of the wrong shape
 * are refused with a sentence that names them; which layers have experts is right layer by layer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/support/files.h"
#include "io/support/moe_rules.h"
#include "support/test.h"

#define W1_W2_W3 "gate=block_sparse_moe.experts.{e}.w1.weight up=block_sparse_moe.experts.{e}.w3.weight down=block_sparse_moe.experts.{e}.w2.weight "
#define STACKS   "fused=mlp.experts.gate_up_proj down=mlp.experts.down_proj "
#define NORM     "in=post_attention_layernorm.weight"
#define LLAMA    "gate=mlp.gate_proj up=mlp.up_proj down=mlp.down_proj in=post_attention_layernorm"

static const moe_case_t mixtral = {.family = "mixtral", .prefix = "model.layers.%d.", .names = "router=block_sparse_moe.gate.weight " W1_W2_W3 NORM,
                                   .experts = 6, .top_k = 2, .activation = FFN_ACTIVATION_SILU, .norm = FFN_NORM_RMS, .eps = 1e-5f};
static const moe_case_t stacked = {.family = "qwen3_moe", .prefix = "model.layers.%d.", .names = "router=mlp.gate.weight " STACKS NORM, .storage = STACK,
                                   .experts = 6, .top_k = 2, .activation = FFN_ACTIVATION_SILU, .norm = FFN_NORM_RMS, .eps = 1e-6f};
static const moe_case_t latent = {.family = "nemotron_h", .prefix = "model.layers.%d.",
                                  .names = "router=mixer.gate.weight selection=mixer.gate.e_score_correction_bias up=mixer.experts.up_proj "
                                           "down=mixer.experts.down_proj latent_in=mixer.fc1_latent_proj.weight latent_out=mixer.fc2_latent_proj.weight "
                                           "in=norm.weight", .storage = STACK, .experts = 6, .top_k = 2, .activation = FFN_ACTIVATION_RELU2,
                                  .norm = FFN_NORM_RMS, .eps = 1e-5f};
static const layer_case_t dense = {.d_model = MOE_D_MODEL, .d_ff = 20, .activation = FFN_ACTIVATION_SILU, .gated = true,
                                   .residual = FFN_RESIDUAL_INPUT, .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-6f, 0}}, .seed = 3};

static void add_experts(model_file_t *file, const moe_case_t *is, int number, const char *skip)
{
    moe_layer_t layer;
    moe_layer_make(&layer, is, number, (uint64_t)number);
    moe_layer_add(&layer, file, skip);
    moe_layer_free(&layer);
}

static void add_dense(model_file_t *file, int number, const char *names)
{
    char prefix[64];
    test_layer_t layer;
    snprintf(prefix, sizeof prefix, "model.layers.%d.", number);
    test_layer_describe(&layer, &dense);
    model_file_add_layer(file, &layer, prefix, names);
    test_layer_free(&layer);
}

/* A model of one mixture, without a tensor. */
static const char *write_one(const moe_case_t *is, const char *skip, const char *config)
{
    model_file_t file = {0};
    add_experts(&file, is, 0, skip);
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
    const ffn_model_layer_t *layer;
    assert_io_ok(ffn_model_info(model, &info));
    assert_io_refused(ffn_model_layer(model, 0, &layer), status, path, words);
    assert_int_equal(info.layer_count, 0);
    assert_int_equal(info.active_parameters, info.parameters);
    ffn_model_free(model);
}

/* The families of a model's layers, in their order: "llama mixtral mixtral". */
static void assert_layers(const char *path, const char *family, const char *families)
{
    char text[256] = "";
    ffn_model_t *model = open_as(path, family);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    for (int64_t i = 0; i < info.layer_count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", model_layer(model, i)->family);
        int is_dense = !strcmp(model_layer(model, i)->family, "llama") || strstr(model_layer(model, i)->family, "_dense");
        assert_int_equal(model_layer(model, i)->options->moe == NULL, is_dense);
    }
    assert_string_equal(text, families);
    ffn_model_free(model);
}

/* ------------------------------------------------------------- tensors */

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *skip, *words;
    } missing[] = {
        {"router.0", "block_sparse_moe.gate.weight"},          {"up.0", "block_sparse_moe.experts.0.w3.weight"},
        {"gate.0", "block_sparse_moe.experts.0.w1.weight"},    {"down.0", "block_sparse_moe.experts.0.w2.weight"},
        {"up.3", "block_sparse_moe.experts.3.w3.weight"},      {"gate.5", "block_sparse_moe.experts.5.w1.weight"},
        {"down.5", "block_sparse_moe.experts.5.w2.weight"},    {"in.0", "post_attention_layernorm.weight"},
    };
    for (int64_t i = 0; i < COUNT_OF(missing); i++) {
        assert_no_layers(write_one(&mixtral, missing[i].skip, "{\"model_type\":\"mixtral\"}"), NULL, FFN_UNKNOWN, missing[i].words);
        assert_no_layers(write_one(&mixtral, missing[i].skip, NULL), "mixtral", FFN_UNKNOWN, missing[i].words);
    }
    assert_no_layers(write_one(&stacked, "down.0", "{\"model_type\":\"qwen3_moe\"}"), NULL, FFN_UNKNOWN, "mlp.experts.down_proj");
    assert_no_layers(write_one(&stacked, "fused.0", "{\"model_type\":\"qwen3_moe\"}"), NULL, FFN_UNKNOWN, "mlp.experts.gate_up_proj");
    assert_no_layers(write_one(&stacked, "router.0", "{\"model_type\":\"qwen3_moe\"}"), NULL, FFN_UNKNOWN, "mlp.gate.weight");
    assert_no_layers(write_one(&latent, "latent_in.0", "{\"model_type\":\"nemotron_h\"}"), NULL, FFN_UNKNOWN, "mixer.fc1_latent_proj.weight");
    assert_no_layers(write_one(&latent, "latent_out.0", NULL), NULL, FFN_UNKNOWN, "mixer.fc2_latent_proj.weight");
    assert_no_layers(write_one(&latent, "selection.0", "{\"model_type\":\"nemotron_h\"}"), NULL, FFN_UNKNOWN, "e_score_correction_bias");
}

/* Adds a tensor to a model of one mixture, in place of one that is left out. */
static const char *write_with(const moe_case_t *is, const char *skip, const char *name, int ndim, const int64_t *shape, const char *config)
{
    model_file_t file = {0};
    add_experts(&file, is, 0, skip);
    model_file_add_shaped(&file, NULL, ndim, shape, name);
    return model_file_write(&file, config);
}

static void a_tensor_of_the_wrong_shape_is_named_with_its_shape(void **state)
{
    (void)state;
    enum { D = MOE_D_MODEL, F = MOE_D_FF };
    static const struct {
        const moe_case_t *is;
        const char *skip, *name;
        int ndim;
        int64_t shape[4];
        ffn_status_t status;
        const char *words;
    } wrong[] = {
        {&mixtral, "gate.3", "model.layers.0.block_sparse_moe.experts.3.w1.weight", 2, {F - 1, D}, FFN_INVALID, "experts.3.w1|[9, 12]|10"},
        {&mixtral, "up.3", "model.layers.0.block_sparse_moe.experts.3.w3.weight", 2, {F, D + 1}, FFN_INVALID, "experts.3.w3|[10, 13]|12"},
        {&mixtral, "down.3", "model.layers.0.block_sparse_moe.experts.3.w2.weight", 2, {F, D}, FFN_INVALID, "experts.3.w2|[10, 12]"},
        {&mixtral, "down.3", "model.layers.0.block_sparse_moe.experts.3.w2.weight", 1, {D * F}, FFN_INVALID, "experts.3.w2|[120]|matrix"},
        {&mixtral, "up.0", "model.layers.0.block_sparse_moe.experts.0.w3.weight", 3, {2, F, D}, FFN_INVALID, "experts.0.w3|[2, 10, 12]|matrix"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 2, {5, D}, FFN_INVALID, "experts.5.|gate.weight|5 experts"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 2, {7, D}, FFN_UNKNOWN, "experts.6.w3.weight"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 2, {6, D + 1}, FFN_INVALID, "experts.0.w3|12|13"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 1, {6 * D}, FFN_INVALID, "gate.weight|[experts, d_model]"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 2, {0, D}, FFN_INVALID, "gate.weight"},
        {&mixtral, "router.0", "model.layers.0.block_sparse_moe.gate.weight", 2, {769, D}, FFN_UNSUPPORTED, "gate.weight|769|768"},
        {&mixtral, "in.0", "model.layers.0.post_attention_layernorm.weight", 1, {D + 1}, FFN_INVALID, "layernorm|[13]|12"},
        {&stacked, "fused.0", "model.layers.0.mlp.experts.gate_up_proj", 3, {5, 2 * F, D}, FFN_INVALID, "gate_up_proj|[5, 20, 12]|6 experts"},
        {&stacked, "fused.0", "model.layers.0.mlp.experts.gate_up_proj", 3, {6, 2 * F + 1, D}, FFN_INVALID, "gate_up_proj|[6, 21, 12]|halved"},
        {&stacked, "fused.0", "model.layers.0.mlp.experts.gate_up_proj", 3, {6, 2 * F, D + 2}, FFN_INVALID, "[6, 20, 14]|12"},
        {&stacked, "fused.0", "model.layers.0.mlp.experts.gate_up_proj", 4, {6, 1, 2 * F, D}, FFN_INVALID, "gate_up_proj|[6, 1, 20, 12]|6 experts"},
        {&stacked, "fused.0", "model.layers.0.mlp.experts.gate_up_proj", 1, {6 * 2 * F * D}, FFN_INVALID, "gate_up_proj|[1440]"},
        {&stacked, "down.0", "model.layers.0.mlp.experts.down_proj", 3, {6, F, D}, FFN_INVALID, "down_proj|[6, 10, 12]|[experts, out, in]"},
        {&stacked, "down.0", "model.layers.0.mlp.experts.down_proj", 3, {0, D, F}, FFN_INVALID, "down_proj|[0, 12, 10]"},
    };
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        const char *config = wrong[i].is == &mixtral ? "{\"model_type\":\"mixtral\"}" : "{\"model_type\":\"qwen3_moe\",\"num_experts_per_tok\":2}";
        const char *path = write_with(wrong[i].is, wrong[i].skip, wrong[i].name, wrong[i].ndim, wrong[i].shape, config);
        assert_no_layers(path, NULL, wrong[i].status, wrong[i].words);
    }
}

static void tensors_that_a_family_does_not_have_are_named(void **state)
{
    (void)state;
    const char *config = "{\"model_type\":\"mixtral\"}";
    const char *path = write_with(&mixtral, NULL, "model.layers.0.block_sparse_moe.gate.bias", 1, (const int64_t[]){6}, config);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "gate.bias|mixtral");
    path = write_with(&mixtral, NULL, "model.layers.0.block_sparse_moe.experts.4.w2.bias", 1, (const int64_t[]){12}, config);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "experts.4.w2.bias|mixtral");
    path = write_with(&mixtral, NULL, "model.layers.0.block_sparse_moe.e_score_correction_bias", 1, (const int64_t[]){6}, config);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "e_score_correction_bias|mixtral");
}

/* gpt-oss as published. */
static void packed_experts_are_refused_with_the_reason(void **state)
{
    (void)state;
    model_file_t file = {0};
    model_file_add_shaped(&file, NULL, 2, (const int64_t[]){6, 12}, "model.layers.0.mlp.router.weight");
    model_file_add_shaped(&file, NULL, 1, (const int64_t[]){6}, "model.layers.0.mlp.router.bias");
    model_file_add_shaped(&file, NULL, 4, (const int64_t[]){6, 20, 1, 16}, "model.layers.0.mlp.experts.gate_up_proj_blocks");
    model_file_add_shaped(&file, NULL, 1, (const int64_t[]){12}, "model.layers.0.post_attention_layernorm.weight");
    assert_no_layers(model_file_write(&file, "{\"model_type\":\"gpt_oss\"}"), NULL, FFN_UNSUPPORTED, "gate_up_proj_blocks|BF16");
}

/* ------------------------------------------------------------- config.json */

static void values_of_config_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        ffn_status_t status; /* of the layer */
        const char *words;
    } wrong[] = {
        {"\"model_type\":\"mixtral\",\"num_local_experts\":5", FFN_INVALID, "num_local_experts|5|6 experts"},
        {"\"model_type\":\"mixtral\",\"num_local_experts\":8", FFN_INVALID, "num_local_experts|8|6 experts"},
        {"\"model_type\":\"mixtral\",\"num_experts_per_tok\":7", FFN_INVALID, "num_experts_per_tok|7|1 to the 6"},
        {"\"model_type\":\"mixtral\",\"num_experts_per_tok\":0", FFN_INVALID, "num_experts_per_tok|0|1 to the 6"},
        {"\"model_type\":\"mixtral\",\"num_experts_per_tok\":-2", FFN_INVALID, "num_experts_per_tok|-2|1 to the 6"},
        {"\"model_type\":\"mixtral\",\"num_experts_per_tok\":9223372036854775807", FFN_INVALID, "num_experts_per_tok"},
    };
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        char config[256];
        snprintf(config, sizeof config, "{%s}", wrong[i].config);
        assert_no_layers(write_one(&mixtral, NULL, config), NULL, wrong[i].status, wrong[i].words);
    }
}

static const moe_case_t deepseek = {.family = "deepseek_v3", .prefix = "model.layers.%d.",
                                    .names = "router=mlp.gate.weight selection=mlp.gate.e_score_correction_bias gate=mlp.experts.{e}.gate_proj.weight "
                                             "up=mlp.experts.{e}.up_proj.weight down=mlp.experts.{e}.down_proj.weight " NORM,
                                    .experts = 8, .top_k = 3, .activation = FFN_ACTIVATION_SILU, .norm = FFN_NORM_RMS, .eps = 1e-6f};

static void values_of_routers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        ffn_status_t status;
        const char *words;
    } wrong[] = {
        {"\"n_group\":3,\"topk_group\":1", FFN_INVALID, "n_group|3|8 experts"},
        {"\"n_group\":-4,\"topk_group\":1", FFN_INVALID, "n_group|-4"},
        {"\"n_group\":4,\"topk_group\":0", FFN_INVALID, "topk_group|0|4 groups"},
        {"\"n_group\":4,\"topk_group\":5", FFN_INVALID, "topk_group|5|4 groups"},
        {"\"n_group\":4,\"topk_group\":1", FFN_INVALID, "topk_group|1|hold 3"},
        {"\"scoring_func\":\"tanh\"", FFN_UNSUPPORTED, "scoring_func|tanh|deepseek_v3"},
    };
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        char config[256];
        snprintf(config, sizeof config, "{\"model_type\":\"deepseek_v3\",\"num_experts_per_tok\":3,%s}", wrong[i].config);
        assert_no_layers(write_one(&deepseek, NULL, config), NULL, wrong[i].status, wrong[i].words);
    }
}

/* A value of the wrong kind makes the file unreadable, as it does for dense layers. */
static void values_of_config_of_the_wrong_kind_are_refused_at_opening(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"\"num_experts_per_tok\":2.5", "num_experts_per_tok|integer"},
        {"\"num_experts_per_tok\":\"two\"", "num_experts_per_tok|string"},
        {"\"num_experts_per_tok\":[]", "num_experts_per_tok|array"},
        {"\"n_routed_experts\":true", "n_routed_experts|true"},
        {"\"num_experts_per_tok\":3,\"n_group\":{}", "n_group|object"},
        {"\"num_experts_per_tok\":3,\"scoring_func\":1", "scoring_func|integer"},
        {"\"num_experts_per_tok\":3,\"routed_scaling_factor\":\"x\"", "routed_scaling_factor|string"},
        {"\"num_experts_per_tok\":3,\"routed_scaling_factor\":0", "routed_scaling_factor|0"},
        {"\"num_experts_per_tok\":3,\"routed_scaling_factor\":1e300", "routed_scaling_factor"},
    };
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        char config[256];
        ffn_model_t *model;
        snprintf(config, sizeof config, "{\"model_type\":\"deepseek_v3\",%s}", wrong[i][0]);
        write_one(&deepseek, NULL, config);
        assert_io_refused(ffn_model_open(test_path("model.safetensors"), NULL, &model), FFN_FORMAT, "config.json", wrong[i][1]);
        assert_null(model);
    }
}

/* ------------------------------------------------------------- which layers */

static void dense_layers_and_experts_take_turns(void **state)
{
    (void)state;
    model_file_t file = {0};
    add_dense(&file, 0, LLAMA);
    add_experts(&file, &deepseek, 1, NULL);
    add_dense(&file, 2, LLAMA);
    add_experts(&file, &deepseek, 10, NULL);
    const char *path = model_file_write(&file, "{\"model_type\":\"deepseek_v3\",\"num_experts_per_tok\":3,\"n_group\":1}");
    assert_layers(path, NULL, "llama deepseek_v3 llama deepseek_v3");
    assert_layers(path, "deepseek_v3", "llama deepseek_v3 llama deepseek_v3");
    assert_layers(path, "llama", "llama llama");
    ffn_model_t *model = open_as(path, NULL);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    assert_string_equal(info.family, "deepseek_v3");
    ffn_model_free(model);
}

static void the_dense_layers_of_a_family_may_have_names_of_their_own(void **state)
{
    (void)state;
    static const moe_case_t llama4 = {.family = "llama4", .prefix = "model.layers.%d.", .storage = STACK_IN_OUT, .experts = 4, .top_k = 1,
                                      .names = "router=feed_forward.router.weight fused=feed_forward.experts.gate_up_proj "
                                               "down=feed_forward.experts.down_proj shared_gate=feed_forward.shared_expert.gate_proj.weight "
                                               "shared_up=feed_forward.shared_expert.up_proj.weight shared_down=feed_forward.shared_expert.down_proj.weight "
                                               NORM},
                            jamba = {.family = "jamba", .prefix = "model.layers.%d.", .storage = STACK, .experts = 4, .top_k = 2,
                                     .names = "router=feed_forward.router.weight fused=feed_forward.experts.gate_up_proj "
                                              "down=feed_forward.experts.down_proj in=pre_ff_layernorm.weight"};
    static const char projections[] = "gate=feed_forward.gate_proj up=feed_forward.up_proj down=feed_forward.down_proj in=";
    const moe_case_t *const families[] = {&llama4, &jamba};
    for (int i = 0; i < 2; i++) {
        char names[256], config[64], expected[128];
        model_file_t file = {0};
        snprintf(names, sizeof names, "%s%s", projections, i ? "pre_ff_layernorm" : "post_attention_layernorm");
        snprintf(config, sizeof config, "{\"model_type\":\"%s\"}", i ? "jamba" : "llama4_text");
        snprintf(expected, sizeof expected, "%s_dense %s %s_dense %s", families[i]->family, families[i]->family, families[i]->family, families[i]->family);
        add_dense(&file, 0, names);
        add_experts(&file, families[i], 1, NULL);
        add_dense(&file, 2, names);
        add_experts(&file, families[i], 3, NULL);
        const char *path = model_file_write(&file, config);
        assert_layers(path, NULL, expected);
        assert_layers(path, families[i]->family, expected);
        unlink(test_path("config.json"));
        assert_layers(path, NULL, expected);
    }
}

static void a_broken_layer_beside_right_ones_of_the_other_kind_is_not_passed_over(void **state)
{
    (void)state;
    const char *config = "{\"model_type\":\"deepseek_v3\",\"num_experts_per_tok\":3,\"n_group\":1}";
    model_file_t file = {0};
    add_dense(&file, 0, LLAMA);
    add_experts(&file, &deepseek, 1, "down.7");
    assert_no_layers(model_file_write(&file, config), NULL, FFN_UNKNOWN, "layers.1.mlp.experts.7.down_proj.weight");
    add_dense(&file, 0, "gate=mlp.gate_proj up=mlp.up_proj in=post_attention_layernorm");
    add_experts(&file, &deepseek, 1, NULL);
    assert_no_layers(model_file_write(&file, config), NULL, FFN_UNKNOWN, "layers.0.mlp.down_proj.weight");
    add_experts(&file, &deepseek, 0, NULL);
    add_experts(&file, &deepseek, 1, "selection.0");
    add_experts(&file, &deepseek, 2, "router.0");
    assert_no_layers(model_file_write(&file, config), NULL, FFN_UNKNOWN, "layers.2.mlp.gate.weight");
}

static void names_that_fit_several_mixtures_need_to_be_told(void **state)
{
    (void)state;
    moe_case_t many = stacked;
    many.experts = 12;
    const char *path = write_one(&many, NULL, NULL);
    assert_no_layers(path, NULL, FFN_UNKNOWN, "model.layers.0.mlp.gate.weight|qwen3_moe|family");
    assert_layers(path, "qwen3_moe", "qwen3_moe");
    assert_layers(path, "olmoe", "olmoe");
    assert_no_layers(path, "deepseek_v3", FFN_INVALID, "n_group|8|12 experts");
    assert_no_layers(path, "gpt_oss", FFN_UNKNOWN, "gpt_oss");
}

static void stacks_of_newer_files_are_not_taken_for_mixtral_s_by_their_names_alone(void **state)
{
    (void)state;
    ffn_model_t *model = open_as(write_one(&stacked, NULL, "{\"model_type\":\"unheard_of\"}"), NULL);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    assert_int_equal(info.layer_count, 0);
    ffn_model_free(model);
}

/* ------------------------------------------------------------- by hand */

enum { BINDINGS = 3 * 6 + 2 }; /* of a layer of mixtral's: in the order of roles up, gate, down, norm, router */

typedef struct by_hand {
    ffn_model_binding_t bindings[BINDINGS];
    ffn_layer_options_t options;
    ffn_moe_options_t moe;
    ffn_model_layer_t layer;
} by_hand_t;

static void by_hand(by_hand_t *made, const ffn_model_t *model)
{
    const ffn_model_layer_t *found = model_layer(model, 0);
    assert_int_equal(found->binding_count, BINDINGS);
    memcpy(made->bindings, found->bindings, sizeof made->bindings);
    made->options = *found->options;
    made->moe = *found->options->moe;
    made->options.moe = &made->moe;
    made->layer = *found;
    made->layer.options = &made->options;
    made->layer.bindings = made->bindings;
}

static void assert_refused(const ffn_model_t *model, by_hand_t *given, ffn_status_t status, const char *words)
{
    ffn_layer_t *made = (ffn_layer_t *)64;
    assert_io_refused(ffn_model_layer_create(model, NULL, &given->layer, &made), status, "", words);
    assert_null(made);
    by_hand(given, model);
}

static void bindings_of_experts_that_are_wrong_are_refused(void **state)
{
    (void)state;
    ffn_model_t *model = open_as(write_one(&mixtral, NULL, "{\"model_type\":\"mixtral\"}"), NULL);
    by_hand_t given;
    by_hand(&given, model);
    given.bindings[3].expert = 2;
    assert_refused(model, &given, FFN_INVALID, "role 1 of expert 2|twice|bindings[3]");
    given.bindings[5].expert = 6;
    assert_refused(model, &given, FFN_INVALID, "bindings[5]|up weight of expert 6|there are 6");
    given.bindings[5].expert = UINT32_MAX;
    given.bindings[5].experts = 2;
    assert_refused(model, &given, FFN_INVALID, "bindings[5]|there are 6");
    given.bindings[17] = given.bindings[18];
    given.layer.binding_count = BINDINGS - 1;
    assert_refused(model, &given, FFN_INVALID, "twice|bindings[18]");
    given.bindings[17] = given.bindings[19];
    given.layer.binding_count = BINDINGS - 1;
    assert_refused(model, &given, FFN_INVALID, "down weight of expert 5|expert 0");
    given.bindings[19].expert = 1;
    assert_refused(model, &given, FFN_INVALID, "bindings[19]|router weight");
    given.bindings[0].experts = 4;
    assert_refused(model, &given, FFN_INVALID, "twice");
    given.bindings[5].experts = 1;
    given.bindings[5].layout = FFN_LAYOUT_IN_OUT;
    assert_refused(model, &given, FFN_INVALID, "experts.5.w3.weight|[10, 12]|[experts, in, out]");
    given.options.moe = NULL;
    assert_refused(model, &given, FFN_INVALID, "moe");
    given.moe.experts = 7;
    assert_refused(model, &given, FFN_INVALID, "expert 6");
    given.moe.experts = 769;
    assert_refused(model, &given, FFN_INVALID, "769|768");
    given.moe.experts = -1;
    assert_refused(model, &given, FFN_INVALID, "experts");
    given.moe.identity_experts = 2; /* the router has rows for 6 */
    assert_refused(model, &given, FFN_INVALID, "gate.weight|[6, 12]|8");
    given.moe.top_k = 7;
    assert_refused(model, &given, FFN_INVALID, "top_k|7");
    given.moe.struct_size = 0;
    assert_refused(model, &given, FFN_INVALID, "ffn_moe_options_t");
    given.layer.binding_count = 1000000;
    assert_refused(model, &given, FFN_INVALID, "binding_count|1000000");
    ffn_model_free(model);
}

/* In any order; a single tensor may be called a stack of one; the number of experts is the bindings' where it is not told. */
static void bindings_of_experts_have_no_order(void **state)
{
    (void)state;
    float x[5 * MOE_D_MODEL], y[5 * MOE_D_MODEL], again[5 * MOE_D_MODEL];
    ffn_model_t *model = open_as(write_one(&mixtral, NULL, "{\"model_type\":\"mixtral\"}"), NULL);
    by_hand_t given;
    ffn_layer_t *layer;
    for (int i = 0; i < 5 * MOE_D_MODEL; i++) x[i] = (float)(i % 7) - 3;
    assert_io_ok(ffn_model_layer_create(model, NULL, model_layer(model, 0), &layer));
    assert_io_ok(ffn_layer_forward(layer, NULL, 5, x, 0, y, 0));
    ffn_layer_free(layer);
    by_hand(&given, model);
    for (int i = 0; i < BINDINGS; i++) given.bindings[i] = model_layer(model, 0)->bindings[BINDINGS - 1 - i];
    given.bindings[2].experts = given.bindings[9].experts = 1;
    given.moe.experts = 0;
    assert_io_ok(ffn_model_layer_create(model, NULL, &given.layer, &layer));
    assert_io_ok(ffn_layer_forward(layer, NULL, 5, x, 0, again, 0));
    assert_memory_equal(y, again, sizeof y);
    ffn_layer_free(layer);
    ffn_model_free(model);
}

/* ERNIE's bias for the choice is [1, experts]. */
static void a_vector_may_have_a_dimension_of_one_more(void **state)
{
    (void)state;
    static const moe_case_t ernie = {.family = "ernie4_5_moe", .prefix = "model.layers.%d.", .experts = 6, .top_k = 2,
                                     .names = "router=mlp.gate.weight gate=mlp.experts.{e}.gate_proj.weight up=mlp.experts.{e}.up_proj.weight "
                                              "down=mlp.experts.{e}.down_proj.weight " NORM};
    const char *path = write_with(&ernie, NULL, "model.layers.0.mlp.moe_statics.e_score_correction_bias", 2, (const int64_t[]){1, 6},
                                  "{\"model_type\":\"ernie4_5_moe\",\"moe_k\":2}");
    ffn_model_t *model = open_as(path, NULL);
    ffn_layer_t *layer;
    assert_io_ok(ffn_model_layer_create(model, NULL, model_layer(model, 0), &layer));
    ffn_layer_free(layer);
    ffn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_tensor_of_the_wrong_shape_is_named_with_its_shape),
        cmocka_unit_test(tensors_that_a_family_does_not_have_are_named),
        cmocka_unit_test(packed_experts_are_refused_with_the_reason),
        cmocka_unit_test(values_of_config_that_cannot_be_are_refused),
        cmocka_unit_test(values_of_routers_that_cannot_be_are_refused),
        cmocka_unit_test(values_of_config_of_the_wrong_kind_are_refused_at_opening),
        cmocka_unit_test(dense_layers_and_experts_take_turns),
        cmocka_unit_test(the_dense_layers_of_a_family_may_have_names_of_their_own),
        cmocka_unit_test(a_broken_layer_beside_right_ones_of_the_other_kind_is_not_passed_over),
        cmocka_unit_test(names_that_fit_several_mixtures_need_to_be_told),
        cmocka_unit_test(bindings_of_experts_that_are_wrong_are_refused),
        cmocka_unit_test(bindings_of_experts_have_no_order),
        cmocka_unit_test(a_vector_may_have_a_dimension_of_one_more),
        cmocka_unit_test(stacks_of_newer_files_are_not_taken_for_mixtral_s_by_their_names_alone),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
