/* SPDX-License-Identifier: MIT
 * A router's scores and their derivatives: of one row of logits, in float64 from the scalar level's functions, so that every ISA level has the same
 * bits. */
#ifndef FFNI_SCORES_H
#define FFNI_SCORES_H

#include <ffn/ffn.h>

/* scores[i] = SCORE(logits)[i], rounded to float32 once. n is 1 to FFN_MOE_EXPERTS_MOST. scores may be logits. */
void ffni_scores(uint32_t score, int64_t n, float *scores, const float *logits);

/* The same without the rounding. */
void ffni_scores_exact(uint32_t score, int64_t n, double *s, const float *logits);

/* d, the derivatives by the scores, become those by the logits. s are the exact scores. */
void ffni_scores_back(uint32_t score, int64_t n, double *d, const double *s, const float *logits);

double ffni_sigmoid(double z);
double ffni_sigmoid_slope(double z);
double ffni_softplus(double z); /* log(1 + e^z) */

/* p[i] = e^(logits[i] - max) / sum, p in float64. */
void ffni_softmax(int64_t n, double *p, const float *logits);

/* d, the derivatives by p, become those by the logits. */
void ffni_softmax_back(int64_t n, double *d, const double *p);

/* log(sum of e^logits[i]). */
double ffni_log_sum_exp(int64_t n, const float *logits);

/* Whether a row holds a NaN, or nothing above -inf. */
int ffni_logits_are_void(int64_t n, const float *logits);

#endif
