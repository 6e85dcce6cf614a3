/* SPDX-License-Identifier: MIT
 * Scores, each by its formula. */
#include "core/scores.h"

#include "kernels/scalar_math.h"

int ffni_logits_are_void(int64_t n, const float *logits) {
    int above = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i])) return 1;
        above |= logits[i] > -INFINITY;
    }
    return !above;
}

static float largest(int64_t n, const float *logits) {
    float most = logits[0];
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > most) most = logits[i];
    return most;
}

/* e[i] = e^(logits[i] - most), and their sum. Below e^-708 all is 0 to any float. */
static double exponentials(int64_t n, double *e, const float *logits, double most) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) e[i] = exp_of(at_least((double)logits[i] - most, -708.0));
    for (int64_t i = 0; i < n; i++) sum += e[i];
    return sum;
}

void ffni_softmax(int64_t n, double *p, const float *logits) {
    double sum = exponentials(n, p, logits, (double)largest(n, logits));
    for (int64_t i = 0; i < n; i++) p[i] /= sum;
}

double ffni_log_sum_exp(int64_t n, const float *logits) {
    double e[FFN_MOE_EXPERTS_MOST], most = (double)largest(n, logits);
    return most + log(exponentials(n, e, logits, most));
}

double ffni_sigmoid(double z) {
    double below = logistic_tail(fabs(z));
    return z < 0 ? below : 1.0 - below;
}

double ffni_softplus(double z) {
    return positive_part(z) + log_one_plus(exp_of(-at_most(fabs(z), 700.0)));
}

void ffni_scores_exact(uint32_t score, int64_t n, double *s, const float *logits) {
    switch (score) {
    case FFN_MOE_SCORE_SOFTMAX: ffni_softmax(n, s, logits); break;
    case FFN_MOE_SCORE_SIGMOID:
        for (int64_t i = 0; i < n; i++) s[i] = ffni_sigmoid((double)logits[i]);
        break;
    case FFN_MOE_SCORE_SQRT_SOFTPLUS:
        for (int64_t i = 0; i < n; i++) s[i] = sqrt(ffni_softplus((double)logits[i]));
        break;
    default:
        for (int64_t i = 0; i < n; i++) s[i] = (double)logits[i];
    }
}

void ffni_scores(uint32_t score, int64_t n, float *scores, const float *logits) {
    double s[FFN_MOE_EXPERTS_MOST];
    if (score == FFN_MOE_SCORE_NONE) {
        if (scores != logits) memcpy(scores, logits, (size_t)n * sizeof *scores);
        return;
    }
    ffni_scores_exact(score, n, s, logits);
    for (int64_t i = 0; i < n; i++) scores[i] = (float)s[i];
}

void ffni_softmax_back(int64_t n, double *d, const double *p) {
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += p[i] * d[i];
    for (int64_t i = 0; i < n; i++) d[i] = p[i] * (d[i] - mean);
}

double ffni_sigmoid_slope(double z) {
    double tail = logistic_tail(fabs(z));
    return tail * (1.0 - tail);
}

void ffni_scores_back(uint32_t score, int64_t n, double *d, const double *s, const float *logits) {
    switch (score) {
    case FFN_MOE_SCORE_SOFTMAX: ffni_softmax_back(n, d, s); break;
    case FFN_MOE_SCORE_SIGMOID:
        for (int64_t i = 0; i < n; i++) d[i] *= ffni_sigmoid_slope((double)logits[i]);
        break;
    case FFN_MOE_SCORE_SQRT_SOFTPLUS: /* softplus' is the sigmoid */
        for (int64_t i = 0; i < n; i++) d[i] *= ffni_sigmoid((double)logits[i]) / (2 * s[i]);
        break;
    default: break;
    }
}
