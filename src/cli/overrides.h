/* SPDX-License-Identifier: MIT
 * A layer as its family describes it, with what the command line says otherwise; or as the command line alone describes it. */
#ifndef FFN_CLI_OVERRIDES_H
#define FFN_CLI_OVERRIDES_H

#include "cli/arguments.h"
#include "cli/names.h"

/* A number that may not have been given. */
typedef struct given_float {
    int given;
    float value;
} given_float_t;

/* What --tensor, --branch-scale and --residual-scale say about a role. */
typedef struct tensor_override {
    int given;
    const char *name; /* NULL: none, or a number; in it {i} is the layer's number */
    size_t name_length;
    float value;
    uint32_t layout, part;
    int tanh, is_number;
} tensor_override_t;

typedef struct overrides {
    int by_hand; /* nothing is taken from the family */
    int branch;  /* the FFN alone */
    uint32_t activation; /* FFN_ACTIVATION_NONE: the family's */
    given_float_t alpha, beta, gate_max, up_limit, up_offset;
    int norm[NORMS], residual; /* -1: the family's */
    given_float_t eps[NORMS], offset[NORMS];
    given_float_t every_eps, every_offset; /* of all slots that have a norm */
    int64_t top_k, capacity; /* -1: the family's; capacity 0: no limit */
    int64_t experts;         /* of a layer by hand; 0: not told */
    int score, normalise;    /* -1: the family's */
    tensor_override_t tensor[ROLES];
} overrides_t;

overrides_t overrides_none(void);

/* The options of a description, which a command puts into its table and passes on here. */
enum {
    OVERRIDE_FIRST = 100,
    OVERRIDE_BRANCH = OVERRIDE_FIRST, OVERRIDE_BY_HAND, OVERRIDE_TENSOR, OVERRIDE_ACTIVATION, OVERRIDE_ALPHA, OVERRIDE_BETA,
    OVERRIDE_NORM_IN, OVERRIDE_NORM_MID, OVERRIDE_NORM_BRANCH, OVERRIDE_NORM_OUT, OVERRIDE_EPS, OVERRIDE_OFFSET, OVERRIDE_RESIDUAL,
    OVERRIDE_BRANCH_SCALE, OVERRIDE_RESIDUAL_SCALE, OVERRIDE_GATE_MAX, OVERRIDE_UP_LIMIT, OVERRIDE_UP_OFFSET, OVERRIDE_TOP_K, OVERRIDE_CAPACITY,
    OVERRIDE_EXPERTS, OVERRIDE_SCORE, OVERRIDE_NORMALISE
};
#define OVERRIDE_OPTIONS                                                                                                                       \
    {"branch", NULL, OVERRIDE_BRANCH, "the feed-forward network alone: no residual, no scales, no norms around it"},                           \
    {"activation", "NAME", OVERRIDE_ACTIVATION, "gelu, silu, relu, ...; see below"},                                 \
    {"alpha", "NUMBER", OVERRIDE_ALPHA, "parameter of leaky_relu, elu and xielu"},                                                             \
    {"beta", "NUMBER", OVERRIDE_BETA, "parameter of swish and xielu"},                                                                         \
    {"norm-in", "KIND", OVERRIDE_NORM_IN, "none, layer, rms or affine, before the matrices"},                                                  \
    {"norm-mid", "KIND", OVERRIDE_NORM_MID, "on the hidden row"},                                                                              \
    {"norm-branch", "KIND", OVERRIDE_NORM_BRANCH, "on the output of the matrices"},                                                            \
    {"norm-out", "KIND", OVERRIDE_NORM_OUT, "after the residual is added"},                                                                    \
    {"eps", "[SLOT=]NUMBER", OVERRIDE_EPS, "epsilon of the norm at in, mid, branch or out;\nwithout a slot, of all norms that have one"},       \
    {"norm-offset", "[SLOT=]NUMBER", OVERRIDE_OFFSET, "added to the norm's weight: 1 for the (1 + w) norms"},                                  \
    {"residual", "KIND", OVERRIDE_RESIDUAL, "none, input or normed (the output of norm-in)"},                                                  \
    {"branch-scale", "NUMBER", OVERRIDE_BRANCH_SCALE, "factor on the branch (a tensor: --tensor branch-scale=NAME)"},                          \
    {"residual-scale", "NUMBER", OVERRIDE_RESIDUAL_SCALE, "factor on the residual"},                                                           \
    {"gate-max", "NUMBER", OVERRIDE_GATE_MAX, "clamp of the gate from above; 0: none"},                                                        \
    {"up-limit", "NUMBER", OVERRIDE_UP_LIMIT, "clamp of the linear branch on both sides; 0: none"},                                            \
    {"up-offset", "NUMBER", OVERRIDE_UP_OFFSET, "added to the linear branch after its clamp"},                                                 \
    {"experts", "N", OVERRIDE_EXPERTS, "experts of a layer that is described by hand, with --top-k"},                                          \
    {"top-k", "K", OVERRIDE_TOP_K, "experts that a token goes to"},                                                                            \
    {"score", "NAME", OVERRIDE_SCORE, "of the router: softmax, sigmoid, sqrt_softplus or none"},                                               \
    {"normalise", "KIND", OVERRIDE_NORMALISE, "of a token's weights: none or sum"},                                                            \
    {"capacity", "N", OVERRIDE_CAPACITY, "tokens of a sequence that an expert takes; 0: no limit"},                                            \
    {"tensor", "ROLE=NAME", OVERRIDE_TENSOR, "which tensor of the file is what; see below. Repeat it for more"},                               \
    {"by-hand", NULL, OVERRIDE_BY_HAND, "take nothing from a recognised layer"}

/* The paragraphs on --tensor for the help text. The lists are on one line for completion, which reads them. */
#define OVERRIDE_HELP                                                                                                                          \
    "--tensor ROLE=NAME gives a role of the layer another tensor; --tensor ROLE= takes it away. In a file without recognised layers, the\n"    \
    "layer is what these options say. {i} in NAME is the layer's number. NAME may end in :in_out (the file has the matrix as [in, out]),\n"   \
    ":first, :second, :even or :odd (that part of it, along the output dimension) and :tanh (scales only). Of experts, {e} in NAME is the\n"  \
    "expert's number; without it the tensor is a stack of all of them.\n"                                                                     \
    "\n"                                                                                                                                      \
    "Roles: up, up-bias, gate, gate-bias, down, down-bias, norm-in, norm-in-bias, norm-mid, norm-mid-bias, norm-branch, "                     \
    "norm-branch-bias, norm-out, norm-out-bias, branch-scale, residual-scale, xielu-alpha-p, xielu-alpha-n, router, router-bias, "             \
    "router-norm, selection-bias, expert-scale, combine-bias, shared-up, shared-up-bias, shared-gate, shared-gate-bias, shared-down, "         \
    "shared-down-bias, shared-scale, latent-in, latent-in-bias, latent-out, latent-out-bias.\n"                                               \
    "\n" ACTIVATION_HELP

/* Takes the option that arguments_next found; refuses what is wrong with it. */
void overrides_take(overrides_t *overrides, const arguments_t *arguments, int id);

/* True if a tensor was named. */
int overrides_name_tensors(const overrides_t *overrides);

/* A description with room for its parts. */
typedef struct described {
    ffn_model_layer_t layer;
    ffn_layer_options_t options;
    ffn_moe_options_t moe; /* of a mixture of experts */
    ffn_moe_router_options_t router;
    ffn_moe_capacity_options_t capacity;
    ffn_model_binding_t *bindings;
    char **names; /* of the bindings that --tensor gave */
    uint64_t name_count;
} described_t;

/* Describes layer `number` of the model. Complains and returns an exit status. The description holds what the model owns. */
int describe(const ffn_model_t *model, int64_t number, const overrides_t *overrides, described_t *described);
void described_free(described_t *described);

#endif
