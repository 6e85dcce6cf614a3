/* SPDX-License-Identifier: MIT
 * Following a row of the family table: the names of a layer's tensors, and the options that config.json and the row give. */
#include "io/bind.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/activations.h"

enum { NAME_SIZE = 1024 }; /* no tensor that a row describes has a longer name */

/* The work on one layer. */
typedef struct binder {
    const checkpoint_t *checkpoint;
    const family_t *family;
    section_t section;
    found_layer_t *found;
    trouble_t *trouble;
} binder_t;

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The pattern is matched from its end; {i} takes all the digits that are there. */
int ffnio_name_matches(const char *name, size_t length, const char *stem, size_t stem_length, const char *tail, size_t tail_length,
                       size_t *prefix_length) {
    if (length < tail_length || memcmp(name + length - tail_length, tail, tail_length) != 0) return 0;
    size_t at = *prefix_length = length - tail_length;
    for (size_t i = stem_length; i > 0;) {
        if (i >= 3 && memcmp(stem + i - 3, "{i}", 3) == 0) {
            if (at == 0 || !is_digit(name[at - 1])) return 0;
            while (at > 0 && is_digit(name[at - 1])) at--;
            i -= 3;
        } else {
            if (at == 0 || name[at - 1] != stem[i - 1]) return 0;
            at--, i--;
        }
    }
    return at == 0 || name[at - 1] == '.';
}

/* ---------------------------------------------------------------- Names */

/* The tensor <prefix><module><suffix>, or NULL; the name goes into `name`, cut if it is too long. */
static const stored_tensor_t *find(const binder_t *binder, const char *module, const char *suffix, char name[NAME_SIZE]) {
    int length = snprintf(name, NAME_SIZE, "%s%s%s", binder->found->prefix, module, suffix);
    if (length < 0 || length >= NAME_SIZE) return NULL;
    int64_t index = ffnio_checkpoint_find(binder->checkpoint, name);
    return index < 0 ? NULL : &binder->checkpoint->tensors[index];
}

static ffn_status_t add(binder_t *binder, uint32_t role, uint32_t part, const char *tensor, float value) {
    uint32_t layout = role == FFN_ROLE_UP_WEIGHT || role == FFN_ROLE_GATE_WEIGHT || role == FFN_ROLE_DOWN_WEIGHT ? binder->family->layout : 0;
    found_layer_t *found = binder->found;
    found->bindings[found->layer.binding_count++] =
        (ffn_model_binding_t){.role = role, .layout = layout, .part = part, .value = value, .tensor = tensor};
    return FFN_OK;
}

/* Binds <module><suffix>, or <module><other> in older files; other may be NULL. */
static ffn_status_t bind_tensor(binder_t *binder, uint32_t role, const char *module, const char *suffix, const char *other, uint32_t part,
                                presence_t presence) {
    char name[NAME_SIZE], older[NAME_SIZE];
    const stored_tensor_t *tensor = find(binder, module, suffix, name);
    if (!tensor && other) tensor = find(binder, module, other, older);
    if (tensor && presence == ABSENT)
        return ffnio_trouble(binder->trouble, FFN_UNKNOWN, "tensor %s is there, which family %s does not have", ffnio_quote(tensor->name).text,
                             binder->family->name);
    if (tensor) return add(binder, role, part, tensor->name, 0);
    if (presence != PRESENT) return FFN_OK;
    return ffnio_trouble(binder->trouble, FFN_UNKNOWN, "no tensor %s, which family %s has", ffnio_quote(name).text, binder->family->name);
}

static ffn_status_t bind_projection(binder_t *binder, uint32_t role, const projection_t *projection) {
    presence_t biases = binder->family->biases;
    int flag = binder->family->bias_key ? ffnio_section_flag(&binder->section, binder->family->bias_key) : -1;
    if (flag >= 0) biases = flag ? PRESENT : IF_STORED;
    if (!projection->module) return FFN_OK;
    ffn_status_t status = bind_tensor(binder, role, projection->module, ".weight", NULL, projection->part, PRESENT);
    if (!status) status = bind_tensor(binder, role + 1, projection->module, ".bias", NULL,
                                      role == FFN_ROLE_DOWN_WEIGHT ? FFN_PART_WHOLE : projection->part, biases);
    return status;
}

static ffn_status_t bind_scale(binder_t *binder, uint32_t role, const scale_t *scale, uint32_t tanh_flag) {
    double value = (double)scale->value;
    ffn_status_t status = ffnio_section_number(&binder->section, scale->key, &value);
    if (status) return status;
    if (scale->tanh) binder->found->options.flags |= tanh_flag;
    if (scale->tensor) return bind_tensor(binder, role, scale->tensor, "", NULL, FFN_PART_WHOLE, PRESENT);
    return scale->key || scale->value != 0 ? add(binder, role, FFN_PART_WHOLE, NULL, (float)value) : FFN_OK;
}

static ffn_status_t check_without(binder_t *binder) {
    char name[NAME_SIZE], tail[128];
    size_t length;
    if (!binder->family->without) return FFN_OK;
    for (const char *list = ffnio_next_word(binder->family->without, &length); length; list = ffnio_next_word(list + length, &length)) {
        snprintf(tail, sizeof tail, "%.*s", (int)length, list);
        if (find(binder, tail, "", name))
            return ffnio_trouble(binder->trouble, FFN_UNKNOWN, "tensor %s is there, which family %s does not have", ffnio_quote(name).text,
                                 binder->family->name);
    }
    return FFN_OK;
}

/* ---------------------------------------------------------------- Options */

/* config.json's eps. 0 in the options would mean a default: the smallest normal float stands for a 0 of config.json. */
static ffn_status_t take_eps(const binder_t *binder, const norm_slot_t *norm, float *eps) {
    double value = (double)norm->eps;
    ffn_status_t status = ffnio_section_number(&binder->section, binder->family->eps_keys, &value);
    *eps = 0;
    if (status || norm->kind == FFN_NORM_AFFINE) return status;
    if (!(value >= 0 && value < 1e30))
        return ffnio_fail_file(FFN_FORMAT, binder->section.config->path, "one of %s is %g, must be at least 0 and finite",
                               binder->family->eps_keys, value);
    *eps = value < (double)FLT_MIN ? FLT_MIN : (float)value;
    return FFN_OK;
}

static ffn_status_t bind_norm(binder_t *binder, int slot, norm_slot_t norm) {
    ffn_layer_options_t *options = &binder->found->options;
    uint32_t role = FFN_ROLE_NORM_IN_WEIGHT + 2 * (uint32_t)slot;
    if (norm.kind == FFN_NORM_NONE) return FFN_OK;
    if (norm.kind == FFN_NORM_AFFINE && ffnio_section_meets(&binder->section, binder->family->layer_norms_if)) norm.kind = FFN_NORM_LAYER;
    options->norm[slot] = norm.kind;
    options->norm_offset[slot] = norm.offset;
    ffn_status_t status = take_eps(binder, &norm, &options->norm_eps[slot]);
    if (status || !norm.module || ffnio_section_meets(&binder->section, binder->family->bare_norms_if)) return status;
    status = bind_tensor(binder, role, norm.module, ".weight", ".gamma", FFN_PART_WHOLE, PRESENT);
    if (!status) status = bind_tensor(binder, role + 1, norm.module, ".bias", ".beta", FFN_PART_WHOLE, norm.bias);
    return status;
}

static ffn_status_t bind_norms(binder_t *binder) {
    norm_slot_t norm[4];
    ffn_status_t status = FFN_OK;
    memcpy(norm, binder->family->norm, sizeof norm);
    if (ffnio_section_meets(&binder->section, binder->family->move_norm_if)) {
        norm_slot_t moved = norm[FFN_NORM_IN];
        norm[FFN_NORM_IN] = norm[FFN_NORM_OUT];
        norm[FFN_NORM_OUT] = moved;
    }
    for (int slot = FFN_NORM_IN; !status && slot <= FFN_NORM_OUT; slot++) status = bind_norm(binder, slot, norm[slot]);
    return status;
}

static ffn_status_t take_activation(binder_t *binder) {
    const family_t *family = binder->family;
    found_layer_t *found = binder->found;
    const char *name;
    found->options.activation = family->activation;
    ffn_status_t status = ffnio_section_text(&binder->section, family->activation_keys, found->activation_key, &name);
    if (status || !name) return status;
    uint32_t activation = ffnio_activation(name);
    if (activation == FFN_ACTIVATION_GELU && family->gelu_is_tanh) activation = FFN_ACTIVATION_GELU_TANH;
    found->options.activation = activation;
    /* xielu has learned scalars: a row knows where they are or it does not. */
    if (activation == FFN_ACTIVATION_XIELU && !family->xielu) found->options.activation = FFN_ACTIVATION_NONE;
    if (found->options.activation == FFN_ACTIVATION_NONE) found->activation = name;
    return FFN_OK;
}

static ffn_status_t bind_xielu(binder_t *binder) {
    const char *module = binder->family->xielu;
    if (!module || binder->found->options.activation != FFN_ACTIVATION_XIELU) return FFN_OK;
    ffn_status_t status = bind_tensor(binder, FFN_ROLE_XIELU_ALPHA_P, module, ".alpha_p", NULL, FFN_PART_WHOLE, PRESENT);
    if (!status) status = bind_tensor(binder, FFN_ROLE_XIELU_ALPHA_N, module, ".alpha_n", NULL, FFN_PART_WHOLE, PRESENT);
    return status;
}

/* ---------------------------------------------------------------- The layer */

static int64_t parameters_of(const checkpoint_t *checkpoint, const found_layer_t *found) {
    int64_t sum = 0;
    for (uint64_t i = 0; i < found->layer.binding_count; i++) {
        const ffn_model_binding_t *binding = &found->bindings[i];
        if (!binding->tensor) continue;
        int64_t elements = checkpoint->tensors[ffnio_checkpoint_find(checkpoint, binding->tensor)].elements;
        sum += binding->part == FFN_PART_WHOLE ? elements : elements / 2;
    }
    return sum;
}

static ffn_status_t finish(binder_t *binder) {
    found_layer_t *found = binder->found;
    sizes_t sizes;
    ffn_status_t status = ffnio_bindings_check(binder->checkpoint, found->bindings, found->layer.binding_count, &sizes, binder->trouble);
    if (status) return status;
    if (found->options.residual && sizes.d_out != sizes.d_model)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "layer %s: d_out is %lld and d_model %lld, must be the same to add the residual",
                             ffnio_quote(found->prefix).text, (long long)sizes.d_out, (long long)sizes.d_model);
    found->options.d_model = sizes.d_model;
    found->options.d_ff = sizes.d_ff;
    found->options.d_out = sizes.d_out;
    found->layer.parameters = parameters_of(binder->checkpoint, found);
    found->layer.dtype = binder->checkpoint->tensors[ffnio_checkpoint_find(binder->checkpoint, found->bindings[0].tensor)].dtype->name;
    return FFN_OK;
}

ffn_status_t ffnio_bind(const checkpoint_t *checkpoint, const config_t *config, const family_t *family, found_layer_t *found,
                        trouble_t *trouble) {
    binder_t binder = {checkpoint, family, ffnio_config_section(config, found->prefix), found, trouble};
    trouble->status = FFN_OK;
    found->options = (ffn_layer_options_t){.struct_size = sizeof found->options, .residual = family->residual};
    found->layer = (ffn_model_layer_t){.struct_size = sizeof found->layer, .family = family->name};
    found->activation = NULL;
    if (ffnio_section_meets(&binder.section, family->normed_residual_if)) found->options.residual = FFN_RESIDUAL_NORMED;

    /* In the order of roles. */
    ffn_status_t status = take_activation(&binder);
    if (!status) status = check_without(&binder);
    if (!status) status = bind_projection(&binder, FFN_ROLE_UP_WEIGHT, &family->up);
    if (!status) status = bind_projection(&binder, FFN_ROLE_GATE_WEIGHT, &family->gate);
    if (!status) status = bind_projection(&binder, FFN_ROLE_DOWN_WEIGHT, &family->down);
    if (!status) status = bind_norms(&binder);
    if (!status) status = bind_scale(&binder, FFN_ROLE_BRANCH_SCALE, &family->branch_scale, FFN_LAYER_TANH_BRANCH_SCALE);
    if (!status) status = bind_scale(&binder, FFN_ROLE_RESIDUAL_SCALE, &family->residual_scale, FFN_LAYER_TANH_RESIDUAL_SCALE);
    if (!status) status = bind_xielu(&binder);
    if (!status) status = finish(&binder);
    return trouble->status ? FFN_OK : status;
}

void ffnio_layer_link(found_layer_t *found) {
    found->layer.options = &found->options;
    found->layer.bindings = found->bindings;
    found->layer.prefix = found->prefix;
}
