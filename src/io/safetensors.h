/* SPDX-License-Identifier: MIT
 * Checkpoints in the safetensors format: one file, or several with an index. Only headers are read at opening; a checkpoint never changes after
 * it, so that any number of threads may read from it. */
#ifndef FFNIO_SAFETENSORS_H
#define FFNIO_SAFETENSORS_H

#include "io/convert.h"
#include "io/error.h"
#include "io/file.h"

/* A row of the table of element types. */
typedef struct dtype {
    const char *name;  /* as files have it: "F32", "BF16", ... */
    int64_t bits;      /* of one element: 4 and 6 too */
    element_t element; /* ELEMENT_OTHER: cannot be read as float32 */
    int floating;      /* 1: counts among a model's parameters */
} dtype_t;

typedef struct stored_tensor {
    const char *name; /* UTF-8 */
    const dtype_t *dtype;
    const int64_t *shape; /* ndim numbers >= 0; NULL for ndim 0 */
    uint32_t ndim;
    uint32_t file;    /* index into checkpoint->files */
    int64_t elements; /* product of the shape */
    int64_t offset;   /* of its first byte, from the start of the file */
    int64_t bytes;
} stored_tensor_t;

typedef struct checkpoint {
    char *path;   /* of the .safetensors or the index: what was given, or what was found in the folder that was given */
    char *folder; /* that it is in: where config.json is looked for */
    file_t *files;
    uint32_t file_count;
    int64_t tensor_count;
    stored_tensor_t *tensors; /* sorted by name, in the order of strcmp; names differ */
    int64_t bytes;            /* of all files, without the index */
    void **blocks;            /* what the tensors' names and shapes live in, one block a file */
} checkpoint_t;

/* path: a .safetensors file; an index (its name ends in .json) with its shards beside it; or a folder that holds model.safetensors or, if not,
 * model.safetensors.index.json. map: 1 maps the files (FFN_MODEL_MAP). FFN_FILE, FFN_FORMAT, FFN_NO_MEMORY; *checkpoint is NULL then. */
ffn_status_t ffnio_checkpoint_open(const char *path, int map, checkpoint_t **checkpoint);

/* NULL is fine. */
void ffnio_checkpoint_close(checkpoint_t *checkpoint);

/* Index of the tensor of that name, or -1. */
int64_t ffnio_checkpoint_find(const checkpoint_t *checkpoint, const char *name);

/* Elements first .. first+count-1 as float32. FFN_UNSUPPORTED (its dtype), FFN_FILE. */
ffn_status_t ffnio_tensor_read(const checkpoint_t *checkpoint, const stored_tensor_t *tensor, int64_t first, int64_t count, float *out);

/* The tensor's elements where they lie in the mapped file, or NULL where they have to be read: not mapped, not F32, misaligned, no elements, or
 * a big-endian machine. */
const float *ffnio_tensor_mapped(const checkpoint_t *checkpoint, const stored_tensor_t *tensor);

/* --- one file, for safetensors.c and checkpoint.c alone */

/* Reads and checks the header of an open file. *tensors (in no particular order) and the *block that their names and shapes live in are for the
 * caller to free; `file_index` goes into each tensor. */
ffn_status_t ffnio_safetensors_read(const file_t *file, uint32_t file_index, stored_tensor_t **tensors, int64_t *count, void **block);

#endif
