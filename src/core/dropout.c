/* SPDX-License-Identifier: MIT
 * Dropout: the layout of the random stream, as ffn/ffn.h has it. */
#include "core/dropout.h"

#include "base/error.h"
#include "kernels/philox.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const site_names[DROPOUT_SITES] = {"PRE_ACTIVATION", "ACTIVATION", "HIDDEN", "BRANCH", "PATH"};

static const int64_t ROWS_END = INT64_C(1) << 48;

ffn_status_t ffni_random_check_place(const char *what, uint64_t step, uint64_t layer) {
    if (step > UINT32_MAX) return ffni_fail(FFN_INVALID, "step of the %s is %" PRIu64 ", must be at most %" PRIu32, what, step, UINT32_MAX);
    if (layer >= PHILOX_LAYERS) return ffni_fail(FFN_INVALID, "layer of the %s is %" PRIu64 ", must be at most %d", what, layer, PHILOX_LAYERS - 1);
    return FFN_OK;
}

ffn_status_t ffni_random_check_first(const char *what, const char *name, int64_t first, const char *counted, int64_t count) {
    if (first < 0) return ffni_fail(FFN_INVALID, "%s of the %s is %" PRId64 ", must be at least 0", name, what, first);
    if (first <= ROWS_END - count && count <= ROWS_END) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s of the %s is %" PRId64 ", and with %" PRId64 " %s ends beyond 2^48", name, what, first, count, counted);
}

static ffn_status_t check(const ffn_dropout_t *options, int64_t batch, int64_t length) {
    const uint32_t sites = (1u << FFN_DROPOUT_PATH) - 1;
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved of the dropout is %" PRIu32 ", must be 0", options->reserved);
    if (options->broadcast & ~sites)
        return ffni_fail(FFN_INVALID, "broadcast of the dropout is 0x%" PRIx32 ", must be 1 << site or-ed, at most 0x%" PRIx32, options->broadcast, sites);
    ffn_status_t status = ffni_random_check_place("dropout", options->step, options->layer);
    if (status) return status;
    for (int site = 0; site < DROPOUT_SITES; site++)
        if (!(options->p[site] >= 0 && options->p[site] <= 1))
            return ffni_fail(FFN_INVALID, "p[%s] of the dropout is %s, must be 0 to 1", site_names[site], ffni_number(options->p[site]).text);
    status = ffni_random_check_first("dropout", "first_row", options->first_row, "rows", batch * length);
    return status ? status : ffni_random_check_first("dropout", "first_sequence", options->first_sequence, "sequences", batch);
}

static drop_mask_t mask_of(const ffn_dropout_t *options, int site) {
    double p = options->p[site];
    return (drop_mask_t){.seed = options->seed, .threshold = (uint64_t)round(p * 0x1p32), .scale = p < 1 ? (float)(1 / (1 - p)) : 0,
                         .counter = {(uint32_t)site << 28, 0, (uint32_t)options->step, (uint32_t)options->layer << 16}};
}

ffn_status_t ffni_dropout_read(dropout_t *dropout, const ffn_dropout_t *given, int64_t batch, int64_t length) {
    *dropout = (dropout_t){.length = length};
    if (!given) return FFN_OK;
    dropout->options = *given;
    ffn_status_t status = check(given, batch, length);
    for (int site = 0; !status && site < DROPOUT_SITES; site++) {
        dropout->mask[site] = mask_of(given, site);
        dropout->any |= given->p[site] > 0;
    }
    return status;
}

int ffni_dropout_acts(const dropout_t *dropout, int site) {
    return dropout->options.p[site] > 0;
}

static drop_mask_t mask_at(const dropout_t *dropout, int site, int64_t row) {
    const ffn_dropout_t *options = &dropout->options;
    int by_sequence = site == FFN_DROPOUT_PATH || (options->broadcast >> site & 1);
    uint64_t number = (uint64_t)(by_sequence ? options->first_sequence + row / dropout->length : options->first_row + row);
    drop_mask_t mask = dropout->mask[site];
    mask.counter[1] = (uint32_t)number;
    mask.counter[3] |= (uint32_t)(number >> 32);
    return mask;
}

void ffni_drop_from(const dropout_t *dropout, const training_table_t *kernels, int site, int64_t row, int64_t column, int64_t n, float *v) {
    if (!ffni_dropout_acts(dropout, site)) return;
    drop_mask_t mask = mask_at(dropout, site, row);
    mask.counter[0] += (uint32_t)(column / 4);
    kernels->drop(&mask, n, v, v);
}

void ffni_drop(const dropout_t *dropout, const training_table_t *kernels, int site, int64_t row, int64_t n, float *v) {
    ffni_drop_from(dropout, kernels, site, row, 0, n, v);
}

void ffni_drop_path(const dropout_t *dropout, const training_table_t *kernels, int64_t row, int64_t n, float *v) {
    if (!ffni_dropout_acts(dropout, FFN_DROPOUT_PATH)) return;
    drop_mask_t mask = mask_at(dropout, FFN_DROPOUT_PATH, row);
    philox_t random = philox((philox_t){{mask.counter[0], mask.counter[1], mask.counter[2], mask.counter[3]}}, mask.seed);
    if (random.word[0] < mask.threshold)
        memset(v, 0, (size_t)n * sizeof *v);
    else
        kernels->scale(n, v, mask.scale);
}
