/* SPDX-License-Identifier: MIT
 *
 * The kernel table of a vector level. The including file defines KERNEL_TABLE, its name, KERNEL_ISA, its level, and
 * KERNEL_TRAINING, its training table.
 */
const kernel_table_t KERNEL_TABLE = {
    .isa = KERNEL_ISA,
    .training = &KERNEL_TRAINING,
    .activate = {
        [ACTIVATION_IDENTITY] = activate_identity,
        [ACTIVATION_RELU] = activate_relu,
        [ACTIVATION_LEAKY_RELU] = activate_leaky_relu,
        [ACTIVATION_RELU2] = activate_relu2,
        [ACTIVATION_GELU] = activate_gelu,
        [ACTIVATION_GELU_TANH] = activate_gelu_tanh,
        [ACTIVATION_SWISH] = activate_swish,
        [ACTIVATION_SIGMOID] = activate_sigmoid,
        [ACTIVATION_TANH] = activate_tanh,
        [ACTIVATION_MISH] = activate_mish,
        [ACTIVATION_ELU] = activate_elu,
        [ACTIVATION_HARDSWISH] = activate_hardswish,
        [ACTIVATION_SOFTPLUS] = activate_softplus,
        [ACTIVATION_LAPLACE] = activate_laplace,
        [ACTIVATION_XIELU] = activate_xielu,
    },
    .activate_gated = {
        [ACTIVATION_IDENTITY] = activate_gated_identity,
        [ACTIVATION_RELU] = activate_gated_relu,
        [ACTIVATION_LEAKY_RELU] = activate_gated_leaky_relu,
        [ACTIVATION_RELU2] = activate_gated_relu2,
        [ACTIVATION_GELU] = activate_gated_gelu,
        [ACTIVATION_GELU_TANH] = activate_gated_gelu_tanh,
        [ACTIVATION_SWISH] = activate_gated_swish,
        [ACTIVATION_SIGMOID] = activate_gated_sigmoid,
        [ACTIVATION_TANH] = activate_gated_tanh,
        [ACTIVATION_MISH] = activate_gated_mish,
        [ACTIVATION_ELU] = activate_gated_elu,
        [ACTIVATION_HARDSWISH] = activate_gated_hardswish,
        [ACTIVATION_SOFTPLUS] = activate_gated_softplus,
        [ACTIVATION_LAPLACE] = activate_gated_laplace,
        [ACTIVATION_XIELU] = activate_gated_xielu,
    },
    .normalise = {
        [NORM_LAYER] = normalise_layer,
        [NORM_RMS] = normalise_rms,
        [NORM_AFFINE] = normalise_affine,
    },
    .combine = combine,
};
