/* SPDX-License-Identifier: MIT
 *
 * Norms, zeros, non-finite numbers and how far a step moved a tensor: against float64, through strides of every kind, threads and ISA levels; and what is
 * refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/failing_allocator.h"
#include "support/guard.h"
#include "support/layer_check.h"
#include "support/random.h"
#include "support/test.h"

static ffn_tensor_health_t health_of(ffn_context_t *context, const ffn_tensor_t *tensor)
{
    ffn_tensor_health_t health = {.struct_size = sizeof health};
    assert_ok(ffn_tensor_health(context, tensor, &health));
    return health;
}

static float number(rng_t *rng)
{
    return rng_below(rng, 7) ? rng_normal(rng) : rng_below(rng, 2) ? 0.0f : -0.0f;
}

static void check_length(int64_t n)
{
    guard_buffer_t buffer = guard_alloc((size_t)n * 4, GUARD_AFTER), moved = guard_alloc((size_t)n * 4, GUARD_AFTER);
    float *v = buffer.data, *w = moved.data;
    rng_t rng = rng_make(test_seed() + (uint64_t)n);
    double squares = 0, distance = 0, largest = 0, ratio;
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = number(&rng), w[i] = v[i] + 0.01f * rng_normal(&rng);
        squares += (double)v[i] * (double)v[i];
        distance += ((double)w[i] - (double)v[i]) * ((double)w[i] - (double)v[i]);
        zeros += v[i] == 0;
        largest = fmax(largest, fabs((double)v[i]));
    }
    const ffn_tensor_t tensor = {.ndim = 1, .data = v, .shape = {n}}, after = {.ndim = 1, .data = w, .shape = {n}};
    const ffn_tensor_health_t health = health_of(NULL, &tensor);
    assert_int_equal(health.count, n);
    assert_int_equal(health.zeros, zeros);
    assert_int_equal(health.non_finite, 0);
    assert_near(health.norm, sqrt(squares), 1e-13 * sqrt(squares));
    assert_true(health.largest == largest);
    assert_ok(ffn_update_ratio(NULL, &tensor, &after, &ratio));
    if (squares > 0) assert_near(ratio, sqrt(distance / squares), 1e-12 * sqrt(distance / squares));
    guard_free(&buffer), guard_free(&moved);
}

static void health_is_that_of_float64_at_every_length(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n++) check_length(n);
    static const int64_t longer[] = {1023, 1024, 1025, 65535, 65536, 65537, 200001};
    for (int64_t i = 0; i < COUNT_OF(longer); i++) check_length(longer[i]);
}

/* What is no number may stand in any lane. */
static void non_finite_numbers_are_counted_wherever_they_stand(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int64_t n = 1; n <= 40; n++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t b = 0; b < COUNT_OF(bad); b++) {
                float v[40];
                for (int64_t j = 0; j < n; j++) v[j] = j % 3 ? 2 : 0;
                v[i] = bad[b];
                const ffn_tensor_t tensor = {.ndim = 1, .data = v, .shape = {n}};
                const ffn_tensor_health_t health = health_of(NULL, &tensor);
                assert_int_equal(health.non_finite, 1);
                assert_int_equal(health.zeros, (n + 2) / 3 - (i % 3 == 0));
                assert_true(b ? isinf(health.norm) : isnan(health.norm));
                assert_true(health.largest == (n > 2 || (n == 2 && i == 0) ? 2 : 0));
            }
}

static void huge_and_tiny_numbers_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    enum { N = 3000 };
    float v[N], w[N];
    double ratio;
    for (int i = 0; i < N; i++) v[i] = i % 2 ? 0x1.fffffep127f : -0x1.fffffep127f, w[i] = -v[i];
    const ffn_tensor_t tensor = {.ndim = 1, .data = v, .shape = {N}}, after = {.ndim = 1, .data = w, .shape = {N}};
    ffn_tensor_health_t health = health_of(NULL, &tensor);
    assert_near(health.norm, 0x1.fffffep127 * sqrt(N), 1e-12 * 0x1.fffffep127 * sqrt(N));
    assert_ok(ffn_update_ratio(NULL, &tensor, &after, &ratio));
    assert_near(ratio, 2, 1e-14);
    for (int i = 0; i < N; i++) v[i] = 0x1p-149f, w[i] = 0;
    health = health_of(NULL, &tensor);
    assert_near(health.norm, 0x1p-149 * sqrt(N), 1e-12 * 0x1p-149 * sqrt(N));
    assert_int_equal(health.zeros, 0);
    assert_ok(ffn_update_ratio(NULL, &tensor, &after, &ratio));
    assert_near(ratio, 1, 1e-14);
    assert_ok(ffn_update_ratio(NULL, &after, &tensor, &ratio));
    assert_true(isinf(ratio));
    assert_ok(ffn_update_ratio(NULL, &after, &after, &ratio));
    assert_true(ratio == 0);
    v[7] = NAN;
    assert_ok(ffn_update_ratio(NULL, &after, &tensor, &ratio));
    assert_true(isnan(ratio));
}

/* ---------------------------------------------------------------------- Strides */

/* [planes, rows, columns] from element [0][0][0] on; `contiguous` is the same in plain order. */
static void check_view(const ffn_tensor_t *view, const char *what)
{
    const int64_t a = view->shape[0], b = view->shape[1], c = view->shape[2], n = a * b * c;
    float *plain = test_alloc((size_t)n * sizeof *plain);
    double moved;
    for (int64_t i = 0; i < n; i++) {
        const char *at = (const char *)view->data + i / (b * c) * view->stride[0] + i / c % b * view->stride[1] + i % c * view->stride[2];
        memcpy(&plain[i], at, sizeof *plain);
    }
    const ffn_tensor_t contiguous = {.ndim = 3, .data = plain, .shape = {a, b, c}};
    const ffn_tensor_health_t expected = health_of(NULL, &contiguous), got = health_of(NULL, view);
    if (memcmp(&expected, &got, sizeof got)) fail_msg("%s: norm %.17g is not %.17g", what, got.norm, expected.norm);
    assert_ok(ffn_update_ratio(NULL, view, &contiguous, &moved));
    assert_true(moved == 0);
    free(plain);
}

static void any_strides_give_the_same_bits(void **state)
{
    (void)state;
    enum { A = 3, B = 41, C = 67, ROOM = 4 * A * B * C };
    float *memory = test_alloc(ROOM * sizeof *memory);
    rng_t rng = rng_make(5);
    for (int64_t i = 0; i < ROOM; i++) memory[i] = number(&rng);
    const struct {
        const char *name;
        int64_t start, stride[3]; /* in floats */
    } views[] = {
        {"contiguous", 0, {B * C, C, 1}},        {"padded rows", 0, {B * (C + 5), C + 5, 1}}, {"padded planes", 3, {B * C + 1, C, 1}},
        {"transposed", 0, {B * C, 1, B}},        {"planes innermost", 0, {1, A * C, A}},      {"every other", 1, {2 * B * C, 2 * C, 2}},
        {"backwards", A * B * C - 1, {-B * C, -C, -1}}, {"rows backwards", (B - 1) * C, {B * C, -C, 1}}, {"broadcast rows", 0, {C, 0, 1}},
        {"broadcast columns", 0, {B, 1, 0}},
    };
    for (int64_t i = 0; i < COUNT_OF(views); i++) {
        ffn_tensor_t view = {.ndim = 3, .data = memory + views[i].start, .shape = {A, B, C}};
        for (int d = 0; d < 3; d++) view.stride[d] = 4 * views[i].stride[d];
        check_view(&view, views[i].name);
    }
    const ffn_tensor_t one = {.ndim = 4, .data = memory, .shape = {1, 1, 1, 1}, .stride = {INT64_MAX - 3, 3, -8, 1}}; /* strides of one mean nothing */
    assert_int_equal(health_of(NULL, &one).count, 1);
    free(memory);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    enum { N = 1000003 };
    static const uint32_t threads[] = {2, 3, 7};
    float *v = test_alloc(N * sizeof *v), *w = test_alloc(N * sizeof *w);
    rng_t rng = rng_make(6);
    for (int64_t i = 0; i < N; i++) v[i] = number(&rng), w[i] = number(&rng);
    const ffn_tensor_t tensor = {.ndim = 1, .data = v, .shape = {N}}, after = {.ndim = 1, .data = w, .shape = {N}};
    const ffn_tensor_health_t expected = health_of(NULL, &tensor);
    double ratio, other;
    assert_ok(ffn_update_ratio(NULL, &tensor, &after, &ratio));
    for (int64_t t = 0; t < COUNT_OF(threads); t++) {
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads[t]};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        const ffn_tensor_health_t got = health_of(context, &tensor);
        assert_memory_equal(&expected, &got, sizeof got);
        assert_ok(ffn_update_ratio(context, &tensor, &after, &other));
        assert_true(other == ratio);
        ffn_context_free(context);
    }
    free(v), free(w);
}

/* ----------------------------------------------------------------------- Errors */

typedef struct wrong {
    const char *sentence;
    ffn_status_t status;
    ffn_tensor_t tensor;
} wrong_t;

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static float v[8];
    static const wrong_t rows[] = {
        {"dtype of the tensor is 1, must be FFN_DTYPE_F32 in this version", FFN_UNSUPPORTED, {.dtype = 1, .ndim = 1, .data = v, .shape = {1}}},
        {"ndim of the tensor is 0, must be 1 to 4", FFN_INVALID, {.data = v}},
        {"ndim of the tensor is 5, must be 1 to 4", FFN_INVALID, {.ndim = 5, .data = v, .shape = {1, 1, 1, 1}}},
        {"data of the tensor is NULL", FFN_INVALID, {.ndim = 2, .shape = {1, 1}}},
        {"data of the tensor is not at a multiple of 4 bytes", FFN_INVALID, {.ndim = 1, .data = (char *)v + 2, .shape = {1}}},
        {"quant of the tensor is given, must be NULL in this version", FFN_UNSUPPORTED, {.ndim = 1, .data = v, .shape = {1}, .quant = (const ffn_quant_t *)v}},
        {"reserved[3] of the tensor is not 0", FFN_UNSUPPORTED, {.ndim = 1, .data = v, .shape = {1}, .reserved = {0, 0, 0, 1}}},
        {"shape[1] of the tensor is -1, must be at least 0", FFN_INVALID, {.ndim = 2, .data = v, .shape = {1, -1}}},
        {"shape[2] or stride[2] of the tensor is not 0, but its ndim is 2", FFN_INVALID, {.ndim = 2, .data = v, .shape = {1, 1, 1}}},
        {"stride[0] of the tensor is 6 bytes, must be a multiple of 4", FFN_INVALID, {.ndim = 2, .data = v, .shape = {2, 2}, .stride = {6, 4}}},
        {"the tensor has more than 2^61 numbers", FFN_INVALID, {.ndim = 3, .data = v, .shape = {1 << 30, 1 << 30, 1 << 30}, .stride = {0, 0, 4}}},
        {"the strides of the tensor reach beyond the address space", FFN_INVALID, {.ndim = 1, .data = v, .shape = {1 << 30}, .stride = {INT64_C(1) << 40}}},
        {"the strides of the tensor reach beyond the address space", FFN_INVALID, {.ndim = 1, .data = v, .shape = {1 << 30}, .stride = {-(INT64_C(1) << 40)}}},
    };
    double ratio = 5;
    ffn_tensor_health_t health = {.struct_size = sizeof health};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(ffn_tensor_health(NULL, &rows[i].tensor, &health), rows[i].status);
        assert_string_equal(ffn_last_error(), rows[i].sentence);
        assert_int_equal(ffn_update_ratio(NULL, &rows[i].tensor, &rows[i].tensor, &ratio), rows[i].status);
    }
    const ffn_tensor_t good = {.ndim = 2, .data = v, .shape = {2, 4}}, turned = {.ndim = 2, .data = v, .shape = {4, 2}}, flat = {.ndim = 1, .data = v, .shape = {8}};
    assert_true(ratio == 0);
    assert_int_equal(ffn_tensor_health(NULL, NULL, &health), FFN_INVALID);
    assert_string_equal(ffn_last_error(), "the tensor is NULL");
    assert_int_equal(ffn_tensor_health(NULL, &good, NULL), FFN_INVALID);
    assert_int_equal(ffn_update_ratio(NULL, &good, &good, NULL), FFN_INVALID);
    assert_int_equal(ffn_update_ratio(NULL, &good, NULL, &ratio), FFN_INVALID);
    assert_string_equal(ffn_last_error(), "`after` is NULL");
    assert_int_equal(ffn_update_ratio(NULL, &good, &turned, &ratio), FFN_INVALID);
    assert_string_equal(ffn_last_error(), "shape[0] of `after` is 4, must be that of `before`, 2");
    assert_int_equal(ffn_update_ratio(NULL, &good, &flat, &ratio), FFN_INVALID);
    assert_string_equal(ffn_last_error(), "ndim of `after` is 1, must be that of `before`, 2");
}

static void tensors_without_numbers_are_fine(void **state)
{
    (void)state;
    const ffn_tensor_t none = {.ndim = 2, .shape = {INT64_MAX / 2, 0}};
    double ratio = 5;
    const ffn_tensor_health_t health = health_of(NULL, &none);
    assert_true(health.count == 0 && health.zeros == 0 && health.norm == 0 && health.largest == 0);
    assert_ok(ffn_update_ratio(NULL, &none, &none, &ratio));
    assert_true(ratio == 0);
}

static void without_memory_nothing_is_written(void **state)
{
    (void)state;
    failing_allocator_t allocator;
    failing_allocator_init(&allocator);
    const ffn_context_options_t options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator.hook};
    ffn_context_t *context;
    float v = 1;
    double ratio = 5;
    const ffn_tensor_t tensor = {.ndim = 1, .data = &v, .shape = {1}};
    ffn_tensor_health_t health = {.struct_size = sizeof health, .count = 77};
    assert_ok(ffn_context_create(&options, &context));
    failing_allocator_arm(&allocator, 1, true);
    assert_int_equal(ffn_tensor_health(context, &tensor, &health), FFN_NO_MEMORY);
    assert_int_equal(health.count, 77);
    assert_int_equal(ffn_update_ratio(context, &tensor, &tensor, &ratio), FFN_NO_MEMORY);
    assert_true(ratio == 0);
    failing_allocator_disarm(&allocator);
    assert_int_equal(health_of(context, &tensor).count, 1);
    ffn_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_is_that_of_float64_at_every_length),
        cmocka_unit_test(non_finite_numbers_are_counted_wherever_they_stand),
        cmocka_unit_test(huge_and_tiny_numbers_neither_overflow_nor_vanish),
        cmocka_unit_test(any_strides_give_the_same_bits),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(tensors_without_numbers_are_fine),
        cmocka_unit_test(without_memory_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
