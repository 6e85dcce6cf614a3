/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzzer's inputs without libFuzzer: each file of the folders given, and each of its neighbours: cut anywhere, with any byte replaced.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/input.h"

/* Larger inputs are run alone; each byte is replaced by a few of the table, which take turns. */
enum { MOST_NEIGHBOURS = 2000, LARGEST = 1 << 20, REPLACEMENTS = 5 };

static void run_neighbours(uint8_t *data, size_t size)
{
    static const uint8_t bytes[] = {0, ' ', '"', '\'', '-', '0', '9', '[', ']', '{', ',', ':', '\\', 0x7f, 0x80, 0xff};
    for (size_t i = 0; i < size; i++) {
        uint8_t kept = data[i], *cut = malloc(i + 1); /* of its own size, so that reading past it is seen */
        if (!cut) abort();
        memcpy(cut, data, i);
        LLVMFuzzerTestOneInput(cut, i);
        free(cut);
        for (size_t k = 0; k < REPLACEMENTS; k++) {
            data[i] = bytes[(i * REPLACEMENTS + k) % sizeof bytes];
            LLVMFuzzerTestOneInput(data, size);
        }
        data[i] = kept;
    }
}

static void run_file(const char *path)
{
    static uint8_t data[LARGEST];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(EXIT_FAILURE);
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    const char *quick = getenv("FFN_TEST_QUICK"); /* for valgrind, as in the tests */
    if (size <= MOST_NEIGHBOURS && !quick) run_neighbours(data, size);
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) run_file(argv[i]);
        count += !folder;
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            char path[1024];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            run_file(path);
            count++;
        }
        if (folder) closedir(folder);
    }
    printf("%d inputs and their neighbours\n", count);
    return count ? EXIT_SUCCESS : EXIT_FAILURE;
}
