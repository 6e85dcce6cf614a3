/* SPDX-License-Identifier: MIT */
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The size of the library's buffer: a sentence that fills it may have been cut off. */
enum { ERROR_BUFFER = 320 };

const layer_case_t witness_case = {
    .d_model = 5, .d_ff = 7, .activation = FFN_ACTIVATION_SWISH, .beta = 1.5f, .gate_max = 7, .up_limit = 7, .up_offset = 1, .gated = true,
    .biases = BIAS_ALL, .residual = FFN_RESIDUAL_INPUT, .branch_scale = SCALE_VECTOR, .residual_scale = SCALE_ONE_TANH,
    .norm = {{FFN_NORM_LAYER, true, true, 1e-4f, 0}, {FFN_NORM_RMS, true, true, 0, 1}, {FFN_NORM_AFFINE, true, true, 0, 0},
             {FFN_NORM_LAYER, true, true, 0, 1}},
    .seed = 31};

void patch_apply(const patch_t *patch, void *given)
{
    if (patch->text) memcpy((char *)given + patch->offset, patch->value, patch->size);
}

void forget_error(void)
{
    int64_t width;
    assert_int_equal(ffn_gated_d_ff(1, -123454321, &width), FFN_INVALID);
}

static void assert_sentence(const char *text, const char *what)
{
    size_t length = strlen(text);
    if (length < 8 || length >= ERROR_BUFFER - 1) fail_msg("%s: the sentence has %zu characters: \"%s\"", what, length, text);
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~') fail_msg("%s: character %zu of the sentence is not printable ASCII: \"%s\"", what, i, text);
    if (text[0] == ' ' || text[length - 1] == ' ') fail_msg("%s: the sentence starts or ends with a blank: \"%s\"", what, text);
}

void assert_refused(ffn_status_t got, ffn_status_t expected, const char *words, const char *what)
{
    const char *text = ffn_last_error();
    if (got != expected)
        fail_msg("%s: expected %s, got %s (last error: \"%s\")", what, ffn_status_name(expected), ffn_status_name(got), text);
    assert_sentence(text, what);
    while (*words) {
        char word[80];
        size_t length = strcspn(words, "|");
        assert_true(length < sizeof word);
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (!strstr(text, word)) fail_msg("%s: expected \"%s\" in the sentence \"%s\"", what, word, text);
        words += length + (words[length] == '|');
    }
}

void witness_make(witness_t *witness, const layer_case_t *is)
{
    test_layer_make(&witness->test, is);
    witness->data = layer_data_make(&witness->test, 3, is->seed);
    int64_t n = witness->data.tokens * witness->test.is.d_out;
    layer_data_run(&witness->test, NULL, &witness->data);
    assert_as_oracle(&witness->test, &witness->data, witness->data.y);
    witness->expected = test_alloc((size_t)n * sizeof(float));
    memcpy(witness->expected, witness->data.y, (size_t)n * sizeof(float));
}

void witness_free(witness_t *witness)
{
    free(witness->expected);
    layer_data_free(&witness->data);
    test_layer_free(&witness->test);
}

void assert_still_right(witness_t *witness, ffn_context_t *context, const char *what)
{
    int64_t n = witness->data.tokens * witness->test.is.d_out;
    memset(witness->data.y, 0xff, (size_t)n * sizeof(float));
    layer_data_run(&witness->test, context, &witness->data);
    assert_same_output(&witness->test, witness->data.tokens, witness->expected, witness->data.y, what);
}
