/* SPDX-License-Identifier: MIT
 * ffn_model_*: opening a model, and what is in it. Making layers is in model_layer.c. */
#include "io/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/structs.h"

/* ---------------------------------------------------------------- Opening */

ffn_status_t ffn_model_open(const char *path, const ffn_model_options_t *options, ffn_model_t **model) {
    ffn_model_options_t known = {.struct_size = sizeof known};
    ffn_status_t status = FFN_OK;
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    *model = NULL;
    if (!path) return ffnio_fail(FFN_INVALID, "path is NULL");
    if (options) status = ffnio_struct_read(&known, sizeof known, options, "ffn_model_options_t");
    if (status) return status;
    if (known.flags & ~(uint32_t)FFN_MODEL_MAP)
        return ffnio_fail(FFN_INVALID, "flags is 0x%" PRIx32 ", must be FFN_MODEL_MAP or 0", known.flags);

    ffn_model_t *made = calloc(1, sizeof *made);
    if (!made) return ffnio_fail_memory(sizeof *made, "a model");
    status = ffnio_checkpoint_open(path, (known.flags & FFN_MODEL_MAP) != 0, &made->checkpoint);
    if (!status) status = ffnio_config_open(known.config, made->checkpoint->folder, &made->config);
    if (!status) status = ffnio_recognise(made->checkpoint, &made->config, known.family, &made->recognition);
    if (status) {
        ffn_model_free(made);
        return status;
    }
    *model = made;
    return FFN_OK;
}

void ffn_model_free(ffn_model_t *model) {
    if (!model) return;
    ffnio_recognition_free(&model->recognition);
    ffnio_config_close(&model->config);
    ffnio_checkpoint_close(model->checkpoint);
    free(model);
}

/* ---------------------------------------------------------------- What is in it */

ffn_status_t ffn_model_info(const ffn_model_t *model, ffn_model_info_t *info) {
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    const checkpoint_t *checkpoint = model->checkpoint;
    ffn_model_info_t known = {.struct_size = sizeof known,
                              .tensor_count = checkpoint->tensor_count,
                              .layer_count = model->recognition.count,
                              .bytes = (uint64_t)checkpoint->bytes,
                              .model_type = ffnio_config_model_type(&model->config)};
    for (int64_t i = 0; i < checkpoint->tensor_count; i++)
        if (checkpoint->tensors[i].dtype->floating) known.parameters += checkpoint->tensors[i].elements;
    known.active_parameters = known.parameters;
    for (int64_t i = known.layer_count - 1; i >= 0; i--) {
        const found_layer_t *found = &model->recognition.layers[i];
        known.active_parameters -= found->layer.parameters - found->layer.active_parameters;
        if (found->moe.struct_size) known.family = found->layer.family;
    }
    if (known.layer_count && !known.family) known.family = model->recognition.layers[0].layer.family;
    return ffnio_struct_write(info, &known, sizeof known, "ffn_model_info_t");
}

static ffn_status_t check_index(const char *what, int64_t index, int64_t count) {
    if (index >= 0 && index < count) return FFN_OK;
    if (!count) return ffnio_fail(FFN_INVALID, "index is %" PRId64 ", but there is no %s", index, what);
    return ffnio_fail(FFN_INVALID, "index is %" PRId64 ", must be 0 to %" PRId64, index, count - 1);
}

ffn_status_t ffn_model_tensor(const ffn_model_t *model, int64_t index, ffn_model_tensor_t *tensor) {
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    ffn_status_t status = check_index("tensor", index, model->checkpoint->tensor_count);
    if (status) return status;
    const stored_tensor_t *stored = &model->checkpoint->tensors[index];
    ffn_model_tensor_t known = {.struct_size = sizeof known, .ndim = stored->ndim, .name = stored->name, .dtype = stored->dtype->name,
                                .shape = stored->shape, .elements = stored->elements, .bytes = (uint64_t)stored->bytes};
    return ffnio_struct_write(tensor, &known, sizeof known, "ffn_model_tensor_t");
}

/* How many characters two names have in common, at the beginning and at the end: a measure of how near they are. */
static size_t nearness(const char *a, const char *b) {
    size_t length_a = strlen(a), length_b = strlen(b), shorter = length_a < length_b ? length_a : length_b, front = 0, back = 0;
    while (front < shorter && a[front] == b[front]) front++;
    while (back < shorter - front && a[length_a - 1 - back] == b[length_b - 1 - back]) back++;
    return front + back;
}

/* The sentence for a name that is not there: the three nearest ones that are. */
static ffn_status_t fail_unknown(const checkpoint_t *checkpoint, const char *name) {
    const char *near[3] = {NULL, NULL, NULL};
    size_t measure[3] = {0, 0, 0};
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const char *candidate = checkpoint->tensors[i].name;
        size_t value = nearness(name, candidate);
        for (int k = 0; k < 3; k++)
            if (value > measure[k]) {
                const char *next = near[k];
                size_t next_measure = measure[k];
                near[k] = candidate, measure[k] = value;
                candidate = next, value = next_measure;
            }
    }
    char text[3 * FFNIO_QUOTE_SIZE + 16] = "";
    for (int k = 0; k < 3 && near[k]; k++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", k ? ", " : "; near it: ", ffnio_quote(near[k]).text);
    }
    return ffnio_fail_file(FFN_UNKNOWN, checkpoint->path, "no tensor %s%s", ffnio_quote(name).text, text);
}

ffn_status_t ffn_model_find(const ffn_model_t *model, const char *name, int64_t *index) {
    if (!index) return ffnio_fail(FFN_INVALID, "index is NULL");
    *index = -1;
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    if (!name) return ffnio_fail(FFN_INVALID, "name is NULL");
    *index = ffnio_checkpoint_find(model->checkpoint, name);
    return *index < 0 ? fail_unknown(model->checkpoint, name) : FFN_OK;
}

ffn_status_t ffn_model_read(const ffn_model_t *model, int64_t index, float *out) {
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    ffn_status_t status = check_index("tensor", index, model->checkpoint->tensor_count);
    if (status) return status;
    const stored_tensor_t *tensor = &model->checkpoint->tensors[index];
    if (!out && tensor->elements) return ffnio_fail(FFN_INVALID, "out is NULL");
    return ffnio_tensor_read(model->checkpoint, tensor, 0, tensor->elements, out);
}

ffn_status_t ffn_model_layer(const ffn_model_t *model, int64_t index, const ffn_model_layer_t **layer) {
    if (!layer) return ffnio_fail(FFN_INVALID, "layer is NULL");
    *layer = NULL;
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    const recognition_t *recognition = &model->recognition;
    if (!recognition->count) return ffnio_fail_file(recognition->trouble.status, model->checkpoint->path, "%s", recognition->trouble.text);
    ffn_status_t status = check_index("layer", index, recognition->count);
    if (!status) *layer = &recognition->layers[index].layer;
    return status;
}
