/* SPDX-License-Identifier: MIT */
#include "support/header.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char path[] = FFN_SOURCE_DIR "/include/ffn/ffn.h";

/* The header with its comments blanked out. */
static char *read_header(void)
{
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot read %s", path);
    size_t room = 1 << 20;
    char *text = test_alloc(room);
    size_t length = fread(text, 1, room - 1, file);
    fclose(file);
    text[length] = 0;
    for (char *begin = strstr(text, "/*"); begin; begin = strstr(begin, "/*")) {
        char *end = strstr(begin, "*/");
        assert_non_null(end);
        memset(begin, ' ', (size_t)(end + 2 - begin));
    }
    return text;
}

static int is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The name of a declaration: of a pointer to a function what follows "(*", else the last name before '[' or the end. */
static void declared_name(const char *begin, const char *end, char name[HEADER_NAME])
{
    char declaration[256];
    assert_true((size_t)(end - begin) < sizeof declaration);
    snprintf(declaration, sizeof declaration, "%.*s", (int)(end - begin), begin);
    char *pointer = strstr(declaration, "(*"), *last = declaration + strcspn(declaration, "[");
    if (pointer) last = pointer + 2 + strcspn(pointer, ")") - 2;
    while (last > declaration && !is_name(last[-1])) last--;
    char *first = last;
    while (first > declaration && is_name(first[-1])) first--;
    assert_true(last - first > 0 && last - first < HEADER_NAME);
    snprintf(name, HEADER_NAME, "%.*s", (int)(last - first), first);
}

/* Splits at a separator, outside of parentheses. */
static void add_members(header_item_t *item, const char *begin, const char *end, char separator)
{
    int depth = 0;
    const char *start = begin;
    for (const char *c = begin; c <= end; c++) {
        if (c < end && *c == '(') depth++;
        if (c < end && *c == ')') depth--;
        if (c < end && (depth || *c != separator)) continue;
        while (start < c && isspace((unsigned char)*start)) start++;
        if (start < c) {
            assert_true(item->members < HEADER_MEMBERS);
            declared_name(start, c, item->member[item->members++]);
        }
        start = c + 1;
    }
}

header_item_t *header_functions(int64_t *count)
{
    enum { LIMIT = 128 };
    header_item_t *items = test_alloc(LIMIT * sizeof *items);
    memset(items, 0, LIMIT * sizeof *items);
    char *text = read_header();
    *count = 0;
    for (char *c = text; (c = strstr(c, "\nFFN_API "));) {
        c += strlen("\nFFN_API ");
        char *open = strchr(c, '('), *close = strstr(c, ");");
        assert_true(*count < LIMIT && open && close);
        header_item_t *item = &items[(*count)++];
        declared_name(c, open, item->name);
        add_members(item, open + 1, close, ',');
    }
    free(text);
    if (!*count) fail_msg("no function found in %s", path);
    return items;
}

header_item_t header_struct(const char *name)
{
    header_item_t item = {.members = 0};
    char *text = read_header(), end[HEADER_NAME + 8];
    snprintf(item.name, sizeof item.name, "%s", name);
    snprintf(end, sizeof end, "} %s;", name);
    char *close = strstr(text, end);
    if (!close) fail_msg("no struct %s in %s", name, path);
    char *open = close;
    while (open > text && *open != '{') open--;
    add_members(&item, open + 1, close, ';');
    free(text);
    return item;
}
