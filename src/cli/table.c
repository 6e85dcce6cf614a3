/* SPDX-License-Identifier: MIT
 * Tables on standard output. */
#include "cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

table_t table_make(const char *alignment) {
    return (table_t){.columns = (int)strlen(alignment), .alignment = alignment};
}

/* A cell for which there is no memory is left empty: the table is for people, and the program goes on. */
void table_add(table_t *table, const char *format, ...) {
    if (table->cells == table->room) {
        int room = table->room ? 2 * table->room : 64;
        char **grown = realloc(table->cell, (size_t)room * sizeof *grown);
        if (!grown) return;
        table->cell = grown;
        table->room = room;
    }
    va_list values;
    va_start(values, format);
    int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (text) {
        va_start(values, format);
        vsnprintf(text, (size_t)length + 1, format, values);
        va_end(values);
        for (char *at = text; *at; at++)
            if ((unsigned char)*at < ' ' || *at == 127) *at = '?'; /* names come from files */
    }
    table->cell[table->cells++] = text;
}

/* UTF-8 characters, taken as one column each. */
static int width_of(const char *text) {
    int width = 0;
    for (; text && *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_row(const table_t *table, int row, const int *width) {
    for (int column = 0; column < table->columns && row * table->columns + column < table->cells; column++) {
        const char *text = table->cell[row * table->columns + column];
        int padding = width[column] - width_of(text), last = column == table->columns - 1, left = table->alignment[column] == 'l';
        printf("%s%*s%s%*s", column ? "  " : "", left ? 0 : padding, "", text ? text : "", left && !last ? padding : 0, "");
    }
    printf("\n");
}

void table_print(table_t *table) {
    int rows = (table->cells + table->columns - 1) / table->columns, *width = calloc((size_t)table->columns, sizeof *width);
    if (width) {
        for (int i = 0; i < table->cells; i++)
            if (width_of(table->cell[i]) > width[i % table->columns]) width[i % table->columns] = width_of(table->cell[i]);
        for (int row = 0; row < rows; row++) print_row(table, row, width);
    }
    for (int i = 0; i < table->cells; i++) free(table->cell[i]);
    free(table->cell);
    free(width);
    *table = (table_t){0};
}
