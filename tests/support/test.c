/* SPDX-License-Identifier: MIT */
#include "support/test.h"

#include <ffn/ffn.h>
#include <stdlib.h>
#include <string.h>

bool test_quick(void)
{
    const char *quick = getenv("FFN_TEST_QUICK");
    return quick && quick[0] == '1';
}

uint64_t test_seed(void)
{
    const char *seed = getenv("FFN_TEST_SEED");
    return seed ? strtoull(seed, NULL, 0) : 1;
}

const char *test_isa_cap(void)
{
    const char *cap = getenv("FFN_MAX_ISA");
    return cap ? cap : "no cap";
}

uint32_t test_engine(void)
{
    const char *engine = getenv("FFN_TEST_ENGINE");
    if (!engine) return FFN_ENGINE_AUTO;
    return strcmp(engine, "native") == 0 ? FFN_ENGINE_NATIVE : FFN_ENGINE_BLAS;
}

void *test_alloc(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory) fail_msg("the test itself is out of memory: %zu bytes", size);
    return memory;
}
