/* SPDX-License-Identifier: MIT
 * Conversion to float32, and reading with it. */
#include "io/convert.h"

#include "base/checked.h"
#include "base/fpenv.h"

#include <string.h>

/* Of elements that are read at once into a buffer on the stack, which may have 64 kB in all. */
enum { CHUNK_BYTES = 8192 };

byte_order_t ffnio_machine_order(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first ? LITTLE_ENDIAN_FILE : BIG_ENDIAN_FILE;
}

int64_t ffnio_element_size(element_t element) {
    switch (element) {
    case ELEMENT_F64: return 8;
    case ELEMENT_F32: return 4;
    case ELEMENT_F16:
    case ELEMENT_BF16: return 2;
    case ELEMENT_OTHER: break;
    }
    return 0;
}

static uint16_t swap16(uint16_t x) {
    return (uint16_t)(x << 8 | x >> 8);
}

static uint32_t swap32(uint32_t x) {
    return (uint32_t)swap16((uint16_t)x) << 16 | swap16((uint16_t)(x >> 16));
}

static uint64_t swap64(uint64_t x) {
    return (uint64_t)swap32((uint32_t)x) << 32 | swap32((uint32_t)(x >> 32));
}

/* binary16 as binary32 bits, without a branch, so that compilers vectorise loops over it. Denormals are mantissa * 2^-24, a normal float32
 * product. */
static uint32_t widen_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31, mantissa = half & 1023u;
    uint32_t is_denormal = (exponent - 1) >> 31, is_infinite = (exponent + 1) >> 5, denormal = 0u - is_denormal, small_bits;
    float small = (float)(int32_t)mantissa * 0x1p-24f;
    memcpy(&small_bits, &small, sizeof small_bits);
    uint32_t bits = (exponent + 112 + 112 * is_infinite) << 23 | mantissa << 13;
    return sign | (denormal & small_bits) | (~denormal & bits);
}

static void from_f64(const char *in, int swap, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits;
        double value;
        memcpy(&bits, in + 8 * i, sizeof bits);
        if (swap) bits = swap64(bits);
        memcpy(&value, &bits, sizeof value);
        out[i] = (float)value;
    }
}

static void from_f32(const char *in, int swap, int64_t count, float *out) {
    if (count) memmove(out, in, (size_t)count * sizeof *out); /* may be in place */
    for (int64_t i = 0; swap && i < count; i++) {
        uint32_t bits;
        memcpy(&bits, out + i, sizeof bits);
        bits = swap32(bits);
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void from_f16(const char *in, int swap, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, in + 2 * i, sizeof half);
        uint32_t bits = widen_half(swap ? swap16(half) : half);
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void from_bf16(const char *in, int swap, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t high;
        memcpy(&high, in + 2 * i, sizeof high);
        uint32_t bits = (uint32_t)(swap ? swap16(high) : high) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

void ffnio_convert(element_t element, byte_order_t order, const void *in, int64_t count, float *out) {
    int swap = order != ffnio_machine_order();
    fpenv_t saved = fpenv_enter();
    switch (element) {
    case ELEMENT_F64: from_f64(in, swap, count, out); break;
    case ELEMENT_F32: from_f32(in, swap, count, out); break;
    case ELEMENT_F16: from_f16(in, swap, count, out); break;
    case ELEMENT_BF16: from_bf16(in, swap, count, out); break;
    case ELEMENT_OTHER: break;
    }
    fpenv_leave(saved);
}

ffn_status_t ffnio_file_read_floats(const file_t *file, int64_t offset, element_t element, byte_order_t order, int64_t count, float *out) {
    if (element == ELEMENT_F32) {
        ffn_status_t status = ffnio_file_read(file, offset, out, count * (int64_t)sizeof *out);
        if (!status && order != ffnio_machine_order()) ffnio_convert(element, order, out, count, out);
        return status;
    }
    char chunk[CHUNK_BYTES];
    int64_t size = ffnio_element_size(element);
    if (!size) return ffnio_fail_file(FFN_UNSUPPORTED, file->path, "its elements cannot be read as float32");
    while (count > 0) {
        int64_t now = minimum(count, CHUNK_BYTES / size);
        ffn_status_t status = ffnio_file_read(file, offset, chunk, now * size);
        if (status) return status;
        ffnio_convert(element, order, chunk, now, out);
        offset += now * size;
        count -= now;
        out += now;
    }
    return FFN_OK;
}
