/* SPDX-License-Identifier: MIT
 *
 * struct_size: callers of older and newer versions, and garbage. Each struct ends where an inaccessible page begins, so that a byte read or
 * written behind its size ends the test.
 */
#include "support/guard.h"
#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A struct of the interface as the library knows it, and a call that takes it. */
typedef struct kind {
    const char *name;
    uint32_t size;
    bool written;     /* the library writes it, up to its size */
    uint32_t least;   /* the smallest size that is enough for the call to succeed */
    const void *good;
    ffn_status_t (*call)(void *given);
} kind_t;

typedef struct fixture {
    witness_t witness;
    ffn_layer_options_t layer_options;
    ffn_context_options_t context_options;
    ffn_allocator_t allocator;
    ffn_run_t run;
    ffn_layer_info_t layer_info;
    ffn_context_info_t context_info;
    float y[15];
} fixture_t;

static fixture_t fixture;

static ffn_status_t create_layer(void *given)
{
    ffn_layer_t *layer = NOWHERE;
    ffn_status_t status = ffn_layer_create(NULL, given, &layer);
    if (status == FFN_OK) ffn_layer_free(layer);
    else assert_null(layer);
    return status;
}

static ffn_status_t create_context(void *given)
{
    ffn_context_t *context = NOWHERE;
    ffn_status_t status = ffn_context_create(given, &context);
    if (status == FFN_OK) ffn_context_free(context);
    else assert_null(context);
    return status;
}

static ffn_status_t create_layer_with_allocator(void *given)
{
    ffn_layer_options_t options = fixture.layer_options;
    options.allocator = given;
    return create_layer(&options);
}

static ffn_status_t create_context_with_allocator(void *given)
{
    ffn_context_options_t options = fixture.context_options;
    options.allocator = given;
    return create_context(&options);
}

static ffn_status_t run(void *given)
{
    memset(fixture.y, 0xaa, sizeof fixture.y);
    ffn_status_t status = ffn_layer_run(fixture.witness.test.layer, NULL, given);
    for (size_t i = 0; status && i < sizeof fixture.y; i++) assert_int_equal(((unsigned char *)fixture.y)[i], 0xaa);
    return status;
}

static ffn_status_t layer_info(void *given)
{
    return ffn_layer_info(fixture.witness.test.layer, given);
}

static ffn_status_t context_info(void *given)
{
    return ffn_context_info(NULL, given);
}

#define KIND(type, object, written, least, call) {#type, sizeof(type), written, least, &fixture.object, call}
#define UP_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

static const kind_t kinds[] = {
    KIND(ffn_layer_options_t, layer_options, false, UP_TO(ffn_layer_options_t, tensor_count), create_layer),
    KIND(ffn_context_options_t, context_options, false, UP_TO(ffn_context_options_t, flags), create_context),
    KIND(ffn_allocator_t, allocator, false, sizeof(ffn_allocator_t), create_layer_with_allocator),
    KIND(ffn_allocator_t, allocator, false, sizeof(ffn_allocator_t), create_context_with_allocator),
    KIND(ffn_run_t, run, false, UP_TO(ffn_run_t, flags), run),
    KIND(ffn_layer_info_t, layer_info, true, UP_TO(ffn_layer_info_t, flags), layer_info),
    KIND(ffn_context_info_t, context_info, true, UP_TO(ffn_context_info_t, flags), context_info),
};

/* `size` bytes before a guard page: the start of the good struct, then zeros, struct_size set to `told`. */
static guard_buffer_t place(const kind_t *kind, uint32_t size, uint32_t told)
{
    guard_buffer_t buffer = guard_alloc(size, GUARD_AFTER);
    memset(buffer.data, 0, size);
    memcpy(buffer.data, kind->good, size < kind->size ? size : kind->size);
    memcpy(buffer.data, &told, sizeof told);
    return buffer;
}

static void garbage_sizes_are_refused(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 4, 7, 9, 12, 13, 30, 4097, 4104, 65536, 1u << 31, UINT32_MAX - 7, UINT32_MAX};
    for (int64_t k = 0; k < COUNT_OF(kinds); k++)
        for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
            char words[100];
            uint32_t size = sizes[i] < 4 ? 4 : sizes[i] < 4096 ? sizes[i] : kinds[k].size;
            guard_buffer_t buffer = place(&kinds[k], size, sizes[i]);
            unsigned char before[4096];
            memcpy(before, buffer.data, size);
            forget_error();
            snprintf(words, sizeof words, "struct_size of the %s is %u|%u", kinds[k].name, sizes[i], kinds[k].size);
            assert_refused(kinds[k].call(buffer.data), FFN_INVALID, words, words);
            assert_memory_equal(before, buffer.data, size);
            assert_still_right(&fixture.witness, NULL, words);
            guard_free(&buffer);
        }
}

/* What an older caller lacks is 0: enough, or missed by name. */
static void smaller_structs_get_the_defaults(void **state)
{
    (void)state;
    for (int64_t k = 0; k < COUNT_OF(kinds); k++)
        for (uint32_t size = 8; size <= kinds[k].size; size += 8) {
            guard_buffer_t buffer = place(&kinds[k], size, size);
            forget_error();
            ffn_status_t status = kinds[k].call(buffer.data);
            char what[100];
            snprintf(what, sizeof what, "%s of %u bytes", kinds[k].name, size);
            if (size < kinds[k].least) assert_refused(status, FFN_INVALID, "", what);
            else if (status != FFN_OK && kinds[k].call == run) assert_refused(status, FFN_INVALID, "NULL", what); /* rows, but no x or y */
            else if (status != FFN_OK) fail_msg("%s: %s: %s", what, ffn_status_name(status), ffn_last_error());
            guard_free(&buffer);
        }
}

static void larger_structs_are_accepted_if_the_rest_is_zero(void **state)
{
    (void)state;
    static const uint32_t more[] = {8, 16, 64, 1024};
    for (int64_t k = 0; k < COUNT_OF(kinds); k++)
        for (int64_t i = 0; i < COUNT_OF(more); i++) {
            uint32_t size = kinds[k].size + more[i];
            guard_buffer_t buffer = place(&kinds[k], size, size);
            ffn_status_t status = kinds[k].call(buffer.data);
            if (status != FFN_OK) fail_msg("%s and %u bytes: %s: %s", kinds[k].name, more[i], ffn_status_name(status), ffn_last_error());
            guard_free(&buffer);
        }
}

static void larger_structs_with_unknown_fields_are_unsupported(void **state)
{
    (void)state;
    for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
        uint32_t size = kinds[k].size + 24;
        if (kinds[k].written) continue;
        for (uint32_t at = kinds[k].size; at < size; at++) {
            guard_buffer_t buffer = place(&kinds[k], size, size);
            char words[100];
            ((unsigned char *)buffer.data)[at] = 0x80;
            snprintf(words, sizeof words, "%s|%u bytes|%u|byte %u", kinds[k].name, size, kinds[k].size, at);
            forget_error();
            assert_refused(kinds[k].call(buffer.data), FFN_UNSUPPORTED, words, words);
            assert_still_right(&fixture.witness, NULL, words);
            guard_free(&buffer);
        }
    }
}

/* What the library writes: all that both sides know, zeros where only the caller knows, struct_size as it was. */
static void infos_are_written_up_to_their_size(void **state)
{
    (void)state;
    for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
        if (!kinds[k].written) continue;
        unsigned char whole[4096] = {0};
        memcpy(whole, &kinds[k].size, sizeof kinds[k].size);
        assert_ok(kinds[k].call(whole));
        for (uint32_t size = 8; size <= kinds[k].size + 64; size += 8) {
            guard_buffer_t buffer = guard_alloc(size, GUARD_AFTER);
            uint32_t told;
            memcpy(buffer.data, &size, sizeof size);
            assert_ok(kinds[k].call(buffer.data));
            memcpy(&told, buffer.data, sizeof told);
            assert_int_equal(told, size);
            assert_memory_equal((char *)buffer.data + 4, whole + 4, size - 4);
            guard_free(&buffer);
        }
    }
}

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    (void)user;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void release(void *user, void *memory, uint64_t size)
{
    (void)user, (void)size;
    free(memory);
}

static int set_up(void **state)
{
    (void)state;
    witness_make(&fixture.witness, &witness_case);
    fixture.layer_options = fixture.witness.test.options;
    fixture.context_options = (ffn_context_options_t){.struct_size = sizeof(ffn_context_options_t), .threads = 2};
    fixture.allocator = (ffn_allocator_t){.struct_size = sizeof(ffn_allocator_t), .allocate = allocate, .release = release};
    fixture.run = (ffn_run_t){.struct_size = sizeof(ffn_run_t), .batch = 1, .length = 3, .x = fixture.witness.data.x, .y = fixture.y};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    witness_free(&fixture.witness);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_sizes_are_refused),
        cmocka_unit_test(smaller_structs_get_the_defaults),
        cmocka_unit_test(larger_structs_are_accepted_if_the_rest_is_zero),
        cmocka_unit_test(larger_structs_with_unknown_fields_are_unsupported),
        cmocka_unit_test(infos_are_written_up_to_their_size),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
