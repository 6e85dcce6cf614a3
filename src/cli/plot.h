/* SPDX-License-Identifier: MIT
 * The picture of a model's hidden units and experts, which Python's matplotlib or gnuplot draws. */
#ifndef FFN_CLI_PLOT_H
#define FFN_CLI_PLOT_H

#include <stdint.h>

enum { PLOT_BINS = 40 };

/* One layer. */
typedef struct plot_layer {
    int64_t number, units, dead_units;
    double density;
    int64_t counts[PLOT_BINS]; /* the histogram of hidden_density_logit over its whole range, bins of equal width */
} plot_layer_t;

/* One mixture of experts. */
typedef struct plot_load {
    int64_t number, experts;
    const int64_t *counts; /* tokens of each expert */
    int64_t assignments;   /* their sum */
    int64_t weighted;      /* the first experts, that have hidden units; the others are identities */
    const double *density; /* of each of these; NaN: no token came to it */
} plot_load_t;

typedef struct picture {
    const plot_layer_t *layers;
    int64_t count;
    const plot_load_t *loads;
    int64_t load_count;
} picture_t;

/* Whether the file's ending is that of a picture. Complains; returns an exit status. */
int plot_check(const char *path);

/* Draws density and dead units by layer, and the histograms; and the load and the density by expert, where there are experts. The file appears under its
 * name when it is complete. Complains; returns an exit status. */
int plot_draw(const char *path, const picture_t *picture);

#endif
