/* SPDX-License-Identifier: MIT
 *
 * The training table of a vector level. The including file defines TRAINING_TABLE, its name.
 */
const training_table_t TRAINING_TABLE = {
    .differentiate = differentiate,
    .differentiate_gated = differentiate_gated,
    .learn_xielu = learn_xielu,
    .differentiate_norm = {
        [NORM_LAYER] = differentiate_layer,
        [NORM_RMS] = differentiate_rms,
        [NORM_AFFINE] = differentiate_affine,
    },
    .add = add,
    .add_product = add_product,
    .multiply = multiply,
    .drop = drop,
    .jitter = jitter,
    .sgd = sgd,
    .adamw = adamw,
    .sum_of_squares = sum_of_squares,
    .scale = scale,
    .depthwise_slopes = depthwise_slopes,
    .survey = survey,
    .squared_distance = squared_distance,
};
