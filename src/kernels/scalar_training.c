/* SPDX-License-Identifier: MIT
 *
 * The scalar level of the training table, by hand: one formula per comment.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") /* as in scalar.c */
#endif

#include "kernels/training.h"

#include <math.h>
#include <stddef.h>

/* -------------------------------------------------------------- Optimisers */

/* Rounded to float32 after each operation, as the vector levels do: the same bits. */
static void sgd(const sgd_t *sgd, int64_t n, float *weight, const float *gradient, float *velocity)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sgd->weight_decay != 0 ? gradient[i] + sgd->weight_decay * weight[i] : gradient[i];
        const float v = velocity ? sgd->momentum * velocity[i] + g : g;
        if (velocity) velocity[i] = v;
        weight[i] -= sgd->rate * (sgd->nesterov ? g + sgd->momentum * v : v);
    }
}

static void adamw(const adamw_t *adamw, int64_t n, float *weight, const float *gradient, float *first, float *second)
{
    const float new_first = 1.0f - adamw->beta1, new_second = 1.0f - adamw->beta2;
    for (int64_t i = 0; i < n; i++) {
        const float g = gradient[i];
        first[i] = adamw->beta1 * first[i] + new_first * g;
        second[i] = adamw->beta2 * second[i] + new_second * g * g;
        const float kept = weight[i] - adamw->decay * weight[i];
        weight[i] = kept - adamw->first_factor * first[i] / (adamw->second_factor * sqrtf(second[i]) + adamw->eps);
    }
}

static double sum_of_squares(int64_t n, const float *v)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sum;
}

static void scale(int64_t n, float *v, float factor)
{
    for (int64_t i = 0; i < n; i++) v[i] *= factor;
}

const training_table_t ffni_training_scalar = {
    .sgd = sgd,
    .adamw = adamw,
    .sum_of_squares = sum_of_squares,
    .scale = scale,
};
