/* SPDX-License-Identifier: MIT
 *
 * The safetensors reader: what is valid is read, what is not is refused with a sentence that names the file and the fault.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/support/checkpoint.h"
#include "io/support/files.h"
#include "support/safetensors.h"

/* ------------------------------------------------------- the files of the shared data */

static void check_shared_file(char *field[8])
{
    const char *file = field[0], *accepted = field[1], *remark = field[4];
    char name[256];
    snprintf(name, sizeof name, "safetensors/%s", file);
    const char *path = shared_path(name);
    checkpoint_t *checkpoint = NULL;
    ffn_status_t status = ffnio_checkpoint_open(path, 0, &checkpoint);
    bool may_refuse = !strncmp(remark, "format:", 7);
    if (!strcmp(accepted, "no") || (status && may_refuse)) {
        assert_io_refused(status, FFN_FORMAT, path, "");
        assert_null(checkpoint);
        return;
    }
    assert_io_ok_at(status, path);
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const stored_tensor_t *tensor = &checkpoint->tensors[i];
        float *got = test_alloc((size_t)tensor->elements * sizeof(float));
        status = ffnio_tensor_read(checkpoint, tensor, 0, tensor->elements, got);
        if (tensor->dtype->element == ELEMENT_OTHER) assert_io_refused(status, FFN_UNSUPPORTED, path, tensor->dtype->name);
        else assert_io_ok_at(status, path);
        if (tensor->dtype->element == ELEMENT_F32) assert_memory_equal(got, bytes + tensor->offset, (size_t)tensor->bytes);
        free(got);
    }
    free(bytes);
    ffnio_checkpoint_close(checkpoint);
}

static void every_shared_file_is_read_or_refused_as_its_index_says(void **state)
{
    (void)state;
    if (!for_each_row("safetensors/index.tsv", check_shared_file)) skip();
}

static void shared_files_have_the_values_they_are_said_to_have(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    checkpoint_t *checkpoint = open_ok(shared_path("safetensors/valid/all_dtypes.safetensors"));
    static const char *names[] = {"t_F64", "t_F32", "t_F16", "t_BF16"};
    assert_int_equal(checkpoint->tensor_count, 15);
    for (int i = 0; i < 4; i++) {
        float got[6];
        assert_io_ok(ffnio_tensor_read(checkpoint, tensor_of(checkpoint, names[i]), 0, 6, got));
        for (int k = 0; k < 6; k++) assert_true(got[k] == 0.25f * (float)k);
    }
    ffnio_checkpoint_close(checkpoint);
    checkpoint = open_ok(shared_path("safetensors/valid/rank_9.safetensors"));
    assert_int_equal(checkpoint->tensors[0].ndim, 9);
    ffnio_checkpoint_close(checkpoint);
}

static void a_sharded_checkpoint_has_the_tensors_of_the_whole_one(void **state)
{
    (void)state;
    if (!shared_data_present()) skip();
    static const char *paths[] = {"stories260k-sharded", "stories260k-sharded/model.safetensors.index.json"};
    safetensors_t whole = safetensors_open("stories260k-ffn.safetensors");
    for (int way = 0; way < 2; way++) {
        checkpoint_t *checkpoint = open_ok(shared_path(paths[way]));
        assert_int_equal(checkpoint->tensor_count, 8);
        assert_int_equal(checkpoint->file_count, 2);
        for (int64_t i = 0; i < 8; i++) {
            const stored_tensor_t *tensor = &checkpoint->tensors[i];
            safetensor_t expected = safetensors_get(&whole, "%s", tensor->name);
            float *got = test_alloc((size_t)tensor->bytes);
            assert_io_ok(ffnio_tensor_read(checkpoint, tensor, 0, tensor->elements, got));
            assert_int_equal(tensor->ndim, expected.ndim);
            assert_memory_equal(got, expected.data, (size_t)tensor->bytes);
            free(got);
        }
        ffnio_checkpoint_close(checkpoint);
    }
    safetensors_close(&whole);
}

/* ------------------------------------------------------------------ files made here */

#define EMPTY_AT_8 ENTRY("e", "F32", "[0,3]", 8, 8)

static void valid_headers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        int64_t tensors;
    } rows[] = {
        {ONE, 32, 1},
        {ONE " \n\t\r   ", 32, 1},
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"}," ENTRY("w", "F32", "[2]", 0, 8) "}", 8, 1},
        {"{" ENTRY("b", "F32", "[2]", 8, 16) "," EMPTY_AT_8 "," ENTRY("a", "F32", "[2]", 0, 8) "}", 16, 3},
        {"{" ENTRY("e", "F32", "[0]", 0, 0) "," ENTRY("f", "F64", "[3,0,9223372036854775807]", 0, 0) "}", 0, 2},
        {"{" ENTRY("s", "F32", "[]", 0, 4) "}", 4, 1},
        {"{" ENTRY("o", "U8", "[3]", 0, 3) "," ENTRY("w", "F32", "[1]", 3, 7) "}", 7, 2},
        {"{" ENTRY("w", "F4", "[6]", 0, 3) "," ENTRY("x", "F6_E2M3", "[4]", 3, 6) "," ENTRY("y", "F8_E8M0", "[1]", 6, 7) "}", 7, 3},
        {"{" ENTRY("c", "C64", "[2]", 0, 16) "," ENTRY("u", "BOOL", "[1,1,1,1,1,1,1,1,1,1]", 16, 17) "}", 17, 2},
        {"{\"\":{\"data_offsets\":[0,4],\"extra\":[[1.5e3]],\"shape\":[1],\"dtype\":\"F32\"}}", 4, 1},
        {"{" ENTRY("\xc3\xa9\xf0\x9f\x98\x80\\u00e9\\n\\\"", "F32", "[1]", 0, 4) "}", 4, 1},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        checkpoint_t *checkpoint = open_ok(test_safetensors("valid.safetensors", rows[i].header, NULL, rows[i].data));
        if (checkpoint->tensor_count != rows[i].tensors) fail_msg("%s: %d tensors", rows[i].header, (int)checkpoint->tensor_count);
        ffnio_checkpoint_close(checkpoint);
    }
}

static void invalid_headers_are_refused_with_their_fault(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *words;
    } rows[] = {
        {"", 32, "'{'"},
        {" " ONE, 32, "'{'"},
        {"[]", 0, "'{'"},
        {"\xef\xbb\xbf" ONE, 32, "'{'"},
        {"{\"w\":", 0, "header|not valid JSON"},
        {"{'w':1}", 0, "not valid JSON"},
        {"{\"w\":1,}", 0, "not valid JSON"},
        {ONE "{}", 32, "not valid JSON"},
        {ONE "x", 32, "not valid JSON"},
        {"{\"\xc0\xaf\":1}", 0, "not valid JSON"},
        {"{\"\\ud800\":1}", 0, "not valid JSON"},
        {"{\"a\\u0000b\":1}", 0, "not valid JSON"},
        {"{\"w\":NaN}", 0, "not valid JSON"},
        {"{" ENTRY("w", "F32", "[2]", 0, 8) "," ENTRY("w", "F32", "[2]", 8, 16) "}", 16, "duplicate|w"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate|__metadata__"},
        {"{\"__metadata__\":{\"a\":3}}", 0, "__metadata__|\"a\"|an integer"},
        {"{\"__metadata__\":[]}", 0, "__metadata__|an array"},
        {"{" ENTRY("__metadata__", "F32", "[2]", 0, 8) "}", 8, "__metadata__"},
        {"{\"w\":5}", 0, "\"w\"|an integer"},
        {"{\"w\":[\"F32\",[1],[0,4]]}", 4, "\"w\"|an array"},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype|\"w\"|missing"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape|\"w\"|missing"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets|\"w\"|missing"},
        {"{\"w\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype|an integer"},
        {"{" ENTRY("w", "F7", "[1]", 0, 4) "}", 4, "dtype|\"F7\""},
        {"{" ENTRY("w", "f32", "[1]", 0, 4) "}", 4, "dtype|\"f32\""},
        {"{" ENTRY("w", "F32", "null", 0, 4) "}", 4, "shape|null"},
        {"{" ENTRY("w", "F32", "[[1]]", 0, 4) "}", 4, "shape|an array"},
        {"{" ENTRY("w", "F32", "[1.0]", 0, 4) "}", 4, "shape|no integer"},
        {"{" ENTRY("w", "F32", "[-1,-1]", 0, 4) "}", 4, "shape|-1"},
        {"{" ENTRY("w", "F32", "[4611686018427387904]", 0, 0) "}", 0, "4611686018427387904|F32"},
        {"{" ENTRY("w", "F32", "[4611686018427387905]", 0, 4) "}", 4, "4611686018427387905"},
        {"{" ENTRY("w", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, "2^63"},
        {"{" ENTRY("w", "F32", "[18446744073709551616]", 0, 4) "}", 4, "too big integer"},
        {"{" ENTRY("w", "F32", "[2,5]", 0, 32) "}", 32, "32 bytes|10 elements|F32"},
        {"{" ENTRY("w", "F4", "[3]", 0, 1) "}", 1, "3 elements|F4"},
        {"{" ENTRY("w", "F32", "[1]", -4, 0) "}", 4, "data_offsets|-4"},
        {"{" ENTRY("w", "F32", "[1]", 4, 0) "}", 4, "4 and 0"},
        {"{" ENTRY("w", "F32", "[1]", 4, 8) "}", 4, "at most"},
        {"{" ENTRY("w", "F32", "[1]", 0, 9223372036854775807) "}", 4, "9223372036854775807"},
        {"{" ENTRY("w", "F32", "[1]", 0, 18446744073709551000) "}", 4, "too big integer"},
        {"{" ENTRY("w", "F32", "[1]", 0, 4e0) "}", 4, "no integer"},
        {"{" ENTRY("w", "F32", "[1]", 0, 04) "}", 4, "not valid JSON"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two integers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "two integers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "an object"},
        {ONE, 31, "at most"},
        {ONE, 33, "ends at 32|33"},
        {"{}", 1, "ends at 0"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 4, 12) "}", 12, "\"b\"|begins at 4|8"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 0, 8) "}", 8, "\"b\"|begins at 0"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 12, 20) "}", 20, "\"b\"|begins at 12|8"},
        {"{" ENTRY("a", "F32", "[2]", 4, 12) "}", 12, "\"a\"|begins at 4|0"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("e", "F32", "[0]", 4, 4) "}", 8, "begins at 4"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("e", "F32", "[0]", 9, 9) "}", 8, "at most"},
        {"{" ENTRY("line\\nend\\u001b[31m", "F7", "[1]", 0, 4) "}", 4, "line?end?[31m"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        checkpoint_t *checkpoint = (checkpoint_t *)64;
        const char *path = test_safetensors("invalid.safetensors", rows[i].header, NULL, rows[i].data);
        assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, path, rows[i].words);
        assert_null(checkpoint);
    }
}

static void a_header_length_that_lies_is_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned char length[8];
        const char *words;
    } rows[] = {
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "18446744073709551615|100000000"},
        {{0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "18446744073709551611"},
        {{0, 0, 0, 0, 0, 0, 0, 0x80}, "9223372036854775808"},
        {{1, 0xe1, 0xf5, 5}, "100000001"},
        {{0, 0xe1, 0xf5, 5}, "100000000|only 2 bytes"},
        {{3}, "3|only 2 bytes"},
        {{0}, "'{'"},
    };
    checkpoint_t *checkpoint;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        unsigned char bytes[10];
        memcpy(bytes, rows[i].length, 8);
        memcpy(bytes + 8, "{}", 2);
        const char *path = test_file("lies.safetensors", bytes, sizeof bytes);
        assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, path, rows[i].words);
    }
    for (size_t size = 0; size < 8; size++) {
        const char *path = test_file("short.safetensors", "\2\0\0\0\0\0\0\0{}", size);
        assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, path, "8 bytes");
    }
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t size;
    checkpoint_t *checkpoint;
    unsigned char *bytes = read_whole(test_safetensors("whole.safetensors", ONE, NULL, 32), &size);
    for (size_t cut = 0; cut < size; cut++) {
        const char *path = test_file("cut.safetensors", bytes, cut);
        assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FORMAT, path, "");
    }
    free(bytes);
}

/* The thread's stack: 64 kB, and 62 for thread-local variables of OpenBLAS, which glibc puts there too. Sanitizers need more for the same calls. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SMALL_STACK = 1 << 20 };
#else
enum { SMALL_STACK = 126 << 10 };
#endif

static void *open_on_thread(void *path)
{
    checkpoint_t *checkpoint = NULL;
    float number = 0;
    if (ffnio_checkpoint_open(path, 0, &checkpoint)) return strdup(ffn_io_last_error());
    if (checkpoint->tensor_count) ffnio_tensor_read(checkpoint, &checkpoint->tensors[0], 0, 1, &number);
    ffnio_checkpoint_close(checkpoint);
    return NULL;
}

static char *open_on_small_stack(const char *path)
{
    pthread_t thread;
    pthread_attr_t attributes;
    void *sentence;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, open_on_thread, (void *)(uintptr_t)path), 0);
    pthread_join(thread, &sentence);
    pthread_attr_destroy(&attributes);
    return sentence;
}

static char *repeat(char *to, const char *text, int times)
{
    size_t length = strlen(text);
    for (int i = 0; i < times; i++, to += length) memcpy(to, text, length);
    return to;
}

static void nesting_is_limited_and_64_kB_of_stack_are_enough(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close;
        int depth;
        bool read;
    } rows[] = {{"[", "]", 60, true}, {"[", "]", 62, true}, {"[", "]", 63, false}, {"[", "]", 100000, false}, {"{\"x\":", "}", 100000, false},
                {"[", "", 1000000, false}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        char *header = test_alloc((size_t)rows[i].depth * 8 + 200), *to = header;
        to += sprintf(to, "{\"w\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4],\"extra\":");
        to = repeat(to, rows[i].open, rows[i].depth);
        if (*rows[i].open == '{') to += sprintf(to, "1");
        to = repeat(to, rows[i].close, rows[i].depth);
        sprintf(to, "}}");
        char *sentence = open_on_small_stack(test_safetensors("deep.safetensors", header, NULL, 4));
        if (rows[i].read && sentence) fail_msg("depth %d is refused: %s", rows[i].depth, sentence);
        if (!rows[i].read && (!sentence || !strstr(sentence, "deeper than 64"))) fail_msg("depth %d: %s", rows[i].depth, sentence ? sentence : "read");
        free(sentence);
        free(header);
    }
}

static void brackets_in_names_are_no_nesting(void **state)
{
    (void)state;
    char header[600] = "{\"\\\"";
    for (int k = 0; k < 200; k++) strcat(header, "[{");
    strcat(header, "\\\\\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    ffnio_checkpoint_close(open_ok(test_safetensors("brackets.safetensors", header, NULL, 4)));
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    checkpoint_t *checkpoint;
    const char *path = test_path("absent.safetensors");
    assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FILE, path, "open");
    path = test_path("pipe.safetensors");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FILE, path, "pipe");
    assert_io_refused(ffnio_checkpoint_open("/dev/zero", 0, &checkpoint), FFN_FILE, "/dev/zero", "device");
    path = test_path("folder");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_io_refused(ffnio_checkpoint_open(path, 0, &checkpoint), FFN_FILE, path, "neither|model.safetensors.index.json");
    assert_io_refused(ffnio_checkpoint_open("", 0, &checkpoint), FFN_FILE, "", "open");
    const char *long_name = test_path("a/very/long/path/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/its end.safetensors");
    assert_io_refused(ffnio_checkpoint_open(long_name, 0, &checkpoint), FFN_FILE, "its end.safetensors", "open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shared_file_is_read_or_refused_as_its_index_says),
        cmocka_unit_test(shared_files_have_the_values_they_are_said_to_have),
        cmocka_unit_test(a_sharded_checkpoint_has_the_tensors_of_the_whole_one),
        cmocka_unit_test(valid_headers_are_read),
        cmocka_unit_test(invalid_headers_are_refused_with_their_fault),
        cmocka_unit_test(a_header_length_that_lies_is_refused),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(nesting_is_limited_and_64_kB_of_stack_are_enough),
        cmocka_unit_test(brackets_in_names_are_no_nesting),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
