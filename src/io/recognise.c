/* SPDX-License-Identifier: MIT
 * Recognising layers. For one tensor several rows may be candidates (LLaMA's names are also Gemma's): config.json's model_type decides if it is in a
 * row; else the names and shapes of the whole layer, among the rows that may be chosen so; and if that leaves more than one, nobody guesses. */
#include "io/recognise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    const checkpoint_t *checkpoint;
    const config_t *config;
    const family_t *only; /* the caller's choice, or NULL */
    recognition_t *result;
    int64_t capacity;
    int64_t *misfits; /* tensors that look like a layer's and are none */
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
    const family_t *row[64];
    size_t prefix[64];
    int count;
    found_layer_t *found;  /* the choice */
    int fits;
    char fitting[512];     /* names of the rows that fit */
    trouble_t *trouble;    /* of the row, among those that do not, that bound most tensors: the likeliest meant */
    uint64_t trouble_bound;
} choosing_t;

/* Asked of every tensor of the file, most of which are nobody's: no more than comparisons of characters. */
static void gather(choosing_t *choosing) {
    static const char ending[] = ".weight";
    const char *name = choosing->search->checkpoint->tensors[choosing->anchor].name;
    size_t length = strlen(name), ending_length = sizeof ending - 1;
    choosing->count = 0;
    if (length < ending_length || memcmp(name + length - ending_length, ending, ending_length) != 0) return;
    length -= ending_length;
    for (int i = 0; i < ffnio_family_count && choosing->count < 64; i++) {
        const family_t *row = &ffnio_families[i];
        size_t module_length = strlen(row->up.module), stem_length;
        if (choosing->search->only && row != choosing->search->only) continue;
        if (length < module_length || memcmp(name + length - module_length, row->up.module, module_length) != 0) continue;
        for (const char *stem = ffnio_next_word(row->stems, &stem_length); stem_length; stem = ffnio_next_word(stem + stem_length, &stem_length)) {
            if (!ffnio_name_matches(name, length, stem, stem_length, row->up.module, module_length, &choosing->prefix[choosing->count])) continue;
            choosing->row[choosing->count++] = row;
            break;
        }
    }
}

static int look_beside(const search_t *search, const family_t *row) {
    size_t length, prefix;
    for (const char *list = ffnio_next_word(row->beside, &length); length; list = ffnio_next_word(list + length, &length))
        for (int64_t i = 0; i < search->checkpoint->tensor_count; i++) {
            const char *name = search->checkpoint->tensors[i].name;
            if (ffnio_name_matches(name, strlen(name), "", 0, list, length, &prefix)) return 1;
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
    const family_t *row = choosing->row[candidate];
    const char *name = search->checkpoint->tensors[choosing->anchor].name;
    found_layer_t found = {.anchor = choosing->anchor};
    trouble_t trouble = {FFN_OK, ""};
    size_t length = choosing->prefix[candidate];
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
        free(choosing->found->prefix);
        *choosing->found = found;
    } else {
        free(found.prefix);
    }
    return status;
}

typedef enum pass { OF_TYPE, BY_ITS_NAMES, WHATEVER } pass_t;

static int belongs(const choosing_t *choosing, int candidate, pass_t pass) {
    const family_t *row = choosing->row[candidate];
    if (pass == WHATEVER) return choosing->search->only || !row->refuse;
    if (pass == BY_ITS_NAMES)
        return row->choice == BY_NAMES || (row->choice == BY_NAMES_BESIDE && is_beside(choosing->search, row));
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
    gather(&choosing);
    if (!choosing.count) return FFN_OK;
    ffn_status_t status = attempt_all(&choosing, search->only ? WHATEVER : OF_TYPE, &tried);
    if (status || tried) return status; /* of several rows of one model type the one that takes most tensors is right */
    status = attempt_all(&choosing, BY_ITS_NAMES, &tried);
    if (!status && !choosing.fits) status = attempt_all(&choosing, WHATEVER, &tried);
    else if (status || choosing.fits == 1) return status;
    if (!status && choosing.fits)
        ffnio_trouble(trouble, FFN_UNKNOWN, "tensor %s fits the families %s, and no config.json tells which: name one as the family",
                      ffnio_quote(search->checkpoint->tensors[anchor].name).text, choosing.fitting);
    free(found->prefix);
    *found = (found_layer_t){.prefix = NULL};
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
        if (!status) search->misfits[search->misfit_count++] = anchor;
    }
    if (status) free(found.prefix);
    return status;
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* 1 if two names differ in numbers alone. */
static int of_one_tower(const char *a, const char *b) {
    for (;;) {
        if (is_digit(*a) && is_digit(*b)) {
            while (is_digit(*a)) a++;
            while (is_digit(*b)) b++;
        }
        if (*a != *b) return 0;
        if (!*a) return 1;
        a++, b++;
    }
}

/* A layer of a tower whose other layers were recognised is broken, and leaving it out would run a wrong model: then there are no layers at all.
 * (A tensor of another tower may look like a layer's and be something else.) */
static ffn_status_t check_misfits(const search_t *search) {
    recognition_t *result = search->result;
    const stored_tensor_t *tensors = search->checkpoint->tensors;
    int broken = 0;
    for (int64_t i = 0; i < search->misfit_count && !broken; i++) {
        const char *name = tensors[search->misfits[i]].name, *last = "";
        for (int64_t k = 0; k < result->count && !broken; k++) {
            const char *found = tensors[result->layers[k].anchor].name;
            if (!of_one_tower(found, last) && of_one_tower(found, name)) broken = 1;
            last = found;
        }
        if (broken) {
            found_layer_t found;
            ffn_status_t status = choose(search, search->misfits[i], &found, &result->trouble);
            free(found.prefix);
            if (status) return status;
        }
    }
    if (broken) {
        for (int64_t k = 0; k < result->count; k++) free(result->layers[k].prefix);
        result->count = 0;
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
    for (int64_t i = 0; i < recognition->count; i++) free(recognition->layers[i].prefix);
    free(recognition->layers);
    memset(recognition, 0, sizeof *recognition);
}
