/* SPDX-License-Identifier: MIT
 * The worker's side of the conversation.
 *
 *     worker VARIANT FOLDER D_MODEL D_FF ACTIVATION GATED MAX_TOKENS [EXPERTS TOP_K]
 *
 * FOLDER has x, up, gate, down, up_bias and down_bias as raw float32 (a missing file: the layer has none), for training d_y too; for a mixture router,
 * ids (int32) and weights. The worker says "ready", then answers each line of standard input with one of its own; "unavailable SENTENCE" is an answer to all:
 *
 *     prepare TOKENS THREADS FILE   runs once, writes y into FILE          -> ok FORM      (training: y, d_x, d_up, d_gate, d_down)
 *     choose WHAT                   what runs do from now on               -> ok
 *     run COUNT                     runs COUNT times after a warm-up       -> times SECONDS...  (training: SECONDS/SECONDS OF THE FORWARD HALF...)
 *
 * Each library's threads wait in their own way between runs: spinning for a while, then asleep. They are left to it, but a worker answers only
 * when its process has stopped taking CPU time, so that no engine's idle threads are in another's way. */
#include "worker.h"

#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void worker_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

float *worker_floats(int64_t count) {
    float *numbers = aligned_alloc(64, ((size_t)count * sizeof *numbers + 63) / 64 * 64);
    if (!numbers) worker_fail("out of memory");
    return numbers;
}

/* The file's numbers, or NULL if there is no such file. */
static const float *mapped(const char *folder, const char *name, int64_t count) {
    char path[4096];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY);
    if (file < 0 && errno == ENOENT) return NULL;
    size_t size = (size_t)count * sizeof(float);
    if (file < 0 || fstat(file, &status) || (size_t)status.st_size != size) worker_fail("%s does not have %zu bytes", path, size);
    const float *numbers = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (numbers == MAP_FAILED) worker_fail("%s: %s", path, strerror(errno));
    close(file);
    return numbers;
}

static void place_training(layer_t *layer, const char *folder) {
    int64_t matrix = layer->d_model * layer->d_ff;
    layer->d_y = mapped(folder, "d_y", layer->max_tokens * layer->d_model);
    if (!layer->d_y) return;
    layer->d_x = worker_floats(layer->max_tokens * layer->d_model);
    layer->d_up = worker_floats(matrix);
    layer->d_gate = layer->gated ? worker_floats(matrix) : NULL;
    layer->d_down = worker_floats(matrix);
}

static void place_choices(layer_t *layer, const char *folder) {
    _Static_assert(sizeof(float) == sizeof(int32_t), "files of both are alike");
    layer->router = mapped(folder, "router", layer->experts * layer->d_model);
    layer->ids = (const void *)mapped(folder, "ids", layer->max_tokens * layer->top_k);
    layer->weights = mapped(folder, "weights", layer->max_tokens * layer->top_k);
    if (!layer->router || !layer->ids || !layer->weights) worker_fail("%s lacks a file of the mixture's", folder);
}

int64_t worker_networks(const layer_t *layer, int64_t tokens) {
    if (!layer->top_k) return 1;
    int64_t networks = 0;
    for (int64_t expert = 0; expert < layer->experts; expert++) {
        int64_t slot = 0;
        while (slot < tokens * layer->top_k && layer->ids[slot] != expert) slot++;
        networks += slot < tokens * layer->top_k;
    }
    return networks;
}

static layer_t read_layer(int argc, char **argv) {
    const char *folder = argv[2];
    layer_t layer = {.d_model = atoll(argv[3]), .d_ff = atoll(argv[4]), .activation = argv[5], .gated = atoi(argv[6]) != 0,
                     .max_tokens = atoll(argv[7]), .experts = argc > 8 ? atoll(argv[8]) : 1, .top_k = argc > 8 ? atoll(argv[9]) : 0};
    int64_t matrix = layer.experts * layer.d_model * layer.d_ff;
    layer.x = mapped(folder, "x", layer.max_tokens * layer.d_model);
    layer.up = mapped(folder, "up", matrix);
    layer.gate = mapped(folder, "gate", matrix);
    layer.down = mapped(folder, "down", matrix);
    layer.up_bias = mapped(folder, "up_bias", layer.d_ff);
    layer.down_bias = mapped(folder, "down_bias", layer.d_model);
    layer.y = worker_floats(layer.max_tokens * layer.d_model);
    place_training(&layer, folder);
    if (layer.top_k) place_choices(&layer, folder);
    if (!layer.x || !layer.up || !layer.down || !layer.gate == layer.gated) worker_fail("%s lacks a file", folder);
    return layer;
}

static double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* Waits, for half a second at most, until no thread of this process runs. The time of one that runs on another processor is counted at the system's
 * ticks, 10 milliseconds apart at the most: within a pause that is longer, none goes unseen. */
static void wait_until_idle(void) {
    const struct timespec pause = {.tv_nsec = 12000000};
    double give_up = measure_now() + 0.5, before, used;
    do {
        before = cpu_seconds();
        nanosleep(&pause, NULL);
        used = cpu_seconds() - before;
    } while (used > 1e-4 && measure_now() < give_up);
}

int worker_fastest(int count, void (*try)(const layer_t *layer, int form), const layer_t *layer) {
    enum { ROUNDS = 5 };
    double best = 1e300, begin = measure_now();
    int fastest = 0;
    for (int round = 0; count > 1 && round <= ROUNDS && (round < 3 || measure_now() - begin < 1); round++) {
        for (int form = 0; form < count; form++) {
            double start = measure_now();
            try(layer, form);
            double seconds = measure_now() - start;
            if (round && seconds < best) best = seconds, fastest = form; /* round 0 warms up */
        }
    }
    return fastest;
}

typedef struct output {
    float *values;
    int64_t count;
} output_t;

static void list_outputs(const layer_t *layer, int64_t tokens, output_t outputs[5]) {
    int64_t rows = tokens * layer->d_model, matrix = layer->d_model * layer->d_ff;
    const output_t all[5] = {{layer->y, rows}, {layer->d_x, rows}, {layer->d_up, matrix}, {layer->d_gate, matrix}, {layer->d_down, matrix}};
    memcpy(outputs, all, sizeof all);
}

/* NaN: what is not written cannot pass. */
static void spoil_outputs(const layer_t *layer, int64_t tokens) {
    output_t outputs[5];
    list_outputs(layer, tokens, outputs);
    for (int i = 0; i < 5; i++)
        if (outputs[i].values) memset(outputs[i].values, 0xff, (size_t)outputs[i].count * sizeof(float));
}

static void write_outputs(const layer_t *layer, int64_t tokens, const char *path) {
    output_t outputs[5];
    FILE *file = fopen(path, "wb");
    if (!file) worker_fail("%s: %s", path, strerror(errno));
    list_outputs(layer, tokens, outputs);
    for (int i = 0; i < 5; i++) {
        size_t count = outputs[i].values ? (size_t)outputs[i].count : 0;
        if (fwrite(outputs[i].values ? outputs[i].values : layer->y, sizeof(float), count, file) != count) worker_fail("%s: %s", path, strerror(errno));
    }
    if (fclose(file)) worker_fail("%s: %s", path, strerror(errno));
}

static double last_seconds; /* of the prepared cell's last run; 0 before the first */

static void answer_prepare(const engine_t *engine, const layer_t *layer, const char *line) {
    long long tokens;
    int threads;
    char path[4096], form[FORM_LENGTH] = "";
    if (sscanf(line, "prepare %lld %d %4095s", &tokens, &threads, path) != 3) worker_fail("not understood: %s", line);
    const char *sentence = engine->prepare(layer, tokens, threads, form);
    if (!sentence) {
        spoil_outputs(layer, tokens);
        engine->run(layer);
        write_outputs(layer, tokens, path);
    }
    last_seconds = 0;
    wait_until_idle();
    printf("%s %s\n", sentence ? "unavailable" : "ok", sentence ? sentence : form);
}

static double forward_end;

void worker_forward_done(void) {
    forward_end = measure_now();
}

static void answer_choose(const engine_t *engine, const char *what) {
    if (engine->choose && engine->choose(what))
        printf("ok\n");
    else
        printf("unavailable there is no %s\n", what);
}

/* Long runs are not warmed up: waking the threads and filling the caches is a small share of them, or the weights come from DRAM anyway. */
static void answer_run(const engine_t *engine, const layer_t *layer, int count) {
    enum { WARM_UPS = 3 };
    const double long_run = 0.05;
    double start = measure_now(), *seconds = malloc((size_t)count * sizeof *seconds), *forward = malloc((size_t)count * sizeof *forward);
    if (!seconds || !forward) worker_fail("out of memory");
    for (int i = 0; last_seconds < long_run && i < WARM_UPS && (i == 0 || measure_now() - start < 2e-3); i++) engine->run(layer);
    for (int i = 0; i < count; i++) {
        start = measure_now();
        engine->run(layer);
        seconds[i] = last_seconds = measure_now() - start;
        forward[i] = forward_end - start;
    }
    wait_until_idle();
    printf("times");
    for (int i = 0; i < count; i++) {
        printf(" %.9g", seconds[i]);
        if (layer->d_y) printf("/%.9g", forward[i]);
    }
    printf("\n");
    free(seconds), free(forward);
}

int worker_main(int argc, char **argv, const engine_t *engine) {
    char line[5000];
    int count;
    if (argc != 8 && argc != 10) worker_fail("usage: %s VARIANT FOLDER D_MODEL D_FF ACTIVATION GATED MAX_TOKENS [EXPERTS TOP_K]", argv[0]);
    layer_t layer = read_layer(argc, argv);
    const char *sentence = engine->start(&layer, argv[1]);
    if (sentence) {
        printf("unavailable %s\n", sentence);
        return 0;
    }
    wait_until_idle();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "prepare ", 8))
            answer_prepare(engine, &layer, line);
        else if (!strncmp(line, "choose ", 7))
            answer_choose(engine, strtok(line + 7, "\n"));
        else if (sscanf(line, "run %d", &count) == 1 && count > 0)
            answer_run(engine, &layer, count);
        else
            worker_fail("not understood: %s", line);
        fflush(stdout);
    }
    return 0;
}
