/* SPDX-License-Identifier: MIT
 * Choosing the thread. */
#include "core/fit_thread.h"

#include "core/gemm.h"

/* Stack that the library itself may use below BLAS's. */
enum { OWN_STACK = 16 * 1024 };

typedef struct moved {
    stack_fn *function;
    void *argument;
    int blas_threads;
} moved_t;

static ffn_status_t run_moved(void *argument) {
    const moved_t *moved = argument;
    ffni_gemm_take_threads(moved->blas_threads);
    return moved->function(moved->argument);
}

/* A new thread begins with the floating-point environment of the one that starts it. */
ffn_status_t ffni_run_on_fit_thread(uint64_t need, stack_fn *function, void *argument) {
    if (!need || (ffni_stack_left() >= need + OWN_STACK && !ffni_gemm_lost_threads())) return function(argument);
    moved_t moved = {function, argument, ffni_gemm_threads()};
    return ffni_run_with_stack(need + OWN_STACK, run_moved, &moved);
}
