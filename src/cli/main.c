/* SPDX-License-Identifier: MIT
 * The ffn program: finds the command and sees to the three standard streams. */
#include "cli/commands.h"

#include <ffn/ffn.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const command_t *const commands[] = {&info_command, &run_command, &stats_command, &params_command, &bench_command};

enum { COMMANDS = (int)(sizeof commands / sizeof *commands) };

static void print_commands(void) {
    printf("usage: ffn COMMAND [options]\n\nThe feed-forward layers of transformer models on CPUs.\n\nCommands:\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
    printf("\nffn COMMAND --help has a command's options and examples.\n"
           "ffn --version tells the version, the compiler, the CPU's instruction set and the BLAS library.\n\n"
           "Exit status: 0, 1 where the work failed, 2 where the command line is wrong. Errors are one line on standard error.\n"
           "Environment: FFN_MAX_ISA (scalar, avx2, avx512) lowers the instruction set that is used.\n");
}

/* A file opened while one of the streams is closed would get its number, and what is meant for the stream would be written into the file. The
 * stand-ins cannot be written to, so that output that goes nowhere is still an error. */
static int hold_standard_streams(void) {
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", i ? O_RDONLY : O_WRONLY) != i) return EXIT_FAILED;
    return EXIT_FINE;
}

static int run_command_named(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    int help = !strcmp(name, "help") && count > 2;
    if (help) name = words[2];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i]->name)) continue;
        if (!help) return commands[i]->run(count - 1, words + 1);
        print_help(commands[i]);
        return EXIT_FINE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) print_commands();
    else if (!strcmp(name, "--version")) printf("%s\n", ffn_build_info());
    else {
        if (*name) complain("there is no command \"%s\" (ffn --help)", name);
        else complain("no command given (ffn --help)");
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}

int main(int count, char **words) {
    if (hold_standard_streams()) return EXIT_FAILED;
    int status = run_command_named(count, words);
    if (fflush(stdout) || ferror(stdout)) return complain("cannot write to standard output: %s", strerror(errno));
    return status;
}
