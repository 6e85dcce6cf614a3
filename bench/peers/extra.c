/* SPDX-License-Identifier: MIT
 * Two measurements of libffn alone, as tab-separated lines: see usage. */
#include "ffn_layer.h"
#include "measure.h"

#include <cblas.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_HOSTS = 8 };

static int usage(void) {
    fprintf(stderr, "usage: peers_extra hosts ENGINE D_MODEL D_FF TOKENS SECONDS   runs a second of one layer: by 8 and by 2 host threads with a\n"
                    "                                                              one-thread context each, and by a two-thread context\n"
                    "       peers_extra create ENGINE D_MODEL D_FF ROUNDS          seconds of ffn_layer_create (SwiGLU) and of a memcpy of the\n"
                    "                                                              same bytes into equally fresh memory, 1 and 2 threads\n");
    return 2;
}

static layer_t random_layer(int64_t d_model, int64_t d_ff, bool gated, int64_t tokens) {
    layer_t layer = {.d_model = d_model, .d_ff = d_ff, .gated = gated, .activation = gated ? "silu" : "gelu", .max_tokens = tokens};
    int64_t matrix = d_model * d_ff;
    layer.x = measure_random(tokens * d_model, 1.7f, 1);
    layer.up = measure_random(matrix, 0.05f, 2);
    layer.down = measure_random(matrix, 0.05f, 3);
    if (gated) layer.gate = measure_random(matrix, 0.05f, 4);
    return layer;
}

/* ---------------------------------------------------------------- host threads */

typedef struct host {
    const layer_t *layer;
    const ffn_layer_t *made;
    ffn_context_t *context;
    float *y;
    long runs;
    atomic_int *stop;
} host_t;

static void *run_host(void *data) {
    host_t *host = data;
    while (!atomic_load(host->stop)) {
        if (ffn_layer_forward(host->made, host->context, host->layer->max_tokens, host->layer->x, 0, host->y, 0)) worker_fail("%s", ffn_last_error());
        host->runs++;
    }
    return NULL;
}

/* Runs a second of so many host threads with contexts of so many threads. */
static double throughput(const layer_t *layer, const ffn_layer_t *made, int hosts, int threads, double seconds) {
    host_t host[MAX_HOSTS];
    pthread_t thread[MAX_HOSTS];
    atomic_int stop = 0;
    long runs = 0;
    openblas_set_num_threads(threads);
    for (int i = 0; i < hosts; i++) {
        host[i] = (host_t){.layer = layer, .made = made, .context = ffn_context_of(threads), .stop = &stop};
        host[i].y = measure_random(layer->max_tokens * layer->d_model, 1, 5);
        if (ffn_context_reserve(host[i].context, made, layer->max_tokens)) worker_fail("%s", ffn_last_error());
    }
    double start = measure_now();
    for (int i = 0; i < hosts; i++)
        if (pthread_create(&thread[i], NULL, run_host, &host[i])) worker_fail("cannot start a thread");
    struct timespec wait = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wait, NULL);
    atomic_store(&stop, 1);
    for (int i = 0; i < hosts; i++) pthread_join(thread[i], NULL);
    double elapsed = measure_now() - start;
    for (int i = 0; i < hosts; i++) {
        runs += host[i].runs;
        ffn_context_free(host[i].context);
        free(host[i].y);
    }
    return (double)runs / elapsed;
}

static int bench_hosts(const char *engine, int64_t d_model, int64_t d_ff, int64_t tokens, double seconds) {
    layer_t layer = random_layer(d_model, d_ff, false, tokens);
    ffn_layer_t *made = ffn_layer_of(&layer, ffn_engine_of(engine), NULL);
    if (!made) worker_fail("%s", ffn_last_error());
    printf("hosts8\thosts2\tcontext2\n");
    for (int round = 0; round < 5; round++) {
        double eight = throughput(&layer, made, 8, 1, seconds), two = throughput(&layer, made, 2, 1, seconds);
        printf("%.6g\t%.6g\t%.6g\n", eight, two, throughput(&layer, made, 1, 2, seconds));
        fflush(stdout);
    }
    ffn_layer_free(made);
    return 0;
}

/* ---------------------------------------------------------------- create */

typedef struct copy {
    char *to;
    const char *from;
    size_t size;
} copy_t;

static void *run_copy(void *data) {
    copy_t *copy = data;
    memcpy(copy->to, copy->from, copy->size);
    return NULL;
}

/* Seconds to copy the matrices, each halved among two threads or not, into memory that has never been touched. */
static double copy_seconds(const layer_t *layer, int threads) {
    size_t matrix = (size_t)(layer->d_model * layer->d_ff) * sizeof(float), share = matrix / (size_t)threads;
    const float *matrices[] = {layer->gate, layer->up, layer->down};
    double start = measure_now();
    char *to = aligned_alloc(64, 3 * matrix);
    if (!to) worker_fail("out of memory");
    for (int m = 0; m < 3; m++) {
        copy_t copies[2];
        pthread_t helper;
        for (int i = 0; i < threads; i++)
            copies[i] = (copy_t){to + (size_t)m * matrix + (size_t)i * share, (const char *)matrices[m] + (size_t)i * share, share};
        if (threads > 1 && pthread_create(&helper, NULL, run_copy, &copies[1])) worker_fail("cannot start a thread");
        run_copy(&copies[0]);
        if (threads > 1) pthread_join(helper, NULL);
    }
    double seconds = measure_now() - start;
    free(to);
    return seconds;
}

static double create_seconds(const layer_t *layer, uint32_t engine, ffn_context_t *context) {
    double start = measure_now();
    ffn_layer_t *made = ffn_layer_of(layer, engine, context);
    double seconds = measure_now() - start;
    if (!made) worker_fail("%s", ffn_last_error());
    ffn_layer_free(made);
    return seconds;
}

static int bench_create(const char *engine, int64_t d_model, int64_t d_ff, int rounds) {
    layer_t layer = random_layer(d_model, d_ff, true, 1);
    ffn_context_t *one = ffn_context_of(1), *two = ffn_context_of(2);
    uint32_t number = ffn_engine_of(engine);
    create_seconds(&layer, number, one); /* a warm-up, and the sentence if the engine is refused */
    printf("create1_s\tcreate2_s\tmemcpy1_s\tmemcpy2_s\n");
    for (int round = 0; round < rounds; round++) {
        double alone = create_seconds(&layer, number, one), both = create_seconds(&layer, number, two), copied = copy_seconds(&layer, 1);
        printf("%.6g\t%.6g\t%.6g\t%.6g\n", alone, both, copied, copy_seconds(&layer, 2));
        fflush(stdout);
    }
    ffn_context_free(one);
    ffn_context_free(two);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 7 && !strcmp(argv[1], "hosts")) return bench_hosts(argv[2], atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), atof(argv[6]));
    if (argc == 6 && !strcmp(argv[1], "create")) return bench_create(argv[2], atoll(argv[3]), atoll(argv[4]), atoi(argv[5]));
    return usage();
}
