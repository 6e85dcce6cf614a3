/* SPDX-License-Identifier: MIT
 *
 * What every way of consuming libffn builds and runs: C and C++ in one text. A layer of one number whose answer is known by heart:
 * y = x + 3 * relu(2 x), so 2 -> 14 and -2 -> -2. */
#include <ffn/ffn.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    float up = 2, down = 3, x[2] = {2, -2}, y[2] = {0, 0};
    ffn_tensor_t tensors[2];
    ffn_layer_options_t options;
    ffn_layer_t *layer = NULL;

    memset(tensors, 0, sizeof tensors);
    tensors[0].role = FFN_ROLE_UP_WEIGHT;
    tensors[0].data = &up;
    tensors[1].role = FFN_ROLE_DOWN_WEIGHT;
    tensors[1].data = &down;
    for (int i = 0; i < 2; i++) {
        tensors[i].ndim = 2;
        tensors[i].shape[0] = tensors[i].shape[1] = 1;
    }
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.activation = FFN_ACTIVATION_RELU;
    options.residual = FFN_RESIDUAL_INPUT;
    options.tensors = tensors;
    options.tensor_count = 2;

    if (ffn_version() != FFN_VERSION_MAJOR * 65536 + FFN_VERSION_MINOR * 256 + FFN_VERSION_PATCH) {
        printf("header %d.%d.%d, library %s\n", FFN_VERSION_MAJOR, FFN_VERSION_MINOR, FFN_VERSION_PATCH, ffn_version_string());
        return 1;
    }
    if (ffn_layer_create(NULL, &options, &layer) != FFN_OK || ffn_layer_forward(layer, NULL, 2, x, 0, y, 0) != FFN_OK) {
        printf("%s\n", ffn_last_error());
        return 1;
    }
    ffn_layer_free(layer);
    if (y[0] != 14 || y[1] != -2) {
        printf("expected 14 and -2, got %g and %g\n", (double)y[0], (double)y[1]);
        return 1;
    }
    return 0;
}
