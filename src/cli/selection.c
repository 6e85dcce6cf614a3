/* SPDX-License-Identifier: MIT
 * Which layers: "all", "0", "0,3-5". */
#include "cli/chain.h"
#include "cli/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 10000 };

static int append(selection_t *selection, int64_t from, int64_t to) {
    int64_t count = selection->count + (to - from + 1);
    if (count > MOST_STEPS) return complain("more than %d layers are asked for", MOST_STEPS);
    int64_t *grown = realloc(selection->number, (size_t)count * sizeof *grown);
    if (!grown) return complain_memory();
    selection->number = grown;
    while (from <= to) selection->number[selection->count++] = from++;
    return EXIT_FINE;
}

void selection_take(selection_t *selection, const arguments_t *arguments) {
    char what[64], item[64];
    selection_free(selection);
    selection->all = !strcmp(arguments->value, "all");
    if (selection->all) return;
    snprintf(what, sizeof what, "a layer of --%s", arguments->option->name);
    for (const char *text = arguments->value;; text++) {
        size_t length = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item), text);
        char *dash = strchr(item, '-'), *second = dash && dash > item ? dash + 1 : item;
        if (second > item) *dash = 0;
        int64_t from = integer_from(arguments, what, item, 0, INT32_MAX), to = integer_from(arguments, what, second, 0, INT32_MAX);
        if (to < from) arguments_refuse(arguments, "the layers %" PRId64 "-%" PRId64 " run backwards", from, to);
        if (append(selection, from, to)) exit(EXIT_USAGE);
        text += length;
        if (!*text) return;
    }
}

int selection_resolve(selection_t *selection, const ffn_model_t *model, const char *path, const overrides_t *overrides) {
    ffn_model_info_t info = {.struct_size = sizeof info};
    if (ffn_model_info(model, &info)) return complain("%s", ffn_io_last_error());
    int by_hand = overrides->by_hand || (!info.layer_count && overrides_name_tensors(overrides));
    if (!by_hand && !info.layer_count) return model_complain_unrecognised(model);
    for (int64_t i = 0; i < selection->count && !by_hand; i++)
        if (model_check_layer(path, &info, selection->number[i])) return EXIT_FAILED;
    if (selection->count) return EXIT_FINE;
    if (selection->all && by_hand) return complain("layers described by hand have no end: give --layer numbers in place of all");
    if (!selection->all && !by_hand && info.layer_count > 1)
        return complain("%s: has %" PRId64 " layers: say which with --layer N, or --layer all", path, info.layer_count);
    return append(selection, 0, selection->all ? info.layer_count - 1 : 0);
}

void selection_free(selection_t *selection) {
    free(selection->number);
    *selection = (selection_t){0};
}
