/* SPDX-License-Identifier: MIT
 * Random initial weights. A new scheme is a new row of the table in init.c. */
#ifndef FFNI_INIT_H
#define FFNI_INIT_H

#include <ffn/ffn.h>

/* The options have the library's size. */
ffn_status_t ffni_init_check(const ffn_init_options_t *options);

/* values[i] for i = 0 .. count-1. The options have been checked. */
void ffni_init_fill(float *values, int64_t count, const ffn_init_options_t *options);

/* The z with Phi(z) = p, for 2^-36 < p < 1 - 2^-36, to about 1e-15. */
double ffni_normal_quantile(double p);

#endif
