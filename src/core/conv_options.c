/* SPDX-License-Identifier: MIT
 * Checking the options of a convolutional layer: each fault gets its sentence. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/activation.h"
#include "core/conv.h"
#include "dispatch/ladder.h"

#include <inttypes.h>

/* Of a product's depth, kernel * in: BLAS's integers have 32 bits. */
enum { DIMENSION_MAX = 1 << 29, KERNEL_MAX = 1024, DEPTH_MAX = 1 << 30 };

static ffn_status_t check_selectors(const ffn_conv_options_t *options) {
    const uint32_t flags = FFN_CONV_SCALE_BY_TAPS | FFN_CONV_TRAINABLE;
    if (options->flags & ~flags)
        return ffni_fail(FFN_INVALID, "flags is 0x%" PRIx32 ", must be FFN_CONV_SCALE_BY_TAPS and FFN_CONV_TRAINABLE or-ed", options->flags);
    if (options->padding > FFN_CONV_LEFT)
        return ffni_fail(FFN_INVALID, "padding is %" PRIu32 ", must be FFN_CONV_SAME or FFN_CONV_LEFT, at most %d", options->padding, FFN_CONV_LEFT);
    if (options->mask > FFN_CONV_MASK_ALL)
        return ffni_fail(FFN_INVALID, "mask is %" PRIu32 ", must be one of FFN_CONV_MASK_*, at most %d", options->mask, FFN_CONV_MASK_ALL);
    if (options->engine > FFN_ENGINE_NATIVE)
        return ffni_fail(FFN_INVALID, "engine is %" PRIu32 ", must be one of FFN_ENGINE_*, at most %d", options->engine, FFN_ENGINE_NATIVE);
    if (options->engine == FFN_ENGINE_NATIVE && (options->flags & FFN_CONV_TRAINABLE))
        return ffni_fail(FFN_UNSUPPORTED, "engine is native, but flags has FFN_CONV_TRAINABLE: convolutional layers train with engine blas");
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved is %" PRIu32 ", must be 0", options->reserved);
    return FFN_OK;
}

static ffn_status_t check_activation(conv_config_t *config) {
    const ffn_conv_options_t *options = &config->options;
    const ffn_layer_options_t layer = {.activation = options->activation, .alpha = options->alpha, .beta = options->beta};
    int xielu = options->activation == FFN_ACTIVATION_XIELU;
    ffn_status_t status = ffni_activation_check(&layer, 0);
    for (int role = FFN_ROLE_XIELU_ALPHA_P; !status && role <= FFN_ROLE_XIELU_ALPHA_N; role++) {
        if (xielu && !config->tensor[role]) status = ffni_fail(FFN_INVALID, "%s is missing", ffni_conv_role_name(role));
        if (!xielu && config->tensor[role])
            status = ffni_fail(FFN_INVALID, "%s is given, but the activation is another", ffni_conv_role_name(role));
    }
    if (!status) config->activation = ffni_activation_resolve(&layer);
    return status;
}

/* A number that is not given is taken from the tensor that has it. */
static ffn_status_t resolve(const char *name, int64_t given, int64_t from_tensor, int64_t most, int64_t *size) {
    *size = given ? given : from_tensor;
    if (*size < 1) return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be at least 1", name, *size);
    if (*size > most) return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be at most %" PRId64, name, *size, most);
    return FFN_OK;
}

static int64_t taps_given(const conv_config_t *config, int part) {
    const ffn_tensor_t *taps = config->tensor[conv_taps_role(part)], *weight = config->tensor[conv_weight_role(part)];
    if (taps) return taps->shape[1];
    return weight->ndim == 3 ? weight->shape[2] : 1;
}

static ffn_status_t resolve_sizes(conv_config_t *config) {
    static const char *const names[CONVOLUTIONS] = {"kernel_size", "second_kernel_size"};
    const ffn_tensor_t *up = config->tensor[FFN_ROLE_UP_WEIGHT], *down = config->tensor[FFN_ROLE_DOWN_WEIGHT];
    const ffn_conv_options_t *options = &config->options;
    const int64_t kernel[CONVOLUTIONS] = {options->kernel_size, options->second_kernel_size};
    conv_sizes_t *sizes = &config->sizes;
    if (!up) return ffni_fail(FFN_INVALID, "the up weight is missing");
    if (!down) return ffni_fail(FFN_INVALID, "the down weight is missing");
    ffn_status_t status = resolve("d_model", options->d_model, up->shape[1], DIMENSION_MAX, &sizes->d_model);
    if (!status) status = resolve("d_ff", options->d_ff, up->shape[0], DIMENSION_MAX, &sizes->d_ff);
    if (!status) status = resolve("d_out", options->d_out, down->shape[0], DIMENSION_MAX, &sizes->d_out);
    for (int part = FIRST; !status && part < CONVOLUTIONS; part++) {
        int64_t in = part == FIRST ? sizes->d_model : sizes->d_ff;
        sizes->separable[part] = config->tensor[conv_taps_role(part)] != NULL;
        status = resolve(names[part], kernel[part], taps_given(config, part), KERNEL_MAX, &sizes->kernel[part]);
        if (!status && !sizes->separable[part] && sizes->kernel[part] * in > DEPTH_MAX)
            status = ffni_fail(FFN_INVALID, "%s is %" PRId64 ", and with %" PRId64 " inputs makes a product of more than %d of them", names[part],
                               sizes->kernel[part], in, DEPTH_MAX);
    }
    return status;
}

static uint32_t resolve_engine(const ffn_conv_options_t *options, const kernel_table_t *kernels) {
    if (options->engine != FFN_ENGINE_AUTO) return options->engine;
    if (options->flags & FFN_CONV_TRAINABLE) return FFN_ENGINE_BLAS;
    return kernels->isa == FFN_ISA_SCALAR ? FFN_ENGINE_BLAS : FFN_ENGINE_NATIVE;
}

ffn_status_t ffni_conv_options_read(const ffn_conv_options_t *given, conv_config_t *config) {
    ffn_conv_options_t *options = &config->options;
    ffn_status_t status = ffni_struct_read(options, sizeof *options, given, "ffn_conv_options_t");
    if (!status) status = check_selectors(options);
    if (!status) status = ffni_allocator_read(options->allocator, &config->allocator);
    if (!status) status = ffni_conv_bind(options->tensors, options->tensor_count, config->tensor);
    if (!status) status = check_activation(config);
    if (!status) status = resolve_sizes(config);
    for (int role = 0; !status && role < ROLE_LIMIT; role++)
        if (config->tensor[role]) status = ffni_conv_tensor_check(&config->sizes, config->tensor[role]);
    if (!status) status = ffni_ladder_choose(options->max_isa, &config->kernels);
    if (!status) config->engine = resolve_engine(options, config->kernels);
    return status;
}
