/* SPDX-License-Identifier: MIT
 *
 * Just enough of a safetensors reader for the trusted files of the test data: float32 tensors by name. Not a JSON parser.
 */
#ifndef FFN_TEST_SAFETENSORS_H
#define FFN_TEST_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct safetensors {
    const char *name; /* of the file, for messages */
    char *bytes;      /* the file: 8 bytes header length, the header, the data */
    size_t size;
    size_t header_size;
} safetensors_t;

typedef struct safetensor {
    const float *data;
    int64_t ndim;
    int64_t shape[4];
} safetensor_t;

/* True if the folder of the test data is there. */
bool shared_data_present(void);

/* Reads a file of that folder; fails the test if it cannot. */
safetensors_t safetensors_open(const char *name);
void safetensors_close(safetensors_t *file);

/* A tensor by its name, which is made like printf makes it; fails the test if the file has none, or if it is not F32. */
safetensor_t safetensors_get(const safetensors_t *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
