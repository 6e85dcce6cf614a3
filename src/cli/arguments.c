/* SPDX-License-Identifier: MIT
 * Options through getopt_long, and the help text, from one table. */
#include "cli/arguments.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP = 'h', HELP_COLUMN = 28, MAX_OPTIONS = 63 };

arguments_t arguments_begin(const command_t *command, int count, char **words) {
    static struct option parser[MAX_OPTIONS + 1]; /* one command line in the life of the program */
    int options = 0;
    for (const option_row_t *row = command->options; row->name && options < MAX_OPTIONS - 1; row++)
        parser[options++] = (struct option){row->name, row->argument ? required_argument : no_argument, NULL, 256 + row->id};
    parser[options++] = (struct option){"help", no_argument, NULL, HELP};
    parser[options] = (struct option){0};
    opterr = 0; /* the sentences are written here */
    optind = 1;
    return (arguments_t){.command = command, .count = count, .words = words, .parser = parser};
}

static const option_row_t *row_of(const command_t *command, int id) {
    const option_row_t *row = command->options;
    while (row->name && row->id != id) row++;
    return row;
}

static int next_word(arguments_t *arguments) {
    if (arguments->next_word >= arguments->count) return ARGUMENT_END;
    arguments->value = arguments->words[arguments->next_word++];
    return ARGUMENT_WORD;
}

int arguments_next(arguments_t *arguments) {
    int at = optind;
    arguments->option = NULL;
    if (arguments->next_word) return next_word(arguments);
    /* '-': words between the options come in their order, whatever POSIXLY_CORRECT says; ':': a missing value is told apart */
    int found = getopt_long(arguments->count, arguments->words, "-:h", arguments->parser, NULL);
    arguments->value = optarg;
    if (found == -1) { /* what follows "--" are words */
        arguments->next_word = optind;
        return next_word(arguments);
    }
    if (found == 1) return ARGUMENT_WORD;
    if (found == HELP) {
        print_help(arguments->command);
        exit(fflush(stdout) ? EXIT_FAILED : EXIT_FINE);
    }
    if (found > 256) {
        arguments->option = row_of(arguments->command, found - 256);
        return arguments->option->id;
    }
    const option_row_t *row = optopt > 256 ? row_of(arguments->command, optopt - 256) : NULL;
    if (row && found == ':') arguments_refuse(arguments, "--%s needs a value: --%s %s", row->name, row->name, row->argument);
    if (row) arguments_refuse(arguments, "--%s takes no value", row->name);
    arguments_refuse(arguments, "there is no option \"%s\"", arguments->words[at]);
}

void arguments_refuse(const arguments_t *arguments, const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    complain("%s: %s (ffn %s --help)", arguments->command->name, text, arguments->command->name);
    exit(EXIT_USAGE);
}

int64_t integer_from(const arguments_t *arguments, const char *what, const char *text, int64_t low, int64_t high) {
    char *end;
    long long number = strtoll(text, &end, 10); /* out of range gives the ends of the range */
    if (end == text || *end || *text == ' ' || number < low || number > high)
        arguments_refuse(arguments, "%s is \"%s\", must be a whole number from %" PRId64 " to %" PRId64, what, text, low, high);
    return number;
}

float float_from(const arguments_t *arguments, const char *what, const char *text) {
    char *end;
    float number = strtof(text, &end);
    if (end == text || *end || *text == ' ' || !isfinite(number)) arguments_refuse(arguments, "%s is \"%s\", must be a number", what, text);
    return number;
}

int64_t arguments_integer(const arguments_t *arguments, int64_t low, int64_t high) {
    char what[64];
    snprintf(what, sizeof what, "--%s", arguments->option->name);
    return integer_from(arguments, what, arguments->value, low, high);
}

float arguments_float(const arguments_t *arguments) {
    char what[64];
    snprintf(what, sizeof what, "--%s", arguments->option->name);
    return float_from(arguments, what, arguments->value);
}

int arguments_integers(const arguments_t *arguments, int64_t low, int64_t high, int64_t *list, int limit) {
    char what[64], item[32];
    int count = 0;
    snprintf(what, sizeof what, "--%s", arguments->option->name);
    for (const char *text = arguments->value;; text++) {
        size_t length = strcspn(text, ",");
        if (count == limit) arguments_refuse(arguments, "%s has more than %d numbers", what, limit);
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item), text);
        list[count++] = integer_from(arguments, what, item, low, high);
        text += length;
        if (!*text) return count;
    }
}

static void print_option(const char *name, const char *argument, const char *help) {
    int column = printf("  --%s%s%s", name, argument ? " " : "", argument ? argument : "");
    if (column > HELP_COLUMN - 2) column = printf("\n") - 1;
    for (;;) {
        int length = (int)strcspn(help, "\n");
        printf("%*s%.*s\n", HELP_COLUMN - column, "", length, help);
        if (!help[length]) return;
        help += length + 1;
        column = 0;
    }
}

void print_help(const command_t *command) {
    printf("usage: ffn %s %s%s[options]\n\n%s\n", command->name, command->words, *command->words ? " " : "", command->summary);
    if (command->text) printf("\n%s", command->text);
    printf("\nOptions:\n");
    for (const option_row_t *row = command->options; row->name; row++) print_option(row->name, row->argument, row->help);
    print_option("help", NULL, "print this text");
    if (command->after) printf("\n%s", command->after);
    printf("\nExamples:\n%s", command->examples);
}
