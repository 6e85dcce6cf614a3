/* SPDX-License-Identifier: MIT
 * Opening a model. Its files are read and not mapped: who cuts one short meanwhile gets a sentence, not a signal. */
#include "cli/model.h"

#include "cli/text.h"

ffn_model_t *model_open(const char *path, const char *config, const char *family) {
    ffn_model_options_t options = {.struct_size = sizeof options, .config = config, .family = family};
    ffn_model_t *model;
    if (ffn_model_open(path, &options, &model)) complain("%s", ffn_io_last_error());
    return model;
}
