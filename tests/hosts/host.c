/* SPDX-License-Identifier: MIT */
#include "host.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static host_t made;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Integers from -most to most that follow no pattern of rows or columns. */
static void fill(float *numbers, int count, int most, uint32_t seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)((int)((seed >> 16) % (uint32_t)(2 * most + 1)) - most);
    }
}

static void compute_expected(void) {
    for (int t = 0; t < HOST_TOKENS; t++) {
        const float *x = made.x + t * HOST_WIDTH;
        long hidden[HOST_HIDDEN];
        for (int j = 0; j < HOST_HIDDEN; j++) {
            long gate = (long)made.gate_bias[j], up = (long)made.up_bias[j];
            for (int i = 0; i < HOST_WIDTH; i++) {
                gate += (long)made.gate[j * HOST_WIDTH + i] * (long)x[i];
                up += (long)made.up[j * HOST_WIDTH + i] * (long)x[i];
            }
            hidden[j] = (gate > 0 ? gate : 0) * up;
        }
        for (int o = 0; o < HOST_WIDTH; o++) {
            long y = (long)made.down_bias[o] + (long)x[o];
            for (int j = 0; j < HOST_HIDDEN; j++) y += (long)made.down[o * HOST_HIDDEN + j] * hidden[j];
            made.expected[t * HOST_WIDTH + o] = (float)y;
        }
    }
}

static void make(void) {
    fill(made.gate, HOST_HIDDEN * HOST_WIDTH, 1, 1);
    fill(made.up, HOST_HIDDEN * HOST_WIDTH, 1, 2);
    fill(made.down, HOST_WIDTH * HOST_HIDDEN, 1, 3);
    fill(made.gate_bias, HOST_HIDDEN, 3, 4);
    fill(made.up_bias, HOST_HIDDEN, 3, 5);
    fill(made.down_bias, HOST_WIDTH, 3, 6);
    fill(made.x, HOST_NUMBERS, 2, 7);
    compute_expected();
    const ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = made.gate, .shape = {HOST_HIDDEN, HOST_WIDTH}},
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = made.up, .shape = {HOST_HIDDEN, HOST_WIDTH}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = made.down, .shape = {HOST_WIDTH, HOST_HIDDEN}},
        {.role = FFN_ROLE_GATE_BIAS, .ndim = 1, .data = made.gate_bias, .shape = {HOST_HIDDEN}},
        {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = made.up_bias, .shape = {HOST_HIDDEN}},
        {.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = made.down_bias, .shape = {HOST_WIDTH}},
    };
    memcpy(made.tensors, tensors, sizeof tensors);
    made.options = (ffn_layer_options_t){.struct_size = sizeof made.options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                         .tensors = made.tensors, .tensor_count = 6};
}

const host_t *host(void) {
    pthread_once(&once, make);
    return &made;
}

int host_engines(uint32_t engines[HOST_ENGINES]) {
    static const uint32_t all[HOST_ENGINES] = {FFN_ENGINE_BLAS, FFN_ENGINE_NATIVE};
    int count = 0;
    for (int i = 0; i < HOST_ENGINES; i++) {
        ffn_layer_options_t options = host()->options;
        ffn_layer_t *layer;
        options.engine = all[i];
        if (ffn_layer_create(NULL, &options, &layer) == FFN_UNSUPPORTED) continue;
        ffn_layer_free(layer);
        engines[count++] = all[i];
    }
    return count;
}

ffn_layer_t *host_layer(uint32_t engine) {
    ffn_layer_options_t options = host()->options;
    ffn_layer_t *layer;
    options.engine = engine;
    ffn_layer_create(NULL, &options, &layer); /* NULL on failure */
    return layer;
}

ffn_status_t host_run_into(const ffn_layer_t *layer, ffn_context_t *context, float y[HOST_NUMBERS]) {
    memset(y, 0xff, HOST_NUMBERS * sizeof *y);
    ffn_status_t status = ffn_layer_forward(layer, context, HOST_TOKENS, host()->x, 0, y, 0);
    if (status) return status;
    return memcmp(y, host()->expected, HOST_NUMBERS * sizeof *y) ? HOST_WRONG : FFN_OK;
}

ffn_status_t host_run(const ffn_layer_t *layer, ffn_context_t *context) {
    float *y = malloc(HOST_NUMBERS * sizeof *y);
    ffn_status_t status = y ? host_run_into(layer, context, y) : FFN_NO_MEMORY;
    free(y);
    return status;
}

void host_assert_ok(ffn_status_t status, const char *what) {
    if (status == HOST_WRONG) fail_msg("%s: a number is wrong", what);
    if (status) fail_msg("%s: %s (%s)", what, ffn_status_name(status), ffn_last_error());
}

bool host_fails_rightly(const ffn_layer_t *layer, ffn_context_t *context) {
    ffn_layer_options_t options = host()->options;
    ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = 1, .x = host()->x, .flags = 1};
    ffn_layer_t *refused;
    ffn_context_t *no_context;
    ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 99999};
    float y;
    int64_t width;
    options.activation = 0;
    return ffn_layer_create(context, &options, &refused) == FFN_INVALID && ffn_layer_forward(layer, context, -1, host()->x, 0, &y, 0) == FFN_INVALID &&
           ffn_layer_forward(layer, context, 1, NULL, 0, &y, 0) == FFN_INVALID && ffn_layer_run(layer, context, &run) == FFN_INVALID &&
           ffn_context_create(&context_options, &no_context) == FFN_INVALID && ffn_context_reserve(context, NULL, 1) == FFN_INVALID &&
           ffn_layer_read(layer, NULL, 1) == FFN_INVALID && ffn_gated_d_ff(0, 1, &width) == FFN_INVALID && ffn_last_error()[0];
}

int host_in_child(int (*function)(void *), void *argument) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(function(argument));
    if (child < 0) return 101;
    for (int i = 0; i < 6000 * (host_quick() ? 10 : 1); i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 100;
}

bool host_quick(void) {
    const char *quick = getenv("FFN_TEST_QUICK");
    return quick && *quick;
}
