/* SPDX-License-Identifier: MIT
 *
 * What an opened checkpoint gives: its tensors by name, whole and in part, read and mapped, to many threads at once, from files that change; and
 * the index that spreads one checkpoint over several files.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/support/checkpoint.h"
#include "io/support/files.h"

static void tensors_come_sorted_by_name(void **state)
{
    (void)state;
    checkpoint_t *checkpoint = open_ok(test_safetensors("sorted.safetensors", "{" ENTRY("b", "F32", "[1,2]", 0, 8) "," ENTRY("a10", "F16", "[1]", 12, 14) ","
                                                        ENTRY("a", "I32", "[1]", 8, 12) "," ENTRY("", "F16", "[0]", 14, 14) "}", NULL, 14));
    static const char *names[] = {"", "a", "a10", "b"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(checkpoint->tensors[i].name, names[i]);
        assert_int_equal(ffnio_checkpoint_find(checkpoint, names[i]), i);
    }
    assert_int_equal(ffnio_checkpoint_find(checkpoint, "a1"), -1);
    assert_int_equal(checkpoint->tensors[3].shape[1], 2);
    assert_int_equal(checkpoint->tensors[2].bytes, 2);
    ffnio_checkpoint_close(checkpoint);
}

static void a_part_of_a_tensor_can_be_read_and_not_more_than_it_has(void **state)
{
    (void)state;
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7}, got[8];
    const char *path = test_safetensors("part.safetensors", ONE, data, sizeof data);
    checkpoint_t *checkpoint = open_ok(path);
    const stored_tensor_t *tensor = tensor_of(checkpoint, "w");
    assert_io_ok(ffnio_tensor_read(checkpoint, tensor, 3, 4, got));
    assert_memory_equal(got, data + 3, 16);
    assert_io_ok(ffnio_tensor_read(checkpoint, tensor, 8, 0, NULL));
    static const int64_t bad[][2] = {{0, 9}, {8, 1}, {-1, 1}, {0, -1}, {INT64_MAX, INT64_MAX}, {1, INT64_MAX}, {9, 0}};
    for (int64_t i = 0; i < COUNT_OF(bad); i++)
        assert_io_refused(ffnio_tensor_read(checkpoint, tensor, bad[i][0], bad[i][1], got), FFN_INVALID, path, "\"w\"");
    ffnio_checkpoint_close(checkpoint);
}

static void a_tensor_is_mapped_where_that_is_possible(void **state)
{
    (void)state;
    float data[2] = {1.5f, -2};
    for (int pad = 0; pad < 8; pad++) {
        char header[200];
        checkpoint_t *checkpoint;
        sprintf(header, "{" ENTRY("w", "F32", "[2]", 0, 8) "}%*s", pad, "");
        const char *path = test_safetensors("mapped.safetensors", header, data, 8);
        assert_io_ok(ffnio_checkpoint_open(path, 1, &checkpoint));
        const stored_tensor_t *tensor = tensor_of(checkpoint, "w");
        const float *mapped = ffnio_tensor_mapped(checkpoint, tensor);
        assert_int_equal(mapped != NULL, tensor->offset % 4 == 0);
        if (mapped) assert_memory_equal(mapped, data, 8);
        ffnio_checkpoint_close(checkpoint);
        checkpoint = open_ok(path);
        assert_null(ffnio_tensor_mapped(checkpoint, &checkpoint->tensors[0]));
        ffnio_checkpoint_close(checkpoint);
    }
}

typedef struct reading {
    const checkpoint_t *checkpoint;
    float sum;
} reading_t;

static void *read_on_thread(void *given)
{
    reading_t *reading = given;
    float got[100];
    for (int64_t first = 0; first < 5000; first += 100) {
        if (ffnio_tensor_read(reading->checkpoint, &reading->checkpoint->tensors[0], first, 100, got)) return given;
        for (int i = 0; i < 100; i++) reading->sum += got[i];
    }
    return NULL;
}

static void threads_may_read_from_one_checkpoint_at_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    float *data = test_alloc(5000 * sizeof *data);
    for (int i = 0; i < 5000; i++) data[i] = (float)(i % 7);
    checkpoint_t *checkpoint = open_ok(test_safetensors("threads.safetensors", "{" ENTRY("w", "F32", "[5000]", 0, 20000) "}", data, 20000));
    pthread_t threads[THREADS];
    reading_t readings[THREADS];
    for (int i = 0; i < THREADS; i++) {
        readings[i] = (reading_t){checkpoint, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on_thread, &readings[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
        assert_true(readings[i].sum == 14995);
    }
    ffnio_checkpoint_close(checkpoint);
    free(data);
}

static void a_file_cut_short_while_it_is_open_gives_an_error(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const char *dtypes[] = {"F32", "F16", "BF16", "F64"};
    static const int sizes[] = {4, 2, 2, 8};
    float *got = test_alloc(N * sizeof *got);
    for (int i = 0; i < 4; i++) {
        char header[200];
        sprintf(header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", dtypes[i], N, N * sizes[i]);
        const char *path = test_safetensors("shrinks.safetensors", header, NULL, (size_t)(N * sizes[i]));
        checkpoint_t *checkpoint = open_ok(path);
        const stored_tensor_t *tensor = &checkpoint->tensors[0];
        assert_io_ok(ffnio_tensor_read(checkpoint, tensor, 0, N, got));
        for (int64_t left = tensor->offset + tensor->bytes - 1; left >= 0; left = left > 5000 ? left / 2 : left - 1500) {
            assert_int_equal(truncate(path, left), 0);
            assert_io_refused(ffnio_tensor_read(checkpoint, tensor, 0, N, got), FFN_FILE, path, "cut short");
        }
        ffnio_checkpoint_close(checkpoint);
    }
    free(got);
}

/* ----------------------------------------------------------------------- an index */

#define MAP(entries) "{\"metadata\":{\"total_size\":1},\"weight_map\":{" entries "}}"

static const char *write_index(const char *json)
{
    return test_file("model.safetensors.index.json", json, strlen(json));
}

static void an_index_chooses_among_the_tensors_of_its_shards(void **state)
{
    (void)state;
    test_safetensors("one.safetensors", "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("both", "F32", "[1]", 4, 8) "}", (float[]){1, 2}, 8);
    test_safetensors("two.safetensors", "{" ENTRY("both", "F32", "[1]", 0, 4) "," ENTRY("unlisted", "F32", "[1]", 4, 8) "}", (float[]){3, 4}, 8);
    checkpoint_t *checkpoint = open_ok(write_index(MAP("\"both\":\"two.safetensors\",\"a\":\"one.safetensors\"")));
    float got;
    assert_int_equal(checkpoint->tensor_count, 2);
    assert_io_ok(ffnio_tensor_read(checkpoint, tensor_of(checkpoint, "both"), 0, 1, &got));
    assert_true(got == 3);
    assert_io_ok(ffnio_tensor_read(checkpoint, tensor_of(checkpoint, "a"), 0, 1, &got));
    assert_true(got == 1);
    ffnio_checkpoint_close(checkpoint);
    ffnio_checkpoint_close(open_ok(write_index(MAP(""))));
}

static void a_bad_index_is_refused_with_its_fault(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        ffn_status_t status;
        const char *words;
    } rows[] = {
        {"", FFN_FORMAT, "not valid JSON"},
        {"[]", FFN_FORMAT, "an array"},
        {"{}", FFN_FORMAT, "weight_map|missing"},
        {"{\"weight_map\":[]}", FFN_FORMAT, "weight_map|an array"},
        {MAP("\"a\":1"), FFN_FORMAT, "\"a\"|an integer"},
        {MAP("\"a\":\"\""), FFN_FORMAT, "\"a\"|beside"},
        {MAP("\"a\":\"..\""), FFN_FORMAT, "beside"},
        {MAP("\"a\":\"/etc/passwd\""), FFN_FORMAT, "/etc/passwd|beside"},
        {MAP("\"a\":\"../one.safetensors\""), FFN_FORMAT, "beside"},
        {MAP("\"a\":\"one.safetensors\",\"a\":\"one.safetensors\""), FFN_FORMAT, "duplicate"},
        {MAP("\"c\":\"one.safetensors\""), FFN_FORMAT, "\"c\"|one.safetensors"},
    };
    checkpoint_t *checkpoint;
    test_safetensors("one.safetensors", "{" ENTRY("a", "F32", "[1]", 0, 4) "}", NULL, 4);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *path = write_index(rows[i].json);
        assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), rows[i].status, path, rows[i].words);
    }
    /* a fault of a shard names the shard */
    test_safetensors("bad.safetensors", "{}", NULL, 4);
    const char *path = write_index(MAP("\"a\":\"one.safetensors\",\"b\":\"bad.safetensors\""));
    assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, "bad.safetensors", "ends at 0");
    path = write_index(MAP("\"a\":\"one.safetensors\",\"b\":\"gone.safetensors\""));
    assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FILE, "gone.safetensors", "open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_sorted_by_name),
        cmocka_unit_test(a_part_of_a_tensor_can_be_read_and_not_more_than_it_has),
        cmocka_unit_test(a_tensor_is_mapped_where_that_is_possible),
        cmocka_unit_test(threads_may_read_from_one_checkpoint_at_once),
        cmocka_unit_test(a_file_cut_short_while_it_is_open_gives_an_error),
        cmocka_unit_test(an_index_chooses_among_the_tensors_of_its_shards),
        cmocka_unit_test(a_bad_index_is_refused_with_its_fault),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
