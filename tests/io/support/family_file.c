/* SPDX-License-Identifier: MIT */
#include "io/support/family_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/support/files.h"
#include "support/layer_check.h"
#include "support/layout.h"

void model_file_add_shaped(model_file_t *file, const float *data, int ndim, const int64_t *shape, const char *name)
{
    char dimensions[128] = "";
    int64_t elements = 1;
    for (int i = 0; i < ndim; i++) {
        size_t used = strlen(dimensions);
        snprintf(dimensions + used, sizeof dimensions - used, "%s%lld", i ? "," : "", (long long)shape[i]);
        elements *= shape[i];
    }
    size_t bytes = (size_t)elements * sizeof(float), room = strlen(name) + 250; /* the padding too */
    file->header = realloc(file->header, file->header_size + room);
    file->data = realloc(file->data, file->size + bytes);
    assert_true(file->header && file->data);
    file->header_size += (size_t)snprintf(file->header + file->header_size, room, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                          file->header_size ? ',' : '{', name, dimensions, file->size, file->size + bytes);
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        float number = data ? data[i] : 1;
        memcpy(file->data + file->size + i * sizeof number, &number, sizeof number);
    }
    file->size += bytes;
}

void model_file_add(model_file_t *file, const float *data, int64_t rows, int64_t columns, const char *format, ...)
{
    char name[256];
    const int64_t shape[] = {rows, columns};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    model_file_add_shaped(file, data, columns ? 2 : 1, shape, name);
}

/* A plain matrix, as the file stores it. */
static void add_matrix(model_file_t *file, const test_layer_t *layer, uint32_t role, layout_t layout, const char *name)
{
    int64_t out = layer->shape[role][0], in = layer->shape[role][1];
    if (layout != LAYOUT_IN_OUT) {
        model_file_add(file, layer->plain[role], out, in, "%s.weight", name);
        return;
    }
    place_t place;
    float *memory = test_alloc((size_t)layout_single(LAYOUT_IN_OUT, out, in, &place) * sizeof *memory);
    layout_store(&place, out, in, layer->plain[role], memory);
    model_file_add(file, memory + place.base, in, out, "%s.weight", name);
    free(memory);
}

static void add_projection(model_file_t *file, const test_layer_t *layer, uint32_t role, const char *name)
{
    add_matrix(file, layer, role, role == FFN_ROLE_DOWN_WEIGHT ? layer->is.down_layout : layer->is.layout, name);
    if (layer->plain[role + 1]) model_file_add(file, layer->plain[role + 1], layer->shape[role + 1][0], 0, "%s.bias", name);
}

static void add_fused(model_file_t *file, const test_layer_t *layer, const char *name)
{
    int64_t twice = 2 * layer->is.d_ff, d_model = layer->is.d_model;
    bool transposed = layer->is.layout == LAYOUT_IN_GATE_UP || layer->is.layout == LAYOUT_IN_INTERLEAVED;
    model_file_add(file, layer->stored[FFN_ROLE_UP_WEIGHT], transposed ? d_model : twice, transposed ? twice : d_model, "%s.weight", name);
    if (layer->plain[FFN_ROLE_UP_BIAS]) model_file_add(file, layer->stored[FFN_ROLE_UP_BIAS], twice, 0, "%s.bias", name);
}

static void add_vectors(model_file_t *file, const test_layer_t *layer, uint32_t role, const char *name, const char *first, const char *second)
{
    if (layer->plain[role]) model_file_add(file, layer->plain[role], layer->shape[role][0], 0, "%s%s", name, first);
    if (second && layer->plain[role + 1]) model_file_add(file, layer->plain[role + 1], layer->shape[role + 1][0], 0, "%s%s", name, second);
}

static void add_module(model_file_t *file, const test_layer_t *layer, const char *key, const char *name)
{
    static const struct {
        const char *key, *first, *second;
        uint32_t role;
    } vectors[] = {
        {"in", ".weight", ".bias", FFN_ROLE_NORM_IN_WEIGHT},         {"mid", ".weight", ".bias", FFN_ROLE_NORM_MID_WEIGHT},
        {"branch", ".weight", ".bias", FFN_ROLE_NORM_BRANCH_WEIGHT}, {"out", ".weight", ".bias", FFN_ROLE_NORM_OUT_WEIGHT},
        {"in_old", ".gamma", ".beta", FFN_ROLE_NORM_IN_WEIGHT},      {"out_old", ".gamma", ".beta", FFN_ROLE_NORM_OUT_WEIGHT},
        {"scale", "", NULL, FFN_ROLE_BRANCH_SCALE},                  {"alpha", ".alpha_p", ".alpha_n", FFN_ROLE_XIELU_ALPHA_P},
    };
    if (!strcmp(key, "up")) add_projection(file, layer, FFN_ROLE_UP_WEIGHT, name);
    else if (!strcmp(key, "gate")) add_projection(file, layer, FFN_ROLE_GATE_WEIGHT, name);
    else if (!strcmp(key, "down")) add_projection(file, layer, FFN_ROLE_DOWN_WEIGHT, name);
    else if (!strcmp(key, "fused")) add_fused(file, layer, name);
    for (int64_t i = 0; i < COUNT_OF(vectors); i++)
        if (!strcmp(key, vectors[i].key)) add_vectors(file, layer, vectors[i].role, name, vectors[i].first, vectors[i].second);
}

void model_file_add_layer(model_file_t *file, const test_layer_t *layer, const char *prefix, const char *names)
{
    char copy[512], name[256], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *module = strchr(word, '=');
        assert_non_null(module);
        *module++ = 0;
        snprintf(name, sizeof name, "%s%s", prefix, module);
        add_module(file, layer, word, name);
    }
}

const char *model_file_write(model_file_t *file, const char *config)
{
    size_t padding = 7 - file->header_size % 8; /* with spaces, to a multiple of 8, as the reference writer does: the data is aligned */
    snprintf(file->header + file->header_size, 16, "}%*s", (int)padding, "");
    const char *path = test_safetensors("model.safetensors", file->header, file->data, file->size);
    if (config) test_file("config.json", config, strlen(config));
    else unlink(test_path("config.json"));
    free(file->header);
    free(file->data);
    memset(file, 0, sizeof *file);
    return path;
}

ffn_model_t *open_model(const char *path)
{
    ffn_model_t *model;
    assert_io_ok(ffn_model_open(path, NULL, &model));
    return model;
}

const ffn_model_layer_t *model_layer(const ffn_model_t *model, int64_t index)
{
    const ffn_model_layer_t *layer;
    assert_io_ok(ffn_model_layer(model, index, &layer));
    return layer;
}

void make_from_model(test_layer_t *test, const ffn_model_t *model, const ffn_model_layer_t *layer)
{
    ffn_layer_free(test->layer);
    test->layer = NULL;
    assert_io_ok(ffn_model_layer_create(model, NULL, layer, &test->layer));
}

void check_model_layer(const ffn_model_t *model, const ffn_model_layer_t *layer, test_layer_t *test)
{
    make_from_model(test, model, layer);
    layer_data_t data = layer_data_make(test, 7, test->is.seed);
    layer_data_run(test, NULL, &data);
    assert_as_oracle(test, &data, data.y);
    layer_data_free(&data);
}
