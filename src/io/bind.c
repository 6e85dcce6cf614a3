/* SPDX-License-Identifier: MIT
 * Following a row of the family table: the names of a layer's tensors, and the options that config.json and the row give. */
#include "io/binder.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/activations.h"

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The pattern is matched from its end; {i} takes all the digits that are there. */
int64_t ffnio_name_before(const char *name, size_t end, const char *pattern, size_t length) {
    size_t at = end;
    for (size_t i = length; i > 0;) {
        if (i >= 3 && memcmp(pattern + i - 3, "{i}", 3) == 0) {
            if (at == 0 || !is_digit(name[at - 1])) return -1;
            while (at > 0 && is_digit(name[at - 1])) at--;
            i -= 3;
        } else {
            if (at == 0 || name[at - 1] != pattern[i - 1]) return -1;
            at--, i--;
        }
    }
    return (int64_t)at;
}

/* ---------------------------------------------------------------- Names */

const stored_tensor_t *ffnio_binder_find(const binder_t *binder, const char *module, const char *suffix, char name[FFNIO_NAME_SIZE]) {
    int length = snprintf(name, FFNIO_NAME_SIZE, "%s%s%s", binder->found->prefix, module, suffix);
    if (length < 0 || length >= FFNIO_NAME_SIZE) return NULL;
    int64_t index = ffnio_checkpoint_find(binder->checkpoint, name);
    return index < 0 ? NULL : &binder->checkpoint->tensors[index];
}

ffn_status_t ffnio_binder_add(binder_t *binder, ffn_model_binding_t binding) {
    found_layer_t *found = binder->found;
    if (found->layer.binding_count == found->binding_room) {
        uint64_t room = found->binding_room ? 2 * found->binding_room : 24; /* a dense layer's fit */
        void *grown = realloc(found->bindings, (size_t)room * sizeof *found->bindings);
        if (!grown) return ffnio_fail_memory(room * sizeof *found->bindings, "the tensors of a layer");
        found->bindings = grown;
        found->binding_room = room;
    }
    found->bindings[found->layer.binding_count++] = binding;
    return FFN_OK;
}

static ffn_status_t add(binder_t *binder, uint32_t role, uint32_t part, const char *tensor, float value) {
    uint32_t layout = ffnio_role_is_expert(role) && ffnio_role_is_matrix(role) ? binder->family->layout : 0;
    return ffnio_binder_add(binder, (ffn_model_binding_t){.role = role, .layout = layout, .part = part, .value = value, .tensor = tensor});
}

ffn_status_t ffnio_binder_missing(const binder_t *binder, const char *name) {
    return ffnio_trouble(binder->trouble, FFN_UNKNOWN, "no tensor %s, which family %s has", ffnio_quote(name).text, binder->family->name);
}

ffn_status_t ffnio_binder_superfluous(const binder_t *binder, const char *name) {
    return ffnio_trouble(binder->trouble, FFN_UNKNOWN, "tensor %s is there, which family %s does not have", ffnio_quote(name).text,
                         binder->family->name);
}

/* Binds <module><suffix>, or <module><other> in older files; other may be NULL. */
static ffn_status_t bind_tensor(binder_t *binder, uint32_t role, const char *module, const char *suffix, const char *other, uint32_t part,
                                presence_t presence) {
    char name[FFNIO_NAME_SIZE], older[FFNIO_NAME_SIZE];
    const stored_tensor_t *tensor = ffnio_binder_find(binder, module, suffix, name);
    if (!tensor && other) tensor = ffnio_binder_find(binder, module, other, older);
    if (tensor && presence == ABSENT) return ffnio_binder_superfluous(binder, tensor->name);
    if (tensor) return add(binder, role, part, tensor->name, 0);
    return presence == PRESENT ? ffnio_binder_missing(binder, name) : FFN_OK;
}

ffn_status_t ffnio_binder_tensor(binder_t *binder, uint32_t role, const char *module, const char *suffix, uint32_t part, presence_t presence) {
    return bind_tensor(binder, role, module, suffix, NULL, part, presence);
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
    char name[FFNIO_NAME_SIZE], tail[128];
    size_t length;
    if (!binder->family->without) return FFN_OK;
    for (const char *list = ffnio_next_word(binder->family->without, &length); length; list = ffnio_next_word(list + length, &length)) {
        snprintf(tail, sizeof tail, "%.*s", (int)length, list);
        if (ffnio_binder_find(binder, tail, "", name)) return ffnio_binder_superfluous(binder, name);
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
    found->options.beta = family->beta;
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

/* gpt-oss: both clamps are the same number. */
static ffn_status_t take_limits(binder_t *binder) {
    const family_t *family = binder->family;
    ffn_layer_options_t *options = &binder->found->options;
    double limit = (double)family->limit;
    ffn_status_t status = ffnio_section_number(&binder->section, family->limit_key, &limit);
    if (status || !family->limit_key) return status;
    if (!(limit >= 0 && limit < 1e30))
        return ffnio_fail_file(FFN_FORMAT, binder->section.config->path, "%s is %g, must be at least 0 and finite", family->limit_key, limit);
    options->gate_max = options->up_limit = (float)limit;
    options->up_offset = family->up_offset;
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

static void count_parameters(const checkpoint_t *checkpoint, const sizes_t *sizes, found_layer_t *found) {
    int64_t sum = 0, of_experts = 0;
    for (uint64_t i = 0; i < found->layer.binding_count; i++) {
        const ffn_model_binding_t *binding = &found->bindings[i];
        if (!binding->tensor) continue;
        int64_t elements = checkpoint->tensors[ffnio_checkpoint_find(checkpoint, binding->tensor)].elements;
        if (binding->part != FFN_PART_WHOLE) elements /= 2;
        sum += elements;
        if (sizes->experts && ffnio_role_is_expert(binding->role)) of_experts += elements;
    }
    found->layer.parameters = found->layer.active_parameters = sum;
    if (sizes->experts > 0 && sizes->experts > found->moe.top_k)
        found->layer.active_parameters -= of_experts / sizes->experts * (sizes->experts - found->moe.top_k);
}

static int by_role(const void *first, const void *second) {
    const ffn_model_binding_t *a = first, *b = second;
    if (a->role != b->role) return a->role < b->role ? -1 : 1;
    return a->expert < b->expert ? -1 : a->expert > b->expert;
}

static ffn_status_t finish(binder_t *binder) {
    found_layer_t *found = binder->found;
    int mixture = binder->family->experts != NULL;
    sizes_t sizes;
    if (mixture) qsort(found->bindings, (size_t)found->layer.binding_count, sizeof *found->bindings, by_role);
    ffn_status_t status = ffnio_bindings_check(binder->checkpoint, found->bindings, found->layer.binding_count, mixture ? &found->moe : NULL, &sizes,
                                               binder->trouble);
    if (status) return status;
    if (found->options.residual && sizes.d_out != sizes.d_model)
        return ffnio_trouble(binder->trouble, FFN_INVALID, "layer %s: d_out is %lld and d_model %lld, must be the same to add the residual",
                             ffnio_quote(found->prefix).text, (long long)sizes.d_out, (long long)sizes.d_model);
    found->options.d_model = sizes.d_model;
    found->options.d_ff = sizes.d_ff;
    found->options.d_out = sizes.d_out;
    count_parameters(binder->checkpoint, &sizes, found);
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
    if (!status) status = take_limits(&binder);
    if (!status) status = check_without(&binder);
    if (!status) status = bind_projection(&binder, FFN_ROLE_UP_WEIGHT, &family->up);
    if (!status) status = bind_projection(&binder, FFN_ROLE_GATE_WEIGHT, &family->gate);
    if (!status) status = bind_projection(&binder, FFN_ROLE_DOWN_WEIGHT, &family->down);
    if (!status && family->experts) status = ffnio_bind_experts(&binder);
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
    if (!found->moe.struct_size) return;
    found->options.moe = &found->moe;
    if (found->router.struct_size) found->moe.router = &found->router;
    if (found->capacity.struct_size) found->moe.capacity = &found->capacity;
}

void ffnio_found_free(found_layer_t *found) {
    free(found->prefix);
    free(found->bindings);
    *found = (found_layer_t){.prefix = NULL};
}
