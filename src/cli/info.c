/* SPDX-License-Identifier: MIT
 * ffn info: which feed-forward layers a model has. */
#include "cli/commands.h"
#include "cli/experts.h"
#include "cli/model.h"
#include "cli/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER = 1, TENSORS, AS_JSON, CONFIG, FAMILY };

static const option_row_t option_rows[] = {
    {"layer", "N", LAYER, "one layer, with the tensors that it is made of"},
    {"tensors", NULL, TENSORS, "all tensors of the model instead"},
    OPTION_JSON(AS_JSON),
    OPTION_CONFIG(CONFIG),
    OPTION_FAMILY(FAMILY),
    {0}};

typedef struct settings {
    const char *path, *config, *family;
    int64_t layer; /* -1: all */
    int tensors, json;
} settings_t;

/* The epsilon that a 0 in the options stands for (ffn.h). */
static float epsilon_of(const ffn_layer_options_t *layer, int slot) {
    if (layer->norm_eps[slot] != 0) return layer->norm_eps[slot];
    return layer->norm[slot] == FFN_NORM_LAYER ? 1e-5f : layer->norm[slot] == FFN_NORM_RMS ? 1e-6f : 0;
}

static int is_gated(const ffn_model_layer_t *layer) {
    for (uint64_t i = 0; i < layer->binding_count; i++)
        if (layer->bindings[i].role == FFN_ROLE_GATE_WEIGHT) return 1;
    return 0;
}

/* "in rms 1e-05, out layer 1e-12 +1" */
static void norms_text(const ffn_layer_options_t *layer, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "none");
    for (int slot = 0; slot < NORMS; slot++) {
        if (!layer->norm[slot] || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", slot_name((uint32_t)slot), kind_name(layer->norm[slot]));
        if (used < size && layer->norm[slot] != FFN_NORM_AFFINE)
            used += (size_t)snprintf(text + used, size - used, " %s", shortest(epsilon_of(layer, slot)).text);
        if (used < size && layer->norm_offset[slot] != 0)
            used += (size_t)snprintf(text + used, size - used, " +%s", shortest(layer->norm_offset[slot]).text);
    }
}

/* ---------------------------------------------------------------- text */

static void add_layer(table_t *table, const ffn_model_info_t *info, const ffn_model_layer_t *layer, int64_t number, int mixed) {
    char norms[256];
    const ffn_layer_options_t *is = layer->options;
    norms_text(is, norms, sizeof norms);
    table_add(table, "%" PRId64, number);
    table_add(table, "%s", layer->family);
    table_add(table, "%s", layer->prefix ? layer->prefix : "");
    table_add(table, "%" PRId64 "-%" PRId64 "-%" PRId64, is->d_model, is->d_ff, is->d_out);
    table_add(table, "%s", layer->dtype ? layer->dtype : "");
    table_add(table, "%s%s", ffn_activation_name(is->activation), is_gated(layer) ? " gated" : "");
    if (mixed) table_add(table, "%s", experts_text(layer).text);
    if (mixed) table_add(table, "%s", router_text(layer).text);
    table_add(table, "%s", norms);
    table_add(table, "%s", residual_name(is->residual));
    table_add(table, "%s", grouped(layer->parameters).text);
    if (mixed) table_add(table, "%s", grouped(layer->active_parameters).text);
    table_add(table, "%s", percent((double)layer->parameters, (double)info->parameters).text);
}

/* "[3072, 768] F32", or "" for a name that is not in the model. */
static void tensor_text(const ffn_model_t *model, const char *name, char *text, size_t size) {
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    int64_t index;
    size_t used = 0;
    *text = 0;
    if (ffn_model_find(model, name, &index) || ffn_model_tensor(model, index, &tensor)) return;
    for (uint32_t i = 0; i < tensor.ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "[", tensor.shape[i]);
    if (used < size) snprintf(text + used, size - used, "%s%s", tensor.ndim ? "] " : "[] ", tensor.dtype);
}

/* "in_out even, 8 experts": how the tensors of a role are used. */
static void use_text(const ffn_model_binding_t *bindings, uint64_t count, char *text, size_t size) {
    const char *layout = bindings->layout ? layout_name(bindings->layout) : "", *part = bindings->part ? part_name(bindings->part) : "";
    char experts[48] = "";
    const char *space = *layout && *part ? " " : "", *comma = (*layout || *part) && (count > 1 || bindings->experts) ? ", " : "";
    if (bindings->experts) snprintf(experts, sizeof experts, "a stack of %" PRIu32 " experts", bindings->experts);
    else if (count > 1) snprintf(experts, sizeof experts, "%" PRIu64 " experts", count);
    snprintf(text, size, "%s%s%s%s%s", layout, space, part, comma, experts);
}

static void print_bindings(const ffn_model_t *model, const ffn_model_layer_t *layer) {
    table_t table = table_make("llll");
    static const char *const heading[] = {"role", "tensor", "in the file", "use"};
    char text[256];
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    for (uint64_t i = 0, count; i < layer->binding_count; i += count) {
        const ffn_model_binding_t *binding = &layer->bindings[i];
        count = bindings_of_role(layer, i);
        char *name = binding->tensor ? bindings_name(binding, count) : NULL;
        *text = 0;
        if (binding->tensor) tensor_text(model, binding->tensor, text, sizeof text);
        table_add(&table, "%s", role_name(binding->role));
        table_add(&table, "%s", name ? name : shortest(binding->value).text);
        table_add(&table, "%s", text);
        use_text(binding, count, text, sizeof text);
        table_add(&table, "%s", text);
        free(name);
    }
    printf("\n");
    table_print(&table);
}

static int print_layers(const ffn_model_t *model, const ffn_model_info_t *info, const settings_t *settings) {
    static const char *const dense[] = {"layer", "family", "prefix", "shape", "dtype", "activation", "norms", "residual", "parameters", "share"};
    static const char *const mixed[] = {"layer", "family", "prefix", "shape", "dtype", "activation", "experts", "router", "norms", "residual",
                                        "parameters", "active", "share"};
    const ffn_model_layer_t *layer = NULL;
    int64_t from = settings->layer < 0 ? 0 : settings->layer, to = settings->layer < 0 ? info->layer_count - 1 : settings->layer;
    int has_experts = 0;
    for (int64_t i = from; i <= to; i++)
        if (!ffn_model_layer(model, i, &layer) && layer->options->moe) has_experts = 1;
    table_t table = table_make(has_experts ? "rlllllllllrrr" : "rlllllllrr");
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", has_experts ? mixed[i] : dense[i]);
    for (int64_t i = from; i <= to; i++) {
        if (ffn_model_layer(model, i, &layer)) break;
        add_layer(&table, info, layer, i, has_experts);
    }
    table_print(&table);
    if (!layer) return complain("%s", ffn_io_last_error());
    if (settings->layer >= 0) print_bindings(model, layer);
    return EXIT_FINE;
}

static int64_t parameters_of_layers(const ffn_model_t *model, const ffn_model_info_t *info) {
    int64_t sum = 0;
    const ffn_model_layer_t *layer;
    for (int64_t i = 0; i < info->layer_count; i++)
        if (!ffn_model_layer(model, i, &layer)) sum += layer->parameters;
    return sum;
}

static void print_summary(const ffn_model_t *model, const ffn_model_info_t *info, const char *path) {
    int64_t sum = parameters_of_layers(model, info);
    printf("%s: ", path);
    if (info->family) printf("%s, ", info->family);
    printf("%s feed-forward layer%s with %s of %s parameters (%s)\n", grouped(info->layer_count).text, info->layer_count == 1 ? "" : "s",
           grouped(sum).text, grouped(info->parameters).text, percent((double)sum, (double)info->parameters).text);
    if (info->active_parameters != info->parameters)
        printf("%s parameters are active for a token (%s)\n", grouped(info->active_parameters).text,
               percent((double)info->active_parameters, (double)info->parameters).text);
    printf("%s tensor%s, %s bytes%s%s\n\n", grouped(info->tensor_count).text, info->tensor_count == 1 ? "" : "s",
           grouped((int64_t)info->bytes).text, info->model_type ? ", model_type " : "", info->model_type ? info->model_type : "");
}

static int print_tensors(const ffn_model_t *model, const ffn_model_info_t *info) {
    table_t table = table_make("ll");
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    char text[256];
    table_add(&table, "tensor");
    table_add(&table, "in the file");
    for (int64_t i = 0; i < info->tensor_count; i++) {
        if (ffn_model_tensor(model, i, &tensor)) return complain("%s", ffn_io_last_error());
        tensor_text(model, tensor.name, text, sizeof text);
        table_add(&table, "%s", tensor.name);
        table_add(&table, "%s", text);
    }
    table_print(&table);
    return EXIT_FINE;
}

/* ---------------------------------------------------------------- JSON */

static json_t *norms_json(const ffn_layer_options_t *layer) {
    json_t *norms = json_object();
    for (int slot = 0; slot < NORMS; slot++)
        if (layer->norm[slot])
            json_object_set_new(norms, slot_name((uint32_t)slot),
                                json_pack("{s:s, s:o, s:o}", "kind", kind_name(layer->norm[slot]), "eps", json_float(epsilon_of(layer, slot)),
                                          "offset", json_float(layer->norm_offset[slot])));
    return norms;
}

static json_t *binding_json(const ffn_model_binding_t *bindings, uint64_t count) {
    if (!bindings->tensor) return json_pack("{s:o}", "value", json_float(bindings->value));
    char *name = bindings_name(bindings, count);
    json_t *object = json_pack("{s:s?, s:s, s:s}", "tensor", name, "layout", layout_name(bindings->layout), "part", part_name(bindings->part));
    if (bindings->experts) json_object_set_new(object, "stack", json_integer(bindings->experts));
    else if (count > 1) json_object_set_new(object, "experts", json_integer((json_int_t)count));
    free(name);
    return object;
}

static json_t *bindings_json(const ffn_model_layer_t *layer) {
    json_t *tensors = json_object();
    for (uint64_t i = 0, count; i < layer->binding_count; i += count) {
        count = bindings_of_role(layer, i);
        json_object_set_new(tensors, role_name(layer->bindings[i].role), binding_json(&layer->bindings[i], count));
    }
    return tensors;
}

static json_t *layer_json(const ffn_model_info_t *info, const ffn_model_layer_t *layer, int64_t number) {
    const ffn_layer_options_t *is = layer->options;
    json_t *object = json_pack("{s:I, s:s?, s:s?, s:s?, s:I, s:I, s:I, s:s, s:b}", "layer", (json_int_t)number, "family", layer->family, "prefix",
                               layer->prefix, "dtype", layer->dtype, "d_model", (json_int_t)is->d_model, "d_ff", (json_int_t)is->d_ff, "d_out",
                               (json_int_t)is->d_out, "activation", ffn_activation_name(is->activation), "gated", is_gated(layer));
    json_object_set_new(object, "alpha", json_float(is->alpha));
    json_object_set_new(object, "beta", json_float(is->beta));
    json_object_set_new(object, "norms", norms_json(is));
    json_object_set_new(object, "residual", json_string(residual_name(is->residual)));
    json_object_set_new(object, "parameters", json_integer(layer->parameters));
    json_object_set_new(object, "active_parameters", json_integer(layer->active_parameters));
    json_object_set_new(object, "share", json_real(info->parameters ? (double)layer->parameters / (double)info->parameters : 0));
    if (is->moe) json_object_set_new(object, "moe", experts_json(layer));
    json_object_set_new(object, "tensors", bindings_json(layer));
    return object;
}

static json_t *tensors_json(const ffn_model_t *model, const ffn_model_info_t *info) {
    json_t *list = json_array();
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    for (int64_t i = 0; i < info->tensor_count && !ffn_model_tensor(model, i, &tensor); i++) {
        json_t *shape = json_array();
        for (uint32_t k = 0; k < tensor.ndim; k++) json_array_append_new(shape, json_integer(tensor.shape[k]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", tensor.name, "dtype", tensor.dtype, "shape", shape, "bytes",
                                              (json_int_t)tensor.bytes));
    }
    return list;
}

static int print_json(const ffn_model_t *model, const ffn_model_info_t *info, const settings_t *settings) {
    const ffn_model_layer_t *layer;
    json_t *layers = json_array();
    int64_t sum = parameters_of_layers(model, info), from = settings->layer < 0 ? 0 : settings->layer;
    int64_t to = settings->layer < 0 || !info->layer_count ? info->layer_count - 1 : settings->layer;
    for (int64_t i = from; i <= to; i++) {
        if (ffn_model_layer(model, i, &layer)) {
            json_decref(layers);
            return complain("%s", ffn_io_last_error());
        }
        json_array_append_new(layers, layer_json(info, layer, i));
    }
    json_t *root = json_pack("{s:o, s:s?, s:s?, s:I, s:I, s:I, s:f, s:I, s:o}", "model", json_text(settings->path), "family", info->family,
                             "model_type", info->model_type, "tensor_count", (json_int_t)info->tensor_count, "bytes", (json_int_t)info->bytes,
                             "parameters", (json_int_t)info->parameters, "ffn_share",
                             info->parameters ? (double)sum / (double)info->parameters : 0.0, "layer_count", (json_int_t)info->layer_count,
                             "layers", layers);
    json_object_set_new(root, "active_parameters", json_integer(info->active_parameters));
    if (settings->tensors) json_object_set_new(root, "tensors", tensors_json(model, info));
    return json_print(root);
}

/* ---------------------------------------------------------------- the command */

static int show(const ffn_model_t *model, const settings_t *settings) {
    ffn_model_info_t info = {.struct_size = sizeof info};
    if (ffn_model_info(model, &info)) return complain("%s", ffn_io_last_error());
    if (info.layer_count && settings->layer >= 0 && model_check_layer(settings->path, &info, settings->layer)) return EXIT_FAILED;
    if (settings->json) {
        if (print_json(model, &info, settings)) return EXIT_FAILED;
    } else if (settings->tensors) {
        return print_tensors(model, &info);
    } else if (info.layer_count) {
        if (settings->layer < 0) print_summary(model, &info, settings->path);
        return print_layers(model, &info, settings);
    }
    return info.layer_count || settings->tensors ? EXIT_FINE : model_complain_unrecognised(model);
}

static int run(int count, char **words) {
    settings_t settings = {.layer = -1};
    arguments_t arguments = arguments_begin(&info_command, count, words);
    for (int id; (id = arguments_next(&arguments)) != ARGUMENT_END;) {
        switch (id) {
        case LAYER: settings.layer = arguments_integer(&arguments, 0, INT32_MAX); break;
        case TENSORS: settings.tensors = 1; break;
        case AS_JSON: settings.json = 1; break;
        case CONFIG: settings.config = arguments.value; break;
        case FAMILY: settings.family = arguments.value; break;
        default:
            if (settings.path) arguments_refuse(&arguments, "\"%s\" is one word too many", arguments.value);
            settings.path = arguments.value;
        }
    }
    if (!settings.path) arguments_refuse(&arguments, "no MODEL is given");
    ffn_model_t *model = model_open(settings.path, settings.config, settings.family);
    int status = model ? show(model, &settings) : EXIT_FAILED;
    ffn_model_free(model);
    return status;
}

const command_t info_command = {
    .name = "info",
    .words = "MODEL",
    .summary = "Tells which feed-forward layers a model has: family, shapes, dtype, activation, norms, parameters.",
    .text = "MODEL is a .safetensors file, a model.safetensors.index.json, or a folder with one of the two. Headers and config.json are read,\n"
            "weights are not.\n",
    .examples = "  ffn info model.safetensors\n"
                "  ffn info model.safetensors --layer 0\n"
                "  ffn info folder --json\n"
                "  ffn info other.safetensors --tensors\n",
    .options = option_rows,
    .run = run,
};
