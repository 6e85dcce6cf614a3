/* SPDX-License-Identifier: MIT
 * ffn stats: what the hidden units of a model's layers do on an array. */
#include "cli/chain.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/plot.h"
#include "cli/threads.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYER = 1, LAYERS, INPUT, EACH, PLOT, THREADS, AS_JSON, CONFIG, FAMILY };

static const option_row_t option_rows[] = {
    {"layer", "LAYERS", LAYER, "a number, a list (0,3-5), or all, which is the default"},
    {"layers", "LAYERS", LAYERS, "the same"},
    {"input", "FILE", INPUT, "a .npy array; its last dimension is the layer's input (required)"},
    {"each", NULL, EACH, "every layer gets the array itself; without it the layers are a chain,\neach one's output the next one's input"},
    {"plot", "FILE", PLOT, "draw density by layer, the histograms and the load: .png, .svg or .pdf.\nNeeds Python's matplotlib or gnuplot"},
    {"threads", "N", THREADS, "of libffn and of OpenBLAS; default: all CPUs that the process may use"},
    OPTION_JSON(AS_JSON),
    OPTION_CONFIG(CONFIG),
    OPTION_FAMILY(FAMILY),
    OVERRIDE_OPTIONS,
    {0}};

typedef struct settings {
    const char *model, *input, *plot, *config, *family;
    uint32_t threads;
    int each, json;
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
    chain_t chain;
    progress_t progress;
    ffn_stats_info_t *info; /* of each step that is dense, */
    plot_layer_t *layers;
    int64_t dense;          /* so many */
    plot_load_t *loads;     /* of the others */
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
        const ffn_stats_options_t options = {.struct_size = sizeof options, .d_ff = step->info.d_ff};
        if (step->info.experts) continue; /* what is told of it is its load */
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
    if (open_input(job, settings->input)) return EXIT_FAILED;
    job->context = threads_make(settings->threads, &job->threads);
    if (!job->context) return EXIT_FAILED;
    job->chain.length = job->shape.ndim > 1 ? job->shape.shape[job->shape.ndim - 2] : 1;
    if (chain_load(&job->chain, job->model, job->context, &settings->selection, overrides, &job->progress)) return EXIT_FAILED;
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
    job->info = calloc((size_t)chain->count, sizeof *job->info);
    job->layers = calloc((size_t)chain->count, sizeof *job->layers);
    job->loads = calloc((size_t)chain->count, sizeof *job->loads);
    if (!job->info || !job->layers || !job->loads) return complain_memory();
    for (int64_t i = 0; i < chain->count; i++) {
        const step_t *step = &chain->step[i];
        const load_t *load = &step->load;
        ffn_stats_info_t *info = &job->info[job->dense];
        plot_layer_t *layer = &job->layers[job->dense];
        if (load->experts) {
            job->loads[i - job->dense] = (plot_load_t){step->number, load->experts, load->counts, load->assignments};
            continue;
        }
        info->struct_size = sizeof *info;
        if (ffn_stats_info(step->stats, info) || ffn_stats_histogram(step->stats, PLOT_BINS, NULL, layer->counts))
            return complain("%s", ffn_last_error());
        layer->number = step->number;
        layer->units = info->d_ff;
        layer->dead_units = info->dead_units;
        layer->density = info->density;
        job->dense++;
    }
    return EXIT_FINE;
}

/* -------------------------------------------------------------------- Reporting */

static void add_number(table_t *table, double number) {
    if (isnan(number)) table_add(table, "-");
    else table_add(table, "%.4g", number);
}

static void report_dense(const job_t *job) {
    static const char *const heading[] = {"layer", "shape", "activation", "positions", "density", "dead units", "", "mean |a|", "largest |a|", "non-finite"};
    table_t table = table_make("rllrrrrrrr");
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    const ffn_stats_info_t *info = job->info;
    for (int64_t i = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        if (step->load.experts) continue;
        table_add(&table, "%" PRId64, step->number);
        table_add(&table, "%" PRId64 "-%" PRId64 "-%" PRId64, step->info.d_model, step->info.d_ff, step->info.d_out);
        table_add(&table, "%s%s", ffn_activation_name(step->info.activation), step->info.gated ? " gated" : "");
        table_add(&table, "%s", grouped(info->positions).text);
        table_add(&table, "%s", percent((double)info->positive, (double)info->positions * (double)info->d_ff).text);
        table_add(&table, "%s", grouped(info->dead_units).text);
        table_add(&table, "%s", percent((double)info->dead_units, info->positions ? (double)info->d_ff : 0).text);
        add_number(&table, info->mean);
        add_number(&table, info->largest);
        table_add(&table, "%s", grouped(info->non_finite).text);
        info++;
    }
    table_print(&table);
}

static void report_text(const job_t *job) {
    if (job->dense) report_dense(job);
    for (int64_t i = 0, told = job->dense; i < job->chain.count; i++) {
        if (!job->chain.step[i].load.experts) continue;
        if (told++) printf("\n");
        step_print_load(&job->chain.step[i]);
    }
}

/* JSON has no NaN. */
static json_t *number_or_null(double number) {
    return isnan(number) ? json_null() : json_real(number);
}

static json_t *layer_json(const step_t *step, const ffn_stats_info_t *info, const plot_layer_t *layer) {
    json_t *counts = json_array();
    for (int bin = 0; bin < PLOT_BINS; bin++) json_array_append_new(counts, json_integer(layer->counts[bin]));
    return json_pack("{s:I, s:s?, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:o, s:I, s:o, s:f, s:I, s:o}", "layer", (json_int_t)step->number, "family",
                     step->family, "d_model", (json_int_t)step->info.d_model, "d_ff", (json_int_t)step->info.d_ff, "d_out",
                     (json_int_t)step->info.d_out, "activation", ffn_activation_name(step->info.activation), "gated", (int)step->info.gated,
                     "positions", (json_int_t)info->positions, "positive", (json_int_t)info->positive, "density", number_or_null(info->density),
                     "dead_units", (json_int_t)info->dead_units, "mean", number_or_null(info->mean), "largest", info->largest, "non_finite",
                     (json_int_t)info->non_finite, "density_logit_histogram", counts);
}

static json_t *mixture_json(const step_t *step) {
    return json_pack("{s:I, s:s?, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:o}", "layer", (json_int_t)step->number, "family", step->family, "d_model",
                     (json_int_t)step->info.d_model, "d_ff", (json_int_t)step->info.d_ff, "d_out", (json_int_t)step->info.d_out, "activation",
                     ffn_activation_name(step->info.activation), "gated", (int)step->info.gated, "experts", (json_int_t)step->info.experts, "top_k",
                     (json_int_t)step->info.top_k, "load", load_json(&step->load));
}

static int report_json(const job_t *job, const settings_t *settings) {
    json_t *layers = json_array(), *range = json_pack("[f, f]", -10.0000454, 10.0000454);
    for (int64_t i = 0, dense = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        json_array_append_new(layers, step->load.experts ? mixture_json(step) : layer_json(step, &job->info[dense], &job->layers[dense]));
        dense += !step->load.experts;
    }
    return json_print(json_pack("{s:o, s:o, s:I, s:b, s:i, s:s, s:o, s:o}", "model", json_text(settings->model), "input", json_text(settings->input),
                                "tokens", (json_int_t)job->shape.rows, "each", settings->each, "threads", (int)job->threads, "isa",
                                isa_name(job->chain.step[0].info.isa), "density_logit_range", range, "layers", layers));
}

static int run_job(settings_t *settings) {
    job_t job = {0};
    int status = settings->plot ? plot_check(settings->plot) : EXIT_FINE;
    if (!status) status = prepare(&job, settings);
    if (!status) status = run_blocks(&job);
    if (!status) status = read_stats(&job);
    progress_end(&job.progress);
    if (!status && settings->json) status = report_json(&job, settings);
    else if (!status) report_text(&job);
    const picture_t picture = {job.layers, job.dense, job.loads, job.chain.count - job.dense};
    if (!status && settings->plot) status = plot_draw(settings->plot, &picture);
    free(job.info);
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
    if (!settings.input) arguments_refuse(&arguments, "no --input is given");
    return run_job(&settings);
}

const command_t stats_command = {
    .name = "stats",
    .words = "MODEL",
    .summary = "Tells what the hidden units and experts of a model's layers do on an array: density, dead units, tokens per expert.",
    .text = "MODEL is a .safetensors file, a model.safetensors.index.json, or a folder with one of the two. An activation a is act(up), or act(gate)\n"
            "in a gated layer, before the product. Density is the share of activations that are > 0. A dead unit has none at any position (row).\n"
            "--json and --plot have the histogram of hidden_density_logit = log(f + e^-10) - log(1 - f + e^-10) over the units, f a unit's density.\n"
            "Of a mixture of experts the load is told and plotted: tokens per expert, its entropy, choices that were dropped.\n",
    .after = OVERRIDE_HELP,
    .examples = "  ffn stats model.safetensors --input x.npy\n"
                "  ffn stats model.safetensors --layer 0,2 --each --input x.npy --json\n"
                "  ffn stats model.safetensors --layer 1 --activation relu --input x.npy\n",
    .options = option_rows,
    .run = run,
};
