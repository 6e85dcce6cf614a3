/* SPDX-License-Identifier: MIT
 * Checking the options of a layer: each fault gets its sentence. */
#include "core/options.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/activation.h"
#include "dispatch/ladder.h"

#include <inttypes.h>
#include <math.h>

enum { DIMENSION_MAX = 1 << 29 }; /* twice that still fits BLAS's 32-bit integers */

static const char *const slot_names[4] = {"IN", "MID", "BRANCH", "OUT"};

static ffn_status_t check_selectors(const ffn_layer_options_t *options) {
    const uint32_t flags = FFN_LAYER_TANH_BRANCH_SCALE | FFN_LAYER_TANH_RESIDUAL_SCALE | FFN_LAYER_TRAINABLE;
    if (options->flags & ~flags)
        return ffni_fail(FFN_INVALID, "flags is 0x%" PRIx32 ", must be FFN_LAYER_* or-ed, at most 0x%" PRIx32, options->flags, flags);
    if (options->residual > FFN_RESIDUAL_EXTERNAL)
        return ffni_fail(FFN_INVALID, "residual is %" PRIu32 ", must be one of FFN_RESIDUAL_*, at most %d", options->residual,
                         FFN_RESIDUAL_EXTERNAL);
    if (options->engine > FFN_ENGINE_NATIVE)
        return ffni_fail(FFN_INVALID, "engine is %" PRIu32 ", must be one of FFN_ENGINE_*, at most %d", options->engine, FFN_ENGINE_NATIVE);
    if (options->engine == FFN_ENGINE_NATIVE && options->moe && (options->flags & FFN_LAYER_TRAINABLE))
        return ffni_fail(FFN_UNSUPPORTED, "engine is native, but moe is given and flags has FFN_LAYER_TRAINABLE: mixtures train with engine blas");
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved is %" PRIu32 ", must be 0", options->reserved);
    return FFN_OK;
}

/* A dimension that is not given is taken from the weight that has it. */
static ffn_status_t resolve_dimension(const char *name, int64_t *dimension, int64_t from_weight) {
    if (!*dimension) *dimension = from_weight;
    if (*dimension < 1) return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be at least 1", name, *dimension);
    if (*dimension > DIMENSION_MAX) return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be at most %d", name, *dimension, DIMENSION_MAX);
    return FFN_OK;
}

/* A weight's dimension, of one expert's where it is a stack. */
static int64_t dimension_of(const config_t *config, int role, int dimension) {
    const ffn_tensor_t *tensor = config->tensor[role];
    return tensor ? tensor->shape[dimension + (tensor->ndim > ffni_roles[role].ndim)] : 0;
}

static ffn_status_t resolve_dimensions(config_t *config) {
    ffn_layer_options_t *options = &config->options;
    int latent = config->tensor[FFN_ROLE_LATENT_IN_WEIGHT] != NULL;
    if (!config->tensor[FFN_ROLE_UP_WEIGHT]) return ffni_fail(FFN_INVALID, "the up weight is missing");
    if (!config->tensor[FFN_ROLE_DOWN_WEIGHT]) return ffni_fail(FFN_INVALID, "the down weight is missing");
    ffn_status_t status = resolve_dimension("d_model", &options->d_model, dimension_of(config, latent ? FFN_ROLE_LATENT_IN_WEIGHT : FFN_ROLE_UP_WEIGHT, 1));
    if (!status) status = resolve_dimension("d_ff", &options->d_ff, dimension_of(config, FFN_ROLE_UP_WEIGHT, 0));
    if (!status) status = resolve_dimension("d_out", &options->d_out, dimension_of(config, latent ? FFN_ROLE_LATENT_OUT_WEIGHT : FFN_ROLE_DOWN_WEIGHT, 0));
    if (status) return status;
    if ((options->residual == FFN_RESIDUAL_INPUT || options->residual == FFN_RESIDUAL_NORMED) && options->d_out != options->d_model)
        return ffni_fail(FFN_INVALID, "d_out is %" PRId64 ", must be %" PRId64 " (d_model) to add the residual", options->d_out,
                         options->d_model);
    return FFN_OK;
}

static ffn_status_t resolve_sizes(config_t *config) {
    const ffn_layer_options_t *options = &config->options;
    int64_t shared = dimension_of(config, FFN_ROLE_SHARED_UP_WEIGHT, 0), latent = dimension_of(config, FFN_ROLE_LATENT_IN_WEIGHT, 0);
    ffn_status_t status = config->tensor[FFN_ROLE_SHARED_UP_WEIGHT] ? resolve_dimension("d_shared", &shared, 0) : FFN_OK;
    if (!status && config->tensor[FFN_ROLE_LATENT_IN_WEIGHT]) status = resolve_dimension("d_latent", &latent, 0);
    config->sizes = (sizes_t){
        .of = {[EXTENT_D_MODEL] = options->d_model, [EXTENT_D_FF] = options->d_ff, [EXTENT_D_OUT] = options->d_out,
               [EXTENT_EXPERT_IN] = latent ? latent : options->d_model, [EXTENT_EXPERT_OUT] = latent ? latent : options->d_out,
               [EXTENT_CHOICES] = config->mixture.choices, [EXTENT_D_SHARED] = shared, [EXTENT_D_LATENT] = latent, [EXTENT_ONE] = 1},
        .experts = config->mixture.experts};
    if (!status && config->mixture.choices > config->mixture.experts && config->sizes.of[EXTENT_EXPERT_IN] != config->sizes.of[EXTENT_EXPERT_OUT])
        status = ffni_fail(FFN_INVALID, "d_out is %" PRId64 ", must be %" PRId64 " (d_model) for identity experts", options->d_out, options->d_model);
    return status;
}

static ffn_status_t check_norm(const config_t *config, int slot) {
    const ffn_layer_options_t *options = &config->options;
    uint32_t kind = options->norm[slot];
    float eps = options->norm_eps[slot], offset = options->norm_offset[slot];
    if (kind > FFN_NORM_AFFINE)
        return ffni_fail(FFN_INVALID, "norm[%s] is %" PRIu32 ", must be one of FFN_NORM_*, at most %d", slot_names[slot], kind, FFN_NORM_AFFINE);
    if (!isfinite(eps) || eps < 0)
        return ffni_fail(FFN_INVALID, "norm_eps[%s] is %s, must be finite and at least 0", slot_names[slot], ffni_number(eps).text);
    if (!isfinite(offset)) return ffni_fail(FFN_INVALID, "norm_offset[%s] is %s, must be finite", slot_names[slot], ffni_number(offset).text);
    if (eps != 0 && (kind == FFN_NORM_NONE || kind == FFN_NORM_AFFINE))
        return ffni_fail(FFN_INVALID, "norm_eps[%s] is %s, but the norm there has no eps", slot_names[slot], ffni_number(eps).text);
    if (kind != FFN_NORM_NONE) return FFN_OK;
    if (offset != 0) return ffni_fail(FFN_INVALID, "norm_offset[%s] is %s, but there is no norm", slot_names[slot], ffni_number(offset).text);
    for (int role = FFN_ROLE_NORM_IN_WEIGHT + 2 * slot; role <= FFN_ROLE_NORM_IN_BIAS + 2 * slot; role++)
        if (config->tensor[role]) return ffni_fail(FFN_INVALID, "%s is given, but norm[%s] is none", ffni_roles[role].name, slot_names[slot]);
    return FFN_OK;
}

/* What needs something else to make sense. */
static ffn_status_t check_companions(const config_t *config) {
    const ffn_layer_options_t *options = &config->options;
    const ffn_tensor_t *const *tensor = config->tensor;
    int xielu = options->activation == FFN_ACTIVATION_XIELU;
    if (tensor[FFN_ROLE_GATE_BIAS] && !config->gated) return ffni_fail(FFN_INVALID, "the gate bias is given without a gate weight");
    if (tensor[FFN_ROLE_RESIDUAL_SCALE] && options->residual == FFN_RESIDUAL_NONE)
        return ffni_fail(FFN_INVALID, "the residual scale is given, but residual is none");
    if ((options->flags & FFN_LAYER_TANH_BRANCH_SCALE) && !tensor[FFN_ROLE_BRANCH_SCALE])
        return ffni_fail(FFN_INVALID, "flags has FFN_LAYER_TANH_BRANCH_SCALE, but there is no branch scale");
    if ((options->flags & FFN_LAYER_TANH_RESIDUAL_SCALE) && !tensor[FFN_ROLE_RESIDUAL_SCALE])
        return ffni_fail(FFN_INVALID, "flags has FFN_LAYER_TANH_RESIDUAL_SCALE, but there is no residual scale");
    for (int role = FFN_ROLE_XIELU_ALPHA_P; role <= FFN_ROLE_XIELU_ALPHA_N; role++) {
        if (xielu && !tensor[role]) return ffni_fail(FFN_INVALID, "%s is missing", ffni_roles[role].name);
        if (!xielu && tensor[role]) return ffni_fail(FFN_INVALID, "%s is given, but the activation is another", ffni_roles[role].name);
    }
    return FFN_OK;
}

static ffn_status_t check_tensors(const config_t *config) {
    const ffn_layer_options_t *options = &config->options;
    ffn_status_t status = FFN_OK;
    for (uint64_t i = 0; !status && i < options->tensor_count; i++) status = ffni_tensor_check(&config->sizes, &options->tensors[i]);
    if (!status && config->mixture.experts) status = ffni_tensors_check_complete(options->tensors, options->tensor_count, config->mixture.experts);
    return status;
}

/* The native engine is ahead at every number of tokens where there are vector kernels (docs/performance.md); without, OpenBLAS is. */
static uint32_t resolve_engine(const ffn_layer_options_t *options, const kernel_table_t *kernels) {
    if (options->engine != FFN_ENGINE_AUTO) return options->engine;
    if (options->moe && (options->flags & FFN_LAYER_TRAINABLE)) return FFN_ENGINE_BLAS;
    return kernels->isa == FFN_ISA_SCALAR ? FFN_ENGINE_BLAS : FFN_ENGINE_NATIVE;
}

ffn_status_t ffni_options_read(const ffn_layer_options_t *given, config_t *config) {
    ffn_layer_options_t *options = &config->options;
    ffn_status_t status = ffni_struct_read(options, sizeof *options, given, "ffn_layer_options_t");
    if (!status) status = check_selectors(options);
    if (!status) status = ffni_allocator_read(options->allocator, &config->allocator);
    if (!status) status = ffni_mixture_read(options, &config->mixture);
    if (!status) status = ffni_tensors_bind(options->tensors, options->tensor_count, config->mixture.experts, config->tensor);
    if (status) return status;
    config->gated = config->tensor[FFN_ROLE_GATE_WEIGHT] != NULL;
    config->shared_gated = config->tensor[FFN_ROLE_SHARED_GATE_WEIGHT] != NULL;
    status = ffni_activation_check(options, config->gated);
    if (!status) status = ffni_mixture_check_tensors(&config->mixture, config->tensor);
    if (!status) status = resolve_dimensions(config);
    if (!status) status = resolve_sizes(config);
    for (int slot = FFN_NORM_IN; !status && slot <= FFN_NORM_OUT; slot++) status = check_norm(config, slot);
    if (!status) status = check_companions(config);
    if (!status) status = check_tensors(config);
    if (!status) status = ffni_ladder_choose(options->max_isa, &config->kernels);
    if (!status) config->engine = resolve_engine(options, config->kernels);
    return status;
}
