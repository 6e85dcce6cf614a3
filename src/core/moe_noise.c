/* SPDX-License-Identifier: MIT
 * Random numbers, jitter, and noise on logits, from the streams of dropout: each number a function of its place alone. */
#include "core/moe_noise.h"

#include "core/init.h"
#include "core/parallel.h"
#include "core/scores.h"
#include "kernels/philox.h"
#include "kernels/training.h"

#include <stddef.h>

/* Work of a normal number, in the elements that ffni_parallel_rows counts in: a quarter of Philox, a logarithm's like, an exponential. */
enum { WORK_PER_NUMBER = 16 };

/* The counter of a row's first four columns, as ffn/ffn.h has it. */
static void start_of_row(const ffn_moe_noise_t *noise, int64_t row, uint32_t counter[4]) {
    uint64_t number = (uint64_t)noise->first_row + (uint64_t)row;
    counter[0] = noise->site << 28;
    counter[1] = (uint32_t)number;
    counter[2] = (uint32_t)noise->step;
    counter[3] = (uint32_t)noise->layer << 16 | (uint32_t)(number >> 32);
}

double ffni_moe_noise_number(const ffn_moe_noise_t *noise, int64_t row, int64_t column) {
    philox_t counter;
    start_of_row(noise, row, counter.word);
    counter.word[0] += (uint32_t)(column / 4);
    return ((double)philox(counter, noise->seed).word[column % 4] + 0.5) * 0x1p-32;
}

/* --------------------------------------------------------------------- Jitter */

typedef struct shaken {
    const kernel_table_t *kernels;
    const ffn_moe_noise_t *noise;
    int64_t width;
    const rows_t *in, *out;
} shaken_t;

static void shake_rows(void *data, int64_t begin, int64_t end) {
    const shaken_t *shaken = data;
    jitter_t jitter = {.seed = shaken->noise->seed, .size = shaken->noise->size};
    for (int64_t row = begin; row < end; row++) {
        start_of_row(shaken->noise, row, jitter.counter);
        shaken->kernels->training->jitter(&jitter, shaken->width, rows_at(shaken->out, row), rows_at(shaken->in, row));
    }
}

void ffni_moe_jitter(ffn_context_t *context, const kernel_table_t *kernels, const ffn_moe_noise_t *noise, int64_t width, const rows_t *in,
                     const rows_t *out) {
    shaken_t shaken = {kernels, noise, width, in, out};
    ffni_parallel_rows(context, in->count, width, shake_rows, &shaken);
}

/* ---------------------------------------------------------------------- Noise */

typedef struct noisy {
    const ffn_moe_noise_t *noise;
    int64_t experts;
    const float *noise_logits, *d_logits; /* d_logits NULL: forwards */
    float *out;
} noisy_t;

static float noisy(const noisy_t *is, int64_t i, double normal) {
    double z = is->noise_logits ? (double)is->noise_logits[i] : 0, size = (double)is->noise->size;
    if (is->d_logits) return (float)((double)is->d_logits[i] * normal * ffni_sigmoid(z));
    if (is->noise_logits) size += ffni_softplus(z);
    return (float)((double)is->out[i] + size * normal);
}

static void noisy_rows(void *data, int64_t begin, int64_t end) {
    const noisy_t *is = data;
    for (int64_t row = begin; row < end; row++) {
        philox_t counter, random = {{0}};
        start_of_row(is->noise, row, counter.word);
        for (int64_t j = 0; j < is->experts; j++) {
            if (j % 4 == 0) {
                random = philox(counter, is->noise->seed);
                counter.word[0]++;
            }
            double u = ((double)random.word[j % 4] + 0.5) * 0x1p-32;
            is->out[row * is->experts + j] = noisy(is, row * is->experts + j, ffni_normal_quantile(u));
        }
    }
}

void ffni_moe_add_noise(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts, const float *noise_logits,
                        float *logits) {
    noisy_t is = {.noise = noise, .experts = experts, .noise_logits = noise_logits, .out = logits};
    if (noise->size > 0 || noise_logits) ffni_parallel_rows(context, tokens, experts * WORK_PER_NUMBER, noisy_rows, &is);
}

void ffni_moe_add_noise_backward(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts, const float *noise_logits,
                                 const float *d_logits, float *d_noise_logits) {
    noisy_t is = {noise, experts, noise_logits, d_logits, d_noise_logits};
    ffni_parallel_rows(context, tokens, experts * WORK_PER_NUMBER, noisy_rows, &is);
}
