/* SPDX-License-Identifier: MIT
 * Floating-point elements of a file as float32. */
#ifndef FFNIO_CONVERT_H
#define FFNIO_CONVERT_H

#include "io/error.h"
#include "io/file.h"

/* ELEMENT_OTHER: of no type that becomes float32. */
typedef enum element { ELEMENT_OTHER, ELEMENT_F64, ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16 } element_t;
typedef enum byte_order { LITTLE_ENDIAN_FILE, BIG_ENDIAN_FILE } byte_order_t;

/* This machine's. */
byte_order_t ffnio_machine_order(void);

/* Bytes of one; 0 for ELEMENT_OTHER. */
int64_t ffnio_element_size(element_t element);

/* count elements, packed and at any address, to float32: F16 and BF16 exactly, F64 rounded to nearest. Independent of the thread's
 * floating-point environment. */
void ffnio_convert(element_t element, byte_order_t order, const void *in, int64_t count, float *out);

/* The same for elements that start at an offset of a file; uses no memory but a few kB of stack. FFN_FILE. */
ffn_status_t ffnio_file_read_floats(const file_t *file, int64_t offset, element_t element, byte_order_t order, int64_t count, float *out);

#endif
