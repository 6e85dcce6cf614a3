/* SPDX-License-Identifier: MIT
 * A gated mixture composed of oneDNN's products: up, then gate with the activation and the product with up as its post-ops, then down.
 *
 * A primitive is for one number of rows: there is one for each number that the tokens give an expert, made before anything is timed, and the experts
 * share it. Weights are packed once, in the layout that is asked for by the number of rows nearest to the mean. Inner product and matmul primitives are
 * both tried, and the faster is the one that is timed. */
#include "compose.h"
#include "onednn.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { UP, GATE, DOWN, PRODUCTS };

/* A product of so many rows. */
typedef struct product {
    dnnl_primitive_t primitive; /* NULL: no expert has so many rows */
    dnnl_memory_t from, to, factor;
} product_t;

typedef struct form {
    dnnl_memory_t *weights[PRODUCTS];     /* [experts]; NULL: not packed */
    product_t (*products)[PRODUCTS]; /* [rows] */
} form_t;

static composition_t composition;
static float *up_values, *hidden_values;
static form_t forms[FORMS];
static int prepared_form;

/* Products that read and write the memory of one expert's rows, which they own. */
static void describe_products(const layer_t *layer, int64_t rows, onednn_product_t of[PRODUCTS]) {
    int64_t d_model = layer->d_model, d_ff = layer->d_ff;
    dnnl_memory_t x = onednn_rows(rows, d_model, composition.gathered), up = onednn_rows(rows, d_ff, up_values);
    dnnl_memory_t hidden = onednn_rows(rows, d_ff, hidden_values), y = onednn_rows(rows, d_model, composition.results);
    of[UP] = (onednn_product_t){.outputs = d_ff, .inputs = d_model, .activation = "", .from = x, .to = up};
    of[GATE] = (onednn_product_t){.outputs = d_ff, .inputs = d_model, .activation = layer->activation, .from = x, .to = hidden, .factor = up};
    of[DOWN] = (onednn_product_t){.outputs = d_model, .inputs = d_ff, .activation = "", .from = hidden, .to = y};
}

static void free_memories(const product_t products[PRODUCTS]) {
    dnnl_memory_t owned[] = {products[UP].from, products[UP].to, products[DOWN].from, products[DOWN].to};
    for (int i = 0; i < 4; i++) onednn_check(dnnl_memory_destroy(owned[i]), "free");
}

static void pack(const layer_t *layer, int form, int64_t rows) {
    const float *values[PRODUCTS] = {layer->up, layer->gate, layer->down};
    onednn_product_t of[PRODUCTS];
    product_t products[PRODUCTS];
    describe_products(layer, rows, of);
    for (int i = 0; i < PRODUCTS; i++) {
        dnnl_primitive_desc_t description = onednn_describe(form, &of[i]);
        forms[form].weights[i] = malloc((size_t)layer->experts * sizeof *forms[form].weights[i]);
        if (!forms[form].weights[i]) worker_fail("out of memory");
        for (int64_t expert = 0; expert < layer->experts; expert++)
            forms[form].weights[i][expert] = onednn_packed(form, &of[i], description, values[i] + expert * layer->d_model * layer->d_ff);
        onednn_check(dnnl_primitive_desc_destroy(description), "free");
        products[i] = (product_t){.from = of[i].from, .to = of[i].to};
    }
    free_memories(products);
}

static void make_products(const layer_t *layer, int form, int64_t rows) {
    product_t *products = forms[form].products[rows];
    onednn_product_t of[PRODUCTS];
    if (products[UP].primitive) return;
    describe_products(layer, rows, of);
    for (int i = 0; i < PRODUCTS; i++) {
        of[i].asked = onednn_description(forms[form].weights[i][0]);
        dnnl_primitive_desc_t description = onednn_describe(form, &of[i]);
        products[i] = (product_t){.from = of[i].from, .to = of[i].to, .factor = of[i].factor};
        onednn_check(dnnl_primitive_create(&products[i].primitive, description), onednn_form_names[form]);
        onednn_check(dnnl_primitive_desc_destroy(description), "free");
    }
}

/* The number of an expert's rows that is nearest to the mean. */
static int64_t typical_rows(const layer_t *layer) {
    int64_t mean = composition.tokens * layer->top_k / worker_networks(layer, composition.tokens), best = 0;
    for (int64_t expert = 0; expert < layer->experts; expert++) {
        int64_t rows = composition.starts[expert + 1] - composition.starts[expert];
        if (rows && (!best || llabs(rows - mean) < llabs(best - mean))) best = rows;
    }
    return best;
}

static void make_form(const layer_t *layer, int form) {
    pack(layer, form, typical_rows(layer));
    forms[form].products = calloc((size_t)composition.tokens + 1, sizeof *forms[form].products);
    if (!forms[form].products) worker_fail("out of memory");
    for (int64_t expert = 0; expert < layer->experts; expert++) {
        int64_t rows = composition.starts[expert + 1] - composition.starts[expert];
        if (rows) make_products(layer, form, rows);
    }
}

static void free_form(const layer_t *layer, form_t *form, int64_t tokens) {
    for (int i = 0; form->products && i < PRODUCTS; i++) {
        for (int64_t expert = 0; expert < layer->experts; expert++) onednn_check(dnnl_memory_destroy(form->weights[i][expert]), "free");
        free(form->weights[i]);
    }
    for (int64_t rows = 1; form->products && rows <= tokens; rows++) {
        if (!form->products[rows][UP].primitive) continue;
        for (int i = 0; i < PRODUCTS; i++) onednn_check(dnnl_primitive_destroy(form->products[rows][i].primitive), "free");
        free_memories(form->products[rows]);
    }
    free(form->products);
    *form = (form_t){0};
}

static void run_expert(const layer_t *layer, int64_t expert, int64_t rows, const float *gathered, float *results) {
    (void)layer, (void)gathered, (void)results; /* the products' memories */
    const form_t *form = &forms[prepared_form];
    for (int i = 0; i < PRODUCTS; i++) {
        const product_t *product = &form->products[rows][i];
        const dnnl_exec_arg_t arguments[4] = {{DNNL_ARG_SRC, product->from}, {DNNL_ARG_WEIGHTS, form->weights[i][expert]}, {DNNL_ARG_DST, product->to},
                                              {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, product->factor}};
        onednn_check(dnnl_primitive_execute(product->primitive, onednn_stream, product->factor ? 4 : 3, arguments), "run");
    }
    onednn_check(dnnl_stream_wait(onednn_stream), "run");
}

static void run(const layer_t *layer) {
    compose_run(layer, &composition, run_expert);
}

static void run_form(const layer_t *layer, int form) {
    prepared_form = form;
    run(layer);
}

static const char *start(const layer_t *layer, const char *variant) {
    (void)variant;
    if (!layer->gated) return "only gated experts are composed";
    onednn_start();
    composition = compose_memory(layer);
    hidden_values = worker_floats(layer->max_tokens * layer->d_ff);
    up_values = worker_floats(layer->max_tokens * layer->d_ff);
    return NULL;
}

static const char *prepare(const layer_t *layer, int64_t tokens, int threads, char form[FORM_LENGTH]) {
    omp_set_num_threads(threads);
    for (int i = 0; i < FORMS; i++) free_form(layer, &forms[i], composition.tokens);
    composition.tokens = tokens;
    compose_sort(layer, &composition);
    for (int i = 0; i < FORMS; i++) make_form(layer, i);
    prepared_form = worker_fastest(FORMS, run_form, layer);
    free_form(layer, &forms[!prepared_form], tokens);
    snprintf(form, FORM_LENGTH, "%s", onednn_form_names[prepared_form]);
    return NULL;
}

int main(int argc, char **argv) {
    static const engine_t worker = {.start = start, .prepare = prepare, .run = run};
    return worker_main(argc, argv, &worker);
}
