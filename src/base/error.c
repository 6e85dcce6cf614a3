/* SPDX-License-Identifier: MIT
 * The thread-local error sentence. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[ERROR_TEXT_SIZE];

/* An argument may be the last sentence itself, so a new one is made beside it; and it may be a caller's string, whose line ends and bytes
 * beyond ASCII (which a cut could leave in pieces) have no place in one line of text. */
ffn_status_t ffni_fail(ffn_status_t status, const char *format, ...) {
    char text[ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    ffni_error_set(text);
    return status;
}

number_text_t ffni_number(double value) {
    number_text_t number;
    snprintf(number.text, sizeof number.text, "%.9g", value);
    /* Whatever is neither a digit, a sign nor a letter of "e", "inf" and "nan" is the locale's decimal point, of one byte or more. */
    char *end = number.text;
    for (const char *c = number.text; *c; c++) {
        if (strchr("0123456789+-einfa", *c)) *end++ = *c;
        else if (end == number.text || end[-1] != '.') *end++ = '.';
    }
    *end = 0;
    return number;
}

const char *ffni_error_text(void) {
    return error_text;
}

void ffni_error_set(const char *text) {
    memcpy(error_text, text, strlen(text) + 1);
}
