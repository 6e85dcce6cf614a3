/* SPDX-License-Identifier: MIT
 * Timing things in turn, and printing what came out. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdint.h>
#include <stdio.h>

/* One of the things that are compared: run(data) does it once. */
typedef struct contender {
    const char *name;
    void (*run)(void *data);
    void *data;
    double *seconds; /* filled by measure_in_turn: one time per round */
    double median, low, high; /* the middle, and the 10th and 90th percentile */
} contender_t;

/* Runs each contender once as a warm-up, then all of them in turn, round after round, and fills in their times. */
void measure_in_turn(contender_t *contenders, int count, int rounds);

/* The median over the rounds of a's time divided by b's in the same round. */
double measure_ratio(const contender_t *a, const contender_t *b, int rounds);

double measure_now(void);

/* A deterministic array of numbers in (-scale, scale). */
float *measure_random(int64_t count, float scale, uint64_t seed);

/* What the command line asks for. */
typedef struct settings {
    int64_t d_model, d_ff; /* 0: the standard shapes */
    const char *activation; /* NULL: the standard ones */
    int gated;
    int tokens[16], token_counts;
    int threads[16], thread_counts;
    int rounds;
    FILE *tsv; /* NULL: none */
} settings_t;

/* Each returns 0, or 1 when an output is wrong. */
int bench_layer(const settings_t *settings);
int bench_activation(const settings_t *settings);
int bench_training(const settings_t *settings);
int bench_moe(const settings_t *settings);
int bench_stats(const settings_t *settings);

#endif
