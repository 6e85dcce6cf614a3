/* SPDX-License-Identifier: MIT
 * Reading JSON, with limits on what a hostile file may cost. */
#include "io/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* jansson recurses, up to 2048 levels and some hundred bytes each, and callers may have 64 kB of stack. Headers have 3 levels, configurations
 * of published models about 6. */
enum { DEEPEST = 64 };

/* Counts brackets outside of strings. What is no JSON is counted somehow, and then refused by jansson, which is never deeper than this count. */
static int too_deep(const char *text, int64_t length) {
    int depth = 0, in_string = 0;
    for (int64_t i = 0; i < length; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            if (c == '"') in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '[' || c == '{') {
            if (++depth > DEEPEST) return 1;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return 0;
}

/* The text on its way to jansson. jansson 2.14 goes on without the byte that it finds no memory for, and would hand out a name that the file
 * does not have. It is therefore given single bytes, and errno is looked at between them: a failed allocation sets it (POSIX). */
typedef struct feed {
    const char *next, *end;
    int no_memory;
} feed_t;

static size_t next_byte(void *buffer, size_t room, void *data) {
    feed_t *feed = data;
    if (errno == ENOMEM) feed->no_memory = 1;
    if (feed->no_memory || feed->next == feed->end || !room) return 0;
    *(char *)buffer = *feed->next++;
    return 1;
}

ffn_status_t ffnio_json_parse(const char *path, const char *what, const char *text, int64_t length, json_t **root) {
    *root = NULL;
    if (too_deep(text, length)) return ffnio_fail_file(FFN_FORMAT, path, "%s nests deeper than %d levels", what, DEEPEST);
    json_error_t error;
    feed_t feed = {text, text + length, 0};
    errno = 0;
    *root = json_load_callback(next_byte, &feed, JSON_REJECT_DUPLICATES, &error);
    if (feed.no_memory || errno == ENOMEM) {
        json_decref(*root);
        *root = NULL;
        return ffnio_fail_file(FFN_NO_MEMORY, path, "there is no memory for %s (%" PRId64 " bytes of JSON)", what, length);
    }
    if (*root) return FFN_OK;
    return ffnio_fail_file(FFN_FORMAT, path, "%s is not valid JSON: %s (byte %d)", what, error.text, error.position);
}

ffn_status_t ffnio_json_read(const char *path, json_t **root) {
    file_t file;
    char *text = NULL;
    *root = NULL;
    ffn_status_t status = ffnio_file_open(path, &file);
    if (status) return status;
    if (file.size > FFNIO_JSON_LARGEST) {
        status = ffnio_fail_file(FFN_FORMAT, path, "has %" PRId64 " bytes, must have at most %d", file.size, FFNIO_JSON_LARGEST);
        goto cleanup;
    }
    text = malloc((size_t)file.size + 1);
    if (!text) {
        status = ffnio_fail_memory((uint64_t)file.size + 1, "a JSON file");
        goto cleanup;
    }
    status = ffnio_file_read(&file, 0, text, file.size);
    if (!status) status = ffnio_json_parse(path, "it", text, file.size, root);
    if (!status && !json_is_object(*root)) {
        status = ffnio_fail_file(FFN_FORMAT, path, "it is %s, must be a JSON object", ffnio_json_kind(*root));
        json_decref(*root);
        *root = NULL;
    }
cleanup:
    free(text);
    ffnio_file_close(&file);
    return status;
}

const char *ffnio_json_kind(const json_t *value) {
    if (!value) return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number that is no integer";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "unknown";
}
