/* SPDX-License-Identifier: MIT
 * What the workers of ./dev bench --peers share: one process per engine, told over its standard input what to run (worker.c has the lines). */
#ifndef BENCH_PEERS_WORKER_H
#define BENCH_PEERS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* The layer, as the driver laid it into files. Weights are [out, in] and read-only; gate, up_bias and down_bias are NULL where the layer has none. */
typedef struct layer {
    int64_t d_model, d_ff, max_tokens;
    bool gated;
    const char *activation; /* relu, gelu or silu */
    const float *x, *up, *gate, *down, *up_bias, *down_bias;
    float *y; /* [max_tokens, d_model] */
} layer_t;

enum { FORM_LENGTH = 96 };

typedef struct engine {
    /* Once, at the start. variant is the worker's first argument. Returns NULL, or one sentence why this engine cannot be had. */
    const char *(*start)(const layer_t *layer, const char *variant);
    /* Before each cell: makes everything ready for run() with this many tokens and threads, and says in form how it will do it. Returns as start. */
    const char *(*prepare)(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]);
    /* y = layer(x) for the prepared number of tokens. */
    void (*run)(const layer_t *layer);
} engine_t;

/* Serves until standard input ends: the whole main() of a worker. */
int worker_main(int argc, char **argv, const engine_t *engine);

/* The fastest of `count` forms of one computation, each run a few times in turn: the index for which try(data, index) takes least. */
int worker_fastest(int count, void (*try)(const layer_t *layer, int form), const layer_t *layer);

/* Memory at a multiple of 64; ends the worker when there is none. */
float *worker_floats(int64_t count);

/* Ends the worker, with a sentence to standard error. */
_Noreturn void worker_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
