/* SPDX-License-Identifier: MIT
 *
 * Hosts in tight places: no more threads or memory to be had, no /proc, nothing that can be written, no standard streams, another locale. Each in a
 * process of its own, which tells by its result what went wrong.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cblas.h>

enum { SKIPPED = 90, NOBODY = 65534 }; /* beside host_in_child's results */

/* needs: what a child that skips did not have. */
static void assert_right_in_child(int (*function)(void *), const char *needs) {
    uint32_t engines[HOST_ENGINES];
    HOST_SKIP_WITHOUT_THREADS_IN_CHILDREN();
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        int result = host_in_child(function, &engines[i]);
        if (result == SKIPPED) {
            print_message("skipped: this needs %s\n", needs);
            skip();
        }
        if (result) fail_msg("engine %u: child's result %d", engines[i], result);
    }
}

/* A life in short: a layer, a context, calls with and without it, and calls that are refused. 0 if all is right. */
static int live(uint32_t engine, uint32_t threads) {
    ffn_layer_options_t options = host()->options;
    ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = threads};
    ffn_context_t *context;
    ffn_layer_t *layer;
    options.engine = engine;
    if (ffn_context_create(&context_options, &context)) return 1;
    if (ffn_layer_create(context, &options, &layer)) return 2;
    if (host_run(layer, context)) return 3;
    if (host_run(layer, NULL)) return 4;
    if (!host_fails_rightly(layer, context)) return 5;
    if (!strstr(ffn_build_info(), "libffn ")) return 6;
    ffn_layer_free(layer);
    ffn_context_free(context);
    return 0;
}

/* ------------------------------------------------------------------- threads */

static void *do_nothing(void *argument) {
    return argument;
}

/* Root is above the limit of processes: the child becomes nobody. OpenBLAS is left with the calling thread: in want of its own threads, which it
 * starts anew after a fork, it ends the process. */
static int without_threads(void *engine) {
    struct rlimit none = {0, 0};
    pthread_t thread;
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 8};
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_context_t *context;
    openblas_set_num_threads(1);
    if (getuid() == 0 && (setgid(NOBODY) || setuid(NOBODY))) return SKIPPED;
    if (setrlimit(RLIMIT_NPROC, &none)) return SKIPPED;
    if (!pthread_create(&thread, NULL, do_nothing, NULL)) return SKIPPED; /* a system without such a limit */
    if (ffn_context_create(&options, &context)) return 11;
    if (ffn_context_info(context, &info) || info.threads_requested != 8 || info.threads != 1) return 12;
    ffn_layer_t *layer = host_layer(*(uint32_t *)engine);
    if (host_run(layer, context)) return 13;
    ffn_layer_free(layer);
    ffn_context_free(context);
    return live(*(uint32_t *)engine, 4);
}

static void a_context_that_gets_no_thread_computes_on_the_callers(void **state) {
    (void)state;
    assert_right_in_child(without_threads, "a limit of processes that can be set, and holds");
}

/* -------------------------------------------------------------------- memory */

static void limit_memory(uint64_t more) {
    unsigned long pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (!stream || fscanf(stream, "%lu", &pages) != 1) _exit(SKIPPED);
    fclose(stream);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit)) _exit(SKIPPED);
}

/* A layer of 192 MB where 64 MB are left. Then a small one, in which all goes well. */
static int without_memory(void *engine) {
    enum { WIDTH = 4096, HIDDEN = 4096, LEFT = 64 << 20 };
    static float row[WIDTH]; /* of every matrix */
    ffn_tensor_t tensors[] = {{.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = row, .shape = {HIDDEN, WIDTH}, .stride = {0, 4}},
                              {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = row, .shape = {HIDDEN, WIDTH}, .stride = {0, 4}},
                              {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = row, .shape = {WIDTH, HIDDEN}, .stride = {0, 4}}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .engine = *(uint32_t *)engine,
                                   .tensors = tensors, .tensor_count = 3};
    ffn_layer_t *layer = (ffn_layer_t *)row;
    ffn_layer_t *small = host_layer(*(uint32_t *)engine);
    if (host_run(small, NULL)) return 14; /* OpenBLAS has its memory now */
    limit_memory(LEFT);
    for (int i = 0; i < 3; i++)
        if (ffn_layer_create(NULL, &options, &layer) != FFN_NO_MEMORY || layer || !strstr(ffn_last_error(), "cannot allocate")) return 15;
    if (host_run(small, NULL)) return 16;
    ffn_layer_free(small);
    return live(*(uint32_t *)engine, 2);
}

/* Scratch for more threads than there is memory for: refused before anything is computed, and the layer and a smaller context go on. */
static int without_scratch(void *engine) {
    enum { WIDTH = 64, HIDDEN = 262144, TOKENS = 2000, LEFT = 24 << 20 };
    static float row[HIDDEN], x[TOKENS * WIDTH], y[TOKENS * WIDTH];
    ffn_tensor_t tensors[] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = row, .shape = {HIDDEN, WIDTH}, .stride = {0, 4}},
                              {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = row, .shape = {WIDTH, HIDDEN}, .stride = {0, 4}}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .engine = *(uint32_t *)engine,
                                   .tensors = tensors, .tensor_count = 2};
    ffn_layer_t *layer, *small = host_layer(*(uint32_t *)engine);
    if (host_run(small, NULL)) return 17;
    if (ffn_layer_create(NULL, &options, &layer)) return 18;
    for (int i = 0; i < TOKENS * WIDTH; i++) y[i] = 99;
    limit_memory(LEFT);
    ffn_status_t status = ffn_layer_forward(layer, NULL, TOKENS, x, 0, y, 0);
    if (status == FFN_NO_MEMORY) {
        if (!strstr(ffn_last_error(), "cannot allocate")) return 19;
        for (int i = 0; i < TOKENS * WIDTH; i++)
            if (y[i] != 99) return 20;
    } else if (status == FFN_OK) {
        for (int i = 0; i < TOKENS * WIDTH; i++)
            if (y[i] != 0) return 21; /* it made do with less */
    } else {
        return 22;
    }
    if (host_run(small, NULL)) return 23;
    ffn_layer_free(layer);
    ffn_layer_free(small);
    return live(*(uint32_t *)engine, 2);
}

static void memory_too_low_for_packing_is_a_status_and_the_rest_goes_on(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* it maps terabytes */
#endif
    if (host_quick()) skip(); /* so does valgrind, in its way */
    assert_right_in_child(without_memory, "/proc and a limit of the address space");
}

static void memory_too_low_for_scratch_is_a_status_and_the_rest_goes_on(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip();
#endif
    if (host_quick()) skip();
    assert_right_in_child(without_scratch, "/proc and a limit of the address space");
}

/* --------------------------------------------------------------- file systems */

/* In an empty directory as root: no /proc, no /sys, no /tmp, no device. */
static int without_proc(void *engine) {
    char path[] = "/tmp/ffn-root-XXXXXX";
    if (!mkdtemp(path)) return 24;
    int old_root = open("/", O_RDONLY | O_DIRECTORY);
    if (chroot(path) || chdir("/")) {
        rmdir(path);
        return SKIPPED; /* only root may */
    }
    if (!access("/proc", F_OK)) return 25;
    int result = live(*(uint32_t *)engine, 0);
    if (!result) result = live(*(uint32_t *)engine, 3);
    if (!fchdir(old_root) && !chroot(".")) rmdir(path);
    return result;
}

static void a_host_without_proc_is_served(void **state) {
    (void)state;
    assert_right_in_child(without_proc, "the right to chroot");
}

/* The whole tree read-only, in a mount namespace of the child's own. */
static int with_nothing_to_write(void *engine) {
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return SKIPPED;
    if (mount("/", "/", NULL, MS_BIND | MS_REC, NULL) || chroot("/")) return SKIPPED;
    if (mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)) return SKIPPED;
    mount("none", "/tmp", "tmpfs", MS_RDONLY, NULL);
    if (open("/ffn-file", O_CREAT | O_WRONLY, 0600) >= 0 || errno != EROFS) return SKIPPED;
    return live(*(uint32_t *)engine, 3);
}

static void a_host_on_a_read_only_file_system_is_served(void **state) {
    (void)state;
    assert_right_in_child(with_nothing_to_write, "the right to mount");
}

/* ----------------------------------------------------------- standard streams */

/* What libffn opens for a moment must not become the host's standard error, and nothing may be written to what stands there instead. */
static int with_closed_streams(void *engine, int from) {
    for (int file = from; file <= STDERR_FILENO; file++) close(file);
    int result = live(*(uint32_t *)engine, 0);
    if (!result) result = live(*(uint32_t *)engine, 3);
    for (int file = from; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) >= 0) return 26; /* something was left open */
    char path[] = "/tmp/ffn-stream-XXXXXX";
    struct stat status;
    int file = mkstemp(path); /* takes the lowest number: the first of the closed ones */
    unlink(path);
    if (file != from || (from != STDERR_FILENO && dup2(file, STDERR_FILENO) < 0)) return 27;
    if (!result) result = live(*(uint32_t *)engine, 3);
    if (fstat(file, &status) || status.st_size) return 28;
    return result;
}

static int without_standard_error(void *engine) {
    return with_closed_streams(engine, STDERR_FILENO);
}

static int without_standard_streams(void *engine) {
    return with_closed_streams(engine, STDIN_FILENO);
}

static void a_host_without_standard_error_is_served_and_nothing_is_written(void **state) {
    (void)state;
    assert_right_in_child(without_standard_error, "nothing");
    assert_right_in_child(without_standard_streams, "nothing");
}

/* --------------------------------------------------------------------- locale */

static int with_decimal_commas(void *engine) {
    char formatted[20];
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) return SKIPPED;
    snprintf(formatted, sizeof formatted, "%.1f", 1.5);
    if (strcmp(formatted, "1,5")) return 29;
    int result = live(*(uint32_t *)engine, 2);
    if (result) return result;
    ffn_layer_options_t options = host()->options;
    ffn_layer_t *layer;
    options.norm[FFN_NORM_IN] = FFN_NORM_LAYER;
    options.norm_eps[FFN_NORM_IN] = -0.5f;
    if (ffn_layer_create(NULL, &options, &layer) != FFN_INVALID || !strstr(ffn_last_error(), "-0.5")) return 30;
    if (strcmp(setlocale(LC_ALL, NULL), "de_DE.UTF-8")) return 31;
    snprintf(formatted, sizeof formatted, "%.1f", 1.5);
    return strcmp(formatted, "1,5") ? 32 : 0;
}

static void a_host_in_german_is_served_and_stays_in_it(void **state) {
    (void)state;
    assert_right_in_child(with_decimal_commas, "a locale de_DE.UTF-8 in LOCPATH");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_that_gets_no_thread_computes_on_the_callers),
        cmocka_unit_test(memory_too_low_for_packing_is_a_status_and_the_rest_goes_on),
        cmocka_unit_test(memory_too_low_for_scratch_is_a_status_and_the_rest_goes_on),
        cmocka_unit_test(a_host_without_proc_is_served),
        cmocka_unit_test(a_host_on_a_read_only_file_system_is_served),
        cmocka_unit_test(a_host_without_standard_error_is_served_and_nothing_is_written),
        cmocka_unit_test(a_host_in_german_is_served_and_stays_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
