/* SPDX-License-Identifier: MIT
 *
 * What belongs to the host stays as it is, and does not change results: the floating-point environment, the locale, BLAS's threads, its processes.
 */
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cblas.h>

#include "support/compare.h"
#include "support/hostile.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum { TOKENS = 300, WIDTH = 48 };

typedef struct fixture {
    witness_t witness;
    test_layer_t test; /* work for several tasks, and products for several threads of BLAS */
    ffn_context_t *context;
    layer_data_t data;
    float *expected;
} fixture_t;

static fixture_t fixture;

static const layer_case_t layer_case = {
    .d_model = WIDTH, .d_ff = 160, .activation = FFN_ACTIVATION_ELU, .alpha = 0.7f, .gated = true, .biases = BIAS_ALL, .gate_max = 7,
    .residual = FFN_RESIDUAL_INPUT, .branch_scale = SCALE_VECTOR_TANH, .residual_scale = SCALE_ONE,
    .norm = {{FFN_NORM_LAYER, true, true, 0, 0}, {FFN_NORM_RMS, true, true, 0, 0}, {FFN_NORM_NONE, false, false, 0, 0}, {FFN_NORM_LAYER, true, true, 0, 1}},
    .seed = 21};

/* Every function, in success and in failure, with floats that are hard on flags: signalling NaNs, denormals, infinities. Returns what failed. */
static const char *call_everything(void)
{
    static const float hard[] = {NAN, INFINITY, 1e-42f, -0.0f, 3e38f};
    ffn_layer_options_t options = fixture.test.options;
    ffn_layer_t *layer = NULL;
    ffn_context_t *context = NULL;
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_layer_info_t layer_info = {.struct_size = sizeof layer_info};
    int64_t width, n = TOKENS * WIDTH;
    uint32_t activation, signalling = 0x7fa00000;
    if (ffn_context_create(NULL, &context) != FFN_OK || ffn_context_info(context, &info) != FFN_OK) return "context";
    if (ffn_layer_create(context, &options, &layer) != FFN_OK || ffn_layer_info(layer, &layer_info) != FFN_OK) return "layer";
    if (ffn_context_reserve(context, layer, 100) != FFN_OK) return "reserve";
    for (int i = 0; i < 2; i++) {
        memset(fixture.data.y, 0xff, (size_t)n * sizeof(float));
        if (ffn_layer_forward(layer, i ? context : fixture.context, TOKENS, fixture.data.x, 0, fixture.data.y, 0) != FFN_OK) return "forward";
        if (memcmp(fixture.expected, fixture.data.y, (size_t)n * sizeof(float))) return "bits of forward";
    }
    if (ffn_layer_forward(layer, context, TOKENS, fixture.data.x, 1, fixture.data.y, 0) != FFN_INVALID) return "refusal of forward";
    if (ffn_layer_read(layer, fixture.test.tensors, 1) != FFN_OK) return "read";
    if (ffn_gated_d_ff(3072, 1, &width) != FFN_OK || ffn_gated_d_ff(0, 1, &width) != FFN_INVALID) return "gated";
    if (ffn_activation_from_name("x", &activation) != FFN_INVALID || !ffn_build_info()) return "names";
    ffn_layer_free(layer);
    for (size_t i = 0; i <= sizeof hard / sizeof *hard; i++) {
        const float *value = i < sizeof hard / sizeof *hard ? &hard[i] : (const float *)&signalling;
        float *const fields[] = {&options.alpha, &options.beta, &options.gate_max, &options.up_limit, &options.up_offset,
                                 &options.norm_eps[0], &options.norm_offset[0], &options.norm_eps[2]};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
            float before = *fields[k];
            memcpy(fields[k], value, sizeof *value);
            if (ffn_layer_create(context, &options, &layer) == FFN_OK) ffn_layer_free(layer);
            memcpy(fields[k], &before, sizeof before);
        }
    }
    ffn_context_free(context);
    return NULL;
}

/* ----------------------------------------------------- the floating-point environment */

#if defined(__SSE__)

enum { DAZ = 0x40, FTZ = 0x8000, MASKS = 0x1f80, ROUND_DOWN = 0x2000, ROUND_UP = 0x4000, ROUND_TO_ZERO = 0x6000, FLAGS = 0x3f };

/* An emulated CPU, as valgrind's, may not have all of MXCSR. */
static void skip_if_not_kept(unsigned setting)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(setting);
    unsigned kept = _mm_getcsr();
    _mm_setcsr(before);
    if (kept != setting) skip();
}

static void mxcsr_is_left_alone_and_changes_no_bit(void **state)
{
    (void)state;
    static const unsigned settings[] = {
        MASKS,              MASKS | FTZ | DAZ,         MASKS | ROUND_DOWN,  MASKS | ROUND_UP,        MASKS | ROUND_TO_ZERO,
        MASKS | FLAGS,      MASKS | FTZ | DAZ | FLAGS, 0 /* all trap */,    ROUND_UP | FTZ | DAZ,    ROUND_DOWN,
        MASKS & ~0x0080u /* invalid traps */, MASKS & ~0x1000u /* inexact traps */, MASKS & ~0x0100u /* denormals trap */};
    unsigned before = _mm_getcsr();
    skip_if_not_kept(MASKS | FTZ | DAZ);
    for (int64_t i = 0; i < COUNT_OF(settings); i++) {
        _mm_setcsr(settings[i]);
        const char *wrong = call_everything();
        unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        if (wrong) fail_msg("MXCSR 0x%04x: %s (last error: %s)", settings[i], wrong, ffn_last_error());
        if (after != settings[i]) fail_msg("MXCSR was 0x%04x, is 0x%04x", settings[i], after);
    }
}

/* A denormal is a value like any other, also where the host takes it for 0. */
static void denormal_options_are_seen_with_daz(void **state)
{
    (void)state;
    ffn_layer_options_t options = fixture.test.options;
    ffn_layer_t *layer = NULL;
    unsigned before = _mm_getcsr();
    options.norm_eps[2] = 1e-42f; /* of no norm */
    _mm_setcsr(MASKS | FTZ | DAZ);
    ffn_status_t status = ffn_layer_create(NULL, &options, &layer);
    _mm_setcsr(before);
    assert_refused(status, FFN_INVALID, "norm_eps[BRANCH]", "a denormal eps");
    assert_null(layer);
}

#else
static void mxcsr_is_left_alone_and_changes_no_bit(void **state)
{
    (void)state;
    skip();
}
static void denormal_options_are_seen_with_daz(void **state)
{
    (void)state;
    skip();
}
#endif

/* fenv.h has the x87's environment too. */
static void the_c_environment_is_left_alone_and_changes_no_bit(void **state)
{
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    fenv_t before;
    fegetenv(&before);
    feenableexcept(FE_ALL_EXCEPT);
    bool traps_are_kept = fegetexcept() == FE_ALL_EXCEPT;
    fesetenv(&before);
    if (!traps_are_kept) skip();
    for (int64_t i = 0; i < COUNT_OF(modes); i++)
        for (int traps = 0; traps < 2; traps++) {
            fesetround(modes[i]);
            feclearexcept(FE_ALL_EXCEPT);
            if (traps) feenableexcept(FE_ALL_EXCEPT);
            const char *wrong = call_everything();
            int mode = fegetround(), trapping = fegetexcept(), flags = fetestexcept(FE_ALL_EXCEPT);
            fesetenv(&before);
            if (wrong) fail_msg("rounding mode %d, traps %d: %s (last error: %s)", modes[i], traps, wrong, ffn_last_error());
            assert_int_equal(mode, modes[i]);
            assert_int_equal(trapping, traps ? FE_ALL_EXCEPT : 0);
            assert_int_equal(flags, 0);
        }
}

/* A caller's parallel-for may run tasks on threads with an environment of their own. */
static void *run_task_in_odd_environment(void *argument)
{
    void **task = argument;
#if defined(__SSE__)
    _mm_setcsr(MASKS | ROUND_UP | FTZ | DAZ | 0x20);
#endif
    ((ffn_task_fn)task[0])(task[1], *(int64_t *)task[2]);
#if defined(__SSE__)
    task[3] = _mm_getcsr() == (MASKS | ROUND_UP | FTZ | DAZ | 0x20) ? task : NULL;
#else
    task[3] = task;
#endif
    return NULL;
}

static void parallel_on_odd_threads(void *user, int64_t count, ffn_task_fn task, void *data)
{
    for (int64_t i = 0; i < count; i++) {
        void *argument[4] = {(void *)task, data, &i, NULL};
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_task_in_odd_environment, argument)) abort();
        pthread_join(thread, NULL);
        *(int *)user += !argument[3];
    }
}

static void tasks_leave_the_environment_of_the_hosts_threads_alone(void **state)
{
    (void)state;
#if defined(__SSE__)
    skip_if_not_kept(MASKS | FTZ | DAZ);
#endif
    int changed = 0;
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2, .parallel_for = parallel_on_odd_threads, .parallel_user = &changed};
    ffn_context_t *context;
    assert_ok(ffn_context_create(&options, &context));
    memset(fixture.data.y, 0xff, TOKENS * WIDTH * sizeof(float));
    layer_data_run(&fixture.test, context, &fixture.data);
    assert_same_output(&fixture.test, TOKENS, fixture.expected, fixture.data.y, "on odd threads");
    assert_int_equal(changed, 0);
    ffn_context_free(context);
}

/* ------------------------------------------------------------------- the locale */

/* A locale file of glibc with nothing but LC_NUMERIC in it, as no locale need be installed: the decimal point, thousands separator, grouping,
 * the first two again as wide characters, the character set. */
static bool write_locale(const char *directory, const char *point, uint32_t wide_point)
{
    const uint32_t header[8] = {0x20031115 ^ LC_NUMERIC, 6, 32, 40, 44, 48, 52, 56};
    char file[300], data[64] = {0};
    memcpy(data, header, sizeof header);
    snprintf(data + 32, 8, "%s", point);
    memcpy(data + 40, ".\0\0", 4);
    memcpy(data + 44, "\3\3\0", 4);
    memcpy(data + 48, &wide_point, 4);
    memcpy(data + 52, &(uint32_t){'.'}, 4);
    memcpy(data + 56, "UTF-8", 6);
    snprintf(file, sizeof file, "%s/xx_XX", directory);
    mkdir(file, 0700);
    strcat(file, "/LC_NUMERIC");
    FILE *stream = fopen(file, "wb");
    if (!stream) return false;
    bool written = fwrite(data, 1, sizeof data, stream) == sizeof data;
    return fclose(stream) == 0 && written;
}

static void check_sentence_in_locale(const char *point)
{
    ffn_layer_options_t options = fixture.test.options;
    ffn_layer_t *layer = NULL;
    char formatted[40];
    options.norm_eps[0] = -0.015625f;
    ffn_status_t status = ffn_layer_create(NULL, &options, &layer);
    snprintf(formatted, sizeof formatted, "%.1f", 1.5);
    char expected[20];
    snprintf(expected, sizeof expected, "1%s5", point);
    assert_string_equal(formatted, expected); /* the locale is in force, and still is */
    assert_refused(status, FFN_INVALID, "norm_eps[IN] is -0.015625,", "in a locale");
    assert_still_right(&fixture.witness, NULL, "in a locale");
}

static void decimal_commas_do_not_get_into_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t wide;
    } points[] = {{",", ','}, {"\u066b", 0x66b}};
    char directory[] = "/tmp/ffn-locale-XXXXXX", command[80];
    if (!mkdtemp(directory)) fail_msg("mkdtemp: %s", strerror(errno));
    setenv("LOCPATH", directory, 1);
    bool available = true;
    for (int64_t i = 0; available && i < COUNT_OF(points); i++) {
        assert_true(write_locale(directory, points[i].text, points[i].wide));
        available = setlocale(LC_NUMERIC, "xx_XX") != NULL;
        if (available) check_sentence_in_locale(points[i].text);
        setlocale(LC_NUMERIC, "C");
    }
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
    if (!available) skip(); /* not glibc, or another format of its files */
}

/* ------------------------------------------------------------------ BLAS, signals */

static void threads_of_blas_are_left_alone(void **state)
{
    (void)state;
    if (openblas_get_parallel() == 0) skip();
    int before = openblas_get_num_threads();
    for (int threads = 1; threads <= 3; threads++) {
        openblas_set_num_threads(threads);
        layer_data_run(&fixture.test, NULL, &fixture.data);
        memcpy(fixture.expected, fixture.data.y, TOKENS * WIDTH * sizeof(float));
        int set = openblas_get_num_threads();
        const char *wrong = call_everything();
        int after = openblas_get_num_threads();
        openblas_set_num_threads(before);
        if (wrong) fail_msg("%d threads: %s (last error: %s)", threads, wrong, ffn_last_error());
        assert_int_equal(after, set);
    }
    openblas_set_num_threads(1);
    layer_data_run(&fixture.test, NULL, &fixture.data);
    memcpy(fixture.expected, fixture.data.y, TOKENS * WIDTH * sizeof(float));
}

static void signal_masks_and_handlers_are_left_alone(void **state)
{
    (void)state;
    sigset_t some, mask;
    struct sigaction action;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &some, &mask);
    const char *wrong = call_everything();
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, &mask, &after);
    assert_null(wrong);
    for (int number = 1; number < 32; number++) {
        assert_int_equal(sigismember(&after, number), number == SIGUSR2);
        assert_int_equal(sigaction(number, NULL, &action), 0);
        if (number == SIGPIPE || number == SIGUSR1) assert_true(action.sa_handler == SIG_DFL);
    }
}

static int set_up(void **state)
{
    (void)state;
    openblas_set_num_threads(1);
    witness_make(&fixture.witness, &witness_case);
    test_layer_make(&fixture.test, &layer_case);
    fixture.data = layer_data_make(&fixture.test, TOKENS, 3);
    layer_data_run(&fixture.test, NULL, &fixture.data);
    fixture.expected = test_alloc(TOKENS * WIDTH * sizeof(float));
    memcpy(fixture.expected, fixture.data.y, TOKENS * WIDTH * sizeof(float));
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = 2};
    return ffn_context_create(&options, &fixture.context);
}

static int tear_down(void **state)
{
    (void)state;
    witness_free(&fixture.witness);
    layer_data_free(&fixture.data);
    test_layer_free(&fixture.test);
    ffn_context_free(fixture.context);
    free(fixture.expected);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mxcsr_is_left_alone_and_changes_no_bit),
        cmocka_unit_test(denormal_options_are_seen_with_daz),
        cmocka_unit_test(the_c_environment_is_left_alone_and_changes_no_bit),
        cmocka_unit_test(tasks_leave_the_environment_of_the_hosts_threads_alone),
        cmocka_unit_test(decimal_commas_do_not_get_into_sentences),
        cmocka_unit_test(threads_of_blas_are_left_alone),
        cmocka_unit_test(signal_masks_and_handlers_are_left_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
