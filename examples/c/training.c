/* SPDX-License-Identifier: MIT
 * Layers with an optimiser, and the loop. */
#include "training.h"
#include "training_state.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double pi = 3.14159265358979323846;
static const double largest_norm = 1.0; /* of the gradients of a step */

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void must(ffn_status_t status) {
    if (status == FFN_OK) return;
    fprintf(stderr, "%s: %s\n", ffn_status_name(status), ffn_last_error());
    exit(EXIT_FAILURE);
}

float *take(int64_t count) {
    float *numbers = calloc((size_t)count, sizeof *numbers);
    if (numbers) return numbers;
    fprintf(stderr, "there is no memory for %" PRId64 " numbers\n", count);
    exit(EXIT_FAILURE);
}

void uniform(float *values, int64_t count, uint64_t seed, uint64_t stream) {
    const ffn_init_options_t options = {.struct_size = sizeof options, .scheme = FFN_INIT_UNIFORM_UNIT_SCALING, .seed = seed, .stream = stream,
                                        .fan_in = 3, .fan_out = 3};
    must(ffn_weight_init(values, count, &options));
}

/* -------------------------------------------------------------------- Learners */

float *learner_add(learner_t *learner, const char *name, uint32_t role, int64_t rows, int64_t columns, float value) {
    parameter_t *parameter = &learner->parameters[learner->parameter_count++];
    int64_t count = rows * (columns ? columns : 1);
    *parameter = (parameter_t){.name = name, .count = count, .weight = take(count), .gradient = take(count), .first = take(count), .second = take(count)};
    for (int64_t i = 0; i < count; i++) parameter->weight[i] = value;
    parameter->view = (ffn_tensor_t){.role = role, .ndim = columns ? 2 : 1, .data = parameter->weight, .shape = {rows, columns}};
    return parameter->weight;
}

void learner_add_random(learner_t *learner, const char *name, uint32_t role, int64_t rows, int64_t columns, uint64_t seed, uint64_t stream, float gain) {
    const ffn_init_options_t options = {.struct_size = sizeof options, .scheme = FFN_INIT_LECUN_NORMAL, .seed = seed, .stream = stream,
                                        .fan_in = columns, .gain = gain};
    must(ffn_weight_init(learner_add(learner, name, role, rows, columns, 0), rows * columns, &options));
}

static void views_of(const learner_t *learner, int of_gradients, ffn_tensor_t views[TENSORS_MOST]) {
    for (int i = 0; i < learner->parameter_count; i++) {
        views[i] = learner->parameters[i].view;
        if (of_gradients) views[i].data = learner->parameters[i].gradient;
    }
}

void learner_make(learner_t *learner) {
    ffn_tensor_t weights[TENSORS_MOST];
    views_of(learner, 0, weights);
    learner->options.struct_size = sizeof learner->options;
    learner->options.flags = FFN_LAYER_TRAINABLE;
    learner->options.tensors = weights;
    learner->options.tensor_count = (uint64_t)learner->parameter_count;
    must(ffn_layer_create(NULL, &learner->options, &learner->layer));
    must(ffn_tape_create(NULL, &learner->tape));
}

int64_t learner_parameters(const learner_t *learner) {
    int64_t sum = 0;
    for (int i = 0; i < learner->parameter_count; i++) sum += learner->parameters[i].count;
    return sum;
}

double learner_error(const learner_t *learner, int64_t rows, int64_t d_model, const float *x, const float *target) {
    float *y = take(rows * d_model);
    double sum = 0;
    must(ffn_layer_forward(learner->layer, NULL, rows, x, 0, y, 0));
    for (int64_t i = 0; i < rows * d_model; i++) sum += ((double)y[i] - (double)target[i]) * ((double)y[i] - (double)target[i]);
    free(y);
    return sqrt(sum / (double)(rows * d_model));
}

/* One step on the mean square of output - target. y has room for the output. */
static void learner_train(learner_t *learner, int64_t rows, int64_t d_model, const float *x, const float *target, float *y, int64_t step, float rate) {
    ffn_tensor_t gradients[TENSORS_MOST], weights[TENSORS_MOST];
    float *arrays[TENSORS_MOST];
    int64_t counts[TENSORS_MOST];
    double norm;
    const uint64_t count = (uint64_t)learner->parameter_count;
    views_of(learner, 1, gradients);
    views_of(learner, 0, weights);

    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = rows, .x = x, .y = y, .tape = learner->tape};
    must(ffn_layer_run(learner->layer, NULL, &run));
    for (int64_t i = 0; i < rows * d_model; i++) y[i] = 2.0f / (float)(rows * d_model) * (y[i] - target[i]);
    const ffn_backward_t backward = {.struct_size = sizeof backward, .tape = learner->tape, .d_y = y, .gradients = gradients, .gradient_count = count};
    must(ffn_layer_backward(learner->layer, NULL, &backward));

    for (uint64_t i = 0; i < count; i++) {
        arrays[i] = learner->parameters[i].gradient;
        counts[i] = learner->parameters[i].count;
    }
    must(ffn_clip_global_norm(NULL, arrays, counts, count, largest_norm, &norm));
    if (!isfinite(norm)) return;
    const ffn_adamw_options_t adamw = {.struct_size = sizeof adamw, .step = step, .learning_rate = rate};
    for (uint64_t i = 0; i < count; i++) {
        parameter_t *one = &learner->parameters[i];
        must(ffn_adamw_step(NULL, &adamw, one->count, one->weight, one->gradient, one->first, one->second));
    }
    must(ffn_layer_update(learner->layer, NULL, weights, count));
}

/* -------------------------------------------------------------------- The loop */

int training_arguments(training_t *training, int argc, char **argv) {
    int left = 1;
    training->stop = INT64_MAX;
    training->seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        int64_t *number = !strcmp(name, "--steps") ? &training->steps : !strcmp(name, "--stop") ? &training->stop : NULL;
        if (!number && strcmp(name, "--seed") && strcmp(name, "--state")) {
            argv[left++] = argv[i];
            continue;
        }
        const char *value = ++i < argc ? argv[i] : "";
        char *end;
        unsigned long long parsed = strtoull(value, &end, 10);
        if (!strcmp(name, "--state") && *value) {
            training->state_path = value;
        } else if (*value < '0' || *value > '9' || *end || parsed > UINT32_MAX || (number && !parsed)) {
            fprintf(stderr, "%s is %s, must be a whole number\n", name, *value ? value : "missing");
            exit(2);
        } else if (number) {
            *number = (int64_t)parsed;
        } else {
            training->seed = parsed;
        }
    }
    return left;
}

static void tell(training_t *training, double seconds, int64_t began) {
    float *point = &training->curve[training->points++ * (1 + training->learner_count)];
    point[0] = (float)training->step;
    printf("step %5" PRId64 " of %" PRId64 ", %3.0f s left:", training->step, training->steps,
           seconds / (double)(training->step - began) * (double)(training->steps - training->step));
    for (int i = 0; i < training->learner_count; i++) {
        learner_t *learner = &training->learners[i];
        point[1 + i] = (float)learner_error(learner, training->valid_rows, training->d_model, training->valid_x, training->valid_target);
        printf("  %s %.4f", learner->name, (double)point[1 + i]);
    }
    printf("\n");
    fflush(stdout);
}

static double now(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The learning rate rises for a twentieth of the steps, then falls to 0 along a cosine. */
static float rate_of(const training_t *training) {
    const double steps = (double)training->steps, step = (double)training->step, warm = steps >= 20 ? floor(steps / 20) : 1;
    return (float)((double)training->learning_rate * fmin(1, step / warm) * (1 + cos(pi * step / steps)) / 2);
}

int training_run(training_t *training) {
    const int64_t numbers = training->rows * training->d_model, every = (training->steps - 1) / 40 + 1;
    float *x = take(numbers), *target = take(numbers), *y = take(numbers);
    state_restore(training);
    const double start = now();
    const int64_t began = training->step;
    signal(SIGINT, interrupt);
    while (training->step < training->steps && training->step < training->stop && !interrupted) {
        training->step++;
        training->batch(training->data, training->seed, training->step, x, target);
        for (int i = 0; i < training->learner_count; i++)
            learner_train(&training->learners[i], training->rows, training->d_model, x, target, y, training->step, rate_of(training));
        if (training->step % every == 0 || training->step == training->steps) tell(training, now() - start, began);
    }
    signal(SIGINT, SIG_DFL);
    state_save(training);
    free(x), free(target), free(y);
    return training->step == training->steps;
}

void training_draw(const training_t *training, const char *stem) {
    char path[256], script[896];
    snprintf(path, sizeof path, "%s.tsv", stem);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fprintf(file, "step");
    for (int i = 0; i < training->learner_count; i++) fprintf(file, "\t%s", training->learners[i].name);
    for (int64_t i = 0; i < training->points * (1 + training->learner_count); i++)
        fprintf(file, "%s%.6g", i % (1 + training->learner_count) ? "\t" : "\n", (double)training->curve[i]);
    fprintf(file, "\n");
    fclose(file);
    snprintf(script, sizeof script,
             "set output '%s.svg'; set logscale y; set xlabel 'step'; set ylabel 'error on rows that were not trained on';"
             " plot for [i=2:%d] '%s' using 1:i with lines title columnhead(i)",
             stem, 1 + training->learner_count, path);
    printf("the curves are in %s%s\n", path, gnuplot(script) ? ", and drawn beside it as .svg" : "; no plot was drawn: there is no gnuplot that works");
}

int gnuplot(const char *script) {
    char command[1024];
    snprintf(command, sizeof command, "command -v gnuplot >/dev/null && gnuplot -e \"set terminal svg size 700,450; %s\"", script);
    return system(command) == 0;
}

void training_free(training_t *training) {
    for (int i = 0; i < training->learner_count; i++) {
        learner_t *learner = &training->learners[i];
        ffn_layer_free(learner->layer);
        ffn_tape_free(learner->tape);
        for (int j = 0; j < learner->parameter_count; j++) {
            parameter_t *one = &learner->parameters[j];
            free(one->weight), free(one->gradient), free(one->first), free(one->second);
        }
    }
}
