/* SPDX-License-Identifier: MIT
 *
 * Sweeps all 2^32 inputs through the activation kernels of every level of this machine and prints each one's worst error in ulp. Exits with 1 if a
 * bound is exceeded, with 2 for a wrong argument. 45 minutes of one core for all; docs/accuracy.md records a run.
 *
 *     exhaustive [--threads N] [--step N] [NAME...]
 *
 * --threads  2 by default
 * --step     every N-th input only (1 by default): a look in minutes
 * NAME       these kernels only
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernel_cases.h"
#include "support/kernel_levels.h"

enum { BLOCK = 1 << 14, THREADS_MAX = 64 };

typedef struct worst {
    double ulps;
    float x, got;
    exact_t exact;
} worst_t;

typedef struct sweep {
    const kernel_case_t *is;
    uint64_t step;
    int level_count;
    kernel_level_t levels[KERNEL_LEVELS_MAX];
    atomic_uint_fast64_t next; /* of the inputs, counted in steps, the first that no thread has taken */
    pthread_mutex_t lock;
    worst_t worst[KERNEL_LEVELS_MAX];
} sweep_t;

static void note_worst(worst_t *worst, const worst_t *found)
{
    if (found->ulps > worst->ulps) *worst = *found;
}

/* Inputs first, first + 1, ... in steps, `count` of them: their exact values once, then every level. */
static void sweep_block(const sweep_t *sweep, uint64_t first, int64_t count, worst_t worst[KERNEL_LEVELS_MAX])
{
    float x[BLOCK], got[BLOCK];
    exact_t exact[BLOCK];
    double per_ulp[BLOCK];
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)((first + (uint64_t)i) * sweep->step);
        memcpy(&x[i], &bits, sizeof bits);
        exact[i] = kernel_exact(sweep->is, x[i]);
        per_ulp[i] = 1.0 / kernel_ulp(exact[i]);
    }
    const activation_t *a = &sweep->is->activation;
    for (int l = 0; l < sweep->level_count; l++) {
        sweep->levels[l].table->activate[a->kind](a, count, got, x, NULL);
        for (int64_t i = 0; i < count; i++) {
            if (fabs((double)got[i] - exact[i].value) * per_ulp[i] <= worst[l].ulps) continue; /* false for a NaN, too */
            const worst_t found = {kernel_error_ulps(exact[i], got[i]), x[i], got[i], exact[i]};
            note_worst(&worst[l], &found);
        }
    }
}

static void *sweep_blocks(void *argument)
{
    sweep_t *sweep = argument;
    const uint64_t inputs = ((UINT64_C(1) << 32) - 1) / sweep->step + 1;
    worst_t worst[KERNEL_LEVELS_MAX] = {{.ulps = 0}};
    for (;;) {
        const uint64_t first = atomic_fetch_add(&sweep->next, BLOCK);
        if (first >= inputs) break;
        sweep_block(sweep, first, (int64_t)(inputs - first < BLOCK ? inputs - first : BLOCK), worst);
    }
    pthread_mutex_lock(&sweep->lock);
    for (int l = 0; l < sweep->level_count; l++) note_worst(&sweep->worst[l], &worst[l]);
    pthread_mutex_unlock(&sweep->lock);
    return NULL;
}

static bool sweep_kernel(const kernel_case_t *is, uint64_t step, int threads)
{
    sweep_t sweep = {.is = is, .step = step, .lock = PTHREAD_MUTEX_INITIALIZER};
    sweep.level_count = kernel_levels(sweep.levels);
    pthread_t thread[THREADS_MAX];
    int started = 0;
    while (started < threads - 1 && pthread_create(&thread[started], NULL, sweep_blocks, &sweep) == 0) started++;
    sweep_blocks(&sweep);
    for (int t = 0; t < started; t++) pthread_join(thread[t], NULL);

    bool within = true;
    for (int l = 0; l < sweep.level_count; l++) {
        const worst_t *w = &sweep.worst[l];
        const double bound = kernel_case_bound(is, sweep.levels[l].table);
        const bool ok = w->ulps <= bound;
        printf("%-12s %-7s %9.4f ulp, bound %5.3f, at %-16a (%.9g): %.9g for %.17g%s\n", is->name, sweep.levels[l].name, w->ulps, bound, (double)w->x,
               (double)w->x, (double)w->got, w->exact.value, ok ? "" : "  EXCEEDED");
        within = within && ok;
    }
    fflush(stdout);
    return within;
}

/* The number from 1 to `most` in text, or 0. */
static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    const uint64_t value = text ? strtoull(text, &end, 10) : 0;
    return value >= 1 && value <= most && *end == 0 ? value : 0;
}

static bool is_wanted(const char *name, char **names)
{
    if (!*names) return true;
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

int main(int argc, char **argv)
{
    uint64_t threads = 2, step = 1;
    char **names = argv + 1;
    for (; argc > 1 && *names && strncmp(*names, "--", 2) == 0; names += 2) {
        uint64_t *option = strcmp(*names, "--threads") == 0 ? &threads : strcmp(*names, "--step") == 0 ? &step : NULL;
        if (!option || !(*option = number(names[1], option == &threads ? THREADS_MAX : UINT32_MAX))) {
            fprintf(stderr, "usage: %s [--threads 1..%d] [--step 1..%" PRIu32 "] [NAME...]\n", argv[0], THREADS_MAX, UINT32_MAX);
            return 2;
        }
    }
    bool within = true;
    for (int c = 0; c < kernel_case_count; c++)
        if (kernel_cases[c].exhaustive && is_wanted(kernel_cases[c].name, names))
            within = sweep_kernel(&kernel_cases[c], step, (int)threads) && within;
    return within ? 0 : 1;
}
