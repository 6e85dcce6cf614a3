/* SPDX-License-Identifier: MIT
 * ffn_bench: see usage(). Every output is checked before it is timed. */
#include "measure.h"

#include <ffn/ffn.h>

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static int usage(FILE *to, int status) {
    fprintf(to, "usage: ffn_bench [options]\n"
                "  --d-model N --d-ff N     one shape instead of the standard ones (then gelu, unless told otherwise)\n"
                "  --activation NAME        relu, gelu, gelu_tanh or silu\n"
                "  --gated                  a gated layer (with --d-model)\n"
                "  --training               training steps of gelu and SwiGLU layers, in place of the forward pass\n"
                "  --moe                    mixtures of experts, in place of dense layers\n"
                "  --stats                  what counting activations adds to the forward pass, with each engine\n"
                "  --tokens N,N,...         default 1,8,64,512; training: 512,2048; mixtures: 1,16,128,512; stats: 16,512\n"
                "  --threads N,N,...        of BLAS and of libffn alike; default 1,2\n"
                "  --rounds N               interleaved repetitions, default 41\n"
                "  --tsv FILE               the figures as tab-separated values, in seconds\n"
                "  --help\n");
    return status;
}

static int64_t number(const char *text) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || value < 1 || value > 1 << 29) {
        fprintf(stderr, "ffn_bench: \"%s\" is not a number from 1 to 2^29\n", text);
        exit(usage(stderr, 2));
    }
    return value;
}

static int numbers(char *text, int list[16]) {
    int count = 0;
    char *rest = text, *item;
    while (count < 16 && (item = strsep(&rest, ","))) list[count++] = (int)number(item);
    return count;
}

typedef int bench_fn(const settings_t *settings);

static void take_default_tokens(settings_t *settings, bench_fn *bench) {
    static const int forward[] = {1, 8, 64, 512}, step[] = {512, 2048}, mixture[] = {1, 16, 128, 512}, counted[] = {16, 512};
    const int *tokens = bench == bench_training ? step : bench == bench_moe ? mixture : bench == bench_stats ? counted : forward;
    settings->token_counts = tokens == forward || tokens == mixture ? 4 : 2;
    memcpy(settings->tokens, tokens, (size_t)settings->token_counts * sizeof *tokens);
}

int main(int argc, char **argv) {
    static const struct option long_options[] = {
        {"d-model", required_argument, NULL, 'm'}, {"d-ff", required_argument, NULL, 'f'},   {"activation", required_argument, NULL, 'a'},
        {"gated", no_argument, NULL, 'g'},         {"tokens", required_argument, NULL, 't'}, {"threads", required_argument, NULL, 'h'},
        {"training", no_argument, NULL, 'n'},      {"moe", no_argument, NULL, 'e'},      {"stats", no_argument, NULL, 's'},        {"rounds", required_argument, NULL, 'r'},  {"tsv", required_argument, NULL, 'v'},    {"help", no_argument, NULL, '?'},
        {NULL, 0, NULL, 0}};
    settings_t settings = {.token_counts = 0, .threads = {1, 2}, .thread_counts = 2, .rounds = 41};
    bench_fn *bench = bench_layer;
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (option) {
        case 'm': settings.d_model = number(optarg); break;
        case 'f': settings.d_ff = number(optarg); break;
        case 'a': settings.activation = optarg; break;
        case 'g': settings.gated = 1; break;
        case 'n': bench = bench_training; break;
        case 's': bench = bench_stats; break;
        case 'e': bench = bench_moe; break;
        case 't': settings.token_counts = numbers(optarg, settings.tokens); break;
        case 'h': settings.thread_counts = numbers(optarg, settings.threads); break;
        case 'r': settings.rounds = (int)number(optarg); break;
        case 'v':
            settings.tsv = fopen(optarg, "w");
            if (!settings.tsv) {
                perror(optarg);
                return 1;
            }
            break;
        default: return usage(optopt ? stderr : stdout, optopt ? 2 : 0);
        }
    }
    if (optind < argc || !settings.d_model != !settings.d_ff) return usage(stderr, 2);
    if (!settings.token_counts) take_default_tokens(&settings, bench);
    printf("%s\n\n", ffn_build_info());
    int wrong = bench(&settings);
    if (!settings.d_model && bench == bench_layer) wrong |= bench_activation(&settings);
    if (settings.tsv && fclose(settings.tsv)) {
        perror("ffn_bench: the TSV file");
        return 1;
    }
    return wrong;
}
