/* SPDX-License-Identifier: MIT
 * The machine's own limits, as two more workers. Variant "peak": a run is so many FLOP, said in the form, of multiply-adds from registers on every
 * thread. Variant "read": a run reads as many bytes as the layer's weights have - a mixture's: those of the experts that the tokens chose -, a share on
 * every thread. Huge pages where the system gives them. */
#include "worker.h"

#include "base/error.h"
#include "dispatch/ladder.h"
#include "limits.h"
#include "peak.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PEAK_ROUNDS = 100000, ALIGNED = 64 }; /* of numbers, so that shares begin at whole cache lines */

static const struct {
    uint32_t isa;
    peak_fn *peak;
    read_fn *read;
} levels[] = {
    {FFN_ISA_SCALAR, peak_scalar, read_scalar},
#if defined(FFNI_X86_64)
    {FFN_ISA_AVX2, peak_avx2, read_avx2},
    {FFN_ISA_AVX512, peak_avx512, read_avx512},
#endif
};

static peak_fn *peak;
static read_fn *reader;
static bool is_peak;
static float *numbers;
static int64_t network_count, count; /* numbers of a network, and of all that a run reads */
static int read_form, prepared_threads;
static cpu_set_t allowed; /* processors of the process */
static float sink[64 * 1024]; /* threads write far from each other */

static const char *start(const layer_t *layer, const char *variant) {
    const kernel_table_t *kernels;
    sched_getaffinity(0, sizeof allowed, &allowed);
    if (ffni_ladder_choose(FFN_ISA_AUTO, &kernels) != FFN_OK) return ffni_error_text();
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].isa == kernels->isa) peak = levels[i].peak, reader = levels[i].read;
    is_peak = !strcmp(variant, "peak");
    network_count = layer->d_model * layer->d_ff * (2 + layer->gated) / ALIGNED * ALIGNED;
    if (is_peak) return NULL;
    int64_t most = layer->experts * network_count;
    size_t size = (size_t)most * sizeof(float);
    numbers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (numbers == MAP_FAILED) worker_fail("out of memory");
    madvise(numbers, size, MADV_HUGEPAGE); /* refused: then without */
    for (int64_t i = 0; i < most; i++) numbers[i] = 1; /* not one page of zeros, mapped many times */
    return NULL;
}

/* A limit is what the processors can do: each thread has one of its own, where a woken thread may otherwise wait for milliseconds on another's. */
static void keep_to_processor(int thread) {
    int place = thread % CPU_COUNT(&allowed), processor = 0;
    for (;; processor++)
        if (CPU_ISSET(processor, &allowed) && place-- == 0) break;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void run_limit(const layer_t *layer, int form) {
    (void)layer;
#pragma omp parallel num_threads(prepared_threads)
    {
        int thread = omp_get_thread_num();
        int64_t lines = count / ALIGNED, first = lines * thread / prepared_threads, end = lines * (thread + 1) / prepared_threads;
        if (is_peak)
            peak(PEAK_ROUNDS, &sink[64 * thread]);
        else
            sink[64 * thread] += reader(numbers + first * ALIGNED, (end - first) * ALIGNED, form ? 4 : 1);
    }
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    if (threads > 1024) return "more than 1024 threads";
    count = network_count * worker_networks(layer, tokens);
    prepared_threads = threads;
    if (threads > 1) {
#pragma omp parallel num_threads(prepared_threads)
        keep_to_processor(omp_get_thread_num());
    } else {
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
    if (is_peak) {
        snprintf(form, FORM_LENGTH, "%.0f", peak(PEAK_ROUNDS, sink) * threads);
    } else {
        read_form = worker_fastest(2, run_limit, layer);
        snprintf(form, FORM_LENGTH, "%d streams", read_form ? 4 : 1);
    }
    return NULL;
}

static void run(const layer_t *layer) {
    run_limit(layer, read_form);
}

int main(int argc, char **argv) {
    static const engine_t engine = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &engine);
}
