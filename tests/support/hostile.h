/* SPDX-License-Identifier: MIT
 *
 * Feeding the interface bad values: a struct with some of its fields replaced, the refusal that must follow, and the proof that nothing else has
 * happened.
 */
#ifndef FFN_TEST_HOSTILE_H
#define FFN_TEST_HOSTILE_H

#include "support/layer_check.h"
#include "support/test.h"

/* One field of a struct replaced. text NULL: no patch. */
typedef struct patch {
    const char *text; /* "alpha = 1", for a failure of the test */
    size_t offset, size;
    const void *value;
} patch_t;

/* A row's patch: PATCH(ffn_run_t, batch, -1). The value is a constant expression of any type that converts to the field's. */
#define PATCH(type, field, ...)                                                                                                                \
    {                                                                                                                                          \
        #field " = " #__VA_ARGS__, offsetof(type, field), sizeof(((type *)0)->field), (__typeof__(((type *)0)->field)[]) { __VA_ARGS__ }       \
    }

void patch_apply(const patch_t *patch, void *given);

/* A pointer that a patch may hold and that is never read or written through. */
#define NOWHERE ((void *)64)

/* Replaces this thread's last error by one that no test expects. */
void forget_error(void);

/* Fails the test unless the call returned `expected` and left a sentence that is one line of printable ASCII, not cut off, with each of `words`
 * (separated by '|') in it. `what` says what was wrong. */
void assert_refused(ffn_status_t got, ffn_status_t expected, const char *words, const char *what);

/* A layer, an input and the bits that it gave: shows that layer and context are as good as they were. The layer has few tokens and small
 * widths, so that this may be asked after every refusal. */
typedef struct witness {
    test_layer_t test;
    layer_data_t data;
    float *expected;
} witness_t;

void witness_make(witness_t *witness, const layer_case_t *is);
void witness_free(witness_t *witness);
void assert_still_right(witness_t *witness, ffn_context_t *context, const char *what);

/* A witness of every part but the xielu scalars: gated swish, biases, four norms, input residual, both scales. */
extern const layer_case_t witness_case;

#endif
