/* SPDX-License-Identifier: MIT
 * The thread-local error sentence of libffn-io, and the names of statuses. */
#include "io/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[FFNIO_ERROR_SIZE];

/* Bytes of the character that begins here if it is well-formed UTF-8 and no control character, else 0. */
static size_t printable_length(const unsigned char *c) {
    if (c[0] < 0x80) return c[0] >= ' ' && c[0] != 0x7f;
    size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4) return 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    /* control characters, overlong forms, surrogates, beyond Unicode */
    if ((c[0] == 0xc2 && c[1] < 0xa0) || (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f)) return 0;
    if ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f)) return 0;
    return length;
}

/* Paths and names may hold anything. A program prints the sentence on a terminal: line ends, escape sequences and halves of characters (which
 * cuts leave) become '?'. */
static void clean(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c;) {
        size_t length = printable_length(c);
        if (!length) *c = '?';
        c += length ? length : 1;
    }
}

/* An argument may be the last sentence itself, so a new one is made beside it. */
static void set(const char *path, const char *format, va_list arguments) {
    char text[FFNIO_ERROR_SIZE];
    size_t used = 0;
    if (path) {
        size_t length = strlen(path), shown = FFNIO_PATH_SIZE - 8;
        int written = length <= shown ? snprintf(text, sizeof text, "%s: ", path)
                                      : snprintf(text, sizeof text, "...%s: ", path + length - shown);
        used = written > 0 ? (size_t)written : 0;
    }
    if (vsnprintf(text + used, sizeof text - used, format, arguments) < 0) text[used] = 0;
    clean(text);
    memcpy(error_text, text, strlen(text) + 1);
}

ffn_status_t ffnio_fail(ffn_status_t status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    set(NULL, format, arguments);
    va_end(arguments);
    return status;
}

ffn_status_t ffnio_fail_file(ffn_status_t status, const char *path, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    set(path, format, arguments);
    va_end(arguments);
    return status;
}

ffn_status_t ffnio_fail_system(const char *path, const char *what, int error_number) {
    char reason[160];
    if (strerror_r(error_number, reason, sizeof reason)) snprintf(reason, sizeof reason, "error %d", error_number);
    return ffnio_fail_file(FFN_FILE, path, "cannot %s: %s", what, reason);
}

ffn_status_t ffnio_fail_libffn(ffn_status_t status) {
    return ffnio_fail(status, "%s", ffn_last_error());
}

quoted_t ffnio_quote(const char *text) {
    enum { HALF = (FFNIO_QUOTE_SIZE - 8) / 2 };
    quoted_t quoted;
    size_t length = strlen(text);
    if (length <= 2 * HALF)
        snprintf(quoted.text, sizeof quoted.text, "\"%s\"", text);
    else
        snprintf(quoted.text, sizeof quoted.text, "\"%.*s...%s\"", (int)HALF, text, text + length - HALF);
    clean(quoted.text);
    return quoted;
}

const char *ffn_io_last_error(void) {
    return error_text;
}

const char *ffn_io_status_name(ffn_status_t status) {
    switch (status) {
    case FFN_FILE: return "FFN_FILE";
    case FFN_FORMAT: return "FFN_FORMAT";
    case FFN_UNKNOWN: return "FFN_UNKNOWN";
    default: return ffn_status_name(status);
    }
}
