/* SPDX-License-Identifier: MIT
 * Opening, reading and mapping files; paths. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The most that one call reads: below the limits of all systems, and a multiple of a page. */
enum { LARGEST_READ = 1 << 30 };

static ffn_status_t open_regular(file_t *file) {
    struct stat about;
    /* Not to wait for the other end, should it be a pipe. */
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0) return ffnio_fail_system(file->path, "open it", errno);
    if (fstat(file->descriptor, &about)) return ffnio_fail_system(file->path, "ask its size", errno);
    if (S_ISDIR(about.st_mode)) return ffnio_fail_file(FFN_FILE, file->path, "is a folder, must be a file");
    if (!S_ISREG(about.st_mode)) return ffnio_fail_file(FFN_FILE, file->path, "is a device or a pipe, must be a file");
    file->size = (int64_t)about.st_size;
    return FFN_OK;
}

ffn_status_t ffnio_file_open(const char *path, file_t *file) {
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
    size_t length = strlen(path) + 1;
    file->path = malloc(length);
    if (!file->path) return ffnio_fail_memory(length, "a path");
    memcpy(file->path, path, length);
    ffn_status_t status = open_regular(file);
    if (status) ffnio_file_close(file);
    return status;
}

ffn_status_t ffnio_file_map(file_t *file) {
    if (!file->size) return FFN_OK;
    if ((uint64_t)file->size > SIZE_MAX) return ffnio_fail_file(FFN_NO_MEMORY, file->path, "is too large to be mapped");
    void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
    if (map == MAP_FAILED) return ffnio_fail_system(file->path, "map it", errno);
    file->map = map;
    return FFN_OK;
}

ffn_status_t ffnio_file_read(const file_t *file, int64_t offset, void *out, int64_t bytes) {
    for (char *to = out; bytes > 0;) {
        size_t wanted = bytes < LARGEST_READ ? (size_t)bytes : LARGEST_READ;
        ssize_t got = pread(file->descriptor, to, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ffnio_fail_system(file->path, "read it", errno);
        if (!got)
            return ffnio_fail_file(FFN_FILE, file->path, "ends at byte %" PRId64 ": it was cut short while it was open (it had %" PRId64 " bytes)",
                                   offset, file->size);
        to += got;
        offset += got;
        bytes -= got;
    }
    return FFN_OK;
}

void ffnio_file_close(file_t *file) {
    if (file->map) munmap((void *)(uintptr_t)file->map, (size_t)file->size);
    if (file->descriptor >= 0) close(file->descriptor);
    free(file->path);
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
}

char *ffnio_path_folder(const char *path) {
    size_t length = strlen(path);
    while (length && path[length - 1] != '/') length--;
    while (length > 1 && path[length - 1] == '/') length--;
    char *folder = malloc(length + 2);
    if (!folder) {
        ffnio_fail_memory(length + 2, "a path");
        return NULL;
    }
    memcpy(folder, length ? path : ".", length ? length : 1);
    folder[length ? length : 1] = 0;
    return folder;
}

char *ffnio_path_join(const char *folder, const char *name) {
    size_t length = strlen(folder), name_length = strlen(name);
    size_t slash = length && folder[length - 1] != '/';
    char *path = malloc(length + slash + name_length + 1);
    if (!path) {
        ffnio_fail_memory(length + slash + name_length + 1, "a path");
        return NULL;
    }
    memcpy(path, folder, length);
    if (slash) path[length] = '/';
    memcpy(path + length + slash, name, name_length + 1);
    return path;
}

int ffnio_path_is_folder(const char *path) {
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

int ffnio_path_is_file(const char *path) {
    struct stat about;
    return !stat(path, &about) && S_ISREG(about.st_mode);
}
