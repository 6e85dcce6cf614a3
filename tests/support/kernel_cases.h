/* SPDX-License-Identifier: MIT
 *
 * The activations as the kernels' tests know them: parameters, an exact formula of their own in float64 (by the C library alone, in forms that do
 * not cancel), and the bound in ulp that each level promises. One table for the dense sweep and the exhaustive one.
 */
#ifndef FFN_TEST_KERNEL_CASES_H
#define FFN_TEST_KERNEL_CASES_H

#include <stdbool.h>

#include "kernels/kernels.h"

/* The value, and the number whose ulp is the unit of its error: the value itself, but for a formula whose terms cancel the largest of them. */
typedef struct exact {
    double value, unit;
} exact_t;

typedef struct kernel_case {
    const char *name;
    const char *formula;
    activation_t activation;
    exact_t (*exact)(const activation_t *activation, double x);
    double limit[2];     /* of the result at x = -inf, +inf */
    double scalar_bound; /* ulp */
    double vector_bound; /* ulp, AVX2 and AVX-512 */
    bool exhaustive;     /* one of the kernels by their names; the others repeat a kernel with other parameters */
} kernel_case_t;

extern const kernel_case_t kernel_cases[];
extern const int kernel_case_count;

/* What the kernel computes at x, its upper clip and the limits at +-infinity included. */
exact_t kernel_exact(const kernel_case_t *is, float x);

/* The bound of the level that the table is of. */
double kernel_case_bound(const kernel_case_t *is, const kernel_table_t *table);

/* The ulp of exact.unit as a float32: at least 2^-149, at most that of the largest floats. */
double kernel_ulp(exact_t exact);

/* |got - exact.value| in ulp of exact.unit: units of 2^-149 for a denormal, 2^128 for an infinite float whose exact value is finite.
 * Infinity where a NaN or an infinity stands alone. */
double kernel_error_ulps(exact_t exact, float got);

#endif
