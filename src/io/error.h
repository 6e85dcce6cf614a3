/* SPDX-License-Identifier: MIT
 * The sentence behind ffn_io_last_error(): libffn-io has its own, longer than libffn's because it names files and lists names. What comes out of
 * a file is shortened and stripped of control characters before it goes into a sentence, so that a sentence is always one line. */
#ifndef FFNIO_ERROR_H
#define FFNIO_ERROR_H

#include <ffn/ffn_io.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

/* Names that base/structs.h gets inside libffn-io: its functions are compiled once more here (structs.c), where they report to this sentence. A
 * program that links libffn.a and libffn_io.a has both. */
#define ffni_fail ffnio_fail
#define ffni_struct_read ffnio_struct_read
#define ffni_struct_write ffnio_struct_write
#define ffni_struct_check ffnio_struct_check

enum { FFNIO_ERROR_SIZE = 1024, FFNIO_QUOTE_SIZE = 128, FFNIO_PATH_SIZE = 256 };

#if defined(__GNUC__)
#define FFNIO_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define FFNIO_PRINTF(text, first)
#endif

/* Each formats a sentence (cut at the buffer's size) and returns status, so that `return ffnio_fail(FFN_INVALID, ...)` reports and leaves. */
FFNIO_PRINTF(2, 3) ffn_status_t ffnio_fail(ffn_status_t status, const char *format, ...);

/* The same with "<path>: " in front; of a long path the end is shown. */
FFNIO_PRINTF(3, 4) ffn_status_t ffnio_fail_file(ffn_status_t status, const char *path, const char *format, ...);

/* FFN_FILE: "<path>: cannot <what>: No such file or directory". error_number is errno's. */
ffn_status_t ffnio_fail_system(const char *path, const char *what, int error_number);

/* FFN_NO_MEMORY: "cannot allocate <size> bytes for <what>". */
static inline ffn_status_t ffnio_fail_memory(uint64_t size, const char *what) {
    ffnio_fail(FFN_NO_MEMORY, "cannot allocate %" PRIu64 " bytes for %s", size, what);
    return FFN_NO_MEMORY; /* in sight of static analysis, which then knows that no one goes on without the memory */
}

/* After a call into libffn failed: takes its sentence over. */
ffn_status_t ffnio_fail_libffn(ffn_status_t status);

/* Text from outside as it may stand in a sentence: between double quotes, control characters as '?', shortened in the middle. For
 * ffnio_fail(..., "no tensor %s", ffnio_quote(name).text). */
typedef struct quoted {
    char text[FFNIO_QUOTE_SIZE];
} quoted_t;
quoted_t ffnio_quote(const char *text);

#endif
