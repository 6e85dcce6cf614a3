/* SPDX-License-Identifier: MIT
 * The command line: each command has a table of its options, from which come both the parsing and the help text. */
#ifndef FFN_CLI_ARGUMENTS_H
#define FFN_CLI_ARGUMENTS_H

#include "cli/text.h"

typedef struct option_row {
    const char *name;     /* without the dashes */
    const char *argument; /* what stands for its value in the help text. NULL: it takes none */
    int id;               /* what arguments_next returns: above 0 */
    const char *help;     /* '\n' breaks the line */
} option_row_t;

typedef struct command {
    const char *name;
    const char *words;   /* its arguments besides the options: "MODEL" */
    const char *summary; /* one line */
    const char *text;    /* paragraphs after it */
    const char *after;   /* paragraphs after the options. NULL: none */
    const char *examples; /* one command a line, each of which the tests run */
    const option_row_t *options; /* the last one has no name */
    int (*run)(int count, char **words); /* words[0] is the command's name; returns an exit status */
} command_t;

/* Options that several commands have. */
#define OPTION_JSON(id)    {"json", NULL, id, "print JSON, for programs"}
#define OPTION_CONFIG(id)  {"config", "FILE", id, "a config.json that stands elsewhere than beside the model"}
#define OPTION_FAMILY(id)  {"family", "NAME", id, "take the model for one of this family; see docs/families.md"}

/* A paragraph for commands with --activation, on one line for completion, which reads it. */
#define ACTIVATION_HELP                                                                                                                        \
    "Activations: identity, relu, leaky_relu, relu6, relu2, gelu, gelu_tanh, quick_gelu, gelu_10, silu, swish, sigmoid, tanh, mish, elu, "    \
    "hardswish, softplus, laplace, xielu.\n"

void print_help(const command_t *command);

typedef struct arguments {
    const command_t *command;
    int count;
    char **words;
    const option_row_t *option; /* what arguments_next found last; NULL: a word that is no option */
    const char *value;          /* the option's value, or the word */
    void *parser;
    int next_word; /* index of the next one once the options have ended; 0 before */
} arguments_t;

enum { ARGUMENT_END = -1, ARGUMENT_WORD = 0 };

arguments_t arguments_begin(const command_t *command, int count, char **words);

/* The id of the next option, ARGUMENT_WORD or ARGUMENT_END. --help prints the help text and ends the program; so does, with EXIT_USAGE, an option
 * that the command does not have. */
int arguments_next(arguments_t *arguments);

/* Ends the program with EXIT_USAGE and a sentence that points at the help text. */
PRINTF_LIKE(2, 3) _Noreturn void arguments_refuse(const arguments_t *arguments, const char *format, ...);

/* The option's value as a number from low to high, as a finite float, and as numbers separated by commas (returns how many); else refuses. */
int64_t arguments_integer(const arguments_t *arguments, int64_t low, int64_t high);
float arguments_float(const arguments_t *arguments);
int arguments_integers(const arguments_t *arguments, int64_t low, int64_t high, int64_t *list, int limit);

/* Text as such a number, for what is only part of an option's value; `what` names it in the refusal. */
int64_t integer_from(const arguments_t *arguments, const char *what, const char *text, int64_t low, int64_t high);
float float_from(const arguments_t *arguments, const char *what, const char *text);

#endif
