/* SPDX-License-Identifier: MIT
 * Counting forks by an atfork handler: cheaper than asking for the process id at every call. The library is linked -z nodelete, so the handler
 * never dangles. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_uint generation;
static _Thread_local int survivor;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void in_child(void) {
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    survivor = 1;
}

static void register_handler(void) {
    pthread_atfork(NULL, NULL, in_child);
}

unsigned ffni_fork_generation(void) {
    pthread_once(&registered, register_handler);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

int ffni_fork_survivor(void) {
    return survivor;
}
