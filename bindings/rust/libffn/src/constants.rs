//! The constants of the C interface as types: one line each. They are open: a newer library may answer with a number that has no name here.
use std::str::FromStr;

use crate::{error, error::check, sys, Error, Result};

macro_rules! constants {
    ($(#[$about:meta])* $name:ident($integer:ty) { $($(#[$doc:meta])* $constant:ident = $value:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) $integer);

        impl $name {
            $(
                $(#[$doc])*
                pub const $constant: $name = $name(sys::$value as $integer);
            )*

            /// The constant of that number in the C interface.
            pub const fn from_raw(number: $integer) -> Self {
                $name(number)
            }

            /// Its number in the C interface.
            pub const fn to_raw(self) -> $integer {
                self.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                #[allow(unreachable_patterns, unused_doc_comments)]
                match *self {
                    $($(#[$doc])* $name::$constant => formatter.write_str(concat!(stringify!($name), "::", stringify!($constant))),)*
                    $name(number) => write!(formatter, concat!(stringify!($name), "({})"), number),
                }
            }
        }
    };
}
pub(crate) use constants;

/// Constants that are or-ed.
macro_rules! flags {
    ($(#[$about:meta])* $name:ident { $($constants:tt)* }) => {
        $crate::constants::constants! {
            $(#[$about])*
            $name(u32) { $($constants)* }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                $name(self.0 | other.0)
            }
        }
    };
}
pub(crate) use flags;

constants! {
    /// What a tensor is to the layer, with its shape. Matrices are always described as \[out, in\].
    Role(u32) {
        /// `[d_ff, d_model]`, required; the linear branch of a gated layer.
        UP_WEIGHT = FFN_ROLE_UP_WEIGHT,
        /// `[d_ff]`
        UP_BIAS = FFN_ROLE_UP_BIAS,
        /// `[d_ff, d_model]`; makes the layer gated: the activated branch.
        GATE_WEIGHT = FFN_ROLE_GATE_WEIGHT,
        /// `[d_ff]`
        GATE_BIAS = FFN_ROLE_GATE_BIAS,
        /// `[d_out, d_ff]`, required.
        DOWN_WEIGHT = FFN_ROLE_DOWN_WEIGHT,
        /// `[d_out]`
        DOWN_BIAS = FFN_ROLE_DOWN_BIAS,
        /// `[d_model]`
        NORM_IN_WEIGHT = FFN_ROLE_NORM_IN_WEIGHT,
        /// `[d_model]`
        NORM_IN_BIAS = FFN_ROLE_NORM_IN_BIAS,
        /// `[d_ff]`
        NORM_MID_WEIGHT = FFN_ROLE_NORM_MID_WEIGHT,
        /// `[d_ff]`
        NORM_MID_BIAS = FFN_ROLE_NORM_MID_BIAS,
        /// `[d_out]`
        NORM_BRANCH_WEIGHT = FFN_ROLE_NORM_BRANCH_WEIGHT,
        /// `[d_out]`
        NORM_BRANCH_BIAS = FFN_ROLE_NORM_BRANCH_BIAS,
        /// `[d_out]`
        NORM_OUT_WEIGHT = FFN_ROLE_NORM_OUT_WEIGHT,
        /// `[d_out]`
        NORM_OUT_BIAS = FFN_ROLE_NORM_OUT_BIAS,
        /// `[1]` or `[d_out]`: c of the formula.
        BRANCH_SCALE = FFN_ROLE_BRANCH_SCALE,
        /// `[1]` or `[d_out]`: a of the formula.
        RESIDUAL_SCALE = FFN_ROLE_RESIDUAL_SCALE,
        /// `[1]`, with [`Activation::XIELU`] alone.
        XIELU_ALPHA_P = FFN_ROLE_XIELU_ALPHA_P,
        /// `[1]`, with [`Activation::XIELU`] alone.
        XIELU_ALPHA_N = FFN_ROLE_XIELU_ALPHA_N,
        /// `[E + Z, d_model]`, of a mixture of experts.
        ROUTER_WEIGHT = FFN_ROLE_ROUTER_WEIGHT,
        /// `[E + Z]`, of a mixture of experts.
        ROUTER_BIAS = FFN_ROLE_ROUTER_BIAS,
        /// `[d_model]`, of a mixture of experts.
        ROUTER_NORM_WEIGHT = FFN_ROLE_ROUTER_NORM_WEIGHT,
        /// `[E + Z]`, of a mixture of experts.
        SELECTION_BIAS = FFN_ROLE_SELECTION_BIAS,
        /// `[E + Z]`, of a mixture of experts.
        EXPERT_SCALE = FFN_ROLE_EXPERT_SCALE,
        /// `[d_out]`, of a mixture of experts.
        COMBINE_BIAS = FFN_ROLE_COMBINE_BIAS,
        /// `[d_shared, d_model]`, of a mixture of experts.
        SHARED_UP_WEIGHT = FFN_ROLE_SHARED_UP_WEIGHT,
        /// `[d_shared]`, of a mixture of experts.
        SHARED_UP_BIAS = FFN_ROLE_SHARED_UP_BIAS,
        /// `[d_shared, d_model]`, of a mixture of experts.
        SHARED_GATE_WEIGHT = FFN_ROLE_SHARED_GATE_WEIGHT,
        /// `[d_shared]`, of a mixture of experts.
        SHARED_GATE_BIAS = FFN_ROLE_SHARED_GATE_BIAS,
        /// `[d_out, d_shared]`, of a mixture of experts.
        SHARED_DOWN_WEIGHT = FFN_ROLE_SHARED_DOWN_WEIGHT,
        /// `[d_out]`, of a mixture of experts.
        SHARED_DOWN_BIAS = FFN_ROLE_SHARED_DOWN_BIAS,
        /// `[1, d_model]`, of a mixture of experts.
        SHARED_SCALE_WEIGHT = FFN_ROLE_SHARED_SCALE_WEIGHT,
        /// `[d_latent, d_model]`, of a mixture of experts.
        LATENT_IN_WEIGHT = FFN_ROLE_LATENT_IN_WEIGHT,
        /// `[d_latent]`, of a mixture of experts.
        LATENT_IN_BIAS = FFN_ROLE_LATENT_IN_BIAS,
        /// `[d_out, d_latent]`, of a mixture of experts.
        LATENT_OUT_WEIGHT = FFN_ROLE_LATENT_OUT_WEIGHT,
        /// `[d_out]`, of a mixture of experts.
        LATENT_OUT_BIAS = FFN_ROLE_LATENT_OUT_BIAS,
        /// `[d_model, k]`, of a convolutional layer.
        UP_TAPS = FFN_ROLE_UP_TAPS,
        /// `[d_ff, k]`, of a convolutional layer.
        DOWN_TAPS = FFN_ROLE_DOWN_TAPS,
    }
}

constants! {
    /// The activation of the hidden row. [`FromStr`] reads the names that the library has for them (`"gelu_tanh"`).
    ///
    /// ```
    /// use libffn::Activation;
    /// assert_eq!("gelu_tanh".parse::<Activation>()?, Activation::GELU_TANH);
    /// assert_eq!(Activation::GELU_TANH.to_string(), "gelu_tanh");
    /// assert!("gello".parse::<Activation>().is_err());
    /// # Ok::<(), libffn::Error>(())
    /// ```
    Activation(u32) {
        /// Not set: refused, as no default would be right for most.
        NONE = FFN_ACTIVATION_NONE,
        /// x
        IDENTITY = FFN_ACTIVATION_IDENTITY,
        /// max(x, 0)
        RELU = FFN_ACTIVATION_RELU,
        /// x > 0 ? x : alpha x
        LEAKY_RELU = FFN_ACTIVATION_LEAKY_RELU,
        /// min(max(x, 0), 6)
        RELU6 = FFN_ACTIVATION_RELU6,
        /// max(x, 0)^2
        RELU2 = FFN_ACTIVATION_RELU2,
        /// x Phi(x), the exact form
        GELU = FFN_ACTIVATION_GELU,
        /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
        GELU_TANH = FFN_ACTIVATION_GELU_TANH,
        /// x sigmoid(1.702 x)
        QUICK_GELU = FFN_ACTIVATION_QUICK_GELU,
        /// clip(gelu(x), -10, 10)
        GELU_10 = FFN_ACTIVATION_GELU_10,
        /// x sigmoid(x)
        SILU = FFN_ACTIVATION_SILU,
        /// x sigmoid(beta x)
        SWISH = FFN_ACTIVATION_SWISH,
        /// sigmoid(x)
        SIGMOID = FFN_ACTIVATION_SIGMOID,
        /// tanh(x)
        TANH = FFN_ACTIVATION_TANH,
        /// x tanh(log(1 + e^x))
        MISH = FFN_ACTIVATION_MISH,
        /// x > 0 ? x : alpha (e^x - 1)
        ELU = FFN_ACTIVATION_ELU,
        /// x min(max(x + 3, 0), 6) / 6
        HARDSWISH = FFN_ACTIVATION_HARDSWISH,
        /// log(1 + e^x)
        SOFTPLUS = FFN_ACTIVATION_SOFTPLUS,
        /// (1 + erf((x - 0.707107) / (0.282095 sqrt 2))) / 2
        LAPLACE = FFN_ACTIVATION_LAPLACE,
        /// Apertus's, with two learned scalars
        XIELU = FFN_ACTIVATION_XIELU,
    }
}

impl FromStr for Activation {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        let name = error::c_string("a name of an activation", name.as_bytes())?;
        let mut number = 0;
        // SAFETY: a string with an end, and a number to write to.
        check(unsafe { sys::ffn_activation_from_name(name.as_ptr(), &mut number) })?;
        Ok(Activation(number))
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: any number is allowed.
        let name = unsafe { sys::ffn_activation_name(self.0) };
        if name.is_null() {
            return formatter.write_str("none");
        }
        // SAFETY: a static string.
        formatter.write_str(&unsafe { error::text(name) })
    }
}

constants! {
    /// The four places of a norm.
    NormSlot(u32) {
        /// Before the matrices: pre-norm.
        IN = FFN_NORM_IN,
        /// On the hidden row (BitNet).
        MID = FFN_NORM_MID,
        /// On what the matrices give, before the addition (Gemma 2, OLMo 2).
        BRANCH = FFN_NORM_BRANCH,
        /// After the addition: post-norm (BERT).
        OUT = FFN_NORM_OUT,
    }
}

constants! {
    /// The kind of a norm.
    Norm(u32) {
        /// No norm.
        NONE = FFN_NORM_NONE,
        /// LayerNorm.
        LAYER = FFN_NORM_LAYER,
        /// RMSNorm.
        RMS = FFN_NORM_RMS,
        /// Scale and bias alone.
        AFFINE = FFN_NORM_AFFINE,
    }
}

constants! {
    /// What is added to the branch.
    Residual(u32) {
        /// Nothing.
        NONE = FFN_RESIDUAL_NONE,
        /// x as given.
        INPUT = FFN_RESIDUAL_INPUT,
        /// x after the norm [`NormSlot::IN`].
        NORMED = FFN_RESIDUAL_NORMED,
        /// An array of its own: [`Run::residual`](crate::Run::residual).
        EXTERNAL = FFN_RESIDUAL_EXTERNAL,
    }
}

constants! {
    /// Who multiplies the matrices.
    Engine(u32) {
        /// Native where there are vector kernels, else BLAS.
        AUTO = FFN_ENGINE_AUTO,
        /// OpenBLAS.
        BLAS = FFN_ENGINE_BLAS,
        /// Own kernels on weights that are packed once.
        NATIVE = FFN_ENGINE_NATIVE,
    }
}

constants! {
    /// The ladder of instruction sets, in order.
    Isa(u32) {
        /// The highest that the CPU has.
        AUTO = FFN_ISA_AUTO,
        /// Plain C.
        SCALAR = FFN_ISA_SCALAR,
        /// AVX2 and FMA.
        AVX2 = FFN_ISA_AVX2,
        /// AVX-512 F, BW, DQ and VL.
        AVX512 = FFN_ISA_AVX512,
    }
}

flags! {
    /// Switches of a layer, to be or-ed.
    LayerFlags {
        /// c = tanh(tensor).
        TANH_BRANCH_SCALE = FFN_LAYER_TANH_BRANCH_SCALE,
        /// a = tanh(tensor).
        TANH_RESIDUAL_SCALE = FFN_LAYER_TANH_RESIDUAL_SCALE,
        /// It may be recorded, run with dropout, and updated.
        TRAINABLE = FFN_LAYER_TRAINABLE,
    }
}
