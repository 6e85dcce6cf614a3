/* SPDX-License-Identifier: MIT
 * The size-versioned structs of the interface: older and newer callers. */
#ifndef FFNI_STRUCTS_H
#define FFNI_STRUCTS_H

#include <ffn/ffn.h>

/* Reads a caller's struct, which begins with its struct_size, into *known (known_size bytes): what an older caller lacks becomes 0; what only a
 * newer one has must be 0. `name` is the type's, for the sentence. */
ffn_status_t ffni_struct_read(void *known, uint32_t known_size, const void *given, const char *name);

/* Writes *known into a caller's struct, up to the size that the caller has set in it; a newer caller's tail becomes 0. */
ffn_status_t ffni_struct_write(void *given, const void *known, uint32_t known_size, const char *name);

/* Whether ffni_struct_write would take the struct. */
ffn_status_t ffni_struct_check(const void *given, uint32_t known_size, const char *name);

#endif
