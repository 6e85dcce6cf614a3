/* SPDX-License-Identifier: MIT
 *
 * Trained weights and their expected outputs (../shared/data): the library and the oracle against values that an independent program computed in
 * float64. Without that folder the tests are skipped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/layer_check.h"
#include "support/safetensors.h"
#include "support/test.h"

/* How far the library may be from the expected values, as a part of the largest of them. */
static const double TOLERANCE = 2e-6;

/* A layer of tensors that a file holds: the library's and the oracle's. */
typedef struct model {
    ffn_layer_options_t options;
    ffn_tensor_t tensors[12];
    oracle_layer_t oracle;
    float *plain[3]; /* transposed copies, which the oracle reads */
    ffn_layer_t *layer;
} model_t;

static void add(model_t *model, uint32_t role, safetensor_t tensor)
{
    ffn_tensor_t *view = &model->tensors[model->options.tensor_count++];
    *view = (ffn_tensor_t){.role = role, .ndim = (uint32_t)tensor.ndim, .data = (void *)(uintptr_t)tensor.data,
                           .shape = {tensor.shape[0], tensor.ndim == 2 ? tensor.shape[1] : 0}};
}

/* A matrix that the file has as [in, out]: the library gets strides, the oracle a copy. */
static const float *add_transposed(model_t *model, uint32_t role, safetensor_t tensor, int copy)
{
    int64_t in = tensor.shape[0], out = tensor.shape[1];
    add(model, role, tensor);
    ffn_tensor_t *view = &model->tensors[model->options.tensor_count - 1];
    view->shape[0] = out;
    view->shape[1] = in;
    view->stride[0] = 4;
    view->stride[1] = 4 * out;
    float *plain = model->plain[copy] = test_alloc((size_t)(in * out) * sizeof *plain);
    for (int64_t j = 0; j < out; j++)
        for (int64_t i = 0; i < in; i++) plain[j * in + i] = tensor.data[i * out + j];
    return plain;
}

static model_t model_of(uint32_t activation, uint32_t residual)
{
    model_t model = {.options = {.struct_size = sizeof model.options, .activation = activation, .residual = residual},
                     .oracle = {.activation = {.id = activation}, .residual = residual}};
    return model;
}

static void set_norm(model_t *model, int slot, uint32_t kind, float eps, safetensor_t weight, const safetensor_t *bias)
{
    uint32_t role = FFN_ROLE_NORM_IN_WEIGHT + 2 * (uint32_t)slot;
    model->options.norm[slot] = kind;
    model->options.norm_eps[slot] = eps;
    add(model, role, weight);
    if (bias) add(model, role + 1, *bias);
    model->oracle.norm[slot] = (oracle_norm_t){kind, eps, 0, weight.data, bias ? bias->data : NULL};
}

static void set_matrix(model_t *model, uint32_t role, const float **oracle, safetensor_t tensor)
{
    add(model, role, tensor);
    *oracle = tensor.data;
}

static void create(model_t *model)
{
    model->options.tensors = model->tensors;
    assert_ok(ffn_layer_create(NULL, &model->options, &model->layer));
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(model->layer, &info));
    model->oracle.d_model = info.d_model;
    model->oracle.d_ff = info.d_ff;
    model->oracle.d_out = info.d_out;
}

static void model_free(model_t *model)
{
    ffn_layer_free(model->layer);
    for (int i = 0; i < 3; i++) free(model->plain[i]);
    memset(model, 0, sizeof *model);
}

/* Fails the test unless |got - expected| <= TOLERANCE * max |expected|. */
static void assert_near_expected(const float *got, safetensor_t expected, const char *what)
{
    int64_t n = expected.shape[0] * expected.shape[1];
    double limit = TOLERANCE * largest_magnitude(expected.data, n);
    for (int64_t i = 0; i < n; i++) {
        double distance = fabs((double)got[i] - (double)expected.data[i]);
        if (!(distance <= limit))
            fail_msg("%s: token %lld, feature %lld: expected %.9g, got %.9g, off by %.3g where %.3g is allowed, %lld ulps; FFN_MAX_ISA %s", what,
                     (long long)(i / expected.shape[1]), (long long)(i % expected.shape[1]), (double)expected.data[i], (double)got[i], distance,
                     limit, (long long)ulp_distance(expected.data[i], got[i]), test_isa_cap());
    }
}

/* Values in float64 on their way through layers: the oracle's chain, not rounded in between. */
static void run_oracle(const model_t *model, double **x, int64_t tokens)
{
    double *y = test_alloc((size_t)(tokens * model->oracle.d_out) * sizeof *y);
    oracle_run(&model->oracle, tokens, *x, NULL, y, NULL);
    free(*x);
    *x = y;
}

/* The oracle must be the expected value when rounded, but for its last bit; or, where the residual nearly cancels, but for what eps is off by when
 * it is given as a float (a part of 2^-25). */
static void assert_oracle_is_expected(const double *y, safetensor_t expected, const char *what)
{
    int64_t n = expected.shape[0] * expected.shape[1];
    double little = 1e-9 * largest_magnitude(expected.data, n);
    for (int64_t i = 0; i < n; i++)
        if (ulp_distance((float)y[i], expected.data[i]) > 1 && !(fabs(y[i] - (double)expected.data[i]) <= little))
            fail_msg("%s: oracle [%lld]: expected %.9g, got %.17g", what, (long long)i, (double)expected.data[i], y[i]);
}

static void run_in_place(const model_t *model, float *x, int64_t tokens)
{
    assert_ok(ffn_layer_forward(model->layer, NULL, tokens, x, 0, x, 0));
}

static float *copy_of(safetensor_t tensor)
{
    size_t size = (size_t)(tensor.shape[0] * tensor.shape[1]) * sizeof(float);
    return memcpy(test_alloc(size), tensor.data, size);
}

/* One layer on one input, library and oracle. */
static void check_single(const model_t *model, safetensor_t input, safetensor_t expected, const char *what)
{
    int64_t tokens = input.shape[0];
    double *wide = oracle_widen(input.data, tokens * input.shape[1]);
    run_oracle(model, &wide, tokens);
    assert_oracle_is_expected(wide, expected, what);
    float *y = test_alloc((size_t)(tokens * expected.shape[1]) * sizeof *y);
    assert_ok(ffn_layer_forward(model->layer, NULL, tokens, input.data, 0, y, 0));
    assert_near_expected(y, expected, what);
    for (int64_t t = 0; t < tokens; t++) /* one by one, as in decoding */
        assert_ok(ffn_layer_forward(model->layer, NULL, 1, input.data + t * input.shape[1], 0, y + t * expected.shape[1], 0));
    assert_near_expected(y, expected, what);
    free(y);
    free(wide);
}

/* A chain of layers on one input: each layer's expected output has the name `format` with the layer's number. */
typedef model_t layer_maker_t(const safetensors_t *weights, int layer);

static void check_chain(layer_maker_t *make, const char *weights_name, const char *expected_name, const char *input_name, const char *format,
                        int layers)
{
    safetensors_t weights = safetensors_open(weights_name), expected = safetensors_open(expected_name);
    safetensor_t input = safetensors_get(&expected, "%s", input_name);
    int64_t tokens = input.shape[0];
    float *chained = copy_of(input), *single = copy_of(input);
    double *wide = oracle_widen(input.data, tokens * input.shape[1]);
    for (int layer = 0; layer < layers; layer++) {
        char name[128];
        snprintf(name, sizeof name, format, layer);
        safetensor_t y = safetensors_get(&expected, "%s", name);
        model_t model = make(&weights, layer);
        run_oracle(&model, &wide, tokens);
        assert_oracle_is_expected(wide, y, name);
        run_in_place(&model, chained, tokens);
        assert_near_expected(chained, y, name);
        run_in_place(&model, single, tokens); /* from the expected output of the layer before */
        assert_near_expected(single, y, name);
        memcpy(single, y.data, (size_t)(tokens * y.shape[1]) * sizeof *single);
        model_free(&model);
    }
    free(chained);
    free(single);
    free(wide);
    safetensors_close(&weights);
    safetensors_close(&expected);
}

/* ---------------------------------------------------------------- The models */

static model_t stories(const safetensors_t *file, int layer)
{
    model_t model = model_of(FFN_ACTIVATION_SILU, FFN_RESIDUAL_INPUT);
    set_matrix(&model, FFN_ROLE_GATE_WEIGHT, &model.oracle.gate, safetensors_get(file, "model.layers.%d.mlp.gate_proj.weight", layer));
    set_matrix(&model, FFN_ROLE_UP_WEIGHT, &model.oracle.up, safetensors_get(file, "model.layers.%d.mlp.up_proj.weight", layer));
    set_matrix(&model, FFN_ROLE_DOWN_WEIGHT, &model.oracle.down, safetensors_get(file, "model.layers.%d.mlp.down_proj.weight", layer));
    set_norm(&model, FFN_NORM_IN, FFN_NORM_RMS, 1e-5f, safetensors_get(file, "model.layers.%d.post_attention_layernorm.weight", layer), NULL);
    create(&model);
    return model;
}

static void stories260k_layers_are_as_expected_one_by_one_and_chained(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_chain(stories, "stories260k-ffn.safetensors", "stories260k-expected.safetensors", "input", "layers.%d.output", 5);
    check_chain(stories, "stories260k-ffn.safetensors", "stories260k-expected.safetensors", "pieces.input", "pieces.layers.%d.output", 5);
}

/* BERT and ALBERT: post-norm, exact gelu, biases, eps 1e-12. `first` and `second` are the names of the two projections. */
static model_t bert(const safetensors_t *file, const char *prefix, const char *first, const char *second, const char *norm)
{
    model_t model = model_of(FFN_ACTIVATION_GELU, FFN_RESIDUAL_INPUT);
    set_matrix(&model, FFN_ROLE_UP_WEIGHT, &model.oracle.up, safetensors_get(file, "%s.%s.weight", prefix, first));
    set_matrix(&model, FFN_ROLE_UP_BIAS, &model.oracle.up_bias, safetensors_get(file, "%s.%s.bias", prefix, first));
    set_matrix(&model, FFN_ROLE_DOWN_WEIGHT, &model.oracle.down, safetensors_get(file, "%s.%s.weight", prefix, second));
    set_matrix(&model, FFN_ROLE_DOWN_BIAS, &model.oracle.down_bias, safetensors_get(file, "%s.%s.bias", prefix, second));
    safetensor_t bias = safetensors_get(file, "%s.%s.bias", prefix, norm);
    set_norm(&model, FFN_NORM_OUT, FFN_NORM_LAYER, 1e-12f, safetensors_get(file, "%s.%s.weight", prefix, norm), &bias);
    create(&model);
    return model;
}

static model_t minilm(const safetensors_t *file, int layer)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "encoder.layer.%d", layer);
    return bert(file, prefix, "intermediate.dense", "output.dense", "output.LayerNorm");
}

static void minilm_layer_0_is_as_expected_on_real_activations_and_on_embeddings(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_chain(minilm, "minilm-layer0.safetensors", "minilm-expected.safetensors", "model.layer.0.ffn_input", "model.layer.%d.ffn_output", 1);
    check_chain(minilm, "minilm-layer0.safetensors", "minilm-expected.safetensors", "embeddings", "chain.layer.%d.output", 1);
    if (test_quick()) return;
    safetensors_t weights = safetensors_open("minilm-layer0.safetensors"), expected = safetensors_open("minilm-expected.safetensors");
    model_t model = minilm(&weights, 0);
    check_single(&model, safetensors_get(&expected, "model.layer.0.ffn_input"), safetensors_get(&expected, "model.layer.0.ffn_output"),
                 "minilm layer 0");
    model_free(&model);
    safetensors_close(&weights);
    safetensors_close(&expected);
}

static void rxnmapper_albert_is_as_expected_at_all_steps(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    safetensors_t weights = safetensors_open("rxnmapper-albert-ffn.safetensors");
    safetensors_t expected = safetensors_open("rxnmapper-albert-expected.safetensors");
    model_t model = bert(&weights, "albert.encoder.albert_layer_groups.0.albert_layers.0", "ffn", "ffn_output", "full_layer_layer_norm");
    for (int step = 0; step < (test_quick() ? 2 : 8); step++)
        check_single(&model, safetensors_get(&expected, "step.%d.ffn_input", step), safetensors_get(&expected, "step.%d.ffn_output", step),
                     "rxnmapper");
    model_free(&model);
    safetensors_close(&weights);
    safetensors_close(&expected);
}

static void recall_relu_in_in_out_layout_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    safetensors_t weights = safetensors_open("recall-relu-ffn.safetensors"), expected = safetensors_open("recall-relu-expected.safetensors");
    model_t model = model_of(FFN_ACTIVATION_RELU, FFN_RESIDUAL_INPUT);
    model.oracle.up = add_transposed(&model, FFN_ROLE_UP_WEIGHT, safetensors_get(&weights, "bg.mlp.c_fc.W"), 0);
    model.oracle.down = add_transposed(&model, FFN_ROLE_DOWN_WEIGHT, safetensors_get(&weights, "bg.mlp.c_proj.W"), 1);
    set_matrix(&model, FFN_ROLE_UP_BIAS, &model.oracle.up_bias, safetensors_get(&weights, "bg.mlp.c_fc.b"));
    set_matrix(&model, FFN_ROLE_DOWN_BIAS, &model.oracle.down_bias, safetensors_get(&weights, "bg.mlp.c_proj.b"));
    safetensor_t bias = safetensors_get(&weights, "bg.ln2.b");
    set_norm(&model, FFN_NORM_IN, FFN_NORM_LAYER, 1e-5f, safetensors_get(&weights, "bg.ln2.w"), &bias);
    create(&model);
    check_single(&model, safetensors_get(&expected, "input"), safetensors_get(&expected, "output"), "recall-relu");
    model_free(&model);
    safetensors_close(&weights);
    safetensors_close(&expected);
}

static model_t tiny_gpt2(const safetensors_t *file, int layer)
{
    model_t model = model_of(FFN_ACTIVATION_GELU_TANH, FFN_RESIDUAL_INPUT);
    model.oracle.up = add_transposed(&model, FFN_ROLE_UP_WEIGHT, safetensors_get(file, "transformer.h.%d.mlp.c_fc.weight", layer), 0);
    model.oracle.down = add_transposed(&model, FFN_ROLE_DOWN_WEIGHT, safetensors_get(file, "transformer.h.%d.mlp.c_proj.weight", layer), 1);
    set_matrix(&model, FFN_ROLE_UP_BIAS, &model.oracle.up_bias, safetensors_get(file, "transformer.h.%d.mlp.c_fc.bias", layer));
    set_matrix(&model, FFN_ROLE_DOWN_BIAS, &model.oracle.down_bias, safetensors_get(file, "transformer.h.%d.mlp.c_proj.bias", layer));
    safetensor_t bias = safetensors_get(file, "transformer.h.%d.ln_2.bias", layer);
    set_norm(&model, FFN_NORM_IN, FFN_NORM_LAYER, 1e-5f, safetensors_get(file, "transformer.h.%d.ln_2.weight", layer), &bias);
    create(&model);
    return model;
}

static void tiny_gpt2_in_conv1d_layout_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_chain(tiny_gpt2, "tiny-gpt2-ffn.safetensors", "tiny-gpt2-expected.safetensors", "input", "layers.%d.output", 5);
}

static model_t tiny_t5(const safetensors_t *file, int layer)
{
    model_t model = model_of(FFN_ACTIVATION_GELU_TANH, FFN_RESIDUAL_INPUT);
    char name[128];
    snprintf(name, sizeof name, "encoder.block.%d.layer.1.DenseReluDense", layer);
    set_matrix(&model, FFN_ROLE_GATE_WEIGHT, &model.oracle.gate, safetensors_get(file, "%s.wi_0.weight", name));
    set_matrix(&model, FFN_ROLE_UP_WEIGHT, &model.oracle.up, safetensors_get(file, "%s.wi_1.weight", name));
    set_matrix(&model, FFN_ROLE_DOWN_WEIGHT, &model.oracle.down, safetensors_get(file, "%s.wo.weight", name));
    set_norm(&model, FFN_NORM_IN, FFN_NORM_RMS, 1e-6f, safetensors_get(file, "encoder.block.%d.layer.1.layer_norm.weight", layer), NULL);
    create(&model);
    return model;
}

static void tiny_t5_is_as_expected(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    check_chain(tiny_t5, "tiny-t5-ffn.safetensors", "tiny-t5-expected.safetensors", "input", "layers.%d.output", 2);
}

/* kv = W_value relu(W_key xk)^2: the FFN of a channel mix by itself. */
static model_t rwkv(const safetensors_t *file, int layer)
{
    model_t model = model_of(FFN_ACTIVATION_RELU2, FFN_RESIDUAL_NONE);
    set_matrix(&model, FFN_ROLE_UP_WEIGHT, &model.oracle.up, safetensors_get(file, "blocks.%d.ffn.key.weight", layer));
    set_matrix(&model, FFN_ROLE_DOWN_WEIGHT, &model.oracle.down, safetensors_get(file, "blocks.%d.ffn.value.weight", layer));
    create(&model);
    return model;
}

static void rwkv5_channel_mix_is_as_expected_before_the_receptance(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    static const int layers[] = {0, 3, 7};
    safetensors_t weights = safetensors_open("rwkv5-channelmix.safetensors");
    safetensors_t expected = safetensors_open("rwkv5-channelmix-expected.safetensors");
    for (int64_t i = 0; i < COUNT_OF(layers); i++) {
        model_t model = rwkv(&weights, layers[i]);
        check_single(&model, safetensors_get(&expected, "layers.%d.xk", layers[i]), safetensors_get(&expected, "layers.%d.kv", layers[i]), "rwkv5");
        model_free(&model);
    }
    safetensors_close(&weights);
    safetensors_close(&expected);
}

/* Hidden values down to 1e-42, which are denormal, and outputs near 1e-30: within the oracle's bounds, which count in denormal steps there, and a
 * residual comes out as it went in. */
static void rwkv4_with_denormal_hidden_values_is_as_the_oracle_and_leaves_the_residual(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    safetensors_t weights = safetensors_open("rwkv4-tiny-values-ffn.safetensors");
    safetensors_t expected = safetensors_open("rwkv4-tiny-values-expected.safetensors");
    safetensor_t xk = safetensors_get(&expected, "layers.0.xk"), kv = safetensors_get(&expected, "layers.0.kv");
    safetensor_t x = safetensors_get(&expected, "layers.0.x");
    int64_t tokens = xk.shape[0], n = tokens * kv.shape[1];
    model_t model = rwkv(&weights, 0);
    double *wide = oracle_widen(xk.data, tokens * xk.shape[1]);
    double *y = test_alloc((size_t)n * 2 * sizeof *y);
    oracle_run(&model.oracle, tokens, wide, NULL, y, y + n);
    assert_oracle_is_expected(y, kv, "rwkv4");
    float *got = test_alloc((size_t)n * sizeof *got);
    assert_ok(ffn_layer_forward(model.layer, NULL, tokens, xk.data, 0, got, 0));
    int64_t i = first_outside_bound(got, y, y + n, n);
    if (i >= 0) fail_msg("rwkv4: [%lld]: expected %.9g, got %.9g, bound %.3g", (long long)i, y[i], (double)got[i], y[n + i]);
    assert_true(largest_magnitude(got, n) > 0);

    ffn_layer_free(model.layer);
    model.options.residual = FFN_RESIDUAL_EXTERNAL;
    create(&model);
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = tokens, .x = xk.data, .y = got, .residual = x.data};
    assert_ok(ffn_layer_run(model.layer, NULL, &run));
    assert_same_bits(x.data, got, n, "rwkv4: the residual");
    free(wide);
    free(y);
    free(got);
    model_free(&model);
    safetensors_close(&weights);
    safetensors_close(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories260k_layers_are_as_expected_one_by_one_and_chained),
        cmocka_unit_test(minilm_layer_0_is_as_expected_on_real_activations_and_on_embeddings),
        cmocka_unit_test(rxnmapper_albert_is_as_expected_at_all_steps),
        cmocka_unit_test(recall_relu_in_in_out_layout_is_as_expected),
        cmocka_unit_test(tiny_gpt2_in_conv1d_layout_is_as_expected),
        cmocka_unit_test(tiny_t5_is_as_expected),
        cmocka_unit_test(rwkv5_channel_mix_is_as_expected_before_the_receptance),
        cmocka_unit_test(rwkv4_with_denormal_hidden_values_is_as_the_oracle_and_leaves_the_residual),
    };
    if (!shared_data_present()) print_message("%s is not there: all of these tests are skipped\n", FFN_SHARED_DATA);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
