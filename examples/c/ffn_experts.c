/* SPDX-License-Identifier: MIT
 * Routes hidden states to experts, and plots how many tokens each of them gets.
 *
 *     ffn_experts [STATES.npy]                  a router of random weights, 2 of 8 experts, before and after it was balanced
 *     ffn_experts STATES.npy MODEL [LAYER]      the router of a layer of experts of a published checkpoint
 *
 * STATES are the rows that a feed-forward layer receives; examples/python/minilm_states.py writes those of MiniLM for any text. Without them the states
 * are random numbers.
 *
 *     cc ffn_experts.c $(pkg-config --cflags --libs ffn-io ffn) -lm */
#include <ffn/ffn_io.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct states {
    int64_t tokens, d_model;
    float *x; /* [tokens, d_model] */
} states_t;

static _Noreturn void stop(const char *why) {
    fprintf(stderr, "ffn_experts: %s\n", why);
    exit(1);
}

static void check(ffn_status_t status) {
    if (status != FFN_OK) stop(ffn_last_error());
}

static void check_io(ffn_status_t status) {
    if (status != FFN_OK) stop(ffn_io_last_error());
}

static void *room_for(int64_t count, size_t size) {
    void *made = calloc((size_t)count + 1, size);
    if (!made) stop("out of memory");
    return made;
}

/* ---------------------------------------------------------------- states */

static states_t read_states(const char *path) {
    ffn_npy_t *npy;
    ffn_npy_info_t info = {.struct_size = sizeof info};
    check_io(ffn_npy_open(path, &npy));
    check_io(ffn_npy_info(npy, &info));
    states_t states = {info.rows, info.columns, room_for(info.rows * info.columns, sizeof(float))};
    check_io(ffn_npy_read(npy, 0, info.rows, states.x));
    ffn_npy_free(npy);
    return states;
}

static states_t random_states(int64_t tokens, int64_t d_model) {
    states_t states = {tokens, d_model, room_for(tokens * d_model, sizeof(float))};
    const ffn_init_options_t normal = {.struct_size = sizeof normal, .scheme = FFN_INIT_NORMAL, .gain = 1, .seed = 1};
    check(ffn_weight_init(states.x, tokens * d_model, &normal));
    return states;
}

/* ---------------------------------------------------------------- the plot */

static void plot(const char *title, const int64_t *counts, int64_t experts, const ffn_moe_statistics_t *is) {
    printf("%s\n", title);
    for (int64_t e = 0; e < experts; e++) {
        int width = is->largest_load ? (int)(50 * counts[e] / is->largest_load) : 0;
        printf("expert %3" PRId64 " %7" PRId64 " ", e, counts[e]);
        for (int i = 0; i < width; i++) putchar('#');
        printf("\n");
    }
    printf("entropy of the load %.3f of at most %.3f; idle experts %" PRId64 ", choices dropped %" PRId64 "\n\n", is->load_entropy, log((double)experts),
           is->idle_experts, is->dropped);
}

/* ---------------------------------------------------------------- a router of random weights */

typedef struct router {
    int64_t experts, top_k;
    float *weight, *bias; /* [experts, d_model]; [experts], for the choice alone */
} router_t;

/* Routes all states by logits, and counts. */
static void route(const router_t *router, const states_t *states, const float *logits, int64_t *counts, ffn_moe_statistics_t *statistics) {
    ffn_moe_routing_t routing = {.struct_size = sizeof routing, .tokens = states->tokens, .experts = router->experts, .top_k = router->top_k};
    const ffn_moe_router_options_t options = {.struct_size = sizeof options, .normalise = FFN_MOE_NORMALISE_SUM};
    routing.ids = room_for(states->tokens * router->top_k, sizeof *routing.ids);
    routing.weights = room_for(states->tokens * router->top_k, sizeof *routing.weights);
    check(ffn_moe_route(NULL, &options, logits, router->bias, NULL, NULL, &routing));
    check(ffn_moe_count(&routing, 0, 0, counts));
    statistics->struct_size = sizeof *statistics;
    check(ffn_moe_statistics(&routing, NULL, statistics));
    free(routing.ids);
    free(routing.weights);
}

/* The load as the router has it, and after DeepSeek-V3's bias has followed it for a while. */
static void balance(const states_t *states) {
    enum { EXPERTS = 8, TOP_K = 2, STEPS = 500 };
    int64_t counts[EXPERTS];
    ffn_moe_statistics_t statistics;
    router_t router = {EXPERTS, TOP_K, room_for(EXPERTS * states->d_model, sizeof(float)), room_for(EXPERTS, sizeof(float))};
    float *logits = room_for(states->tokens * EXPERTS, sizeof *logits);
    const ffn_init_options_t init = {.struct_size = sizeof init, .scheme = FFN_INIT_LECUN_NORMAL, .seed = 2, .fan_in = states->d_model};
    check(ffn_weight_init(router.weight, EXPERTS * states->d_model, &init));
    const ffn_moe_logits_options_t options = {.struct_size = sizeof options, .d_model = states->d_model, .experts = EXPERTS, .weight = router.weight,
                                              .norm = FFN_NORM_RMS};
    check(ffn_moe_logits(NULL, &options, states->tokens, states->x, 0, logits));

    printf("%" PRId64 " tokens, each to %d of %d experts\n\n", states->tokens, TOP_K, EXPERTS);
    route(&router, states, logits, counts, &statistics);
    plot("random weights", counts, EXPERTS, &statistics);
    for (int i = 0; i < STEPS; i++) {
        check(ffn_moe_update_bias(EXPERTS, counts, 0.001f, router.bias));
        route(&router, states, logits, counts, &statistics);
    }
    plot("with the bias that ffn_moe_update_bias has found", counts, EXPERTS, &statistics);
    free(router.weight);
    free(router.bias);
    free(logits);
}

/* ---------------------------------------------------------------- a layer of a checkpoint */

static void run_layer(const states_t *states, const char *path, int64_t index) {
    ffn_model_t *model;
    ffn_layer_t *layer;
    const ffn_model_layer_t *found;
    ffn_layer_info_t info = {.struct_size = sizeof info};
    check_io(ffn_model_open(path, NULL, &model));
    check_io(ffn_model_layer(model, index, &found));
    if (!found->options->moe) stop("that layer has no experts");
    check_io(ffn_model_layer_create(model, NULL, found, &layer));
    check(ffn_layer_info(layer, &info));
    if (info.d_model != states->d_model) stop("the states are not as wide as the layer's input");

    int64_t experts = info.experts + info.identity_experts, *counts = room_for(experts, sizeof *counts);
    ffn_moe_statistics_t statistics = {.struct_size = sizeof statistics};
    const ffn_moe_run_t routed = {.struct_size = sizeof routed, .counts = counts, .statistics = &statistics};
    float *y = room_for(states->tokens * info.d_out, sizeof *y);
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = states->tokens, .x = states->x, .y = y, .moe = &routed};
    check(ffn_layer_run(layer, NULL, &run));
    printf("%" PRId64 " tokens, each to %" PRId64 " of %" PRId64 " experts; %" PRId64 " of %" PRId64 " parameters are active\n\n", states->tokens, info.top_k,
           experts, info.active_parameters, info.parameters);
    plot(found->prefix, counts, experts, &statistics);
    free(counts);
    free(y);
    ffn_layer_free(layer);
    ffn_model_free(model);
}

int main(int count, char **words) {
    if (count > 4) stop("too many arguments: [STATES.npy [MODEL [LAYER]]]");
    states_t states = count > 1 ? read_states(words[1]) : random_states(1000, 64);
    if (count > 2) run_layer(&states, words[2], count > 3 ? strtoll(words[3], NULL, 10) : 0);
    else balance(&states);
    free(states.x);
    return 0;
}
