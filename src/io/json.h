/* SPDX-License-Identifier: MIT
 * JSON from files, through jansson. What jansson reads is UTF-8 without escaped lone surrogates, with integers that fit 64 bits. */
#ifndef FFNIO_JSON_H
#define FFNIO_JSON_H

#include <jansson.h>

#include "io/error.h"
#include "io/file.h"

/* Of a .safetensors header as of a whole .json file: the limit of the format's reference implementation. */
enum { FFNIO_JSON_LARGEST = 100000000 };

/* Parses text that comes from the file of that path; `what` is for the sentence ("the header"). A key that occurs twice in an object is
 * refused, and so is nesting deeper than 64. *root is a new reference: json_decref. FFN_FORMAT, FFN_NO_MEMORY. */
ffn_status_t ffnio_json_parse(const char *path, const char *what, const char *text, int64_t length, json_t **root);

/* Reads a whole .json file. The root must be an object. FFN_FILE, FFN_FORMAT, FFN_NO_MEMORY. */
ffn_status_t ffnio_json_read(const char *path, json_t **root);

/* "a string", "an integer", "null", ... for sentences; NULL gives "missing". */
const char *ffnio_json_kind(const json_t *value);

#endif
