/* SPDX-License-Identifier: MIT */
#include "fuzz/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void input_file_set(input_file_t *file, const void *data, size_t size)
{
    if (file->descriptor < 0) {
        file->descriptor = memfd_create("fuzz", 0);
        snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->descriptor);
    }
    must(ftruncate(file->descriptor, 0) == 0);
    must(pwrite(file->descriptor, data, size, 0) == (ssize_t)size);
}

void must_at(int holds, const char *condition, const char *file, int line)
{
    if (holds) return;
    fprintf(stderr, "%s:%d: not so: %s (last error: \"%s\")\n", file, line, condition, ffn_io_last_error());
    abort();
}

void must_be_refusal(ffn_status_t status, const char *path)
{
    must(status == FFN_FORMAT || status == FFN_UNSUPPORTED || status == FFN_UNKNOWN || status == FFN_INVALID);
    const char *text = ffn_io_last_error();
    if (path) must(strstr(text, path) != NULL);
    must(*text != 0);
    for (; *text; text++) must((unsigned char)*text >= ' ' && *text != 0x7f);
}
