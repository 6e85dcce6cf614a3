/* SPDX-License-Identifier: MIT
 * oneDNN: products with weights in the layout that the library asks for and fused post-ops. Gated: up, then gate with the activation and the
 * product with up as its post-ops. Inner product and matmul primitives are both tried, and the faster is the one that is timed. */
#include "onednn.h"

#include <omp.h>
#include <stdio.h>

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

static float *up_values, *hidden_values;
static form_t forms[FORMS];
static int prepared_form;

/* to = activation(from weights^T + bias) * factor, with weights [outputs, inputs]. */
static void make_product(form_t *f, int form, onednn_product_t of, const float *weights, const float *bias) {
    product_t *product = &f->products[f->product_count++];
    dnnl_memory_desc_t bias_description = NULL;
    if (bias && form == MATMUL) bias_description = onednn_matrix(1, of.outputs, of.outputs, 1);
    if (bias && form != MATMUL)
        onednn_check(dnnl_memory_desc_create_with_tag(&bias_description, 1, (dnnl_dims_t){of.outputs}, dnnl_f32, dnnl_a), "bias");
    of.bias = bias_description;
    dnnl_primitive_desc_t description = onednn_describe(form, &of);
    onednn_check(dnnl_primitive_create(&product->primitive, description), onednn_form_names[form]);
    product->weights = onednn_packed(form, &of, description, weights);
    product->bias = bias ? onednn_memory(bias_description, bias) : NULL;
    dnnl_exec_arg_t *argument = product->arguments;
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_SRC, of.from};
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, product->weights};
    *argument++ = (dnnl_exec_arg_t){DNNL_ARG_DST, of.to};
    if (bias) *argument++ = (dnnl_exec_arg_t){DNNL_ARG_BIAS, product->bias};
    if (of.factor) *argument++ = (dnnl_exec_arg_t){DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, of.factor};
    product->argument_count = (int)(argument - product->arguments);
    onednn_check(dnnl_primitive_desc_destroy(description), "free");
    if (bias_description) onednn_check(dnnl_memory_desc_destroy(bias_description), "free");
}

static void make_form(int form, const layer_t *layer, int64_t tokens) {
    form_t *f = &forms[form];
    int64_t d_model = layer->d_model, d_ff = layer->d_ff;
    *f = (form_t){.x = onednn_rows(tokens, d_model, layer->x), .hidden = onednn_rows(tokens, d_ff, hidden_values),
                  .y = onednn_rows(tokens, d_model, layer->y)};
    onednn_product_t up = {.outputs = d_ff, .inputs = d_model, .activation = layer->activation, .from = f->x, .to = f->hidden}, gate = up;
    onednn_product_t down = {.outputs = d_model, .inputs = d_ff, .activation = "", .from = f->hidden, .to = f->y};
    if (layer->gated) {
        f->up = onednn_rows(tokens, d_ff, up_values);
        up.to = gate.factor = f->up, up.activation = "";
    }
    make_product(f, form, up, layer->up, layer->up_bias);
    if (layer->gated) make_product(f, form, gate, layer->gate, NULL);
    make_product(f, form, down, layer->down, layer->down_bias);
}

static void free_form(form_t *f) {
    for (int i = 0; i < f->product_count; i++) {
        onednn_check(dnnl_primitive_destroy(f->products[i].primitive), "free");
        onednn_check(dnnl_memory_destroy(f->products[i].weights), "free");
        if (f->products[i].bias) onednn_check(dnnl_memory_destroy(f->products[i].bias), "free");
    }
    dnnl_memory_t rows[] = {f->x, f->up, f->hidden, f->y};
    for (int i = 0; i < 4; i++)
        if (rows[i]) onednn_check(dnnl_memory_destroy(rows[i]), "free");
    *f = (form_t){0};
}

static void run_form(const layer_t *layer, int form) {
    (void)layer;
    form_t *f = &forms[form];
    for (int i = 0; i < f->product_count; i++)
        onednn_check(dnnl_primitive_execute(f->products[i].primitive, onednn_stream, f->products[i].argument_count, f->products[i].arguments), "run");
    onednn_check(dnnl_stream_wait(onednn_stream), "run");
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    onednn_start();
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
    snprintf(form, FORM_LENGTH, "%s", onednn_form_names[prepared_form]);
    return NULL;
}

static void run(const layer_t *layer) {
    run_form(layer, prepared_form);
}

int main(int argc, char **argv) {
    static const engine_t worker = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &worker);
}
