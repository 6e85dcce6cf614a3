/* SPDX-License-Identifier: MIT
 * oneDNN: products with weights in the layout that the library asks for and fused post-ops. Gated: up, then gate with the activation and the
 * product with up as its post-ops. Inner product and matmul primitives are both tried, and the faster is the one that is timed. */
#include "worker.h"

#include <oneapi/dnnl/dnnl.h>

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { INNER_PRODUCT, MATMUL, FORMS };
static const char *const form_names[] = {"inner product", "matmul"};

/* One product, as what its primitive is executed with. */
typedef struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_t weights, bias; /* bias NULL: none */
    int argument_count;
    dnnl_exec_arg_t arguments[5];
} product_t;

typedef struct form {
    product_t products[3];
    int product_count;
    dnnl_memory_t x, up, hidden, y;
} form_t;

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static float *up_values, *hidden_values;
static form_t forms[FORMS];
static int prepared_form;

static void check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) worker_fail("oneDNN: %s: status %d", what, (int)status);
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    dnnl_memory_desc_t made;
    check(dnnl_memory_desc_create_with_strides(&made, 2, (dnnl_dims_t){rows, columns}, dnnl_f32, (dnnl_dims_t){row_stride, column_stride}), "matrix");
    return made;
}

static dnnl_memory_t memory_of(const_dnnl_memory_desc_t description, const void *values) {
    dnnl_memory_t made;
    check(dnnl_memory_create(&made, description, engine, values ? (void *)values : DNNL_MEMORY_ALLOCATE), "memory");
    return made;
}

static dnnl_memory_t rows_of(int64_t tokens, int64_t width, const float *values) {
    dnnl_memory_desc_t description = matrix(tokens, width, width, 1);
    dnnl_memory_t made = memory_of(description, values);
    check(dnnl_memory_desc_destroy(description), "free");
    return made;
}

static const_dnnl_memory_desc_t description_of(dnnl_memory_t memory) {
    const_dnnl_memory_desc_t description;
    check(dnnl_memory_get_memory_desc(memory, &description), "memory's description");
    return description;
}

/* Copies `values` into the layout that the primitive asks for. */
static dnnl_memory_t packed(const_dnnl_primitive_desc_t description, const_dnnl_memory_desc_t plain, const float *values) {
    dnnl_primitive_desc_t reorder_description;
    dnnl_primitive_t reorder;
    dnnl_memory_t from = memory_of(plain, values), to = memory_of(dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0), NULL);
    check(dnnl_reorder_primitive_desc_create(&reorder_description, plain, engine, description_of(to), engine, NULL), "reorder");
    check(dnnl_primitive_create(&reorder, reorder_description), "reorder");
    check(dnnl_primitive_execute(reorder, stream, 2, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}), "reorder");
    check(dnnl_stream_wait(stream), "reorder");
    check(dnnl_primitive_destroy(reorder), "free");
    check(dnnl_primitive_desc_destroy(reorder_description), "free");
    check(dnnl_memory_destroy(from), "free");
    return to;
}

/* activation "": none. factor NULL: none; else the result is multiplied by it. */
static dnnl_primitive_attr_t attributes(const char *activation, dnnl_memory_t factor) {
    dnnl_primitive_attr_t made;
    dnnl_post_ops_t post_ops;
    check(dnnl_primitive_attr_create(&made), "attributes");
    check(dnnl_post_ops_create(&post_ops), "post-ops");
    if (!strcmp(activation, "relu")) check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_relu, 0, 0), "relu");
    if (!strcmp(activation, "gelu")) check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_gelu_erf, 0, 0), "gelu");
    if (!strcmp(activation, "silu")) check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_swish, 1, 0), "swish");
    if (factor) check(dnnl_post_ops_append_binary(post_ops, dnnl_binary_mul, description_of(factor)), "mul");
    check(dnnl_primitive_attr_set_post_ops(made, post_ops), "post-ops");
    check(dnnl_post_ops_destroy(post_ops), "free");
    return made;
}

static dnnl_status_t describe(int form, dnnl_memory_t from, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, dnnl_memory_t to,
                              const_dnnl_primitive_attr_t attribute, dnnl_primitive_desc_t *description) {
    if (form == MATMUL)
        return dnnl_matmul_primitive_desc_create(description, engine, description_of(from), weights, bias, description_of(to), attribute);
    return dnnl_inner_product_forward_primitive_desc_create(description, engine, dnnl_forward_inference, description_of(from), weights, bias,
                                                            description_of(to), attribute);
}

/* to = activation(from weights^T + bias) * factor, with weights [outputs, inputs]. */
static void make_product(form_t *f, int form, dnnl_memory_t from, dnnl_memory_t to, const float *weights, const float *bias, int64_t outputs,
                         int64_t inputs, const char *activation, dnnl_memory_t factor) {
    product_t *product = &f->products[f->product_count++];
    int64_t rows = form == MATMUL ? inputs : outputs, columns = form == MATMUL ? outputs : inputs;
    dnnl_memory_desc_t plain = form == MATMUL ? matrix(rows, columns, 1, inputs) : matrix(rows, columns, inputs, 1), any, bias_description = NULL;
    dnnl_primitive_attr_t attribute = attributes(activation, factor);
    dnnl_primitive_desc_t description;
    check(dnnl_memory_desc_create_with_tag(&any, 2, (dnnl_dims_t){rows, columns}, dnnl_f32, dnnl_format_tag_any), "weights");
    if (bias && form == MATMUL) bias_description = matrix(1, outputs, outputs, 1);
    if (bias && form != MATMUL)
        check(dnnl_memory_desc_create_with_tag(&bias_description, 1, (dnnl_dims_t){outputs}, dnnl_f32, dnnl_a), "bias");
    check(describe(form, from, any, bias_description, to, attribute, &description), form_names[form]);
    check(dnnl_primitive_create(&product->primitive, description), form_names[form]);
    product->weights = packed(description, plain, weights);
    product->bias = bias ? memory_of(bias_description, bias) : NULL;
    dnnl_exec_arg_t *argument = product->arguments;
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_SRC, from};
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, product->weights};
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_DST, to};
    if (bias) *argument++ = (dnnl_exec_arg_t){DNNL_ARG_BIAS, product->bias};
    if (factor) *argument++ = (dnnl_exec_arg_t){DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, factor};
    product->argument_count = (int)(argument - product->arguments);
    check(dnnl_primitive_desc_destroy(description), "free");
    check(dnnl_primitive_attr_destroy(attribute), "free");
    check(dnnl_memory_desc_destroy(any), "free");
    check(dnnl_memory_desc_destroy(plain), "free");
    if (bias_description) check(dnnl_memory_desc_destroy(bias_description), "free");
}

static void make_form(int form, const layer_t *layer, int64_t tokens) {
    form_t *f = &forms[form];
    *f = (form_t){.x = rows_of(tokens, layer->d_model, layer->x), .hidden = rows_of(tokens, layer->d_ff, hidden_values),
                  .y = rows_of(tokens, layer->d_model, layer->y)};
    if (layer->gated) {
        f->up = rows_of(tokens, layer->d_ff, up_values);
        make_product(f, form, f->x, f->up, layer->up, layer->up_bias, layer->d_ff, layer->d_model, "", NULL);
        make_product(f, form, f->x, f->hidden, layer->gate, NULL, layer->d_ff, layer->d_model, layer->activation, f->up);
    } else {
        make_product(f, form, f->x, f->hidden, layer->up, layer->up_bias, layer->d_ff, layer->d_model, layer->activation, NULL);
    }
    make_product(f, form, f->hidden, f->y, layer->down, layer->down_bias, layer->d_model, layer->d_ff, "", NULL);
}

static void free_form(form_t *f) {
    for (int i = 0; i < f->product_count; i++) {
        check(dnnl_primitive_destroy(f->products[i].primitive), "free");
        check(dnnl_memory_destroy(f->products[i].weights), "free");
        if (f->products[i].bias) check(dnnl_memory_destroy(f->products[i].bias), "free");
    }
    dnnl_memory_t rows[] = {f->x, f->up, f->hidden, f->y};
    for (int i = 0; i < 4; i++)
        if (rows[i]) check(dnnl_memory_destroy(rows[i]), "free");
    *f = (form_t){0};
}

static void run_form(const layer_t *layer, int form) {
    (void)layer;
    form_t *f = &forms[form];
    for (int i = 0; i < f->product_count; i++)
        check(dnnl_primitive_execute(f->products[i].primitive, stream, f->products[i].argument_count, f->products[i].arguments), "run");
    check(dnnl_stream_wait(stream), "run");
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    hidden_values = worker_floats(layer->max_tokens * layer->d_ff);
    up_values = worker_floats(layer->max_tokens * layer->d_ff);
    return NULL;
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    omp_set_num_threads(threads);
    for (int i = 0; i < FORMS; i++) {
        free_form(&forms[i]);
        make_form(i, layer, tokens);
    }
    prepared_form = worker_fastest(FORMS, run_form, layer);
    free_form(&forms[!prepared_form]);
    snprintf(form, FORM_LENGTH, "%s", form_names[prepared_form]);
    return NULL;
}

static void run(const layer_t *layer) {
    run_form(layer, prepared_form);
}

int main(int argc, char **argv) {
    static const engine_t worker = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &worker);
}
