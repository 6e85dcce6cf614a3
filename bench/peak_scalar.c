/* SPDX-License-Identifier: MIT
 * One float at a time, multiply and add: what plain C without vector instructions can reach. */
#include "peak.h"

#define WIDTH 1
typedef float vector_t;
#include "peak_loop.h"

double peak_scalar(long rounds, float *sink) {
    return run(rounds, sink);
}
