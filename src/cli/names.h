/* SPDX-License-Identifier: MIT
 * Names of the parts of a layer, as the options and the output spell them. */
#ifndef FFN_CLI_NAMES_H
#define FFN_CLI_NAMES_H

#include <ffn/ffn_io.h>

enum { ROLES = 64, NORMS = 4 };

/* Of FFN_ROLE_*, FFN_NORM_IN .. FFN_NORM_OUT, FFN_NORM_NONE .. AFFINE, FFN_RESIDUAL_*, FFN_LAYOUT_*, FFN_PART_*, FFN_MOE_SCORE_*, FFN_MOE_NORMALISE_*,
 * FFN_ISA_*. NULL: no such thing. */
const char *role_name(uint32_t role);
const char *slot_name(uint32_t slot);
const char *kind_name(uint32_t kind);
const char *residual_name(uint32_t residual);
const char *layout_name(uint32_t layout);
const char *part_name(uint32_t part);
const char *score_name(uint32_t score);
const char *normalisation_name(uint32_t normalisation);
const char *isa_name(uint32_t isa);

/* The other way round, of the first `length` characters; -1: unknown. */
int role_from(const char *name, size_t length);
int slot_from(const char *name, size_t length);
int kind_from(const char *name);
int residual_from(const char *name);
int score_from(const char *name);
int normalisation_from(const char *name);
int part_from(const char *name, size_t length);

/* All of them, separated by ", ". */
void role_names(char *text, size_t size);

/* The roles of a slot's weight and bias. */
uint32_t norm_weight_role(uint32_t slot);
uint32_t norm_bias_role(uint32_t slot);

#endif
