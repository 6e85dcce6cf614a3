/* SPDX-License-Identifier: MIT
 * An open model: a checkpoint, its config.json and the layers found in it. */
#ifndef FFNIO_MODEL_H
#define FFNIO_MODEL_H

#include "io/config.h"
#include "io/recognise.h"
#include "io/safetensors.h"

struct ffn_model {
    checkpoint_t *checkpoint;
    config_t config;
    recognition_t recognition;
};

#endif
