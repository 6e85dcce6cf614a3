/* SPDX-License-Identifier: MIT
 *
 * Philox against its published known answers, and ffn_weight_init: the numbers that the header promises, the distributions of all schemes, and
 * what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ffn/ffn.h"
#include "kernels/philox.h"
#include "support/compare.h"
#include "support/hostile.h"
#include "support/philox_reference.h"
#include "support/test.h"

/* ------------------------------------------------------------------ Philox */

typedef struct known_answer {
    uint32_t counter[4], key[2], out[4];
} known_answer_t;

/* Random123's kat_vectors, philox4x32 with 10 rounds. */
static const known_answer_t known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void philox_gives_the_published_known_answers(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(known_answers); i++) {
        const known_answer_t *is = &known_answers[i];
        philox_t counter;
        uint32_t reference[4];
        memcpy(counter.word, is->counter, sizeof counter.word);
        const philox_t got = philox(counter, is->key[0] | (uint64_t)is->key[1] << 32);
        philox_reference(is->counter, is->key, reference);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(got.word[j], is->out[j]);
            assert_int_equal(reference[j], is->out[j]);
        }
    }
}

/* ------------------------------------------------------------- The schemes */

enum { N = 1 << 18 };

typedef struct scheme_case {
    const char *name;
    ffn_init_options_t options;
    double deviation; /* of the distribution */
    double limit;     /* of the size; 0: none */
} scheme_case_t;

#define SIZE .struct_size = sizeof(ffn_init_options_t)
#define SQRT_3 1.7320508075688772

/* in 768, out 3072, 12 layers; expected values from the papers' formulas. */
static const scheme_case_t schemes[] = {
    {"xavier uniform", {SIZE, .scheme = FFN_INIT_XAVIER_UNIFORM, .fan_in = 768, .fan_out = 3072}, 0.03952847075210474 / SQRT_3, 0.03952847075210474},
    {"xavier uniform, gain", {SIZE, .scheme = FFN_INIT_XAVIER_UNIFORM, .gain = 2, .fan_in = 768, .fan_out = 3072}, 0.07905694150420949 / SQRT_3,
     0.07905694150420949},
    {"xavier normal", {SIZE, .scheme = FFN_INIT_XAVIER_NORMAL, .fan_in = 768, .fan_out = 3072}, 0.022821773229381923, 0},
    {"kaiming uniform", {SIZE, .scheme = FFN_INIT_KAIMING_UNIFORM, .fan_in = 768}, 0.08838834764831845 / SQRT_3, 0.08838834764831845},
    {"kaiming normal", {SIZE, .scheme = FFN_INIT_KAIMING_NORMAL, .fan_in = 768}, 0.05103103630798288, 0},
    {"lecun normal", {SIZE, .scheme = FFN_INIT_LECUN_NORMAL, .fan_in = 768}, 0.03608439182435161, 0},
    {"lecun normal, cut at 2, variance kept",
     {SIZE, .flags = FFN_INIT_KEEP_VARIANCE, .scheme = FFN_INIT_LECUN_NORMAL, .fan_in = 768, .cutoff = 2}, 0.03608439182435161,
     2 * 0.03608439182435161 / 0.87962566103423978},
    {"normal", {SIZE, .scheme = FFN_INIT_NORMAL}, 0.02, 0},
    {"normal, 0.5", {SIZE, .scheme = FFN_INIT_NORMAL, .gain = 0.5f}, 0.5, 0},
    {"truncated normal", {SIZE, .scheme = FFN_INIT_TRUNCATED_NORMAL}, 0.02 * 0.87962566103423978, 0.04},
    {"truncated normal at 3", {SIZE, .scheme = FFN_INIT_TRUNCATED_NORMAL, .gain = 1, .cutoff = 3}, 0.98657827, 3},
    {"truncated normal at 1e-6, variance kept",
     {SIZE, .flags = FFN_INIT_KEEP_VARIANCE, .scheme = FFN_INIT_TRUNCATED_NORMAL, .gain = 1, .cutoff = 1e-6f}, 1, SQRT_3 * (1 + 1e-6)},
    {"torch linear", {SIZE, .scheme = FFN_INIT_TORCH_LINEAR, .fan_in = 768}, 0.03608439182435161 / SQRT_3, 0.03608439182435161},
    {"t5", {SIZE, .scheme = FFN_INIT_T5, .fan_in = 768}, 0.03608439182435161, 0},
    {"gpt-2 scaled", {SIZE, .scheme = FFN_INIT_GPT2_SCALED, .layers = 12}, 0.004082482904638631, 0},
    {"neox small", {SIZE, .scheme = FFN_INIT_NEOX_SMALL, .fan_in = 768}, 0.022821773229381923, 0},
    {"neox wang", {SIZE, .scheme = FFN_INIT_NEOX_WANG, .fan_out = 768, .layers = 12}, 0.006014065304058602, 0},
    {"uniform unit scaling", {SIZE, .scheme = FFN_INIT_UNIFORM_UNIT_SCALING, .gain = 2, .fan_in = 768, .fan_out = 3072},
     0.055901699437494741 / SQRT_3, 0.055901699437494741},
};

static float *filled(const ffn_init_options_t *options, uint64_t seed, uint64_t stream)
{
    ffn_init_options_t with = *options;
    float *values = test_alloc(N * sizeof *values);
    with.seed = seed;
    with.stream = stream;
    assert_ok(ffn_weight_init(values, N, &with));
    return values;
}

/* Mean within 5 of its standard deviations, variance within 5 of its (a normal's, which is the largest of these). */
static void every_scheme_has_its_mean_its_deviation_and_its_limit(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(schemes); c++) {
        const scheme_case_t *is = &schemes[c];
        float *values = filled(&is->options, test_seed(), (uint64_t)c);
        double mean = 0, square = 0, largest = largest_magnitude(values, N);
        for (int64_t i = 0; i < N; i++) mean += (double)values[i] / N;
        for (int64_t i = 0; i < N; i++) square += (double)values[i] * (double)values[i] / N;
        if (fabs(mean) > 5 * is->deviation / sqrt(N)) fail_msg("%s: the mean is %g", is->name, mean);
        if (fabs(square / (is->deviation * is->deviation) - 1) > 5 * sqrt(2.0 / N))
            fail_msg("%s: the deviation is %.9g, expected %.9g", is->name, sqrt(square), is->deviation);
        if (is->limit > 0 && (largest > is->limit || largest < 0.99 * is->limit))
            fail_msg("%s: the largest is %.9g, the limit %.9g", is->name, largest, is->limit);
        free(values);
    }
}

/* The largest difference between the sample's distribution function and Phi: Kolmogorov's statistic, whose 0.999 quantile is 1.95 / sqrt(n). */
static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void the_normal_schemes_are_normally_distributed(void **state)
{
    (void)state;
    const ffn_init_options_t options = {SIZE, .scheme = FFN_INIT_NORMAL, .gain = 1};
    float *values = filled(&options, test_seed(), 7);
    double largest = 0;
    qsort(values, N, sizeof *values, by_value);
    for (int64_t i = 0; i < N; i++) {
        const double phi = 0.5 * erfc(-(double)values[i] / sqrt(2));
        largest = fmax(largest, fmax(fabs(phi - (double)i / N), fabs(phi - (double)(i + 1) / N)));
    }
    if (largest > 1.95 / sqrt(N)) fail_msg("Kolmogorov's statistic is %g", largest * sqrt(N));
    assert_near((double)values[N - 1], 4.4, 1.2);
    free(values);
}

/* The header's words: word i % 4 of the counter (i / 4, i / 2^34, stream, 0xffff0000), u = (word + 1/2) / 2^32. */
static void every_number_is_the_one_that_the_header_says(void **state)
{
    (void)state;
    const ffn_init_options_t uniform = {SIZE, .scheme = FFN_INIT_TORCH_LINEAR, .fan_in = 4}, normal = {SIZE, .scheme = FFN_INIT_NORMAL, .gain = 1};
    const uint64_t seed = 0x0123456789abcdef, stream = 5;
    float *u = filled(&uniform, seed, stream), *z = filled(&normal, seed, stream);
    for (int64_t i = 0; i < 1003; i++) {
        const uint32_t counter[4] = {(uint32_t)i / 4, 0, (uint32_t)stream, 0xffff0000}, key[2] = {0x89abcdef, 0x01234567};
        uint32_t out[4];
        philox_reference(counter, key, out);
        const double p = ((double)out[i % 4] + 0.5) / 4294967296.0;
        assert_near((double)u[i], p - 0.5, 0x1p-25);
        assert_near(0.5 * erfc(-(double)z[i] / sqrt(2)), p, 3e-7); /* what half an ulp of z does to p */
    }
    free(u);
    free(z);
}

static void a_shorter_array_is_the_beginning_of_a_longer_one(void **state)
{
    (void)state;
    for (int64_t c = 0; c < COUNT_OF(schemes); c++) {
        float *whole = filled(&schemes[c].options, 3, 0), part[67];
        ffn_init_options_t options = schemes[c].options;
        options.seed = 3;
        for (int64_t n = 0; n < 67; n++) {
            memset(part, 0xff, sizeof part);
            assert_ok(ffn_weight_init(part, n, &options));
            assert_same_bits(whole, part, n, schemes[c].name);
            assert_true(isnan(part[n]));
        }
        free(whole);
    }
}

static void other_seeds_and_streams_are_unrelated(void **state)
{
    (void)state;
    const ffn_init_options_t options = {SIZE, .scheme = FFN_INIT_NORMAL, .gain = 1};
    float *a[] = {filled(&options, 1, 0), filled(&options, 2, 0), filled(&options, 1, 1), filled(&options, UINT64_C(1) << 32 | 1, 0)};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) {
            double product = 0;
            for (int64_t k = 0; k < N; k++) product += (double)a[i][k] * (double)a[j][k];
            if (fabs(product) > 5 * sqrt(N)) fail_msg("arrays %d and %d are correlated: %g", i, j, product / N);
        }
    for (int i = 0; i < 4; i++) free(a[i]);
}

/* ----------------------------------------------------------------- Refused */

typedef struct refused {
    patch_t patches[2];
    const char *words;
} refused_t;

#define FIELD(field, ...) PATCH(ffn_init_options_t, field, __VA_ARGS__)

static const refused_t refusals[] = {
    {{FIELD(scheme, 0)}, "scheme is 0"},
    {{FIELD(scheme, 14)}, "scheme is 14|1 to 13"},
    {{FIELD(flags, 2)}, "flags|0x2"},
    {{FIELD(flags, 1)}, "FFN_INIT_KEEP_VARIANCE|cutoff is 0"},
    {{FIELD(reserved, 1)}, "reserved"},
    {{FIELD(gain, -1)}, "gain is -1"},
    {{FIELD(gain, NAN)}, "gain is"},
    {{FIELD(gain, INFINITY)}, "gain is inf"},
    {{FIELD(gain, 1), FIELD(scheme, FFN_INIT_TORCH_LINEAR)}, "gain is 1|TORCH_LINEAR"},
    {{FIELD(cutoff, -1)}, "cutoff is -1"},
    {{FIELD(cutoff, NAN)}, "cutoff is"},
    {{FIELD(cutoff, 2), FIELD(scheme, FFN_INIT_XAVIER_UNIFORM)}, "cutoff is 2|XAVIER_UNIFORM"},
    {{FIELD(stream, UINT64_C(1) << 32)}, "stream is 4294967296"},
    {{FIELD(fan_in, 0)}, "fan_in is 0"},
    {{FIELD(fan_out, -3), FIELD(scheme, FFN_INIT_XAVIER_NORMAL)}, "fan_out is -3"},
    {{FIELD(layers, 0), FIELD(scheme, FFN_INIT_GPT2_SCALED)}, "layers is 0"},
    {{FIELD(struct_size, 4)}, "struct_size"},
};

static void wrong_options_are_refused_with_a_sentence(void **state)
{
    (void)state;
    const ffn_init_options_t right = {SIZE, .scheme = FFN_INIT_T5, .fan_in = 4, .fan_out = 4, .layers = 1};
    float value = 42;
    for (int64_t i = 0; i < COUNT_OF(refusals); i++) {
        ffn_init_options_t options = right;
        for (int j = 0; j < 2; j++) patch_apply(&refusals[i].patches[j], &options);
        forget_error();
        assert_refused(ffn_weight_init(&value, 1, &options), FFN_INVALID, refusals[i].words, refusals[i].patches[0].text);
        assert_true(value == 42);
    }
    forget_error();
    assert_refused(ffn_weight_init(&value, -1, &right), FFN_INVALID, "count is -1", "count");
    assert_refused(ffn_weight_init(NULL, 1, &right), FFN_INVALID, "values is NULL", "values");
    assert_refused(ffn_weight_init((float *)(void *)((char *)&value + 1), 1, &right), FFN_INVALID, "multiple of 4", "values");
    assert_refused(ffn_weight_init(&value, 1, NULL), FFN_INVALID, "NULL", "options");
    assert_ok(ffn_weight_init(NULL, 0, &right));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_known_answers),
        cmocka_unit_test(every_scheme_has_its_mean_its_deviation_and_its_limit),
        cmocka_unit_test(the_normal_schemes_are_normally_distributed),
        cmocka_unit_test(every_number_is_the_one_that_the_header_says),
        cmocka_unit_test(a_shorter_array_is_the_beginning_of_a_longer_one),
        cmocka_unit_test(other_seeds_and_streams_are_unrelated),
        cmocka_unit_test(wrong_options_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
