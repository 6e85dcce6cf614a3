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

/* The matrices of a network, those of experts one after the other. */
typedef struct matrices {
    float *in, *down;
    float *back_in, *back_down; /* trainable and native: transposed */
} matrices_t;

/* Where everything is. All NULL while measuring. */
typedef struct layout {
    ffn_layer_t *layer;
    matrices_t expert, shared;
    float *tensor[ROLE_LIMIT]; /* vectors, and matrices of no network */
    float *branch_scale, *residual_scale; /* the [d_out] forms of scales that were given otherwise */
} layout_t;

/* A network as the options have it: its roles and sizes. */
typedef struct form {
    int up, gate, down;
    int64_t d_in, d_ff, d_out;
    int gated;
} form_t;

static form_t expert_form(const config_t *config) {
    const int64_t *size = config->sizes.of;
    return (form_t){FFN_ROLE_UP_WEIGHT, FFN_ROLE_GATE_WEIGHT, FFN_ROLE_DOWN_WEIGHT, size[EXTENT_EXPERT_IN], size[EXTENT_D_FF], size[EXTENT_EXPERT_OUT],
                    config->gated};
}

static form_t shared_form(const config_t *config) {
    const int64_t *size = config->sizes.of;
    return (form_t){FFN_ROLE_SHARED_UP_WEIGHT, FFN_ROLE_SHARED_GATE_WEIGHT, FFN_ROLE_SHARED_DOWN_WEIGHT, size[EXTENT_D_MODEL], size[EXTENT_D_SHARED],
                    size[EXTENT_D_OUT], config->shared_gated};
}

static int is_scale_expanded(const config_t *config, uint32_t role, uint32_t tanh_flag) {
    const ffn_tensor_t *tensor = config->tensor[role];
    return tensor && (tensor->shape[0] != config->options.d_out || (config->options.flags & tanh_flag));
}

/* The columns of a weight as they are packed: whole panels for the native engine. */
static int64_t packed_columns(const config_t *config, int64_t columns) {
    return config->engine == FFN_ENGINE_NATIVE ? round_up(columns, config->kernels->panel_width) : columns;
}

static int64_t in_columns(const config_t *config, const form_t *form) {
    return packed_columns(config, form->d_ff) * (1 + form->gated);
}

static int is_packed_twice(const config_t *config) {
    return config->engine == FFN_ENGINE_NATIVE && (config->options.flags & FFN_LAYER_TRAINABLE);
}

static matrices_t lay_out_matrices(const config_t *config, const form_t *form, int64_t experts, arena_t *arena) {
    const int64_t element = sizeof(float);
    int64_t in_size = 0, down_size = 0;
    if (!checked_multiply(form->d_in, in_columns(config, form) * element, &in_size) ||
        !checked_multiply(form->d_ff, packed_columns(config, form->d_out) * element, &down_size))
        arena->overflowed = 1;
    matrices_t matrices = {.in = ffni_arena_take(arena, experts, in_size), .down = ffni_arena_take(arena, experts, down_size)};
    if (!is_packed_twice(config)) return matrices;
    matrices.back_in = ffni_arena_take(arena, packed_columns(config, form->d_in), form->d_ff * (1 + form->gated) * element);
    matrices.back_down = ffni_arena_take(arena, packed_columns(config, form->d_ff), form->d_out * element);
    return matrices;
}

/* A router's products are the native engine's in either, so that both choose the same experts. */
static int is_packed(const config_t *config, int role) {
    return config->engine == FFN_ENGINE_NATIVE || role == FFN_ROLE_ROUTER_WEIGHT || role == FFN_ROLE_SHARED_SCALE_WEIGHT;
}

static int is_in_network(int role) {
    return role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_GATE_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT || role == FFN_ROLE_SHARED_UP_WEIGHT ||
           role == FFN_ROLE_SHARED_GATE_WEIGHT || role == FFN_ROLE_SHARED_DOWN_WEIGHT;
}

static int64_t copies_of(const config_t *config, int role) {
    return ffni_roles[role].owner == OWNER_EXPERT && config->mixture.experts ? config->mixture.experts : 1;
}

/* Sizes of a tensor that is bound; of one expert's. A vector has one row. */
static int64_t rows_of(const config_t *config, int role) {
    return ffni_roles[role].ndim == 1 ? 1 : ffni_view_of(config->tensor[role]).rows;
}

static int64_t columns_of(const config_t *config, int role) {
    return ffni_view_of(config->tensor[role]).columns;
}

static float *lay_out_tensor(const config_t *config, int role, arena_t *arena) {
    int64_t rows = rows_of(config, role), columns = columns_of(config, role);
    if (ffni_roles[role].ndim == 2 && is_packed(config, role)) rows = round_up(rows, config->kernels->panel_width);
    return ffni_arena_take(arena, copies_of(config, role) * rows, columns * (int64_t)sizeof(float));
}

static layout_t lay_out(const config_t *config, arena_t *arena) {
    form_t expert = expert_form(config), shared = shared_form(config);
    const int64_t element = sizeof(float);
    layout_t layout = {.layer = ffni_arena_take(arena, 1, sizeof(ffn_layer_t))};
    layout.expert = lay_out_matrices(config, &expert, maximum(1, config->mixture.experts), arena);
    if (shared.d_ff) layout.shared = lay_out_matrices(config, &shared, 1, arena);
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (config->tensor[role] && !is_in_network(role)) layout.tensor[role] = lay_out_tensor(config, role, arena);
    if (is_scale_expanded(config, FFN_ROLE_BRANCH_SCALE, FFN_LAYER_TANH_BRANCH_SCALE))
        layout.branch_scale = ffni_arena_take(arena, config->options.d_out, element);
    if (is_scale_expanded(config, FFN_ROLE_RESIDUAL_SCALE, FFN_LAYER_TANH_RESIDUAL_SCALE))
        layout.residual_scale = ffni_arena_take(arena, config->options.d_out, element);
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

static void describe_network(ffn_layer_t *layer, const config_t *config, const form_t *form, const matrices_t *matrices) {
    int64_t width = form->d_ff * (1 + form->gated), gated = form->gated;
    layer->stored[form->up] = stored_matrix(matrices->in + (gated ? form->d_ff : 0), form->d_ff, form->d_in, width);
    if (gated) layer->stored[form->gate] = stored_matrix(matrices->in, form->d_ff, form->d_in, width);
    layer->stored[form->down] = stored_matrix(matrices->down, form->d_out, form->d_ff, form->d_out);
    layer->expert_step[form->up] = layer->expert_step[form->gate] = form->d_in * in_columns(config, form);
    layer->expert_step[form->down] = form->d_ff * packed_columns(config, form->d_out);
    if (config->engine != FFN_ENGINE_NATIVE) return;
    layer->packed[form->up] = packed_matrix(config, matrices->in, form->d_ff, form->d_in, gated, 1 + gated);
    if (gated) layer->packed[form->gate] = packed_matrix(config, matrices->in, form->d_ff, form->d_in, 0, 2);
    layer->packed[form->down] = packed_matrix(config, matrices->down, form->d_out, form->d_ff, 0, 1);
}

/* The transposed weights. Gate and up are one matrix there, gate's rows first, as in a row of pre-activations. */
static void describe_back(ffn_layer_t *layer, const config_t *config, const form_t *form, const matrices_t *matrices) {
    int64_t width = config->kernels->panel_width, gate_size = form->d_ff * width;
    panels_t in = {.data = matrices->back_in, .columns = form->d_in, .depth = form->d_ff, .width = width, .step = (1 + form->gated) * gate_size};
    if (form->gated) {
        layer->packed_back[form->gate] = in;
        in.data += gate_size;
    }
    layer->packed_back[form->up] = in;
    layer->packed_back[form->down] = packed_matrix(config, matrices->back_down, form->d_ff, form->d_out, 0, 1);
}

static void describe_tensor(ffn_layer_t *layer, const config_t *config, int role, float *data) {
    int64_t rows = rows_of(config, role), columns = columns_of(config, role);
    if (ffni_roles[role].ndim == 1) {
        layer->stored[role] = (view_t){.data = (char *)data, .rows = 1, .columns = columns, .column_stride = 4};
        layer->expert_step[role] = columns;
        return;
    }
    layer->stored[role] = stored_matrix(data, rows, columns, rows);
    if (is_packed(config, role)) layer->packed[role] = packed_matrix(config, data, rows, columns, 0, 1);
}

static void describe(ffn_layer_t *layer, const layout_t *layout, const config_t *config) {
    form_t expert = expert_form(config), shared = shared_form(config);
    describe_network(layer, config, &expert, &layout->expert);
    if (shared.d_ff) describe_network(layer, config, &shared, &layout->shared);
    if (is_packed_twice(config)) describe_back(layer, config, &expert, &layout->expert);
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (layout->tensor[role]) describe_tensor(layer, config, role, layout->tensor[role]);
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
    if (!alpha_p) return;
    ffni_activation_learn(&layer->activation, *alpha_p, *alpha_n);
    if (layer->shared.d_ff) ffni_activation_learn(&layer->shared.activation, *alpha_p, *alpha_n);
}

static norm_t resolve_norm(const layout_t *layout, const ffn_layer_options_t *options, int slot) {
    static const float default_eps[] = {[FFN_NORM_LAYER] = 1e-5f, [FFN_NORM_RMS] = 1e-6f, [FFN_NORM_AFFINE] = 0};
    float eps = options->norm_eps[slot];
    return (norm_t){.eps = eps != 0 ? eps : default_eps[options->norm[slot]], .offset = options->norm_offset[slot],
                    .weight = layout->tensor[FFN_ROLE_NORM_IN_WEIGHT + 2 * slot], .bias = layout->tensor[FFN_ROLE_NORM_IN_BIAS + 2 * slot]};
}

static void configure_shared(ffn_layer_t *layer, const layout_t *layout, const config_t *config) {
    form_t form = shared_form(config);
    network_t *shared = &layer->shared;
    *shared = (network_t){.kernels = config->kernels, .activation = layer->activation, .d_in = form.d_in, .d_ff = form.d_ff, .d_out = form.d_out,
                          .gated = form.gated, .in_weight = layout->shared.in, .down_weight = layout->shared.down,
                          .in_panels = in_columns(config, &form) / config->kernels->panel_width,
                          .down_panels = packed_columns(config, form.d_out) / config->kernels->panel_width,
                          .gate_bias = layout->tensor[FFN_ROLE_SHARED_GATE_BIAS], .up_bias = layout->tensor[FFN_ROLE_SHARED_UP_BIAS],
                          .down_bias = layout->tensor[FFN_ROLE_SHARED_DOWN_BIAS]};
    if (!(config->mixture.flags & FFN_MOE_SHARED_UNCLAMPED)) return;
    shared->activation.gate_max = shared->activation.up_limit = INFINITY;
    shared->activation.up_offset = 0;
}

static void configure_mixture(ffn_layer_t *layer, const layout_t *layout, const config_t *config) {
    const mixture_t *mixture = &config->mixture;
    float eps = mixture->router_norm_eps;
    layer->mixture = *mixture;
    layer->branch_bias = mixture->experts ? layout->tensor[FFN_ROLE_COMBINE_BIAS] : layer->down_bias;
    if (eps == 0) eps = mixture->router_norm == FFN_NORM_LAYER ? 1e-5f : 1e-6f;
    layer->router_norm = (norm_t){.eps = eps, .weight = layout->tensor[FFN_ROLE_ROUTER_NORM_WEIGHT]};
    if (layout->shared.in) configure_shared(layer, layout, config);
}

static void configure(ffn_layer_t *layer, const layout_t *layout, const config_t *config) {
    const ffn_layer_options_t *options = &config->options;
    float *const *tensor = layout->tensor;
    form_t form = expert_form(config);
    layer->d_model = options->d_model, layer->d_ff = options->d_ff, layer->d_out = options->d_out;
    layer->sizes = config->sizes;
    layer->gated = config->gated;
    layer->hidden_width = options->d_ff * (1 + config->gated);
    layer->flags = options->flags, layer->activation_name = options->activation, layer->residual = options->residual;
    layer->engine = config->engine;
    layer->kernels = config->kernels;
    layer->weight_bytes = (uint64_t)(4 * (in_columns(config, &form) * form.d_in + packed_columns(config, form.d_out) * form.d_ff));
    layer->in_panels = in_columns(config, &form) / config->kernels->panel_width;
    layer->down_panels = packed_columns(config, form.d_out) / config->kernels->panel_width;
    layer->activation = ffni_activation_resolve(options);
    for (int slot = FFN_NORM_IN; slot <= FFN_NORM_OUT; slot++) {
        layer->norm_slot[slot] = options->norm[slot];
        if (options->norm[slot] != FFN_NORM_NONE) layer->norm[slot] = resolve_norm(layout, options, slot);
    }
    layer->in_weight = layout->expert.in, layer->down_weight = layout->expert.down;
    layer->back_in_weight = layout->expert.back_in, layer->back_down_weight = layout->expert.back_down;
    layer->gate_bias = tensor[FFN_ROLE_GATE_BIAS], layer->up_bias = tensor[FFN_ROLE_UP_BIAS], layer->down_bias = tensor[FFN_ROLE_DOWN_BIAS];
    layer->branch_scale = layout->branch_scale ? layout->branch_scale : tensor[FFN_ROLE_BRANCH_SCALE];
    layer->residual_scale = layout->residual_scale ? layout->residual_scale : tensor[FFN_ROLE_RESIDUAL_SCALE];
    configure_mixture(layer, layout, config);
    ffni_layer_derive(layer);
}

uint64_t ffni_layer_next_serial(void) {
    static atomic_uint_least64_t made;
    return atomic_fetch_add(&made, 1) + 1;
}

static ffn_status_t size_error(const config_t *config) {
    const int64_t *size = config->sizes.of;
    return ffni_fail(FFN_INVALID, "d_model %" PRId64 ", d_ff %" PRId64 " and d_out %" PRId64 " of %" PRId64 " networks make a layer of more than 2^63 bytes",
                     size[EXTENT_D_MODEL], size[EXTENT_D_FF], size[EXTENT_D_OUT], maximum(1, config->mixture.experts));
}

ffn_status_t ffni_layer_new(ffn_context_t *context, const config_t *config, ffn_layer_t **layer) {
    arena_t measure = {0};
    lay_out(config, &measure);
    if (measure.overflowed) return size_error(config);
    char *memory = ffni_allocate(&config->allocator, measure.used, "a layer");
    if (!memory) return FFN_NO_MEMORY;
    arena_t arena = {.base = memory};
    layout_t layout = lay_out(config, &arena);
    ffn_layer_t *made = layout.layer;
    *made = (ffn_layer_t){.allocator = config->allocator, .bytes = measure.used, .serial = ffni_layer_next_serial()};
    describe(made, &layout, config);
    for (uint64_t i = 0; i < config->options.tensor_count; i++) {
        const ffn_tensor_t *tensor = &config->options.tensors[i];
        for (int64_t expert = 0; expert < ffni_tensor_experts(tensor); expert++) {
            view_t given = ffni_view_of_expert(tensor, expert);
            ffni_layer_write(made, context, (int)tensor->role, tensor->expert + expert, &given);
        }
    }
    configure(made, &layout, config);
    *layer = made;
    return FFN_OK;
}

int ffni_layer_has(const ffn_layer_t *layer, int role) {
    return layer->stored[role].data != NULL;
}

network_t ffni_layer_expert(const ffn_layer_t *layer, int64_t expert) {
    network_t network = {.kernels = layer->kernels, .activation = layer->activation, .d_in = layer->sizes.of[EXTENT_EXPERT_IN], .d_ff = layer->d_ff,
                         .d_out = layer->sizes.of[EXTENT_EXPERT_OUT], .gated = layer->gated,
                         .in_panels = layer->in_panels, .down_panels = layer->down_panels,
                         .has_norm = layer->norm_slot[FFN_NORM_MID] != FFN_NORM_NONE, .norm = layer->norm[FFN_NORM_MID]};
    network.in_weight = layer->in_weight + expert * layer->expert_step[FFN_ROLE_UP_WEIGHT];
    network.down_weight = layer->down_weight + expert * layer->expert_step[FFN_ROLE_DOWN_WEIGHT];
    network.gate_bias = ffni_layer_vector(layer, FFN_ROLE_GATE_BIAS, expert);
    network.up_bias = ffni_layer_vector(layer, FFN_ROLE_UP_BIAS, expert);
    network.down_bias = ffni_layer_vector(layer, FFN_ROLE_DOWN_BIAS, expert);
    if (network.has_norm) network.norm_kind = ffni_norm_kind(layer->norm_slot[FFN_NORM_MID]);
    network.norm.weight = ffni_layer_vector(layer, FFN_ROLE_NORM_MID_WEIGHT, expert);
    network.norm.bias = ffni_layer_vector(layer, FFN_ROLE_NORM_MID_BIAS, expert);
    return network;
}

const float *ffni_layer_vector(const ffn_layer_t *layer, int role, int64_t expert) {
    const float *data = (const float *)(const void *)layer->stored[role].data;
    return data ? data + expert * layer->expert_step[role] : NULL;
}

static panels_t packed_of(const ffn_layer_t *layer, int role, int64_t expert) {
    panels_t packed = layer->packed[role];
    packed.data += expert * layer->expert_step[role];
    return packed;
}

static view_t stored_of(const ffn_layer_t *layer, int role, int64_t expert) {
    view_t stored = layer->stored[role];
    stored.data += expert * layer->expert_step[role] * (int64_t)sizeof(float);
    return stored;
}

void ffni_layer_read(const ffn_layer_t *layer, int role, int64_t expert, const view_t *view) {
    if (layer->packed[role].data) {
        panels_t packed = packed_of(layer, role, expert);
        ffni_panels_unpack(view, &packed);
    } else {
        view_t stored = stored_of(layer, role, expert);
        ffni_view_copy(NULL, view, &stored);
    }
}

void ffni_layer_write(ffn_layer_t *layer, ffn_context_t *context, int role, int64_t expert, const view_t *view) {
    if (layer->packed[role].data) {
        panels_t packed = packed_of(layer, role, expert);
        ffni_panels_pack(context, &packed, view);
    } else {
        view_t stored = stored_of(layer, role, expert);
        ffni_view_copy(context, &stored, view);
    }
    if (!layer->packed_back[role].data) return;
    view_t transposed = {.data = view->data, .rows = view->columns, .columns = view->rows, .row_stride = view->column_stride,
                         .column_stride = view->row_stride};
    ffni_panels_pack(context, &layer->packed_back[role], &transposed);
}

void ffni_layer_delete(ffn_layer_t *layer) {
    if (!layer) return;
    ffn_allocator_t allocator = layer->allocator;
    ffni_release(&allocator, layer, layer->bytes);
}
