/* SPDX-License-Identifier: MIT
 * A safetensors file is a length of 8 bytes, so much JSON that names each tensor with its shape and place, and the numbers. */
#include "training_state.h"

#include <ffn/ffn_io.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS = 5, ENTRIES_MOST = 3 + 3 * TENSORS_MOST * LEARNERS_MOST, NAME_MOST = 64 };

/* A tensor of the file, and where its numbers are in memory. */
typedef struct entry {
    char name[NAME_MOST];
    float *numbers;
    int64_t shape[2];
    int ndim;
} entry_t;

typedef struct state {
    float step[1], settings[SETTINGS];
    entry_t entries[ENTRIES_MOST];
    int count;
} state_t;

static void die(const char *path, const char *why) {
    fprintf(stderr, "%s: %s\n", path, why);
    exit(EXIT_FAILURE);
}

static void add(state_t *state, const char *owner, const char *name, const char *end, float *numbers, int ndim, int64_t rows, int64_t columns) {
    entry_t *entry = &state->entries[state->count++];
    *entry = (entry_t){.numbers = numbers, .shape = {rows, columns}, .ndim = ndim};
    snprintf(entry->name, sizeof entry->name, "%s%s%s%s", owner, *owner ? "." : "", name, end);
}

/* All tensors of the file; that of the curve is the last. */
static void list(training_t *training, state_t *state) {
    const float settings[SETTINGS] = {(float)training->seed, (float)training->steps, (float)training->rows, (float)training->d_model,
                                      (float)training->valid_rows};
    memcpy(state->settings, settings, sizeof settings);
    state->step[0] = (float)training->step;
    state->count = 0;
    add(state, "", "settings", "", state->settings, 1, SETTINGS, 0);
    add(state, "", "step", "", state->step, 1, 1, 0);
    for (int i = 0; i < training->learner_count; i++) {
        learner_t *learner = &training->learners[i];
        for (int j = 0; j < learner->parameter_count; j++) {
            parameter_t *one = &learner->parameters[j];
            const int64_t *shape = one->view.shape;
            int ndim = (int)one->view.ndim;
            add(state, learner->name, one->name, "", one->weight, ndim, shape[0], shape[1]);
            add(state, learner->name, one->name, ".first", one->first, ndim, shape[0], shape[1]);
            add(state, learner->name, one->name, ".second", one->second, ndim, shape[0], shape[1]);
        }
    }
    add(state, "", "curve", "", training->curve, 2, training->points, 1 + training->learner_count);
}

static int64_t elements(const entry_t *entry) {
    return entry->ndim == 2 ? entry->shape[0] * entry->shape[1] : entry->shape[0];
}

/* The JSON, padded to a multiple of 8: how long it is. */
static size_t describe(const state_t *state, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "{");
    int64_t offset = 0;
    for (int i = 0; i < state->count; i++) {
        const entry_t *entry = &state->entries[i];
        int64_t end = offset + 4 * elements(entry);
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64, i ? "," : "", entry->name, entry->shape[0]);
        if (entry->ndim == 2) used += (size_t)snprintf(text + used, size - used, ",%" PRId64, entry->shape[1]);
        used += (size_t)snprintf(text + used, size - used, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", offset, end);
        offset = end;
    }
    used += (size_t)snprintf(text + used, size - used, "}");
    while (used % 8) text[used++] = ' ';
    return used;
}

void state_save(const training_t *training) {
    static state_t state;
    static char text[ENTRIES_MOST * (NAME_MOST + 128)];
    char part[512];
    unsigned char length[8];
    list((training_t *)training, &state); /* which is only read */
    size_t used = describe(&state, text, sizeof text);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)used >> 8 * i);
    snprintf(part, sizeof part, "%s.part", training->state_path);
    FILE *file = fopen(part, "wb");
    int written = file && fwrite(length, 8, 1, file) == 1 && fwrite(text, used, 1, file) == 1;
    for (int i = 0; written && i < state.count; i++) {
        size_t count = (size_t)elements(&state.entries[i]);
        written = fwrite(state.entries[i].numbers, sizeof(float), count, file) == count;
    }
    if (file && fclose(file)) written = 0;
    if (!written || rename(part, training->state_path)) die(training->state_path, strerror(errno));
}

static int is_there(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    return file != NULL;
}

/* Whether the file has the entry in its shape; *index is where. */
static int finds(const ffn_model_t *model, const entry_t *entry, int64_t *index) {
    ffn_model_tensor_t tensor = {.struct_size = sizeof tensor};
    return ffn_model_find(model, entry->name, index) == FFN_OK && ffn_model_tensor(model, *index, &tensor) == FFN_OK &&
           (int)tensor.ndim == entry->ndim && tensor.shape[0] == entry->shape[0] && (entry->ndim == 1 || tensor.shape[1] == entry->shape[1]);
}

static void read_all(training_t *training, const ffn_model_t *model, state_t *state) {
    int64_t index;
    ffn_model_tensor_t curve = {.struct_size = sizeof curve};
    if (ffn_model_find(model, "curve", &index) != FFN_OK || ffn_model_tensor(model, index, &curve) != FFN_OK || curve.ndim != 2 ||
        curve.shape[0] > POINTS_MOST)
        die(training->state_path, "is not the state of a training: give another --state");
    training->points = curve.shape[0];
    list(training, state);
    for (int i = 0; i < state->count; i++)
        if (!finds(model, &state->entries[i], &index)) die(training->state_path, "holds other layers than these: give another --state");
    float settings[SETTINGS];
    if (ffn_model_find(model, "settings", &index) != FFN_OK || ffn_model_read(model, index, settings) != FFN_OK ||
        memcmp(settings, state->settings, sizeof settings) != 0)
        die(training->state_path, "is of a training with other settings: give another --state");
    for (int i = 0; i < state->count; i++)
        if (!finds(model, &state->entries[i], &index) || ffn_model_read(model, index, state->entries[i].numbers) != FFN_OK)
            die(training->state_path, ffn_io_last_error());
    training->step = (int64_t)state->step[0];
}

void state_restore(training_t *training) {
    static state_t state;
    ffn_model_t *model = NULL;
    if (!is_there(training->state_path)) return;
    if (ffn_model_open(training->state_path, NULL, &model) != FFN_OK) die(training->state_path, ffn_io_last_error());
    read_all(training, model, &state);
    ffn_model_free(model);
    for (int i = 0; i < training->learner_count; i++) {
        ffn_tensor_t weights[TENSORS_MOST];
        learner_t *learner = &training->learners[i];
        for (int j = 0; j < learner->parameter_count; j++) weights[j] = learner->parameters[j].view;
        must(ffn_layer_update(learner->layer, NULL, weights, (uint64_t)learner->parameter_count));
    }
    printf("going on from step %" PRId64 " of %s\n", training->step, training->state_path);
}
