/* SPDX-License-Identifier: MIT
 * Checkpoints for the tests of the safetensors reader.
 */
#ifndef TESTS_IO_CHECKPOINT_H
#define TESTS_IO_CHECKPOINT_H

#include "io/safetensors.h"

/* An entry of a header, and a header with one float32 tensor "w" of [2, 4]. */
#define ENTRY(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define ONE "{" ENTRY("w", "F32", "[2,4]", 0, 32) "}"

/* Each fails the test when it cannot do it. */
checkpoint_t *open_ok(const char *path);
const stored_tensor_t *tensor_of(const checkpoint_t *checkpoint, const char *name);

#endif
