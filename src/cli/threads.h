/* SPDX-License-Identifier: MIT
 * The threads of libffn and of OpenBLAS, which libffn leaves to the program: to this one. */
#ifndef FFN_CLI_THREADS_H
#define FFN_CLI_THREADS_H

#include <ffn/ffn.h>

enum { MAX_THREADS = 1024 };

/* A context of that many threads, with OpenBLAS set to as many. threads 0: what libffn takes by itself (CPUs that the process may use). NULL and a
 * complaint on failure. */
ffn_context_t *threads_make(uint32_t threads, uint32_t *made);

/* Sets OpenBLAS's threads alone: before a call with another context. */
void threads_set_blas(uint32_t threads);

#endif
