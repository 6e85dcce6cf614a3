/* SPDX-License-Identifier: MIT
 * Training steps by oneDNN's primitives: inner products (forward_training, backward_data, backward_weights) with eltwise and binary ones between.
 *
 * Weights and their gradients are tried plain, [out, in], and in the layouts that each primitive asks for; the faster is the one that is timed. Bringing
 * weights into those layouts, and gradients out of them, is not: of a step that updates weights it would be a part. */
#include "worker.h"

#include <oneapi/dnnl/dnnl.h>

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { PLAIN, ASKED, FORMS };
static const char *const form_names[] = {"plain weights", "weights as asked"};
enum { OPERATIONS_MOST = 24, MEMORIES_MOST = 64, REORDERS_MOST = 3 };

typedef struct operation {
    dnnl_primitive_t primitive;
    int argument_count;
    dnnl_exec_arg_t arguments[5];
} operation_t;

typedef struct form {
    operation_t operations[OPERATIONS_MOST];
    int operation_count, forward_count; /* of the forward half */
    operation_t reorders[REORDERS_MOST]; /* gradients into the arrays that are checked */
    int reorder_count;
    dnnl_memory_t memories[MEMORIES_MOST]; /* to be freed */
    int memory_count;
} form_t;

/* A matrix, and what its forward primitive was: a hint for the backward ones. */
typedef struct weight {
    int64_t outputs, inputs;
    const float *values;
    float *gradient;
    dnnl_primitive_desc_t forward;
} weight_t;

enum { UP, GATE, DOWN, WEIGHTS };
enum { HIDDEN_ROWS = 8 };

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static float *hidden_rows[HIDDEN_ROWS], *more_rows;
static form_t forms[FORMS];
static int prepared_form, complete;

static void check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) worker_fail("oneDNN: %s: status %d", what, (int)status);
}

static dnnl_memory_t memory_of(form_t *f, const_dnnl_memory_desc_t description, const void *values) {
    dnnl_memory_t made;
    check(dnnl_memory_create(&made, description, engine, values ? (void *)values : DNNL_MEMORY_ALLOCATE), "memory");
    return f->memories[f->memory_count++] = made;
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t made;
    check(dnnl_memory_desc_create_with_tag(&made, 2, (dnnl_dims_t){rows, columns}, dnnl_f32, tag), "matrix");
    return made;
}

static dnnl_memory_t plain(form_t *f, int64_t rows, int64_t columns, const float *values) {
    dnnl_memory_desc_t description = matrix(rows, columns, dnnl_ab);
    dnnl_memory_t made = memory_of(f, description, values);
    check(dnnl_memory_desc_destroy(description), "free");
    return made;
}

static const_dnnl_memory_desc_t description_of(dnnl_memory_t memory) {
    const_dnnl_memory_desc_t description;
    check(dnnl_memory_get_memory_desc(memory, &description), "memory's description");
    return description;
}

static operation_t make_operation(dnnl_primitive_desc_t description, int count, const dnnl_exec_arg_t *arguments) {
    operation_t made = {.argument_count = count};
    check(dnnl_primitive_create(&made.primitive, description), "primitive");
    memcpy(made.arguments, arguments, (size_t)count * sizeof *arguments);
    return made;
}

static void add(form_t *f, dnnl_primitive_desc_t description, int count, const dnnl_exec_arg_t *arguments) {
    f->operations[f->operation_count++] = make_operation(description, count, arguments);
}

static void execute(const operation_t *operation) {
    check(dnnl_primitive_execute(operation->primitive, stream, operation->argument_count, operation->arguments), "run");
}

static operation_t reorder(dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_primitive_desc_t description;
    check(dnnl_reorder_primitive_desc_create(&description, description_of(from), engine, description_of(to), engine, NULL), "reorder");
    operation_t made = make_operation(description, 2, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    check(dnnl_primitive_desc_destroy(description), "free");
    return made;
}

/* ----------------------------------------------------------------- Primitives */

/* The weight's values in the layout that the primitive asks for. */
static dnnl_memory_t packed(form_t *f, const weight_t *weight, dnnl_primitive_desc_t description) {
    dnnl_memory_t from = plain(f, weight->outputs, weight->inputs, weight->values);
    dnnl_memory_t to = memory_of(f, dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0), NULL);
    operation_t copy = reorder(from, to);
    execute(&copy);
    check(dnnl_stream_wait(stream), "reorder");
    check(dnnl_primitive_destroy(copy.primitive), "free");
    return to;
}

static void add_forward(form_t *f, int form, weight_t *weight, dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_memory_desc_t asked = matrix(weight->outputs, weight->inputs, form == PLAIN ? dnnl_ab : dnnl_format_tag_any);
    check(dnnl_inner_product_forward_primitive_desc_create(&weight->forward, engine, dnnl_forward_training, description_of(from), asked, NULL,
                                                           description_of(to), NULL), "forward");
    add(f, weight->forward, 3, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, packed(f, weight, weight->forward)}, {DNNL_ARG_DST, to}});
    check(dnnl_memory_desc_destroy(asked), "free");
}

static void add_backward_data(form_t *f, int form, const weight_t *weight, dnnl_memory_t d_to, dnnl_memory_t d_from) {
    dnnl_memory_desc_t asked = matrix(weight->outputs, weight->inputs, form == PLAIN ? dnnl_ab : dnnl_format_tag_any);
    dnnl_primitive_desc_t description;
    check(dnnl_inner_product_backward_data_primitive_desc_create(&description, engine, description_of(d_from), asked, description_of(d_to),
                                                                 weight->forward, NULL), "backward_data");
    add(f, description, 3,
        (dnnl_exec_arg_t[]){{DNNL_ARG_DIFF_DST, d_to}, {DNNL_ARG_WEIGHTS, packed(f, weight, description)}, {DNNL_ARG_DIFF_SRC, d_from}});
    check(dnnl_primitive_desc_destroy(description), "free");
    check(dnnl_memory_desc_destroy(asked), "free");
}

static void add_backward_weights(form_t *f, int form, const weight_t *weight, dnnl_memory_t from, dnnl_memory_t d_to) {
    dnnl_memory_desc_t asked = matrix(weight->outputs, weight->inputs, form == PLAIN ? dnnl_ab : dnnl_format_tag_any);
    dnnl_primitive_desc_t description;
    check(dnnl_inner_product_backward_weights_primitive_desc_create(&description, engine, description_of(from), asked, NULL, description_of(d_to),
                                                                    weight->forward, NULL), "backward_weights");
    dnnl_memory_t checked = plain(f, weight->outputs, weight->inputs, weight->gradient), gradient = checked;
    const_dnnl_memory_desc_t chosen = dnnl_primitive_desc_query_md(description, dnnl_query_diff_weights_md, 0);
    if (!dnnl_memory_desc_equal(chosen, description_of(checked))) {
        gradient = memory_of(f, chosen, NULL);
        f->reorders[f->reorder_count++] = reorder(gradient, checked);
    }
    add(f, description, 3, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, from}, {DNNL_ARG_DIFF_DST, d_to}, {DNNL_ARG_DIFF_WEIGHTS, gradient}});
    check(dnnl_primitive_desc_destroy(description), "free");
    check(dnnl_memory_desc_destroy(asked), "free");
}

static void add_binary(form_t *f, dnnl_alg_kind_t kind, dnnl_memory_t a, dnnl_memory_t b, dnnl_memory_t to) {
    dnnl_primitive_desc_t description;
    check(dnnl_binary_primitive_desc_create(&description, engine, kind, description_of(a), description_of(b), description_of(to), NULL), "binary");
    add(f, description, 3, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, to}});
    check(dnnl_primitive_desc_destroy(description), "free");
}

static dnnl_alg_kind_t activation_of(const layer_t *layer) {
    return layer->gated ? dnnl_eltwise_swish : dnnl_eltwise_gelu_erf;
}

static dnnl_primitive_desc_t add_activation(form_t *f, const layer_t *layer, dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_primitive_desc_t description;
    check(dnnl_eltwise_forward_primitive_desc_create(&description, engine, dnnl_forward_training, activation_of(layer), description_of(from),
                                                     description_of(to), 1, 0, NULL), "eltwise");
    add(f, description, 2, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
    return description;
}

/* d_from may be d_to. Ends the hint. */
static void add_activation_backward(form_t *f, const layer_t *layer, dnnl_primitive_desc_t forward, dnnl_memory_t from, dnnl_memory_t d_to,
                                    dnnl_memory_t d_from) {
    dnnl_primitive_desc_t description;
    check(dnnl_eltwise_backward_primitive_desc_create(&description, engine, activation_of(layer), description_of(d_from), description_of(d_to),
                                                      description_of(from), 1, 0, forward, NULL), "eltwise backward");
    add(f, description, 3, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, from}, {DNNL_ARG_DIFF_DST, d_to}, {DNNL_ARG_DIFF_SRC, d_from}});
    check(dnnl_primitive_desc_destroy(description), "free");
    check(dnnl_primitive_desc_destroy(forward), "free");
}

/* ---------------------------------------------------------------------- Steps */

static void make_dense(form_t *f, int form, const layer_t *layer, int64_t tokens, weight_t weights[WEIGHTS], dnnl_memory_t rows[HIDDEN_ROWS]) {
    dnnl_memory_t x = plain(f, tokens, layer->d_model, layer->x), y = plain(f, tokens, layer->d_model, layer->y);
    dnnl_memory_t d_y = plain(f, tokens, layer->d_model, layer->d_y), d_x = plain(f, tokens, layer->d_model, layer->d_x);
    dnnl_memory_t up = rows[0], act = rows[1], d_act = rows[2];
    add_forward(f, form, &weights[UP], x, up);
    dnnl_primitive_desc_t activation = add_activation(f, layer, up, act);
    add_forward(f, form, &weights[DOWN], act, y);
    f->forward_count = f->operation_count;
    add_backward_data(f, form, &weights[DOWN], d_y, d_act);
    add_backward_weights(f, form, &weights[DOWN], act, d_y);
    add_activation_backward(f, layer, activation, up, d_act, d_act);
    add_backward_weights(f, form, &weights[UP], x, d_act);
    add_backward_data(f, form, &weights[UP], d_act, d_x);
}

static void make_gated(form_t *f, int form, const layer_t *layer, int64_t tokens, weight_t weights[WEIGHTS], dnnl_memory_t rows[HIDDEN_ROWS]) {
    dnnl_memory_t x = plain(f, tokens, layer->d_model, layer->x), y = plain(f, tokens, layer->d_model, layer->y);
    dnnl_memory_t d_y = plain(f, tokens, layer->d_model, layer->d_y), d_x = plain(f, tokens, layer->d_model, layer->d_x);
    dnnl_memory_t d_x_of_up = plain(f, tokens, layer->d_model, more_rows);
    dnnl_memory_t up = rows[0], gate = rows[1], gate_act = rows[2], act = rows[3], d_act = rows[4], d_up = rows[5], d_gate = rows[6];
    add_forward(f, form, &weights[UP], x, up);
    add_forward(f, form, &weights[GATE], x, gate);
    dnnl_primitive_desc_t activation = add_activation(f, layer, gate, gate_act);
    add_binary(f, dnnl_binary_mul, gate_act, up, act);
    add_forward(f, form, &weights[DOWN], act, y);
    f->forward_count = f->operation_count;
    add_backward_data(f, form, &weights[DOWN], d_y, d_act);
    add_backward_weights(f, form, &weights[DOWN], act, d_y);
    add_binary(f, dnnl_binary_mul, d_act, gate_act, d_up);
    add_binary(f, dnnl_binary_mul, d_act, up, d_gate);
    add_activation_backward(f, layer, activation, gate, d_gate, d_gate);
    add_backward_weights(f, form, &weights[UP], x, d_up);
    add_backward_weights(f, form, &weights[GATE], x, d_gate);
    add_backward_data(f, form, &weights[UP], d_up, d_x_of_up);
    add_backward_data(f, form, &weights[GATE], d_gate, d_x);
    add_binary(f, dnnl_binary_add, d_x, d_x_of_up, d_x);
}

static void make_form(int form, const layer_t *layer, int64_t tokens) {
    form_t *f = &forms[form];
    weight_t weights[WEIGHTS] = {[UP] = {layer->d_ff, layer->d_model, layer->up, layer->d_up, NULL},
                                 [GATE] = {layer->d_ff, layer->d_model, layer->gate, layer->d_gate, NULL},
                                 [DOWN] = {layer->d_model, layer->d_ff, layer->down, layer->d_down, NULL}};
    dnnl_memory_t rows[HIDDEN_ROWS];
    for (int i = 0; i < HIDDEN_ROWS; i++) rows[i] = plain(f, tokens, layer->d_ff, hidden_rows[i]);
    (layer->gated ? make_gated : make_dense)(f, form, layer, tokens, weights, rows);
    for (int i = 0; i < WEIGHTS; i++)
        if (weights[i].forward) check(dnnl_primitive_desc_destroy(weights[i].forward), "free");
}

static void free_form(form_t *f) {
    for (int i = 0; i < f->operation_count; i++) check(dnnl_primitive_destroy(f->operations[i].primitive), "free");
    for (int i = 0; i < f->reorder_count; i++) check(dnnl_primitive_destroy(f->reorders[i].primitive), "free");
    for (int i = 0; i < f->memory_count; i++) check(dnnl_memory_destroy(f->memories[i]), "free");
    *f = (form_t){0};
}

static void run_form(const layer_t *layer, int form) {
    (void)layer;
    form_t *f = &forms[form];
    for (int i = 0; i < f->operation_count; i++) {
        execute(&f->operations[i]);
        if (i + 1 != f->forward_count) continue;
        check(dnnl_stream_wait(stream), "run");
        worker_forward_done();
    }
    for (int i = 0; complete && i < f->reorder_count; i++) execute(&f->reorders[i]);
    check(dnnl_stream_wait(stream), "run");
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    for (int i = 0; i < HIDDEN_ROWS; i++) hidden_rows[i] = worker_floats(layer->max_tokens * layer->d_ff);
    more_rows = worker_floats(layer->max_tokens * layer->d_model);
    return NULL;
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    omp_set_num_threads(threads);
    for (int i = 0; i < FORMS; i++) {
        free_form(&forms[i]);
        make_form(i, layer, tokens);
    }
    complete = 0;
    prepared_form = worker_fastest(FORMS, run_form, layer);
    free_form(&forms[!prepared_form]);
    complete = 1;
    snprintf(form, FORM_LENGTH, "%s", form_names[prepared_form]);
    return NULL;
}

static void run(const layer_t *layer) {
    run_form(layer, prepared_form);
    complete = 0;
}

int main(int argc, char **argv) {
    static const engine_t worker = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &worker);
}
