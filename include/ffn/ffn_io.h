/* SPDX-License-Identifier: MIT
 *
 * libffn-io - published checkpoints for libffn: finds the feed-forward layers of a model file and makes ffn_layer_t of them; reads and writes
 * .npy arrays. A library of its own, so that libffn itself opens no file.
 *
 *     ffn_model_t *model;
 *     ffn_layer_t *layer;
 *     const ffn_model_layer_t *found;
 *     if (ffn_model_open("model.safetensors", NULL, &model) != FFN_OK) return fail(ffn_io_last_error());
 *     ffn_model_layer(model, 0, &found);                         what it is: found->family, found->options->d_ff, ...
 *     ffn_model_layer_create(model, context, found, &layer);     weights copied: the model may be freed
 *
 * The rules of ffn.h hold here too: statuses, option structs with struct_size, bytes, ownership, no output, no abort, no global state. On top:
 *
 *  - ffn_io_last_error() has the sentence of this library's last failure on this thread; a sentence about a file names the file and the fault.
 *  - A model never changes after ffn_model_open: any number of threads may use one at once. Readers and writers of .npy are for one thread at
 *    a time. Strings and structs that a model hands out live until ffn_model_free.
 *  - Paths are passed to the operating system as they are. Files are opened read-only; nothing but ffn_npy_writer_* writes.
 *  - A file that is cut short while it is open gives FFN_FILE, never a signal: tensors are read, not mapped, unless the caller vouches for the
 *    file with FFN_MODEL_MAP.
 */
#ifndef FFN_FFN_IO_H
#define FFN_FFN_IO_H

#include <ffn/ffn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* More statuses, of this library alone. */
enum {
    FFN_FILE = -16,   /* the operating system refused: not found, no permission, no space, cut short */
    FFN_FORMAT = -17, /* the file is not what its format demands */
    FFN_UNKNOWN = -18 /* no known family of layers, or a name that is not in the file */
};

/* Why the last failing call into libffn-io on THIS thread failed, as ffn_last_error() does for libffn (whose sentence is taken over when a call
 * into libffn is what failed). */
FFN_API const char *ffn_io_last_error(void);

/* "FFN_FILE", ...; also the names of libffn's own statuses. */
FFN_API const char *ffn_io_status_name(ffn_status_t status);

/* ---------------------------------------------------------------- A model */

typedef struct ffn_model ffn_model_t;

typedef struct ffn_model_options {
    uint32_t struct_size;  /* required: sizeof(ffn_model_options_t) */
    uint32_t flags;        /* FFN_MODEL_MAP, or 0 */
    const char *config;    /* path of a config.json. NULL: config.json in the model's folder if there is one */
    const char *family;    /* name of a row of the family table ("gpt2"), for files that several rows fit. NULL: recognised */
} ffn_model_options_t;

/* The caller promises that no one truncates the files while the model is open: float32 weights at an aligned offset are then packed straight from
 * a mapping of the file, without a copy in between. A file that is truncated all the same raises SIGBUS in the process: that is why it is asked. */
enum { FFN_MODEL_MAP = 1 };

/* Opens a checkpoint: a .safetensors file, a model.safetensors.index.json with its shards beside it, or a folder that holds one of the two. Reads
 * headers and config.json only: time and memory do not depend on the weights' size. Opening succeeds where no layer is recognised (tensors can
 * still be named by hand); then ffn_model_info has layer_count 0, and ffn_model_layer says what was found.
 * options NULL: all defaults. *model is NULL on failure. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_FILE, FFN_FORMAT, FFN_UNKNOWN (family). */
FFN_API ffn_status_t ffn_model_open(const char *path, const ffn_model_options_t *options, ffn_model_t **model);

/* NULL is fine. Layers made from the model live on. */
FFN_API void ffn_model_free(ffn_model_t *model);

typedef struct ffn_model_info_t {
    uint32_t struct_size;  /* set by the caller: sizeof(ffn_model_info_t) */
    uint32_t flags;        /* 0 */
    int64_t tensor_count;
    int64_t layer_count;   /* feed-forward layers recognised */
    int64_t parameters;    /* elements of all floating-point tensors of the file or files */
    uint64_t bytes;        /* of the file or files */
    const char *family;    /* of the layers, or NULL where none was recognised. Of a model with layers of experts that of the first of these */
    const char *model_type; /* config.json's, or NULL */
    int64_t active_parameters; /* that a token meets: parameters without those of the experts that its layers leave out */
} ffn_model_info_t;

FFN_API ffn_status_t ffn_model_info(const ffn_model_t *model, ffn_model_info_t *info);

/* A tensor as the file describes it. */
typedef struct ffn_model_tensor_t {
    uint32_t struct_size;  /* set by the caller: sizeof(ffn_model_tensor_t) */
    uint32_t ndim;
    const char *name;      /* UTF-8, NUL-terminated */
    const char *dtype;     /* as the file has it: "F32", "BF16", ... */
    const int64_t *shape;  /* ndim numbers */
    int64_t elements;
    uint64_t bytes;
} ffn_model_tensor_t;

/* Tensor 0 .. tensor_count-1, sorted by name. FFN_INVALID. */
FFN_API ffn_status_t ffn_model_tensor(const ffn_model_t *model, int64_t index, ffn_model_tensor_t *tensor);

/* Its index by its whole name. FFN_UNKNOWN with near names in the sentence; *index is -1 then. */
FFN_API ffn_status_t ffn_model_find(const ffn_model_t *model, const char *name, int64_t *index);

/* Reads a tensor into out[0 .. elements-1] as float32, in the file's order, at any row of F64 (rounded to nearest), F32, F16 and BF16 (both
 * exact). out is undefined after a failure. Statuses: FFN_INVALID, FFN_UNSUPPORTED (another dtype), FFN_FILE, FFN_NO_MEMORY. */
FFN_API ffn_status_t ffn_model_read(const ffn_model_t *model, int64_t index, float *out);

/* ----------------------------------------------------------------- Layers */

/* How a tensor of the file becomes a tensor of the layer. */
enum { FFN_LAYOUT_OUT_IN = 0, FFN_LAYOUT_IN_OUT = 1 }; /* order of a matrix's dimensions; FFN_LAYOUT_IN_OUT is GPT-2's Conv1D */
enum {                                                 /* which part of it, along the output dimension */
    FFN_PART_WHOLE = 0,
    FFN_PART_FIRST_HALF = 1,
    FFN_PART_SECOND_HALF = 2,
    FFN_PART_EVEN = 3, /* elements 0, 2, 4, ... */
    FFN_PART_ODD = 4
};

typedef struct ffn_model_binding {
    uint32_t role;      /* FFN_ROLE_* */
    uint32_t layout;    /* FFN_LAYOUT_*; 0 for vectors */
    uint32_t part;      /* FFN_PART_* */
    float value;        /* with tensor NULL: a constant of shape [1], such as a residual multiplier of config.json */
    const char *tensor; /* name in the file */
    uint32_t expert;    /* of a role that each expert has: the expert that it is, or of a stack the first one. Else 0 */
    uint32_t experts;   /* 0: the tensor is one expert's, or no expert's. Else a stack of so many, one after the other along its first dimension, which
                           may be folded with the next ([experts * d_ff, d_model], DBRX); layout and part are each expert's */
} ffn_model_binding_t;

/* A feed-forward layer of a model: what libffn is to be given. Made by ffn_model_layer, or by hand: every field but the bindings and the options'
 * activation may then be left 0. To override something, copy the struct, the options or the bindings, and change the copy. */
typedef struct ffn_model_layer_t {
    uint32_t struct_size;                /* sizeof(ffn_model_layer_t) */
    uint32_t flags;                      /* FFN_MODEL_BRANCH, or 0 */
    const char *family;                  /* row of the family table, such as "llama" */
    const char *prefix;                  /* what the names of its tensors have in common, such as "model.layers.0." */
    const char *dtype;                   /* of the up weight */
    int64_t parameters;                  /* of this layer, norms included */
    const ffn_layer_options_t *options;  /* without tensors and allocator; with moe for a mixture of experts. activation is FFN_ACTIVATION_NONE where
                                            config.json has a name that is not known: ffn_model_layer_create then refuses, and says which are, until
                                            it is overridden */
    const ffn_model_binding_t *bindings; /* in the order of roles, and of experts: one for each role, or for each expert's */
    uint64_t binding_count;
    int64_t active_parameters;           /* that a token meets: all but those of experts - top_k experts */
} ffn_model_layer_t;

enum { FFN_MODEL_BRANCH = 1 }; /* ffn_model_layer_create: leave out residual, scales and the norms IN, BRANCH and OUT: the FFN alone */

/* Layer 0 .. layer_count-1, in the model's order (encoders before decoders). Shared weights (ALBERT) are one layer.
 * config.json's model_type decides the family where several have the same names; without one the names and shapes do, and where they fit several
 * families there are no layers, and the sentence asks for options.family. docs/families.md has the table, and what is taken where config.json says
 * nothing. FFN_INVALID; FFN_UNKNOWN in a model without recognised layers: the sentence lists the kinds of
 * tensor names that it has. *layer is NULL on failure. */
FFN_API ffn_status_t ffn_model_layer(const ffn_model_t *model, int64_t index, const ffn_model_layer_t **layer);

/* Makes the libffn layer that a description asks for. Each byte of its weights is read once. context as in ffn_layer_create.
 * *made is NULL on failure. Statuses: those of ffn_model_read and ffn_layer_create, FFN_UNKNOWN (a name that is not in the file). */
FFN_API ffn_status_t ffn_model_layer_create(const ffn_model_t *model, ffn_context_t *context, const ffn_model_layer_t *layer, ffn_layer_t **made);

/* ------------------------------------------------------------- .npy arrays */

/* NumPy's array format, versions 1.0 to 3.0: read with float16, float32 or float64 elements of either byte order, in C or Fortran order, of up to
 * 32 dimensions; written as version 1.0, little-endian float32, C order. */
typedef struct ffn_npy ffn_npy_t;

/* Opens a file and checks its header, and that the data which the header announces is there; what follows it is ignored, as NumPy does.
 * *npy is NULL on failure. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_FILE, FFN_FORMAT, FFN_UNSUPPORTED (elements of another type). */
FFN_API ffn_status_t ffn_npy_open(const char *path, ffn_npy_t **npy);
FFN_API void ffn_npy_free(ffn_npy_t *npy); /* NULL is fine */

typedef struct ffn_npy_info_t {
    uint32_t struct_size; /* set by the caller: sizeof(ffn_npy_info_t) */
    uint32_t ndim;
    int64_t shape[32];    /* the first ndim; the others 0 */
    int64_t rows;         /* product of all dimensions but the last; 1 for a vector */
    int64_t columns;      /* the last dimension; 1 for a scalar */
    uint32_t fortran;     /* 1: column order in the file */
    uint32_t itemsize;    /* 2, 4 or 8 */
} ffn_npy_info_t;

FFN_API ffn_status_t ffn_npy_info(const ffn_npy_t *npy, ffn_npy_info_t *info);

/* Reads rows first .. first+count-1 into out[count * columns], as float32 in C order (float64 rounded to nearest). Memory used does not depend on
 * the file's size. Statuses: FFN_INVALID, FFN_FILE, FFN_NO_MEMORY. */
FFN_API ffn_status_t ffn_npy_read(ffn_npy_t *npy, int64_t first, int64_t count, float *out);

typedef struct ffn_npy_writer ffn_npy_writer_t;

/* Starts a file of that shape beside `path`, under a temporary name (".ffn-....tmp"): a program that is killed leaves it there. What `path` names
 * must be a file, which is replaced, or not be there. *writer is NULL on failure. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_FILE. */
FFN_API ffn_status_t ffn_npy_writer_open(const char *path, uint32_t ndim, const int64_t *shape, ffn_npy_writer_t **writer);

/* Appends `count` numbers. FFN_INVALID beyond the shape's, and nothing is appended; FFN_FILE, and the writer can only be given up. */
FFN_API ffn_status_t ffn_npy_writer_append(ffn_npy_writer_t *writer, const float *numbers, int64_t count);

/* Finishes: all numbers must be there; the file is renamed to its path. The writer is freed in any case; after a failure no file is left. */
FFN_API ffn_status_t ffn_npy_writer_finish(ffn_npy_writer_t *writer);

/* Gives up: removes the temporary file and frees the writer. NULL is fine. */
FFN_API void ffn_npy_writer_discard(ffn_npy_writer_t *writer);

#ifdef __cplusplus
}
#endif
#endif
