/* SPDX-License-Identifier: MIT
 * Drawing through another program: its script and numbers are a file without a name that it reads, what it draws is another that it writes to, so that
 * nothing of an attempt that failed is left behind. */
#include "cli/plot.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const formats[] = {"png", "svg", "pdf"};

static const char *format_of(const char *path) {
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(dot + 1, formats[i])) return formats[i];
    return NULL;
}

int plot_check(const char *path) {
    if (format_of(path)) return EXIT_FINE;
    return complain("%s: a plot's name must end in .png, .svg or .pdf", path);
}

/* ------------------------------------------------------------------ The scripts */

/* The numbers by line: number, units, dead units, density, counts. "nan" is what both tools leave out. */
static void write_layers(FILE *to, const picture_t *picture) {
    for (int64_t i = 0; i < picture->count; i++) {
        const plot_layer_t *layer = &picture->layers[i];
        char density[32];
        snprintf(density, sizeof density, "%.9g", layer->density);
        fprintf(to, "%" PRId64 " %" PRId64 " %" PRId64 " %s", layer->number, layer->units, layer->dead_units, isnan(layer->density) ? "nan" : density);
        for (int bin = 0; bin < PLOT_BINS; bin++) fprintf(to, " %" PRId64, layer->counts[bin]);
        fprintf(to, "\n");
    }
}

static void write_share(FILE *to, const plot_load_t *load, int64_t expert) {
    if (expert >= load->experts || !load->assignments) fprintf(to, " nan");
    else fprintf(to, " %.9g", (double)load->counts[expert] / (double)load->assignments);
}

static void write_density(FILE *to, const plot_load_t *load, int64_t expert) {
    if (expert >= load->weighted || isnan(load->density[expert])) fprintf(to, " nan");
    else fprintf(to, " %.9g", load->density[expert]);
}

/* Writes a number for an expert of a mixture, or nan. */
typedef void write_expert_t(FILE *to, const plot_load_t *load, int64_t expert);

/* A line for each mixture: the word, its number, a number for each expert. */
static void write_experts(FILE *to, const char *word, write_expert_t *write, const picture_t *picture) {
    for (int64_t i = 0; i < picture->load_count; i++) {
        fprintf(to, "%s %" PRId64, word, picture->loads[i].number);
        for (int64_t expert = 0; expert < picture->loads[i].experts; expert++) write(to, &picture->loads[i], expert);
        fprintf(to, "\n");
    }
}

static const char matplotlib_script[] =
    "import sys\n"
    "import matplotlib\n"
    "matplotlib.use('Agg')\n"
    "import matplotlib.pyplot as plt\n"
    "lines = [line.split() for line in sys.stdin]\n"
    "def by_expert(kind):\n"
    "    return [(int(words[1]), [float(word) for word in words[2:]]) for words in lines if words[0] == kind]\n"
    "loads, densities = by_expert('load'), by_expert('density')\n"
    "rows = [[float(word) for word in words] for words in lines if words[0] not in ('load', 'density')]\n"
    "panels = 4 if loads else 2\n"
    "figure, axes = plt.subplots(panels, 1, figsize=(8, 4 * panels), constrained_layout=True)\n"
    "top, bottom = axes[:2]\n"
    "colours = plt.get_cmap('viridis')\n"
    "places = range(len(rows))\n"
    "top.plot(places, [row[3] for row in rows], 'o-', label='density: positions with activation > 0')\n"
    "top.plot(places, [row[2] / row[1] for row in rows], 's--', label='dead units')\n"
    "top.set(xlabel='layer', ylabel='share', ylim=(-0.02, 1.02))\n"
    "if len(rows) <= 40:\n"
    "    top.set_xticks(places)\n"
    "    top.set_xticklabels([int(row[0]) for row in rows])\n"
    "top.legend()\n"
    "def draw(axis, style, x, curves, **labels):\n"
    "    for i, (number, y) in enumerate(curves):\n"
    "        axis.plot(x or range(len(y)), y, style, drawstyle='steps-mid', color=colours(i / max(1, len(curves) - 1) * 0.9), label=f'layer {number}')\n"
    "    axis.set(**labels)\n"
    "    if len(curves) <= 12:\n"
    "        axis.legend()\n"
    "low, high = -10.0000454, 10.0000454\n"
    "bins = len(rows[0]) - 4\n"
    "draw(bottom, '-', [low + (high - low) * (i + 0.5) / bins for i in range(bins)],\n"
    "     [(int(row[0]), [count / row[1] for count in row[4:]]) for row in rows],\n"
    "     xlim=(-10.5, 10.5), xlabel='hidden_density_logit of a unit (-10: dead, 10: always on)', ylabel='share of units')\n"
    "if loads:\n"
    "    most = max([share for _, shares in loads for share in shares if share > 0] or [1])\n"
    "    draw(axes[2], '.-', None, loads, xlabel='expert', ylabel='share of the choices', ylim=(0, 1.2 * most))\n"
    "    draw(axes[3], '.-', None, densities, xlabel='expert', ylabel='density of its units', ylim=(-0.02, 1.02))\n"
    "    for axis in axes[2:]:\n"
    "        axis.set_xlim(-0.5, max(len(shares) for _, shares in loads) - 0.5)\n"
    "        axis.xaxis.get_major_locator().set_params(integer=True)\n"
    "figure.savefig(sys.stdout.buffer, format=sys.argv[1])\n";

/* Ends a block of numbers, and plots its columns from the second on: a line for each layer. */
static void write_gnuplot_lines(FILE *to, const char *block, const char *style, int64_t count, int64_t number_of(const picture_t *, int64_t),
                                const picture_t *picture) {
    fprintf(to, "EOD\nset cbrange [0:%" PRId64 "]\nplot ", count > 1 ? count - 1 : 1);
    for (int64_t i = 0; i < count; i++) {
        fprintf(to, "%s$%s using 1:%" PRId64 " with %s lc palette cb %" PRId64, i ? ", " : "", block, i + 2, style, i);
        if (count <= 12) fprintf(to, " title 'layer %" PRId64 "'", number_of(picture, i));
        else fprintf(to, " notitle");
    }
    fprintf(to, "\n");
}

static int64_t layer_number(const picture_t *picture, int64_t i) {
    return picture->layers[i].number;
}

static int64_t load_number(const picture_t *picture, int64_t i) {
    return picture->loads[i].number;
}

static void write_gnuplot_layers(FILE *to, const picture_t *picture) {
    fprintf(to, "set yrange [-0.02:1.02]\nset xlabel 'layer'\nset ylabel 'share'\nset key top right\n$rows << EOD\n");
    write_layers(to, picture);
    fprintf(to, "EOD\nset xrange [-0.5:%" PRId64 ".5]\n", picture->count - 1);
    fprintf(to, picture->count <= 40 ? "plot $rows using 0:4:xtic(1) with linespoints pt 7 title 'density: positions with activation > 0', "
                                       "'' using 0:($3/$2) with linespoints dt 2 pt 5 title 'dead units'\n"
                                     : "plot $rows using 0:4 with linespoints pt 7 title 'density: positions with activation > 0', "
                                       "'' using 0:($3/$2) with linespoints dt 2 pt 5 title 'dead units'\n");
    fprintf(to, "set autoscale y\nset xrange [-10.5:10.5]\n"
                "set xlabel 'hidden_density_logit of a unit (-10: dead, 10: always on)' noenhanced\nset ylabel 'share of units'\n$bins << EOD\n");
    for (int bin = 0; bin < PLOT_BINS; bin++) {
        fprintf(to, "%.9g", -10.0000454 + 20.0000908 * (bin + 0.5) / PLOT_BINS);
        for (int64_t i = 0; i < picture->count; i++) fprintf(to, " %.9g", (double)picture->layers[i].counts[bin] / (double)picture->layers[i].units);
        fprintf(to, "\n");
    }
    write_gnuplot_lines(to, "bins", "histeps", picture->count, layer_number, picture);
}

static void write_gnuplot_experts(FILE *to, const char *block, const char *style, const char *label, const char *range, write_expert_t *write,
                                  const picture_t *picture) {
    int64_t most = 0;
    for (int64_t i = 0; i < picture->load_count; i++)
        if (picture->loads[i].experts > most) most = picture->loads[i].experts;
    fprintf(to, "set yrange %s\nset xrange [-0.5:%" PRId64 ".5]\nset xtics auto\nset xlabel 'expert'\nset ylabel '%s'\n$%s << EOD\n", range, most - 1, label,
            block);
    for (int64_t expert = 0; expert < most; expert++) {
        fprintf(to, "%" PRId64, expert);
        for (int64_t i = 0; i < picture->load_count; i++) write(to, &picture->loads[i], expert);
        fprintf(to, "\n");
    }
    write_gnuplot_lines(to, block, style, picture->load_count, load_number, picture);
}

/* The largest share of the choices; 1 where there were none: a range is needed, which gnuplot does not find in nothing. */
static double most_share(const picture_t *picture) {
    double most = 0;
    for (int64_t i = 0; i < picture->load_count; i++) {
        const plot_load_t *load = &picture->loads[i];
        for (int64_t expert = 0; expert < load->experts && load->assignments; expert++)
            most = fmax(most, (double)load->counts[expert] / (double)load->assignments);
    }
    return most > 0 ? most : 1;
}

static void write_gnuplot(FILE *to, const char *format, const picture_t *picture) {
    int panels = picture->load_count ? 4 : 2;
    if (!strcmp(format, "png")) fprintf(to, "set terminal png size 800,%d\n", 400 * panels);
    else if (!strcmp(format, "svg")) fprintf(to, "set terminal svg size 800,%d dynamic\n", 400 * panels);
    else fprintf(to, "set terminal pdf size 8,%d\n", 4 * panels);
    fprintf(to, "set multiplot layout %d,1\nunset colorbox\nset palette defined (0 '#440154', 0.5 '#21918c', 1 '#d8c51e')\n", panels);
    write_gnuplot_layers(to, picture);
    if (picture->load_count) {
        char range[32];
        snprintf(range, sizeof range, "[0:%.9g]", 1.2 * most_share(picture));
        write_gnuplot_experts(to, "loads", "histeps", "share of the choices", range, write_share, picture);
        /* steps would go on over experts that have none */
        write_gnuplot_experts(to, "densities", "linespoints pt 7 ps 0.5", "density of its units", "[0:1.02]", write_density, picture);
    }
    fprintf(to, "unset multiplot\n");
}

/* --------------------------------------------------------------- The other program */

/* Three files without a name, which end with the program. */
typedef struct streams {
    FILE *in, *out, *error;
} streams_t;

static int streams_open(streams_t *streams) {
    *streams = (streams_t){tmpfile(), tmpfile(), tmpfile()};
    if (streams->in && streams->out && streams->error) return EXIT_FINE;
    return complain("cannot make a temporary file: %s", strerror(errno));
}

static void streams_close(streams_t *streams) {
    FILE *const files[] = {streams->in, streams->out, streams->error};
    for (int i = 0; i < 3; i++)
        if (files[i]) fclose(files[i]);
}

/* Whether the program was found, and ended well. */
static int run_program(const streams_t *streams, char *const words[]) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    rewind(streams->in); /* writes what is buffered, too */
    if (posix_spawn_file_actions_init(&actions)) return 0;
    int failed = posix_spawn_file_actions_adddup2(&actions, fileno(streams->in), 0) || posix_spawn_file_actions_adddup2(&actions, fileno(streams->out), 1) ||
                 posix_spawn_file_actions_adddup2(&actions, fileno(streams->error), 2) || posix_spawnp(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

static int ends_well(char *const words[]) {
    streams_t streams;
    int well = !streams_open(&streams) && run_program(&streams, words);
    streams_close(&streams);
    return well;
}

/* The last line that a program had to say. */
static void last_line(FILE *file, char *text, size_t size) {
    char line[512];
    snprintf(text, size, "it says nothing");
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (line[strspn(line, " \t\r\n")]) snprintf(text, size, "%.*s", (int)strcspn(line, "\r\n"), line);
}

/* ---------------------------------------------------------------------- The picture */

static int copy(FILE *from, FILE *to) {
    char bytes[65536];
    size_t count, all = 0;
    rewind(from);
    while ((count = fread(bytes, 1, sizeof bytes, from))) {
        if (fwrite(bytes, 1, count, to) != count) return 0;
        all += count;
    }
    return all > 0 && !ferror(from);
}

/* Under another name first. Signals wait meanwhile: it takes no time. */
static int put_in_place(FILE *picture, const char *path) {
    char *name = malloc(strlen(path) + 16);
    sigset_t ending, before;
    if (!name) return complain_memory();
    sprintf(name, "%s.XXXXXX", path);
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT), sigaddset(&ending, SIGTERM), sigaddset(&ending, SIGHUP);
    sigprocmask(SIG_BLOCK, &ending, &before);
    int descriptor = mkstemp(name), well = descriptor >= 0;
    FILE *file = well ? fdopen(descriptor, "wb") : NULL;
    if (well) {
        mode_t mask = umask(0);
        umask(mask);
        well = file && !fchmod(descriptor, 0666 & ~mask) && copy(picture, file);
        well = file && !fclose(file) && well && !rename(name, path);
        int kept = errno;
        if (!well) remove(name);
        errno = kept;
    }
    int status = well ? EXIT_FINE : complain("%s: cannot be written: %s", path, strerror(errno));
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(name);
    return status;
}

static int draw(const char *path, const char *tool, const streams_t *streams, char *const words[]) {
    char said[512];
    if (run_program(streams, words)) return put_in_place(streams->out, path);
    last_line(streams->error, said, sizeof said);
    return complain("%s: %s cannot draw it: %s", path, tool, said);
}

int plot_draw(const char *path, const picture_t *picture) {
    char *const has_matplotlib[] = {"python3", "-c", "import matplotlib", NULL}, *const has_gnuplot[] = {"gnuplot", "--version", NULL};
    char format[8], script[sizeof matplotlib_script];
    char *const python[] = {"python3", "-c", script, format, NULL}, *const gnuplot[] = {"gnuplot", NULL};
    streams_t streams;
    snprintf(format, sizeof format, "%s", format_of(path));
    memcpy(script, matplotlib_script, sizeof script);
    int by_python = ends_well(has_matplotlib);
    if (!by_python && !ends_well(has_gnuplot))
        return complain("%s: there is neither Python's matplotlib (python3 -m pip install matplotlib) nor gnuplot to draw it", path);
    int status = streams_open(&streams);
    if (!status) {
        if (by_python) {
            write_layers(streams.in, picture);
            write_experts(streams.in, "load", write_share, picture);
            write_experts(streams.in, "density", write_density, picture);
        } else {
            write_gnuplot(streams.in, format, picture);
        }
        status = draw(path, by_python ? "matplotlib" : "gnuplot", &streams, by_python ? python : gnuplot);
    }
    streams_close(&streams);
    return status;
}
