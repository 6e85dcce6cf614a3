/* SPDX-License-Identifier: MIT
 *
 * Fuzzes what reads config.json: the input's first byte chooses a small model, the rest is its config.json. Whatever opens is described, and
 * what is described can be made a layer of or is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/input.h"

/* d_model 4, d_ff 8. A name and its shape; a space, and the next; one model a line. */
static const char *const models[] = {
    "model.layers.0.mlp.gate_proj.weight=8,4 model.layers.0.mlp.up_proj.weight=8,4 model.layers.0.mlp.down_proj.weight=4,8 "
    "model.layers.0.post_attention_layernorm.weight=4",
    "model.layers.0.mlp.gate_proj.weight=8,4 model.layers.0.mlp.up_proj.weight=8,4 model.layers.0.mlp.down_proj.weight=4,8 "
    "model.layers.0.pre_feedforward_layernorm.weight=4 model.layers.0.post_feedforward_layernorm.weight=4 "
    "model.layers.0.post_attention_layernorm.weight=4",
    "encoder.layer.0.intermediate.dense.weight=8,4 encoder.layer.0.intermediate.dense.bias=8 encoder.layer.0.output.dense.weight=4,8 "
    "encoder.layer.0.output.dense.bias=4 encoder.layer.0.output.LayerNorm.weight=4 encoder.layer.0.output.LayerNorm.bias=4",
    "h.0.ln_2.weight=4 h.0.ln_2.bias=4 h.0.mlp.c_fc.weight=4,8 h.0.mlp.c_fc.bias=8 h.0.mlp.c_proj.weight=8,4 h.0.mlp.c_proj.bias=4",
    "encoder.block.0.layer.1.layer_norm.weight=4 encoder.block.0.layer.1.DenseReluDense.wi_0.weight=8,4 "
    "encoder.block.0.layer.1.DenseReluDense.wi_1.weight=8,4 encoder.block.0.layer.1.DenseReluDense.wo.weight=4,8",
    "model.layers.0.mlp.gate_up_proj.weight=16,4 model.layers.0.mlp.down_proj.weight=4,8 model.layers.0.post_attention_layernorm.weight=4",
    "model.decoder.layers.0.fc1.weight=8,4 model.decoder.layers.0.fc1.bias=8 model.decoder.layers.0.fc2.weight=4,8 "
    "model.decoder.layers.0.fc2.bias=4 model.decoder.layers.0.final_layer_norm.weight=4 model.decoder.layers.0.final_layer_norm.bias=4",
    "encoder.layer.0.norm2.weight=4 encoder.layer.0.norm2.bias=4 encoder.layer.0.mlp.fc1.weight=8,4 encoder.layer.0.mlp.fc1.bias=8 "
    "encoder.layer.0.mlp.fc2.weight=4,8 encoder.layer.0.mlp.fc2.bias=4 encoder.layer.0.layer_scale2.lambda1=4",
    "",
    /* mixtures of two experts: Mixtral's, DeepSeek's behind a dense layer, gpt-oss's, DBRX's, Switch's */
    "model.layers.0.block_sparse_moe.gate.weight=2,4 model.layers.0.block_sparse_moe.experts.0.w1.weight=8,4 "
    "model.layers.0.block_sparse_moe.experts.0.w2.weight=4,8 model.layers.0.block_sparse_moe.experts.0.w3.weight=8,4 "
    "model.layers.0.block_sparse_moe.experts.1.w1.weight=8,4 model.layers.0.block_sparse_moe.experts.1.w2.weight=4,8 "
    "model.layers.0.block_sparse_moe.experts.1.w3.weight=8,4 model.layers.0.post_attention_layernorm.weight=4",
    "model.layers.0.mlp.gate_proj.weight=8,4 model.layers.0.mlp.up_proj.weight=8,4 model.layers.0.mlp.down_proj.weight=4,8 "
    "model.layers.0.post_attention_layernorm.weight=4 model.layers.1.mlp.gate.weight=2,4 model.layers.1.mlp.gate.e_score_correction_bias=2 "
    "model.layers.1.mlp.experts.gate_up_proj=2,16,4 model.layers.1.mlp.experts.down_proj=2,4,8 model.layers.1.post_attention_layernorm.weight=4",
    "model.layers.0.mlp.router.weight=2,4 model.layers.0.mlp.router.bias=2 model.layers.0.mlp.experts.gate_up_proj=2,4,16 "
    "model.layers.0.mlp.experts.gate_up_proj_bias=2,16 model.layers.0.mlp.experts.down_proj=2,8,4 model.layers.0.mlp.experts.down_proj_bias=2,4 "
    "model.layers.0.post_attention_layernorm.weight=4",
    "transformer.blocks.0.ffn.router.layer.weight=2,4 transformer.blocks.0.ffn.experts.mlp.w1=16,4 transformer.blocks.0.ffn.experts.mlp.v1=16,4 "
    "transformer.blocks.0.ffn.experts.mlp.w2=16,4 transformer.blocks.0.norm_attn_norm.norm_2.weight=4",
    "encoder.block.1.layer.1.mlp.router.classifier.weight=2,4 encoder.block.1.layer.1.mlp.experts.expert_0.wi.weight=8,4 "
    "encoder.block.1.layer.1.mlp.experts.expert_0.wo.weight=4,8 encoder.block.1.layer.1.mlp.experts.expert_1.wi.weight=8,4 "
    "encoder.block.1.layer.1.mlp.experts.expert_1.wo.weight=4,8 encoder.block.1.layer.1.layer_norm.weight=4",
};
enum { MODELS = sizeof models / sizeof models[0] };

/* The safetensors file of a line of that table, all weights 0.25. */
static void make_model(input_file_t *file, const char *line)
{
    char bytes[8192];
    size_t used = 8, offset = 0;
    bytes[used++] = '{';
    while (*line) {
        const char *equals = strchr(line, '='), *end = line + strcspn(line, " ");
        int shape[3] = {1, 1, 1};
        sscanf(equals + 1, "%d,%d,%d", &shape[0], &shape[1], &shape[2]);
        size_t next = offset + 4 * (size_t)(shape[0] * shape[1] * shape[2]);
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "%s\"%.*s\":{\"dtype\":\"F32\",\"shape\":[%.*s],\"data_offsets\":[%zu,%zu]}",
                                 offset ? "," : "", (int)(equals - line), line, (int)(end - equals - 1), equals + 1, offset, next);
        offset = next;
        line = end + (*end == ' ');
    }
    bytes[used++] = '}';
    for (int i = 0; i < 8; i++) bytes[i] = (char)((used - 8) >> (8 * i));
    must(used + offset < sizeof bytes);
    for (size_t i = 0; i < offset; i += 4) memcpy(bytes + used + i, &(float){0.25f}, 4);
    input_file_set(file, bytes, used + offset);
}

static void use_layers(const ffn_model_t *model, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const ffn_model_layer_t *found = NULL;
        ffn_layer_t *layer = NULL;
        must(ffn_model_layer(model, i, &found) == FFN_OK && found && found->options && found->family);
        ffn_status_t status = ffn_model_layer_create(model, NULL, found, &layer);
        must(!status == (layer != NULL));
        if (status) {
            must_be_refusal(status, NULL);
            continue;
        }
        float x[4] = {1, -2, 3, 0.5f}, y[8];
        must(ffn_layer_forward(layer, NULL, 1, x, 0, y, 0) == FFN_OK);
        ffn_layer_free(layer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static input_file_t files[MODELS], config = {.descriptor = -1};
    if (config.descriptor < 0)
        for (int i = 0; i < MODELS; i++) {
            files[i].descriptor = -1;
            make_model(&files[i], models[i]);
        }
    if (!size) return 0;
    input_file_set(&config, data + 1, size - 1);
    ffn_model_options_t options = {.struct_size = sizeof options, .config = config.path};
    ffn_model_t *model = NULL;
    ffn_status_t status = ffn_model_open(files[data[0] % MODELS].path, &options, &model);
    must(!status == (model != NULL));
    if (status) {
        must_be_refusal(status, NULL);
        return 0;
    }
    ffn_model_info_t info = {.struct_size = sizeof info};
    must(ffn_model_info(model, &info) == FFN_OK);
    use_layers(model, info.layer_count);
    ffn_model_free(model);
    return 0;
}
