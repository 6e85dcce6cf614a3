/* SPDX-License-Identifier: MIT
 * The sentence behind ffn_last_error(): a fixed buffer per thread, so that reporting a failure cannot itself fail. */
#ifndef FFNI_ERROR_H
#define FFNI_ERROR_H

#include <ffn/ffn.h>

enum { ERROR_TEXT_SIZE = 320 };

typedef struct number_text {
    char text[32];
} number_text_t;

/* Formats the sentence (cut at the buffer's size) and returns status, so that `return ffni_fail(FFN_INVALID, ...)` reports and leaves. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
ffn_status_t ffni_fail(ffn_status_t status, const char *format, ...);

/* A float for a sentence, with a decimal point whatever the locale: ffni_fail(..., "eps is %s", ffni_number(eps).text). */
number_text_t ffni_number(double value);

/* This thread's last sentence. ffni_error_set replaces it by another, of less than ERROR_TEXT_SIZE characters (used when a call was carried out
 * on another thread). */
const char *ffni_error_text(void);
void ffni_error_set(const char *text);

#endif
