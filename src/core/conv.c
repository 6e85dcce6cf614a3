/* SPDX-License-Identifier: MIT
 * Making a convolutional layer: one allocation, laid out by the arena, filled from the caller's views. */
#include "core/conv.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "core/activation.h"
#include "core/layer.h"

#include <inttypes.h>
#include <math.h>

typedef struct layout {
    ffn_conv_t *conv;
    float *data[ROLE_LIMIT]; /* of the tensors */
    float *scale[CONVOLUTIONS];
} layout_t;

static convolution_t describe_part(const conv_config_t *config, int part) {
    const conv_sizes_t *sizes = &config->sizes;
    convolution_t is = {.in = part == FIRST ? sizes->d_model : sizes->d_ff, .out = part == FIRST ? sizes->d_ff : sizes->d_out,
                        .kernel = sizes->kernel[part], .separable = sizes->separable[part]};
    is.left = config->options.padding == FFN_CONV_LEFT ? is.kernel - 1 : (is.kernel - 1) / 2;
    is.masked = is.kernel > 1 || config->options.mask == FFN_CONV_MASK_ALL;
    is.depth = is.separable ? is.in : is.kernel * is.in;
    is.width = config->engine == FFN_ENGINE_NATIVE ? round_up(is.out, config->kernels->panel_width) : is.out;
    return is;
}

static int is_scaled(const conv_config_t *config, int part) {
    return (config->options.flags & FFN_CONV_SCALE_BY_TAPS) && config->sizes.kernel[part] > 1;
}

static layout_t lay_out(const conv_config_t *config, arena_t *arena) {
    const int64_t element = sizeof(float);
    layout_t layout = {.conv = ffni_arena_take(arena, 1, sizeof(ffn_conv_t))};
    for (int part = FIRST; part < CONVOLUTIONS; part++) {
        convolution_t is = describe_part(config, part);
        layout.data[conv_weight_role(part)] = ffni_arena_take(arena, is.depth, is.width * element);
        if (is_scaled(config, part)) layout.scale[part] = ffni_arena_take(arena, is.out, element);
    }
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!config->tensor[role] || role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT) continue;
        conv_view_t view = ffni_conv_view_of(config->tensor[role]);
        layout.data[role] = ffni_arena_take(arena, view.taps, view.matrix.columns * element);
    }
    return layout;
}

/* Tap by tap: matrices as [in, out], vectors side by side. */
static conv_view_t stored_view(const ffn_tensor_t *tensor, float *data) {
    conv_view_t view = ffni_conv_view_of(tensor);
    int64_t rows = view.matrix.rows, columns = view.matrix.columns;
    view.matrix.data = (char *)data;
    view.matrix.row_stride = 4;
    view.matrix.column_stride = 4 * rows;
    view.tap_stride = 4 * rows * columns;
    return view;
}

static panels_t panels_of_tap(const ffn_conv_t *conv, int part, int64_t tap) {
    const convolution_t *is = &conv->part[part];
    int64_t width = conv->kernels->panel_width;
    return (panels_t){.data = (float *)(void *)conv->stored[conv_weight_role(part)].matrix.data + tap * is->in * width, .columns = is->out,
                      .depth = is->in, .width = width, .step = is->depth * width};
}

static int is_packed(const ffn_conv_t *conv, int role) {
    return conv->engine == FFN_ENGINE_NATIVE && (role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT);
}

static int part_of(int role) {
    return role == FFN_ROLE_UP_WEIGHT ? FIRST : SECOND;
}

static void fill(ffn_conv_t *conv, ffn_context_t *context, int role, const conv_view_t *given) {
    if (!is_packed(conv, role)) {
        ffni_conv_view_copy(context, &conv->stored[role], given);
        return;
    }
    for (int64_t tap = 0; tap < given->taps; tap++) {
        panels_t panels = panels_of_tap(conv, part_of(role), tap);
        view_t matrix = conv_view_tap(given, tap);
        ffni_panels_pack(context, &panels, &matrix);
    }
}

static void learn(ffn_conv_t *conv) {
    const float *alpha_p = (const float *)(const void *)conv->stored[FFN_ROLE_XIELU_ALPHA_P].matrix.data;
    const float *alpha_n = (const float *)(const void *)conv->stored[FFN_ROLE_XIELU_ALPHA_N].matrix.data;
    if (alpha_p) ffni_activation_learn(&conv->activation, *alpha_p, *alpha_n);
}

static void configure(ffn_conv_t *conv, const layout_t *layout, const conv_config_t *config) {
    const ffn_conv_options_t *options = &config->options;
    conv->flags = options->flags, conv->padding = options->padding, conv->mask = options->mask, conv->activation_name = options->activation;
    conv->engine = config->engine;
    conv->sizes = config->sizes;
    conv->activation = config->activation;
    conv->kernels = config->kernels;
    for (int role = 0; role < ROLE_LIMIT; role++)
        if (config->tensor[role]) conv->stored[role] = stored_view(config->tensor[role], layout->data[role]);
    for (int part = FIRST; part < CONVOLUTIONS; part++) {
        convolution_t *is = &conv->part[part];
        *is = describe_part(config, part);
        is->weight = layout->data[conv_weight_role(part)];
        is->bias = layout->data[conv_bias_role(part)];
        is->taps = layout->data[conv_taps_role(part)];
        is->scale = layout->scale[part];
        for (int64_t i = 0; layout->scale[part] && i < is->out; i++) layout->scale[part][i] = (float)(1 / sqrt((double)is->kernel));
    }
}

ffn_status_t ffni_conv_new(ffn_context_t *context, const conv_config_t *config, ffn_conv_t **conv) {
    arena_t measure = {0};
    lay_out(config, &measure);
    if (measure.overflowed)
        return ffni_fail(FFN_INVALID, "d_model %" PRId64 ", d_ff %" PRId64 " and d_out %" PRId64 " make a layer of more than 2^63 bytes",
                         config->sizes.d_model, config->sizes.d_ff, config->sizes.d_out);
    char *memory = ffni_allocate(&config->allocator, measure.used, "a convolutional layer");
    if (!memory) return FFN_NO_MEMORY;
    arena_t arena = {.base = memory};
    layout_t layout = lay_out(config, &arena);
    ffn_conv_t *made = layout.conv;
    *made = (ffn_conv_t){.allocator = config->allocator, .bytes = measure.used, .serial = ffni_layer_next_serial()};
    configure(made, &layout, config);
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!config->tensor[role]) continue;
        conv_view_t given = ffni_conv_view_of(config->tensor[role]);
        fill(made, context, role, &given);
    }
    learn(made);
    *conv = made;
    return FFN_OK;
}

void ffni_conv_delete(ffn_conv_t *conv) {
    if (!conv) return;
    ffn_allocator_t allocator = conv->allocator;
    ffni_release(&allocator, conv, conv->bytes);
}

ffn_status_t ffni_conv_check_views(const ffn_conv_t *conv, const ffn_tensor_t *const bound[ROLE_LIMIT]) {
    ffn_status_t status = FFN_OK;
    for (int role = 0; !status && role < ROLE_LIMIT; role++) {
        if (!bound[role]) continue;
        if (!conv->stored[role].matrix.data) return ffni_fail(FFN_INVALID, "%s is not in this layer", ffni_conv_role_name(role));
        status = ffni_conv_tensor_check(&conv->sizes, bound[role]);
    }
    return status;
}

void ffni_conv_read(const ffn_conv_t *conv, int role, const conv_view_t *view) {
    if (!is_packed(conv, role)) {
        ffni_conv_view_copy(NULL, view, &conv->stored[role]);
        return;
    }
    for (int64_t tap = 0; tap < view->taps; tap++) {
        panels_t panels = panels_of_tap(conv, part_of(role), tap);
        view_t matrix = conv_view_tap(view, tap);
        ffni_panels_unpack(&matrix, &panels);
    }
}

void ffni_conv_update(ffn_conv_t *conv, ffn_context_t *context, const ffn_tensor_t *const bound[ROLE_LIMIT]) {
    for (int role = 0; role < ROLE_LIMIT; role++) {
        if (!bound[role]) continue;
        conv_view_t given = ffni_conv_view_of(bound[role]);
        ffni_conv_view_copy(context, &conv->stored[role], &given);
    }
    learn(conv);
    conv->generation++;
}
