/* SPDX-License-Identifier: MIT
 * Sentences, numbers for people, JSON. */
#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int complain(const char *format, ...) {
    char text[2048];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    fprintf(stderr, "%sffn: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text); /* over a progress bar */
    return EXIT_FAILED;
}

int complain_memory(void) {
    return complain("out of memory");
}

number_text_t grouped(int64_t number) {
    number_text_t digits, out;
    int length = snprintf(digits.text, sizeof digits.text, "%" PRId64, number), to = 0;
    for (int i = 0; i < length; i++) {
        out.text[to++] = digits.text[i];
        int left = length - 1 - i;
        if (left && left % 3 == 0 && digits.text[i] != '-') out.text[to++] = ',';
    }
    out.text[to] = 0;
    return out;
}

number_text_t shortest(float number) {
    number_text_t out;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(out.text, sizeof out.text, "%.*g", digits, (double)number);
        if (strtof(out.text, NULL) == number) break;
    }
    return out;
}

number_text_t duration(double seconds) {
    number_text_t out;
    if (seconds < 1e-3) snprintf(out.text, sizeof out.text, "%.1f us", 1e6 * seconds);
    else if (seconds < 1) snprintf(out.text, sizeof out.text, "%.2f ms", 1e3 * seconds);
    else snprintf(out.text, sizeof out.text, "%.2f s", seconds);
    return out;
}

number_text_t percent(double part, double whole) {
    number_text_t out = {"-"};
    if (whole > 0) snprintf(out.text, sizeof out.text, "%.1f%%", 100 * part / whole);
    return out;
}

json_t *json_text(const char *text) {
    json_t *made = json_string(text);
    char *copy;
    if (made || !(copy = malloc(strlen(text) + 1))) return made;
    strcpy(copy, text);
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at > 127) *at = '?';
    made = json_string(copy);
    free(copy);
    return made;
}

json_t *json_float(float number) {
    return json_real(strtod(shortest(number).text, NULL));
}

json_t *json_figure(double number) {
    return isfinite(number) ? json_real(number) : json_null();
}

int json_print(json_t *root) {
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    int status = text ? EXIT_FINE : complain_memory();
    if (text) puts(text);
    free(text);
    json_decref(root);
    return status;
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
