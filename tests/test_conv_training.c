/* SPDX-License-Identifier: MIT
 *
 * Training convolutional layers beside the gradients' values: update, gradients that add up, that are asked for one by one, and of nothing; dropout's ends.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/conv_case.h"
#include "support/layer_check.h"

static const conv_case_t base = {.d_model = 5, .d_ff = 7, .d_out = 4, .kernel = {3, 5}, .activation = FFN_ACTIVATION_GELU, .up_bias = true,
                                 .down_bias = true, .batch = 2, .length = 9, .seed = 1};

/* An updated layer is the one that is made of the new values; the tape of before is refused. */
static void update_takes_the_place_of_a_new_layer(void **state)
{
    (void)state;
    for (int forms = 0; forms < 4; forms++) {
        conv_case_t is = base;
        conv_test_t old, new;
        ffn_tape_t *tape;
        is.flags = FFN_CONV_TRAINABLE, is.activation = FFN_ACTIVATION_XIELU;
        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
        conv_test_make(&new, &is);
        is.seed += 2;
        conv_test_make(&old, &is);
        assert_ok(ffn_tape_create(NULL, &tape));
        const ffn_conv_run_t run = conv_test_run(&old, tape);
        const ffn_backward_t backward = conv_test_backward(&old, tape);
        assert_ok(ffn_conv_run(old.conv, NULL, &run));
        assert_ok(ffn_conv_update(old.conv, NULL, new.tensors, new.tensor_count));
        assert_int_equal(ffn_conv_backward(old.conv, NULL, &backward), FFN_INVALID);
        assert_non_null(strstr(ffn_last_error(), "updated"));
        memcpy(old.x, new.x, (size_t)new.x_floats * sizeof *new.x);
        conv_test_forward(&old, NULL);
        conv_test_forward(&new, NULL);
        assert_same_conv(&new, &old, false, "updated");
        ffn_tape_free(tape);
        conv_test_free(&old), conv_test_free(&new);
    }
}

/* ------------------------------------------------------------------ Gradients */

static void accumulated_gradients_are_twice_as_large(void **state)
{
    (void)state;
    for (int layout = 0; layout < CONV_LAYOUTS; layout++)
        for (int forms = 0; forms < 4; forms++) {
            conv_case_t is = base;
            conv_test_t test;
            ffn_tape_t *tape;
            is.flags = FFN_CONV_TRAINABLE, is.layout = (conv_layout_t)layout, is.activation = FFN_ACTIVATION_XIELU;
            is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
            conv_test_make(&test, &is);
            assert_ok(ffn_tape_create(NULL, &tape));
            const ffn_conv_run_t run = conv_test_run(&test, tape);
            ffn_backward_t backward = conv_test_backward(&test, tape);
            float *once[CONV_ROLES] = {NULL};
            for (int pass = 0; pass < 2; pass++) {
                assert_ok(ffn_conv_run(test.conv, NULL, &run));
                assert_ok(ffn_conv_backward(test.conv, NULL, &backward));
                assert_int_equal(ffn_conv_backward(test.conv, NULL, &backward), FFN_INVALID); /* the tape is used up */
                for (int role = 1; role < CONV_ROLES; role++) {
                    if (!test.plain[role]) continue;
                    float *got = conv_test_gradient(&test, role);
                    for (int64_t i = 0; pass && i < conv_oracle_elements(&test.oracle, role); i++)
                        assert_near((double)got[i], 2 * (double)once[role][i], 1e-5 * fabs((double)got[i]) + 1e-6);
                    if (!pass) once[role] = got;
                    else free(got), free(once[role]);
                }
                backward.flags = FFN_BACKWARD_ACCUMULATE;
            }
            ffn_tape_free(tape);
            conv_test_free(&test);
        }
}

static void no_positions_give_gradients_of_zero(void **state)
{
    (void)state;
    conv_case_t is = base;
    conv_test_t test;
    ffn_tape_t *tape;
    is.flags = FFN_CONV_TRAINABLE, is.layout = CONV_REVERSED, is.separable[1] = true;
    conv_test_make(&test, &is);
    assert_ok(ffn_tape_create(NULL, &tape));
    for (int i = 0; i < 2; i++) {
        const ffn_conv_run_t run = {.struct_size = sizeof run, .batch = i ? 3 : 0, .length = i ? 0 : 4, .tape = tape};
        const ffn_backward_t backward = {.struct_size = sizeof backward, .tape = tape, .gradients = test.gradients, .gradient_count = test.tensor_count};
        assert_ok(ffn_conv_run(test.conv, NULL, &run));
        assert_ok(ffn_conv_backward(test.conv, NULL, &backward));
        for (int role = 1; role < CONV_ROLES; role++) {
            if (!test.plain[role]) continue;
            float *got = conv_test_gradient(&test, role);
            for (int64_t k = 0; k < conv_oracle_elements(&test.oracle, role); k++) assert_true(got[k] == 0);
            free(got);
        }
    }
    ffn_tape_free(tape);
    conv_test_free(&test);
}

/* Some gradients alone are the bits of all together, and d_x may be left out. */
static void any_subset_of_gradients_is_the_same(void **state)
{
    (void)state;
    for (int forms = 0; forms < 4; forms++) {
        conv_case_t is = base;
        conv_test_t all, one;
        is.flags = FFN_CONV_TRAINABLE, is.batch = 3, is.length = 50;
        is.separable[0] = forms & 1, is.separable[1] = forms >> 1;
        conv_test_make(&all, &is);
        conv_test_step(&all, NULL);
        for (uint64_t i = 0; i < all.tensor_count; i++) {
            ffn_tape_t *tape;
            conv_test_make(&one, &is);
            assert_ok(ffn_tape_create(NULL, &tape));
            const ffn_conv_run_t run = conv_test_run(&one, tape);
            ffn_backward_t backward = conv_test_backward(&one, tape);
            backward.d_x = NULL, backward.gradients += i, backward.gradient_count = 1;
            assert_ok(ffn_conv_run(one.conv, NULL, &run));
            assert_ok(ffn_conv_backward(one.conv, NULL, &backward));
            const int role = (int)one.gradients[i].role;
            float *a = conv_test_gradient(&all, role), *b = conv_test_gradient(&one, role);
            for (int64_t k = 0; k < conv_oracle_elements(&all.oracle, role); k++)
                assert_near((double)b[k], (double)a[k], 1e-5 * fabs((double)a[k]) + 1e-5); /* halos and blocks are others without d_x */
            free(a), free(b);
            ffn_tape_free(tape);
            conv_test_free(&one);
        }
        conv_test_free(&all);
    }
}

/* --------------------------------------------------------------------- Dropout */

static void dropout_of_nothing_changes_no_bit_and_of_all_leaves_the_bias(void **state)
{
    (void)state;
    conv_case_t is = base;
    conv_test_t plain, dropped;
    is.flags = FFN_CONV_TRAINABLE;
    conv_test_make(&plain, &is);
    conv_test_forward(&plain, NULL);
    is.dropout = (ffn_dropout_t){.struct_size = sizeof is.dropout, .seed = 7};
    conv_test_make(&dropped, &is);
    conv_test_forward(&dropped, NULL);
    assert_same_conv(&plain, &dropped, false, "p 0");
    conv_test_free(&dropped);
    is.dropout.p[FFN_DROPOUT_ACTIVATION] = 1;
    conv_test_make(&dropped, &is);
    conv_test_forward(&dropped, NULL);
    for (int64_t i = 0; i < is.batch * is.length * is.d_out; i++)
        assert_true(dropped.y[i] == dropped.plain[FFN_ROLE_DOWN_BIAS][i % is.d_out]);
    conv_test_free(&dropped);
    conv_test_free(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_takes_the_place_of_a_new_layer),
        cmocka_unit_test(accumulated_gradients_are_twice_as_large),
        cmocka_unit_test(no_positions_give_gradients_of_zero),
        cmocka_unit_test(any_subset_of_gradients_is_the_same),
        cmocka_unit_test(dropout_of_nothing_changes_no_bit_and_of_all_leaves_the_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
