/* SPDX-License-Identifier: MIT
 * The state of a training as a safetensors file: written here, read through libffn-io. */
#ifndef EXAMPLES_TRAINING_STATE_H
#define EXAMPLES_TRAINING_STATE_H

#include "training.h"

/* Writes it: as a whole or not at all. */
void state_save(const training_t *training);

/* Goes on from it, if the file is there. Ends the program if it is another training's. */
void state_restore(training_t *training);

#endif
