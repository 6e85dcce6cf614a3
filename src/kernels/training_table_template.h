/* SPDX-License-Identifier: MIT
 *
 * The training table of a vector level. The including file defines TRAINING_TABLE, its name.
 */
const training_table_t TRAINING_TABLE = {
    .sgd = sgd,
    .adamw = adamw,
    .sum_of_squares = sum_of_squares,
    .scale = scale,
};
