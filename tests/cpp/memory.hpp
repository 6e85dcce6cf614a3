// SPDX-License-Identifier: MIT
//
// Letting allocations of the calling thread fail: test_cpp_memory.cpp has the functions that do.
#ifndef TESTS_CPP_MEMORY_HPP
#define TESTS_CPP_MEMORY_HPP

#include <ffn/ffn.hpp>

void fail_after(int count);    // so many allocations go well, the next one fails; negative: none fails
bool has_failed();
int news_of_this_thread();     // calls of operator new

// Calls with allocation 0, 1, ... failing until none does; returns how many did. Each failure is FFN_NO_MEMORY with a sentence.
template <class Call> int each_fails(Call call) {
    for (int count = 0;; count++) {
        const int before = news_of_this_thread();
        fail_after(count);
        const ffn_status_t status = call();
        const bool failed = has_failed();
        fail_after(-1);
        const int after = news_of_this_thread();
        CHECK(after == before);
        if (status == FFN_OK && !failed) return count;
        if (status != FFN_OK) {
            CHECK(failed);
            REQUIRE(status == FFN_NO_MEMORY);
            CHECK(*ffn::last_error() != '\0');
        }
    }
}

#endif
