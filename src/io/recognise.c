/* SPDX-License-Identifier: MIT
 * Recognising layers. For one tensor several rows may be candidates (LLaMA's names are also Gemma's): config.json's model_type decides if it is in a
 * row; else the names and shapes of the whole layer, among the rows that may be chosen so; and if that leaves more than one, nobody guesses. */
#include "io/recognise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that looks like a layer's and is none. */
typedef struct misfit {
    int64_t anchor;
    size_t prefix; /* length of the layer's, if it were one */
    int experts;   /* a mixture of experts it would be */
} misfit_t;

typedef struct search {
    const checkpoint_t *checkpoint;
    const config_t *config;
    const family_t *only; /* the caller's choice, or NULL */
    recognition_t *result;
    int64_t capacity;
    misfit_t *misfits;
    int64_t misfit_count, misfit_capacity;
    signed char *beside; /* by row: whether the file has what it wants to see beside its layers; -1: not looked for yet */
} search_t;

/* ---------------------------------------------------------------- Texts */

/* A name with each part that is a number replaced by {i}. Returns 0 if it does not fit. */
static int kind_of(const char *name, char *kind, size_t size) {
    size_t used = 0;
    while (*name) {
        size_t length = strcspn(name, "."), digits = strspn(name, "0123456789");
        int number = length && digits == length;
        size_t written = number ? 3 : length;
        if (used + written + 2 > size) return 0;
        memcpy(kind + used, number ? "{i}" : name, written);
        used += written;
        name += length;
        if (*name) kind[used++] = *name++;
    }
    kind[used] = 0;
    return 1;
}

/* The kinds of names in the file, each once, as many as have room. Names are sorted: kinds of the first layer come first. */
static void list_kinds(const checkpoint_t *checkpoint, char *text, size_t size) {
    char kind[200], listed[208];
    *text = 0;
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        if (!kind_of(checkpoint->tensors[i].name, kind, sizeof kind)) continue;
        size_t used = strlen(text);
        snprintf(listed, sizeof listed, " %s,", kind);
        char *earlier = strstr(text, listed);
        if (earlier) continue;
        if (used + strlen(listed) + 8 > size) {
            snprintf(text + used, size - used, " ...,");
            break;
        }
        memcpy(text + used, listed, strlen(listed) + 1);
    }
    if (*text) text[strlen(text) - 1] = 0;
}

static void list_families(char *text, size_t size) {
    *text = 0;
    for (int i = 0; i < ffnio_family_count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i ? ", " : "", ffnio_families[i].name);
    }
}

/* ---------------------------------------------------------------- Choosing a row */

/* The candidates for one tensor, and the choice among them. */
typedef struct choosing {
    const search_t *search;
    int64_t anchor;
    candidate_t candidate[FFNIO_CANDIDATES];
    int count;
    found_layer_t *found;  /* the choice */
    int fits;
    char fitting[512];     /* names of the rows that fit */
    trouble_t *trouble;    /* of the row, among those that do not, that bound most tensors: the likeliest meant */
    uint64_t trouble_bound;
} choosing_t;

static int look_beside(const search_t *search, const family_t *row) {
    size_t length;
    for (const char *list = ffnio_next_word(row->beside, &length); length; list = ffnio_next_word(list + length, &length))
        for (int64_t i = 0; i < search->checkpoint->tensor_count; i++) {
            const char *name = search->checkpoint->tensors[i].name;
            int64_t at = ffnio_name_before(name, strlen(name), list, length);
            if (at == 0 || (at > 0 && name[at - 1] == '.')) return 1;
        }
    return 0;
}

/* 1 if the file has one of the names that a row wants to see beside its layers. */
static int is_beside(const search_t *search, const family_t *row) {
    signed char *known = &search->beside[row - ffnio_families];
    if (*known < 0) *known = (signed char)look_beside(search, row);
    return *known;
}

/* Tries a row. One that fits becomes the choice if it is the first, or takes more tensors than the one before. */
static ffn_status_t attempt(choosing_t *choosing, int candidate) {
    const search_t *search = choosing->search;
    const family_t *row = choosing->candidate[candidate].row;
    const char *name = search->checkpoint->tensors[choosing->anchor].name;
    found_layer_t found = {.anchor = choosing->anchor};
    trouble_t trouble = {FFN_OK, ""};
    size_t length = choosing->candidate[candidate].prefix;
    found.prefix = malloc(length + 1);
    if (!found.prefix) return ffnio_fail_memory(length + 1, "a name");
    memcpy(found.prefix, name, length);
    found.prefix[length] = 0;
    ffn_status_t status = FFN_OK;
    if (row->refuse) ffnio_trouble(&trouble, FFN_UNSUPPORTED, "layers of family %s cannot be made: %s", row->name, row->refuse);
    else status = ffnio_bind(search->checkpoint, search->config, row, &found, &trouble);
    int better = !status && !trouble.status && (!choosing->fits || found.layer.binding_count > choosing->found->layer.binding_count);
    if (!status && trouble.status && (!choosing->trouble->status || found.layer.binding_count > choosing->trouble_bound)) {
        *choosing->trouble = trouble;
        choosing->trouble_bound = found.layer.binding_count;
    }
    if (!status && !trouble.status) {
        size_t used = strlen(choosing->fitting);
        snprintf(choosing->fitting + used, sizeof choosing->fitting - used, "%s%s", choosing->fits ? ", " : "", row->name);
        choosing->fits++;
    }
    if (better) {
        ffnio_found_free(choosing->found);
        *choosing->found = found;
    } else {
        ffnio_found_free(&found);
    }
    return status;
}

typedef enum pass { OF_TYPE, BY_ITS_NAMES, WHATEVER } pass_t;

static int belongs(const choosing_t *choosing, int candidate, pass_t pass) {
    const family_t *row = choosing->candidate[candidate].row;
    if (pass == WHATEVER) return choosing->search->only || !row->refuse;
    if (pass == BY_ITS_NAMES)
        return (row->choice == BY_NAMES && choosing->candidate[candidate].by_names) || (row->choice == BY_NAMES_BESIDE && is_beside(choosing->search, row));
    section_t section = ffnio_config_section(choosing->search->config, choosing->search->checkpoint->tensors[choosing->anchor].name);
    return ffnio_section_is_of_type(&section, row->model_types);
}

/* Tries the rows of a pass; *tried counts them. */
static ffn_status_t attempt_all(choosing_t *choosing, pass_t pass, int *tried) {
    ffn_status_t status = FFN_OK;
    *tried = 0;
    choosing->fits = 0;
    *choosing->fitting = 0;
    for (int i = 0; !status && i < choosing->count; i++) {
        if (!belongs(choosing, i, pass)) continue;
        ++*tried;
        status = attempt(choosing, i);
    }
    return status;
}

/* Chooses a row for a tensor: found->prefix is NULL where there is none; then the trouble is set if there were candidates. */
static ffn_status_t choose(const search_t *search, int64_t anchor, found_layer_t *found, trouble_t *trouble) {
    choosing_t choosing = {.search = search, .anchor = anchor, .found = found, .trouble = trouble};
    int tried;
    trouble->status = FFN_OK;
    *found = (found_layer_t){.prefix = NULL};
    choosing.count = ffnio_candidates(search->checkpoint, anchor, search->only, choosing.candidate);
    if (!choosing.count) return FFN_OK;
    ffn_status_t status = attempt_all(&choosing, search->only ? WHATEVER : OF_TYPE, &tried);
    if (status || tried) return status; /* of several rows of one model type the one that takes most tensors is right */
    status = attempt_all(&choosing, BY_ITS_NAMES, &tried);
    if (!status && !choosing.fits) status = attempt_all(&choosing, WHATEVER, &tried);
    else if (status || choosing.fits == 1) return status;
    if (!status && choosing.fits)
        ffnio_trouble(trouble, FFN_UNKNOWN, "tensor %s fits the families %s, and no config.json tells which: name one as the family",
                      ffnio_quote(search->checkpoint->tensors[anchor].name).text, choosing.fitting);
    ffnio_found_free(found);
    return status;
}

/* ---------------------------------------------------------------- All layers */

/* Room for one more element of an array that doubles. */
static ffn_status_t grow(void **array, int64_t count, int64_t *capacity, size_t size, const char *what) {
    if (count < *capacity) return FFN_OK;
    int64_t larger = *capacity ? 2 * *capacity : 16;
    void *grown = realloc(*array, (size_t)larger * size);
    if (!grown) return ffnio_fail_memory((uint64_t)larger * size, what);
    *array = grown;
    *capacity = larger;
    return FFN_OK;
}

static misfit_t misfit_of(const search_t *search, int64_t anchor) {
    candidate_t candidates[FFNIO_CANDIDATES];
    misfit_t misfit = {.anchor = anchor};
    int count = ffnio_candidates(search->checkpoint, anchor, search->only, candidates);
    for (int i = 0; i < count; i++) {
        misfit.prefix = candidates[i].prefix;
        if (candidates[i].row->experts) misfit.experts = 1;
    }
    return misfit;
}

static ffn_status_t take(search_t *search, int64_t anchor) {
    recognition_t *result = search->result;
    found_layer_t found;
    trouble_t trouble;
    ffn_status_t status = choose(search, anchor, &found, &trouble);
    if (!status && found.prefix) {
        void *layers = result->layers;
        status = grow(&layers, result->count, &search->capacity, sizeof found, "layers");
        result->layers = layers;
        if (!status) result->layers[result->count++] = found;
    } else if (!status && trouble.status) {
        void *misfits = search->misfits;
        if (!search->misfit_count) result->trouble = trouble;
        status = grow(&misfits, search->misfit_count, &search->misfit_capacity, sizeof *search->misfits, "names");
        search->misfits = misfits;
        if (!status) search->misfits[search->misfit_count++] = misfit_of(search, anchor);
    }
    if (status) ffnio_found_free(&found);
    return status;
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* 1 if two names differ in numbers alone. */
static int of_one_tower(const char *a, size_t length_a, const char *b, size_t length_b) {
    size_t i = 0, k = 0;
    for (;;) {
        if (i < length_a && k < length_b && is_digit(a[i]) && is_digit(b[k])) {
            while (i < length_a && is_digit(a[i])) i++;
            while (k < length_b && is_digit(b[k])) k++;
        }
        if (i == length_a || k == length_b) return i == length_a && k == length_b;
        if (a[i++] != b[k++]) return 0;
    }
}

/* 1 if a misfit is a layer of a tower that was recognised. Experts and dense layers may take turns in a tower: then only the prefixes are alike, and a
 * misfit may also be a part of a layer that was found. */
static int is_broken(const search_t *search, const misfit_t *misfit) {
    const recognition_t *result = search->result;
    const stored_tensor_t *tensors = search->checkpoint->tensors;
    const char *name = tensors[misfit->anchor].name;
    int broken = 0;
    for (int64_t i = 0; i < result->count; i++) {
        const found_layer_t *layer = &result->layers[i];
        const char *anchor = tensors[layer->anchor].name;
        size_t length = strlen(layer->prefix);
        int mixture = misfit->experts || layer->moe.struct_size;
        if (mixture && length == misfit->prefix && memcmp(layer->prefix, name, length) == 0) return 0;
        if (mixture ? of_one_tower(layer->prefix, length, name, misfit->prefix) : of_one_tower(anchor, strlen(anchor), name, strlen(name))) broken = 1;
    }
    return broken;
}

/* A layer of a tower whose other layers were recognised is broken, and leaving it out would run a wrong model: then there are no layers at all.
 * (A tensor of another tower may look like a layer's and be something else.) */
static ffn_status_t check_misfits(const search_t *search) {
    recognition_t *result = search->result;
    for (int64_t i = 0; i < search->misfit_count; i++) {
        found_layer_t found;
        if (!is_broken(search, &search->misfits[i])) continue;
        ffn_status_t status = choose(search, search->misfits[i].anchor, &found, &result->trouble);
        ffnio_found_free(&found);
        for (int64_t k = 0; k < result->count; k++) ffnio_found_free(&result->layers[k]);
        result->count = 0;
        return status;
    }
    return FFN_OK;
}

/* The model's order: numbers by value, encoders before decoders, and what is inside of a layer before the layer's own (MobileBERT). */
static int compare_layers(const void *first, const void *second) {
    const char *a = ((const found_layer_t *)first)->prefix, *b = ((const found_layer_t *)second)->prefix;
    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            while (*a == '0' && is_digit(a[1])) a++;
            while (*b == '0' && is_digit(b[1])) b++;
            size_t digits_a = strspn(a, "0123456789"), digits_b = strspn(b, "0123456789");
            if (digits_a != digits_b) return digits_a < digits_b ? -1 : 1;
            int order = strncmp(a, b, digits_a);
            if (order) return order;
            a += digits_a, b += digits_b;
        } else {
            if (*a == 'e' && strncmp(a, "encoder", 7) == 0 && strncmp(b, "decoder", 7) == 0) return -1;
            if (*b == 'e' && strncmp(b, "encoder", 7) == 0 && strncmp(a, "decoder", 7) == 0) return 1;
            if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++, b++;
        }
    }
    return *a ? -1 : *b != 0;
}

static void explain(const search_t *search) {
    recognition_t *result = search->result;
    char kinds[620];
    if (result->count || result->trouble.status) return;
    list_kinds(search->checkpoint, kinds, sizeof kinds);
    ffnio_trouble(&result->trouble, FFN_UNKNOWN, "no feed-forward layers of %s%s; tensors can be named by hand, and these are there:%s",
                  search->only ? "family " : "a known family", search->only ? search->only->name : "", *kinds ? kinds : " none");
}

static ffn_status_t find_row(search_t *search, const char *family) {
    char names[FFNIO_ERROR_SIZE];
    for (int i = 0; i < ffnio_family_count; i++)
        if (strcmp(ffnio_families[i].name, family) == 0) {
            search->only = &ffnio_families[i];
            return FFN_OK;
        }
    list_families(names, sizeof names);
    return ffnio_fail(FFN_UNKNOWN, "family is %s, must be one of %s", ffnio_quote(family).text, names);
}

ffn_status_t ffnio_recognise(const checkpoint_t *checkpoint, const config_t *config, const char *family, recognition_t *recognition) {
    signed char beside[FFNIO_FAMILIES];
    search_t search = {.checkpoint = checkpoint, .config = config, .result = recognition, .beside = beside};
    memset(recognition, 0, sizeof *recognition);
    memset(beside, -1, sizeof beside);
    ffn_status_t status = family ? find_row(&search, family) : FFN_OK;
    for (int64_t i = 0; !status && i < checkpoint->tensor_count; i++) status = take(&search, i);
    if (!status) status = check_misfits(&search);
    free(search.misfits);
    if (status) {
        ffnio_recognition_free(recognition);
        return status;
    }
    if (recognition->count) qsort(recognition->layers, (size_t)recognition->count, sizeof *recognition->layers, compare_layers);
    for (int64_t i = 0; i < recognition->count; i++) ffnio_layer_link(&recognition->layers[i]);
    explain(&search);
    return FFN_OK;
}

void ffnio_recognition_free(recognition_t *recognition) {
    for (int64_t i = 0; i < recognition->count; i++) ffnio_found_free(&recognition->layers[i]);
    free(recognition->layers);
    memset(recognition, 0, sizeof *recognition);
}
