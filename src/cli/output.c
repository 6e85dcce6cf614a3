/* SPDX-License-Identifier: MIT
 * The output file and the signals that would leave half of it behind.
 *
 * The handler may run on any thread, in the middle of anything, and can do next to nothing. It wakes a thread that takes the lock of the writer,
 * which is held while numbers are written and never while they are computed, removes the file, and lets the signal end the program as it would
 * have. */
#include "cli/output.h"

#include "cli/text.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

static ffn_npy_writer_t *writer; /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = (int)(sizeof ending_signals / sizeof *ending_signals) };
static struct sigaction before[SIGNALS];
static sem_t woken;
static volatile sig_atomic_t caught_signal; /* 0: woken to end */
static pthread_t watcher;
static int watching;

static void on_signal(int number) {
    int kept = errno;
    caught_signal = number;
    sem_post(&woken);
    errno = kept;
}

static void *watch(void *unused) {
    (void)unused;
    while (sem_wait(&woken)) continue; /* EINTR */
    if (!caught_signal) return NULL;
    pthread_mutex_lock(&lock);
    ffn_npy_writer_discard(writer);
    writer = NULL;
    signal(caught_signal, SIG_DFL);
    raise(caught_signal);
    return NULL; /* not reached: the default action of these signals is to end the program */
}

static int watch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sem_init(&woken, 0, 0) || pthread_create(&watcher, NULL, watch, NULL)) return complain("cannot start a thread");
    watching = 1;
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(ending_signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(ending_signals[i], &action, NULL); /* nohup stays nohup */
    }
    signal(SIGPIPE, SIG_IGN); /* who reads what this program prints may go away */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes an error of the write */
    return EXIT_FINE;
}

/* Once there is no file to remove. A signal that comes before the handlers are gone ends the program all the same. */
static void leave_signals_alone(void) {
    if (!watching) return;
    for (int i = 0; i < SIGNALS; i++) sigaction(ending_signals[i], &before[i], NULL);
    signal(SIGPIPE, SIG_DFL);
    sem_post(&woken);
    pthread_join(watcher, NULL);
    sem_destroy(&woken);
    watching = 0;
}

int output_open(const char *path, uint32_t ndim, const int64_t *shape) {
    if (watch_signals()) return EXIT_FAILED;
    pthread_mutex_lock(&lock);
    ffn_status_t status = ffn_npy_writer_open(path, ndim, shape, &writer);
    pthread_mutex_unlock(&lock);
    if (!status) return EXIT_FINE;
    complain("%s", ffn_io_last_error());
    leave_signals_alone();
    return EXIT_FAILED;
}

int output_append(const float *numbers, int64_t count) {
    pthread_mutex_lock(&lock);
    ffn_status_t status = ffn_npy_writer_append(writer, numbers, count);
    pthread_mutex_unlock(&lock);
    if (!status) return EXIT_FINE;
    complain("%s", ffn_io_last_error());
    output_discard();
    return EXIT_FAILED;
}

int output_finish(void) {
    pthread_mutex_lock(&lock);
    ffn_status_t status = ffn_npy_writer_finish(writer);
    writer = NULL;
    pthread_mutex_unlock(&lock);
    leave_signals_alone();
    return status ? complain("%s", ffn_io_last_error()) : EXIT_FINE;
}

void output_discard(void) {
    pthread_mutex_lock(&lock);
    ffn_npy_writer_discard(writer);
    writer = NULL;
    pthread_mutex_unlock(&lock);
    leave_signals_alone();
}
