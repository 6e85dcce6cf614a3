/* SPDX-License-Identifier: MIT */
#include "support/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/test.h"

bool shared_data_present(void)
{
    struct stat status;
    return stat(FFN_SHARED_DATA "/README.md", &status) == 0;
}

safetensors_t safetensors_open(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", FFN_SHARED_DATA, name);
    FILE *stream = fopen(path, "rb");
    if (!stream) fail_msg("cannot open %s", path);
    safetensors_t file = {.name = name};
    fseek(stream, 0, SEEK_END);
    file.size = (size_t)ftell(stream);
    rewind(stream);
    file.bytes = test_alloc(file.size + 1);
    file.bytes[file.size] = 0;
    size_t got = fread(file.bytes, 1, file.size, stream);
    fclose(stream);
    if (got != file.size || got < 8) fail_msg("cannot read %s", path);
    for (int i = 7; i >= 0; i--) file.header_size = file.header_size << 8 | (unsigned char)file.bytes[i];
    if (file.header_size > file.size - 8) fail_msg("%s is cut off", path);
    return file;
}

void safetensors_close(safetensors_t *file)
{
    free(file->bytes);
    memset(file, 0, sizeof *file);
}

/* What follows `key` between from and end. */
static const char *after(const char *from, const char *end, const char *key)
{
    const char *found = memmem(from, (size_t)(end - from), key, strlen(key));
    return found ? found + strlen(key) : NULL;
}

/* [1, 2, 3] -> numbers; returns how many. */
static int64_t numbers(const char *text, int64_t *out, int64_t most)
{
    int64_t n = 0;
    while (*text && *text != ']') {
        char *end;
        long long number = strtoll(text, &end, 10);
        if (end == text) {
            text++;
            continue;
        }
        if (n < most) out[n] = number;
        n++;
        text = end;
    }
    return n;
}

safetensor_t safetensors_get(const safetensors_t *file, const char *format, ...)
{
    char key[256], *write = key;
    *write++ = '"';
    va_list arguments;
    va_start(arguments, format);
    write += vsnprintf(write, sizeof key - 8, format, arguments);
    va_end(arguments);
    strcpy(write, "\":{");

    const char *header = file->bytes + 8, *end = header + file->header_size;
    const char *entry = after(header, end, key);
    const char *close = entry ? memchr(entry, '}', (size_t)(end - entry)) : NULL;
    if (!close) fail_msg("%s has no tensor %s", file->name, key);
    const char *dtype = after(entry, close, "\"dtype\":\"F32\""), *shape = after(entry, close, "\"shape\":[");
    const char *offsets = after(entry, close, "\"data_offsets\":[");
    if (!dtype || !shape || !offsets) fail_msg("%s: %s is not a float32 tensor", file->name, key);

    safetensor_t tensor = {0};
    int64_t range[2] = {0, 0}, elements = 1;
    tensor.ndim = numbers(shape, tensor.shape, COUNT_OF(tensor.shape));
    if (tensor.ndim > COUNT_OF(tensor.shape) || numbers(offsets, range, 2) != 2) fail_msg("%s: %s has a strange shape", file->name, key);
    for (int64_t i = 0; i < tensor.ndim; i++) elements *= tensor.shape[i];
    if (range[1] - range[0] != elements * 4 || (size_t)range[1] > file->size - 8 - file->header_size)
        fail_msg("%s: %s has offsets that do not fit its shape", file->name, key);
    tensor.data = (const float *)(const void *)(end + range[0]);
    return tensor;
}
