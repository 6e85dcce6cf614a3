/* SPDX-License-Identifier: MIT
 * The Python dictionary in a .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (6, 16), }. Of Python's literals it takes what writers
 * of arrays produce: either quote, keys in any order, spaces anywhere, a comma at the end, the L of Python 2's long integers. */
#include "io/npy.h"

#include "base/checked.h"

#include <string.h>

/* The text from next to end is still to be read. */
typedef struct scanner {
    const char *path;
    const char *begin, *next, *end;
} scanner_t;

typedef struct span {
    const char *begin;
    int64_t length;
} span_t;

static ffn_status_t fail_at(const scanner_t *at, const char *expected) {
    return ffnio_fail_file(FFN_FORMAT, at->path, "the .npy header has no %s at its byte %" PRId64, expected, (int64_t)(at->next - at->begin));
}

static void skip_blanks(scanner_t *at) {
    while (at->next < at->end && (*at->next == ' ' || *at->next == '\t' || *at->next == '\n' || *at->next == '\r')) at->next++;
}

/* 1, and past it, if this character comes next. */
static int take(scanner_t *at, char c) {
    skip_blanks(at);
    if (at->next == at->end || *at->next != c) return 0;
    at->next++;
    return 1;
}

static int take_word(scanner_t *at, const char *word) {
    int64_t length = (int64_t)strlen(word);
    skip_blanks(at);
    if (at->end - at->next < length || memcmp(at->next, word, (size_t)length)) return 0;
    at->next += length;
    return 1;
}

/* 1 and what is between the quotes. None of the strings that matter has an escape in it. */
static int take_string(scanner_t *at, span_t *string) {
    skip_blanks(at);
    const char *c = at->next;
    if (c == at->end || (*c != '\'' && *c != '"')) return 0;
    const char *close = memchr(c + 1, *c, (size_t)(at->end - c - 1));
    if (!close) return 0;
    string->begin = c + 1;
    string->length = close - string->begin;
    at->next = close + 1;
    return 1;
}

static int is(span_t string, const char *text) {
    return (size_t)string.length == strlen(text) && !memcmp(string.begin, text, (size_t)string.length);
}

static int is_digit(const scanner_t *at) {
    return at->next < at->end && *at->next >= '0' && *at->next <= '9';
}

static ffn_status_t parse_size(scanner_t *at, int64_t *size) {
    skip_blanks(at);
    const char *begin = at->next;
    *size = 0;
    while (is_digit(at)) {
        if (!checked_multiply(*size, 10, size) || !checked_add(*size, *at->next - '0', size))
            return ffnio_fail_file(FFN_FORMAT, at->path, "a size in the shape of the .npy header is 2^63 or more");
        at->next++;
    }
    if (at->next == begin) return fail_at(at, "size (a number >= 0)");
    if (*begin == '0' && at->next - begin > 1) return ffnio_fail_file(FFN_FORMAT, at->path, "a size in the .npy header begins with 0");
    if (at->next < at->end && *at->next == 'L') at->next++;
    return FFN_OK;
}

/* (), (6,) or (6, 16), with or without a comma at the end; (6) is no tuple in Python. */
static ffn_status_t parse_shape(scanner_t *at, npy_header_t *header) {
    int comma = 1;
    header->ndim = 0;
    if (!take(at, '(')) return fail_at(at, "tuple of sizes, such as (6, 16),");
    while (!take(at, ')')) {
        if (!comma) return fail_at(at, "',' or ')'");
        if (header->ndim == NPY_MOST_DIMENSIONS)
            return ffnio_fail_file(FFN_FORMAT, at->path, "the .npy header has a shape of more than %d dimensions", NPY_MOST_DIMENSIONS);
        ffn_status_t status = parse_size(at, &header->shape[header->ndim]);
        if (status) return status;
        header->ndim++;
        comma = take(at, ',');
    }
    if (header->ndim == 1 && !comma) return fail_at(at, "tuple: (n) is a number, a tuple is (n,):");
    return FFN_OK;
}

/* '<f4' and its kin. Writers give the order as '<' or '>'; NumPy reads '=' and '|' as this machine's, too. */
static ffn_status_t parse_descr(scanner_t *at, npy_header_t *header) {
    static const struct {
        const char *name;
        element_t element;
    } types[] = {{"f2", ELEMENT_F16}, {"f4", ELEMENT_F32}, {"f8", ELEMENT_F64}};
    span_t descr;
    skip_blanks(at);
    if (at->next < at->end && *at->next == '[')
        return ffnio_fail_file(FFN_UNSUPPORTED, at->path, "its elements are records, must be f2, f4 or f8");
    if (!take_string(at, &descr)) return fail_at(at, "string for descr");
    header->element = ELEMENT_OTHER;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && descr.length == 3; i++)
        if (!memcmp(descr.begin + 1, types[i].name, 2)) header->element = types[i].element;
    if (header->element == ELEMENT_OTHER || !memchr("<>=|", descr.begin[0], 4)) {
        char text[32];
        int64_t shown = minimum(descr.length, (int64_t)sizeof text - 1);
        memcpy(text, descr.begin, (size_t)shown);
        text[shown] = 0;
        return ffnio_fail_file(FFN_UNSUPPORTED, at->path, "its dtype is %s, must be f2, f4 or f8 (NumPy: a.astype('<f4'))",
                               ffnio_quote(text).text);
    }
    header->order = descr.begin[0] == '<' ? LITTLE_ENDIAN_FILE : descr.begin[0] == '>' ? BIG_ENDIAN_FILE : ffnio_machine_order();
    return FFN_OK;
}

static ffn_status_t parse_fortran_order(scanner_t *at, npy_header_t *header) {
    header->fortran = take_word(at, "True");
    if (!header->fortran && !take_word(at, "False")) return fail_at(at, "True or False for fortran_order");
    return FFN_OK;
}

ffn_status_t ffnio_npy_header_parse(const char *path, const char *text, int64_t length, npy_header_t *header) {
    static const struct {
        const char *key;
        ffn_status_t (*parse)(scanner_t *, npy_header_t *);
    } members[] = {{"descr", parse_descr}, {"fortran_order", parse_fortran_order}, {"shape", parse_shape}};
    enum { MEMBERS = sizeof members / sizeof members[0] };
    scanner_t at = {path, text, text, text + length};
    int seen[MEMBERS] = {0}, comma = 1;
    if (!take(&at, '{')) return fail_at(&at, "'{'");
    while (!take(&at, '}')) {
        span_t key;
        int which = 0;
        if (!comma) return fail_at(&at, "',' or '}'");
        if (!take_string(&at, &key)) return fail_at(&at, "key in quotes");
        while (which < MEMBERS && !is(key, members[which].key)) which++;
        if (which == MEMBERS) return ffnio_fail_file(FFN_FORMAT, path, "the .npy header has a key other than descr, fortran_order and shape");
        if (seen[which]++) return ffnio_fail_file(FFN_FORMAT, path, "the .npy header has %s twice", members[which].key);
        if (!take(&at, ':')) return fail_at(&at, "':'");
        ffn_status_t status = members[which].parse(&at, header);
        if (status) return status;
        comma = take(&at, ',');
    }
    for (int i = 0; i < MEMBERS; i++)
        if (!seen[i]) return ffnio_fail_file(FFN_FORMAT, path, "the .npy header has no %s", members[i].key);
    skip_blanks(&at);
    return at.next == at.end ? FFN_OK : fail_at(&at, "end");
}
