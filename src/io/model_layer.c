/* SPDX-License-Identifier: MIT
 * ffn_model_layer_create: from a description to libffn's layer. Tensors of the file become views with strides; each is read once, also where two
 * roles share it. */
#include "io/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/structs.h"
#include "io/activations.h"

/* A tensor of the file that is needed, and where its numbers are. */
typedef struct source {
    const stored_tensor_t *tensor;
    const float *numbers;
    float *owned; /* NULL: in the mapped file */
} source_t;

typedef struct maker {
    const ffn_model_t *model;
    ffn_model_layer_t layer;
    ffn_layer_options_t options;
    uint64_t count;
    ffn_model_binding_t *bindings; /* count of each */
    source_t *sources;
    ffn_tensor_t *views;
    uint64_t source_count;
} maker_t;

/* ---------------------------------------------------------------- What is asked for */

static ffn_status_t fail_activation(const ffn_model_t *model) {
    char names[FFNIO_ERROR_SIZE];
    ffnio_activation_names(names, sizeof names);
    for (int64_t i = 0; i < model->recognition.count; i++) {
        const found_layer_t *found = &model->recognition.layers[i];
        if (found->activation)
            return ffnio_fail_file(FFN_UNSUPPORTED, model->config.path, "%s is %s, must be one of %s", found->activation_key,
                                   ffnio_quote(found->activation).text, names);
    }
    return ffnio_fail(FFN_INVALID, "activation of the layer's options is not set, must be one of FFN_ACTIVATION_*");
}

/* The FFN alone: without residual, scales and the norms around it. */
static int is_around(uint32_t role) {
    int norm = role >= FFN_ROLE_NORM_IN_WEIGHT && role <= FFN_ROLE_NORM_OUT_BIAS;
    int inner = role == FFN_ROLE_NORM_MID_WEIGHT || role == FFN_ROLE_NORM_MID_BIAS;
    return (norm && !inner) || role == FFN_ROLE_BRANCH_SCALE || role == FFN_ROLE_RESIDUAL_SCALE;
}

static void leave_the_branch(maker_t *maker) {
    ffn_layer_options_t *options = &maker->options;
    uint64_t kept = 0;
    options->flags &= ~(uint32_t)(FFN_LAYER_TANH_BRANCH_SCALE | FFN_LAYER_TANH_RESIDUAL_SCALE);
    options->residual = FFN_RESIDUAL_NONE;
    for (int slot = FFN_NORM_IN; slot <= FFN_NORM_OUT; slot++) {
        if (slot == FFN_NORM_MID) continue;
        options->norm[slot] = FFN_NORM_NONE;
        options->norm_eps[slot] = options->norm_offset[slot] = 0;
    }
    for (uint64_t i = 0; i < maker->count; i++)
        if (!is_around(maker->bindings[i].role)) maker->bindings[kept++] = maker->bindings[i];
    maker->count = kept;
}

/* count is at least 2: a checked description has an up and a down weight. */
static ffn_status_t make_room(maker_t *maker, uint64_t count) {
    size_t each = sizeof *maker->bindings + sizeof *maker->sources + sizeof *maker->views;
    maker->count = count;
    maker->bindings = calloc((size_t)count, sizeof *maker->bindings);
    maker->sources = calloc((size_t)count, sizeof *maker->sources);
    maker->views = calloc((size_t)count, sizeof *maker->views);
    return maker->bindings && maker->sources && maker->views ? FFN_OK : ffnio_fail_memory(count * each, "the tensors of a layer");
}

static ffn_status_t read_description(maker_t *maker, const ffn_model_layer_t *layer) {
    sizes_t sizes;
    trouble_t trouble;
    ffn_moe_options_t moe = {.struct_size = sizeof moe};
    ffn_status_t status = ffnio_struct_read(&maker->layer, sizeof maker->layer, layer, "ffn_model_layer_t");
    if (status) return status;
    const ffn_model_layer_t *given = &maker->layer;
    if (given->flags & ~(uint32_t)FFN_MODEL_BRANCH)
        return ffnio_fail(FFN_INVALID, "flags is 0x%" PRIx32 ", must be FFN_MODEL_BRANCH or 0", given->flags);
    if (!given->options) return ffnio_fail(FFN_INVALID, "options of the ffn_model_layer_t is NULL");
    status = ffnio_struct_read(&maker->options, sizeof maker->options, given->options, "ffn_layer_options_t");
    if (status) return status;
    if (maker->options.tensors || maker->options.tensor_count)
        return ffnio_fail(FFN_INVALID, "the layer's options have tensors, must have bindings only");
    if (maker->options.moe) status = ffnio_struct_read(&moe, sizeof moe, maker->options.moe, "ffn_moe_options_t");
    if (status) return status;
    status = ffnio_bindings_check(maker->model->checkpoint, given->bindings, given->binding_count, maker->options.moe ? &moe : NULL, &sizes, &trouble);
    if (status) return ffnio_fail_file(status, maker->model->checkpoint->path, "%s", trouble.text);
    if (maker->options.activation == FFN_ACTIVATION_NONE) return fail_activation(maker->model);
    status = make_room(maker, given->binding_count);
    if (status) return status;
    memcpy(maker->bindings, given->bindings, (size_t)maker->count * sizeof *maker->bindings);
    if (given->flags & FFN_MODEL_BRANCH) leave_the_branch(maker);
    return FFN_OK;
}

/* ---------------------------------------------------------------- Reading */

static ffn_status_t read_source(const checkpoint_t *checkpoint, source_t *source) {
    const stored_tensor_t *tensor = source->tensor;
    source->numbers = ffnio_tensor_mapped(checkpoint, tensor);
    if (source->numbers) return FFN_OK;
    uint64_t size = (uint64_t)tensor->elements * sizeof(float);
    if (tensor->elements > INT64_MAX / (int64_t)sizeof(float) || size > SIZE_MAX - 1) return ffnio_fail_memory(size, "a tensor");
    source->owned = malloc((size_t)size + 1); /* a tensor may be empty, and libffn is to say so */
    if (!source->owned) return ffnio_fail_memory(size, "a tensor");
    source->numbers = source->owned;
    return ffnio_tensor_read(checkpoint, tensor, 0, tensor->elements, source->owned);
}

/* The source for a tensor; the same one for all roles that share it. The last ones are looked at first: those are an expert's own. */
static ffn_status_t source_for(maker_t *maker, const char *name, source_t **source) {
    const checkpoint_t *checkpoint = maker->model->checkpoint;
    const stored_tensor_t *tensor = &checkpoint->tensors[ffnio_checkpoint_find(checkpoint, name)];
    for (uint64_t i = maker->source_count; i > 0; i--)
        if (maker->sources[i - 1].tensor == tensor) {
            *source = &maker->sources[i - 1];
            return FFN_OK;
        }
    *source = &maker->sources[maker->source_count++];
    (*source)->tensor = tensor;
    return read_source(checkpoint, *source);
}

/* ---------------------------------------------------------------- Views */

/* Takes a part of a view's output dimension, whose stride is given. */
static void take_part(ffn_tensor_t *view, uint32_t part, int dimension) {
    if (part == FFN_PART_WHOLE) return;
    int64_t half = view->shape[dimension] / 2, stride = view->stride[dimension], first = 0;
    if (part == FFN_PART_SECOND_HALF) first = half * stride;
    if (part == FFN_PART_ODD) first = stride;
    if (part == FFN_PART_EVEN || part == FFN_PART_ODD) view->stride[dimension] = 2 * stride;
    view->shape[dimension] = half;
    view->data = (char *)view->data + first;
}

/* The tensor of the file as libffn is to see it. Experts of a stack, folded or not, follow each other. */
static ffn_tensor_t view_of(const ffn_model_binding_t *binding, const source_t *source) {
    ffn_tensor_t view = {.role = binding->role, .expert = binding->expert, .data = (void *)(uintptr_t)source->numbers};
    int64_t out = 0, in = 0, *shape = view.shape, *stride = view.stride, elements = source->tensor->elements;
    int stack = binding->experts > 0;
    if (stack) {
        shape[0] = binding->experts;
        elements /= binding->experts;
        stride[0] = 4 * elements;
    }
    if (ffnio_role_is_matrix(binding->role) && ffnio_matrix_shape(source->tensor, binding->layout, binding->experts, &out, &in)) {
        int transposed = binding->layout == FFN_LAYOUT_IN_OUT;
        view.ndim = 2 + (uint32_t)stack;
        shape[stack] = out, shape[stack + 1] = in;
        stride[stack] = 4 * (transposed ? 1 : in), stride[stack + 1] = 4 * (transposed ? out : 1);
    } else {
        view.ndim = 1 + (uint32_t)stack;
        shape[stack] = elements;
        stride[stack] = 4;
    }
    take_part(&view, binding->part, stack);
    return view;
}

static ffn_status_t make_view(maker_t *maker, uint64_t i) {
    const ffn_model_binding_t *binding = &maker->bindings[i];
    source_t *source;
    if (!binding->tensor) {
        maker->views[i] = (ffn_tensor_t){.role = binding->role, .ndim = 1, .data = &maker->bindings[i].value, .shape = {1}};
        return FFN_OK;
    }
    ffn_status_t status = source_for(maker, binding->tensor, &source);
    if (!status) maker->views[i] = view_of(binding, source);
    return status;
}

ffn_status_t ffn_model_layer_create(const ffn_model_t *model, ffn_context_t *context, const ffn_model_layer_t *layer, ffn_layer_t **made) {
    maker_t maker = {.model = model};
    if (!made) return ffnio_fail(FFN_INVALID, "made is NULL");
    *made = NULL;
    if (!model) return ffnio_fail(FFN_INVALID, "model is NULL");
    ffn_status_t status = read_description(&maker, layer);
    for (uint64_t i = 0; !status && i < maker.count; i++) status = make_view(&maker, i);
    if (!status) {
        maker.options.tensors = maker.views;
        maker.options.tensor_count = maker.count;
        status = ffn_layer_create(context, &maker.options, made);
        if (status) ffnio_fail_libffn(status);
    }
    for (uint64_t i = 0; i < maker.source_count; i++) free(maker.sources[i].owned);
    free(maker.bindings);
    free(maker.sources);
    free(maker.views);
    return status;
}
