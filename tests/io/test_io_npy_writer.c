/* SPDX-License-Identifier: MIT
 *
 * Writing .npy files: byte by byte what NumPy writes, whatever the locale; the whole file or none.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/support/files.h"
#include "support/random.h"

/* Writes value i at place i, in appends of `step` numbers. */
static void write_array(const char *path, uint32_t ndim, const int64_t *shape, int64_t elements, int64_t step)
{
    ffn_npy_writer_t *writer;
    float *numbers = test_alloc((size_t)elements * sizeof *numbers);
    for (int64_t i = 0; i < elements; i++) numbers[i] = (float)i + 0.25f;
    assert_io_ok(ffn_npy_writer_open(path, ndim, shape, &writer));
    for (int64_t i = 0; i < elements; i += step) assert_io_ok(ffn_npy_writer_append(writer, numbers + i, elements - i < step ? elements - i : step));
    assert_io_ok(ffn_npy_writer_finish(writer));
    free(numbers);
}

static void check_written(const char *path, const char *shape, int64_t elements)
{
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    char dictionary[1024];
    snprintf(dictionary, sizeof dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    assert_memory_equal(bytes, "\x93NUMPY\1", 8);
    size_t length = bytes[8] + 256u * bytes[9], used = strlen(dictionary);
    assert_int_equal((10 + length) % 64, 0);
    assert_true(length < used + 65);
    assert_memory_equal(bytes + 10, dictionary, used);
    for (size_t i = used; i + 1 < length; i++) assert_int_equal(bytes[10 + i], ' ');
    assert_int_equal(bytes[10 + length - 1], '\n');
    assert_int_equal(size, 10 + length + 4 * (size_t)elements);
    for (int64_t i = 0; i < elements; i++) {
        float expected = (float)i + 0.25f, got;
        memcpy(&got, bytes + 10 + length + 4 * i, 4);
        assert_true(got == expected);
    }
    free(bytes);
}

static void files_are_what_numpy_writes(void **state)
{
    (void)state;
    static const struct {
        uint32_t ndim;
        int64_t shape[4], elements;
        const char *text;
    } rows[] = {
        {0, {0}, 1, "()"},
        {1, {5}, 5, "(5,)"},
        {1, {0}, 0, "(0,)"},
        {2, {3, 4}, 12, "(3, 4)"},
        {4, {1, 2, 3, 4}, 24, "(1, 2, 3, 4)"},
        {2, {1, 1234567}, 1234567, "(1, 1234567)"},
        {2, {20000, 1}, 20000, "(20000, 1)"},
        {3, {1000000000, 0, 7}, 0, "(1000000000, 0, 7)"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++)
        for (int64_t step = 1; step < 3000000; step *= 100) {
            if (rows[i].elements / step > 100000) continue;
            const char *path = test_path("written.npy");
            write_array(path, rows[i].ndim, rows[i].shape, rows[i].elements, step);
            check_written(path, rows[i].text, rows[i].elements);
        }
    assert_int_equal(test_folder_count(), 1);
}

static void thirty_two_dimensions_come_back(void **state)
{
    (void)state;
    int64_t shape[33];
    for (int i = 0; i < 33; i++) shape[i] = 1;
    shape[31] = INT64_MAX / 4;
    shape[3] = 0;
    ffn_npy_t *npy;
    ffn_npy_info_t info = {.struct_size = sizeof info};
    write_array(test_path("deep.npy"), 32, shape, 0, 1);
    assert_io_ok(ffn_npy_open(test_path("deep.npy"), &npy));
    assert_io_ok(ffn_npy_info(npy, &info));
    assert_memory_equal(info.shape, shape, sizeof info.shape);
    ffn_npy_free(npy);
    unlink(test_path("deep.npy"));
    ffn_npy_writer_t *writer;
    assert_io_refused(ffn_npy_writer_open(test_path("deep.npy"), 33, shape, &writer), FFN_INVALID, "", "33|32");
}

static void the_locale_changes_no_byte(void **state)
{
    (void)state;
    static const int64_t shape[] = {1234, 1};
    const char *old = setlocale(LC_ALL, NULL);
    char *saved = strdup(old);
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        free(saved);
        skip();
    }
    char number[16];
    snprintf(number, sizeof number, "%.1f", 1.5);
    assert_string_equal(number, "1,5"); /* the locale is in force */
    write_array(test_path("locale.npy"), 2, shape, 1234, 50);
    check_written(test_path("locale.npy"), "(1234, 1)", 1234);
    ffn_npy_t *npy;
    assert_io_ok(ffn_npy_open(test_path("locale.npy"), &npy));
    ffn_npy_free(npy);
    setlocale(LC_ALL, saved);
    free(saved);
    unlink(test_path("locale.npy"));
}

static void a_file_appears_when_it_is_finished_and_replaces_what_was_there(void **state)
{
    (void)state;
    static const int64_t shape[] = {2};
    static const float numbers[] = {1, 2};
    ffn_npy_writer_t *writer;
    int64_t before = test_folder_count();
    const char *path = test_file("replaced.npy", "old", 3);
    umask(027);
    assert_io_ok(ffn_npy_writer_open(path, 1, shape, &writer));
    assert_io_ok(ffn_npy_writer_append(writer, numbers, 2));
    assert_int_equal(test_folder_count(), before + 2);
    size_t size;
    free(read_whole(path, &size));
    assert_int_equal(size, 3);
    assert_io_ok(ffn_npy_writer_finish(writer));
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 128 + 8);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_int_equal(test_folder_count(), before + 1);
    unlink(path);
}

static void nothing_is_left_of_a_file_that_was_given_up(void **state)
{
    (void)state;
    static const int64_t shape[] = {2, 3};
    static const float numbers[7];
    ffn_npy_writer_t *writer;
    int64_t before = test_folder_count();
    const char *path = test_path("given_up.npy");
    assert_io_ok(ffn_npy_writer_open(path, 2, shape, &writer));
    assert_io_ok(ffn_npy_writer_append(writer, numbers, 5));
    ffn_npy_writer_discard(writer);
    assert_int_equal(test_folder_count(), before);

    assert_io_ok(ffn_npy_writer_open(path, 2, shape, &writer));
    assert_io_ok(ffn_npy_writer_append(writer, numbers, 5));
    assert_io_refused(ffn_npy_writer_append(writer, numbers, 2), FFN_INVALID, path, "2 numbers|1 more");
    assert_io_refused(ffn_npy_writer_append(writer, numbers, -1), FFN_INVALID, path, "-1");
    assert_io_refused(ffn_npy_writer_append(writer, NULL, 1), FFN_INVALID, "", "numbers is NULL");
    assert_io_refused(ffn_npy_writer_finish(writer), FFN_INVALID, path, "5 numbers|6");
    assert_int_equal(test_folder_count(), before);
    ffn_npy_writer_discard(NULL);
}

static void two_writers_of_one_path_do_not_meet(void **state)
{
    (void)state;
    static const int64_t shape[] = {1};
    ffn_npy_writer_t *writers[40];
    int64_t before = test_folder_count();
    for (int i = 0; i < 40; i++) assert_io_ok(ffn_npy_writer_open(test_path("both.npy"), 1, shape, &writers[i]));
    assert_int_equal(test_folder_count(), before + 40);
    for (int i = 0; i < 40; i++) {
        float number = (float)i;
        assert_io_ok(ffn_npy_writer_append(writers[i], &number, 1));
        assert_io_ok(ffn_npy_writer_finish(writers[i]));
    }
    assert_int_equal(test_folder_count(), before + 1);
    unlink(test_path("both.npy"));
}

static void a_full_disk_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    static const int64_t shape[] = {100000};
    float *numbers = test_alloc(100000 * sizeof *numbers);
    memset(numbers, 0, 100000 * sizeof *numbers);
    int64_t before = test_folder_count();
    const char *path = test_path("full.npy");
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t sizes[] = {0, 100, 50000, 399999};
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        ffn_npy_writer_t *writer = NULL;
        limit = old;
        limit.rlim_cur = sizes[i];
        setrlimit(RLIMIT_FSIZE, &limit);
        ffn_status_t status = ffn_npy_writer_open(path, 1, shape, &writer);
        if (!status) status = ffn_npy_writer_append(writer, numbers, 100000);
        if (status && writer) {
            assert_io_refused(status, FFN_FILE, path, "write");
            assert_io_refused(ffn_npy_writer_append(writer, numbers, 0), FFN_FILE, path, "before");
        }
        if (writer) status = ffn_npy_writer_finish(writer);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_io_refused(status, FFN_FILE, path, "");
        assert_int_equal(test_folder_count(), before);
    }
    signal(SIGXFSZ, SIG_DFL);
    free(numbers);
}

static void what_cannot_be_written_is_refused_at_once(void **state)
{
    (void)state;
    static const int64_t shape[] = {2}, negative[] = {3, -1}, large[] = {INT64_MAX / 4, 2};
    ffn_npy_writer_t *writer = (ffn_npy_writer_t *)64;
    const char *path = test_path("no/such/folder.npy");
    int64_t before = test_folder_count();
    assert_io_refused(ffn_npy_writer_open(path, 1, shape, &writer), FFN_FILE, path, "temporary");
    assert_null(writer);
    assert_io_refused(ffn_npy_writer_open("/dev/null", 1, shape, &writer), FFN_FILE, "/dev/null", "device");
    path = test_path("");
    assert_io_refused(ffn_npy_writer_open(path, 1, shape, &writer), FFN_FILE, path, "folder");
    assert_io_refused(ffn_npy_writer_open("", 1, shape, &writer), FFN_FILE, "", "does not name a file");
    path = test_path("absent/");
    assert_io_refused(ffn_npy_writer_open(path, 1, shape, &writer), FFN_FILE, path, "does not name a file");
    path = test_path("refused.npy");
    assert_io_refused(ffn_npy_writer_open(path, 2, negative, &writer), FFN_INVALID, "", "shape[1] is -1");
    assert_io_refused(ffn_npy_writer_open(path, 2, large, &writer), FFN_INVALID, "", "2^63");
    assert_io_refused(ffn_npy_writer_open(path, 1, NULL, &writer), FFN_INVALID, "", "shape is NULL");
    assert_io_refused(ffn_npy_writer_open(NULL, 1, shape, &writer), FFN_INVALID, "", "path is NULL");
    assert_io_refused(ffn_npy_writer_open(path, 1, shape, NULL), FFN_INVALID, "", "writer is NULL");
    assert_io_refused(ffn_npy_writer_append(NULL, NULL, 0), FFN_INVALID, "", "writer is NULL");
    assert_io_refused(ffn_npy_writer_finish(NULL), FFN_INVALID, "", "writer is NULL");
    assert_int_equal(test_folder_count(), before);
}

static void any_bits_come_back(void **state)
{
    (void)state;
    enum { ROWS = 37, COLUMNS = 1001 };
    static const int64_t shape[] = {ROWS, COLUMNS};
    float *numbers = test_alloc(ROWS * COLUMNS * sizeof *numbers), *got = test_alloc(ROWS * COLUMNS * sizeof *got);
    rng_t rng = rng_make(5 + test_seed());
    for (int i = 0; i < ROWS * COLUMNS; i++) numbers[i] = rng_any_bits(&rng);
    ffn_npy_writer_t *writer;
    ffn_npy_t *npy;
    assert_io_ok(ffn_npy_writer_open(test_path("bits.npy"), 2, shape, &writer));
    assert_io_ok(ffn_npy_writer_append(writer, numbers, ROWS * COLUMNS));
    assert_io_ok(ffn_npy_writer_finish(writer));
    assert_io_ok(ffn_npy_open(test_path("bits.npy"), &npy));
    assert_io_ok(ffn_npy_read(npy, 0, ROWS, got));
    assert_memory_equal(got, numbers, ROWS * COLUMNS * sizeof *got);
    ffn_npy_free(npy);
    free(numbers);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_what_numpy_writes),
        cmocka_unit_test(thirty_two_dimensions_come_back),
        cmocka_unit_test(the_locale_changes_no_byte),
        cmocka_unit_test(a_file_appears_when_it_is_finished_and_replaces_what_was_there),
        cmocka_unit_test(nothing_is_left_of_a_file_that_was_given_up),
        cmocka_unit_test(two_writers_of_one_path_do_not_meet),
        cmocka_unit_test(a_full_disk_is_an_error_and_leaves_nothing),
        cmocka_unit_test(what_cannot_be_written_is_refused_at_once),
        cmocka_unit_test(any_bits_come_back),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
