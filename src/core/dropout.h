/* SPDX-License-Identifier: MIT
 * The dropout of a run: from the caller's options to the masks of rows. */
#ifndef FFNI_DROPOUT_H
#define FFNI_DROPOUT_H

#include <ffn/ffn.h>

#include "kernels/training.h"

enum { DROPOUT_SITES = 5 };

typedef struct dropout {
    int any; /* of the sites acts */
    ffn_dropout_t options;
    int64_t length; /* rows of a sequence */
    drop_mask_t mask[DROPOUT_SITES]; /* without the row; threshold 0 and scale 1: the site is left alone */
} dropout_t;

/* Checks a caller's dropout for a run of batch sequences of length rows. given NULL: none. */
ffn_status_t ffni_dropout_read(dropout_t *dropout, const ffn_dropout_t *given, int64_t batch, int64_t length);

/* The fields that place random numbers: "step of the dropout is ..." */
ffn_status_t ffni_random_check_place(const char *what, uint64_t step, uint64_t layer);
ffn_status_t ffni_random_check_first(const char *what, const char *name, int64_t first, const char *counted, int64_t count);

int ffni_dropout_acts(const dropout_t *dropout, int site);

/* Drops from the n numbers v of the run's row `row`, at one of the four sites that act on rows; does nothing where the site is left alone. */
void ffni_drop(const dropout_t *dropout, const training_table_t *kernels, int site, int64_t row, int64_t n, float *v);

/* The same from another column of the row's stream on, a multiple of 4: where an expert's hidden row begins. */
void ffni_drop_from(const dropout_t *dropout, const training_table_t *kernels, int site, int64_t row, int64_t column, int64_t n, float *v);

/* Drops or scales the row with its whole sequence. */
void ffni_drop_path(const dropout_t *dropout, const training_table_t *kernels, int64_t row, int64_t n, float *v);

#endif
