/* SPDX-License-Identifier: MIT
 * ffn bench: how fast a layer of given sizes runs here. All cases take turns, round after round, so that what else the machine does meets all. */
#include "cli/commands.h"
#include "cli/names.h"
#include "cli/progress.h"
#include "cli/threads.h"

#include <ffn/ffn.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D_MODEL = 1, D_FF, ACTIVATION, GATED, TOKENS, THREADS, ROUNDS, AS_JSON };
enum { MOST = 16, LARGEST_WIDTH = 1 << 20, MOST_TOKENS = 1 << 20, MOST_ROUNDS = 100000 };

static const option_row_t option_rows[] = {
    {"d-model", "N", D_MODEL, "width of the layer's input and output (required)"},
    {"d-ff", "N", D_FF, "width of the hidden row (required)"},
    {"activation", "NAME", ACTIVATION, "default: gelu, or silu with --gated"},
    {"gated", NULL, GATED, "three matrices: gate, up and down"},
    {"tokens", "N,N,...", TOKENS, "rows of a call; default: 1,8,64,512"},
    {"threads", "N,N,...", THREADS, "of libffn and of OpenBLAS; default: all CPUs that the process may use"},
    {"rounds", "N", ROUNDS, "calls of each case that are timed; default: 31"},
    OPTION_JSON(AS_JSON),
    {0}};

typedef struct settings {
    int64_t d_model, d_ff, tokens[MOST], threads[MOST];
    int token_counts, thread_counts, gated, rounds, json;
    uint32_t activation;
} settings_t;

/* A number of tokens on a number of threads. */
typedef struct bench_case {
    int64_t tokens;
    uint32_t threads;
    ffn_context_t *context; /* the first case of its threads owns it */
    double *seconds;        /* of each round, sorted in the end */
} bench_case_t;

typedef struct bench {
    const settings_t *settings;
    ffn_layer_t *layer;
    ffn_layer_info_t info;
    float *x, *y;
    bench_case_t cases[MOST * MOST];
    int count;
} bench_t;

/* The values do not matter for the time, as long as none is subnormal. */
static float *numbers(int64_t count, float scale) {
    float *made = malloc((size_t)count * sizeof *made);
    uint64_t state = (uint64_t)count;
    for (int64_t i = 0; made && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        made[i] = scale * ((float)(int32_t)(state >> 32) / 2147483648.0f);
    }
    return made;
}

static int make_layer(bench_t *bench, ffn_context_t *context) {
    const settings_t *is = bench->settings;
    int64_t matrix = is->d_model * is->d_ff;
    float *weights = numbers(matrix, 0.05f), *bias = numbers(is->d_ff > is->d_model ? is->d_ff : is->d_model, 0.1f);
    ffn_tensor_t tensors[] = {
        {.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = weights, .shape = {is->d_ff, is->d_model}},
        {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = weights, .shape = {is->d_model, is->d_ff}},
        {.role = FFN_ROLE_UP_BIAS, .ndim = 1, .data = bias, .shape = {is->d_ff}},
        {.role = FFN_ROLE_DOWN_BIAS, .ndim = 1, .data = bias, .shape = {is->d_model}},
        {.role = FFN_ROLE_GATE_WEIGHT, .ndim = 2, .data = weights, .shape = {is->d_ff, is->d_model}},
    };
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = is->activation, .residual = FFN_RESIDUAL_INPUT,
                                   .tensors = tensors, .tensor_count = is->gated ? 5 : 4};
    int status = EXIT_FINE;
    options.norm[FFN_NORM_IN] = is->gated ? FFN_NORM_RMS : FFN_NORM_LAYER;
    bench->info.struct_size = sizeof bench->info;
    if (!weights || !bias) status = complain_memory();
    else if (ffn_layer_create(context, &options, &bench->layer) || ffn_layer_info(bench->layer, &bench->info))
        status = complain("%s", ffn_last_error());
    free(weights);
    free(bias);
    return status;
}

static int make(bench_t *bench) {
    const settings_t *settings = bench->settings;
    int64_t most = 0;
    for (int h = 0; h < settings->thread_counts; h++) {
        uint32_t threads;
        ffn_context_t *context = threads_make((uint32_t)settings->threads[h], &threads);
        if (!context) return EXIT_FAILED;
        for (int t = 0; t < settings->token_counts; t++) {
            bench_case_t *made = &bench->cases[bench->count++];
            *made = (bench_case_t){.tokens = settings->tokens[t], .threads = threads, .context = context,
                                   .seconds = calloc((size_t)settings->rounds, sizeof(double))};
            if (!made->seconds) return complain_memory();
            if (made->tokens > most) most = made->tokens;
        }
    }
    bench->x = numbers(most * settings->d_model, 1.7f);
    bench->y = numbers(most * settings->d_model, 1);
    if (!bench->x || !bench->y) return complain_memory();
    return make_layer(bench, bench->cases[0].context);
}

static int call(bench_t *bench, bench_case_t *now, double *seconds) {
    threads_set_blas(now->threads);
    double start = seconds_now();
    if (ffn_layer_forward(bench->layer, now->context, now->tokens, bench->x, 0, bench->y, 0)) return complain("%s", ffn_last_error());
    *seconds = seconds_now() - start;
    return EXIT_FINE;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each round calls every case twice in a row and times the second: after another case the caches hold that one's data and threads are asleep. */
static int measure(bench_t *bench) {
    int rounds = bench->settings->rounds;
    progress_t progress = progress_begin();
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < bench->count; i++) {
            bench_case_t *now = &bench->cases[i];
            int failed = call(bench, now, &now->seconds[round]) || call(bench, now, &now->seconds[round]);
            progress_update(&progress, "timing", (int64_t)round * bench->count + i + 1, (int64_t)rounds * bench->count);
            if (failed) return EXIT_FAILED;
        }
    progress_end(&progress);
    for (int i = 0; i < bench->count; i++) qsort(bench->cases[i].seconds, (size_t)rounds, sizeof(double), ascending);
    return EXIT_FINE;
}

/* Of the sorted times: the nearest rank. */
static double at_share(const bench_t *bench, const bench_case_t *is, double share) {
    return is->seconds[(int)(share * (bench->settings->rounds - 1) + 0.5)];
}

/* Multiplications and additions of the matrix products, per second, in units of 1e9. */
static double gflops(const bench_t *bench, const bench_case_t *is, double seconds) {
    const settings_t *sizes = bench->settings;
    return 2e-9 * (double)is->tokens * (double)sizes->d_model * (double)sizes->d_ff * (2 + sizes->gated) / seconds;
}

static void print_text(const bench_t *bench) {
    static const char *const heading[] = {"tokens", "threads", "median", "10%", "90%", "tokens/s", "GFLOP/s"};
    const settings_t *settings = bench->settings;
    table_t table = table_make("rrrrrrr");
    printf("%s\n%" PRId64 "-%" PRId64 "-%" PRId64 " %s%s, %s parameters, biases, norm and residual; %d rounds, %s kernels\n\n", ffn_build_info(),
           settings->d_model, settings->d_ff, settings->d_model, ffn_activation_name(settings->activation), settings->gated ? " gated" : "",
           grouped(bench->info.parameters).text, settings->rounds, isa_name(bench->info.isa));
    for (int i = 0; i < table.columns; i++) table_add(&table, "%s", heading[i]);
    for (int i = 0; i < bench->count; i++) {
        const bench_case_t *is = &bench->cases[i];
        double median = at_share(bench, is, 0.5);
        table_add(&table, "%" PRId64, is->tokens);
        table_add(&table, "%" PRIu32, is->threads);
        table_add(&table, "%s", duration(median).text);
        table_add(&table, "%s", duration(at_share(bench, is, 0.1)).text);
        table_add(&table, "%s", duration(at_share(bench, is, 0.9)).text);
        table_add(&table, "%s", grouped((int64_t)((double)is->tokens / median)).text);
        table_add(&table, "%.1f", gflops(bench, is, median));
    }
    table_print(&table);
}

static int print_json(const bench_t *bench) {
    const settings_t *settings = bench->settings;
    json_t *results = json_array();
    for (int i = 0; i < bench->count; i++) {
        const bench_case_t *is = &bench->cases[i];
        double median = at_share(bench, is, 0.5);
        json_array_append_new(results, json_pack("{s:I, s:i, s:f, s:f, s:f, s:f, s:f}", "tokens", (json_int_t)is->tokens, "threads",
                                                 (int)is->threads, "median_seconds", median, "p10_seconds", at_share(bench, is, 0.1),
                                                 "p90_seconds", at_share(bench, is, 0.9), "tokens_per_second", (double)is->tokens / median,
                                                 "gflops", gflops(bench, is, median)));
    }
    return json_print(json_pack("{s:s, s:I, s:I, s:s, s:b, s:I, s:i, s:s, s:o}", "build", ffn_build_info(), "d_model",
                                (json_int_t)settings->d_model, "d_ff", (json_int_t)settings->d_ff, "activation",
                                ffn_activation_name(settings->activation), "gated", settings->gated, "parameters",
                                (json_int_t)bench->info.parameters, "rounds", settings->rounds, "isa", isa_name(bench->info.isa), "results",
                                results));
}

static void release(bench_t *bench) {
    for (int i = 0; i < bench->count; i++) {
        if (!i || bench->cases[i].context != bench->cases[i - 1].context) ffn_context_free(bench->cases[i].context);
        free(bench->cases[i].seconds);
    }
    ffn_layer_free(bench->layer);
    free(bench->x);
    free(bench->y);
}

static void take_options(settings_t *settings, arguments_t *arguments) {
    for (int id; (id = arguments_next(arguments)) != ARGUMENT_END;) {
        switch (id) {
        case D_MODEL: settings->d_model = arguments_integer(arguments, 1, LARGEST_WIDTH); break;
        case D_FF: settings->d_ff = arguments_integer(arguments, 1, LARGEST_WIDTH); break;
        case ACTIVATION:
            if (ffn_activation_from_name(arguments->value, &settings->activation)) arguments_refuse(arguments, "%s", ffn_last_error());
            break;
        case GATED: settings->gated = 1; break;
        case TOKENS: settings->token_counts = arguments_integers(arguments, 1, MOST_TOKENS, settings->tokens, MOST); break;
        case THREADS: settings->thread_counts = arguments_integers(arguments, 1, MAX_THREADS, settings->threads, MOST); break;
        case ROUNDS: settings->rounds = (int)arguments_integer(arguments, 1, MOST_ROUNDS); break;
        case AS_JSON: settings->json = 1; break;
        default: arguments_refuse(arguments, "\"%s\" is one word too many", arguments->value);
        }
    }
    if (!settings->d_model || !settings->d_ff) arguments_refuse(arguments, "give both --d-model and --d-ff");
    if (!settings->activation) settings->activation = settings->gated ? FFN_ACTIVATION_SILU : FFN_ACTIVATION_GELU;
}

static int run(int count, char **words) {
    settings_t settings = {.tokens = {1, 8, 64, 512}, .token_counts = 4, .thread_counts = 1, .rounds = 31};
    bench_t bench = {.settings = &settings};
    arguments_t arguments = arguments_begin(&bench_command, count, words);
    take_options(&settings, &arguments);
    int status = make(&bench);
    if (!status) status = measure(&bench);
    if (!status && settings.json) status = print_json(&bench);
    else if (!status) print_text(&bench);
    release(&bench);
    return status;
}

const command_t bench_command = {
    .name = "bench",
    .words = "",
    .summary = "Times a feed-forward layer of given sizes on this machine.",
    .text = "The layer has random weights, biases, a norm before it (LayerNorm, or RMSNorm with --gated) and a residual. GFLOP/s count the matrix\n"
            "products alone. The cases take turns, and the median over the rounds is told, beside the 10th and 90th percentile.\n",
    .after = ACTIVATION_HELP,
    .examples = "  ffn bench --d-model 512 --d-ff 2048 --tokens 1,8,64 --threads 1,2 --rounds 5\n"
                "  ffn bench --d-model 256 --d-ff 704 --gated --activation silu --tokens 8 --rounds 3 --json\n",
    .options = option_rows,
    .run = run,
};
