/* SPDX-License-Identifier: MIT
 * What the program says: sentences on standard error, numbers for people, tables and JSON on standard output. */
#ifndef FFN_CLI_TEXT_H
#define FFN_CLI_TEXT_H

#include <ffn/ffn.h>

#include <jansson.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

/* Exit statuses. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Writes "ffn: <sentence>" as one line to standard error, control characters as '?'. Returns EXIT_FAILED. */
PRINTF_LIKE(1, 2) int complain(const char *format, ...);
int complain_memory(void); /* "out of memory" */

/* 1234567 as "1,234,567". */
typedef struct number_text {
    char text[32];
} number_text_t;
number_text_t grouped(int64_t number);
number_text_t shortest(float number);      /* the fewest digits that give this float again: "1e-05" */
number_text_t duration(double seconds);    /* "12.3 ms" */
number_text_t percent(double part, double whole); /* "66.7%"; "-" of nothing */

/* A table whose columns are as wide as their widest cell. The first row is the heading. */
typedef struct table {
    int columns, cells, room;
    const char *alignment; /* one letter for each column: 'l' or 'r' */
    char **cell;
} table_t;
table_t table_make(const char *alignment);
PRINTF_LIKE(2, 3) void table_add(table_t *table, const char *format, ...); /* the next cell */
void table_print(table_t *table);                                         /* and frees it */

/* Text that may not be UTF-8 (a path). */
json_t *json_text(const char *text);
json_t *json_float(float number); /* with the float's own digits, not its double's */
json_t *json_figure(double number); /* null where it is NaN or infinite, which JSON does not have */

/* Prints the object and releases it. NULL, as jansson returns where memory is short: complains. Returns an exit status. */
int json_print(json_t *root);

/* Seconds of a clock that no one sets. */
double seconds_now(void);

#endif
