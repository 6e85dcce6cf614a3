/* SPDX-License-Identifier: MIT
 * ffn_sgd_step, ffn_adamw_step and ffn_clip_global_norm: check, then step. */
#include <ffn/ffn.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/optimisers.h"
#include "dispatch/ladder.h"

#include <inttypes.h>
#include <math.h>

typedef struct array {
    const char *name;
    const float *data;
} array_t;

static ffn_status_t check_number(const char *name, double value, double below) {
    if (isfinite(value) && value >= 0 && value < below) return FFN_OK;
    if (isinf(below)) return ffni_fail(FFN_INVALID, "%s is %s, must be finite and at least 0", name, ffni_number(value).text);
    return ffni_fail(FFN_INVALID, "%s is %s, must be at least 0 and below 1", name, ffni_number(value).text);
}

static ffn_status_t check_array(const char *name, const float *data, int64_t n) {
    if (n < 0 || n > INT64_MAX / 4) return ffni_fail(FFN_INVALID, "the length of %s is %" PRId64 ", must be 0 to %" PRId64, name, n, INT64_MAX / 4);
    if (!n) return FFN_OK;
    if (!data) return ffni_fail(FFN_INVALID, "%s is NULL", name);
    if ((uintptr_t)data % 4) return ffni_fail(FFN_INVALID, "%s is not at a multiple of 4 bytes", name);
    return FFN_OK;
}

/* Arrays of the same length. */
static ffn_status_t check_arrays(int64_t n, const array_t *arrays, int count) {
    for (int i = 0; i < count; i++) {
        ffn_status_t status = check_array(arrays[i].name, arrays[i].data, n);
        if (status) return status;
        for (int j = 0; n && j < i; j++) {
            uintptr_t a = (uintptr_t)arrays[i].data, b = (uintptr_t)arrays[j].data;
            if ((a < b ? b - a : a - b) < (uint64_t)n * 4) return ffni_fail(FFN_INVALID, "%s overlaps %s", arrays[j].name, arrays[i].name);
        }
    }
    return FFN_OK;
}

static ffn_status_t check_sgd(const ffn_sgd_options_t *options, int64_t n, const float *velocity) {
    if (options->flags & ~(uint32_t)FFN_SGD_NESTEROV)
        return ffni_fail(FFN_INVALID, "flags of SGD is 0x%" PRIx32 ", must be FFN_SGD_NESTEROV or 0", options->flags);
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved of SGD is %" PRIu32 ", must be 0", options->reserved);
    ffn_status_t status = check_number("learning_rate", options->learning_rate, INFINITY);
    if (!status) status = check_number("momentum", options->momentum, 1);
    if (!status) status = check_number("weight_decay", options->weight_decay, INFINITY);
    if (status) return status;
    if ((options->flags & FFN_SGD_NESTEROV) && options->momentum == 0) return ffni_fail(FFN_INVALID, "FFN_SGD_NESTEROV is given, but momentum is 0");
    if (n && options->momentum != 0 && !velocity)
        return ffni_fail(FFN_INVALID, "velocity is NULL, but momentum is %s", ffni_number(options->momentum).text);
    return FFN_OK;
}

ffn_status_t ffn_sgd_step(ffn_context_t *context, const ffn_sgd_options_t *given, int64_t n, float *weight, const float *gradient,
                          float *velocity) {
    const array_t arrays[] = {{"weight", weight}, {"gradient", gradient}, {"velocity", velocity}};
    const kernel_table_t *kernels;
    ffn_sgd_options_t options;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, given, "ffn_sgd_options_t");
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = check_sgd(&options, n, velocity);
    if (!status) status = check_arrays(n, arrays, velocity ? 3 : 2);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    sgd_t sgd = {.rate = options.learning_rate, .momentum = options.momentum, .weight_decay = options.weight_decay,
                 .nesterov = (options.flags & FFN_SGD_NESTEROV) != 0};
    ffni_sgd(context, kernels->training, &sgd, n, weight, gradient, velocity);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

static ffn_status_t read_adamw(const ffn_adamw_options_t *given, ffn_adamw_options_t *options) {
    ffn_status_t status = ffni_struct_read(options, sizeof *options, given, "ffn_adamw_options_t");
    if (status) return status;
    if (options->flags) return ffni_fail(FFN_INVALID, "flags of AdamW is %" PRIu32 ", must be 0", options->flags);
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved of AdamW is %" PRIu32 ", must be 0", options->reserved);
    if (options->step < 1) return ffni_fail(FFN_INVALID, "step is %" PRId64 ", must be at least 1", options->step);
    status = check_number("learning_rate", options->learning_rate, INFINITY);
    if (!status) status = check_number("beta1", options->beta1, 1);
    if (!status) status = check_number("beta2", options->beta2, 1);
    if (!status) status = check_number("eps", options->eps, INFINITY);
    if (!status) status = check_number("weight_decay", options->weight_decay, INFINITY);
    if (options->beta1 == 0) options->beta1 = 0.9f;
    if (options->beta2 == 0) options->beta2 = 0.999f;
    if (options->eps == 0) options->eps = 1e-8f;
    return status;
}

static adamw_t adamw_of(const ffn_adamw_options_t *options) {
    double step = (double)options->step, rate = options->learning_rate;
    return (adamw_t){.beta1 = options->beta1, .beta2 = options->beta2, .eps = options->eps, .decay = (float)(rate * (double)options->weight_decay),
                     .first_factor = (float)(rate / (1 - pow((double)options->beta1, step))),
                     .second_factor = (float)(1 / sqrt(1 - pow((double)options->beta2, step)))};
}

ffn_status_t ffn_adamw_step(ffn_context_t *context, const ffn_adamw_options_t *given, int64_t n, float *weight, const float *gradient,
                            float *first, float *second) {
    const array_t arrays[] = {{"weight", weight}, {"gradient", gradient}, {"first", first}, {"second", second}};
    const kernel_table_t *kernels;
    ffn_adamw_options_t options;
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = read_adamw(given, &options);
    if (!status) status = check_arrays(n, arrays, 4);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    adamw_t adamw = adamw_of(&options);
    ffni_adamw(context, kernels->training, &adamw, n, weight, gradient, first, second);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}

/* ------------------------------------------------------------------- Clipping */

static ffn_status_t check_clip(float *const *arrays, const int64_t *counts, uint64_t array_count, double max_norm) {
    if (!(max_norm > 0)) return ffni_fail(FFN_INVALID, "max_norm is %s, must be above 0", ffni_number(max_norm).text);
    if (array_count && (!arrays || !counts)) return ffni_fail(FFN_INVALID, "%s is NULL, but array_count is %" PRIu64, arrays ? "counts" : "arrays", array_count);
    for (uint64_t i = 0; i < array_count; i++) {
        ffn_status_t status = check_array("an array of gradients", arrays[i], counts[i]);
        if (status) return status;
    }
    return FFN_OK;
}

static ffn_status_t clip(ffn_context_t *context, const training_table_t *kernels, float *const *arrays, const int64_t *counts,
                         uint64_t array_count, double max_norm, double *norm) {
    double sum = 0;
    for (uint64_t i = 0; i < array_count; i++) {
        double square;
        ffn_status_t status = ffni_sum_of_squares(context, kernels, counts[i], arrays[i], &square);
        if (status) return status;
        sum += square;
    }
    *norm = sqrt(sum);
    if (!isfinite(*norm) || *norm <= max_norm) return FFN_OK;
    for (uint64_t i = 0; i < array_count; i++) ffni_scale(context, kernels, counts[i], arrays[i], (float)(max_norm / *norm));
    return FFN_OK;
}

ffn_status_t ffn_clip_global_norm(ffn_context_t *context, float *const *arrays, const int64_t *counts, uint64_t array_count, double max_norm,
                                  double *norm) {
    const kernel_table_t *kernels;
    if (!norm) return ffni_fail(FFN_INVALID, "the pointer to the norm is NULL");
    fpenv_t saved = fpenv_enter();
    ffn_status_t status = check_clip(arrays, counts, array_count, max_norm);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) goto cleanup;
    status = clip(context, kernels->training, arrays, counts, array_count, max_norm, norm);
    ffni_context_leave(context);
cleanup:
    fpenv_leave(saved);
    return status;
}
