/* SPDX-License-Identifier: MIT
 *
 * Strides and counts around 2^31, 2^32 and 2^63: right where memory can be that far apart, which is reserved and hardly touched, else refused.
 */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const int64_t strides[] = {INT64_C(1) << 31, (INT64_C(1) << 31) + 4, (INT64_C(1) << 32) - 4, INT64_C(1) << 32};
enum { STRIDES = 4, ROWS = 3 };

/* Addresses without memory until they are touched; skips the test where there are none. */
static char *reserve(uint64_t size) {
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        print_message("skipped: %llu bytes of addresses are not to be had\n", (unsigned long long)size);
        skip();
    }
    return map;
}

static void scatter(const float *rows, int64_t count, int64_t width, char *memory, int64_t stride) {
    for (int64_t i = 0; i < count; i++) memcpy(memory + i * stride, rows + i * width, (size_t)width * sizeof(float));
}

static bool stands(const float *rows, int64_t count, int64_t width, const char *memory, int64_t stride) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(memory + i * stride, rows + i * width, (size_t)width * sizeof(float))) return false;
    return true;
}

static void rows_of_tokens_may_be_gigabytes_apart(void **state) {
    (void)state;
    uint32_t engines[HOST_ENGINES];
    uint64_t size = (uint64_t)strides[STRIDES - 1] * ROWS;
    char *x = reserve(size), *y = reserve(size);
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_t *layer = host_layer(engines[i]);
        for (int k = 0; k < STRIDES; k++)
            for (int64_t tokens = 1; tokens <= ROWS; tokens++) {
                scatter(host()->x, tokens, HOST_WIDTH, x, strides[k]);
                for (int64_t t = 0; t < tokens; t++) memset(y + t * strides[k], 0xff, HOST_WIDTH * sizeof(float));
                host_assert_ok(ffn_layer_forward(layer, NULL, tokens, (float *)x, strides[k], (float *)y, strides[k]), "rows far apart");
                assert_true(stands(host()->expected, tokens, HOST_WIDTH, y, strides[k]));
                host_assert_ok(ffn_layer_forward(layer, NULL, tokens, (float *)x, strides[k], (float *)x, strides[k]), "rows far apart, in place");
                assert_true(stands(host()->expected, tokens, HOST_WIDTH, x, strides[k]));
            }
        ffn_layer_free(layer);
    }
    munmap(x, size);
    munmap(y, size);
}

static void sequences_may_be_gigabytes_apart(void **state) {
    (void)state;
    enum { BATCH = 2, LENGTH = 2 };
    uint32_t engines[HOST_ENGINES];
    const int64_t row = INT64_C(1) << 31, sequence = INT64_C(1) << 33;
    uint64_t size = (uint64_t)sequence * BATCH;
    char *x = reserve(size), *y = reserve(size);
    for (int b = 0; b < BATCH; b++) scatter(host()->x + b * LENGTH * HOST_WIDTH, LENGTH, HOST_WIDTH, x + b * sequence, row);
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_t *layer = host_layer(engines[i]);
        ffn_run_t run = {.struct_size = sizeof run, .batch = BATCH, .length = LENGTH, .x = x, .y = y, .x_stride = {sequence, row},
                         .y_stride = {sequence, row}};
        for (int b = 0; b < BATCH; b++) memset(y + b * sequence, 0xff, HOST_WIDTH * sizeof(float));
        host_assert_ok(ffn_layer_run(layer, NULL, &run), "sequences far apart");
        for (int b = 0; b < BATCH; b++)
            assert_true(stands(host()->expected + b * LENGTH * HOST_WIDTH, LENGTH, HOST_WIDTH, y + b * sequence, row));
        ffn_layer_free(layer);
    }
    munmap(x, size);
    munmap(y, size);
}

static void rows_of_weights_may_be_gigabytes_apart_and_are_given_back_so(void **state) {
    (void)state;
    uint32_t engines[HOST_ENGINES];
    const int64_t stride = INT64_C(1) << 31;
    uint64_t size = (uint64_t)stride * HOST_HIDDEN;
    char *up = reserve(size);
    scatter(host()->up, HOST_HIDDEN, HOST_WIDTH, up, stride);
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_options_t options = host()->options;
        ffn_tensor_t tensors[6];
        ffn_layer_t *layer;
        memcpy(tensors, host()->tensors, sizeof tensors);
        tensors[1].data = up;
        tensors[1].stride[0] = stride;
        tensors[1].stride[1] = sizeof(float);
        options.tensors = tensors;
        options.engine = engines[i];
        host_assert_ok(ffn_layer_create(NULL, &options, &layer), "weights far apart");
        host_assert_ok(host_run(layer, NULL), "weights far apart");
        for (int64_t row = 0; row < HOST_HIDDEN; row++) memset(up + row * stride, 0xff, HOST_WIDTH * sizeof(float));
        host_assert_ok(ffn_layer_read(layer, &tensors[1], 1), "read far apart");
        assert_true(stands(host()->up, HOST_HIDDEN, HOST_WIDTH, up, stride));
        ffn_layer_free(layer);
    }
    munmap(up, size);
}

/* What no memory can hold is refused with a sentence, and y stays as it was. */
static void assert_refused(ffn_status_t status, const float *y, const char *what, int64_t number) {
    if (status != FFN_INVALID || !ffn_last_error()[0])
        fail_msg("%s %lld: %s (%s)", what, (long long)number, ffn_status_name(status), ffn_last_error());
    for (int i = 0; y && i < HOST_NUMBERS; i++)
        if (y[i] != 99) fail_msg("%s %lld: y was written", what, (long long)number);
}

static void counts_and_strides_that_no_memory_holds_are_refused(void **state) {
    (void)state;
    static const int64_t huge[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX - 3, INT64_MAX / 2 + 1, INT64_C(1) << 62, INT64_C(1) << 60, INT64_C(1) << 57};
    static const int64_t negative[] = {-1, INT32_MIN, INT64_MIN, INT64_MIN + 1};
    static float y[HOST_NUMBERS];
    uint32_t engines[HOST_ENGINES];
    for (int i = 0; i < HOST_NUMBERS; i++) y[i] = 99;
    for (int i = 0, n = host_engines(engines); i < n; i++) {
        ffn_layer_t *layer = host_layer(engines[i]);
        const float *x = host()->x;
        for (size_t k = 0; k < sizeof huge / sizeof *huge; k++) {
            int64_t stride = huge[k] & ~INT64_C(3);
            ffn_run_t run = {.struct_size = sizeof run, .batch = huge[k], .length = 2, .x = x, .y = y};
            assert_refused(ffn_layer_forward(layer, NULL, huge[k], x, 0, y, 0), y, "tokens", huge[k]);
            if (stride > INT64_MAX / (HOST_TOKENS - 1)) {
                assert_refused(ffn_layer_forward(layer, NULL, HOST_TOKENS, x, stride, y, 0), y, "x_stride", stride);
                assert_refused(ffn_layer_forward(layer, NULL, HOST_TOKENS, x, 0, y, stride), y, "y_stride", stride);
            }
            assert_refused(ffn_layer_run(layer, NULL, &run), y, "batch", huge[k]);
            run.batch = 2;
            run.length = huge[k];
            assert_refused(ffn_layer_run(layer, NULL, &run), y, "length", huge[k]);
            host_assert_ok(ffn_context_reserve(NULL, layer, huge[k]), "scratch that has stopped growing");
        }
        for (size_t k = 0; k < sizeof negative / sizeof *negative; k++) {
            assert_refused(ffn_layer_forward(layer, NULL, negative[k], x, 0, y, 0), y, "tokens", negative[k]);
            assert_refused(ffn_layer_forward(layer, NULL, 2, x, negative[k], y, 0), y, "x_stride", negative[k]);
            assert_refused(ffn_context_reserve(NULL, layer, negative[k]), NULL, "reserve", negative[k]);
        }
        /* the stride of one row is looked at by nobody */
        host_assert_ok(ffn_layer_forward(layer, NULL, 1, x, INT64_MAX & ~INT64_C(3), y, INT64_MAX & ~INT64_C(3)), "one row");
        assert_true(stands(host()->expected, 1, HOST_WIDTH, (char *)y, 0));
        for (int k = 0; k < HOST_WIDTH; k++) y[k] = 99;
        ffn_layer_free(layer);
    }
}

static void widths_above_the_limit_are_refused(void **state) {
    (void)state;
    static const int64_t widths[] = {INT32_MAX - 1, INT32_MAX, INT64_C(1) << 31, UINT32_MAX, INT64_C(1) << 32, INT64_MAX - 1, INT64_MAX, (1 << 29) + 1};
    static float number;
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
        for (int which = 0; which < 3; which++) {
            int64_t model = which == 0 ? widths[k] : 1, hidden = which == 1 ? widths[k] : 1, out = which == 2 ? widths[k] : 1, width;
            ffn_tensor_t tensors[] = {
                {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = &number, .shape = {hidden, model}},
                {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = &number, .shape = {out, hidden}}};
            ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .tensors = tensors, .tensor_count = 2};
            ffn_layer_t *layer;
            assert_refused(ffn_layer_create(NULL, &options, &layer), NULL, "width", widths[k]);
            assert_refused(ffn_gated_d_ff(widths[k], 1, &width), NULL, "d_ff", widths[k]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_tokens_may_be_gigabytes_apart),
        cmocka_unit_test(sequences_may_be_gigabytes_apart),
        cmocka_unit_test(rows_of_weights_may_be_gigabytes_apart_and_are_given_back_so),
        cmocka_unit_test(counts_and_strides_that_no_memory_holds_are_refused),
        cmocka_unit_test(widths_above_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
