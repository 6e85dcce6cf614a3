/* SPDX-License-Identifier: MIT
 * Reading config.json. */
#include "io/config.h"

#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"

/* Where models of several towers keep what is about one of them. `word`: what the prefix of the tower's tensors has in it. */
static const struct {
    const char *word, *key;
} towers[] = {
    {"vision", "vision_config"}, {"visual", "vision_config"}, {"audio", "audio_config"},   {"audio", "audio_encoder"},
    {"text", "text_config"},     {"language", "text_config"}, {"encoder.", "encoder"},     {"decoder.", "decoder"},
    {"encoder.", "encoder_config"}, {"decoder.", "decoder_config"}, {"", "text_config"},
};

static char *copy_of(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (!copy) ffnio_fail_memory(size, "a path");
    return copy ? memcpy(copy, text, size) : NULL;
}

ffn_status_t ffnio_config_open(const char *given, const char *folder, config_t *config) {
    *config = (config_t){NULL, NULL};
    char *path = given ? copy_of(given) : ffnio_path_join(folder, "config.json");
    if (!path) return FFN_NO_MEMORY;
    if (!given && !ffnio_path_is_file(path)) {
        free(path);
        return FFN_OK;
    }
    ffn_status_t status = ffnio_json_read(path, &config->root);
    if (status) {
        free(path);
        return status;
    }
    config->path = path;
    return FFN_OK;
}

void ffnio_config_close(config_t *config) {
    json_decref(config->root);
    free(config->path);
    *config = (config_t){NULL, NULL};
}

const char *ffnio_config_model_type(const config_t *config) {
    return json_string_value(json_object_get(config->root, "model_type"));
}

static int64_t last_number(const char *text) {
    int64_t number = 0;
    for (int inside = 0; *text; text++) {
        int digit = *text >= '0' && *text <= '9';
        if (digit && !inside) number = 0;
        if (digit && number < INT32_MAX) number = 10 * number + (*text - '0');
        inside = digit;
    }
    return number;
}

section_t ffnio_config_section(const config_t *config, const char *prefix) {
    section_t section = {config, NULL, last_number(prefix)};
    for (size_t i = 0; i < sizeof towers / sizeof *towers && !section.part; i++) {
        const json_t *part = json_object_get(config->root, towers[i].key);
        if (json_is_object(part) && strstr(prefix, towers[i].word)) section.part = part;
    }
    return section;
}

/* What stands at a key; "a.b" is key b of the object at key a. NULL: nothing. */
static const json_t *member(const json_t *object, const char *key) {
    char name[64];
    for (const char *dot; object && (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        size_t length = (size_t)(dot - key);
        if (length >= sizeof name) return NULL;
        memcpy(name, key, length);
        name[length] = 0;
        object = json_object_get(object, name);
    }
    return json_object_get(object, key);
}

/* The value of a key that is there and not null; NULL: none. */
static const json_t *value_of(const section_t *section, const char *key) {
    const json_t *value = member(section->part, key);
    if (!value || json_is_null(value)) value = member(section->config->root, key);
    return json_is_null(value) ? NULL : value;
}

static const char *type_of(const section_t *section) {
    return json_string_value(value_of(section, "model_type"));
}

int ffnio_section_is_of_type(const section_t *section, const char *model_types) {
    const char *type = type_of(section);
    return type && ffnio_list_has(model_types, type);
}

int ffnio_section_has_type(const section_t *section) {
    return type_of(section) != NULL;
}

const char *ffnio_next_word(const char *list, size_t *length) {
    list += strspn(list, " ");
    *length = strcspn(list, " ");
    return list;
}

int ffnio_list_has(const char *list, const char *word) {
    size_t length, wanted = strlen(word);
    if (!list || !wanted) return 0;
    for (list = ffnio_next_word(list, &length); length; list = ffnio_next_word(list + length, &length))
        if (length == wanted && memcmp(list, word, length) == 0) return 1;
    return 0;
}

/* The first of the keys that is there, copied out of the list. */
static const json_t *first_of(const section_t *section, const char *keys, char key[64]) {
    size_t length;
    for (keys = ffnio_next_word(keys, &length); length; keys = ffnio_next_word(keys + length, &length)) {
        if (length >= 64) continue;
        memcpy(key, keys, length);
        key[length] = 0;
        const json_t *value = value_of(section, key);
        if (value) return value;
    }
    return NULL;
}

int ffnio_section_meets(const section_t *section, const char *condition) {
    char key[64];
    if (!condition) return 0;
    const char *text = strchr(condition, '=');
    if (!text) return ffnio_section_flag(section, condition + (*condition == '!')) == (*condition != '!');
    size_t length = (size_t)(text - condition);
    memcpy(key, condition, length);
    key[length] = 0;
    const char *value = json_string_value(value_of(section, key));
    return value && strcmp(value, text + 1) == 0;
}

ffn_status_t ffnio_section_number(const section_t *section, const char *keys, double *value) {
    char key[64];
    const json_t *found = keys ? first_of(section, keys, key) : NULL;
    if (!found) return FFN_OK;
    if (!json_is_number(found))
        return ffnio_fail_file(FFN_FORMAT, section->config->path, "%s is %s, must be a number", key, ffnio_json_kind(found));
    *value = json_number_value(found);
    return FFN_OK;
}

ffn_status_t ffnio_section_integer(const section_t *section, const char *keys, char key[64], int64_t *value) {
    const json_t *found = keys ? first_of(section, keys, key) : NULL;
    if (!found) {
        *key = 0;
        return FFN_OK;
    }
    if (json_is_array(found) && (size_t)section->index < json_array_size(found)) found = json_array_get(found, (size_t)section->index);
    if (!json_is_integer(found))
        return ffnio_fail_file(FFN_FORMAT, section->config->path, "%s is %s, must be an integer", key, ffnio_json_kind(found));
    *value = json_integer_value(found);
    return FFN_OK;
}

ffn_status_t ffnio_section_text(const section_t *section, const char *keys, char key[64], const char **text) {
    const json_t *found = keys ? first_of(section, keys, key) : NULL;
    *text = json_string_value(found);
    if (found && !*text)
        return ffnio_fail_file(FFN_FORMAT, section->config->path, "%s is %s, must be a string", key, ffnio_json_kind(found));
    return FFN_OK;
}

int ffnio_section_flag(const section_t *section, const char *key) {
    const json_t *value = value_of(section, key);
    return json_is_boolean(value) ? json_is_true(value) : -1;
}

int ffnio_section_is_null(const section_t *section, const char *key) {
    const json_t *value = member(section->part, key);
    return json_is_null(value ? value : member(section->config->root, key));
}
