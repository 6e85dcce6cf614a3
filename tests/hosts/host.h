/* SPDX-License-Identifier: MIT
 *
 * What the host programs of the tests share. They link or load libffn.so as strangers do and see the public header alone.
 *
 * The layer is one of small integers: all sums are exact in float32 in whatever order they are formed, so one right answer, from plain loops over
 * integers, holds for every OpenBLAS, engine, ISA level and number of threads.
 */
#ifndef FFN_TEST_HOST_H
#define FFN_TEST_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ffn/ffn.h>

/* Large enough that OpenBLAS splits the products between its threads, and that libffn has tasks for several of its own. */
enum { HOST_WIDTH = 96, HOST_HIDDEN = 160, HOST_TOKENS = 40, HOST_NUMBERS = HOST_TOKENS * HOST_WIDTH };

/* y = x + W_down (relu(W_gate x + b_gate) * (W_up x + b_up)) + b_down, HOST_TOKENS tokens of it. */
typedef struct host {
    float gate[HOST_HIDDEN * HOST_WIDTH], up[HOST_HIDDEN * HOST_WIDTH], down[HOST_WIDTH * HOST_HIDDEN];
    float gate_bias[HOST_HIDDEN], up_bias[HOST_HIDDEN], down_bias[HOST_WIDTH];
    float x[HOST_NUMBERS], expected[HOST_NUMBERS];
    ffn_tensor_t tensors[6];
    ffn_layer_options_t options;
} host_t;

/* Filled in once; never changes then. */
const host_t *host(void);

/* The engines that this library offers, for `for (int i = 0; i < host_engines(engines); i++)`. */
enum { HOST_ENGINES = 2 };
int host_engines(uint32_t engines[HOST_ENGINES]);

/* Makes the layer for an engine. NULL if it cannot be made: calls then say so. (Nothing here ends a test in a child, where it would go on.) */
ffn_layer_t *host_layer(uint32_t engine);

/* One call: FFN_OK if it succeeded and every number is right, the status of a call that failed, HOST_WRONG for a wrong number. */
enum { HOST_WRONG = 1 };
ffn_status_t host_run(const ffn_layer_t *layer, ffn_context_t *context);
ffn_status_t host_run_into(const ffn_layer_t *layer, ffn_context_t *context, float y[HOST_NUMBERS]);

/* Fails the test, with the sentence, unless the status is FFN_OK. */
void host_assert_ok(ffn_status_t status, const char *what);

/* Makes calls that fail, one for each reason that a caller can give. True if each was refused with a sentence. */
bool host_fails_rightly(const ffn_layer_t *layer, ffn_context_t *context);

/* For tests whose children start threads: ThreadSanitizer does not know those after a fork of several. */
#if defined(__SANITIZE_THREAD__)
#define HOST_SKIP_WITHOUT_THREADS_IN_CHILDREN() skip()
#else
#define HOST_SKIP_WITHOUT_THREADS_IN_CHILDREN() ((void)0)
#endif

/* Runs a function in a child process, which has a minute: what is wrong is told by its result. Returns that (0 to 99), 100 if
 * the child had to be ended, 128 + n if signal n ended it. */
int host_in_child(int (*function)(void *argument), void *argument);

/* True under valgrind or a sanitizer (FFN_TEST_QUICK): fewer repetitions. */
bool host_quick(void);

#endif
