/* SPDX-License-Identifier: MIT
 *
 * The derivatives of the activations as the kernels' tests know them: formulas of their own in float64, by the C library alone, and the bounds in ulp.
 */
#ifndef FFN_TEST_SLOPE_CASES_H
#define FFN_TEST_SLOPE_CASES_H

#include "support/kernel_cases.h"

/* act'(x) of a kernel case at a finite x, 0 where the clip above holds the value. `unit` is the larger of it and of the terms that the formula adds up. */
exact_t slope_exact(const kernel_case_t *is, double x);

/* act' at x = -inf (0) and +inf (1): the limit. */
double slope_limit(const kernel_case_t *is, int positive);

/* The bound of the level that the table is of, in ulp of the unit. */
double slope_bound(const kernel_case_t *is, const kernel_table_t *table);

#endif
