/* SPDX-License-Identifier: MIT
 *
 * A layer as the tests describe it: which parts it has, in which sizes and layouts. From such a case are made random weights, the oracle's
 * layer (plain matrices) and the library's (views of the weights as the layout stores them), and the one is held against the other.
 */
#ifndef FFN_TEST_LAYER_CASE_H
#define FFN_TEST_LAYER_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ffn/ffn.h"
#include "support/layout.h"
#include "support/oracle.h"

enum { BIAS_UP = 1, BIAS_GATE = 2, BIAS_DOWN = 4, BIAS_ALL = 7 };

typedef enum scale_case {
    SCALE_NONE,
    SCALE_ONE,
    SCALE_VECTOR,
    SCALE_ONE_TANH,
    SCALE_VECTOR_TANH,
    SCALE_CASES
} scale_case_t;

typedef struct norm_case {
    uint32_t kind; /* FFN_NORM_* */
    bool weight, bias;
    float eps, offset;
} norm_case_t;

/* Zero means absent, or the library's default. */
typedef struct layer_case {
    const char *name; /* printed where a comparison fails; may be NULL */
    int64_t d_model, d_ff, d_out; /* d_out 0: d_model */
    uint32_t activation;
    float alpha, beta, gate_max, up_limit, up_offset;
    bool gated;
    uint32_t biases; /* BIAS_*; BIAS_GATE counts in a gated layer only */
    norm_case_t norm[4];
    uint32_t residual;
    scale_case_t branch_scale, residual_scale;
    float branch_factor, residual_factor; /* the number that a scale of [1] holds; 0: a random one */
    layout_t layout;                      /* of gate and up */
    layout_t down_layout;
    int64_t groups; /* of a grouped 1x1 convolution: weights are 0 outside `groups` blocks on the diagonal. 0: 1 */
    uint64_t seed;
} layer_case_t;

enum { MAX_TENSORS = 24, ROLES = 64 };

typedef struct test_layer {
    layer_case_t is;          /* defaults of the sizes filled in */
    float *plain[ROLES];      /* by role: contiguous [out, in] or [n]; NULL: the layer has none */
    int64_t shape[ROLES][2];  /* second 0: a vector */
    float *stored[ROLES];     /* blocks of memory in the case's layouts, which the views point into */
    int64_t stored_floats[ROLES];
    ffn_tensor_t tensors[MAX_TENSORS];
    ffn_layer_options_t options;
    oracle_layer_t oracle;
    ffn_layer_t *layer; /* the library's */
} test_layer_t;

/* Makes weights, views, options and the oracle's layer, and creates the library's unless options are still to be changed. */
void test_layer_describe(test_layer_t *test, const layer_case_t *is);
void test_layer_create(test_layer_t *test);
void test_layer_make(test_layer_t *test, const layer_case_t *is); /* both */
void test_layer_free(test_layer_t *test);

/* The layer's view of one role in options.tensors; fails the test if it has none. */
ffn_tensor_t *test_layer_view(test_layer_t *test, uint32_t role);

/* Writes the case as one line: every part that differs from the plainest layer. */
void layer_case_print(const layer_case_t *is, char *text, size_t size);

/* Fails the test, naming element `index` of a [rows, width] output, both values, the bound, ulps, the case, seed, shape and ISA level. */
void test_layer_fail(const test_layer_t *test, const char *what, int64_t tokens, int64_t index, double expected, double got, double bound);

#endif
