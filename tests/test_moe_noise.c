/* SPDX-License-Identifier: MIT
 *
 * Jitter and noise of routers: the numbers of the header's words, in every split and at every level; their distributions; derivatives; what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "kernels/training.h"
#include "support/compare.h"
#include "support/guard.h"
#include "support/hostile.h"
#include "support/kernel_levels.h"
#include "support/philox_reference.h"
#include "support/random.h"
#include "support/test.h"

/* u of the header. */
static double uniform(const ffn_moe_noise_t *noise, int64_t row, int64_t column)
{
    const uint64_t r = (uint64_t)noise->first_row + (uint64_t)row;
    const uint32_t counter[4] = {noise->site * (1u << 28) + (uint32_t)(column / 4), (uint32_t)r, (uint32_t)noise->step,
                                 (uint32_t)(noise->layer * 65536 + (r >> 32))};
    const uint32_t key[2] = {(uint32_t)noise->seed, (uint32_t)(noise->seed >> 32)};
    uint32_t word[4];
    philox_reference(counter, key, word);
    return ((double)word[column % 4] + 0.5) / 4294967296.0;
}

/* The z with Phi(z) = u, by bisection. */
static double normal(double u)
{
    double low = -8, high = 8;
    for (int i = 0; i < 80; i++) {
        const double middle = 0.5 * (low + high);
        if (0.5 * erfc(-middle / sqrt(2)) < u) low = middle;
        else high = middle;
    }
    return low;
}

static ffn_moe_noise_t noise_of(uint32_t site, float size)
{
    return (ffn_moe_noise_t){.struct_size = sizeof(ffn_moe_noise_t), .site = site, .seed = 0xfedcba9876543210u, .step = UINT32_MAX - 1, .layer = 65534,
                             .first_row = (INT64_C(1) << 48) - 2000, .size = size};
}

/* ------------------------------------------------------------ The right numbers */

static void jitter_is_that_of_the_header_at_every_width(void **state)
{
    (void)state;
    for (int64_t width = 1; width <= 140; width += width < 70 ? 1 : 23)
        for (uint32_t site = FFN_MOE_SITE_INPUT; site <= FFN_MOE_SITE_LOGITS; site++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const ffn_moe_noise_t noise = noise_of(site, width % 2 ? 0.01f : 1);
                float in[5 * 150], out[5 * 150], *to = in_place ? in : out;
                float before[5 * 150];
                rng_t rng = rng_make((uint64_t)width);
                rng_fill_normal(&rng, in, 5 * 150);
                memcpy(before, in, sizeof in);
                for (int i = 0; i < 5 * 150; i++) out[i] = 42;
                assert_ok(ffn_moe_jitter(NULL, &noise, 5, width, in, 600, to, 600));
                for (int64_t r = 0; r < 5; r++)
                    for (int64_t j = 0; j < 150; j++) {
                        const float factor = (float)(1 + (double)noise.size * (2 * uniform(&noise, r, j) - 1));
                        const float target = j < width ? before[r * 150 + j] * factor : in_place ? before[r * 150 + j] : 42;
                        if (ulp_distance(to[r * 150 + j], target) > 1)
                            fail_msg("width %d, row %d, column %d: expected %.9g, got %.9g", (int)width, (int)r, (int)j, (double)target, (double)to[r * 150 + j]);
                    }
            }
}

static void noise_is_that_of_the_header(void **state)
{
    (void)state;
    for (int64_t experts = 1; experts <= 70; experts += 3)
        for (int gated = 0; gated < 2; gated++)
            for (int sized = 0; sized < 2; sized++) {
                const ffn_moe_noise_t noise = noise_of(FFN_MOE_SITE_NOISE, sized ? 0.25f : 0);
                float logits[4 * 70], raw[4 * 70], before[4 * 70];
                rng_t rng = rng_make((uint64_t)experts);
                rng_fill_normal(&rng, logits, 4 * experts), rng_fill_normal(&rng, raw, 4 * experts);
                memcpy(before, logits, sizeof logits);
                assert_ok(ffn_moe_add_noise(NULL, &noise, 4, experts, gated ? raw : NULL, logits));
                for (int64_t i = 0; i < 4 * experts; i++) {
                    const double z = normal(uniform(&noise, i / experts, i % experts)), size = (double)noise.size + (gated ? log1p(exp((double)raw[i])) : 0);
                    const double target = (double)before[i] + size * z;
                    assert_near((double)logits[i], target, 0x1p-24 * fabs(target) + 1e-10);
                    if (size == 0) assert_same_bits(&before[i], &logits[i], 1, "no noise");
                }
            }
}

/* Known answers, computed apart from this program, so that no change of the streams goes unseen. */
static void a_few_numbers_are_known(void **state)
{
    (void)state;
    ffn_moe_noise_t noise = {.struct_size = sizeof noise, .site = FFN_MOE_SITE_INPUT, .seed = 1, .step = 2, .layer = 3, .first_row = 4, .size = 1};
    const float ones[6] = {1, 1, 1, 1, 1, 1};
    float jitter[6], normals[6] = {0};
    assert_ok(ffn_moe_jitter(NULL, &noise, 1, 6, ones, 0, jitter, 0));
    noise.site = FFN_MOE_SITE_NOISE;
    assert_ok(ffn_moe_add_noise(NULL, &noise, 1, 6, NULL, normals));
    static const float jitters[6] = {1.4045459f, 1.50825775f, 1.94001424f, 1.08890128f, 1.3528285f, 1.22010338f}, noises[6] = {-0.687312305f, 1.01406872f, -0.76408267f, 0.323838711f, 1.98032749f, 0.154429212f};
    assert_same_bits(jitters, jitter, 6, "jitter");
    assert_same_bits(noises, normals, 6, "noise");
}

/* ------------------------------------------------------- The same in every way */

static void splits_and_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    enum { ROWS = 333, WIDTH = 129, EXPERTS = 24 };
    static float in[ROWS * WIDTH], whole[ROWS * WIDTH], out[ROWS * WIDTH], logits[ROWS * EXPERTS], noisy[ROWS * EXPERTS], other[ROWS * EXPERTS];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, in, ROWS * WIDTH), rng_fill_normal(&rng, logits, ROWS * EXPERTS);
    memcpy(noisy, logits, sizeof logits);
    const ffn_moe_noise_t shake = noise_of(FFN_MOE_SITE_INPUT, 0.1f), add = noise_of(FFN_MOE_SITE_NOISE, 0.1f);
    assert_ok(ffn_moe_jitter(NULL, &shake, ROWS, WIDTH, in, 0, whole, 0));
    assert_ok(ffn_moe_add_noise(NULL, &add, ROWS, EXPERTS, NULL, noisy));
    for (uint32_t threads = 1; threads <= 7; threads++) {
        const ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
        ffn_context_t *context;
        assert_ok(ffn_context_create(&options, &context));
        memcpy(other, logits, sizeof logits);
        for (int64_t begin = 0, count = 1; begin < ROWS; begin += count, count = threads * 50) {
            if (count > ROWS - begin) count = ROWS - begin;
            ffn_moe_noise_t part = shake, part_add = add;
            part.first_row += begin, part_add.first_row += begin;
            assert_ok(ffn_moe_jitter(context, &part, count, WIDTH, in + begin * WIDTH, 0, out + begin * WIDTH, 0));
            assert_ok(ffn_moe_add_noise(context, &part_add, count, EXPERTS, NULL, other + begin * EXPERTS));
        }
        assert_same_bits(whole, out, ROWS * WIDTH, "jitter");
        assert_same_bits(noisy, other, ROWS * EXPERTS, "noise");
        ffn_context_free(context);
    }
}

static void every_level_draws_the_same_and_keeps_to_its_operands(void **state)
{
    (void)state;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    const int count = kernel_levels(levels);
    const jitter_t noise = {.seed = 7, .counter = {5u << 28, 5, 6, 7}, .size = 0.3f};
    rng_t rng = rng_make(test_seed());
    for (int64_t n = 0; n <= 200; n += n < 70 ? 1 : 13)
        for (int in_place = 0; in_place < 2; in_place++) {
            float source[200], expected[200];
            rng_fill_normal(&rng, source, n);
            levels[0].table->training->jitter(&noise, n, expected, source);
            for (int l = 0; l < count; l++) {
                guard_buffer_t in = guard_alloc((size_t)n * 4, GUARD_AFTER), out = guard_alloc((size_t)n * 4, GUARD_AFTER);
                float *to = in_place ? in.data : out.data;
                if (n) memcpy(in.data, source, (size_t)n * 4);
                levels[l].table->training->jitter(&noise, n, to, in.data);
                assert_same_bits(expected, to, n, levels[l].name);
                guard_free(&in), guard_free(&out);
            }
        }
}

static void size_0_leaves_alone_and_no_rows_look_at_nothing(void **state)
{
    (void)state;
    const ffn_moe_noise_t none = noise_of(FFN_MOE_SITE_INPUT, 0), add = noise_of(FFN_MOE_SITE_NOISE, 1);
    const float in[6] = {0, -0.0f, 1e-45f, INFINITY, -3e38f, 1};
    float out[6];
    assert_ok(ffn_moe_jitter(NULL, &none, 2, 3, in, 0, out, 0));
    assert_same_bits(in, out, 6, "size 0");
    assert_ok(ffn_moe_jitter(NULL, &none, 0, 3, NULL, 0, NULL, 0));
    assert_ok(ffn_moe_add_noise(NULL, &add, 0, 3, NULL, NULL));
    assert_ok(ffn_moe_add_noise_backward(NULL, &add, 0, 3, NULL, NULL, NULL));
}

/* ------------------------------------------------------------------ Derivatives */

/* Jitter is a diagonal matrix: the same call goes back. Noise on logits: central differences by noise_logits. */
static void the_backward_passes_are_the_derivatives(void **state)
{
    (void)state;
    enum { T = 6, E = 9 };
    float raw[T * E], logits[T * E], d[T * E], d_raw[T * E], back[T * E], forth[T * E];
    rng_t rng = rng_make(test_seed());
    rng_fill_normal(&rng, raw, T * E), rng_fill_normal(&rng, d, T * E), rng_fill_normal(&rng, logits, T * E);
    const ffn_moe_noise_t noise = noise_of(FFN_MOE_SITE_NOISE, 0.5f), jitter = noise_of(FFN_MOE_SITE_LOGITS, 0.5f);
    assert_ok(ffn_moe_add_noise_backward(NULL, &noise, T, E, raw, d, d_raw));
    for (int i = 0; i < T * E; i++) {
        const double z = normal(uniform(&noise, i / E, i % E)), step = 1e-6, at = (double)raw[i];
        const double slope = (log1p(exp(at + step)) - log1p(exp(at - step))) / (2 * step) * z * (double)d[i];
        assert_near((double)d_raw[i], slope, 1e-8 + 0x1p-24 * fabs(slope));
    }
    assert_ok(ffn_moe_jitter(NULL, &jitter, T, E, logits, 0, forth, 0));
    assert_ok(ffn_moe_jitter(NULL, &jitter, T, E, d, 0, back, 0));
    for (int i = 0; i < T * E; i++) assert_near((double)back[i] / (double)d[i], (double)forth[i] / (double)logits[i], 4e-7);
    const float hard[4] = {-1e4f, 1e4f, -INFINITY, 0}, one[4] = {1, 1, 1, 1};
    float d_hard[4], noisy[4] = {0};
    assert_ok(ffn_moe_add_noise_backward(NULL, &noise, 1, 4, hard, one, d_hard));
    assert_ok(ffn_moe_add_noise(NULL, &noise, 1, 4, hard, noisy));
    for (int i = 0; i < 4; i++) assert_true(isfinite(d_hard[i]) && isfinite(noisy[i]));
    assert_true(d_hard[0] == 0 && d_hard[2] == 0);
}

/* --------------------------------------------------------------------- Statistics */

enum { SAMPLE_ROWS = 512, SAMPLE_WIDTH = 256, SAMPLE = SAMPLE_ROWS * SAMPLE_WIDTH };

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The largest distance between the sample's distribution and the one that it should have (Kolmogorov, Smirnov). */
static double distance(const float *sample, int is_normal)
{
    static float sorted[SAMPLE];
    double most = 0;
    memcpy(sorted, sample, sizeof sorted);
    qsort(sorted, SAMPLE, sizeof *sorted, by_size);
    for (int i = 0; i < SAMPLE; i++) {
        const double p = is_normal ? 0.5 * erfc(-(double)sorted[i] / sqrt(2)) : 0.5 * ((double)sorted[i] + 1);
        most = fmax(most, fmax(fabs(p - (double)i / SAMPLE), fabs(p - (double)(i + 1) / SAMPLE)));
    }
    return most;
}

static double correlation(const float *a, const float *b, int64_t lag)
{
    double sum = 0, square_a = 0, square_b = 0;
    for (int64_t i = lag; i < SAMPLE; i++) {
        sum += (double)a[i] * (double)b[i - lag];
        square_a += (double)a[i] * (double)a[i], square_b += (double)b[i - lag] * (double)b[i - lag];
    }
    return sum / sqrt(square_a * square_b);
}

/* Each a sum of independent numbers if the streams are what they should be: within 5 standard deviations. */
static void the_distributions_are_right_and_the_streams_independent(void **state)
{
    (void)state;
    if (test_quick()) skip();
    static const ffn_moe_noise_t variants[] = {{.seed = 1}, {.seed = 2}, {.seed = UINT64_C(1) << 32}, {.seed = 1, .step = 1}, {.seed = 1, .layer = 1},
                                               {.seed = 1, .first_row = SAMPLE_ROWS}, {.seed = 1, .first_row = INT64_C(1) << 32}};
    enum { VARIANTS = sizeof variants / sizeof *variants, SAMPLES = VARIANTS + 2 };
    static float sample[SAMPLES][SAMPLE];
    for (int v = 0; v < SAMPLES; v++) {
        ffn_moe_noise_t noise = variants[v < VARIANTS ? v : 0];
        noise.struct_size = sizeof noise, noise.size = 1;
        if (v == VARIANTS + 1) {
            noise.site = FFN_MOE_SITE_NOISE;
            memset(sample[v], 0, sizeof sample[v]);
            assert_ok(ffn_moe_add_noise(NULL, &noise, SAMPLE_ROWS, SAMPLE_WIDTH, NULL, sample[v]));
        } else {
            noise.site = v == VARIANTS ? FFN_MOE_SITE_LOGITS : FFN_MOE_SITE_INPUT;
            for (int i = 0; i < SAMPLE; i++) sample[v][i] = 1;
            assert_ok(ffn_moe_jitter(NULL, &noise, SAMPLE_ROWS, SAMPLE_WIDTH, sample[v], 0, sample[v], 0));
            for (int i = 0; i < SAMPLE; i++) assert_true(sample[v][i] >= 0 && sample[v][i] <= 2);
            for (int i = 0; i < SAMPLE; i++) sample[v][i] -= 1;
        }
    }
    for (int v = 0; v < SAMPLES; v++) {
        double mean = 0, square = 0;
        const double variance = v == VARIANTS + 1 ? 1 : 1.0 / 3;
        for (int i = 0; i < SAMPLE; i++) mean += (double)sample[v][i], square += (double)sample[v][i] * (double)sample[v][i];
        assert_near(mean / SAMPLE, 0, 5 * sqrt(variance / SAMPLE));
        assert_near(square / SAMPLE, variance, 5 * sqrt((v == VARIANTS + 1 ? 2 : 4.0 / 45) / SAMPLE));
        assert_near(distance(sample[v], v == VARIANTS + 1), 0, 2 / sqrt(SAMPLE)); /* beyond it once in 1500 */
        assert_near(correlation(sample[v], sample[v], 1), 0, 5 / sqrt(SAMPLE));
        assert_near(correlation(sample[v], sample[v], 4), 0, 5 / sqrt(SAMPLE));
        assert_near(correlation(sample[v], sample[v], SAMPLE_WIDTH), 0, 5 / sqrt(SAMPLE));
        for (int w = 0; w < v; w++) assert_near(correlation(sample[v], sample[w], 0), 0, 5 / sqrt(SAMPLE));
    }
}

/* -------------------------------------------------------------------- Refused */

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define NOISE(field, ...) PATCH(ffn_moe_noise_t, field, __VA_ARGS__)

static const refused_t refusals[] = {
    {NOISE(struct_size, 2), "struct_size"},
    {NOISE(reserved, 1), "reserved of the noise is 1"},
    {NOISE(step, UINT64_C(1) << 32), "step of the noise is 4294967296|4294967295"},
    {NOISE(layer, 65535), "layer of the noise is 65535|65534"},
    {NOISE(first_row, -1), "first_row of the noise is -1"},
    {NOISE(first_row, (INT64_C(1) << 48) - 1), "first_row of the noise|2 rows|2^48"},
    {NOISE(size, -1), "size of the noise is -1"},
    {NOISE(size, NAN), "size of the noise is"},
    {NOISE(size, INFINITY), "size of the noise is inf"},
};

static void wrong_noise_is_refused(void **state)
{
    (void)state;
    float in[64] = {0}, out[64];
    const ffn_moe_noise_t right = {.struct_size = sizeof right, .site = FFN_MOE_SITE_INPUT, .size = 0.1f};
    ffn_moe_noise_t add = right, large = right, dropout = right;
    add.site = FFN_MOE_SITE_NOISE, large.size = 1.5f, dropout.site = FFN_DROPOUT_PATH;
    for (int i = 0; i < 64; i++) out[i] = 42;
    for (int64_t i = 0; i < COUNT_OF(refusals); i++) {
        ffn_moe_noise_t shake = right, noise = add;
        patch_apply(&refusals[i].patch, &shake);
        patch_apply(&refusals[i].patch, &noise);
        forget_error();
        assert_refused(ffn_moe_jitter(NULL, &shake, 2, 3, in, 0, out, 0), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
        assert_refused(ffn_moe_add_noise(NULL, &noise, 2, 3, NULL, out), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
        assert_refused(ffn_moe_add_noise_backward(NULL, &noise, 2, 3, in, in + 6, out), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
    }
    assert_refused(ffn_moe_jitter(NULL, &large, 2, 3, in, 0, out, 0), FFN_INVALID, "size of the noise is 1.5|1", "size");
    assert_refused(ffn_moe_jitter(NULL, &dropout, 2, 3, in, 0, out, 0), FFN_INVALID, "site of the noise is 4|5 to 6", "site");
    assert_refused(ffn_moe_jitter(NULL, &add, 2, 3, in, 0, out, 0), FFN_INVALID, "site of the noise is 7|5 to 6", "site");
    assert_refused(ffn_moe_jitter(NULL, NULL, 2, 3, in, 0, out, 0), FFN_INVALID, "ffn_moe_noise_t is NULL", "noise");
    assert_refused(ffn_moe_jitter(NULL, &right, -1, 3, in, 0, out, 0), FFN_INVALID, "rows is -1", "rows");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 0, in, 0, out, 0), FFN_INVALID, "width is 0", "width");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 3, NULL, 0, out, 0), FFN_INVALID, "in is NULL", "in");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 3, in, 0, NULL, 0), FFN_INVALID, "out is NULL", "out");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 3, in, 8, out, 0), FFN_INVALID, "stride of in is 8", "stride");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 3, in, 0, out, 8), FFN_INVALID, "stride of out is 8", "stride");
    assert_refused(ffn_moe_jitter(NULL, &right, 2, 3, out + 1, 0, out, 0), FFN_INVALID, "out|in", "overlap");
    assert_refused(ffn_moe_add_noise(NULL, &right, 2, 3, NULL, out), FFN_INVALID, "site of the noise is 5|7", "site");
    assert_refused(ffn_moe_add_noise(NULL, &add, 2, 0, NULL, out), FFN_INVALID, "experts is 0", "experts");
    assert_refused(ffn_moe_add_noise(NULL, &add, 2, 769, NULL, out), FFN_INVALID, "experts is 769", "experts");
    assert_refused(ffn_moe_add_noise(NULL, &add, -2, 3, NULL, out), FFN_INVALID, "rows is -2", "tokens");
    assert_refused(ffn_moe_add_noise(NULL, &add, 2, 3, out + 1, out), FFN_INVALID, "noise_logits overlaps logits", "overlap");
    assert_refused(ffn_moe_add_noise(NULL, &add, 2, 3, NULL, NULL), FFN_INVALID, "logits is NULL", "logits");
    assert_refused(ffn_moe_add_noise(NULL, NULL, 2, 3, NULL, out), FFN_INVALID, "ffn_moe_noise_t is NULL", "noise");
    assert_refused(ffn_moe_add_noise_backward(NULL, &add, 2, 3, NULL, in, out), FFN_INVALID, "noise_logits is NULL", "noise_logits");
    assert_refused(ffn_moe_add_noise_backward(NULL, &add, 2, 3, in, NULL, out), FFN_INVALID, "d_logits is NULL", "d_logits");
    assert_refused(ffn_moe_add_noise_backward(NULL, &add, 2, 3, in, in + 6, NULL), FFN_INVALID, "d_noise_logits is NULL", "d_noise_logits");
    assert_refused(ffn_moe_add_noise_backward(NULL, &add, 2, 3, in, out + 3, out), FFN_INVALID, "d_logits overlaps d_noise_logits", "overlap");
    for (int i = 0; i < 64; i++) assert_true(out[i] == 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jitter_is_that_of_the_header_at_every_width),
        cmocka_unit_test(noise_is_that_of_the_header),
        cmocka_unit_test(a_few_numbers_are_known),
        cmocka_unit_test(splits_and_threads_do_not_change_a_bit),
        cmocka_unit_test(every_level_draws_the_same_and_keeps_to_its_operands),
        cmocka_unit_test(size_0_leaves_alone_and_no_rows_look_at_nothing),
        cmocka_unit_test(the_backward_passes_are_the_derivatives),
        cmocka_unit_test(the_distributions_are_right_and_the_streams_independent),
        cmocka_unit_test(wrong_noise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
