/* SPDX-License-Identifier: MIT
 * A bar on standard error for work that takes longer than a moment. */
#ifndef FFN_CLI_PROGRESS_H
#define FFN_CLI_PROGRESS_H

#include <stdint.h>

/* Nothing is shown unless standard error is a terminal. */
typedef struct progress {
    int shown;           /* standard error is a terminal */
    int drawn;           /* there is something to wipe out */
    double start, last; /* seconds */
} progress_t;

progress_t progress_begin(void);
void progress_update(progress_t *progress, const char *what, int64_t done, int64_t total);
void progress_end(progress_t *progress); /* leaves an empty line */

#endif
