/* SPDX-License-Identifier: MIT
 *
 * Contexts: any number of threads and any parallel-for give the same bits; scratch memory is bounded, and a warm context allocates nothing.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/compare.h"
#include "support/strided.h"
#include "support/test.h"

static layer_case_t case_of(bool gated)
{
    layer_case_t is = {.activation = FFN_ACTIVATION_GELU, .gated = gated, .biases = BIAS_ALL, .d_model = 48, .d_ff = 130, .d_out = 48,
                       .residual = FFN_RESIDUAL_INPUT, .branch_scale = SCALE_VECTOR, .seed = 61};
    for (int slot = 0; slot < 4; slot++) is.norm[slot] = (norm_case_t){FFN_NORM_LAYER + (uint32_t)slot % 2, true, true, 0, 0};
    return is;
}

/* ---------------------------------------------------------------- Callers' parallel-fors */

typedef struct calls {
    int64_t loops, tasks;
} calls_t;

static void forwards(void *user, int64_t count, ffn_task_fn task, void *task_data)
{
    ((calls_t *)user)->loops++;
    for (int64_t i = 0; i < count; i++) {
        task(task_data, i);
        ((calls_t *)user)->tasks++;
    }
}

static void backwards(void *user, int64_t count, ffn_task_fn task, void *task_data)
{
    ((calls_t *)user)->loops++;
    for (int64_t i = count; i-- > 0;) {
        task(task_data, i);
        ((calls_t *)user)->tasks++;
    }
}

/* From the middle to both ends. */
static void outwards(void *user, int64_t count, ffn_task_fn task, void *task_data)
{
    ((calls_t *)user)->loops++;
    for (int64_t i = 0; i < count; i++) {
        int64_t step = (i + 1) / 2, middle = count / 2;
        task(task_data, (i & 1 ? middle - step + count : middle + step) % count);
        ((calls_t *)user)->tasks++;
    }
}

typedef struct context_case {
    const char *name;
    uint32_t threads;
    ffn_parallel_for_fn parallel_for;
} context_case_t;

static const context_case_t contexts[] = {
    {"1 thread", 1, NULL},
    {"2 threads", 2, NULL},
    {"3 threads", 3, NULL},
    {"7 threads", 7, NULL},
    {"default threads", 0, NULL},
    {"parallel-for, 4 tasks in order", 4, forwards},
    {"parallel-for, 5 tasks backwards", 5, backwards},
    {"parallel-for, 8 tasks outwards", 8, outwards},
    {"parallel-for, 1 task", 1, backwards},
};

static ffn_context_t *context_of(const context_case_t *is, calls_t *calls)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = is->threads, .parallel_for = is->parallel_for,
                                     .parallel_user = is->parallel_for ? calls : NULL};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static void check_contexts(bool gated, int64_t tokens)
{
    layer_case_t is = case_of(gated);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, tokens, 2);
    layer_data_run(&test, NULL, &data);
    assert_as_oracle(&test, &data, data.y);
    strided_t x = strided_make(1, tokens, is.d_model, (gaps_t){0, 0}, GUARD_AFTER);
    strided_store(&x, data.x);
    for (int64_t c = 0; c < COUNT_OF(contexts); c++) {
        calls_t calls = {0, 0};
        ffn_context_t *context = context_of(&contexts[c], &calls);
        for (int again = 0; again < 2; again++) {
            strided_t y = strided_make(1, tokens, is.d_out, (gaps_t){0, 0}, again ? GUARD_AFTER : GUARD_BEFORE);
            strided_run(&test, context, &x, NULL, &y);
            assert_same_output(&test, tokens, data.y, y.memory.data, contexts[c].name);
            strided_free(&y);
        }
        if (contexts[c].parallel_for && contexts[c].threads > 1 && tokens > 1000) assert_true(calls.loops > 0 && calls.tasks > calls.loops);
        ffn_context_free(context);
    }
    strided_free(&x);
    layer_data_free(&data);
    test_layer_free(&test);
}

static void every_context_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 13, 64, 257, 513, 1300};
    for (int64_t i = 0; i < COUNT_OF(counts); i++)
        for (int gated = 0; gated < 2; gated++)
            if (!test_quick() || i % 4 == 1 + 2 * gated) check_contexts(gated, counts[i]);
}

/* Packing takes the threads of the context that a layer is made with. */
static void every_context_packs_the_same_layer(void **state)
{
    (void)state;
    layer_case_t is = case_of(true);
    is.layout = LAYOUT_IN_INTERLEAVED;
    is.down_layout = LAYOUT_IN_OUT;
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t data = layer_data_make(&test, 20, 2);
    layer_data_run(&test, NULL, &data);
    float *expected = data.y;
    data.y = test_alloc((size_t)(20 * is.d_out) * sizeof(float));
    for (int64_t c = 0; c < COUNT_OF(contexts); c++) {
        calls_t calls = {0, 0};
        ffn_context_t *context = context_of(&contexts[c], &calls);
        ffn_layer_free(test.layer);
        assert_ok(ffn_layer_create(context, &test.options, &test.layer));
        layer_data_run(&test, NULL, &data);
        assert_same_output(&test, 20, expected, data.y, contexts[c].name);
        ffn_context_free(context);
    }
    free(expected);
    layer_data_free(&data);
    test_layer_free(&test);
}

static void forward_and_run_give_the_same_bits(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 63, 700};
    for (int64_t i = 0; i < COUNT_OF(counts); i++) {
        layer_case_t is = case_of(i & 1);
        test_layer_t test;
        test_layer_make(&test, &is);
        layer_data_t data = layer_data_make(&test, counts[i], 2);
        layer_data_run(&test, NULL, &data);
        float *y = test_alloc((size_t)(counts[i] * is.d_out) * sizeof *y);
        assert_ok(ffn_layer_forward(test.layer, NULL, counts[i], data.x, 0, y, 0));
        assert_same_output(&test, counts[i], data.y, y, "ffn_layer_forward against ffn_layer_run");
        free(y);
        layer_data_free(&data);
        test_layer_free(&test);
    }
}

static void two_calls_with_the_same_arguments_give_the_same_bits(void **state)
{
    (void)state;
    layer_case_t is = case_of(true);
    test_layer_t test;
    test_layer_make(&test, &is);
    layer_data_t first = layer_data_make(&test, 300, 2), second = layer_data_make(&test, 300, 2);
    layer_data_run(&test, NULL, &first);
    for (int i = 0; i < (test_quick() ? 3 : 20); i++) {
        layer_data_run(&test, NULL, &second);
        assert_same_output(&test, 300, first.y, second.y, "the same call again");
    }
    layer_data_free(&first);
    layer_data_free(&second);
    test_layer_free(&test);
}

/* ---------------------------------------------------------------- Memory */

typedef struct counts {
    int64_t allocations, releases, bytes;
} counts_t;

static void *count_allocate(void *user, uint64_t size, uint64_t alignment)
{
    counts_t *counts = user;
    assert_true(alignment >= 64 && (alignment & (alignment - 1)) == 0);
    counts->allocations++;
    counts->bytes += (int64_t)size;
    void *memory = NULL;
    return posix_memalign(&memory, (size_t)alignment, (size_t)size) == 0 ? memory : NULL;
}

static void count_release(void *user, void *memory, uint64_t size)
{
    counts_t *counts = user;
    assert_non_null(memory);
    counts->releases++;
    counts->bytes -= (int64_t)size;
    free(memory);
}

static ffn_allocator_t counting(counts_t *counts)
{
    return (ffn_allocator_t){.struct_size = sizeof(ffn_allocator_t), .user = counts, .allocate = count_allocate, .release = count_release};
}

static ffn_context_t *counting_context(const ffn_allocator_t *allocator, uint32_t threads)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads, .allocator = allocator};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    return context;
}

static void a_warm_context_allocates_nothing(void **state)
{
    (void)state;
    static const int64_t runs[] = {600, 1, 2, 63, 512, 513, 0, 600};
    for (uint32_t threads = 1; threads <= 3; threads += test_quick() ? 2 : 1)
        for (int reserved = 0; reserved < 2; reserved++) {
            layer_case_t is = case_of(true);
            test_layer_t test;
            test_layer_make(&test, &is);
            counts_t counts = {0, 0, 0};
            ffn_allocator_t allocator = counting(&counts);
            ffn_context_t *context = counting_context(&allocator, threads);
            layer_data_t data = layer_data_make(&test, 600, 2);
            if (reserved) assert_ok(ffn_context_reserve(context, test.layer, 600));
            else layer_data_run(&test, context, &data);
            int64_t allocations = counts.allocations;
            assert_true(allocations > 0);
            for (int64_t i = 0; i < COUNT_OF(runs); i++) {
                data.tokens = runs[i];
                layer_data_run(&test, context, &data);
                assert_int_equal(counts.allocations, allocations);
            }
            ffn_context_free(context);
            assert_int_equal(counts.allocations, counts.releases);
            assert_int_equal(counts.bytes, 0);
            layer_data_free(&data);
            test_layer_free(&test);
        }
}

static void a_layer_is_one_allocation_and_gives_it_back(void **state)
{
    (void)state;
    layer_case_t is = case_of(true);
    test_layer_t test;
    test_layer_describe(&test, &is);
    counts_t counts = {0, 0, 0};
    ffn_allocator_t allocator = counting(&counts);
    test.options.allocator = &allocator;
    test_layer_create(&test);
    assert_int_equal(counts.allocations - counts.releases, 1);
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(test.layer, &info));
    assert_int_equal(info.bytes, counts.bytes);
    layer_data_t data = layer_data_make(&test, 5, 2);
    int64_t allocations = counts.allocations;
    layer_data_run(&test, NULL, &data);
    assert_int_equal(counts.allocations, allocations);
    ffn_layer_free(test.layer);
    test.layer = NULL;
    assert_int_equal(counts.allocations, counts.releases);
    assert_int_equal(counts.bytes, 0);
    layer_data_free(&data);
    test_layer_free(&test);
}

static uint64_t scratch_of(ffn_context_t *context)
{
    ffn_context_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_context_info(context, &info));
    return info.scratch_bytes;
}

/* One matrix, used for up and for down, of few different numbers: what counts here is the size. */
static ffn_layer_t *large_layer(int64_t d_model, int64_t d_ff, bool gated)
{
    float *weights = test_alloc((size_t)(d_model * d_ff) * sizeof *weights);
    for (int64_t i = 0; i < d_model * d_ff; i++) weights[i] = (float)(i % 31 - 15) / 256;
    ffn_tensor_t tensors[3] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = weights, .shape = {d_ff, d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = weights, .shape = {d_model, d_ff}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = weights, .shape = {d_ff, d_model}}};
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                   .norm = {[FFN_NORM_IN] = FFN_NORM_LAYER}, .tensors = tensors, .tensor_count = gated ? 3 : 2};
    ffn_layer_t *layer;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    free(weights);
    return layer;
}

static void reserving_for_more_tokens_stops_growing_at_a_block(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++) {
        ffn_layer_t *layer = large_layer(512, 2048, gated);
        uint64_t scratch[3];
        static const int64_t tokens[3] = {1000, 100000, INT64_C(1) << 40};
        for (int i = 0; i < 3; i++) {
            ffn_context_t *context = counting_context(NULL, 2);
            assert_ok(ffn_context_reserve(context, layer, tokens[i]));
            scratch[i] = scratch_of(context);
            ffn_context_free(context);
        }
        assert_true(scratch[0] > 0);
        assert_true(scratch[1] == scratch[0]);
        assert_true(scratch[2] == scratch[0]);
        ffn_layer_free(layer);
    }
}

/* Real tokens of 512-2048, in place; a smaller layer where the run is slow. */
static void a_call_on_100000_tokens_holds_no_more_than_one_on_1000(void **state)
{
    (void)state;
    bool slow = test_quick() || strcmp(test_isa_cap(), "scalar") == 0;
    int64_t d_model = slow ? 16 : 512, d_ff = slow ? 32 : 2048, tokens = test_quick() ? 4000 : 100000;
    ffn_layer_t *layer = large_layer(d_model, d_ff, false);
    ffn_context_t *context = counting_context(NULL, 2);
    size_t size = (size_t)(tokens * d_model) * sizeof(float);
    float *x = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(x != MAP_FAILED);
    for (int64_t i = 0; i < tokens * d_model; i++) x[i] = (float)(i % 61) / 64;
    assert_ok(ffn_layer_forward(layer, context, 1000, x, 0, x, 0));
    uint64_t scratch = scratch_of(context);
    assert_ok(ffn_layer_forward(layer, context, tokens, x, 0, x, 0));
    assert_true(scratch_of(context) == scratch);
    munmap(x, size);
    ffn_context_free(context);
    ffn_layer_free(layer);
}

static void a_context_keeps_the_scratch_of_its_largest_layer_only(void **state)
{
    (void)state;
    ffn_layer_t *small = large_layer(16, 32, false), *large = large_layer(64, 256, true);
    ffn_context_t *context = counting_context(NULL, 2);
    assert_true(scratch_of(context) == 0);
    assert_ok(ffn_context_reserve(context, small, 1000));
    uint64_t of_small = scratch_of(context);
    assert_ok(ffn_context_reserve(context, large, 1000));
    uint64_t of_both = scratch_of(context);
    ffn_context_t *other = counting_context(NULL, 2);
    assert_ok(ffn_context_reserve(other, large, 1000));
    assert_true(of_small > 0 && of_small < of_both);
    assert_true(of_both == scratch_of(other));
    ffn_context_free(other);
    ffn_context_free(context);
    ffn_layer_free(small);
    ffn_layer_free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_context_gives_the_same_bits),
        cmocka_unit_test(every_context_packs_the_same_layer),
        cmocka_unit_test(forward_and_run_give_the_same_bits),
        cmocka_unit_test(two_calls_with_the_same_arguments_give_the_same_bits),
        cmocka_unit_test(a_warm_context_allocates_nothing),
        cmocka_unit_test(a_layer_is_one_allocation_and_gives_it_back),
        cmocka_unit_test(reserving_for_more_tokens_stops_growing_at_a_block),
        cmocka_unit_test(a_call_on_100000_tokens_holds_no_more_than_one_on_1000),
        cmocka_unit_test(a_context_keeps_the_scratch_of_its_largest_layer_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
