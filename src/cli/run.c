/* SPDX-License-Identifier: MIT
 * ffn run: layers of a model on an array, block of rows by block of rows. */
#include "cli/chain.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/threads.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LAYER = 1, LAYERS, INPUT, OUTPUT, THREADS, LOAD, QUIET, AS_JSON, CONFIG, FAMILY };

static const option_row_t option_rows[] = {
    {"layer", "LAYERS", LAYER, "a number, a list (0,3-5), or all; more than one are a chain.\nNot needed where the model has a single layer"},
    {"layers", "LAYERS", LAYERS, "the same"},
    {"input", "FILE", INPUT, "a .npy array; its last dimension is the layer's input (required)"},
    {"output", "FILE", OUTPUT, "where the .npy array of the results goes (required)"},
    {"threads", "N", THREADS, "of libffn and of OpenBLAS; default: all CPUs that the process may use"},
    {"load", NULL, LOAD, "tell how many tokens each expert had, of layers that have some"},
    {"quiet", NULL, QUIET, "print nothing"},
    OPTION_JSON(AS_JSON),
    OPTION_CONFIG(CONFIG),
    OPTION_FAMILY(FAMILY),
    OVERRIDE_OPTIONS,
    {0}};

typedef struct settings {
    const char *model, *input, *output, *config, *family;
    uint32_t threads;
    int load, quiet, json;
    selection_t selection;
    overrides_t overrides;
} settings_t;

/* What a run holds; all of it may be NULL. */
typedef struct job {
    ffn_model_t *model;
    ffn_npy_t *input;
    ffn_npy_info_t shape;
    ffn_context_t *context;
    uint32_t threads;
    chain_t chain;
    progress_t progress;
} job_t;

static int open_input(job_t *job, const char *path) {
    job->shape.struct_size = sizeof job->shape;
    if (ffn_npy_open(path, &job->input) || ffn_npy_info(job->input, &job->shape)) return complain("%s", ffn_io_last_error());
    if (!job->shape.ndim) return complain("%s: is a single number, must have at least one dimension", path);
    return EXIT_FINE;
}

static int prepare(job_t *job, settings_t *settings) {
    const overrides_t *overrides = &settings->overrides;
    job->progress = progress_begin();
    job->model = model_open(settings->model, settings->config, settings->family);
    if (!job->model) return EXIT_FAILED;
    if (selection_resolve(&settings->selection, job->model, settings->model, overrides)) return EXIT_FAILED;
    if (open_input(job, settings->input)) return EXIT_FAILED;
    job->context = threads_make(settings->threads, &job->threads);
    if (!job->context) return EXIT_FAILED;
    job->chain.length = job->shape.ndim > 1 ? job->shape.shape[job->shape.ndim - 2] : 1;
    if (chain_load(&job->chain, job->model, job->context, &settings->selection, overrides, &job->progress)) return EXIT_FAILED;
    return chain_fit(&job->chain, settings->input, job->shape.columns, job->shape.rows);
}

static int run_blocks(job_t *job, const char *path) {
    const chain_t *chain = &job->chain;
    int64_t shape[32], rows = job->shape.rows, width = chain->step[chain->count - 1].info.d_out;
    memcpy(shape, job->shape.shape, sizeof shape);
    shape[job->shape.ndim - 1] = width;
    if (output_open(path, job->shape.ndim, shape)) return EXIT_FAILED;
    for (int64_t first = 0; first < rows; first += chain->block_rows) {
        int64_t count = rows - first < chain->block_rows ? rows - first : chain->block_rows;
        if (ffn_npy_read(job->input, first, count, chain->a)) return complain("%s", ffn_io_last_error());
        if (chain_run(&job->chain, job->context, count)) return EXIT_FAILED;
        if (output_append(chain->a, count * width)) return EXIT_FAILED;
        progress_update(&job->progress, "running", first + count, rows);
    }
    return output_finish();
}

static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? (double)tokens / seconds : 0;
}

static void report_text(const job_t *job) {
    table_t table = table_make("rlrlrrr");
    static const char *const heading[] = {"layer", "family", "shape", "activation", "parameters", "time", "tokens/s"};
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    for (int64_t i = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        table_add(&table, "%" PRId64, step->number);
        table_add(&table, "%s", step->family ? step->family : "by hand");
        table_add(&table, "%" PRId64 "-%" PRId64 "-%" PRId64, step->info.d_model, step->info.d_ff, step->info.d_out);
        table_add(&table, "%s%s", ffn_activation_name(step->info.activation), step->info.gated ? " gated" : "");
        table_add(&table, "%s", grouped(step->info.parameters).text);
        table_add(&table, "%s", duration(step->seconds).text);
        table_add(&table, "%s", grouped((int64_t)rate(job->shape.rows, step->seconds)).text);
    }
    table_print(&table);
}

static void report_load(const job_t *job) {
    for (int64_t i = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        if (!step->load.experts) continue;
        printf("\n");
        step_print_load(step, NULL);
    }
}

static int report_json(const job_t *job, const settings_t *settings) {
    const ffn_layer_info_t *first = &job->chain.step[0].info;
    json_t *layers = json_array();
    for (int64_t i = 0; i < job->chain.count; i++) {
        const step_t *step = &job->chain.step[i];
        json_array_append_new(
            layers, json_pack("{s:I, s:s?, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:I, s:f, s:f}", "layer", (json_int_t)step->number, "family", step->family,
                              "d_model", (json_int_t)step->info.d_model, "d_ff", (json_int_t)step->info.d_ff, "d_out",
                              (json_int_t)step->info.d_out, "activation", ffn_activation_name(step->info.activation), "gated",
                              (int)step->info.gated, "experts", (json_int_t)step->info.experts, "top_k", (json_int_t)step->info.top_k, "parameters",
                              (json_int_t)step->info.parameters, "active_parameters", (json_int_t)step->info.active_parameters, "seconds", step->seconds,
                              "tokens_per_second", rate(job->shape.rows, step->seconds)));
        if (step->load.experts) json_object_set_new(json_array_get(layers, (size_t)i), "load", load_json(&step->load));
    }
    return json_print(json_pack("{s:o, s:o, s:o, s:I, s:i, s:s, s:I, s:f, s:o}", "model", json_text(settings->model), "input",
                                json_text(settings->input), "output", json_text(settings->output), "tokens", (json_int_t)job->shape.rows,
                                "threads", (int)job->threads, "isa", isa_name(first->isa), "block_rows", (json_int_t)job->chain.block_rows,
                                "load_seconds", job->chain.load_seconds, "layers", layers));
}

static int run_job(settings_t *settings) {
    job_t job = {0};
    int status = prepare(&job, settings);
    if (!status) status = run_blocks(&job, settings->output);
    output_discard();
    progress_end(&job.progress);
    if (!status && settings->json) status = report_json(&job, settings);
    else if (!status && !settings->quiet) report_text(&job);
    if (!status && settings->load && !settings->json && !settings->quiet) report_load(&job);
    chain_free(&job.chain);
    ffn_context_free(job.context);
    ffn_npy_free(job.input);
    ffn_model_free(job.model);
    selection_free(&settings->selection);
    return status;
}

static int run(int count, char **words) {
    settings_t settings = {.overrides = overrides_none()};
    arguments_t arguments = arguments_begin(&run_command, count, words);
    for (int id; (id = arguments_next(&arguments)) != ARGUMENT_END;) {
        switch (id) {
        case LAYER:
        case LAYERS: selection_take(&settings.selection, &arguments); break;
        case INPUT: settings.input = arguments.value; break;
        case OUTPUT: settings.output = arguments.value; break;
        case THREADS: settings.threads = (uint32_t)arguments_integer(&arguments, 1, MAX_THREADS); break;
        case LOAD: settings.load = 1; break;
        case QUIET: settings.quiet = 1; break;
        case AS_JSON: settings.json = 1; break;
        case CONFIG: settings.config = arguments.value; break;
        case FAMILY: settings.family = arguments.value; break;
        default:
            if (id == ARGUMENT_WORD && !settings.model) settings.model = arguments.value;
            else overrides_take(&settings.overrides, &arguments, id);
        }
    }
    if (!settings.model) arguments_refuse(&arguments, "no MODEL is given");
    if (!settings.input || !settings.output) arguments_refuse(&arguments, "give both --input and --output");
    return run_job(&settings);
}

const command_t run_command = {
    .name = "run",
    .words = "MODEL",
    .summary = "Runs feed-forward layers of a model on an array: the whole sublayer, with norms and residual, as its family defines it.",
    .text = "MODEL is a .safetensors file, a model.safetensors.index.json, or a folder with one of the two. More than one layer are a chain: each\n"
            "one's output is the next one's input. The input may be larger than memory: blocks of rows go through all layers, whose weights\n"
            "are all in memory (as float32). Experts with a capacity have it for each sequence: the dimension before the last counts its tokens.\n"
            "The output appears under its name when it is complete; it may be the input.\n",
    .after = OVERRIDE_HELP,
    .examples = "  ffn run model.safetensors --layer 0 --input x.npy --output y.npy\n"
                "  ffn run model.safetensors --layer all --threads 2 --input x.npy --output y.npy --json\n"
                "  ffn run model.safetensors --layer 0-2,0 --branch --input x.npy --output y.npy\n"
                "  ffn run model.safetensors --layer 1 --activation gelu --eps in=1e-6 --input x.npy --output y.npy\n"
                "  ffn run other.safetensors --activation silu --tensor gate=gate_up:first --tensor up=gate_up:second \\\n"
                "      --tensor down=block.0.down_t:in_out --norm-in rms --eps 1e-5 --tensor norm-in=norm --residual input \\\n"
                "      --input x.npy --output y.npy\n",
    .options = option_rows,
    .run = run,
};
