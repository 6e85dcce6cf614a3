/* SPDX-License-Identifier: MIT
 * A checkpoint: one safetensors file, or those that an index names, as one sorted list of tensors. */
#include "io/safetensors.h"

#include "base/checked.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char single_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json";

/* The tensors of one file, sorted by name. */
typedef struct part {
    stored_tensor_t *tensors;
    int64_t count;
} part_t;

static int by_name(const void *left, const void *right) {
    return strcmp(((const stored_tensor_t *)left)->name, ((const stored_tensor_t *)right)->name);
}

static void sort_by_name(stored_tensor_t *tensors, int64_t count) {
    if (count) qsort(tensors, (size_t)count, sizeof *tensors, by_name);
}

static int64_t find(const stored_tensor_t *tensors, int64_t count, const char *name) {
    stored_tensor_t key = {.name = name};
    const stored_tensor_t *found = count ? bsearch(&key, tensors, (size_t)count, sizeof *tensors, by_name) : NULL;
    return found ? found - tensors : -1;
}

/* Room for as many files. */
static ffn_status_t make_files(checkpoint_t *checkpoint, size_t count) {
    checkpoint->files = calloc(count + 1, sizeof *checkpoint->files);
    checkpoint->blocks = calloc(count + 1, sizeof *checkpoint->blocks);
    if (!checkpoint->files || !checkpoint->blocks) return ffnio_fail_memory(count * sizeof *checkpoint->files, "the list of files");
    for (size_t i = 0; i < count; i++) checkpoint->files[i].descriptor = -1;
    return FFN_OK;
}

/* Opens the next file and reads its tensors. */
static ffn_status_t add_file(checkpoint_t *checkpoint, const char *path, int map, part_t *part) {
    uint32_t index = checkpoint->file_count;
    file_t *file = &checkpoint->files[index];
    ffn_status_t status = ffnio_file_open(path, file);
    if (status) return status;
    checkpoint->file_count++;
    if (!checked_add(checkpoint->bytes, file->size, &checkpoint->bytes))
        return ffnio_fail_file(FFN_FORMAT, path, "has %" PRId64 " bytes, which makes 2^63 or more for all files", file->size);
    status = ffnio_safetensors_read(file, index, &part->tensors, &part->count, &checkpoint->blocks[index]);
    if (status) return status;
    sort_by_name(part->tensors, part->count);
    return map ? ffnio_file_map(file) : FFN_OK;
}

static ffn_status_t open_single(checkpoint_t *checkpoint, int map) {
    part_t part = {NULL, 0};
    ffn_status_t status = make_files(checkpoint, 1);
    if (!status) status = add_file(checkpoint, checkpoint->path, map, &part);
    checkpoint->tensors = part.tensors;
    checkpoint->tensor_count = part.count;
    return status;
}

/* A shard lies beside its index: a name with a folder in it could lead anywhere. */
static int is_plain_name(const char *name) {
    return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* Numbers the files that the weight map names: {file: 0, 1, ...}. */
static ffn_status_t list_shards(const char *path, json_t *weight_map, json_t *shards) {
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value) {
        const char *shard = json_string_value(value);
        if (!shard)
            return ffnio_fail_file(FFN_FORMAT, path, "the file of tensor %s is %s, must be a string", ffnio_quote(name).text,
                                   ffnio_json_kind(value));
        if (!is_plain_name(shard))
            return ffnio_fail_file(FFN_FORMAT, path, "the file of tensor %s is %s, must be the name of a file beside the index",
                                   ffnio_quote(name).text, ffnio_quote(shard).text);
        if (json_object_get(shards, shard)) continue;
        if (json_object_set_new(shards, shard, json_integer((json_int_t)json_object_size(shards))))
            return ffnio_fail_memory(strlen(shard), "the name of a file");
    }
    return FFN_OK;
}

static ffn_status_t add_shards(checkpoint_t *checkpoint, json_t *shards, int map, part_t *parts) {
    const char *name;
    json_t *number;
    json_object_foreach(shards, name, number) {
        char *path = ffnio_path_join(checkpoint->folder, name);
        if (!path) return FFN_NO_MEMORY;
        ffn_status_t status = add_file(checkpoint, path, map, &parts[json_integer_value(number)]);
        free(path);
        if (status) return status;
    }
    return FFN_OK;
}

/* The weight map's tensors, each from the file that it names. What else is in the files is left out, as the map's other readers do. */
static ffn_status_t gather(checkpoint_t *checkpoint, json_t *weight_map, json_t *shards, const part_t *parts) {
    const char *name;
    json_t *value;
    size_t count = json_object_size(weight_map);
    checkpoint->tensors = calloc(count + 1, sizeof *checkpoint->tensors);
    if (!checkpoint->tensors) return ffnio_fail_memory(count * sizeof *checkpoint->tensors, "the list of tensors");
    json_object_foreach(weight_map, name, value) {
        const part_t *part = &parts[json_integer_value(json_object_get(shards, json_string_value(value)))];
        int64_t found = find(part->tensors, part->count, name);
        if (found < 0)
            return ffnio_fail_file(FFN_FORMAT, checkpoint->path, "tensor %s is said to be in %s, which does not have it", ffnio_quote(name).text,
                                   ffnio_quote(json_string_value(value)).text);
        checkpoint->tensors[checkpoint->tensor_count++] = part->tensors[found];
    }
    sort_by_name(checkpoint->tensors, checkpoint->tensor_count);
    return FFN_OK;
}

static ffn_status_t open_index(checkpoint_t *checkpoint, int map) {
    json_t *root = NULL, *shards = NULL;
    part_t *parts = NULL;
    size_t count = 0;
    ffn_status_t status = ffnio_json_read(checkpoint->path, &root);
    if (status) return status;
    json_t *weight_map = json_object_get(root, "weight_map");
    if (!json_is_object(weight_map)) {
        status = ffnio_fail_file(FFN_FORMAT, checkpoint->path, "weight_map is %s, must be an object", ffnio_json_kind(weight_map));
        goto cleanup;
    }
    shards = json_object();
    status = shards ? list_shards(checkpoint->path, weight_map, shards) : ffnio_fail_memory(sizeof *shards, "the list of files");
    if (status) goto cleanup;
    count = json_object_size(shards);
    parts = calloc(count + 1, sizeof *parts);
    status = parts ? make_files(checkpoint, count) : ffnio_fail_memory(count * sizeof *parts, "the list of files");
    if (!status) status = add_shards(checkpoint, shards, map, parts);
    if (!status) status = gather(checkpoint, weight_map, shards, parts);
cleanup:
    for (size_t i = 0; parts && i < count; i++) free(parts[i].tensors);
    free(parts);
    json_decref(shards);
    json_decref(root);
    return status;
}

/* checkpoint->path and folder: what was given, or what a folder that was given holds. */
static ffn_status_t locate(checkpoint_t *checkpoint, const char *path) {
    if (!ffnio_path_is_folder(path)) {
        checkpoint->folder = ffnio_path_folder(path);
        checkpoint->path = ffnio_path_join("", path);
        return checkpoint->folder && checkpoint->path ? FFN_OK : FFN_NO_MEMORY;
    }
    checkpoint->folder = ffnio_path_join("", path);
    checkpoint->path = checkpoint->folder ? ffnio_path_join(path, single_name) : NULL;
    if (!checkpoint->path) return FFN_NO_MEMORY;
    if (ffnio_path_is_file(checkpoint->path)) return FFN_OK;
    free(checkpoint->path);
    checkpoint->path = ffnio_path_join(path, index_name);
    if (!checkpoint->path) return FFN_NO_MEMORY;
    if (ffnio_path_is_file(checkpoint->path)) return FFN_OK;
    return ffnio_fail_file(FFN_FILE, path, "the folder holds neither %s nor %s", single_name, index_name);
}

static int is_index(const char *path) {
    size_t length = strlen(path);
    return length >= 5 && !strcmp(path + length - 5, ".json");
}

ffn_status_t ffnio_checkpoint_open(const char *path, int map, checkpoint_t **checkpoint) {
    *checkpoint = NULL;
    checkpoint_t *made = calloc(1, sizeof *made);
    if (!made) return ffnio_fail_memory(sizeof *made, "a checkpoint");
    ffn_status_t status = locate(made, path);
    if (!status) status = is_index(made->path) ? open_index(made, map) : open_single(made, map);
    if (status)
        ffnio_checkpoint_close(made);
    else
        *checkpoint = made;
    return status;
}

void ffnio_checkpoint_close(checkpoint_t *checkpoint) {
    if (!checkpoint) return;
    for (uint32_t i = 0; i < checkpoint->file_count; i++) {
        ffnio_file_close(&checkpoint->files[i]);
        free(checkpoint->blocks[i]);
    }
    free(checkpoint->files);
    free(checkpoint->blocks);
    free(checkpoint->tensors);
    free(checkpoint->path);
    free(checkpoint->folder);
    free(checkpoint);
}

int64_t ffnio_checkpoint_find(const checkpoint_t *checkpoint, const char *name) {
    return find(checkpoint->tensors, checkpoint->tensor_count, name);
}

ffn_status_t ffnio_tensor_read(const checkpoint_t *checkpoint, const stored_tensor_t *tensor, int64_t first, int64_t count, float *out) {
    const file_t *file = &checkpoint->files[tensor->file];
    if (tensor->dtype->element == ELEMENT_OTHER)
        return ffnio_fail_file(FFN_UNSUPPORTED, file->path, "dtype of tensor %s is %s, only F64, F32, F16 and BF16 can be read",
                               ffnio_quote(tensor->name).text, tensor->dtype->name);
    if (first < 0 || count < 0 || first > tensor->elements - count)
        return ffnio_fail_file(FFN_INVALID, file->path, "elements %" PRId64 " and the next %" PRId64 " of tensor %s are asked for, it has %" PRId64,
                               first, count, ffnio_quote(tensor->name).text, tensor->elements);
    int64_t offset = tensor->offset + first * ffnio_element_size(tensor->dtype->element);
    return ffnio_file_read_floats(file, offset, tensor->dtype->element, LITTLE_ENDIAN_FILE, count, out);
}

const float *ffnio_tensor_mapped(const checkpoint_t *checkpoint, const stored_tensor_t *tensor) {
    const char *map = checkpoint->files[tensor->file].map;
    if (!map || tensor->dtype->element != ELEMENT_F32 || !tensor->elements || ffnio_machine_order() != LITTLE_ENDIAN_FILE) return NULL;
    const void *data = map + tensor->offset;
    return (uintptr_t)data % sizeof(float) ? NULL : data;
}
