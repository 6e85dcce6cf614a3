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
    /* A mixture: up, gate and down are [experts, ...], and tokens' choices are given, [max_tokens, top_k]. Else 1, 0, NULL. */
    int64_t experts, top_k;
    const float *router; /* [experts, d_model]; what chooses so */
    const int32_t *ids;
    const float *weights;
    /* Training: the derivatives by y that the driver gives, and those that a run leaves, in the shapes of what they are by. Else NULL. */
    const float *d_y;
    float *d_x, *d_up, *d_gate, *d_down;
} layer_t;

enum { FORM_LENGTH = 96 };

typedef struct engine {
    /* Once, at the start. variant is the worker's first argument. Returns NULL, or one sentence why this engine cannot be had. */
    const char *(*start)(const layer_t *layer, const char *variant);
    /* Before each cell: makes everything ready for run() with this many tokens and threads, and says in form how it will do it. Returns as start. */
    const char *(*prepare)(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]);
    /* y = layer(x) for the prepared number of tokens; training: a whole step. */
    void (*run)(const layer_t *layer);
    /* What run() does from now on, by a name of the engine's; false if it has none such. NULL: there is nothing to choose. */
    bool (*choose)(const char *what);
} engine_t;

/* A step of training calls it between its forward and its backward half. */
void worker_forward_done(void);

/* Networks whose weights so many tokens read: of a mixture, the experts that they chose. */
int64_t worker_networks(const layer_t *layer, int64_t tokens);

/* Serves until standard input ends: the whole main() of a worker. */
int worker_main(int argc, char **argv, const engine_t *engine);

/* The fastest of `count` forms of one computation, each run a few times in turn: the index for which try(data, index) takes least. */
int worker_fastest(int count, void (*try)(const layer_t *layer, int form), const layer_t *layer);

/* Memory at a multiple of 64; ends the worker when there is none. */
float *worker_floats(int64_t count);

/* Ends the worker, with a sentence to standard error. */
_Noreturn void worker_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
