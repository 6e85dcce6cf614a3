/* SPDX-License-Identifier: MIT
 * Waking threads on another processor than the caller's.
 *
 * A system may put a woken thread on the processor of the one that woke it, where it waits for milliseconds while another stands idle: the caller goes
 * on computing, and does all the work of the call itself. Linux does so whenever the other processors are busy for a moment, such as with another
 * library's spinning threads. */
#ifndef FFNI_PLACEMENT_H
#define FFNI_PLACEMENT_H

#include <pthread.h>
#include <stdint.h>

enum { PLACEMENT_MOST = 16 }; /* threads: with more, one that is late matters less than the time that this takes */

/* Calls wake(data) while the first PLACEMENT_MOST of those sleeping threads may not run on the calling thread's processor. Their affinity is what it was
 * before, afterwards. */
void ffni_wake_elsewhere(const pthread_t *threads, uint32_t count, void (*wake)(void *data), void *data);

#endif
