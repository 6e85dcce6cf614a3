/* SPDX-License-Identifier: MIT
 *
 * Comparing floats: by bits, by ulps, and against a float64 value with a bound of its own.
 */
#ifndef FFN_TEST_COMPARE_H
#define FFN_TEST_COMPARE_H

#include <stdint.h>

/* Representable floats between a and b; 0 for +0 and -0, and for two NaNs; INT64_MAX if one of them alone is NaN. */
int64_t ulp_distance(float a, float b);

/* The index of the first i with |got[i] - expected[i]| > bound[i], or -1. NaN agrees with NaN alone, infinity with the same infinity; a
 * bound that is not a number accepts nothing. */
int64_t first_outside_bound(const float *got, const double *expected, const double *bound, int64_t n);

/* The index of the first element whose bits differ, or -1. */
int64_t first_different_bits(const float *a, const float *b, int64_t n);

/* The largest |value|. */
double largest_magnitude(const float *values, int64_t n);

/* Fails the test, naming all three, unless |got - expected| <= tolerance. */
void assert_near(double got, double expected, double tolerance);

/* Fails the test if a float differs in its bits, naming the first: index, both values, ulps. `what` says what is compared. */
void assert_same_bits(const float *expected, const float *got, int64_t n, const char *what);

#endif
