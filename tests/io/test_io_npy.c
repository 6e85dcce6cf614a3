/* SPDX-License-Identifier: MIT
 *
 * Reading .npy files: every flavour gives the values in C order, a bad one is refused with a sentence that names the file and the fault.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/support/files.h"
#include "support/safetensors.h"

static ffn_npy_info_t info_of(const ffn_npy_t *npy)
{
    ffn_npy_info_t info = {.struct_size = sizeof info};
    assert_io_ok(ffn_npy_info(npy, &info));
    return info;
}

static ffn_npy_t *open_ok(const char *path)
{
    ffn_npy_t *npy;
    assert_io_ok_at(ffn_npy_open(path, &npy), path);
    return npy;
}

/* ------------------------------------------------------- the files of the shared data */

/* Layer 0 of stories260K: the corner of the gate that most samples hold, and the norm. */
static safetensors_t stories;

static void check_values(const char *what, const char *path)
{
    ffn_npy_t *npy = open_ok(path);
    ffn_npy_info_t info = info_of(npy);
    safetensor_t gate = safetensors_get(&stories, "model.layers.0.mlp.gate_proj.weight");
    safetensor_t norm = safetensors_get(&stories, "model.layers.0.post_attention_layernorm.weight");
    bool is_norm = strstr(what, "64 values"), is_scalar = strstr(what, "first element");
    assert_int_equal(info.rows, is_norm || is_scalar ? 1 : 6);
    assert_int_equal(info.columns, is_norm ? 64 : is_scalar ? 1 : 16);
    float *got = test_alloc((size_t)(info.rows * info.columns) * sizeof *got);
    assert_io_ok(ffn_npy_read(npy, 0, info.rows, got));
    for (int64_t row = 0; row < info.rows; row++)
        for (int64_t column = 0; column < info.columns; column++) {
            float expected = is_norm ? norm.data[column] : gate.data[row * 64 + column], value = got[row * info.columns + column];
            float tolerance = info.itemsize == 2 ? fabsf(expected) * 0x1p-11f + 0x1p-25f : 0;
            if (fabsf(value - expected) > tolerance) fail_msg("%s [%d, %d]: expected %.9g, got %.9g", path, (int)row, (int)column, (double)expected, (double)value);
        }
    free(got);
    ffn_npy_free(npy);
}

static void check_shared_file(char *field[8])
{
    const char *file = field[0], *what = field[2];
    char name[256];
    snprintf(name, sizeof name, "npy/%s", file);
    const char *path = shared_path(name);
    ffn_npy_t *npy = NULL;
    bool other_dtype = !strncmp(file, "i1", 2) || !strncmp(file, "bf16", 4) || strstr(file, "structured") || strstr(file, "strings") ||
                       !strcmp(file, "bad_dtype.npy");
    if (strstr(file, ".npz") || other_dtype || !strncmp(what, "refuse", 6)) {
        assert_io_refused(ffn_npy_open(path, &npy), other_dtype ? FFN_UNSUPPORTED : FFN_FORMAT, path, "");
        assert_null(npy);
    } else {
        check_values(what, path);
    }
}

static void every_shared_file_is_read_or_refused_as_its_index_says(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    stories = safetensors_open("stories260k-ffn.safetensors");
    assert_true(for_each_row("npy/index.tsv", check_shared_file) > 20);
    safetensors_close(&stories);
}

/* ------------------------------------------------------------------ files made here */

/* A version 1 file of that dictionary and data. */
static const char *npy_file(const char *name, const char *dictionary, const void *data, size_t size)
{
    size_t length = strlen(dictionary);
    unsigned char *bytes = test_alloc(10 + length + size);
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (unsigned char)(length & 255);
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, dictionary, length);
    if (size) memcpy(bytes + 10 + length, data, size);
    const char *path = test_file(name, bytes, 10 + length + size);
    free(bytes);
    return path;
}

#define DICT(descr, fortran, shape) "{'descr': '" descr "', 'fortran_order': " fortran ", 'shape': " shape ", }\n"
#define F4 DICT("<f4", "False", "(2, 3)")

static void every_way_of_writing_the_header_is_read(void **state)
{
    (void)state;
    static const char *dictionaries[] = {
        F4,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}                \n",
        "  { 'shape' : ( 2L , 3L , ) ,\n\t'descr' : '=f4' , 'fortran_order' : False , } \n",
        "{'fortran_order': False, 'descr': '|f4', 'shape': (2L, 3L), }\r\n",
    };
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    for (int64_t i = 0; i < COUNT_OF(dictionaries); i++) {
        ffn_npy_t *npy = open_ok(npy_file("ways.npy", dictionaries[i], data, sizeof data));
        float got[6];
        assert_io_ok(ffn_npy_read(npy, 0, 2, got));
        assert_memory_equal(got, data, sizeof data);
        ffn_npy_free(npy);
    }
}

static void bad_headers_are_refused_with_their_fault(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        ffn_status_t status;
        const char *words;
    } rows[] = {
        {"", FFN_FORMAT, "'{'"},
        {"['descr']", FFN_FORMAT, "'{'"},
        {"{}", FFN_FORMAT, "no descr"},
        {"{'descr': '<f4', 'fortran_order': False}", FFN_FORMAT, "no shape"},
        {"{'descr': '<f4', 'shape': (2, 3)}", FFN_FORMAT, "no fortran_order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}", FFN_FORMAT, "other than"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", FFN_FORMAT, "descr twice"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", FFN_FORMAT, "','"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3)}", FFN_FORMAT, "':'"},
        {"{descr: '<f4', 'fortran_order': False, 'shape': (2, 3)}", FFN_FORMAT, "quotes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", FFN_FORMAT, "'}'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x", FFN_FORMAT, "end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}{", FFN_FORMAT, "end"},
        {"{'descr': '<f4, 'fortran_order: False", FFN_UNSUPPORTED, "dtype"},
        {"{'descr", FFN_FORMAT, "quotes"},
        {"{,}", FFN_FORMAT, "quotes"},
        {"{'descr': 5, 'fortran_order': False, 'shape': (2, 3)}", FFN_FORMAT, "descr"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", FFN_UNSUPPORTED, "records"},
        {DICT("<i4", "False", "(2, 3)"), FFN_UNSUPPORTED, "<i4"},
        {DICT("<f3", "False", "(2, 3)"), FFN_UNSUPPORTED, "<f3"},
        {DICT("f4", "False", "(2, 3)"), FFN_UNSUPPORTED, "f4"},
        {DICT("<V2", "False", "(2, 3)"), FFN_UNSUPPORTED, "<V2"},
        {DICT("|O", "False", "(2, 3)"), FFN_UNSUPPORTED, "|O"},
        {DICT("", "False", "(2, 3)"), FFN_UNSUPPORTED, "dtype"},
        {DICT("xf4", "False", "(2, 3)"), FFN_UNSUPPORTED, "xf4"},
        {DICT("<f4\\x00", "False", "(2, 3)"), FFN_UNSUPPORTED, "<f4"},
        {DICT("<f4", "'no'", "(2, 3)"), FFN_FORMAT, "fortran_order"},
        {DICT("<f4", "0", "(2, 3)"), FFN_FORMAT, "fortran_order"},
        {DICT("<f4", "false", "(2, 3)"), FFN_FORMAT, "fortran_order"},
        {DICT("<f4", "False", "6"), FFN_FORMAT, "tuple"},
        {DICT("<f4", "False", "(6)"), FFN_FORMAT, "tuple"},
        {DICT("<f4", "False", "[2, 3]"), FFN_FORMAT, "tuple"},
        {DICT("<f4", "False", "(2 3)"), FFN_FORMAT, "','"},
        {DICT("<f4", "False", "(,)"), FFN_FORMAT, "size"},
        {DICT("<f4", "False", "(2,,3)"), FFN_FORMAT, "size"},
        {DICT("<f4", "False", "(-1,)"), FFN_FORMAT, "size"},
        {DICT("<f4", "False", "(2.0, 3)"), FFN_FORMAT, "','"},
        {DICT("<f4", "False", "(02, 3)"), FFN_FORMAT, "begins with 0"},
        {DICT("<f4", "False", "(2, 3LL)"), FFN_FORMAT, "','"},
        {DICT("<f4", "False", "(9223372036854775808,)"), FFN_FORMAT, "2^63"},
        {DICT("<f4", "False", "(99999999999999999999999999,)"), FFN_FORMAT, "2^63"},
        {DICT("<f4", "False", "(4294967296, 4294967296)"), FFN_FORMAT, "2^63"},
        {DICT("<f4", "False", "(4611686018427387904,)"), FFN_FORMAT, "2^63"},
        {DICT("<f4", "False", "(4294967296, 4294967296, 0)"), FFN_FORMAT, "2^63"},
        {DICT("<f4", "False", "(1000000, 1000000)"), FFN_FORMAT, "4000000000000|24"},
        {DICT("<f4", "False", "(2, 4)"), FFN_FORMAT, "cut short|32|24"},
        {DICT("<f8", "False", "(2, 3)"), FFN_FORMAT, "cut short|48"},
        {DICT("<f4", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), FFN_FORMAT, "32"},
    };
    static const char data[24];
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        ffn_npy_t *npy = (ffn_npy_t *)64;
        const char *path = npy_file("bad.npy", rows[i].dictionary, data, sizeof data);
        ffn_status_t status = ffn_npy_open(path, &npy);
        if (!status) fail_msg("%s is read", rows[i].dictionary);
        assert_io_refused(status, rows[i].status, path, rows[i].words);
        assert_null(npy);
    }
}

static void bad_beginnings_are_refused_with_their_fault(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } rows[] = {
        {"", 0, "short"},
        {"\x93NUMPY\1\0\0", 9, "short"},
        {"\x93NUMPX\1\0\0\0", 10, "NUMPY"},
        {"PK\3\4\0\0\0\0\0\0\0\0", 12, "NUMPY"},
        {"\x93NUMPY\0\0\0\0", 10, "version 0.0"},
        {"\x93NUMPY\4\0\0\0\0\0", 12, "version 4.0"},
        {"\x93NUMPY\1\1\0\0", 10, "version 1.1"},
        {"\x93NUMPY\1\0\1\0", 10, "length is 1"},
        {"\x93NUMPY\1\0\xff\xff{}", 12, "65535"},
        {"\x93NUMPY\2\0\0\0", 10, "past the end"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff", 12, "4294967295"},
        {"\x93NUMPY\3\0\xf0\xff\xff\xff{}", 14, "4294967280"},
    };
    ffn_npy_t *npy;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *path = test_file("begin.npy", rows[i].bytes, rows[i].size);
        assert_io_refused(ffn_npy_open(path, &npy), FFN_FORMAT, path, rows[i].words);
    }
    /* a header of 2 MB that the file really has */
    size_t size = 2 << 20;
    char *bytes = test_alloc(size);
    memset(bytes, ' ', size);
    memcpy(bytes, "\x93NUMPY\2\0\0\0\x10\0{", 13);
    const char *path = test_file("begin.npy", bytes, size);
    assert_io_refused(ffn_npy_open(path, &npy), FFN_FORMAT, path, "1048576");
    free(bytes);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t size;
    ffn_npy_t *npy;
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    unsigned char *bytes = read_whole(npy_file("whole.npy", F4, data, sizeof data), &size);
    for (size_t cut = 0; cut < size; cut++) {
        const char *path = test_file("cut.npy", bytes, cut);
        assert_io_refused(ffn_npy_open(path, &npy), FFN_FORMAT, path, "");
    }
    /* what follows the array is none of its business: NumPy saves several in one file */
    bytes = realloc(bytes, size + 1);
    ffn_npy_free(open_ok(test_file("longer.npy", bytes, size + 1)));
    free(bytes);
}

/* Element [i] of the arrays below, exact in every type. */
static float value_at(int64_t i)
{
    return (float)(i * 37 % 2011) - 1000;
}

/* value_at(k) as an element of that type and byte order. */
static void store(unsigned char *to, int itemsize, bool big, float value)
{
    uint64_t bits = 0;
    if (itemsize == 8) {
        double wide = (double)value;
        memcpy(&bits, &wide, 8);
    } else {
        uint32_t single;
        memcpy(&single, &value, 4);
        bits = single;
        if (itemsize == 2) {
            int exponent = (int)(single >> 23 & 255) - 127 + 15;
            bits = (single >> 16 & 0x8000u) | (value == 0 ? 0 : (uint32_t)exponent << 10 | (single >> 13 & 1023));
        }
    }
    for (int k = 0; k < itemsize; k++) to[k] = (unsigned char)(bits >> 8 * (big ? itemsize - 1 - k : k));
}

/* A file of that shape whose element number k in C order is value_at(k). */
static const char *array_file(int itemsize, bool big, bool fortran, int ndim, const int64_t *shape)
{
    char dictionary[600];
    int used = sprintf(dictionary, "{'descr': '%cf%d', 'fortran_order': %s, 'shape': (", big ? '>' : '<', itemsize, fortran ? "True" : "False");
    int64_t elements = 1;
    for (int i = 0; i < ndim; i++) {
        used += sprintf(dictionary + used, "%d,", (int)shape[i]);
        elements *= shape[i];
    }
    sprintf(dictionary + used, "), }\n");
    unsigned char *data = test_alloc((size_t)(elements * itemsize));
    for (int64_t k = 0; k < elements; k++) {
        int64_t position = k;
        if (fortran) {
            int64_t index[32], rest = k;
            for (int i = ndim; i-- > 0; rest /= shape[i]) index[i] = rest % shape[i];
            position = 0;
            for (int i = ndim; i-- > 0;) position = position * shape[i] + index[i];
        }
        store(data + position * itemsize, itemsize, big, value_at(k));
    }
    const char *path = npy_file("array.npy", dictionary, data, (size_t)(elements * itemsize));
    free(data);
    return path;
}

/* Reads the file in blocks of so many rows. */
static void check_array(const char *path, int64_t rows, int64_t columns, int64_t block)
{
    ffn_npy_t *npy = open_ok(path);
    assert_int_equal(info_of(npy).rows, rows);
    assert_int_equal(info_of(npy).columns, columns);
    float *got = test_alloc((size_t)(block * columns + 2) * sizeof *got);
    for (int64_t first = 0; first < rows; first += block) {
        int64_t count = rows - first < block ? rows - first : block;
        got[0] = got[count * columns + 1] = 12345;
        assert_io_ok(ffn_npy_read(npy, first, count, got + 1));
        for (int64_t k = 0; k < count * columns; k++)
            if (got[k + 1] != value_at(first * columns + k))
                fail_msg("%s, block %d: element %d is %g, not %g", path, (int)block, (int)(first * columns + k), (double)got[k + 1],
                         (double)value_at(first * columns + k));
        assert_true(got[0] == 12345 && got[count * columns + 1] == 12345);
    }
    free(got);
    ffn_npy_free(npy);
}

static void every_type_order_and_shape_is_read_in_blocks_of_rows(void **state)
{
    (void)state;
    static const struct {
        int ndim;
        int64_t shape[5], rows, columns;
    } shapes[] = {
        {0, {0}, 1, 1},           {1, {7}, 1, 7},           {1, {0}, 1, 0},           {2, {5, 9}, 5, 9},           {2, {9, 1}, 9, 1},
        {2, {1, 9}, 1, 9},        {2, {0, 9}, 0, 9},        {2, {9, 0}, 9, 0},        {3, {3, 4, 5}, 12, 5},       {4, {2, 3, 4, 5}, 24, 5},
        {4, {70, 2, 3, 2}, 420, 2}, {5, {1, 3, 1, 2, 4}, 6, 4}, {3, {4, 0, 2}, 0, 2},   {3, {100, 30, 3}, 3000, 3},  {2, {20000, 3}, 20000, 3},
    };
    static const int itemsizes[] = {2, 4, 8};
    for (int64_t i = 0; i < COUNT_OF(shapes); i++)
        for (int variant = 0; variant < 12; variant++) {
            if (test_quick() && variant % 5) continue;
            const char *path = array_file(itemsizes[variant % 3], variant / 3 % 2, variant / 6, shapes[i].ndim, shapes[i].shape);
            for (int64_t block = 1; block <= 2 * shapes[i].rows; block = block * 3 + (block == 1)) {
                if (shapes[i].rows / block > 1000) continue;
                check_array(path, shapes[i].rows, shapes[i].columns, block);
            }
        }
}

static void halves_and_doubles_keep_their_special_values(void **state)
{
    (void)state;
    static const uint16_t halves[] = {0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x8000, 0x8001, 0x3c00};
    static const float half_values[] = {0x1p-24f, 0x1.ff8p-15f, 0x1p-14f, 65504, INFINITY, -INFINITY, -0.0f, -0x1p-24f, 1};
    static const double doubles[] = {1e300, -1e300, 1e-50, 0x1.000001p0, 0x1.000003p0, 0x1p-149, 0x1.8p-149, INFINITY};
    static const float double_values[] = {INFINITY, -INFINITY, 0, 1, 0x1.000004p0f, 0x1p-149f, 0x1p-148f, INFINITY};
    float got[9];
    ffn_npy_t *npy = open_ok(npy_file("half.npy", DICT("<f2", "False", "(9,)"), halves, sizeof halves));
    assert_io_ok(ffn_npy_read(npy, 0, 1, got));
    assert_memory_equal(got, half_values, sizeof half_values);
    ffn_npy_free(npy);
    npy = open_ok(npy_file("double.npy", DICT("<f8", "False", "(8,)"), doubles, sizeof doubles));
    assert_io_ok(ffn_npy_read(npy, 0, 1, got));
    assert_memory_equal(got, double_values, sizeof double_values);
    ffn_npy_free(npy);
    static const uint16_t nan = 0x7e01;
    npy = open_ok(npy_file("nan.npy", DICT("<f2", "False", "()"), &nan, 2));
    assert_io_ok(ffn_npy_read(npy, 0, 1, got));
    assert_true(isnan(got[0]));
    ffn_npy_free(npy);
}

static void rows_that_are_not_there_are_refused(void **state)
{
    (void)state;
    static const int64_t shape[] = {4, 3}, bad[][2] = {{0, 5}, {4, 1}, {5, 0}, {-1, 1}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MIN, 1}};
    float got[12];
    for (int fortran = 0; fortran < 2; fortran++) {
        const char *path = array_file(4, false, fortran, 2, shape);
        ffn_npy_t *npy = open_ok(path);
        for (int64_t i = 0; i < COUNT_OF(bad); i++) assert_io_refused(ffn_npy_read(npy, bad[i][0], bad[i][1], got), FFN_INVALID, path, "4");
        assert_io_ok(ffn_npy_read(npy, 4, 0, NULL));
        assert_io_refused(ffn_npy_read(npy, 0, 1, NULL), FFN_INVALID, "", "out is NULL");
        ffn_npy_free(npy);
    }
}

static void a_file_cut_short_while_it_is_open_gives_an_error(void **state)
{
    (void)state;
    static const int64_t shape[] = {30000, 2};
    float *got = test_alloc(60000 * sizeof *got);
    for (int variant = 0; variant < 4; variant++) {
        const char *path = array_file(variant % 2 ? 2 : 4, false, variant / 2, 2, shape);
        ffn_npy_t *npy = open_ok(path);
        assert_int_equal(truncate(path, 1000), 0);
        assert_io_refused(ffn_npy_read(npy, 0, 30000, got), FFN_FILE, path, "cut short");
        assert_io_refused(ffn_npy_read(npy, 29000, 1, got), FFN_FILE, path, "cut short");
        ffn_npy_free(npy);
    }
    free(got);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    ffn_npy_t *npy = (ffn_npy_t *)64;
    float got[1] = {0};
    assert_io_refused(ffn_npy_open(NULL, &npy), FFN_INVALID, "", "path is NULL");
    assert_null(npy);
    assert_io_refused(ffn_npy_open("x.npy", NULL), FFN_INVALID, "", "npy is NULL");
    assert_io_refused(ffn_npy_read(NULL, 0, 1, got), FFN_INVALID, "", "npy is NULL");
    ffn_npy_info_t info = {.struct_size = sizeof info};
    assert_io_refused(ffn_npy_info(NULL, &info), FFN_INVALID, "", "npy is NULL");
    npy = open_ok(npy_file("good.npy", DICT("<f4", "False", "()"), got, 4));
    assert_io_refused(ffn_npy_info(npy, NULL), FFN_INVALID, "", "NULL");
    info.struct_size = 3;
    assert_io_refused(ffn_npy_info(npy, &info), FFN_INVALID, "", "struct_size");
    ffn_npy_free(npy);
    ffn_npy_free(NULL);
    const char *path = test_path("absent.npy");
    assert_io_refused(ffn_npy_open(path, &npy), FFN_FILE, path, "open");
    assert_io_refused(ffn_npy_open("/dev/null", &npy), FFN_FILE, "/dev/null", "device");
    path = test_path("folder.npy");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_io_refused(ffn_npy_open(path, &npy), FFN_FILE, path, "folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shared_file_is_read_or_refused_as_its_index_says),
        cmocka_unit_test(every_way_of_writing_the_header_is_read),
        cmocka_unit_test(bad_headers_are_refused_with_their_fault),
        cmocka_unit_test(bad_beginnings_are_refused_with_their_fault),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(every_type_order_and_shape_is_read_in_blocks_of_rows),
        cmocka_unit_test(halves_and_doubles_keep_their_special_values),
        cmocka_unit_test(rows_that_are_not_there_are_refused),
        cmocka_unit_test(a_file_cut_short_while_it_is_open_gives_an_error),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
