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
static sem_t caught;
static volatile sig_atomic_t caught_signal;
static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number) {
    int kept = errno;
    caught_signal = number;
    sem_post(&caught);
    errno = kept;
}

static void *watch(void *unused) {
    (void)unused;
    while (sem_wait(&caught)) continue; /* EINTR */
    pthread_mutex_lock(&lock);
    ffn_npy_writer_discard(writer);
    writer = NULL;
    signal(caught_signal, SIG_DFL);
    raise(caught_signal);
    return NULL; /* not reached: the default action of these signals is to end the program */
}

static void set_handler(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    if (!sigaction(number, NULL, &before) && before.sa_handler != SIG_IGN) sigaction(number, &action, NULL); /* nohup stays nohup */
}

static int watch_signals(void) {
    static int watching;
    pthread_t thread;
    if (watching) return EXIT_FINE;
    if (sem_init(&caught, 0, 0) || pthread_create(&thread, NULL, watch, NULL)) return complain("cannot start a thread");
    pthread_detach(thread);
    watching = 1;
    for (int i = 0; i < (int)(sizeof ending_signals / sizeof *ending_signals); i++) set_handler(ending_signals[i], on_signal);
    signal(SIGPIPE, SIG_IGN); /* who reads the terminal's output may go away */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes an error of the write */
    return EXIT_FINE;
}

int output_open(const char *path, uint32_t ndim, const int64_t *shape) {
    if (watch_signals()) return EXIT_FAILED;
    pthread_mutex_lock(&lock);
    ffn_status_t status = ffn_npy_writer_open(path, ndim, shape, &writer);
    pthread_mutex_unlock(&lock);
    return status ? complain("%s", ffn_io_last_error()) : EXIT_FINE;
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
    return status ? complain("%s", ffn_io_last_error()) : EXIT_FINE;
}

void output_discard(void) {
    pthread_mutex_lock(&lock);
    ffn_npy_writer_discard(writer);
    writer = NULL;
    pthread_mutex_unlock(&lock);
}
