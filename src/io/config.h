/* SPDX-License-Identifier: MIT
 * config.json: the values that a family's row asks for. */
#ifndef FFNIO_CONFIG_H
#define FFNIO_CONFIG_H

#include <jansson.h>

#include "io/error.h"

typedef struct config {
    char *path;  /* NULL: there is no config.json, and nothing is found in it */
    json_t *root;
} config_t;

/* Keys may be of an object inside: "ffn_config.moe_top_k".
 *
 * What holds for one layer: the part of config.json about its tower (text_config, vision_config, ...), and the whole, which is asked second. */
typedef struct section {
    const config_t *config;
    const json_t *part; /* may be NULL */
    int64_t index;      /* of the layer: the last number in its prefix; 0: none */
} section_t;

/* given: path of a config.json that must be there; NULL: config.json in `folder`, if there is one. */
ffn_status_t ffnio_config_open(const char *given, const char *folder, config_t *config);
void ffnio_config_close(config_t *config);

/* config.json's model_type, the whole model's. NULL: none. */
const char *ffnio_config_model_type(const config_t *config);

/* The section for a layer whose tensors' names begin with this prefix. */
section_t ffnio_config_section(const config_t *config, const char *prefix);

/* 1 if a space-separated list has the model_type of the section, or, if the section has none of its own, of the whole. */
int ffnio_section_is_of_type(const section_t *section, const char *model_types);

/* 1 if the section or the whole says its model_type. */
int ffnio_section_has_type(const section_t *section);

/* 1 if a condition ("key", "!key", "key=text") is met; NULL is never met. */
int ffnio_section_meets(const section_t *section, const char *condition);

/* *value is the number at the first of the keys (a space-separated list) that is there and not null; else it stays. FFN_FORMAT: no number. */
ffn_status_t ffnio_section_number(const section_t *section, const char *keys, double *value);

/* The same for integers, also of a list with one for each layer; key is the key that it was found at, "" if at none. */
ffn_status_t ffnio_section_integer(const section_t *section, const char *keys, char key[64], int64_t *value);

/* *text is the string at the first of the keys (a list; NULL: none) that is there and not null, and key that key; NULL: none. FFN_FORMAT: no
 * string. */
ffn_status_t ffnio_section_text(const section_t *section, const char *keys, char key[64], const char **text);

/* 1 true, 0 false, -1 not there or another kind of value. */
int ffnio_section_flag(const section_t *section, const char *key);

/* 1 if the key is there with the value null. */
int ffnio_section_is_null(const section_t *section, const char *key);

/* The next word of a space-separated list; *length is 0 at the end. */
const char *ffnio_next_word(const char *list, size_t *length);

/* 1 if a space-separated list has the word; a NULL list has none. */
int ffnio_list_has(const char *list, const char *word);

#endif
