/* SPDX-License-Identifier: MIT
 * See onednn.h. */
#include "onednn.h"

#include <string.h>

const char *const onednn_form_names[] = {"inner product", "matmul"};
dnnl_engine_t onednn_engine;
dnnl_stream_t onednn_stream;

void onednn_check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) worker_fail("oneDNN: %s: status %d", what, (int)status);
}

void onednn_start(void) {
    onednn_check(dnnl_engine_create(&onednn_engine, dnnl_cpu, 0), "engine");
    onednn_check(dnnl_stream_create(&onednn_stream, onednn_engine, dnnl_stream_default_flags), "stream");
}

dnnl_memory_desc_t onednn_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    dnnl_memory_desc_t made;
    onednn_check(dnnl_memory_desc_create_with_strides(&made, 2, (dnnl_dims_t){rows, columns}, dnnl_f32, (dnnl_dims_t){row_stride, column_stride}), "matrix");
    return made;
}

dnnl_memory_t onednn_memory(const_dnnl_memory_desc_t description, const void *values) {
    dnnl_memory_t made;
    onednn_check(dnnl_memory_create(&made, description, onednn_engine, values ? (void *)values : DNNL_MEMORY_ALLOCATE), "memory");
    return made;
}

dnnl_memory_t onednn_rows(int64_t rows, int64_t width, const float *values) {
    dnnl_memory_desc_t description = onednn_matrix(rows, width, width, 1);
    dnnl_memory_t made = onednn_memory(description, values);
    onednn_check(dnnl_memory_desc_destroy(description), "free");
    return made;
}

const_dnnl_memory_desc_t onednn_description(dnnl_memory_t memory) {
    const_dnnl_memory_desc_t description;
    onednn_check(dnnl_memory_get_memory_desc(memory, &description), "memory's description");
    return description;
}

static dnnl_primitive_attr_t attributes(const char *activation, dnnl_memory_t factor) {
    dnnl_primitive_attr_t made;
    dnnl_post_ops_t post_ops;
    onednn_check(dnnl_primitive_attr_create(&made), "attributes");
    onednn_check(dnnl_post_ops_create(&post_ops), "post-ops");
    if (!strcmp(activation, "relu")) onednn_check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_relu, 0, 0), "relu");
    if (!strcmp(activation, "gelu")) onednn_check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_gelu_erf, 0, 0), "gelu");
    if (!strcmp(activation, "silu")) onednn_check(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_swish, 1, 0), "swish");
    if (factor) onednn_check(dnnl_post_ops_append_binary(post_ops, dnnl_binary_mul, onednn_description(factor)), "mul");
    onednn_check(dnnl_primitive_attr_set_post_ops(made, post_ops), "post-ops");
    onednn_check(dnnl_post_ops_destroy(post_ops), "free");
    return made;
}

dnnl_primitive_desc_t onednn_describe(int form, const onednn_product_t *product) {
    const_dnnl_memory_desc_t from = onednn_description(product->from), to = onednn_description(product->to), weights = product->asked;
    dnnl_primitive_attr_t attribute = attributes(product->activation, product->factor);
    dnnl_dims_t sizes = {product->outputs, product->inputs};
    dnnl_memory_desc_t any;
    dnnl_primitive_desc_t made;
    if (form == MATMUL) sizes[0] = product->inputs, sizes[1] = product->outputs;
    onednn_check(dnnl_memory_desc_create_with_tag(&any, 2, sizes, dnnl_f32, dnnl_format_tag_any), "weights");
    if (!weights) weights = any;
    if (form == MATMUL)
        onednn_check(dnnl_matmul_primitive_desc_create(&made, onednn_engine, from, weights, product->bias, to, attribute), "matmul");
    else
        onednn_check(dnnl_inner_product_forward_primitive_desc_create(&made, onednn_engine, dnnl_forward_inference, from, weights, product->bias, to,
                                                                      attribute), "inner product");
    onednn_check(dnnl_memory_desc_destroy(any), "free");
    onednn_check(dnnl_primitive_attr_destroy(attribute), "free");
    return made;
}

dnnl_memory_t onednn_packed(int form, const onednn_product_t *product, const_dnnl_primitive_desc_t description, const float *values) {
    int64_t outputs = product->outputs, inputs = product->inputs;
    dnnl_memory_desc_t plain = form == MATMUL ? onednn_matrix(inputs, outputs, 1, inputs) : onednn_matrix(outputs, inputs, inputs, 1);
    dnnl_memory_t from = onednn_memory(plain, values), to = onednn_memory(dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0), NULL);
    dnnl_primitive_desc_t reorder_description;
    dnnl_primitive_t reorder;
    onednn_check(dnnl_reorder_primitive_desc_create(&reorder_description, plain, onednn_engine, onednn_description(to), onednn_engine, NULL), "reorder");
    onednn_check(dnnl_primitive_create(&reorder, reorder_description), "reorder");
    onednn_check(dnnl_primitive_execute(reorder, onednn_stream, 2, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}), "reorder");
    onednn_check(dnnl_stream_wait(onednn_stream), "reorder");
    onednn_check(dnnl_primitive_destroy(reorder), "free");
    onednn_check(dnnl_primitive_desc_destroy(reorder_description), "free");
    onednn_check(dnnl_memory_destroy(from), "free");
    onednn_check(dnnl_memory_desc_destroy(plain), "free");
    return to;
}
