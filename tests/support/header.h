/* SPDX-License-Identifier: MIT
 *
 * The public header as data: the names of its functions with their parameters, and of its structs with their fields, for tests that must leave
 * none of them out.
 */
#ifndef FFN_TEST_HEADER_H
#define FFN_TEST_HEADER_H

#include <stdint.h>

enum { HEADER_MEMBERS = 32, HEADER_NAME = 48 };

/* A function and its parameters ("void" alone: none), or a struct and its fields. */
typedef struct header_item {
    char name[HEADER_NAME];
    char member[HEADER_MEMBERS][HEADER_NAME];
    int64_t members;
} header_item_t;

/* Reads include/ffn/ffn.h; fails the test if it finds nothing. The caller frees the array. */
header_item_t *header_functions(int64_t *count);
header_item_t header_struct(const char *name); /* "ffn_run_t" */

#endif
