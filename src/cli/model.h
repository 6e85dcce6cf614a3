/* SPDX-License-Identifier: MIT
 * Opening the model that a command is given. */
#ifndef FFN_CLI_MODEL_H
#define FFN_CLI_MODEL_H

#include <ffn/ffn_io.h>

/* NULL and a complaint on failure. config and family may be NULL. */
ffn_model_t *model_open(const char *path, const char *config, const char *family);

/* Each complains and returns an exit status: says what the model has in place of layers; checks a layer's number against the model's layers. */
int model_complain_unrecognised(const ffn_model_t *model);
int model_check_layer(const char *path, const ffn_model_info_t *info, int64_t number);

#endif
