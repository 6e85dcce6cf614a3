/* SPDX-License-Identifier: MIT
 * ffn params: how many numbers a feed-forward layer holds, from its sizes alone. */
#include "cli/commands.h"

#include <ffn/ffn.h>

#include <inttypes.h>
#include <stdio.h>

enum { D_MODEL = 1, D_FF, D_OUT, GATED, NO_BIAS, LAYERS, MULTIPLE, AS_JSON };
enum { LARGEST_WIDTH = 1 << 29, MOST_LAYERS = 100000 };

static const option_row_t option_rows[] = {
    {"d-model", "N", D_MODEL, "width of the layer's input (required)"},
    {"d-ff", "N", D_FF, "width of the hidden row (required)"},
    {"d-out", "N", D_OUT, "width of the output; default: d-model"},
    {"gated", NULL, GATED, "three matrices: gate, up and down"},
    {"no-bias", NULL, NO_BIAS, "matrices alone, in attention too"},
    {"layers", "N", LAYERS, "layers of the model; default: 1"},
    {"multiple", "N", MULTIPLE, "round the gated width up to a multiple of N; default: 1"},
    OPTION_JSON(AS_JSON),
    {0}};

typedef struct sizes {
    int64_t d_model, d_ff, d_out, layers, multiple;
    int gated, bias, json;
} sizes_t;

/* One tensor of the layer. */
typedef struct part {
    const char *name;
    int64_t rows, columns; /* columns 0: a vector */
} part_t;

static int64_t size_of(const part_t *part) {
    return part->rows * (part->columns ? part->columns : 1);
}

/* Widths are at most 2^29, so that a layer's sums stay below 2^61. */
static int parts_of(const sizes_t *sizes, part_t part[6]) {
    int count = 0;
    if (sizes->gated) part[count++] = (part_t){"gate", sizes->d_ff, sizes->d_model};
    if (sizes->gated && sizes->bias) part[count++] = (part_t){"gate bias", sizes->d_ff, 0};
    part[count++] = (part_t){"up", sizes->d_ff, sizes->d_model};
    if (sizes->bias) part[count++] = (part_t){"up bias", sizes->d_ff, 0};
    part[count++] = (part_t){"down", sizes->d_out, sizes->d_ff};
    if (sizes->bias) part[count++] = (part_t){"down bias", sizes->d_out, 0};
    return count;
}

typedef struct totals {
    int64_t layer, all; /* of one layer, of all */
    int64_t attention;  /* of a Transformer layer's: four matrices d_model x d_model, and their biases */
    int64_t other_d_ff; /* the width that gives the other kind (gated, dense) as many parameters */
} totals_t;

static int count_totals(const sizes_t *sizes, totals_t *totals) {
    part_t part[6];
    int count = parts_of(sizes, part);
    for (int i = 0; i < count; i++) totals->layer += size_of(&part[i]);
    if (totals->layer > INT64_MAX / sizes->layers) return complain("the parameters of all layers are 2^63 or more");
    totals->all = totals->layer * sizes->layers;
    totals->attention = 4 * sizes->d_model * (sizes->d_model + sizes->bias);
    if (sizes->gated) totals->other_d_ff = sizes->d_ff + (sizes->d_ff + 1) / 2;
    else if (ffn_gated_d_ff(sizes->d_ff, sizes->multiple, &totals->other_d_ff)) return complain("%s", ffn_last_error());
    return EXIT_FINE;
}

static int print_json(const sizes_t *sizes, const totals_t *totals) {
    part_t part[6];
    int count = parts_of(sizes, part);
    json_t *root = json_object(), *matrices = json_array();
    for (int i = 0; i < count; i++) {
        json_t *shape = json_array();
        json_array_append_new(shape, json_integer(part[i].rows));
        if (part[i].columns) json_array_append_new(shape, json_integer(part[i].columns));
        json_array_append_new(matrices, json_pack("{s:s, s:o, s:I}", "name", part[i].name, "shape", shape, "parameters",
                                                  (json_int_t)size_of(&part[i])));
    }
    json_object_set_new(root, "d_model", json_integer(sizes->d_model));
    json_object_set_new(root, "d_ff", json_integer(sizes->d_ff));
    json_object_set_new(root, "d_out", json_integer(sizes->d_out));
    json_object_set_new(root, "gated", json_boolean(sizes->gated));
    json_object_set_new(root, "tensors", matrices);
    json_object_set_new(root, "layer", json_integer(totals->layer));
    json_object_set_new(root, "layers", json_integer(sizes->layers));
    json_object_set_new(root, "total", json_integer(totals->all));
    json_object_set_new(root, "attention", json_integer(totals->attention));
    json_object_set_new(root, "share_of_transformer_layer", json_real((double)totals->layer / (double)(totals->layer + totals->attention)));
    json_object_set_new(root, sizes->gated ? "equal_dense_d_ff" : "equal_gated_d_ff", json_integer(totals->other_d_ff));
    return json_print(root);
}

static void print_text(const sizes_t *sizes, const totals_t *totals) {
    part_t part[6];
    int count = parts_of(sizes, part);
    table_t table = table_make("llr");
    table_add(&table, "tensor");
    table_add(&table, "shape");
    table_add(&table, "parameters");
    for (int i = 0; i < count; i++) {
        table_add(&table, "%s", part[i].name);
        if (part[i].columns) table_add(&table, "[%" PRId64 ", %" PRId64 "]", part[i].rows, part[i].columns);
        else table_add(&table, "[%" PRId64 "]", part[i].rows);
        table_add(&table, "%s", grouped(size_of(&part[i])).text);
    }
    table_add(&table, "layer");
    table_add(&table, "%s", "");
    table_add(&table, "%s", grouped(totals->layer).text);
    if (sizes->layers > 1) {
        table_add(&table, "%" PRId64 " layers", sizes->layers);
        table_add(&table, "%s", "");
        table_add(&table, "%s", grouped(totals->all).text);
    }
    table_print(&table);
    printf("\n%s of a Transformer layer, whose attention has %s (4 d_model^2%s)\n",
           percent((double)totals->layer, (double)(totals->layer + totals->attention)).text, grouped(totals->attention).text,
           sizes->bias ? " + 4 d_model" : "");
    printf("A %s layer has as many parameters in its matrices with d_ff %s\n", sizes->gated ? "dense" : "gated", grouped(totals->other_d_ff).text);
}

static int run(int count, char **words) {
    sizes_t sizes = {.layers = 1, .multiple = 1, .bias = 1};
    totals_t totals = {0};
    arguments_t arguments = arguments_begin(&params_command, count, words);
    for (int id; (id = arguments_next(&arguments)) != ARGUMENT_END;) {
        switch (id) {
        case D_MODEL: sizes.d_model = arguments_integer(&arguments, 1, LARGEST_WIDTH); break;
        case D_FF: sizes.d_ff = arguments_integer(&arguments, 1, LARGEST_WIDTH); break;
        case D_OUT: sizes.d_out = arguments_integer(&arguments, 1, LARGEST_WIDTH); break;
        case GATED: sizes.gated = 1; break;
        case NO_BIAS: sizes.bias = 0; break;
        case LAYERS: sizes.layers = arguments_integer(&arguments, 1, MOST_LAYERS); break;
        case MULTIPLE: sizes.multiple = arguments_integer(&arguments, 1, LARGEST_WIDTH); break;
        case AS_JSON: sizes.json = 1; break;
        default: arguments_refuse(&arguments, "\"%s\" is one word too many", arguments.value);
        }
    }
    if (!sizes.d_model || !sizes.d_ff) arguments_refuse(&arguments, "give both --d-model and --d-ff");
    if (!sizes.d_out) sizes.d_out = sizes.d_model;
    if (count_totals(&sizes, &totals)) return EXIT_FAILED;
    if (sizes.json) return print_json(&sizes, &totals);
    print_text(&sizes, &totals);
    return EXIT_FINE;
}

const command_t params_command = {
    .name = "params",
    .words = "",
    .summary = "Counts the parameters of a feed-forward layer: each matrix, the layer, all layers, its share of a Transformer layer.",
    .text = "Norms are not counted. The gated width is 2/3 of d-ff (arXiv 2002.05202): the same parameters in three matrices as in two.\n",
    .examples = "  ffn params --d-model 512 --d-ff 2048 --layers 6\n"
                "  ffn params --d-model 4096 --d-ff 16384 --no-bias --multiple 256\n"
                "  ffn params --d-model 4096 --d-ff 11008 --gated --no-bias --layers 32 --json\n",
    .options = option_rows,
    .run = run,
};
