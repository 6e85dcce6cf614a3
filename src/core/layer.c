/* SPDX-License-Identifier: MIT
 * Making a layer: one allocation, laid out by the arena, filled from the caller's views. */
#include "core/layer.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "core/activation.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

/* Where everything is. All NULL while measuring. */
typedef struct layout {
    ffn_layer_t *layer;
    float *in_weight, *down_weight;
    float *vector[ROLE_LIMIT];
    float *branch_scale, *residual_scale; /* the [d_out] forms of scales that were given otherwise */
} layout_t;

static int is_scale_expanded(const config_t *config, uint32_t role, uint32_t tanh_flag) {
    const ffn_tensor_t *tensor = config->tensor[role];
    return tensor && (tensor->shape[0] != config->options.d_out || (config->options.flags & tanh_flag));
}

/* The columns of a weight as they are packed: whole panels for the native engine. */
static int64_t packed_columns(const config_t *config, int64_t columns) {
    return config->engine == FFN_ENGINE_NATIVE ? round_up(columns, config->kernels->panel_width) : columns;
}

static layout_t lay_out(const config_t *config, arena_t *arena) {
    const ffn_layer_options_t *options = &config->options;
    const int64_t element = sizeof(float);
    layout_t layout = {.layer = ffni_arena_take(arena, 1, sizeof(ffn_layer_t))};
    layout.in_weight = ffni_arena_take(arena, options->d_model, packed_columns(config, options->d_ff) * (1 + config->gated) * element);
    layout.down_weight = ffni_arena_take(arena, options->d_ff, packed_columns(config, options->d_out) * element);
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (config->tensor[role] && ffni_roles[role].ndim == 1)
            layout.vector[role] = ffni_arena_take(arena, config->tensor[role]->shape[0], element);
    if (is_scale_expanded(config, FFN_ROLE_BRANCH_SCALE, FFN_LAYER_TANH_BRANCH_SCALE))
        layout.branch_scale = ffni_arena_take(arena, options->d_out, element);
    if (is_scale_expanded(config, FFN_ROLE_RESIDUAL_SCALE, FFN_LAYER_TANH_RESIDUAL_SCALE))
        layout.residual_scale = ffni_arena_take(arena, options->d_out, element);
    return layout;
}

/* A weight that is stored [in, out] in a matrix of that width, described as [out, in]. */
static view_t stored_matrix(float *data, int64_t out, int64_t in, int64_t width) {
    return (view_t){.data = (char *)data, .rows = out, .columns = in, .row_stride = 4, .column_stride = 4 * width};
}

/* A weight in panels, every `turns`-th of which is its own, from the one at `turn` on. */
static panels_t packed_matrix(const config_t *config, float *data, int64_t out, int64_t in, int64_t turn, int64_t turns) {
    int64_t width = config->kernels->panel_width, size = width * in;
    return (panels_t){.data = data + turn * size, .columns = out, .depth = in, .width = width, .step = turns * size};
}

static void describe_panels(const layout_t *layout, const config_t *config, panels_t packed[ROLE_LIMIT]) {
    const ffn_layer_options_t *options = &config->options;
    int64_t d_model = options->d_model, d_ff = options->d_ff, gated = config->gated;
    packed[FFN_ROLE_UP_WEIGHT] = packed_matrix(config, layout->in_weight, d_ff, d_model, gated, 1 + gated);
    if (gated) packed[FFN_ROLE_GATE_WEIGHT] = packed_matrix(config, layout->in_weight, d_ff, d_model, 0, 2);
    packed[FFN_ROLE_DOWN_WEIGHT] = packed_matrix(config, layout->down_weight, options->d_out, d_ff, 0, 1);
}

static void describe_storage(const layout_t *layout, const config_t *config, view_t stored[ROLE_LIMIT]) {
    const ffn_layer_options_t *options = &config->options;
    int64_t d_model = options->d_model, d_ff = options->d_ff, d_out = options->d_out, width = d_ff * (1 + config->gated);
    stored[FFN_ROLE_UP_WEIGHT] = stored_matrix(layout->in_weight + (config->gated ? d_ff : 0), d_ff, d_model, width);
    if (config->gated) stored[FFN_ROLE_GATE_WEIGHT] = stored_matrix(layout->in_weight, d_ff, d_model, width);
    stored[FFN_ROLE_DOWN_WEIGHT] = stored_matrix(layout->down_weight, d_out, d_ff, d_out);
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (layout->vector[role])
            stored[role] = (view_t){.data = (char *)layout->vector[role], .rows = 1, .columns = config->tensor[role]->shape[0], .column_stride = 4};
}

/* The scale as the forward pass wants it: [d_out], tanh applied, where the tensor is not that already. */
static void expand_scale(const ffn_layer_t *layer, int role, uint32_t tanh_flag, float *expanded) {
    const view_t *stored = &layer->stored[role];
    const float *given = (const float *)(const void *)stored->data;
    for (int64_t i = 0; expanded != given && i < layer->d_out; i++) {
        float scale = given[stored->columns == 1 ? 0 : i];
        expanded[i] = layer->flags & tanh_flag ? (float)tanh(scale) : scale;
    }
}

void ffni_layer_derive(ffn_layer_t *layer) {
    const float *alpha_p = (const float *)(const void *)layer->stored[FFN_ROLE_XIELU_ALPHA_P].data;
    const float *alpha_n = (const float *)(const void *)layer->stored[FFN_ROLE_XIELU_ALPHA_N].data;
    expand_scale(layer, FFN_ROLE_BRANCH_SCALE, FFN_LAYER_TANH_BRANCH_SCALE, layer->branch_scale);
    expand_scale(layer, FFN_ROLE_RESIDUAL_SCALE, FFN_LAYER_TANH_RESIDUAL_SCALE, layer->residual_scale);
    if (alpha_p) ffni_activation_learn(&layer->activation, *alpha_p, *alpha_n);
}

static norm_t resolve_norm(const layout_t *layout, const ffn_layer_options_t *options, int slot) {
    static const float default_eps[] = {[FFN_NORM_LAYER] = 1e-5f, [FFN_NORM_RMS] = 1e-6f, [FFN_NORM_AFFINE] = 0};
    float eps = options->norm_eps[slot];
    return (norm_t){.eps = eps != 0 ? eps : default_eps[options->norm[slot]], .offset = options->norm_offset[slot],
                    .weight = layout->vector[FFN_ROLE_NORM_IN_WEIGHT + 2 * slot], .bias = layout->vector[FFN_ROLE_NORM_IN_BIAS + 2 * slot]};
}

static void configure(ffn_layer_t *layer, const layout_t *layout, const config_t *config) {
    const ffn_layer_options_t *options = &config->options;
    float *const *vector = layout->vector;
    layer->d_model = options->d_model, layer->d_ff = options->d_ff, layer->d_out = options->d_out;
    layer->gated = config->gated;
    layer->hidden_width = options->d_ff * (1 + config->gated);
    layer->flags = options->flags, layer->activation_name = options->activation, layer->residual = options->residual;
    layer->engine = config->engine;
    layer->kernels = config->kernels;
    layer->weight_bytes = (uint64_t)(4 * (packed_columns(config, layer->d_ff) * (1 + config->gated) * layer->d_model +
                                          packed_columns(config, layer->d_out) * layer->d_ff));
    layer->in_panels = packed_columns(config, layer->d_ff) * (1 + config->gated) / config->kernels->panel_width;
    layer->down_panels = packed_columns(config, layer->d_out) / config->kernels->panel_width;
    layer->activation = ffni_activation_resolve(options);
    for (int slot = FFN_NORM_IN; slot <= FFN_NORM_OUT; slot++) {
        layer->norm_slot[slot] = options->norm[slot];
        if (options->norm[slot] != FFN_NORM_NONE) layer->norm[slot] = resolve_norm(layout, options, slot);
    }
    layer->in_weight = layout->in_weight, layer->down_weight = layout->down_weight;
    layer->gate_bias = vector[FFN_ROLE_GATE_BIAS], layer->up_bias = vector[FFN_ROLE_UP_BIAS], layer->down_bias = vector[FFN_ROLE_DOWN_BIAS];
    layer->branch_scale = layout->branch_scale ? layout->branch_scale : vector[FFN_ROLE_BRANCH_SCALE];
    layer->residual_scale = layout->residual_scale ? layout->residual_scale : vector[FFN_ROLE_RESIDUAL_SCALE];
    ffni_layer_derive(layer);
}

static atomic_uint_least64_t layers_made;

ffn_status_t ffni_layer_new(ffn_context_t *context, const config_t *config, ffn_layer_t **layer) {
    arena_t measure = {0};
    lay_out(config, &measure);
    if (measure.overflowed)
        return ffni_fail(FFN_INVALID, "d_model %" PRId64 ", d_ff %" PRId64 " and d_out %" PRId64 " make a layer of more than 2^63 bytes",
                         config->options.d_model, config->options.d_ff, config->options.d_out);
    char *memory = ffni_allocate(&config->allocator, measure.used, "a layer");
    if (!memory) return FFN_NO_MEMORY;
    arena_t arena = {.base = memory};
    layout_t layout = lay_out(config, &arena);
    ffn_layer_t *made = layout.layer;
    *made = (ffn_layer_t){.allocator = config->allocator, .bytes = measure.used, .serial = atomic_fetch_add(&layers_made, 1) + 1};
    describe_storage(&layout, config, made->stored);
    if (config->engine == FFN_ENGINE_NATIVE) describe_panels(&layout, config, made->packed);
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!config->tensor[role]) continue;
        view_t given = ffni_view_of(config->tensor[role]);
        if (made->packed[role].data)
            ffni_panels_pack(context, &made->packed[role], &given);
        else
            ffni_view_copy(context, &made->stored[role], &given);
    }
    configure(made, &layout, config);
    *layer = made;
    return FFN_OK;
}

int ffni_layer_has(const ffn_layer_t *layer, int role) {
    return layer->stored[role].data != NULL;
}

void ffni_layer_read(const ffn_layer_t *layer, int role, const view_t *view) {
    if (layer->packed[role].data)
        ffni_panels_unpack(view, &layer->packed[role]);
    else
        ffni_view_copy(NULL, view, &layer->stored[role]);
}

void ffni_layer_delete(ffn_layer_t *layer) {
    if (!layer) return;
    ffn_allocator_t allocator = layer->allocator;
    ffni_release(&allocator, layer, layer->bytes);
}
