/* SPDX-License-Identifier: MIT
 * The table of known families: what the feed-forward layers of published checkpoints are called and what they compute. Data alone; a new family is
 * a new row. recognise.c chooses a row, bind.c follows it. */
#ifndef FFNIO_FAMILIES_H
#define FFNIO_FAMILIES_H

#include "io/experts.h"

/* Its tensors are <stem><module>.weight (or .gamma) and .bias (or .beta). module NULL: a norm without tensors. */
typedef struct norm_slot {
    uint32_t kind; /* FFN_NORM_* */
    const char *module;
    presence_t bias;
    float eps; /* the class default, where config.json says nothing */
    float offset;
} norm_slot_t;

/* A scale of the residual or of the branch: a tensor, a number of config.json, a number. All zero: none. */
typedef struct scale {
    const char *tensor; /* <stem><tensor>, without ".weight" added */
    const char *key;
    float value; /* without key, or where config.json says nothing */
    int tanh;
} scale_t;

/* When a row may be chosen. */
typedef enum choice {
    BY_TYPE,         /* where config.json has one of its model types; else its names could be another family's too */
    BY_NAMES,        /* also by its tensors' names and shapes alone */
    BY_NAMES_BESIDE, /* also by names, in a file that has one of the `beside` tensors */
} choice_t;

/* Lists are separated by spaces. A condition is "key" of config.json, met where it is true there, "!key", where it is false, or
 * "key=text", where it is that string. A key that is not there meets none: the row itself is the class default. */
typedef struct family {
    const char *name;
    const char *model_types; /* list: config.json's model_type */
    choice_t choice;
    const char *beside;  /* list: ends of names of tensors elsewhere in the file */
    const char *without; /* list: <stem><this> is not in the file: it would be another family's layer */
    const char *refuse;  /* why a layer cannot express this family. NULL: it can */

    const char *stems; /* list: what the layer's names begin with after any prefix that ends in '.'; {i} is a number */
    projection_t gate, up, down; /* of a dense layer */
    const moe_rule_t *experts;   /* of a mixture of experts; NULL: a dense layer */
    uint32_t layout;      /* FFN_LAYOUT_*, of all three */
    presence_t biases;    /* of all three */
    const char *bias_key; /* of config.json, true or false: overrides `biases` */

    uint32_t activation;         /* FFN_ACTIVATION_*: the class default */
    float beta;                  /* parameter of swish */
    const char *limit_key;       /* number at it, or `limit`, clamps the gate from above and the linear branch on both sides */
    float limit, up_offset;
    const char *activation_keys; /* list: the first of them that is a string in config.json counts */
    int gelu_is_tanh;            /* "gelu" in config.json is the tanh form */
    const char *xielu;           /* module with the scalars alpha_p and alpha_n */

    norm_slot_t norm[4];
    const char *eps_keys;      /* list; NULL: the class has no key for it */
    const char *bare_norms_if;  /* condition: norms without tensors */
    const char *layer_norms_if; /* condition: affine norms are layer norms */
    const char *move_norm_if;   /* condition: norm IN stands at OUT, or the other way round */

    uint32_t residual;                  /* FFN_RESIDUAL_* */
    const char *normed_residual_if;     /* condition: residual NORMED */
    scale_t branch_scale, residual_scale;
} family_t;

extern const family_t ffnio_families[];
extern const int ffnio_family_count; /* at most FFNIO_FAMILIES */
enum { FFNIO_FAMILIES = 128 };

#endif
