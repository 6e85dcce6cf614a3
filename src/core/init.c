/* SPDX-License-Identifier: MIT
 * The table of initialisations: a distribution and a formula for its scale each. */
#include "core/init.h"

#include "base/checked.h"
#include "base/error.h"
#include "kernels/philox.h"

#include <inttypes.h>
#include <math.h>

enum { NEEDS_IN = 1, NEEDS_OUT = 2, NEEDS_LAYERS = 4, NORMAL = 8 };

typedef struct scheme {
    const char *name;
    unsigned traits;
    double gain;   /* default; 0: the formula has none */
    double cutoff; /* default; 0: no limit */
    /* The bound of a uniform distribution, or the standard deviation of a normal one. */
    double (*scale)(double gain, double in, double out, double layers);
} scheme_t;

static double both_fans_uniform(double gain, double in, double out, double layers) {
    (void)layers;
    return gain * sqrt(6 / (in + out));
}

static double both_fans_normal(double gain, double in, double out, double layers) {
    (void)layers;
    return gain * sqrt(2 / (in + out));
}

static double fan_in_uniform(double gain, double in, double out, double layers) {
    (void)out, (void)layers;
    return gain * sqrt(3 / in);
}

static double fan_in_normal(double gain, double in, double out, double layers) {
    (void)out, (void)layers;
    return gain / sqrt(in);
}

static double fixed(double gain, double in, double out, double layers) {
    (void)in, (void)out, (void)layers;
    return gain;
}

static double torch_linear(double gain, double in, double out, double layers) {
    (void)gain, (void)out, (void)layers;
    return 1 / sqrt(in);
}

static double gpt2_scaled(double gain, double in, double out, double layers) {
    (void)in, (void)out;
    return gain / sqrt(2 * layers);
}

static double neox_small(double gain, double in, double out, double layers) {
    (void)gain, (void)out, (void)layers;
    return sqrt(2 / (5 * in));
}

static double neox_wang(double gain, double in, double out, double layers) {
    (void)gain, (void)in;
    return 2 / (layers * sqrt(out));
}

static double unit_scaling(double gain, double in, double out, double layers) {
    (void)layers;
    return sqrt(6 * gain / (in + out));
}

#define SQRT_2 1.41421356237309504880

static const scheme_t table[] = {
    [FFN_INIT_XAVIER_UNIFORM] = {"XAVIER_UNIFORM", NEEDS_IN | NEEDS_OUT, 1, 0, both_fans_uniform},
    [FFN_INIT_XAVIER_NORMAL] = {"XAVIER_NORMAL", NEEDS_IN | NEEDS_OUT | NORMAL, 1, 0, both_fans_normal},
    [FFN_INIT_KAIMING_UNIFORM] = {"KAIMING_UNIFORM", NEEDS_IN, SQRT_2, 0, fan_in_uniform},
    [FFN_INIT_KAIMING_NORMAL] = {"KAIMING_NORMAL", NEEDS_IN | NORMAL, SQRT_2, 0, fan_in_normal},
    [FFN_INIT_LECUN_NORMAL] = {"LECUN_NORMAL", NEEDS_IN | NORMAL, 1, 0, fan_in_normal},
    [FFN_INIT_NORMAL] = {"NORMAL", NORMAL, 0.02, 0, fixed},
    [FFN_INIT_TRUNCATED_NORMAL] = {"TRUNCATED_NORMAL", NORMAL, 0.02, 2, fixed},
    [FFN_INIT_TORCH_LINEAR] = {"TORCH_LINEAR", NEEDS_IN, 0, 0, torch_linear},
    [FFN_INIT_T5] = {"T5", NEEDS_IN | NORMAL, 1, 0, fan_in_normal},
    [FFN_INIT_GPT2_SCALED] = {"GPT2_SCALED", NEEDS_LAYERS | NORMAL, 0.02, 0, gpt2_scaled},
    [FFN_INIT_NEOX_SMALL] = {"NEOX_SMALL", NEEDS_IN | NORMAL, 0, 0, neox_small},
    [FFN_INIT_NEOX_WANG] = {"NEOX_WANG", NEEDS_OUT | NEEDS_LAYERS | NORMAL, 0, 0, neox_wang},
    [FFN_INIT_UNIFORM_UNIT_SCALING] = {"UNIFORM_UNIT_SCALING", NEEDS_IN | NEEDS_OUT, 1, 0, unit_scaling},
};

enum { SCHEMES = sizeof table / sizeof *table };

static ffn_status_t check_count(const scheme_t *scheme, unsigned needed, const char *name, int64_t value) {
    if (!(scheme->traits & needed) || value >= 1) return FFN_OK;
    return ffni_fail(FFN_INVALID, "%s is %" PRId64 ", must be at least 1 for FFN_INIT_%s", name, value, scheme->name);
}

ffn_status_t ffni_init_check(const ffn_init_options_t *options) {
    if (options->scheme < 1 || options->scheme >= SCHEMES)
        return ffni_fail(FFN_INVALID, "scheme is %" PRIu32 ", must be one of FFN_INIT_*, 1 to %d", options->scheme, SCHEMES - 1);
    const scheme_t *scheme = &table[options->scheme];
    int cut = options->cutoff != 0 || scheme->cutoff > 0;
    if (options->flags & ~(uint32_t)FFN_INIT_KEEP_VARIANCE)
        return ffni_fail(FFN_INVALID, "flags of the initialisation is 0x%" PRIx32 ", must be FFN_INIT_KEEP_VARIANCE or 0", options->flags);
    if (options->reserved) return ffni_fail(FFN_INVALID, "reserved of the initialisation is %" PRIu32 ", must be 0", options->reserved);
    if (!isfinite(options->gain) || options->gain < 0)
        return ffni_fail(FFN_INVALID, "gain is %s, must be finite and at least 0", ffni_number(options->gain).text);
    if (options->gain > 0 && scheme->gain == 0)
        return ffni_fail(FFN_INVALID, "gain is %s, but FFN_INIT_%s has none", ffni_number(options->gain).text, scheme->name);
    if (!isfinite(options->cutoff) || options->cutoff < 0)
        return ffni_fail(FFN_INVALID, "cutoff is %s, must be finite and at least 0", ffni_number(options->cutoff).text);
    if (options->cutoff > 0 && !(scheme->traits & NORMAL))
        return ffni_fail(FFN_INVALID, "cutoff is %s, but FFN_INIT_%s is uniform", ffni_number(options->cutoff).text, scheme->name);
    if ((options->flags & FFN_INIT_KEEP_VARIANCE) && !cut)
        return ffni_fail(FFN_INVALID, "flags has FFN_INIT_KEEP_VARIANCE, but FFN_INIT_%s is not cut: cutoff is 0", scheme->name);
    if (options->stream > UINT32_MAX)
        return ffni_fail(FFN_INVALID, "stream is %" PRIu64 ", must be at most %" PRIu32, options->stream, UINT32_MAX);
    ffn_status_t status = check_count(scheme, NEEDS_IN, "fan_in", options->fan_in);
    if (!status) status = check_count(scheme, NEEDS_OUT, "fan_out", options->fan_out);
    if (!status) status = check_count(scheme, NEEDS_LAYERS, "layers", options->layers);
    return status;
}

/* ------------------------------------------------------------ Distributions */

static double polynomial(double x, const double c[8]) {
    double sum = c[7];
    for (int i = 6; i >= 0; i--) sum = sum * x + c[i];
    return sum;
}

/* Wichura 1988, algorithm AS 241 (Applied Statistics 37). */
double ffni_normal_quantile(double p) {
    static const double a[8] = {3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
                                4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[8] = {1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                                2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3};
    static const double c[8] = {1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
                                1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
                                1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial(r, a) / polynomial(r, b);
    }
    double r = sqrt(-log(q < 0 ? p : 1 - p)) - 1.6;
    return copysign(polynomial(r, c) / polynomial(r, d), q);
}

/* Phi(z) for z <= 0, and the standard deviation of a normal distribution that is cut at +-z. */
static double normal_below(double z) {
    return 0.5 * erfc(-z * 0.70710678118654752440);
}

static double cut_deviation(double cutoff) {
    double density = exp(-0.5 * cutoff * cutoff) * 0.39894228040143267794;
    double inside = erf(cutoff * 0.70710678118654752440);
    double variance = 1 - 2 * cutoff * density / inside;
    /* Where a narrow cut cancels, the distribution is all but uniform. */
    return cutoff < 1e-3 ? cutoff / sqrt(3.0) : sqrt(variance);
}

/* u in (0, 1) to a number with the distribution at hand. */
typedef struct shape {
    double scale;
    double low, width; /* of the probabilities that the normal quantile is asked for */
    int normal;
    double limit; /* of the size */
} shape_t;

static shape_t shape_of(const ffn_init_options_t *options) {
    const scheme_t *scheme = &table[options->scheme];
    double gain = options->gain > 0 ? (double)options->gain : scheme->gain;
    double cutoff = options->cutoff > 0 ? (double)options->cutoff : scheme->cutoff;
    shape_t shape = {.scale = scheme->scale(gain, (double)options->fan_in, (double)options->fan_out, (double)options->layers), .width = 1,
                     .normal = (scheme->traits & NORMAL) != 0};
    if (cutoff > 0) {
        if (options->flags & FFN_INIT_KEEP_VARIANCE) shape.scale /= cut_deviation(cutoff);
        shape.low = normal_below(-cutoff);
        shape.width = 1 - 2 * shape.low;
    }
    shape.limit = shape.scale * (!shape.normal ? 1 : cutoff > 0 ? cutoff : INFINITY);
    return shape;
}

static float draw(const shape_t *shape, uint32_t word) {
    double u = ((double)word + 0.5) * 0x1p-32;
    double value = shape->scale * (shape->normal ? ffni_normal_quantile(shape->low + u * shape->width) : 2 * u - 1);
    /* Rounding must not carry a number past the limit. */
    float rounded = (float)value;
    if (fabs((double)rounded) > shape->limit) rounded = nextafterf(rounded, 0);
    return rounded;
}

void ffni_init_fill(float *values, int64_t count, const ffn_init_options_t *options) {
    shape_t shape = shape_of(options);
    for (int64_t i = 0; i < count; i += 4) {
        uint64_t group = (uint64_t)i / 4;
        philox_t random = philox((philox_t){{(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)options->stream, PHILOX_INITIALISATION}},
                                 options->seed);
        for (int64_t j = i; j < minimum(i + 4, count); j++) values[j] = draw(&shape, random.word[j - i]);
    }
}
