/* SPDX-License-Identifier: MIT
 *
 * What tests of libffn-io include: files made for one test in a folder of its own, and the refusal that a bad one must get.
 */
#ifndef FFN_TEST_IO_FILES_H
#define FFN_TEST_IO_FILES_H

#include <ffn/ffn_io.h>

#include <stddef.h>
#include <stdint.h>

#include "support/test.h"

/* Group fixtures: an empty folder under $TMPDIR or /tmp, and its removal with all that is in it. */
int test_folder_make(void **state);
int test_folder_remove(void **state);

/* Path of a name in that folder, in one of a few static buffers that take turns. */
const char *test_path(const char *name);

/* Of a name in ../shared/data, likewise. */
const char *shared_path(const char *name);

/* Number of names in the test's folder: to see that nothing is left. */
int64_t test_folder_count(void);

/* Writes a file of the test's folder and returns its path. */
const char *test_file(const char *name, const void *bytes, size_t size);

/* A whole file; the caller frees it. Fails the test if it cannot be read. */
unsigned char *read_whole(const char *path, size_t *size);

/* Writes a safetensors file: the length of that header, the header, size bytes of data (NULL: 0, 1, 2, ... modulo 251). */
const char *test_safetensors(const char *name, const char *header, const void *data, size_t size);

/* Fails the test unless the call returned `expected` and ffn_io_last_error() is one line that contains path and each of `words` (separated by
 * '|'). */
void assert_io_refused(ffn_status_t got, ffn_status_t expected, const char *path, const char *words);

/* Fails the test with the sentence unless the call succeeded. */
#define assert_io_ok(call) assert_io_ok_at((call), #call)
void assert_io_ok_at(ffn_status_t status, const char *what);

/* Calls row(file, fields) for each line of an index.tsv of ../shared/data after the first: its tab-separated fields, at most 8, "" where there is
 * none. Returns the number of lines, 0 if the folder is not there. */
int64_t for_each_row(const char *index, void (*row)(char *field[8]));

#endif
