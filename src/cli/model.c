/* SPDX-License-Identifier: MIT
 * Opening a model. Its files are read and not mapped: who cuts one short meanwhile gets a sentence, not a signal. */
#include "cli/model.h"

#include "cli/text.h"

#include <inttypes.h>

ffn_model_t *model_open(const char *path, const char *config, const char *family) {
    ffn_model_options_t options = {.struct_size = sizeof options, .config = config, .family = family};
    ffn_model_t *model;
    if (ffn_model_open(path, &options, &model)) complain("%s", ffn_io_last_error());
    return model;
}

int model_complain_unrecognised(const ffn_model_t *model) {
    const ffn_model_layer_t *none;
    ffn_model_layer(model, 0, &none); /* for its sentence */
    return complain("%s", ffn_io_last_error());
}

int model_check_layer(const char *path, const ffn_model_info_t *info, int64_t number) {
    if (number < info->layer_count) return EXIT_FINE;
    return complain("%s: has no layer %" PRId64 ": its layers are 0 to %" PRId64, path, number, info->layer_count - 1);
}
