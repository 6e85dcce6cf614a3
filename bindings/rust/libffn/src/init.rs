//! Initialisation of weights.
use std::mem::size_of;

use crate::{checks::count, constants::constants, error::check, sys, Result};

constants! {
    /// A scheme of random weights. in and out are the fans of the matrix `[out, in]`, L the layers of the model; U(b) is uniform in \[-b, b\], N(s)
    /// normal with standard deviation s; g is the gain, "(v)" its default.
    InitScheme(u32) {
        /// U(g sqrt(6 / (in + out))), g (1): Glorot & Bengio 2010.
        XAVIER_UNIFORM = FFN_INIT_XAVIER_UNIFORM,
        /// N(g sqrt(2 / (in + out))), g (1).
        XAVIER_NORMAL = FFN_INIT_XAVIER_NORMAL,
        /// U(g sqrt(3 / in)), g (sqrt 2): He et al., arXiv 1502.01852.
        KAIMING_UNIFORM = FFN_INIT_KAIMING_UNIFORM,
        /// N(g / sqrt(in)), g (sqrt 2).
        KAIMING_NORMAL = FFN_INIT_KAIMING_NORMAL,
        /// N(g / sqrt(in)), g (1).
        LECUN_NORMAL = FFN_INIT_LECUN_NORMAL,
        /// N(g), g (0.02): BERT, GPT-2.
        NORMAL = FFN_INIT_NORMAL,
        /// N(g), g (0.02), cut at `cutoff` (2) standard deviations.
        TRUNCATED_NORMAL = FFN_INIT_TRUNCATED_NORMAL,
        /// U(1 / sqrt(in)): PyTorch's Linear, weight and bias (whose in is the matrix's).
        TORCH_LINEAR = FFN_INIT_TORCH_LINEAR,
        /// N(g / sqrt(in)), g (1).
        T5 = FFN_INIT_T5,
        /// N(g / sqrt(2 L)), g (0.02): the down matrix of GPT-2 and Megatron.
        GPT2_SCALED = FFN_INIT_GPT2_SCALED,
        /// N(sqrt(2 / (5 in))): GPT-NeoX's small_init of up and gate.
        NEOX_SMALL = FFN_INIT_NEOX_SMALL,
        /// N(2 / (L sqrt(out))): GPT-NeoX's wang_init of down.
        NEOX_WANG = FFN_INIT_NEOX_WANG,
        /// U(sqrt(6 g / (in + out))), g (1): tensor2tensor's uniform_unit_scaling.
        UNIFORM_UNIT_SCALING = FFN_INIT_UNIFORM_UNIT_SCALING,
    }
}

/// How an array is filled: [`weight_init`].
#[derive(Clone, Copy)]
pub struct InitOptions(sys::ffn_init_options_t);

impl InitOptions {
    /// A scheme; its gain is the default.
    pub fn new(scheme: InitScheme) -> Self {
        let struct_size = size_of::<sys::ffn_init_options_t>() as u32;
        InitOptions(sys::ffn_init_options_t { struct_size, scheme: scheme.to_raw(), ..Default::default() })
    }

    /// Any number, and which array of that seed: 0 to 2^32 - 1. Arrays with different streams are independent.
    pub fn seed(&mut self, seed: u64, stream: u64) -> &mut Self {
        (self.0.seed, self.0.stream) = (seed, stream);
        self
    }

    /// The fans of the matrix `[out, in]`, where the formula has them.
    pub fn fans(&mut self, fan_in: usize, fan_out: usize) -> &mut Self {
        (self.0.fan_in, self.0.fan_out) = (count(fan_in), count(fan_out));
        self
    }

    /// Layers of the model, where the formula has them.
    pub fn layers(&mut self, layers: usize) -> &mut Self {
        self.0.layers = count(layers);
        self
    }

    /// Above 0; refused where the formula has none.
    pub fn gain(&mut self, gain: f32) -> &mut Self {
        self.0.gain = gain;
        self
    }

    /// Normal schemes: draw within so many standard deviations.
    pub fn cutoff(&mut self, cutoff: f32) -> &mut Self {
        self.0.cutoff = cutoff;
        self
    }

    /// With a cutoff: the standard deviation is that after the cut.
    pub fn keep_variance(&mut self) -> &mut Self {
        self.0.flags |= sys::FFN_INIT_KEEP_VARIANCE;
        self
    }
}

impl std::fmt::Debug for InitOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Fills an array with random weights. `values[i]` depends on scheme, seed, stream and i alone.
///
/// ```
/// use libffn::{weight_init, InitOptions, InitScheme};
/// let mut up = vec![0.0; 2048 * 512];
/// weight_init(&mut up, InitOptions::new(InitScheme::KAIMING_NORMAL).seed(1, 0).fans(512, 2048))?;
/// # Ok::<(), libffn::Error>(())
/// ```
pub fn weight_init(values: &mut [f32], options: &InitOptions) -> Result<()> {
    // SAFETY: so many numbers to write to, and options of the size that they say.
    check(unsafe { sys::ffn_weight_init(values.as_mut_ptr(), values.len() as i64, &options.0) })
}
