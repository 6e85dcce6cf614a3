/* SPDX-License-Identifier: MIT
 * cblas_sgemm for blocks of rows, cblas_sgemv for few. BLAS's threads are its own and the host's to set. */
#if defined(__linux__)
#define _GNU_SOURCE /* PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP */
#endif
#include "core/gemm.h"

#include "base/fork.h"

#include <cblas.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What openblas_get_parallel() returns of the flavours that need care. */
enum { SERIAL = 0, OPENMP = 2 };

/* Up to GEMV_ROWS rows go row by row through sgemv where the matrix stays in cache from one row to the next: sgemm packs the whole matrix for
 * them. Larger matrices are read from memory once per row, which pays for a single row only. */
enum { GEMV_ROWS = 6, GEMV_BYTES = 8 << 20 };

/* Products up to this size run on the calling thread in OpenBLAS (SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD). */
enum { UNTHREADED_PRODUCT = 262144 };

static int goes_by_row(int64_t rows, int64_t n, int64_t k) {
    return rows == 1 || (rows <= GEMV_ROWS && n * k * 4 <= GEMV_BYTES);
}

/* openblas_get_config writes to a static buffer: asked once. */
static pthread_once_t config_once = PTHREAD_ONCE_INIT;
static char config[256];

static void ask_config(void) {
    snprintf(config, sizeof config, "%s", openblas_get_config());
}

const char *ffni_gemm_library(void) {
    pthread_once(&config_once, ask_config);
    return config;
}

/* The most threads that this OpenBLAS was built for stands in its configuration string. */
static int64_t most_threads(void) {
    enum { USUAL_MOST = 160 };
    const char *text = strstr(ffni_gemm_library(), "MAX_THREADS=");
    long threads = text ? strtol(text + strlen("MAX_THREADS="), NULL, 10) : USUAL_MOST;
    return threads < 1 || threads > 65536 ? USUAL_MOST : threads;
}

/* OpenMP's run-time library, where OpenBLAS brings it along. */
extern int omp_get_max_threads(void) __attribute__((weak));
extern int omp_in_parallel(void) __attribute__((weak));
extern void omp_set_num_threads(int threads) __attribute__((weak));

int ffni_gemm_threads(void) {
    return openblas_get_parallel() == OPENMP && omp_get_max_threads ? omp_get_max_threads() : 0;
}

/* With OpenMP the number of threads is asked for anew in each call: openblas_get_num_threads() tells that of the last one. */
static int is_threaded(void) {
    int parallel = openblas_get_parallel();
    if (parallel == OPENMP) return ffni_gemm_threads() != 1;
    return parallel != SERIAL && openblas_get_num_threads() > 1;
}

static int is_small(int64_t rows, int64_t n, int64_t k) {
    return !goes_by_row(rows, n, k) && (double)rows * (double)n * (double)k <= UNTHREADED_PRODUCT;
}

/* OpenBLAS's locks, and what its threads are doing, must not be copied by fork() while another thread is inside: the child would wait for ever.
 * So fork() waits for the products under way, and new ones wait for it. The handlers are registered after OpenBLAS's own, which end its threads,
 * and so run before them. */
#if defined(PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP)
#define OPEN_GATE PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP /* products must not keep fork() waiting one after the other */
#else
#define OPEN_GATE PTHREAD_RWLOCK_INITIALIZER
#endif
static pthread_rwlock_t gate = OPEN_GATE;

/* Room for so many products at once; the rest wait. OpenBLAS has work memory for twice the threads that it was built for, takes some for each of
 * its own threads, and the host may call it too: what comes too much ends the process, after a message. The serial flavour takes the memory
 * without a lock (unless built with USE_LOCKING, which Debian's is not): two callers at once may be given the same. */
static sem_t room;

/* Room for one product of several threads where these are OpenMP's. OpenBLAS has one place for them, unless built with more, for which its callers
 * wait with all their strength: on two cores 32 of them took 16 s for what they do in 0.3 s one by one. */
static sem_t room_for_team;

static sem_t *room_for(int64_t rows, int64_t n, int64_t k) {
    int team = openblas_get_parallel() == OPENMP && is_threaded() && !is_small(rows, n, k) && !(omp_in_parallel && omp_in_parallel());
    return team ? &room_for_team : &room;
}

static unsigned most_callers(void) {
    return openblas_get_parallel() == SERIAL ? 1 : (unsigned)most_threads();
}

static void make_room(void) {
    sem_init(&room, 0, most_callers());
    sem_init(&room_for_team, 0, 1);
}

static void before_fork(void) {
    pthread_rwlock_wrlock(&gate);
}

static void after_fork_in_parent(void) {
    pthread_rwlock_unlock(&gate);
}

/* Here the gate's owner has another thread id, and those that took room are gone. */
static void after_fork_in_child(void) {
    static const pthread_rwlock_t open = OPEN_GATE;
    memcpy(&gate, &open, sizeof open);
    make_room();
}

static void prepare(void) {
    make_room();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* OpenBLAS's threads end with the process, in a destructor of its own. With a product under way on another thread it may wait for one of them for
 * ever (0.3.21: the word to end is lost under new work). This destructor runs before those of the libraries that libffn needs: it waits for the
 * products under way, and lets no more begin but those of the thread that exits, from a destructor of the host's. */
static _Thread_local int exits;

__attribute__((destructor)) static void close_gate(void) {
    exits = !pthread_rwlock_wrlock(&gate);
}

static void multiply(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b, float *c) {
    blasint width = (blasint)n, depth = (blasint)k;
    if (!goes_by_row(rows, n, k)) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, width, depth, 1.0f, a, (blasint)a_stride, b, width, 0.0f, c,
                    width);
        return;
    }
    /* sgemv scales y by beta, and versions differ on whether 0 * NaN is 0: give it zeros. */
    memset(c, 0, (size_t)(rows * n) * sizeof *c);
    for (int64_t row = 0; row < rows; row++)
        cblas_sgemv(CblasRowMajor, CblasTrans, depth, width, 1.0f, b, width, a + row * a_stride, 1, 0.0f, c + row * n, 1);
}

static sem_t *enter(int64_t rows, int64_t n, int64_t k) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    sem_t *place = room_for(rows, n, k);
    while (sem_wait(place)) continue; /* interrupted by a signal */
    if (!exits) pthread_rwlock_rdlock(&gate);
    return place;
}

static void leave(sem_t *place) {
    if (!exits) pthread_rwlock_unlock(&gate);
    sem_post(place);
}

void ffni_gemm(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b, float *c) {
    sem_t *place = enter(rows, n, k);
    multiply(rows, n, k, a, a_stride, b, c);
    leave(place);
}

static CBLAS_TRANSPOSE transposition(operand_t operand) {
    return operand.transposed ? CblasTrans : CblasNoTrans;
}

void ffni_gemm_general(int64_t rows, int64_t n, int64_t k, operand_t a, operand_t b, int accumulate, float *c, int64_t c_stride) {
    sem_t *place = enter(rows, n, k);
    cblas_sgemm(CblasRowMajor, transposition(a), transposition(b), (blasint)rows, (blasint)n, (blasint)k, 1.0f, a.data, (blasint)a.stride, b.data,
                (blasint)b.stride, accumulate ? 1.0f : 0.0f, c, (blasint)c_stride);
    leave(place);
}

/* OpenBLAS's threaded drivers have tables on the stack of the caller, for as many threads as the library was built for. sgemv: a queue of entries
 * of 168 bytes and two lists of numbers, in frames of 4 kB (measured). sgemm (level3_thread.c): that, and MAX_THREADS x MAX_THREADS entries of
 * two cache lines, unless MAX_THREADS is above a threshold of 160 or, as in Debian's, of less; its kernels for old CPUs have frames of 33 kB. */
static uint64_t gemv_stack(int64_t threads) {
    return (uint64_t)threads * 256 + 16 * 1024;
}

static uint64_t gemm_stack(int64_t threads) {
    enum { HEAP_THRESHOLD = 160, ENTRY_SIZE = 128, OTHER_FRAMES = 64 * 1024 };
    return gemv_stack(threads) + (threads > HEAP_THRESHOLD ? 0 : (uint64_t)(threads * threads) * ENTRY_SIZE) + OTHER_FRAMES;
}

/* Sets a number that belongs to the calling thread alone, and is called on threads that libffn started: without it OpenBLAS would take over the
 * new thread's default for the whole process. */
void ffni_gemm_take_threads(int threads) {
    if (threads && omp_set_num_threads) omp_set_num_threads(threads);
}

/* libgomp keeps a team of threads for each thread that has used it, and does not see that fork() leaves them behind. */
int ffni_gemm_lost_threads(void) {
    return openblas_get_parallel() == OPENMP && ffni_fork_survivor();
}

uint64_t ffni_gemm_stack(int64_t rows, int64_t n, int64_t k) {
    if (!is_threaded() || is_small(rows, n, k)) return 0;
    return goes_by_row(rows, n, k) ? gemv_stack(most_threads()) : gemm_stack(most_threads());
}

uint64_t ffni_gemm_general_stack(void) {
    return is_threaded() ? gemm_stack(most_threads()) : 0;
}
