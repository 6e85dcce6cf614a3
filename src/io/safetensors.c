/* SPDX-License-Identifier: MIT
 * The header of one safetensors file: 8 bytes with its length, little-endian, then a JSON object {name: {dtype, shape, data_offsets}}, then the
 * data, which the tensors cover without hole or overlap. Format: https://github.com/huggingface/safetensors (README.md). */
#include "io/safetensors.h"

#include "base/checked.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

static const char metadata_key[] = "__metadata__";

static const dtype_t dtypes[] = {
    {"F64", 64, ELEMENT_F64, 1},         {"F32", 32, ELEMENT_F32, 1},         {"F16", 16, ELEMENT_F16, 1},
    {"BF16", 16, ELEMENT_BF16, 1},       {"F8_E4M3", 8, ELEMENT_OTHER, 1},    {"F8_E5M2", 8, ELEMENT_OTHER, 1},
    {"F8_E4M3FNUZ", 8, ELEMENT_OTHER, 1}, {"F8_E5M2FNUZ", 8, ELEMENT_OTHER, 1}, {"F8_E8M0", 8, ELEMENT_OTHER, 1},
    {"F6_E2M3", 6, ELEMENT_OTHER, 1},    {"F6_E3M2", 6, ELEMENT_OTHER, 1},    {"F4", 4, ELEMENT_OTHER, 1},
    {"C64", 64, ELEMENT_OTHER, 1},       {"I64", 64, ELEMENT_OTHER, 0},       {"I32", 32, ELEMENT_OTHER, 0},
    {"I16", 16, ELEMENT_OTHER, 0},       {"I8", 8, ELEMENT_OTHER, 0},         {"U64", 64, ELEMENT_OTHER, 0},
    {"U32", 32, ELEMENT_OTHER, 0},       {"U16", 16, ELEMENT_OTHER, 0},       {"U8", 8, ELEMENT_OTHER, 0},
    {"BOOL", 8, ELEMENT_OTHER, 0},
};

static const dtype_t *find_dtype(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!strcmp(dtypes[i].name, name)) return &dtypes[i];
    return NULL;
}

/* The header's length, checked against the file before anything is allocated for it. */
static ffn_status_t read_length(const file_t *file, int64_t *length) {
    unsigned char head[LENGTH_BYTES + 1];
    if (file->size < LENGTH_BYTES)
        return ffnio_fail_file(FFN_FORMAT, file->path, "has %" PRId64 " bytes, a safetensors file begins with the %d bytes of its header's length",
                               file->size, LENGTH_BYTES);
    ffn_status_t status = ffnio_file_read(file, 0, head, minimum(file->size, (int64_t)sizeof head));
    if (status) return status;
    uint64_t claimed = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) claimed = claimed << 8 | head[i];
    if (claimed > FFNIO_JSON_LARGEST)
        return ffnio_fail_file(FFN_FORMAT, file->path, "the header's length, in its first 8 bytes, is %" PRIu64 ", must be at most %d: "
                               "probably no safetensors file", claimed, FFNIO_JSON_LARGEST);
    if (claimed > (uint64_t)(file->size - LENGTH_BYTES))
        return ffnio_fail_file(FFN_FORMAT, file->path, "the header's length is %" PRIu64 ", but only %" PRId64 " bytes follow it", claimed,
                               file->size - LENGTH_BYTES);
    if (!claimed || head[LENGTH_BYTES] != '{') return ffnio_fail_file(FFN_FORMAT, file->path, "the header does not begin with '{'");
    *length = (int64_t)claimed;
    return FFN_OK;
}

static ffn_status_t read_header(const file_t *file, int64_t *length, json_t **header) {
    ffn_status_t status = read_length(file, length);
    if (status) return status;
    char *text = malloc((size_t)*length);
    if (!text) return ffnio_fail_memory((uint64_t)*length, "the header of a safetensors file");
    status = ffnio_file_read(file, LENGTH_BYTES, text, *length);
    if (!status) status = ffnio_json_parse(file->path, "the header", text, *length, header);
    free(text);
    return status;
}

/* Strings to strings, or null. What it says is of no use here. */
static ffn_status_t check_metadata(const file_t *file, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata) && !json_is_null(metadata))
        return ffnio_fail_file(FFN_FORMAT, file->path, "%s is %s, must be an object", metadata_key, ffnio_json_kind(metadata));
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return ffnio_fail_file(FFN_FORMAT, file->path, "%s of %s is %s, must be a string", ffnio_quote(key).text, metadata_key,
                                   ffnio_json_kind(value));
    }
    return FFN_OK;
}

/* What the tensors' names and shapes need, once the entries are known to be objects that have a shape. */
static ffn_status_t measure(const file_t *file, json_t *header, int64_t *count, size_t *bytes) {
    const char *name;
    json_t *entry;
    *count = 0;
    *bytes = 0;
    json_object_foreach(header, name, entry) {
        if (!strcmp(name, metadata_key)) {
            ffn_status_t status = check_metadata(file, entry);
            if (status) return status;
            continue;
        }
        if (!json_is_object(entry))
            return ffnio_fail_file(FFN_FORMAT, file->path, "the entry of tensor %s is %s, must be an object", ffnio_quote(name).text,
                                   ffnio_json_kind(entry));
        const json_t *shape = json_object_get(entry, "shape");
        if (!json_is_array(shape))
            return ffnio_fail_file(FFN_FORMAT, file->path, "shape of tensor %s is %s, must be an array", ffnio_quote(name).text,
                                   ffnio_json_kind(shape));
        /* No sum can overflow: each part is in memory already, in a larger form. */
        *bytes += strlen(name) + 1 + json_array_size(shape) * sizeof(int64_t);
        *count += 1;
    }
    return FFN_OK;
}

/* An integer >= 0 of the header. */
static ffn_status_t read_number(const file_t *file, const char *name, const char *what, const json_t *value, int64_t *number) {
    *number = 0;
    if (!json_is_integer(value))
        return ffnio_fail_file(FFN_FORMAT, file->path, "%s of tensor %s holds %s, must be integers", what, ffnio_quote(name).text,
                               ffnio_json_kind(value));
    *number = (int64_t)json_integer_value(value);
    if (*number < 0)
        return ffnio_fail_file(FFN_FORMAT, file->path, "%s of tensor %s holds %" PRId64 ", must not be negative", what, ffnio_quote(name).text,
                               *number);
    return FFN_OK;
}

static ffn_status_t read_shape(const file_t *file, stored_tensor_t *tensor, const json_t *shape, int64_t *sizes) {
    tensor->ndim = (uint32_t)json_array_size(shape);
    tensor->shape = tensor->ndim ? sizes : NULL;
    tensor->elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        ffn_status_t status = read_number(file, tensor->name, "shape", json_array_get(shape, i), &sizes[i]);
        if (status) return status;
        if (!checked_multiply(tensor->elements, sizes[i], &tensor->elements))
            return ffnio_fail_file(FFN_FORMAT, file->path, "shape of tensor %s asks for 2^63 elements or more", ffnio_quote(tensor->name).text);
    }
    return FFN_OK;
}

/* data_offsets count from the end of the header; they must span what dtype and shape ask for. */
static ffn_status_t read_offsets(const file_t *file, stored_tensor_t *tensor, const json_t *offsets, int64_t data_begin) {
    int64_t begin, end, bits;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return ffnio_fail_file(FFN_FORMAT, file->path, "data_offsets of tensor %s is %s, must be an array of two integers",
                               ffnio_quote(tensor->name).text, json_is_array(offsets) ? "of another length" : ffnio_json_kind(offsets));
    ffn_status_t status = read_number(file, tensor->name, "data_offsets", json_array_get(offsets, 0), &begin);
    if (!status) status = read_number(file, tensor->name, "data_offsets", json_array_get(offsets, 1), &end);
    if (status) return status;
    if (begin > end || end > file->size - data_begin)
        return ffnio_fail_file(FFN_FORMAT, file->path, "data_offsets of tensor %s are %" PRId64 " and %" PRId64 ", must ascend, to %" PRId64
                               " at most", ffnio_quote(tensor->name).text, begin, end, file->size - data_begin);
    if (!checked_multiply(tensor->elements, tensor->dtype->bits, &bits) || bits % 8 || bits / 8 != end - begin)
        return ffnio_fail_file(FFN_FORMAT, file->path, "data_offsets of tensor %s span %" PRId64 " bytes, which are not its %" PRId64
                               " elements of %s", ffnio_quote(tensor->name).text, end - begin, tensor->elements, tensor->dtype->name);
    tensor->offset = data_begin + begin;
    tensor->bytes = end - begin;
    return FFN_OK;
}

static ffn_status_t read_entry(const file_t *file, stored_tensor_t *tensor, json_t *entry, int64_t *sizes, int64_t data_begin) {
    const json_t *dtype = json_object_get(entry, "dtype");
    if (!json_is_string(dtype))
        return ffnio_fail_file(FFN_FORMAT, file->path, "dtype of tensor %s is %s, must be a string", ffnio_quote(tensor->name).text,
                               ffnio_json_kind(dtype));
    tensor->dtype = find_dtype(json_string_value(dtype));
    if (!tensor->dtype)
        return ffnio_fail_file(FFN_FORMAT, file->path, "dtype of tensor %s is %s, which the format does not have",
                               ffnio_quote(tensor->name).text, ffnio_quote(json_string_value(dtype)).text);
    ffn_status_t status = read_shape(file, tensor, json_object_get(entry, "shape"), sizes);
    if (!status) status = read_offsets(file, tensor, json_object_get(entry, "data_offsets"), data_begin);
    return status;
}

static int by_offset(const void *left, const void *right) {
    const stored_tensor_t *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* No hole, no overlap, nothing after the last: what no tensor owns could be anything, and what two own means a mistake. */
static ffn_status_t check_cover(const file_t *file, stored_tensor_t *tensors, int64_t count, int64_t data_begin) {
    int64_t end = data_begin;
    if (count) qsort(tensors, (size_t)count, sizeof *tensors, by_offset);
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i].offset != end)
            return ffnio_fail_file(FFN_FORMAT, file->path, "the data of tensor %s begins at %" PRId64 ", must begin at %" PRId64
                                   ", where the one before it ends", ffnio_quote(tensors[i].name).text, tensors[i].offset - data_begin,
                                   end - data_begin);
        end += tensors[i].bytes;
    }
    if (end != file->size)
        return ffnio_fail_file(FFN_FORMAT, file->path, "the tensors' data ends at %" PRId64 ", the file's at %" PRId64, end - data_begin,
                               file->size - data_begin);
    return FFN_OK;
}

/* Fills tensors, and the block with all shapes first (for their alignment), then all names. */
static ffn_status_t read_entries(const file_t *file, json_t *header, int64_t data_begin, uint32_t file_index, stored_tensor_t *tensors,
                                 void *block, size_t bytes) {
    const char *name;
    json_t *entry;
    int64_t *sizes = block;
    char *names = (char *)block + bytes;
    stored_tensor_t *tensor = tensors;
    json_object_foreach(header, name, entry) {
        if (!strcmp(name, metadata_key)) continue;
        size_t length = strlen(name) + 1;
        names -= length;
        memcpy(names, name, length);
        tensor->name = names;
        tensor->file = file_index;
        ffn_status_t status = read_entry(file, tensor, entry, sizes, data_begin);
        if (status) return status;
        sizes += tensor->ndim;
        tensor++;
    }
    return check_cover(file, tensors, tensor - tensors, data_begin);
}

ffn_status_t ffnio_safetensors_read(const file_t *file, uint32_t file_index, stored_tensor_t **tensors, int64_t *count, void **block) {
    json_t *header = NULL;
    int64_t length = 0;
    size_t bytes = 0;
    *tensors = NULL;
    *block = NULL;
    ffn_status_t status = read_header(file, &length, &header);
    if (!status) status = measure(file, header, count, &bytes);
    if (status) goto cleanup;
    *tensors = calloc((size_t)*count + 1, sizeof **tensors);
    *block = malloc(bytes + 1);
    status = *tensors && *block ? read_entries(file, header, LENGTH_BYTES + length, file_index, *tensors, *block, bytes)
                                : ffnio_fail_memory(bytes + (size_t)*count * sizeof **tensors, "the list of tensors");
cleanup:
    if (status) {
        free(*tensors);
        free(*block);
        *tensors = NULL;
        *block = NULL;
    }
    json_decref(header);
    return status;
}
