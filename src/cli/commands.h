/* SPDX-License-Identifier: MIT
 * The commands of the program, one file each. */
#ifndef FFN_CLI_COMMANDS_H
#define FFN_CLI_COMMANDS_H

#include "cli/arguments.h"

extern const command_t info_command, run_command, stats_command, params_command, bench_command;

#endif
