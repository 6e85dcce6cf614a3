/* SPDX-License-Identifier: MIT
 * Opening the model that a command is given. */
#ifndef FFN_CLI_MODEL_H
#define FFN_CLI_MODEL_H

#include <ffn/ffn_io.h>

/* NULL and a complaint on failure. config and family may be NULL. */
ffn_model_t *model_open(const char *path, const char *config, const char *family);

#endif
