/* SPDX-License-Identifier: MIT
 * ffn_tensor_health and ffn_update_ratio: check, then look. */
#include <ffn/ffn.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/health.h"
#include "dispatch/ladder.h"

#include <inttypes.h>
#include <math.h>

ffn_status_t ffn_tensor_health(ffn_context_t *context, const ffn_tensor_t *tensor, ffn_tensor_health_t *health) {
    const kernel_table_t *kernels;
    ffn_tensor_health_t known = {0};
    numbers_t numbers;
    survey_t survey = {0};
    ffn_status_t status = ffni_numbers_read(&numbers, tensor, "the tensor");
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    if (numbers.count) status = ffni_survey(context, kernels->training, &numbers, &survey);
    known.count = numbers.count;
    known.zeros = survey.zeros;
    known.non_finite = survey.non_finite;
    known.norm = sqrt(survey.squares);
    known.largest = (double)survey.largest;
    fpenv_leave(saved);
    ffni_context_leave(context);
    return status ? status : ffni_struct_write(health, &known, sizeof known, "ffn_tensor_health_t");
}

static ffn_status_t check_same_shape(const ffn_tensor_t *before, const ffn_tensor_t *after) {
    if (before->ndim != after->ndim)
        return ffni_fail(FFN_INVALID, "ndim of `after` is %" PRIu32 ", must be that of `before`, %" PRIu32, after->ndim, before->ndim);
    for (uint32_t i = 0; i < before->ndim; i++)
        if (before->shape[i] != after->shape[i])
            return ffni_fail(FFN_INVALID, "shape[%" PRIu32 "] of `after` is %" PRId64 ", must be that of `before`, %" PRId64, i, after->shape[i],
                             before->shape[i]);
    return FFN_OK;
}

ffn_status_t ffn_update_ratio(ffn_context_t *context, const ffn_tensor_t *before, const ffn_tensor_t *after, double *ratio) {
    const kernel_table_t *kernels;
    numbers_t old, new;
    double moved = 0, weight = 0;
    if (!ratio) return ffni_fail(FFN_INVALID, "the pointer to the ratio is NULL");
    *ratio = 0;
    ffn_status_t status = ffni_numbers_read(&old, before, "`before`");
    if (!status) status = ffni_numbers_read(&new, after, "`after`");
    if (!status) status = check_same_shape(before, after);
    if (!status) status = ffni_ladder_choose(FFN_ISA_AUTO, &kernels);
    if (!status) status = ffni_context_enter(context, &context);
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    if (old.count) status = ffni_movement(context, kernels->training, &old, &new, &moved, &weight);
    if (!status && moved != 0) *ratio = sqrt(moved) / sqrt(weight);
    fpenv_leave(saved);
    ffni_context_leave(context);
    return status;
}
