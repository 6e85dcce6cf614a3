/* SPDX-License-Identifier: MIT
 *
 * What the fuzzers share: an input as a file in memory, and the promises of ffn_io.h that hold for every input.
 */
#ifndef FFN_FUZZ_INPUT_H
#define FFN_FUZZ_INPUT_H

#include <ffn/ffn_io.h>

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry point: each fuzz_*.c has one; replay.c calls it in programs without libFuzzer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file with those bytes that lives in memory. *file is -1 before the first call and kept between calls. */
typedef struct input_file {
    int descriptor;
    char path[40];
} input_file_t;
void input_file_set(input_file_t *file, const void *data, size_t size);

/* Ends the program unless it holds: a finding. */
#define must(condition) must_at((condition), #condition, __FILE__, __LINE__)
void must_at(int holds, const char *condition, const char *file, int line);

/* A failure is one of these, with a sentence of one line that names the path. */
void must_be_refusal(ffn_status_t status, const char *path);

#endif
