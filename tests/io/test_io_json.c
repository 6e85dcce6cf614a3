/* SPDX-License-Identifier: MIT
 *
 * JSON as libffn-io takes it: numbers mean the same in every locale, and what is no valid JSON is refused with its place.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/json.h"
#include "io/support/files.h"

static json_t *parse_ok(const char *text)
{
    json_t *root;
    assert_io_ok_at(ffnio_json_parse("x.json", "it", text, (int64_t)strlen(text), &root), text);
    return root;
}

static void check_number(const char *text, double expected)
{
    char json[100];
    snprintf(json, sizeof json, "{\"number\":%s}", text);
    json_t *root = parse_ok(json);
    double got = json_number_value(json_object_get(root, "number"));
    if (got != expected) fail_msg("%s is %.17g", text, got);
    json_decref(root);
}

static void check_numbers(void)
{
    check_number("1e-05", 1e-5);
    check_number("1.5", 1.5);
    check_number("-0.044715", -0.044715);
    check_number("1E+2", 100);
    check_number("9223372036854775807", 9223372036854775807.0);
}

static void numbers_mean_the_same_in_every_locale(void **state)
{
    (void)state;
    check_numbers();
    char *saved = strdup(setlocale(LC_ALL, NULL));
    bool other = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (other) {
        char number[16];
        snprintf(number, sizeof number, "%.1f", 1.5);
        assert_string_equal(number, "1,5"); /* the locale is in force */
        check_numbers();
        json_t *root;
        assert_io_refused(ffnio_json_parse("x.json", "it", "{\"a\":1,5}", 9, &root), FFN_FORMAT, "x.json", "not valid JSON");
        setlocale(LC_ALL, saved);
    }
    free(saved);
    if (!other) skip();
}

static void what_is_not_valid_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "byte 0"},
        {"{\"a\":1,\"a\":1}", "duplicate"},
        {"{\"a\":{\"b\":1,\"b\":2}}", "duplicate"},
        {"{\"a\":01}", "not valid"},
        {"{\"a\":.5}", "not valid"},
        {"{\"a\":1e}", "not valid"},
        {"{\"a\":1e999}", "overflow"},
        {"{\"a\":9223372036854775808}", "too big"},
        {"{\"a\":Infinity}", "not valid"},
        {"{\"a\":\"\t\"}", "control character"},
        {"{\"a\":\"\xed\xa0\x80\"}", "decode byte 0xed"},
        {"{\"a\":\"\\udc00\"}", "not valid"},
        {"{\"a\":\"\\u0000\"}", "not valid"},
        {"{\"a\":1}\xff", "not valid"},
        {"// comment\n{}", "not valid"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        json_t *root = (json_t *)64;
        assert_io_refused(ffnio_json_parse("x.json", "it", rows[i].text, (int64_t)strlen(rows[i].text), &root), FFN_FORMAT, "x.json", rows[i].words);
        assert_null(root);
    }
}

static void a_file_of_something_else_is_refused(void **state)
{
    (void)state;
    json_t *root;
    const char *path = test_file("array.json", "[1]", 3);
    assert_io_refused(ffnio_json_read(path, &root), FFN_FORMAT, path, "an array|object");
    path = test_path("absent.json");
    assert_io_refused(ffnio_json_read(path, &root), FFN_FILE, path, "open");
    path = test_file("large.json", "{}", 2);
    assert_int_equal(truncate(path, FFNIO_JSON_LARGEST + 1), 0);
    assert_io_refused(ffnio_json_read(path, &root), FFN_FORMAT, path, "100000001|100000000");
    path = test_file("nul.json", "{}\0", 3);
    assert_io_refused(ffnio_json_read(path, &root), FFN_FORMAT, path, "not valid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_mean_the_same_in_every_locale),
        cmocka_unit_test(what_is_not_valid_is_refused_with_its_place),
        cmocka_unit_test(a_file_of_something_else_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
