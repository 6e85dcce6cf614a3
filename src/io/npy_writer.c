/* SPDX-License-Identifier: MIT
 * Writing a .npy file: under a temporary name in the same folder, which becomes the real one when the file is whole. */
#include "io/npy.h"

#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER_MULTIPLE = 64, /* version 1.0 aligns the data so, for mmap */
    PREFIX_BYTES = 10,    /* magic, version, the dictionary's length */
    LARGEST_HEADER = 1024,
    BUFFER_NUMBERS = 8192,
    NAME_TRIES = 100
};

struct ffn_npy_writer {
    char *path, *temporary; /* temporary: NULL while there is no file */
    int descriptor;
    int failed; /* an earlier append did: the file's contents are unknown */
    int64_t elements, appended;
    int64_t buffered;
    float buffer[BUFFER_NUMBERS];
};

static ffn_status_t write_all(ffn_npy_writer_t *writer, const void *data, int64_t bytes) {
    for (const char *from = data; bytes > 0;) {
        size_t wanted = bytes < 1 << 30 ? (size_t)bytes : 1u << 30;
        ssize_t written = write(writer->descriptor, from, wanted);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return ffnio_fail_system(writer->path, "write it", written ? errno : ENOSPC);
        from += written;
        bytes -= written;
    }
    return FFN_OK;
}

static ffn_status_t flush(ffn_npy_writer_t *writer) {
    ffn_status_t status = write_all(writer, writer->buffer, writer->buffered * (int64_t)sizeof(float));
    writer->buffered = 0;
    return status;
}

/* A dictionary like NumPy's own, in ASCII: no digit is grouped, because no locale has a say in these conversions. */
static ffn_status_t write_header(ffn_npy_writer_t *writer, uint32_t ndim, const int64_t *shape) {
    char header[LARGEST_HEADER];
    int used = PREFIX_BYTES;
    used += snprintf(header + used, sizeof header - (size_t)used, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (uint32_t i = 0; i < ndim; i++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%s%" PRId64 "%s", i ? ", " : "", shape[i], ndim == 1 ? "," : "");
    used += snprintf(header + used, sizeof header - (size_t)used, "), }");
    int total = (int)round_up(used + 1, HEADER_MULTIPLE);
    memset(header + used, ' ', (size_t)(total - used));
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - PREFIX_BYTES) & 255);
    header[9] = (char)((total - PREFIX_BYTES) >> 8);
    return write_all(writer, header, total);
}

/* What is replaced must be a file: renaming onto a device would take the device away. */
static ffn_status_t check_target(const char *path) {
    struct stat about;
    size_t length = strlen(path);
    int there = !stat(path, &about);
    if (!there && (!length || path[length - 1] == '/')) return ffnio_fail_file(FFN_FILE, path, "does not name a file");
    if (!there || S_ISREG(about.st_mode)) return FFN_OK;
    return ffnio_fail_file(FFN_FILE, path, "is a %s, must be a file or not be there", S_ISDIR(about.st_mode) ? "folder" : "device or a pipe");
}

/* Creates a file of a name that no other has, with the permissions that a new file gets. */
static ffn_status_t create_temporary(ffn_npy_writer_t *writer) {
    char *folder = ffnio_path_folder(writer->path);
    if (!folder) return FFN_NO_MEMORY;
    for (int i = 0; i < NAME_TRIES; i++) {
        char name[64];
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(name, sizeof name, ".ffn-%ld-%lx-%d.tmp", (long)getpid(), (unsigned long)now.tv_nsec ^ (unsigned long)(uintptr_t)writer, i);
        writer->temporary = ffnio_path_join(folder, name);
        if (!writer->temporary) break;
        writer->descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->descriptor >= 0) break;
        int error_number = errno;
        free(writer->temporary);
        writer->temporary = NULL;
        if (error_number == EEXIST && i + 1 < NAME_TRIES) continue;
        free(folder);
        return ffnio_fail_system(writer->path, "make a temporary file beside it", error_number);
    }
    free(folder);
    return writer->temporary ? FFN_OK : FFN_NO_MEMORY;
}

static ffn_status_t count_elements(uint32_t ndim, const int64_t *shape, int64_t *elements) {
    int64_t bytes = sizeof(float);
    int empty = 0;
    if (ndim > NPY_MOST_DIMENSIONS) return ffnio_fail(FFN_INVALID, "ndim is %" PRIu32 ", must be at most %d", ndim, NPY_MOST_DIMENSIONS);
    if (ndim && !shape) return ffnio_fail(FFN_INVALID, "shape is NULL");
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0) return ffnio_fail(FFN_INVALID, "shape[%" PRIu32 "] is %" PRId64 ", must be at least 0", i, shape[i]);
        if (!shape[i])
            empty = 1;
        else if (!checked_multiply(bytes, shape[i], &bytes))
            return ffnio_fail(FFN_INVALID, "shape asks for 2^63 bytes or more");
    }
    *elements = empty ? 0 : bytes / (int64_t)sizeof(float);
    return FFN_OK;
}

ffn_status_t ffn_npy_writer_open(const char *path, uint32_t ndim, const int64_t *shape, ffn_npy_writer_t **writer) {
    int64_t elements = 0;
    if (!writer) return ffnio_fail(FFN_INVALID, "writer is NULL");
    *writer = NULL;
    if (!path) return ffnio_fail(FFN_INVALID, "path is NULL");
    ffn_status_t status = count_elements(ndim, shape, &elements);
    if (!status) status = check_target(path);
    if (status) return status;
    ffn_npy_writer_t *made = malloc(sizeof *made);
    if (!made) return ffnio_fail_memory(sizeof *made, "a writer of a .npy file");
    made->path = ffnio_path_join("", path);
    made->temporary = NULL;
    made->descriptor = -1;
    made->failed = 0;
    made->elements = elements;
    made->appended = made->buffered = 0;
    status = made->path ? create_temporary(made) : FFN_NO_MEMORY;
    if (!status) status = write_header(made, ndim, shape);
    if (status)
        ffn_npy_writer_discard(made);
    else
        *writer = made;
    return status;
}

/* Into the buffer, as the little-endian numbers that the header announces. */
static void buffer(ffn_npy_writer_t *writer, const float *numbers, int64_t count) {
    float *to = writer->buffer + writer->buffered;
    memcpy(to, numbers, (size_t)count * sizeof *numbers);
    if (ffnio_machine_order() != LITTLE_ENDIAN_FILE) ffnio_convert(ELEMENT_F32, LITTLE_ENDIAN_FILE, to, count, to);
    writer->buffered += count;
}

ffn_status_t ffn_npy_writer_append(ffn_npy_writer_t *writer, const float *numbers, int64_t count) {
    if (!writer) return ffnio_fail(FFN_INVALID, "writer is NULL");
    if (count < 0 || count > writer->elements - writer->appended)
        return ffnio_fail_file(FFN_INVALID, writer->path, "%" PRId64 " numbers are appended, its shape has room for %" PRId64 " more", count,
                               writer->elements - writer->appended);
    if (count && !numbers) return ffnio_fail(FFN_INVALID, "numbers is NULL");
    if (writer->failed) return ffnio_fail_file(FFN_FILE, writer->path, "could not be written before");
    writer->appended += count;
    while (count > 0) {
        int64_t now = minimum(count, BUFFER_NUMBERS - writer->buffered);
        buffer(writer, numbers, now);
        numbers += now;
        count -= now;
        ffn_status_t status = writer->buffered == BUFFER_NUMBERS ? flush(writer) : FFN_OK;
        if (status) {
            writer->failed = 1;
            return status;
        }
    }
    return FFN_OK;
}

ffn_status_t ffn_npy_writer_finish(ffn_npy_writer_t *writer) {
    if (!writer) return ffnio_fail(FFN_INVALID, "writer is NULL");
    ffn_status_t status = FFN_OK;
    if (writer->failed)
        status = ffnio_fail_file(FFN_FILE, writer->path, "could not be written before");
    else if (writer->appended != writer->elements)
        status = ffnio_fail_file(FFN_INVALID, writer->path, "has %" PRId64 " numbers, its shape asks for %" PRId64, writer->appended,
                                 writer->elements);
    else
        status = flush(writer);
    if (!status) {
        /* Some file systems tell only now that there is no space. */
        int refused = close(writer->descriptor);
        writer->descriptor = -1;
        if (refused) status = ffnio_fail_system(writer->path, "write it", errno);
    }
    if (!status && rename(writer->temporary, writer->path)) status = ffnio_fail_system(writer->path, "rename a finished file to it", errno);
    if (!status) {
        free(writer->temporary);
        writer->temporary = NULL;
    }
    ffn_npy_writer_discard(writer);
    return status;
}

void ffn_npy_writer_discard(ffn_npy_writer_t *writer) {
    if (!writer) return;
    if (writer->descriptor >= 0) close(writer->descriptor);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    free(writer);
}
