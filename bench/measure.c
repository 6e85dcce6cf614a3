/* SPDX-License-Identifier: MIT
 * Interleaved rounds, medians and percentiles. */
#include "measure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double measure_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

float *measure_random(int64_t count, float scale, uint64_t seed) {
    float *numbers = aligned_alloc(64, ((size_t)count * sizeof *numbers + 63) / 64 * 64);
    if (!numbers) {
        fprintf(stderr, "ffn_bench: out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = scale * ((float)(int32_t)(seed >> 32) / 2147483648.0f);
    }
    return numbers;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, int count, double share) {
    return sorted[(int)(share * (count - 1) + 0.5)];
}

void measure_in_turn(contender_t *contenders, int count, int rounds) {
    double *sorted = malloc((size_t)rounds * sizeof *sorted);
    for (int i = 0; i < count; i++) {
        contenders[i].seconds = malloc((size_t)rounds * sizeof(double));
        contenders[i].run(contenders[i].data);
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            double start = measure_now();
            contenders[i].run(contenders[i].data);
            contenders[i].seconds[round] = measure_now() - start;
        }
    }
    for (int i = 0; i < count; i++) {
        memcpy(sorted, contenders[i].seconds, (size_t)rounds * sizeof *sorted);
        qsort(sorted, (size_t)rounds, sizeof *sorted, ascending);
        contenders[i].median = percentile(sorted, rounds, 0.5);
        contenders[i].low = percentile(sorted, rounds, 0.1);
        contenders[i].high = percentile(sorted, rounds, 0.9);
    }
    free(sorted);
}

double measure_ratio(const contender_t *a, const contender_t *b, int rounds) {
    double *ratios = malloc((size_t)rounds * sizeof *ratios);
    for (int i = 0; i < rounds; i++) ratios[i] = a->seconds[i] / b->seconds[i];
    qsort(ratios, (size_t)rounds, sizeof *ratios, ascending);
    double median = percentile(ratios, rounds, 0.5);
    free(ratios);
    return median;
}
