/* SPDX-License-Identifier: MIT
 * A loop of calls in C, for overhead.py. */
#include <ffn/ffn.h>

#include <time.h>

typedef ffn_status_t forward_fn(const ffn_layer_t *, ffn_context_t *, int64_t, const float *, int64_t, float *, int64_t);

/* Seconds that each of `count` calls takes, or -1 if one fails. */
double seconds_of_call(forward_fn *forward, const ffn_layer_t *layer, int64_t tokens, const float *x, float *y, int64_t count) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t i = 0; i < count; i++)
        if (forward(layer, NULL, tokens, x, 0, y, 0) != FFN_OK) return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / (double)count;
}
