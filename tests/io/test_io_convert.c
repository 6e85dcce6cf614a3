/* SPDX-License-Identifier: MIT
 *
 * Conversion to float32: every half, every bfloat16, doubles around each rounding, in both byte orders and any floating-point environment.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "io/convert.h"
#include "io/support/files.h"

enum { ALL = 65536 };

static void swap_bytes(unsigned char *bytes, int64_t count, int size)
{
    for (int64_t i = 0; i < count; i++, bytes += size)
        for (int k = 0; k < size / 2; k++) {
            unsigned char kept = bytes[k];
            bytes[k] = bytes[size - 1 - k];
            bytes[size - 1 - k] = kept;
        }
}

static byte_order_t other_order(void)
{
    return ffnio_machine_order() == LITTLE_ENDIAN_FILE ? BIG_ENDIAN_FILE : LITTLE_ENDIAN_FILE;
}

/* A NaN keeps its sign and the bits of its mantissa that there are. */
static double half_value(uint32_t half)
{
    int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    double value = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY) : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half & 0x8000 ? -value : value;
}

static void check_halves(const float *got)
{
    for (uint32_t i = 0; i < ALL; i++) {
        double expected = half_value(i);
        uint32_t bits;
        memcpy(&bits, got + i, 4);
        if (isnan(expected)) {
            if (bits != ((i & 0x8000) << 16 | 0x7f800000 | (i & 1023) << 13)) fail_msg("half %04x, a NaN, gives bits %08x", i, bits);
        } else if ((double)got[i] != expected || !signbit(got[i]) != !signbit(expected)) {
            fail_msg("half %04x is %a, not %a", i, expected, (double)got[i]);
        }
    }
}

static void every_half_and_every_bfloat16_is_exact_in_both_orders(void **state)
{
    (void)state;
    static uint16_t in[ALL];
    static float got[ALL];
    for (int other = 0; other < 2; other++) {
        byte_order_t order = other ? other_order() : ffnio_machine_order();
        for (int i = 0; i < ALL; i++) in[i] = (uint16_t)i;
        if (other) swap_bytes((unsigned char *)in, ALL, 2);
        ffnio_convert(ELEMENT_F16, order, in, ALL, got);
        check_halves(got);
        ffnio_convert(ELEMENT_BF16, order, in, ALL, got);
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t bits;
            memcpy(&bits, got + i, 4);
            assert_int_equal(bits, i << 16);
        }
    }
}

static void doubles_are_rounded_to_nearest_whatever_the_environment(void **state)
{
    (void)state;
    static const double in[] = {1, 0x1.000001p0, 0x1.000003p0, 0x1.0000011p0, -0x1.000003p0, 0x1.fffffefp127, 0x1.ffffffp127, 1e300, -1e300,
                                0x1p-149, 0x1p-150, 0x1.8p-149, 0x1.8p-150, 0x1p-126, 0x1.fffffcp-127, -0x1p-1074, 0, -0.0, INFINITY, -INFINITY};
    static const float expected[] = {1, 1, 0x1.000004p0f, 0x1.000002p0f, -0x1.000004p0f, 0x1.fffffep127f, INFINITY, INFINITY, -INFINITY,
                                     0x1p-149f, 0, 0x1p-148f, 0x1p-149f, 0x1p-126f, 0x1.fffffcp-127f, -0.0f, 0, -0.0f, INFINITY, -INFINITY};
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    enum { N = sizeof in / sizeof in[0] };
    float got[N];
    for (int64_t i = 0; i < COUNT_OF(roundings); i++) {
        fesetround(roundings[i]);
#if defined(__SSE__)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
        ffnio_convert(ELEMENT_F64, ffnio_machine_order(), in, N, got);
#if defined(__SSE__)
        _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
        int kept = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(kept, roundings[i]);
        assert_memory_equal(got, expected, sizeof expected);
    }
}

static void elements_may_lie_at_any_address_and_any_number_of_them(void **state)
{
    (void)state;
    static const element_t elements[] = {ELEMENT_F64, ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16};
    for (int64_t e = 0; e < COUNT_OF(elements); e++)
        for (int64_t n = 0; n < 68; n++)
            for (int shift = 0; shift < 9; shift++) {
                unsigned char in[68 * 8 + 16] = {0};
                float got[70];
                int64_t size = ffnio_element_size(elements[e]);
                for (int64_t i = 0; i < n; i++) in[shift + i * size + size - 1] = (unsigned char)(i % 2 ? 0x40 : 0xc0);
                got[0] = got[n + 1] = 7;
                ffnio_convert(elements[e], LITTLE_ENDIAN_FILE, in + shift, n, got + 1);
                for (int64_t i = 0; i < n; i++) assert_true(got[i + 1] == (i % 2 ? 2.0f : -2.0f));
                assert_true(got[0] == 7 && got[n + 1] == 7);
            }
    assert_int_equal(ffnio_element_size(ELEMENT_OTHER), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_and_every_bfloat16_is_exact_in_both_orders),
        cmocka_unit_test(doubles_are_rounded_to_nearest_whatever_the_environment),
        cmocka_unit_test(elements_may_lie_at_any_address_and_any_number_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
