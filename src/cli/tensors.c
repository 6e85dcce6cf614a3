/* SPDX-License-Identifier: MIT
 * Looking at the numbers in the tensors of a model's layers. */
#include "cli/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the file, kept until another one is read: two roles may share one. */
typedef struct source {
    const ffn_model_t *model;
    ffn_model_tensor_t is;
    int64_t index, room; /* index -1: none */
    float *numbers;
} source_t;

static int source_read(source_t *source, const char *name) {
    int64_t index;
    if (ffn_model_find(source->model, name, &index)) return complain("%s", ffn_io_last_error());
    if (index == source->index) return EXIT_FINE;
    source->index = -1;
    if (ffn_model_tensor(source->model, index, &source->is)) return complain("%s", ffn_io_last_error());
    if (source->is.elements > source->room) {
        free(source->numbers); /* and no realloc: nothing is to be copied */
        source->room = 0;
        source->numbers = (uint64_t)source->is.elements > SIZE_MAX / sizeof(float) ? NULL : malloc((size_t)source->is.elements * sizeof(float));
        if (!source->numbers) return complain_memory();
        source->room = source->is.elements;
    }
    if (ffn_model_read(source->model, index, source->numbers)) return complain("%s", ffn_io_last_error());
    source->index = index;
    return EXIT_FINE;
}

/* The last dimension that is not 1. */
static int64_t columns_of(const ffn_model_tensor_t *is) {
    uint32_t end = is->ndim;
    while (end > 1 && is->shape[end - 1] == 1) end--;
    return end ? is->shape[end - 1] : 1;
}

/* What a binding takes of a tensor: [rest, out, in], as the file has it, with every number of `in` and `rest`, and those of `out` that are its part. */
static int view_of(const source_t *source, const ffn_model_binding_t *binding, ffn_tensor_t *view) {
    int64_t count = source->is.elements, each = count / (binding->experts ? binding->experts : 1); /* each expert's */
    int64_t columns = columns_of(&source->is), vector = columns >= each, in = binding->layout == FFN_LAYOUT_OUT_IN && !vector ? columns : 1;
    int64_t out = vector ? each : binding->layout == FFN_LAYOUT_OUT_IN ? each / columns : columns;
    *view = (ffn_tensor_t){.ndim = 1, .data = source->numbers, .shape = {count}};
    if (binding->part == FFN_PART_WHOLE || !count) return EXIT_FINE;
    if (!each || out % 2 || count % (out * in)) return complain("%s: its output dimension is %" PRId64 ", and has no half", source->is.name, out);
    int64_t apart = binding->part == FFN_PART_EVEN || binding->part == FFN_PART_ODD ? 2 : 1;
    int64_t first = binding->part == FFN_PART_ODD ? in : binding->part == FFN_PART_SECOND_HALF ? out / 2 * in : 0, size = sizeof(float);
    *view = (ffn_tensor_t){.ndim = 3,
                           .data = source->numbers + first,
                           .shape = {count / (out * in), out / 2, in},
                           .stride = {out * in * size, apart * in * size, size}};
    return EXIT_FINE;
}

static int look_at(source_t *source, ffn_context_t *context, const ffn_model_binding_t *binding, int64_t layer, tensor_row_t *row) {
    ffn_tensor_t view;
    if (source_read(source, binding->tensor) || view_of(source, binding, &view)) return EXIT_FAILED;
    *row = (tensor_row_t){.layer = layer, .role = binding->role, .layout = binding->layout, .part = binding->part, .experts = binding->experts,
                          .health.struct_size = sizeof row->health};
    if (ffn_tensor_health(context, &view, &row->health)) return complain("%s: %s", source->is.name, ffn_last_error());
    row->name = malloc(strlen(binding->tensor) + 1);
    if (!row->name) return complain_memory();
    strcpy(row->name, binding->tensor);
    return EXIT_FINE;
}

static int add_layer(tensors_t *tensors, source_t *source, ffn_context_t *context, const overrides_t *overrides, int64_t layer) {
    described_t described;
    int status = describe(source->model, layer, overrides, &described);
    uint64_t most = (uint64_t)tensors->count + (status ? 0 : described.layer.binding_count);
    tensor_row_t *grown = status ? NULL : realloc(tensors->row, (size_t)(most + 1) * sizeof *grown);
    if (grown) tensors->row = grown;
    else if (!status) status = complain_memory();
    for (uint64_t i = 0; !status && i < described.layer.binding_count; i++) {
        const ffn_model_binding_t *binding = &described.layer.bindings[i];
        if (!binding->tensor) continue; /* a constant */
        status = look_at(source, context, binding, layer, &tensors->row[tensors->count]);
        if (!status) tensors->count++;
    }
    described_free(&described);
    return status;
}

int tensors_read(tensors_t *tensors, const ffn_model_t *model, ffn_context_t *context, const selection_t *selection, const overrides_t *overrides,
                 progress_t *progress) {
    source_t source = {.model = model, .is.struct_size = sizeof source.is, .index = -1};
    int status = EXIT_FINE;
    for (int64_t i = 0; !status && i < selection->count; i++) {
        int64_t earlier = 0;
        while (selection->number[earlier] != selection->number[i]) earlier++;
        if (earlier == i) status = add_layer(tensors, &source, context, overrides, selection->number[i]);
        progress_update(progress, "reading", i + 1, selection->count);
    }
    free(source.numbers);
    return status;
}

void tensors_free(tensors_t *tensors) {
    for (int64_t i = 0; i < tensors->count; i++) free(tensors->row[i].name);
    free(tensors->row);
    *tensors = (tensors_t){0};
}

/* -------------------------------------------------------------------- Reporting */

void tensors_print(const tensors_t *tensors) {
    static const char *const heading[] = {"layer", "role", "tensor", "numbers", "norm", "largest |w|", "zeros", "", "non-finite", "", ""};
    table_t table = table_make("rllrrrrrrrl");
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    for (int64_t i = 0; i < tensors->count; i++) {
        const tensor_row_t *row = &tensors->row[i];
        const ffn_tensor_health_t *health = &row->health;
        table_add(&table, "%" PRId64, row->layer);
        table_add(&table, "%s", role_name(row->role));
        table_add(&table, "%s", row->name);
        table_add(&table, "%s", grouped(health->count).text);
        if (isnan(health->norm)) table_add(&table, "nan"); /* without the sign that printf gives to some */
        else table_add(&table, "%.4g", health->norm);
        table_add(&table, "%.4g", health->largest);
        table_add(&table, "%s", grouped(health->zeros).text);
        table_add(&table, "%s", percent((double)health->zeros, (double)health->count).text);
        table_add(&table, "%s", grouped(health->non_finite).text);
        table_add(&table, "%s", percent((double)health->non_finite, (double)health->count).text);
        table_add(&table, "%s", health->non_finite ? "!" : "");
    }
    table_print(&table);
}

json_t *tensors_json(const tensors_t *tensors) {
    json_t *list = json_array();
    for (int64_t i = 0; i < tensors->count; i++) {
        const tensor_row_t *row = &tensors->row[i];
        json_t *object = json_pack("{s:I, s:s, s:s, s:s, s:s, s:I, s:o, s:f, s:I, s:I}", "layer", (json_int_t)row->layer, "role", role_name(row->role),
                                   "tensor", row->name, "layout", layout_name(row->layout), "part", part_name(row->part), "count",
                                   (json_int_t)row->health.count, "norm", json_figure(row->health.norm), "largest", row->health.largest, "zeros",
                                   (json_int_t)row->health.zeros, "non_finite", (json_int_t)row->health.non_finite);
        if (row->experts) json_object_set_new(object, "stack", json_integer(row->experts));
        json_array_append_new(list, object);
    }
    return list;
}

int tensors_check(const tensors_t *tensors, const char *path) {
    const tensor_row_t *first = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < tensors->count; i++) {
        if (!tensors->row[i].health.non_finite) continue;
        if (!first) first = &tensors->row[i];
        count++;
    }
    if (!first) return EXIT_FINE;
    return complain("%s: %" PRId64 " of %" PRId64 " tensors %s numbers that are infinite or NaN; the first is %s, with %" PRId64, path, count,
                    tensors->count, count == 1 ? "has" : "have", first->name, first->health.non_finite);
}
