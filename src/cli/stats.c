/* SPDX-License-Identifier: MIT
 * ffn stats: what the hidden units of a model's layers do on an array, and what numbers are in the layers' tensors. */
#include "cli/chain.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/plot.h"
#include "cli/tensors.h"
#include "cli/threads.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYER = 1, LAYERS, INPUT, TENSORS, EACH, PLOT, THREADS, AS_JSON, CONFIG, FAMILY };

static const option_row_t option_rows[] = {
    {"layer", "LAYERS", LAYER, "a number, a list (0,3-5), or all, which is the default"},
    {"layers", "LAYERS", LAYERS, "the same"},
    {"input", "FILE", INPUT, "a .npy array; its last dimension is the layer's input (required without --tensors)"},
    {"tensors", NULL, TENSORS, "look at the numbers in the layers' tensors: alone, or before the array"},
    {"each", NULL, EACH, "every layer gets the array itself; without it the layers are a chain,\neach one's output the next one's input"},
    {"plot", "FILE", PLOT, "draw density by layer, the histograms, the load and density of experts:\n.png, .svg or .pdf. Needs Python's matplotlib or gnuplot"},
    {"threads", "N", THREADS, "of libffn and of OpenBLAS; default: all CPUs that the process may use"},
    OPTION_JSON(AS_JSON),
    OPTION_CONFIG(CONFIG),
    OPTION_FAMILY(FAMILY),
    OVERRIDE_OPTIONS,
    {0}};

typedef struct settings {
    const char *model, *input, *plot, *config, *family;
    uint32_t threads;
    int tensors, each, json;
    selection_t selection;
    overrides_t overrides;
} settings_t;

/* What the command holds; all of it may be NULL. */
typedef struct job {
    ffn_model_t *model;
    ffn_npy_t *input;
    ffn_npy_info_t shape;
    ffn_context_t *context;
    uint32_t threads;
    tensors_t tensors;
    chain_t chain;
    progress_t progress;
    units_t *units;       /* of each step */
    plot_layer_t *layers; /* likewise */
    plot_load_t *loads;   /* of each mixture, */
    int64_t mixtures;     /* so many */
} job_t;

/* --------------------------------------------------------------------- Counting */

static int open_input(job_t *job, const char *path) {
    job->shape.struct_size = sizeof job->shape;
    if (ffn_npy_open(path, &job->input) || ffn_npy_info(job->input, &job->shape)) return complain("%s", ffn_io_last_error());
    if (!job->shape.ndim) return complain("%s: is a single number, must have at least one dimension", path);
    return EXIT_FINE;
}

/* Without --layer all of them, where the model says how many there are. */
static void select_all(settings_t *settings, const ffn_model_t *model) {
    ffn_model_info_t info = {.struct_size = sizeof info};
    int none = !settings->selection.count && !settings->selection.all;
    if (none && !settings->overrides.by_hand && !ffn_model_info(model, &info) && info.layer_count > 1) settings->selection.all = 1;
}

static int make_stats(chain_t *chain) {
    for (int64_t i = 0; i < chain->count; i++) {
        step_t *step = &chain->step[i];
        const ffn_stats_options_t options = {
            .struct_size = sizeof options, .d_ff = step->info.d_ff, .experts = step->info.experts, .d_shared = step->info.d_shared};
        if (ffn_stats_create(&options, &step->stats)) return complain("layer %" PRId64 ": %s", step->number, ffn_last_error());
    }
    return EXIT_FINE;
}

static int prepare(job_t *job, settings_t *settings) {
    const overrides_t *overrides = &settings->overrides;
    job->progress = progress_begin();
    job->model = model_open(settings->model, settings->config, settings->family);
    if (!job->model) return EXIT_FAILED;
    select_all(settings, job->model);
    if (selection_resolve(&settings->selection, job->model, settings->model, overrides)) return EXIT_FAILED;
    if (settings->input && open_input(job, settings->input)) return EXIT_FAILED;
    job->context = threads_make(settings->threads, &job->threads);
    return job->context ? EXIT_FINE : EXIT_FAILED;
}

static int load_layers(job_t *job, const settings_t *settings) {
    job->chain.length = job->shape.ndim > 1 ? job->shape.shape[job->shape.ndim - 2] : 1;
    if (chain_load(&job->chain, job->model, job->context, &settings->selection, &settings->overrides, &job->progress)) return EXIT_FAILED;
    job->chain.each = settings->each;
    if (make_stats(&job->chain)) return EXIT_FAILED;
    return chain_fit(&job->chain, settings->input, job->shape.columns, job->shape.rows);
}

static int run_blocks(job_t *job) {
    const chain_t *chain = &job->chain;
    int64_t rows = job->shape.rows;
    for (int64_t first = 0; first < rows; first += chain->block_rows) {
        int64_t count = rows - first < chain->block_rows ? rows - first : chain->block_rows;
        if (ffn_npy_read(job->input, first, count, chain->a)) return complain("%s", ffn_io_last_error());
        if (chain_run(&job->chain, job->context, count)) return EXIT_FAILED;
        progress_update(&job->progress, "running", first + count, rows);
    }
    return EXIT_FINE;
}

static int read_stats(job_t *job) {
    const chain_t *chain = &job->chain;
    job->units = calloc((size_t)chain->count, sizeof *job->units);
    job->layers = calloc((size_t)chain->count, sizeof *job->layers);
    job->loads = calloc((size_t)chain->count, sizeof *job->loads);
    if (!job->units || !job->layers || !job->loads) return complain_memory();
    for (int64_t i = 0; i < chain->count; i++) {
        const step_t *step = &chain->step[i];
        const load_t *load = &step->load;
        units_t *units = &job->units[i];
        plot_layer_t *layer = &job->layers[i];
        if (units_read(units, step->stats)) return EXIT_FAILED;
        if (ffn_stats_histogram(step->stats, PLOT_BINS, NULL, layer->counts)) return complain("%s", ffn_last_error());
        layer->number = step->number;
        layer->units = units->info.units;
        layer->dead_units = units->info.dead_units;
        layer->density = units->info.density;
        if (load->experts)
            job->loads[job->mixtures++] = (plot_load_t){step->number, load->experts, load->counts, load->assignments, step->info.experts, units->density};
    }
    return EXIT_FINE;
}

/* -------------------------------------------------------------------- Reporting */

static void add_number(table_t *table, double number) {
    if (isnan(number)) table_add(table, "-");
    else table_add(table, "%.4g", number);
}

static void report_layers(const job_t *job) {
    static const char *const heading[] = {"layer",    "shape",       "activation", "positions",    "density", "dead units", "",
                                          "mean |a|", "largest |a|", "non-finite", "unseen units", ""};
    table_t table = table_make(job->mixtures ? "rllrrrrrrrrr" : "rllrrrrrrr"); /* a dense layer's units are all seen */
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    for (int64_t i = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        const ffn_stats_info_t *info = &job->units[i].info;
        table_add(&table, "%" PRId64, step->number);
        table_add(&table, "%" PRId64 "-%" PRId64 "-%" PRId64, step->info.d_model, step->info.d_ff, step->info.d_out);
        table_add(&table, "%s%s", ffn_activation_name(step->info.activation), step->info.gated ? " gated" : "");
        table_add(&table, "%s", grouped(info->positions).text);
        table_add(&table, "%s", percent((double)info->positive, (double)info->activations).text);
        table_add(&table, "%s", grouped(info->dead_units).text);
        table_add(&table, "%s", percent((double)info->dead_units, info->positions ? (double)info->units : 0).text);
        add_number(&table, info->mean);
        add_number(&table, info->largest);
        table_add(&table, "%s", grouped(info->non_finite).text);
        if (!job->mixtures) continue;
        table_add(&table, "%s", grouped(info->unseen_units).text);
        table_add(&table, "%s", percent((double)info->unseen_units, (double)info->units).text);
    }
    table_print(&table);
}

static void report_units(const job_t *job) {
    report_layers(job);
    for (int64_t i = 0; i < job->chain.count; i++) {
        if (!job->chain.step[i].load.experts) continue;
        printf("\n");
        step_print_load(&job->chain.step[i], &job->units[i]);
    }
}

static void add_mixture(json_t *object, const step_t *step, const units_t *units) {
    json_t *of_experts = json_array();
    for (int64_t e = 0; e < step->info.experts; e++) json_array_append_new(of_experts, units_network_json(units, e));
    json_object_set_new(object, "experts", json_integer(step->info.experts));
    json_object_set_new(object, "top_k", json_integer(step->info.top_k));
    json_object_set_new(object, "load", load_json(&step->load));
    json_object_set_new(object, "units_of_experts", of_experts);
    if (units->networks > step->info.experts) json_object_set_new(object, "units_of_shared", units_network_json(units, step->info.experts));
}

static json_t *layer_json(const step_t *step, const units_t *units, const plot_layer_t *layer) {
    const ffn_stats_info_t *info = &units->info;
    json_t *counts = json_array();
    for (int bin = 0; bin < PLOT_BINS; bin++) json_array_append_new(counts, json_integer(layer->counts[bin]));
    json_t *object = json_pack(
        "{s:I, s:s?, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:f, s:I, s:o}", "layer", (json_int_t)step->number, "family", step->family,
        "d_model", (json_int_t)step->info.d_model, "d_ff", (json_int_t)step->info.d_ff, "d_out", (json_int_t)step->info.d_out, "activation",
        ffn_activation_name(step->info.activation), "gated", (int)step->info.gated, "units", (json_int_t)info->units, "positions",
        (json_int_t)info->positions, "positive", (json_int_t)info->positive, "density", json_figure(info->density), "dead_units",
        (json_int_t)info->dead_units, "unseen_units", (json_int_t)info->unseen_units, "mean", json_figure(info->mean), "largest", info->largest,
        "non_finite", (json_int_t)info->non_finite, "density_logit_histogram", counts);
    if (step->load.experts) add_mixture(object, step, units);
    return object;
}

static void report_text(const job_t *job, const settings_t *settings) {
    if (settings->tensors) tensors_print(&job->tensors);
    if (settings->tensors && settings->input) printf("\n");
    if (settings->input) report_units(job);
}

static void add_units(json_t *root, const job_t *job, const settings_t *settings) {
    json_t *layers = json_array();
    for (int64_t i = 0; i < job->chain.count; i++) json_array_append_new(layers, layer_json(&job->chain.step[i], &job->units[i], &job->layers[i]));
    json_object_set_new(root, "input", json_text(settings->input));
    json_object_set_new(root, "tokens", json_integer(job->shape.rows));
    json_object_set_new(root, "each", json_boolean(settings->each));
    json_object_set_new(root, "isa", json_string(isa_name(job->chain.step[0].info.isa)));
    json_object_set_new(root, "density_logit_range", json_pack("[f, f]", -10.0000454, 10.0000454));
    json_object_set_new(root, "layers", layers);
}

static int report_json(const job_t *job, const settings_t *settings) {
    json_t *root = json_pack("{s:o, s:i}", "model", json_text(settings->model), "threads", (int)job->threads);
    if (settings->tensors) json_object_set_new(root, "tensors", tensors_json(&job->tensors));
    if (settings->input) add_units(root, job, settings);
    return json_print(root);
}

static int count_units(job_t *job, const settings_t *settings) {
    int status = load_layers(job, settings);
    if (!status) status = run_blocks(job);
    return status ? status : read_stats(job);
}

static int run_job(settings_t *settings) {
    job_t job = {0};
    int status = settings->plot ? plot_check(settings->plot) : EXIT_FINE;
    if (!status) status = prepare(&job, settings);
    if (!status && settings->tensors)
        status = tensors_read(&job.tensors, job.model, job.context, &settings->selection, &settings->overrides, &job.progress);
    if (!status && settings->input) status = count_units(&job, settings);
    progress_end(&job.progress);
    if (!status && settings->json) status = report_json(&job, settings);
    else if (!status) report_text(&job, settings);
    const picture_t picture = {job.layers, job.chain.count, job.loads, job.mixtures};
    if (!status && settings->plot) status = plot_draw(settings->plot, &picture);
    if (!status) status = tensors_check(&job.tensors, settings->model);
    tensors_free(&job.tensors);
    for (int64_t i = 0; job.units && i < job.chain.count; i++) units_free(&job.units[i]);
    free(job.units);
    free(job.layers);
    free(job.loads);
    chain_free(&job.chain);
    ffn_context_free(job.context);
    ffn_npy_free(job.input);
    ffn_model_free(job.model);
    selection_free(&settings->selection);
    return status;
}

static int run(int count, char **words) {
    settings_t settings = {.overrides = overrides_none()};
    arguments_t arguments = arguments_begin(&stats_command, count, words);
    for (int id; (id = arguments_next(&arguments)) != ARGUMENT_END;) {
        switch (id) {
        case LAYER:
        case LAYERS: selection_take(&settings.selection, &arguments); break;
        case INPUT: settings.input = arguments.value; break;
        case TENSORS: settings.tensors = 1; break;
        case EACH: settings.each = 1; break;
        case PLOT: settings.plot = arguments.value; break;
        case THREADS: settings.threads = (uint32_t)arguments_integer(&arguments, 1, MAX_THREADS); break;
        case AS_JSON: settings.json = 1; break;
        case CONFIG: settings.config = arguments.value; break;
        case FAMILY: settings.family = arguments.value; break;
        default:
            if (id == ARGUMENT_WORD && !settings.model) settings.model = arguments.value;
            else overrides_take(&settings.overrides, &arguments, id);
        }
    }
    if (!settings.model) arguments_refuse(&arguments, "no MODEL is given");
    if (!settings.input && !settings.tensors) arguments_refuse(&arguments, "neither --input nor --tensors is given");
    if (!settings.input && (settings.each || settings.plot)) arguments_refuse(&arguments, "--%s needs --input", settings.each ? "each" : "plot");
    return run_job(&settings);
}

const command_t stats_command = {
    .name = "stats",
    .words = "MODEL",
    .summary = "Tells what the hidden units and experts of a model's layers do on an array, and whether the numbers in their tensors are sound.",
    .text = "MODEL is a .safetensors file, a model.safetensors.index.json, or a folder with one of the two. An activation a is act(up), or act(gate)\n"
            "in a gated layer, before the product. Density is the share of activations that are > 0. A dead unit has none at any position (row).\n"
            "--json and --plot have the histogram of hidden_density_logit = log(f + e^-10) - log(1 - f + e^-10) over the units, f a unit's density.\n"
            "In a mixture of experts the positions of a unit are the tokens that its expert computed; without one a unit is unseen, and not dead.\n"
            "Told and plotted are then each expert's density and the load, tokens per expert, beside its entropy and what was dropped.\n"
            "\n"
            "--tensors has a line for each tensor, or part of one, of each layer, as float32: its norm (the root of the sum of squares), the largest\n"
            "magnitude, zeros, and numbers that are infinite or NaN. A tensor that has some of these is marked with !, a sentence names the first,\n"
            "and the exit status is 1.\n",
    .after = OVERRIDE_HELP,
    .examples = "  ffn stats model.safetensors --input x.npy\n"
                "  ffn stats model.safetensors --layer 0,2 --each --input x.npy --json\n"
                "  ffn stats model.safetensors --layer 1 --activation relu --input x.npy\n"
                "  ffn stats model.safetensors --tensors\n",
    .options = option_rows,
    .run = run,
};
