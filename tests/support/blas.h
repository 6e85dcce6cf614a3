/* SPDX-License-Identifier: MIT
 *
 * The tests as hosts that set OpenBLAS's threads.
 */
#ifndef FFN_TEST_BLAS_H
#define FFN_TEST_BLAS_H

/* The most threads that a test should ask for: 1 of a serial OpenBLAS, or with OPENBLAS_NUM_THREADS=1 in the environment (valgrind runs one thread
 * at a time, and those of OpenBLAS spin), else 2. */
int blas_threads_most(void);

/* Sets the number of threads for the process, and returns what it was. */
int blas_threads_set(int threads);

/* For each new thread of a test: with OpenMP a thread begins with the number of the environment, and not with the one that another has set.
 * With another flavour this does nothing. */
void blas_threads_set_here(int threads);

#endif
