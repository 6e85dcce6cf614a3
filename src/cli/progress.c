/* SPDX-License-Identifier: MIT
 * The progress bar. */
#include "cli/progress.h"

#include "cli/text.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR = 30 };

/* Seconds before the first drawing, and between two. */
static const double before_first = 0.5, between = 0.1;

progress_t progress_begin(void) {
    double now = seconds_now();
    return (progress_t){.shown = isatty(STDERR_FILENO), .start = now, .last = now};
}

void progress_update(progress_t *progress, const char *what, int64_t done, int64_t total) {
    double now = progress->shown ? seconds_now() : 0;
    if (!progress->shown || total <= 0 || now - progress->start < before_first || now - progress->last < between) return;
    progress->last = now;
    progress->drawn = 1;
    double share = (double)done / (double)total;
    int full = (int)(share * BAR);
    fprintf(stderr, "\r%s [%.*s%*s] %3d%%  %.0f s\033[K", what, full, "##############################", BAR - full, "", (int)(100 * share),
            now - progress->start);
    fflush(stderr);
}

void progress_end(progress_t *progress) {
    if (progress->drawn) fprintf(stderr, "\r\033[K");
    progress->drawn = 0;
}
