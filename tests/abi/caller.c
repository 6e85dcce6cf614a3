/* SPDX-License-Identifier: MIT
 *
 * A program of its own age: compiled by callers.sh against an older header of libffn, today's, and a newer one (CALLER_OLDER, CALLER_NEWER), and
 * run with today's library. It uses every struct that grows. y = x + 3 * relu(2 x) gives 14 and -2 for 2 and -2. */
#include <ffn/ffn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(CALLER_NEWER)
#define NEWER(object, value) ((object).newer = (value))
#else
#define NEWER(object, value) ((void)(object), (void)(value))
#endif

static int failures;

static void expect(int holds, const char *what, uint64_t tail) {
    if (holds) return;
    printf("%s (newer fields: %llu; last error: \"%s\")\n", what, (unsigned long long)tail, ffn_last_error());
    failures++;
}

static int64_t held; /* bytes by the allocator */

static void *allocate(void *user, uint64_t size, uint64_t alignment) {
    (void)user;
    held += (int64_t)size;
    return aligned_alloc((size_t)alignment, (size_t)((size + alignment - 1) / alignment * alignment));
}

static void release(void *user, void *memory, uint64_t size) {
    (void)user;
    held -= (int64_t)size;
    free(memory);
}

static float up = 2, down = 3, x[2] = {2, -2}, y[2];

static ffn_tensor_t tensors[2] = {{.role = FFN_ROLE_UP_WEIGHT, .ndim = 2, .data = &up, .shape = {1, 1}},
                                  {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = &down, .shape = {1, 1}}};

/* What a call with these newer fields must return. */
static ffn_status_t expected(uint64_t tail) {
    return tail ? FFN_UNSUPPORTED : FFN_OK;
}

static void make_and_free(uint64_t tail) {
    ffn_allocator_t allocator = {.struct_size = sizeof allocator, .allocate = allocate, .release = release};
    ffn_context_options_t context_options = {.struct_size = sizeof context_options, .threads = 2};
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                   .tensors = tensors, .tensor_count = 2};
    ffn_context_t *context = NULL;
    ffn_layer_t *layer = NULL;
    NEWER(options, tail);
    expect(ffn_layer_create(NULL, &options, &layer) == expected(tail) && !layer == !!tail, "layer options", tail);
    ffn_layer_free(layer);
    NEWER(context_options, tail);
    expect(ffn_context_create(&context_options, &context) == expected(tail) && !context == !!tail, "context options", tail);
    ffn_context_free(context);
#if !defined(CALLER_OLDER) /* whose options have no allocator: it was the last field */
    NEWER(options, 0);
    NEWER(context_options, 0);
    NEWER(allocator, tail);
    options.allocator = context_options.allocator = &allocator;
    expect(ffn_layer_create(NULL, &options, &layer) == expected(tail) && (held > 0) == !tail, "allocator of a layer", tail);
    ffn_layer_free(layer);
    expect(ffn_context_create(&context_options, &context) == expected(tail) && (held > 0) == !tail, "allocator of a context", tail);
    ffn_context_free(context);
    expect(held == 0, "all memory is given back", tail);
#else
    (void)allocator;
#endif
}

static void run(const ffn_layer_t *layer, uint64_t tail) {
    ffn_run_t given = {.struct_size = sizeof given, .batch = 1, .length = 2, .x = x, .y = y};
    y[0] = y[1] = 99;
    NEWER(given, tail);
    expect(ffn_layer_run(layer, NULL, &given) == expected(tail), "run", tail);
    expect(tail ? y[0] == 99 && y[1] == 99 : y[0] == 14 && y[1] == -2, "y of run", tail);
}

/* What the library writes: not a byte behind the caller's struct, and zeros where only the caller knows the field. */
static void tell(const ffn_layer_t *layer, uint64_t tail) {
    struct {
        ffn_layer_info_t info;
        uint64_t canary;
    } of_layer;
    struct {
        ffn_context_info_t info;
        uint64_t canary;
    } of_context;
    memset(&of_layer, 0xaa, sizeof of_layer);
    memset(&of_context, 0xaa, sizeof of_context);
    of_layer.info.struct_size = sizeof of_layer.info;
    of_context.info.struct_size = sizeof of_context.info;
    NEWER(of_layer.info, tail);
    NEWER(of_context.info, tail);
    expect(ffn_layer_info(layer, &of_layer.info) == FFN_OK && of_layer.info.parameters == 2 && of_layer.info.d_ff == 1, "layer info", tail);
    expect(ffn_context_info(NULL, &of_context.info) == FFN_OK && of_context.info.threads == 1, "context info", tail);
    expect(of_layer.info.struct_size == sizeof of_layer.info && of_context.info.struct_size == sizeof of_context.info, "struct_size", tail);
    expect(of_layer.canary == 0xaaaaaaaaaaaaaaaa && of_context.canary == 0xaaaaaaaaaaaaaaaa, "nothing is written behind an info", tail);
#if defined(CALLER_NEWER)
    expect(of_layer.info.newer == 0 && of_context.info.newer == 0, "what only the caller knows becomes 0", tail);
#endif
}

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))

static int print_sizes(void) {
    SIZE(ffn_allocator_t);
    SIZE(ffn_context_options_t);
    SIZE(ffn_context_info_t);
    SIZE(ffn_layer_options_t);
    SIZE(ffn_run_t);
    SIZE(ffn_layer_info_t);
    return 0;
}

int main(int argc, char **argv) {
    ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_RELU, .residual = FFN_RESIDUAL_INPUT,
                                   .tensors = tensors, .tensor_count = 2};
    ffn_layer_t *layer;
    if (argc == 2 && !strcmp(argv[1], "sizes")) return print_sizes();
    if (ffn_layer_create(NULL, &options, &layer) != FFN_OK) {
        printf("%s\n", ffn_last_error());
        return 1;
    }
#if defined(CALLER_NEWER)
    static const uint64_t tails[] = {0, 1, (uint64_t)1 << 63};
#else
    static const uint64_t tails[] = {0};
#endif
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        make_and_free(tails[i]);
        run(layer, tails[i]);
        tell(layer, tails[i]);
    }
    ffn_layer_free(layer);
    return failures != 0;
}
