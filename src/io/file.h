/* SPDX-License-Identifier: MIT
 * A regular file that is open for reading. Its size is asked once; a read past what is left of a file that has been cut short since is an error. */
#ifndef FFNIO_FILE_H
#define FFNIO_FILE_H

#include "io/error.h"

typedef struct file {
    char *path;      /* for sentences */
    int64_t size;
    int descriptor;  /* -1: not open */
    const void *map; /* the whole file, or NULL: not mapped */
} file_t;

/* FFN_FILE unless it is a regular file that can be read. On failure *file is closed. */
ffn_status_t ffnio_file_open(const char *path, file_t *file);

/* Maps the whole file for reading; an empty file stays unmapped. */
ffn_status_t ffnio_file_map(file_t *file);

/* Reads exactly bytes at offset. Any number of threads at once. */
ffn_status_t ffnio_file_read(const file_t *file, int64_t offset, void *out, int64_t bytes);

/* A file that was closed, or is all zeros but for the descriptor -1, is fine. */
void ffnio_file_close(file_t *file);

/* The folder that a path's last part is in, without a final '/' unless it is the root: "." for "model.safetensors". NULL: no memory (the
 * sentence is set). The caller frees it. */
char *ffnio_path_folder(const char *path);

/* folder/name. NULL: no memory (the sentence is set). The caller frees it. */
char *ffnio_path_join(const char *folder, const char *name);

/* 1: something is there that is a folder / a regular file (symbolic links are followed); 0: not, or it cannot be told. */
int ffnio_path_is_folder(const char *path);
int ffnio_path_is_file(const char *path);

#endif
