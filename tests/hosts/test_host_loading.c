/* SPDX-License-Identifier: MIT
 *
 * Hosts that load libffn.so while they run, as a plug-in's host or another language does, and hosts that end while a call is under way. Nothing of
 * libffn is in this program before a test loads it; each test has a process of its own, which tells by its result what went wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <ffn/ffn.h>

/* ------------------------------------------------------- the library, by name */

typedef struct library {
    void *handle;
    __typeof__(&ffn_layer_create) layer_create;
    __typeof__(&ffn_layer_forward) layer_forward;
    __typeof__(&ffn_layer_free) layer_free;
    __typeof__(&ffn_context_create) context_create;
    __typeof__(&ffn_context_free) context_free;
} library_t;

static bool load(library_t *library, int mode) {
    library->handle = dlopen(FFN_LIBRARY, mode);
    if (!library->handle) return false;
    *(void **)&library->layer_create = dlsym(library->handle, "ffn_layer_create");
    *(void **)&library->layer_forward = dlsym(library->handle, "ffn_layer_forward");
    *(void **)&library->layer_free = dlsym(library->handle, "ffn_layer_free");
    *(void **)&library->context_create = dlsym(library->handle, "ffn_context_create");
    *(void **)&library->context_free = dlsym(library->handle, "ffn_context_free");
    return library->layer_create && library->layer_forward && library->layer_free && library->context_create && library->context_free;
}

/* ------------------------------------------------------------------- a layer */

/* Weights of one row that all rows share: y = x + 3 * sum of HIDDEN times relu(2 * sum of x / WIDTH), for x of ones: 1 + 6 HIDDEN / 64. */
enum { WIDTH = 64, HIDDEN = 256, TOKENS = 200 };
static float up[WIDTH], down[HIDDEN];
static float x[TOKENS * WIDTH];

static ffn_layer_t *make_layer(const library_t *library, uint32_t engine) {
    ffn_tensor_t tensors[] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = up, .shape = {HIDDEN, WIDTH}, .stride = {0, 4}},
                              {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = down, .shape = {WIDTH, HIDDEN}, .stride = {0, 4}}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                   .engine = engine, .tensors = tensors, .tensor_count = 2};
    ffn_layer_t *layer = NULL;
    for (int i = 0; i < WIDTH; i++) up[i] = 2.0f / WIDTH;
    for (int i = 0; i < HIDDEN; i++) down[i] = 3.0f / 64;
    for (int i = 0; i < TOKENS * WIDTH; i++) x[i] = 1;
    library->layer_create(NULL, &options, &layer);
    return layer;
}

static bool run(const library_t *library, const ffn_layer_t *layer, ffn_context_t *context, int64_t tokens) {
    static _Thread_local float y[TOKENS * WIDTH];
    if (!layer || library->layer_forward(layer, context, tokens, x, 0, y, 0) != FFN_OK) return false;
    for (int64_t i = 0; i < tokens * WIDTH; i++)
        if (y[i] != 1 + 6.0f * HIDDEN / 64) return false;
    return true;
}

/* With each engine, with a context of three threads and without one. */
static bool use(const library_t *library) {
    bool right = true;
    for (uint32_t engine = FFN_ENGINE_BLAS; engine <= FFN_ENGINE_NATIVE; engine++) {
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = 3};
        ffn_context_t *context = NULL;
        ffn_layer_t *layer = make_layer(library, engine);
        right = right && library->context_create(&options, &context) == FFN_OK;
        right = right && run(library, layer, context, TOKENS) && run(library, layer, NULL, TOKENS) && run(library, layer, NULL, 1);
        library->layer_free(layer);
        library->context_free(context);
    }
    return right;
}

/* ------------------------------------------------------------------ processes */

static bool quick(void) {
    const char *text = getenv("FFN_TEST_QUICK");
    return text && *text;
}

/* The child's result; 100 if it had to be ended, 128 + n for signal n. */
static int wait_for(pid_t child) {
    for (int i = 0; i < 6000 * (quick() ? 10 : 1); i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 100;
}

/* The function ends its process itself where exit() matters. */
static int in_child(int (*function)(int), int argument) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(function(argument));
    return child < 0 ? 101 : wait_for(child);
}

/* -------------------------------------------------------------------- loading */

static int count_lines(const char *path) {
    FILE *stream = fopen(path, "r");
    int lines = 0;
    for (int character; stream && (character = getc(stream)) != EOF;) lines += character == '\n';
    if (stream) fclose(stream);
    return lines;
}

enum { SETTLED = 4 }; /* loads after which nothing more may be mapped */

static int load_and_unload(int mode, bool call) {
    int mappings = 0, cycles = quick() ? 6 : 200;
    for (int i = 0; i < cycles; i++) {
        library_t library;
        if (!load(&library, mode)) return 1;
        if (call && !use(&library)) return 2;
        if (dlclose(library.handle)) return 3;
        if (i == SETTLED) mappings = count_lines("/proc/self/maps");
    }
#if defined(__SANITIZE_ADDRESS__)
    (void)mappings;
    return 0; /* it keeps what is freed from use for a while: mappings grow */
#else
    return count_lines("/proc/self/maps") > mappings + 8 ? 4 : 0; /* threads' stacks come and go in the C library's cache */
#endif
}

static int without_calls(int mode) {
    return load_and_unload(mode, false);
}

static int with_calls(int mode) {
    return load_and_unload(mode, true);
}

static const int modes[] = {RTLD_NOW | RTLD_LOCAL, RTLD_LAZY | RTLD_LOCAL, RTLD_NOW | RTLD_GLOBAL, RTLD_LAZY | RTLD_GLOBAL};

static void two_hundred_loads_and_unloads_without_a_call_leave_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(in_child(without_calls, modes[i]), 0);
}

static void two_hundred_loads_and_unloads_with_calls_leave_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(in_child(with_calls, modes[i]), 0);
}

/* A thread whose scratch memory is libffn's ends when the host has closed the library: what frees it must be there still. */
typedef struct guest {
    library_t library;
    pthread_barrier_t called, closed;
    bool right;
} guest_t;

static void *call_and_outlive(void *argument) {
    guest_t *guest = argument;
    guest->right = use(&guest->library);
    pthread_barrier_wait(&guest->called);
    pthread_barrier_wait(&guest->closed);
    return NULL;
}

static int unload_before_threads_end(int mode) {
    for (int i = 0; i < (quick() ? 2 : 20); i++) {
        guest_t guest;
        pthread_t thread;
        pthread_barrier_init(&guest.called, NULL, 2);
        pthread_barrier_init(&guest.closed, NULL, 2);
        if (!load(&guest.library, mode) || pthread_create(&thread, NULL, call_and_outlive, &guest)) return 5;
        pthread_barrier_wait(&guest.called);
        if (!guest.right || dlclose(guest.library.handle)) return 6;
        pthread_barrier_wait(&guest.closed);
        pthread_join(thread, NULL);
    }
    return 0;
}

static void threads_that_called_may_end_after_the_library_is_closed(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(in_child(unload_before_threads_end, modes[i]), 0);
}

/* ------------------------------------------------ the floating-point environment */

#if defined(__SSE__)
static const unsigned settings[] = {0x1f80, 0x1f80 | 0x8040 /* FTZ, DAZ */, 0x1f80 | 0x2000, 0x1f80 | 0x4000, 0x1f80 | 0x6000, 0x1f80 | 0x8040 | 0x4000};

static int load_with_mxcsr(int setting) {
    library_t library;
    unsigned short control, control_after;
    unsigned before = (unsigned)setting;
    _mm_setcsr(before);
    if (_mm_getcsr() != before) return 90; /* an emulated CPU */
    __asm__ volatile("fnstcw %0" : "=m"(control));
    if (!load(&library, RTLD_NOW | RTLD_LOCAL)) return 7;
    unsigned loaded = _mm_getcsr() & ~0x3fu; /* without the flags, which any conversion of the host's libraries may set */
    bool right = use(&library);
    unsigned used = _mm_getcsr() & ~0x3fu;
    dlclose(library.handle);
    unsigned closed = _mm_getcsr() & ~0x3fu;
    __asm__ volatile("fnstcw %0" : "=m"(control_after));
    if (loaded != before) return 8;
    if (used != before) return 9;
    if (closed != before) return 10;
    if (control != control_after) return 11;
    return right ? 0 : 12;
}
#endif

static void loading_and_calling_leave_rounding_and_denormals_as_the_host_has_them(void **state) {
    (void)state;
#if defined(__SSE__)
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int result = in_child(load_with_mxcsr, (int)settings[i]);
        if (result == 90) skip();
        if (result) fail_msg("MXCSR 0x%04x: child's result %d", settings[i], result);
    }
#else
    skip();
#endif
}

/* --------------------------------------------------------------------- the end */

static library_t kept;
static ffn_layer_t *layer_in_use;
static atomic_int calls;

static void *call_for_ever(void *context) {
    for (;;) {
        if (!run(&kept, layer_in_use, context, TOKENS)) _exit(13);
        calls++;
    }
    return NULL;
}

/* how: the engine, and in the higher bits the microseconds to wait for. */
static int exit_while_others_call(int how) {
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 3};
    ffn_context_t *context;
    pthread_t threads[3];
    if (!load(&kept, RTLD_NOW | RTLD_LOCAL)) return 14;
    layer_in_use = make_layer(&kept, (uint32_t)how & 3);
    if (kept.context_create(&options, &context)) return 15;
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, call_for_ever, i ? NULL : context)) return 16;
    while (calls < 6) nanosleep(&(struct timespec){0, 100000}, NULL);
    nanosleep(&(struct timespec){0, 1000L * (how >> 2)}, NULL);
    exit(0);
}

static void a_host_may_exit_while_threads_are_inside_a_call(void **state) {
    (void)state;
    for (uint32_t engine = FFN_ENGINE_BLAS; engine <= FFN_ENGINE_NATIVE; engine++)
        for (int i = 0; i < (quick() ? 3 : 40); i++) {
            int result = in_child(exit_while_others_call, (int)engine | (137 * i) << 2);
            if (result) fail_msg("engine %u, after %d us: child's result %d", engine, 137 * i, result);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hundred_loads_and_unloads_without_a_call_leave_nothing),
        cmocka_unit_test(two_hundred_loads_and_unloads_with_calls_leave_nothing),
        cmocka_unit_test(threads_that_called_may_end_after_the_library_is_closed),
        cmocka_unit_test(loading_and_calling_leave_rounding_and_denormals_as_the_host_has_them),
        cmocka_unit_test(a_host_may_exit_while_threads_are_inside_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
