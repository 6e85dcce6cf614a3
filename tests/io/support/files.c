/* SPDX-License-Identifier: MIT */
#include "io/support/files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATHS = 8, PATH_SIZE = 512 };

static char folder[PATH_SIZE / 2];

static char *next_path(void)
{
    static char paths[PATHS][PATH_SIZE];
    static int turn;
    return paths[turn++ % PATHS];
}

int test_folder_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ffn-io-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

/* Calls unlink or nothing for each name; returns how many there are. */
static int64_t each_name(const char *path, int remove_them)
{
    DIR *names = opendir(path);
    int64_t count = 0;
    for (struct dirent *entry; names && (entry = readdir(names));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        count++;
        if (!remove_them) continue;
        char inner[PATH_SIZE + 256];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR) {
            each_name(inner, 1);
            rmdir(inner);
        } else {
            unlink(inner);
        }
    }
    if (names) closedir(names);
    return count;
}

int test_folder_remove(void **state)
{
    (void)state;
    each_name(folder, 1);
    return rmdir(folder);
}

const char *test_path(const char *name)
{
    char *path = next_path();
    snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    return path;
}

const char *shared_path(const char *name)
{
    char *path = next_path();
    snprintf(path, PATH_SIZE, "%s/%s", FFN_SHARED_DATA, name);
    return path;
}

int64_t test_folder_count(void)
{
    return each_name(folder, 0);
}

const char *test_file(const char *name, const void *bytes, size_t size)
{
    const char *path = test_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) fail_msg("the test cannot write %s", path);
    return path;
}

unsigned char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = test_alloc(*size + 1);
    size_t got = fread(bytes, 1, *size, file);
    fclose(file);
    if (got != *size) fail_msg("cannot read %s", path);
    bytes[*size] = 0;
    return bytes;
}

const char *test_safetensors(const char *name, const char *header, const void *data, size_t size)
{
    size_t length = strlen(header);
    unsigned char *bytes = test_alloc(8 + length + size);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < size; i++) bytes[8 + length + i] = data ? ((const unsigned char *)data)[i] : (unsigned char)(i % 251);
    const char *path = test_file(name, bytes, 8 + length + size);
    free(bytes);
    return path;
}

void assert_io_refused(ffn_status_t got, ffn_status_t expected, const char *path, const char *words)
{
    const char *text = ffn_io_last_error(), *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (got != expected)
        fail_msg("%s: expected %s, got %s (last error: \"%s\")", path, ffn_io_status_name(expected), ffn_io_status_name(got), text);
    if (!strstr(text, path)) fail_msg("%s: the sentence does not name the file: \"%s\"", path, text);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) fail_msg("%s: the sentence is not one line of text: \"%s\"", name, text);
    while (*words) {
        char word[80];
        size_t length = strcspn(words, "|");
        assert_true(length < sizeof word);
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (!strstr(text, word)) fail_msg("%s: expected \"%s\" in the sentence \"%s\"", name, word, text);
        words += length + (words[length] == '|');
    }
}

void assert_io_ok_at(ffn_status_t status, const char *what)
{
    if (status) fail_msg("%s: %s, \"%s\"", what, ffn_io_status_name(status), ffn_io_last_error());
}

int64_t for_each_row(const char *index, void (*row)(char *field[8]))
{
    FILE *file = fopen(shared_path(index), "r");
    char line[1024];
    int64_t count = 0;
    if (!file) return 0;
    for (int first = 1; fgets(line, sizeof line, file); first = 0) {
        static char none[1];
        char *field[8] = {line, none, none, none, none, none, none, none};
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < 7 && strchr(field[i], '\t'); i++) {
            field[i + 1] = strchr(field[i], '\t');
            *field[i + 1]++ = 0;
        }
        if (first) continue;
        row(field);
        count++;
    }
    fclose(file);
    return count;
}
