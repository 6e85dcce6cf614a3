/* SPDX-License-Identifier: MIT
 * Running what calls BLAS on a thread that is fit for it. */
#ifndef FFNI_FIT_THREAD_H
#define FFNI_FIT_THREAD_H

#include <ffn/ffn.h>

#include "base/stack.h"

/* function(argument) on the calling thread, or on a new one where BLAS may want more stack (`need` bytes) than that has left (threads with 64 kB are
 * common in hosts), or threads that a fork left behind. need 0: BLAS is not called. FFN_NO_MEMORY: no thread can be started. */
ffn_status_t ffni_run_on_fit_thread(uint64_t need, stack_fn *function, void *argument);

#endif
