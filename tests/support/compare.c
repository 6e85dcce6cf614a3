/* SPDX-License-Identifier: MIT */
#include "support/compare.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

/* Maps floats to integers in the same order, neighbours to neighbours. */
static int64_t ordered(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t magnitude = bits & 0x7fffffff;
    return bits >> 31 ? -magnitude : magnitude;
}

int64_t ulp_distance(float a, float b)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INT64_MAX;
    int64_t distance = ordered(a) - ordered(b);
    return distance < 0 ? -distance : distance;
}

static bool within_bound(double got, double expected, double bound)
{
    if (isnan(expected)) return isnan(got);
    if (isinf(expected)) return got == expected;
    return fabs(got - expected) <= bound;
}

int64_t first_outside_bound(const float *got, const double *expected, const double *bound, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!within_bound(got[i], expected[i], bound[i])) return i;
    return -1;
}

int64_t first_different_bits(const float *a, const float *b, int64_t n)
{
    if (n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0) return -1;
    int64_t i = 0;
    while (memcmp(a + i, b + i, sizeof *a) == 0) i++;
    return i;
}

double largest_magnitude(const float *values, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)values[i]) > largest) largest = fabs((double)values[i]);
    return largest;
}

void assert_near(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance)) fail_msg("expected %.17g within %.3g, got %.17g", expected, tolerance, got);
}

void assert_same_bits(const float *expected, const float *got, int64_t n, const char *what)
{
    int64_t i = first_different_bits(expected, got, n);
    if (i >= 0)
        fail_msg("%s: [%lld] expected %.9g (%a), got %.9g (%a), %lld ulps apart; FFN_MAX_ISA %s", what, (long long)i, (double)expected[i],
                 (double)expected[i], (double)got[i], (double)got[i], (long long)ulp_distance(expected[i], got[i]), test_isa_cap());
}
