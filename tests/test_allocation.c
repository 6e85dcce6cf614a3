/* SPDX-License-Identifier: MIT
 *
 * Every allocation fails once, and so does all else that the system may refuse: threads, thread-specific keys. Each failure is FFN_NO_MEMORY
 * with a sentence (or fewer threads), loses nothing, and leaves handles that work when the memory is there again.
 *
 * The functions of the C library that are to fail are wrapped by the linker (--wrap in CMakeLists.txt).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cblas.h>

#include "support/failing_allocator.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/small_stack.h"

/* ------------------------------------------------- the system's functions, failing */

/* How a function behaves: the calls that go well before one fails, or -1 for all. Once it has failed it goes on failing. */
typedef struct fault {
    atomic_int spare;
    atomic_int calls;
} fault_t;

static fault_t no_memory = {-1, 0}, no_thread = {-1, 0}, no_key = {-1, 0}, no_value = {-1, 0};

static void fail_after(fault_t *fault, int spare)
{
    fault->spare = spare;
    fault->calls = 0;
}

static bool fails(fault_t *fault)
{
    int calls = atomic_fetch_add(&fault->calls, 1), spare = fault->spare;
    return spare >= 0 && calls >= spare;
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);
int __real_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(&no_memory) ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    return fails(&no_thread) ? EAGAIN : __real_pthread_create(thread, attributes, function, argument);
}

int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    return fails(&no_key) ? EAGAIN : __real_pthread_key_create(key, destructor);
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    return fails(&no_value) ? ENOMEM : __real_pthread_setspecific(key, value);
}

/* ------------------------------------------------------------------- fixtures */

enum { FEW = 5, MANY = 700, WIDTH = 24 };

static const layer_case_t layer_case = {
    .d_model = WIDTH, .d_ff = 40, .activation = FFN_ACTIVATION_SILU, .gated = true, .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT,
    .branch_scale = SCALE_ONE, .residual_scale = SCALE_VECTOR_TANH, .norm = {{FFN_NORM_LAYER, true, true, 0, 0}}, .seed = 8};

typedef struct fixture {
    test_layer_t test;
    float x[MANY * WIDTH], y[MANY * WIDTH];
    float few[FEW * WIDTH], many[MANY * WIDTH]; /* what is right */
} fixture_t;

static fixture_t fixture;

static void assert_untouched(const char *what)
{
    for (size_t i = 0; i < sizeof fixture.y; i++)
        if (((unsigned char *)fixture.y)[i] != 0xaa) fail_msg("%s: byte %zu of y was written", what, i);
}

static ffn_status_t forward(const ffn_layer_t *layer, ffn_context_t *context, int64_t tokens)
{
    memset(fixture.y, 0xaa, sizeof fixture.y);
    return ffn_layer_forward(layer, context, tokens, fixture.x, 0, fixture.y, 0);
}

static ffn_status_t run(const ffn_layer_t *layer, ffn_context_t *context, int64_t tokens)
{
    ffn_run_t given = {.struct_size = sizeof given, .batch = 1, .length = tokens, .x = fixture.x, .y = fixture.y};
    memset(fixture.y, 0xaa, sizeof fixture.y);
    return ffn_layer_run(layer, context, &given);
}

static void assert_right(int64_t tokens, const char *what)
{
    assert_same_bits(tokens == FEW ? fixture.few : fixture.many, fixture.y, tokens * WIDTH, what);
}

/* ------------------------------------------------------- the caller's allocator */

/* A whole life: context, layer, reserve, runs that need more and more. Each step is repeated with memory if it fails without, and is then right. */
typedef struct life {
    failing_allocator_t allocator;
    ffn_context_t *context;
    ffn_layer_t *layer;
} life_t;

static ffn_status_t make_context(life_t *life)
{
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 3, .allocator = &life->allocator.hook};
    life->context = NOWHERE;
    ffn_status_t status = ffn_context_create(&options, &life->context);
    if (status) assert_null(life->context);
    return status;
}

static ffn_status_t make_layer(life_t *life)
{
    ffn_layer_options_t options = fixture.test.options;
    options.allocator = &life->allocator.hook;
    life->layer = NOWHERE;
    ffn_status_t status = ffn_layer_create(life->context, &options, &life->layer);
    if (status) assert_null(life->layer);
    return status;
}

static ffn_status_t run_few(life_t *life)
{
    ffn_status_t status = run(life->layer, life->context, FEW);
    if (status) assert_untouched("run");
    else assert_right(FEW, "run");
    return status;
}

static bool is_native(const ffn_layer_t *layer)
{
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(layer, &info));
    return info.engine == FFN_ENGINE_NATIVE;
}

static ffn_status_t reserve(life_t *life)
{
    return ffn_context_reserve(life->context, life->layer, 100);
}

static ffn_status_t forward_many(life_t *life)
{
    ffn_status_t status = forward(life->layer, life->context, MANY);
    if (status) assert_untouched("forward");
    else assert_right(MANY, "forward");
    return status;
}

static ffn_status_t read_weights(life_t *life)
{
    float weights[40 * WIDTH];
    ffn_tensor_t view = {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = weights, .shape = {40, WIDTH}};
    ffn_status_t status = ffn_layer_read(life->layer, &view, 1);
    if (!status) assert_same_bits(fixture.test.plain[FFN_ROLE_UP_WEIGHT], weights, 40 * WIDTH, "read");
    return status;
}

static ffn_status_t tell(life_t *life)
{
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_layer_info_t layer_info = {.struct_size = sizeof layer_info};
    ffn_status_t status = ffn_context_info(life->context, &info);
    if (!status) status = ffn_layer_info(life->layer, &layer_info);
    return status;
}

typedef ffn_status_t step_t(life_t *life);
static step_t *const steps[] = {make_context, make_layer, tell, run_few, reserve, forward_many, read_weights, tell, run_few};

/* Lives with the n-th allocation failing; returns whether one did. */
static bool live(int64_t n, bool and_all_after)
{
    life_t life = {.context = NULL, .layer = NULL};
    bool failed = false;
    failing_allocator_init(&life.allocator);
    failing_allocator_arm(&life.allocator, n, and_all_after);
    for (int64_t i = 0; i < COUNT_OF(steps); i++) {
        int64_t held = life.allocator.held;
        char what[60];
        snprintf(what, sizeof what, "allocation %lld, step %lld", (long long)n, (long long)i);
        forget_error();
        ffn_status_t status = steps[i](&life);
        if (status) {
            assert_refused(status, FFN_NO_MEMORY, "cannot allocate|bytes for", what);
            assert_true(life.allocator.failed > 0);
            assert_int_equal(life.allocator.held, held);
            failing_allocator_disarm(&life.allocator);
            assert_ok(steps[i](&life));
            failed = true;
        }
    }
    ffn_layer_free(life.layer);
    ffn_context_free(life.context);
    assert_int_equal(life.allocator.held, 0);
    return failed;
}

static void every_allocation_of_a_life_may_fail(void **state)
{
    (void)state;
    for (int and_all_after = 0; and_all_after < 2; and_all_after++) {
        int64_t n = 1;
        while (live(n, and_all_after)) n++;
        /* context, pool, layer, scratch for few, for 100, for many: where blocks of the last are no larger than that of 100, one less */
        assert_in_range(n - 1, is_native(fixture.test.layer) ? 5 : 6, 6);
    }
}

/* ----------------------------------------- the default allocator, a context per thread */

typedef struct attempt {
    int spare;
    int64_t calls;
    ffn_status_t status, later;
    char text[320];
    bool untouched, right;
} attempt_t;

static bool is_right(const float *y)
{
    return memcmp(fixture.few, y, sizeof fixture.few) == 0;
}

/* A thread without a context of its own yet: the first call fails at the given allocation, the next has memory. */
static void *attempt_with(attempt_t *attempt, fault_t *fault)
{
    float y[FEW * WIDTH], canary[FEW * WIDTH];
    memset(y, 0xaa, sizeof y);
    memset(canary, 0xaa, sizeof canary);
    fail_after(fault, attempt->spare);
    attempt->status = ffn_layer_forward(fixture.test.layer, NULL, FEW, fixture.x, 0, y, 0);
    fail_after(fault, -1);
    snprintf(attempt->text, sizeof attempt->text, "%s", ffn_last_error());
    attempt->untouched = memcmp(y, canary, sizeof y) == 0;
    attempt->later = ffn_layer_forward(fixture.test.layer, NULL, FEW, fixture.x, 0, y, 0);
    attempt->right = is_right(y);
    return NULL;
}

static void *attempt_without_memory(void *attempt)
{
    return attempt_with(attempt, &no_memory);
}

static void *attempt_without_value(void *attempt)
{
    return attempt_with(attempt, &no_value);
}

static attempt_t in_a_new_thread(void *(*function)(void *), int spare)
{
    attempt_t attempt = {.spare = spare};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, &attempt), 0);
    pthread_join(thread, NULL);
    return attempt;
}

static void every_allocation_of_a_call_without_a_context_may_fail(void **state)
{
    (void)state;
    int spare = 0;
    for (;; spare++) {
        attempt_t attempt = in_a_new_thread(attempt_without_memory, spare);
        assert_int_equal(attempt.later, FFN_OK);
        assert_true(attempt.right);
        if (attempt.status == FFN_OK) break;
        assert_int_equal(attempt.status, FFN_NO_MEMORY);
        assert_non_null(strstr(attempt.text, "cannot allocate"));
        assert_true(attempt.untouched);
    }
    assert_int_equal(spare, 2); /* the thread's context, its scratch */
}

static void create_fails_without_memory_of_the_c_library(void **state)
{
    (void)state;
    ffn_layer_t *layer = NOWHERE;
    ffn_context_t *context = NOWHERE;
    ffn_context_options_t two = {.struct_size = sizeof two, .threads = 2};
    fail_after(&no_memory, 0);
    ffn_status_t status = ffn_layer_create(NULL, &fixture.test.options, &layer);
    ffn_status_t context_status = ffn_context_create(NULL, &context);
    fail_after(&no_memory, 1);
    ffn_context_t *half = NOWHERE;
    ffn_status_t half_status = ffn_context_create(&two, &half);
    fail_after(&no_memory, -1);
    assert_int_equal(context_status, FFN_NO_MEMORY);
    assert_refused(status, FFN_NO_MEMORY, "cannot allocate|bytes for", "create");
    assert_refused(half_status, FFN_NO_MEMORY, "cannot allocate|thread pool", "create");
    assert_null(layer);
    assert_null(context);
    assert_null(half);
}

static void a_thread_that_cannot_keep_its_context_is_told(void **state)
{
    (void)state;
    attempt_t attempt = in_a_new_thread(attempt_without_value, 0);
    assert_int_equal(attempt.status, FFN_NO_MEMORY);
    assert_non_null(strstr(attempt.text, "give a context"));
    assert_true(attempt.untouched);
    assert_int_equal(attempt.later, FFN_OK);
    assert_true(attempt.right);
}

/* In a process of its own, as the key is made once. Returns 0 if all is right. */
static int without_a_key(void)
{
    float y[FEW * WIDTH], canary[FEW * WIDTH];
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2};
    ffn_context_t *context;
    ffn_layer_t *layer = NOWHERE;
    ffn_context_info_t info = {.struct_size = sizeof info};
    memset(y, 0xaa, sizeof y);
    memset(canary, 0xaa, sizeof canary);
    fail_after(&no_key, 0);
    if (ffn_layer_create(NULL, &fixture.test.options, &layer) != FFN_NO_MEMORY || layer) return 1;
    if (!strstr(ffn_last_error(), "key") || !strstr(ffn_last_error(), "give a context")) return 2;
    if (ffn_context_create(&options, &context) != FFN_OK) return 3;
    if (ffn_layer_create(context, &fixture.test.options, &layer) != FFN_OK) return 4;
    if (ffn_layer_forward(layer, NULL, FEW, fixture.x, 0, y, 0) != FFN_NO_MEMORY || memcmp(y, canary, sizeof y)) return 5;
    if (ffn_context_info(NULL, &info) != FFN_NO_MEMORY) return 6;
    if (ffn_layer_forward(layer, context, FEW, fixture.x, 0, y, 0) != FFN_OK) return 7;
    ffn_layer_free(layer);
    ffn_context_free(context);
    return 0;
}

static int key_result; /* of the child that set_up forks before the key is made */

static void a_process_without_keys_needs_contexts(void **state)
{
    (void)state;
    assert_int_equal(key_result, 0);
}

/* -------------------------------------------------------------------- threads */

static void contexts_make_do_with_the_threads_they_get(void **state)
{
    (void)state;
    for (int spare = 0; spare <= 3; spare++) {
        ffn_context_options_t options = {.struct_size = sizeof options, .threads = 4};
        ffn_context_info_t info = {.struct_size = sizeof info};
        ffn_context_t *context;
        fail_after(&no_thread, spare);
        ffn_status_t status = ffn_context_create(&options, &context);
        fail_after(&no_thread, -1);
        assert_ok(status);
        assert_ok(ffn_context_info(context, &info));
        assert_int_equal(info.threads_requested, 4);
        assert_int_equal(info.threads, spare + 1);
        assert_ok(forward(fixture.test.layer, context, MANY));
        assert_right(MANY, "with fewer threads");
        ffn_context_free(context);
    }
}

/* A stack too small for OpenBLAS's threads asks for a larger one, which fails. */
static void run_on_a_small_stack(void *argument)
{
    attempt_t *attempt = argument;
    fail_after(&no_thread, 0);
    attempt->status = ffn_layer_forward(fixture.test.layer, NULL, MANY, fixture.x, 0, fixture.y, 0);
    attempt->calls = no_thread.calls;
    fail_after(&no_thread, -1);
    snprintf(attempt->text, sizeof attempt->text, "%s", ffn_last_error());
}

static void a_call_that_needs_a_larger_stack_fails_without_a_thread(void **state)
{
    (void)state;
    if (openblas_get_parallel() == 0 || is_native(fixture.test.layer)) skip();
    attempt_t attempt = {.status = 77};
    int before = openblas_get_num_threads();
    openblas_set_num_threads(2);
    memset(fixture.y, 0xaa, sizeof fixture.y);
    on_small_thread(run_on_a_small_stack, &attempt);
    openblas_set_num_threads(before);
    assert_int_equal(attempt.status, FFN_NO_MEMORY);
    assert_int_equal(attempt.calls, 1);
    assert_non_null(strstr(attempt.text, "stack"));
    assert_non_null(strstr(attempt.text, "cannot be started"));
    assert_untouched("small stack");
}

/* ------------------------------------------------------------------------ main */

static int set_up(void **state)
{
    (void)state;
    openblas_set_num_threads(1);
    test_layer_describe(&fixture.test, &layer_case);
    for (int64_t i = 0; i < MANY * WIDTH; i++) fixture.x[i] = (float)(i * 131 % 257) / 128 - 1;
    pid_t child = fork();
    if (child == 0) _exit(without_a_key());
    waitpid(child, &key_result, 0);
    test_layer_create(&fixture.test);
    assert_ok(forward(fixture.test.layer, NULL, FEW));
    memcpy(fixture.few, fixture.y, sizeof fixture.few);
    assert_ok(forward(fixture.test.layer, NULL, MANY));
    memcpy(fixture.many, fixture.y, sizeof fixture.many);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_layer_free(&fixture.test);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_life_may_fail),
        cmocka_unit_test(every_allocation_of_a_call_without_a_context_may_fail),
        cmocka_unit_test(create_fails_without_memory_of_the_c_library),
        cmocka_unit_test(a_thread_that_cannot_keep_its_context_is_told),
        cmocka_unit_test(a_process_without_keys_needs_contexts),
        cmocka_unit_test(contexts_make_do_with_the_threads_they_get),
        cmocka_unit_test(a_call_that_needs_a_larger_stack_fails_without_a_thread),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
