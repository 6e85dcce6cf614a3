/* SPDX-License-Identifier: MIT
 *
 * Memory: each allocation fails once and nothing worse than FFN_NO_MEMORY follows; what a file merely claims is never allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "io/support/files.h"

/* The linker gives the library these in place of the C library's (CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

/* Allocations until one fails (negative: none does), and what was asked for since forget_memory. */
static int64_t until_failure = -1;
static size_t largest, total;

static bool fails(size_t size)
{
    total += size;
    if (size > largest) largest = size;
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

static void forget_memory(void)
{
    largest = total = 0;
}

/* ------------------------------------------------------------- each allocation fails */

/* Runs the work with its first, second, ... allocation failing until it succeeds. */
static void check_every_failure(const char *what, ffn_status_t (*work)(void))
{
    int64_t files = test_folder_count();
    for (int64_t n = 0; n < 10000; n++) {
        until_failure = n;
        ffn_status_t status = work();
        bool failed = until_failure < 0;
        until_failure = -1;
        if (!failed) {
            assert_io_ok_at(status, what);
            assert_true(n > 0);
            return;
        }
        if (status != FFN_NO_MEMORY)
            fail_msg("%s, allocation %d: %s, \"%s\"", what, (int)n, ffn_io_status_name(status), ffn_io_last_error());
        assert_non_null(strstr(ffn_io_last_error(), "memory") ? "" : strstr(ffn_io_last_error(), "allocate"));
        assert_int_equal(test_folder_count(), files);
    }
    fail_msg("%s does not succeed", what);
}

static const char header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]},\"\xc3\xa9\\u00e9\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[4,4]}}";

static ffn_status_t open_path(const char *path)
{
    checkpoint_t *checkpoint = (checkpoint_t *)64;
    ffn_status_t status = ffnio_checkpoint_open(path, 0, &checkpoint);
    if (status && checkpoint) fail_msg("the checkpoint is not NULL after a failure");
    ffnio_checkpoint_close(checkpoint);
    return status;
}

static ffn_status_t open_single(void)
{
    return open_path(test_path("model.safetensors"));
}

static ffn_status_t open_index(void)
{
    return open_path(test_path("model.safetensors.index.json"));
}

static ffn_status_t open_folder(void)
{
    return open_path(test_path(""));
}

static void every_allocation_of_opening_a_checkpoint_may_fail(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"model.safetensors\",\"x\":\"other.safetensors\",\"b\":\"model.safetensors\"}}";
    test_safetensors("model.safetensors", header, NULL, 12);
    test_safetensors("other.safetensors", "{\"x\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", NULL, 1);
    test_file("model.safetensors.index.json", index, sizeof index - 1);
    json_set_alloc_funcs(__wrap_malloc, free);
    check_every_failure("opening a file", open_single);
    check_every_failure("opening a folder", open_folder);
    check_every_failure("opening an index", open_index);
    unlink(test_path("model.safetensors"));
    test_safetensors("one.safetensors", header, NULL, 12);
}

static ffn_status_t npy_there_and_back(void)
{
    static const int64_t shape[] = {2, 3};
    static const float numbers[] = {1, 2, 3, 4, 5, 6};
    float got[6] = {0};
    ffn_npy_writer_t *writer;
    ffn_npy_t *npy = NULL;
    const char *path = test_path("back.npy");
    unlink(path);
    ffn_status_t status = ffn_npy_writer_open(path, 2, shape, &writer);
    if (status) return status;
    status = ffn_npy_writer_append(writer, numbers, 6);
    if (status) ffn_npy_writer_discard(writer);
    else status = ffn_npy_writer_finish(writer);
    if (!status) status = ffn_npy_open(path, &npy);
    if (!status) status = ffn_npy_read(npy, 0, 2, got);
    if (!status) assert_memory_equal(got, numbers, sizeof numbers);
    ffn_npy_free(npy);
    unlink(path);
    return status;
}

static void every_allocation_of_writing_and_reading_an_array_may_fail(void **state)
{
    (void)state;
    check_every_failure("writing and reading an array", npy_there_and_back);
}

/* --------------------------------------------------------------- claims and large files */

/* A file of that beginning and size, the rest a hole. */
static const char *sparse_file(const char *name, const void *begin, size_t length, off_t size)
{
    const char *path = test_file(name, begin, length);
    if (truncate(path, size)) fail_msg("the test cannot make a file of %lld bytes", (long long)size);
    return path;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void opening_a_file_of_1_GB_takes_less_than_50_ms_and_memory_for_its_header(void **state)
{
    (void)state;
    enum { TENSORS = 300 };
    char *text = test_alloc(TENSORS * 160), *to = text + 8;
    int64_t each = (1 << 30) / TENSORS / 4096 * 4096, elements = each / 4;
    for (int i = 0; i < TENSORS; i++)
        to += sprintf(to, "%c\"model.layers.%d.mlp.down_proj.weight\":{\"dtype\":\"F32\",\"shape\":[%d,1024],\"data_offsets\":[%lld,%lld]}", i ? ',' : '{',
                      i, (int)(elements / 1024), (long long)(i * each), (long long)((i + 1) * each));
    to += sprintf(to, "}");
    size_t length = (size_t)(to - text) - 8;
    for (int i = 0; i < 8; i++) text[i] = (char)(length >> (8 * i));
    const char *path = sparse_file("large.safetensors", text, length + 8, (off_t)length + 8 + TENSORS * each);
    checkpoint_t *checkpoint;
    double best = 1;
    for (int i = 0; i < 5; i++) {
        forget_memory();
        double start = seconds();
        assert_io_ok(ffnio_checkpoint_open(path, i % 2, &checkpoint));
        if (seconds() - start < best) best = seconds() - start;
        assert_int_equal(checkpoint->tensor_count, TENSORS);
        ffnio_checkpoint_close(checkpoint);
        if (total > 20 * length) fail_msg("%zu bytes for a header of %zu", total, length);
    }
    print_message("opening takes %.1f ms\n", 1e3 * best);
    free(text);
    unlink(path);
}

static void what_a_file_claims_is_not_allocated(void **state)
{
    (void)state;
    static const struct {
        const char *name, *begin;
        size_t length;
        off_t size;
    } rows[] = {
        {"claim.safetensors", "\xff\xe0\xf5\5\0\0\0\0{}", 10, 10},
        {"claim.safetensors", "\xff\xe0\xf5\5\0\0\0\0", 8, 200000000}, /* the file has them, but no header */
        {"claim.safetensors", "\0\0\0\0\1\0\0\0{}", 10, (off_t)1 << 33},
        {"claim.npy", "\x93NUMPY\2\0\xff\xff\xff\xff", 12, (off_t)1 << 33},
        {"claim.npy", "\x93NUMPY\1\0\x50\0{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000), }  ", 90, 5000},
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *path = sparse_file(rows[i].name, rows[i].begin, rows[i].length, rows[i].size);
        ffn_npy_t *npy;
        checkpoint_t *checkpoint;
        forget_memory();
        bool is_npy = strstr(path, ".npy");
        assert_io_refused(is_npy ? ffn_npy_open(path, &npy) : ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, path, "");
        if (largest > 100000) fail_msg("row %d: an allocation of %zu bytes", (int)i, largest);
        unlink(path);
    }
}

static void reading_a_large_array_takes_memory_for_a_window_only(void **state)
{
    (void)state;
    static const char *begins[] = {"{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 1000), }      ",
                                   "{'descr': '<f8', 'fortran_order': True, 'shape': (100000, 1000), }       ",
                                   "{'descr': '<f2', 'fortran_order': True, 'shape': (1000, 100, 1000), }    "};
    float *got = test_alloc(3000 * sizeof *got);
    for (int64_t i = 0; i < COUNT_OF(begins); i++) {
        char begin[10 + 80];
        memcpy(begin, "\x93NUMPY\1\0", 8);
        begin[8] = (char)strlen(begins[i]);
        begin[9] = 0;
        strcpy(begin + 10, begins[i]);
        const char *path = sparse_file("large.npy", begin, 10 + strlen(begins[i]), 90 + (off_t)800000000);
        ffn_npy_t *npy;
        forget_memory();
        assert_io_ok(ffn_npy_open(path, &npy));
        for (int64_t row = 0; row < 100000; row += 33331) {
            got[0] = got[2999] = 1;
            assert_io_ok(ffn_npy_read(npy, row, 3, got));
            assert_true(got[0] == 0 && got[2999] == 0);
        }
        if (total > 100000) fail_msg("%zu bytes", total);
        ffn_npy_free(npy);
        unlink(path);
    }
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_opening_a_checkpoint_may_fail),
        cmocka_unit_test(every_allocation_of_writing_and_reading_an_array_may_fail),
        cmocka_unit_test(opening_a_file_of_1_GB_takes_less_than_50_ms_and_memory_for_its_header),
        cmocka_unit_test(what_a_file_claims_is_not_allocated),
        cmocka_unit_test(reading_a_large_array_takes_memory_for_a_window_only),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
