/* SPDX-License-Identifier: MIT
 *
 * Memory of models and layers: each allocation fails once, in the library, in jansson and in libffn, and nothing worse than FFN_NO_MEMORY follows;
 * weights are read once, and not before a layer is made.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "io/support/family_file.h"
#include "io/support/files.h"
#include "io/support/moe_rules.h"
#include "support/layer_check.h"

/* The linker gives the libraries these in place of the C library's (CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
ssize_t __real_pread64(int file, void *out, size_t size, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
ssize_t __wrap_pread64(int file, void *out, size_t size, off_t offset);

static int64_t until_failure = -1; /* allocations until one fails; negative: none does */
static int64_t bytes_read, bytes_allocated;

static bool fails(size_t size)
{
    bytes_allocated += (int64_t)size;
    if (until_failure < 0 || until_failure-- > 0) return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails(count * size) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails(size) ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __real_aligned_alloc(alignment, size);
}

ssize_t __wrap_pread64(int file, void *out, size_t size, off_t offset)
{
    ssize_t got = __real_pread64(file, out, size, offset);
    if (got > 0) bytes_read += got;
    return got;
}

/* ------------------------------------------------------------- each allocation fails */

static const ffn_model_t *opened;

static ffn_status_t open_and_free(void)
{
    ffn_model_t *model = (ffn_model_t *)64;
    ffn_status_t status = ffn_model_open(test_path("model.safetensors"), NULL, &model);
    if (status) assert_null(model);
    ffn_model_free(model);
    return status;
}

static ffn_status_t open_with_options(void)
{
    char config[512];
    snprintf(config, sizeof config, "%s", test_path("config.json"));
    ffn_model_options_t options = {.struct_size = sizeof options, .flags = FFN_MODEL_MAP, .config = config, .family = "phi3"};
    ffn_model_t *model = (ffn_model_t *)64;
    ffn_status_t status = ffn_model_open(test_path("model.safetensors"), &options, &model);
    if (status) assert_null(model);
    ffn_model_free(model);
    return status;
}

static ffn_status_t make_and_free(void)
{
    const ffn_model_layer_t *layer;
    ffn_layer_t *made = (ffn_layer_t *)64;
    ffn_status_t status = ffn_model_layer(opened, 1, &layer);
    if (!status) status = ffn_model_layer_create(opened, NULL, layer, &made);
    if (status) assert_null(made);
    ffn_layer_free(made);
    return status;
}

static int64_t check_every_failure(ffn_status_t (*work)(void))
{
    for (int64_t n = 0; n < 10000; n++) {
        until_failure = n;
        ffn_status_t status = work();
        bool failed = until_failure < 0;
        until_failure = -1;
        if (!failed) {
            assert_io_ok(status);
            return n;
        }
        if (status != FFN_NO_MEMORY) fail_msg("allocation %d: %s, \"%s\"", (int)n, ffn_io_status_name(status), ffn_io_last_error());
        assert_true(strstr(ffn_io_last_error(), "allocate") || strstr(ffn_io_last_error(), "memory"));
    }
    fail_msg("it does not succeed");
    return 0;
}

/* A fused model of `layers` layers beside a config.json and a tensor that belongs to none. */
static void write_model(int layers, int64_t other)
{
    static const layer_case_t phi = {.d_model = 24, .d_ff = 40, .activation = FFN_ACTIVATION_SILU, .gated = true, .residual = FFN_RESIDUAL_INPUT,
                                     .layout = LAYOUT_GATE_UP, .norm = {[FFN_NORM_IN] = {FFN_NORM_RMS, true, false, 1e-5f, 0}}, .seed = 1};
    test_layer_t layer;
    model_file_t file = {0};
    test_layer_describe(&layer, &phi);
    model_file_add(&file, NULL, other, 0, "model.embed_tokens.weight");
    for (int i = 0; i < layers; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", i);
        model_file_add_layer(&file, &layer, prefix, "fused=mlp.gate_up_proj down=mlp.down_proj in=post_attention_layernorm");
    }
    model_file_write(&file, "{\"model_type\":\"phi3\",\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\"}");
    test_layer_free(&layer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_model(17, 100); /* one more than the array of layers first has room for */
    json_set_alloc_funcs(__wrap_malloc, free);
    assert_true(check_every_failure(open_and_free) > 10);
    assert_true(check_every_failure(open_with_options) > 10);
    ffn_model_t *model = open_model(test_path("model.safetensors"));
    opened = model;
    assert_true(check_every_failure(make_and_free) >= 4); /* three tensors and libffn's layer */
    ffn_model_free(model);
    json_set_alloc_funcs(malloc, free);
}

/* The lists of a mixture's tensors grow. */
static void every_allocation_of_a_mixture_may_fail(void **state)
{
    (void)state;
    static const moe_case_t mixtral = {.family = "mixtral", .prefix = "model.layers.%d.", .experts = 12, .top_k = 2,
                                       .names = "router=block_sparse_moe.gate.weight gate=block_sparse_moe.experts.{e}.w1.weight "
                                                "up=block_sparse_moe.experts.{e}.w3.weight down=block_sparse_moe.experts.{e}.w2.weight "
                                                "in=post_attention_layernorm.weight"};
    model_file_t file = {0};
    for (int i = 0; i < 2; i++) {
        moe_layer_t layer;
        moe_layer_make(&layer, &mixtral, i, 1);
        moe_layer_add(&layer, &file, NULL);
        moe_layer_free(&layer);
    }
    model_file_write(&file, "{\"model_type\":\"mixtral\"}");
    json_set_alloc_funcs(__wrap_malloc, free);
    assert_true(check_every_failure(open_and_free) > 10);
    ffn_model_t *model = open_model(test_path("model.safetensors"));
    opened = model;
    assert_true(check_every_failure(make_and_free) >= 40); /* the tensors, the lists of them, and libffn's layer */
    ffn_model_free(model);
    json_set_alloc_funcs(malloc, free);
}

/* ------------------------------------------------------------- what is read */

static void opening_reads_headers_alone_and_making_a_layer_reads_its_bytes_once(void **state)
{
    (void)state;
    const int64_t of_layer = (3 * 24 * 40 + 24) * (int64_t)sizeof(float);
    write_model(3, 100);
    bytes_read = 0;
    ffn_model_free(open_model(test_path("model.safetensors")));
    int64_t with_few = bytes_read;
    write_model(3, 1000000);
    bytes_read = bytes_allocated = 0;
    ffn_model_t *model = open_model(test_path("model.safetensors"));
    assert_true(bytes_read > 0 && bytes_read < with_few + 100);
    assert_true(bytes_allocated < 100000);

    bytes_read = 0;
    ffn_layer_t *layer;
    assert_io_ok(ffn_model_layer_create(model, NULL, model_layer(model, 1), &layer));
    assert_int_equal(bytes_read, of_layer); /* gate and up are halves of one tensor */
    ffn_layer_free(layer);

    ffn_model_layer_t branch = *model_layer(model, 1);
    branch.flags = FFN_MODEL_BRANCH;
    bytes_read = 0;
    assert_io_ok(ffn_model_layer_create(model, NULL, &branch, &layer));
    assert_int_equal(bytes_read, of_layer - 24 * (int64_t)sizeof(float));
    ffn_layer_free(layer);
    ffn_model_free(model);

    ffn_model_options_t options = {.struct_size = sizeof options, .flags = FFN_MODEL_MAP};
    assert_io_ok(ffn_model_open(test_path("model.safetensors"), &options, &model));
    const ffn_model_layer_t *described = model_layer(model, 1);
    bytes_read = bytes_allocated = 0;
    assert_io_ok(ffn_model_layer_create(model, NULL, described, &layer));
    ffn_layer_info_t info = {.struct_size = sizeof info};
    assert_ok(ffn_layer_info(layer, &info));
    assert_int_equal(bytes_read, 0);
    /* the layer itself, the list of its tensors, and nothing of their size */
    assert_true(bytes_allocated <= (int64_t)info.bytes + 64 + 256 * (int64_t)described->binding_count);
    ffn_layer_free(layer);
    ffn_model_free(model);
}

/* A gigabyte that is not there: a sparse file. */
static void opening_a_large_model_takes_no_time(void **state)
{
    (void)state;
    write_model(24, 100);
    size_t size;
    unsigned char *bytes = read_whole(test_path("model.safetensors"), &size);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | bytes[i];
    /* The same header, the last tensor's end moved a gigabyte further. */
    char *text = test_alloc(header + 512);
    memcpy(text, bytes + 8, header);
    text[header] = 0;
    char *end = strrchr(text, '}');
    assert_non_null(end);
    uint64_t data = size - 8 - header, large = (uint64_t)1 << 30;
    snprintf(end, 512, ",\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}}", (unsigned long long)(large / 4),
             (unsigned long long)data, (unsigned long long)(data + large));
    const char *path = test_safetensors("large.safetensors", text, NULL, 0);
    assert_int_equal(truncate(path, (off_t)(8 + strlen(text) + data + large)), 0);
    struct timespec before, after;
    bytes_allocated = 0;
    clock_gettime(CLOCK_MONOTONIC, &before);
    ffn_model_t *model = open_model(path);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double seconds = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    ffn_model_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_model_info(model, &info));
    assert_int_equal(info.layer_count, 24);
    assert_true(info.bytes > large);
    assert_true(bytes_allocated < 1000000);
    print_message("opening takes %.1f ms\n", 1e3 * seconds);
    ffn_model_free(model);
    free(text);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_of_a_mixture_may_fail),
        cmocka_unit_test(opening_reads_headers_alone_and_making_a_layer_reads_its_bytes_once),
        cmocka_unit_test(opening_a_large_model_takes_no_time),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
