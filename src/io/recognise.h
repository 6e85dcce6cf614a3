/* SPDX-License-Identifier: MIT
 * Which layers a checkpoint has: every tensor that is the anchor of some family's row is looked at, and one row chosen for it. */
#ifndef FFNIO_RECOGNISE_H
#define FFNIO_RECOGNISE_H

#include "io/anchor.h"
#include "io/bind.h"

typedef struct recognition {
    found_layer_t *layers; /* in the model's order */
    int64_t count;
    trouble_t trouble; /* why there are none */
} recognition_t;

/* family: a row's name, or NULL. Opening goes on where nothing is recognised: then the trouble is set. Fails with FFN_UNKNOWN (no such row),
 * FFN_FORMAT (values of config.json), FFN_NO_MEMORY. */
ffn_status_t ffnio_recognise(const checkpoint_t *checkpoint, const config_t *config, const char *family, recognition_t *recognition);

void ffnio_recognition_free(recognition_t *recognition);

#endif
