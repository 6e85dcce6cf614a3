/* SPDX-License-Identifier: MIT
 *
 * A transformer's feed-forward layer, 512 -> 2048 -> 512 with GELU, a LayerNorm before it and a residual around it, on three tokens.
 *     cc ffn_example.c $(pkg-config --cflags --libs ffn) -lm
 */
#include <ffn/ffn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { D_MODEL = 512, D_FF = 2048, TOKENS = 3 };

/* Small numbers that look random, the same on every machine. */
static float *make(size_t count, float scale) {
    float *numbers = malloc(count * sizeof *numbers);
    uint32_t state = 1;
    for (size_t i = 0; numbers && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = scale * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
    return numbers;
}

int main(void) {
    int exit_code = EXIT_FAILURE;
    ffn_layer_t *layer = NULL;
    float *up = make((size_t)D_FF * D_MODEL, 0.05f), *down = make((size_t)D_MODEL * D_FF, 0.05f);
    float *x = make((size_t)TOKENS * D_MODEL, 1.0f), *y = make((size_t)TOKENS * D_MODEL, 0.0f);
    if (!up || !down || !x || !y) goto cleanup;

    ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = up, .shape = {D_FF, D_MODEL}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = down, .shape = {D_MODEL, D_FF}},
    };
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT,
                                   .norm = {[FFN_NORM_IN] = FFN_NORM_LAYER}, .tensors = tensors, .tensor_count = 2};

    /* NULL is the context: the calling thread alone. The strides 0 say that rows follow each other without a gap. */
    ffn_status_t status = ffn_layer_create(NULL, &options, &layer);
    if (status == FFN_OK) status = ffn_layer_forward(layer, NULL, TOKENS, x, 0, y, 0);
    if (status != FFN_OK) {
        fprintf(stderr, "ffn_example: %s: %s\n", ffn_status_name(status), ffn_last_error());
        goto cleanup;
    }

    double sum = 0;
    for (int i = 0; i < TOKENS * D_MODEL; i++) sum += fabs((double)y[i]);
    printf("%d tokens through %d-%d-%d, sum of |y|: %.3f\n", TOKENS, D_MODEL, D_FF, D_MODEL, sum);
    exit_code = EXIT_SUCCESS;
cleanup:
    ffn_layer_free(layer);
    free(up), free(down), free(x), free(y);
    return exit_code;
}
