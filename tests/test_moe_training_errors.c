/* SPDX-License-Identifier: MIT
 *
 * What a mixture's training refuses, with nothing written; and one expert of weight 1, which is a dense layer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/hostile.h"
#include "support/moe_train.h"
#include "support/test.h"

static const ffn_moe_router_options_t sum = {.struct_size = sizeof sum, .normalise = FFN_MOE_NORMALISE_SUM};

static moe_train_case_t small(void)
{
    return (moe_train_case_t){.layer = {.name = "small", .d_model = 6, .d_ff = 5, .gated = true, .biases = BIAS_ALL, .activation = FFN_ACTIVATION_SILU,
                                        .residual = FFN_RESIDUAL_INPUT, .norm = {{FFN_NORM_RMS, .weight = true}}, .seed = 3,
                                        .moe = {.experts = 4, .top_k = 2, .router = &sum}},
                              .batch = 1, .length = 3};
}

typedef struct stage {
    moe_train_t train;
    ffn_tape_t *tape;
    ffn_moe_backward_t moe;
    ffn_backward_t right;
} stage_t;

static void stage_make(stage_t *stage, const moe_train_case_t *is)
{
    moe_train_make(&stage->train, is);
    assert_ok(ffn_tape_create(NULL, &stage->tape));
    assert_ok(moe_train_forward(&stage->train, NULL, stage->tape));
    moe_train_t *t = &stage->train;
    stage->moe = (ffn_moe_backward_t){.struct_size = sizeof stage->moe, .d_logits = is->given ? NULL : t->d_logits, .d_weights = t->d_weights};
    stage->right = (ffn_backward_t){.struct_size = sizeof stage->right, .tape = stage->tape, .d_y = t->d_y, .d_x = t->d_x, .gradients = t->views,
                                    .gradient_count = t->view_count, .moe = &stage->moe};
}

/* The tape is as it was: the right call succeeds. */
static void stage_end(stage_t *stage)
{
    assert_true(isnan(stage->train.d_x[0]) && isnan(stage->train.d_weights[0]) && isnan(stage->train.gradient[FFN_ROLE_UP_WEIGHT][0]));
    assert_ok(ffn_layer_backward(stage->train.test.layer, NULL, &stage->right));
    ffn_tape_free(stage->tape);
    moe_train_free(&stage->train);
}

typedef struct refused {
    patch_t patch;
    const char *words;
} refused_t;

#define MOE(field, ...) PATCH(ffn_moe_backward_t, field, __VA_ARGS__)

static const refused_t refusals[] = {
    {MOE(struct_size, 3), "struct_size"},
    {MOE(flags, 1), "flags of the mixture's backward pass is 1"},
    {MOE(d_weights, (float *)(void *)1), "d_weights|multiple of 4"},
};

static ffn_status_t back(const stage_t *stage, const ffn_moe_backward_t *moe)
{
    ffn_backward_t backward = stage->right;
    backward.moe = moe;
    return ffn_layer_backward(stage->train.test.layer, NULL, &backward);
}

static void wrong_fields_and_overlaps_are_refused_and_leave_the_tape(void **state)
{
    (void)state;
    const moe_train_case_t is = small();
    stage_t stage;
    stage_make(&stage, &is);
    moe_train_t *t = &stage.train;
    for (int64_t i = 0; i < COUNT_OF(refusals); i++) {
        ffn_moe_backward_t moe = stage.moe;
        patch_apply(&refusals[i].patch, &moe);
        forget_error();
        assert_refused(back(&stage, &moe), FFN_INVALID, refusals[i].words, refusals[i].patch.text);
    }
    ffn_moe_backward_t moe = stage.moe;
    moe.d_weights = t->d_logits;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_logits overlaps d_weights", "itself");
    moe.d_weights = t->d_y + 1;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_weights overlaps d_y", "d_y");
    moe.d_weights = t->x;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_weights overlaps x", "x");
    moe.d_weights = t->gradient[FFN_ROLE_DOWN_WEIGHT] + 6 * 5 * 3;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_weights overlaps the down weight", "a gradient");
    moe = stage.moe, moe.d_scores = t->d_x + 2;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_scores overlaps d_x", "d_x");
    ffn_tensor_t view = t->views[0];
    ffn_backward_t backward = stage.right;
    backward.gradients = &view, backward.gradient_count = 1;
    view.data = t->d_y;
    assert_refused(ffn_layer_backward(t->test.layer, NULL, &backward), FFN_INVALID, "overlaps", "a stack over d_y");
    view = t->views[0], view.stride[0] = 4, view.stride[1] = 24, view.stride[2] = 4;
    assert_refused(ffn_layer_backward(t->test.layer, NULL, &backward), FFN_INVALID, "overlap", "experts over each other");
    view = t->views[0], view.shape[0] = 5;
    assert_refused(ffn_layer_backward(t->test.layer, NULL, &backward), FFN_INVALID, "up weight", "an expert too many");
    view = t->views[0], view.shape[1] = 4;
    assert_refused(ffn_layer_backward(t->test.layer, NULL, &backward), FFN_INVALID, "up weight", "a wrong shape");
    view.role = FFN_ROLE_COMBINE_BIAS, view.ndim = 1, view.shape[0] = 6, view.shape[1] = view.shape[2] = 0;
    assert_refused(ffn_layer_backward(t->test.layer, NULL, &backward), FFN_INVALID, "combine bias is not in this layer", "an absent role");
    stage_end(&stage);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    moe_train_case_t is = small();
    stage_t stage;
    is.given = true;
    stage_make(&stage, &is);
    ffn_moe_backward_t moe = stage.moe;
    moe.d_logits = stage.train.d_logits;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_logits is given|brought its weights", "logits");
    moe.d_logits = NULL, moe.d_scores = stage.train.d_scores;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_scores is given|brought its weights", "scores");
    stage_end(&stage);

    is = small();
    is.layer.moe.router = NULL, is.layer.moe.choose = FFN_MOE_CHOOSE_SPARSE_MIXER;
    stage_make(&stage, &is);
    moe = stage.moe, moe.d_scores = stage.train.d_scores;
    assert_refused(back(&stage, &moe), FFN_INVALID, "d_scores is given|SparseMixer", "SparseMixer");
    stage_end(&stage);

    witness_t dense;
    witness_make(&dense, &witness_case);
    ffn_layer_options_t options = dense.test.options;
    ffn_layer_t *layer;
    ffn_tape_t *tape;
    options.flags |= FFN_LAYER_TRAINABLE, options.engine = FFN_ENGINE_AUTO;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_run_t run = {.struct_size = sizeof run, .tape = tape};
    const ffn_moe_backward_t none = {.struct_size = sizeof none};
    const ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .moe = &none};
    assert_ok(ffn_layer_run(layer, NULL, &run));
    assert_refused(ffn_layer_backward(layer, NULL, &backward), FFN_INVALID, "moe of the backward pass is given|no mixture", "a dense layer");
    ffn_tape_free(tape);
    ffn_layer_free(layer);
    witness_free(&dense);
}

static void a_tape_serves_once_and_for_its_mixture_as_it_was(void **state)
{
    (void)state;
    moe_train_case_t is = small();
    stage_t stage;
    moe_train_t other;
    stage_make(&stage, &is);
    moe_train_make(&other, &is);
    assert_refused(ffn_layer_backward(other.test.layer, NULL, &stage.right), FFN_INVALID, "another layer", "foreign");
    assert_ok(ffn_layer_update(stage.train.test.layer, NULL, stage.train.test.options.tensors, 1));
    assert_refused(ffn_layer_backward(stage.train.test.layer, NULL, &stage.right), FFN_INVALID, "updated after", "updated");
    assert_ok(moe_train_forward(&stage.train, NULL, stage.tape));
    assert_ok(ffn_layer_backward(stage.train.test.layer, NULL, &stage.right));
    assert_refused(ffn_layer_backward(stage.train.test.layer, NULL, &stage.right), FFN_INVALID, "used up", "twice");
    moe_train_free(&other);
    ffn_tape_free(stage.tape);
    moe_train_free(&stage.train);
}

/* One expert with weight 1 is the dense layer with its tensors, dropout and all. */
static void one_expert_of_weight_1_is_a_dense_layer(void **state)
{
    (void)state;
    enum { T = 9 };
    moe_train_case_t is = small();
    is.layer.moe.experts = 1, is.layer.moe.top_k = 1, is.layer.no_router = true, is.layer.moe.router = NULL, is.given = true;
    is.length = T;
    is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 4, .p = {0.2f, 0.2f, 0.2f, 0.2f, 0.2f}};
    moe_train_t train;
    moe_train_make(&train, &is);
    for (int t = 0; t < T; t++) train.ids[t] = 0, train.weights[t] = 1;
    moe_train_step(&train, NULL);
    ffn_layer_options_t options = train.test.options;
    ffn_tensor_t tensors[64], gradients[64];
    float y[T * 6], d_x[T * 6], *gradient[64];
    ffn_layer_t *layer;
    ffn_tape_t *tape;
    memcpy(tensors, train.test.tensors, (size_t)options.tensor_count * sizeof *tensors);
    options.tensors = tensors, options.moe = NULL;
    assert_ok(ffn_layer_create(NULL, &options, &layer));
    for (uint64_t i = 0; i < options.tensor_count; i++) {
        const int64_t *shape = train.test.shape[tensors[i].role];
        gradient[i] = test_alloc((size_t)moe_train_elements(&train, (int)tensors[i].role) * 4);
        gradients[i] = (ffn_tensor_t){.role = tensors[i].role, .ndim = shape[1] ? 2 : 1, .data = gradient[i], .shape = {shape[0], shape[1]}};
    }
    assert_ok(ffn_tape_create(NULL, &tape));
    const ffn_run_t run = {.struct_size = sizeof run, .batch = 1, .length = T, .x = train.x, .y = y, .dropout = &is.dropout, .tape = tape};
    const ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .d_y = train.d_y, .d_x = d_x, .gradients = gradients,
                                     .gradient_count = options.tensor_count};
    assert_ok(ffn_layer_run(layer, NULL, &run));
    assert_ok(ffn_layer_backward(layer, NULL, &backward));
    for (int i = 0; i < T * 6; i++) {
        assert_near((double)train.y[i], (double)y[i], 1e-5);
        assert_near((double)train.d_x[i], (double)d_x[i], 1e-5 * largest_magnitude(d_x, T * 6));
    }
    for (uint64_t v = 0; v < options.tensor_count; v++) {
        const int64_t n = moe_train_elements(&train, (int)tensors[v].role);
        for (int64_t i = 0; i < n; i++)
            assert_near((double)train.gradient[tensors[v].role][i], (double)gradient[v][i], 1e-5 * largest_magnitude(gradient[v], n));
        free(gradient[v]);
    }
    ffn_tape_free(tape);
    ffn_layer_free(layer);
    moe_train_free(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_and_overlaps_are_refused_and_leave_the_tape),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(a_tape_serves_once_and_for_its_mixture_as_it_was),
        cmocka_unit_test(one_expert_of_weight_1_is_a_dense_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
