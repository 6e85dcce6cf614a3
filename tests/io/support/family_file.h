/* SPDX-License-Identifier: MIT
 *
 * Small checkpoints of known families: the random weights of layer cases, written under a family's names, in its layouts, beside a config.json.
 */
#ifndef FFN_TEST_IO_FAMILY_FILE_H
#define FFN_TEST_IO_FAMILY_FILE_H

#include <ffn/ffn_io.h>

#include "support/layer_case.h"

/* A safetensors file in the making. */
typedef struct model_file {
    char *header;
    size_t header_size;
    char *data;
    size_t size;
} model_file_t;

/* Adds a float32 tensor; columns 0: a vector. data NULL: ones. The name is made like printf makes it. */
void model_file_add(model_file_t *file, const float *data, int64_t rows, int64_t columns, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The same of any number of dimensions. */
void model_file_add_shaped(model_file_t *file, const float *data, int ndim, const int64_t *shape, const char *name);

/* Adds the layer's tensors. names: "up=mlp.c_fc down=mlp.c_proj in=ln_2", modules relative to the prefix. Keys: up, gate, down, fused (gate and up
 * in one, as the case's layout says), in, mid, branch, out (norms; in_old, out_old: with the names gamma and beta), scale (a tensor's whole name),
 * alpha (the module of xielu's scalars). What the case has not is left out. */
void model_file_add_layer(model_file_t *file, const test_layer_t *layer, const char *prefix, const char *names);

/* Writes model.safetensors and, unless NULL, config.json into the test's folder, frees the file in the making, and returns the path. Without a
 * config.json an earlier one is removed. */
const char *model_file_write(model_file_t *file, const char *config);

/* Makes the library's layer from a description, for layer_data_run and assert_as_oracle. */
void make_from_model(test_layer_t *test, const ffn_model_t *model, const ffn_model_layer_t *layer);

/* Opens with default options; fails the test with the sentence if it cannot. */
ffn_model_t *open_model(const char *path);
const ffn_model_layer_t *model_layer(const ffn_model_t *model, int64_t index);

/* Runs a layer made from the description on random tokens and asserts that it is as the oracle of the case says. */
void check_model_layer(const ffn_model_t *model, const ffn_model_layer_t *layer, test_layer_t *test);

#endif
