/* SPDX-License-Identifier: MIT
 *
 * What every test file includes: cmocka with the headers that it needs, and the settings of a test run.
 */
#ifndef FFN_TEST_TEST_H
#define FFN_TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* True with FFN_TEST_QUICK=1 in the environment: products of options are thinned out, and what takes long for its size is left out. For runs
 * under valgrind; the normal run never sets it. */
bool test_quick(void);

/* The number that all random numbers of a run start from: FFN_TEST_SEED in the environment, else 1. Failures print the seed of their case. */
uint64_t test_seed(void);

/* FFN_MAX_ISA, or "no cap". */
const char *test_isa_cap(void);

/* FFN_ENGINE_* of the layers that layer_case.h makes: FFN_TEST_ENGINE in the environment ("blas", "native"), else FFN_ENGINE_AUTO. */
uint32_t test_engine(void);

/* malloc and friends that fail the test in place of returning NULL. */
void *test_alloc(size_t size);

#endif
