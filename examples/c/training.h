/* SPDX-License-Identifier: MIT
 * What the two training examples share: layers with an optimiser, a loop that can stop and go on, and curves. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <ffn/ffn.h>

#include <stdint.h>

enum { TENSORS_MOST = 5, LEARNERS_MOST = 9, POINTS_MOST = 64 };

/* A tensor of a layer, its gradient, and AdamW's state. */
typedef struct parameter {
    ffn_tensor_t view; /* of the weight */
    const char *name;
    int64_t count;
    float *weight, *gradient, *first, *second;
} parameter_t;

typedef struct learner {
    char name[32];
    ffn_layer_options_t options;
    parameter_t parameters[TENSORS_MOST];
    int parameter_count;
    ffn_layer_t *layer;
    ffn_tape_t *tape;
} learner_t;

/* Learners that are trained together, each step on the same batch. */
typedef struct training {
    learner_t learners[LEARNERS_MOST];
    int learner_count;
    int64_t d_model, rows, steps, stop;
    uint64_t seed;
    float learning_rate;
    const char *state_path; /* safetensors: weights, AdamW's state, the curve so far */
    void (*batch)(void *data, uint64_t seed, int64_t step, float *x, float *target); /* a function of seed and step alone */
    void *data;
    const float *valid_x, *valid_target;
    int64_t valid_rows;

    int64_t step;
    float curve[POINTS_MOST * (1 + LEARNERS_MOST)]; /* step, and each learner's error on the valid rows */
    int64_t points;
} training_t;

/* Memory that is there, or the end of the program. */
float *take(int64_t count);

/* Ends the program with the library's sentence, unless all is well. */
void must(ffn_status_t status);

/* Numbers in (-1, 1) that depend on seed and stream alone: a batch is a function of its step, so that training can go on from any. */
void uniform(float *values, int64_t count, uint64_t seed, uint64_t stream);

/* Adds a tensor of one or two dimensions (columns 0: one), all of it `value`. */
float *learner_add(learner_t *learner, const char *name, uint32_t role, int64_t rows, int64_t columns, float value);
/* Adds a matrix with random weights. */
void learner_add_random(learner_t *learner, const char *name, uint32_t role, int64_t rows, int64_t columns, uint64_t seed, uint64_t stream, float gain);
/* Makes the layer of what was added. */
void learner_make(learner_t *learner);
int64_t learner_parameters(const learner_t *learner);
/* The square root of the mean square of output - target. */
double learner_error(const learner_t *learner, int64_t rows, int64_t d_model, const float *x, const float *target);

/* --steps, --stop, --seed, --state: takes what it knows of the arguments, in place, and gives how many are left. Ends the program over a wrong one. */
int training_arguments(training_t *training, int argc, char **argv);

/* Goes on from the state, if there is one; trains to the stop or to Ctrl-C, and saves. Gives whether it came to the end. */
int training_run(training_t *training);

/* Writes the curve as tab-separated values, STEM.tsv, and draws it with gnuplot to STEM.svg, or says that there is none. */
void training_draw(const training_t *training, const char *stem);

/* Draws what a script of gnuplot's says, in an .svg. Gives whether there is a gnuplot, and it could. */
int gnuplot(const char *script);

void training_free(training_t *training);

#endif
