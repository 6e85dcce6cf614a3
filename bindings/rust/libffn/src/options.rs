//! What a layer is to compute.
use std::fmt;
use std::sync::Arc;

use crate::checks::count;
use crate::moe::Mixture;
use crate::{sys, Activation, Allocator, Engine, Isa, LayerFlags, Norm, NormSlot, Residual};

/// The configuration of a layer: the fields of `ffn_layer_options_t` by their names. What is not set has the default of the header.
///
/// ```
/// use libffn::{Activation, LayerOptions, Norm, NormSlot, Residual};
/// // LLaMA
/// let mut options = LayerOptions::new();
/// options.activation(Activation::SILU).residual(Residual::INPUT).norm(NormSlot::IN, Norm::RMS).norm_eps(NormSlot::IN, 1e-5);
/// ```
#[derive(Clone)]
pub struct LayerOptions {
    raw: sys::ffn_layer_options_t, // its pointers are NULL
    allocator: Option<Arc<dyn Allocator>>,
    moe: Option<Mixture>,
}

// SAFETY: the pointers of raw are NULL; the allocator is Send and Sync.
unsafe impl Send for LayerOptions {}
// SAFETY: likewise.
unsafe impl Sync for LayerOptions {}

/// A field as C has it.
trait Field<T> {
    fn field(self) -> T;
}
impl Field<f32> for f32 {
    fn field(self) -> f32 {
        self
    }
}
impl Field<i64> for usize {
    fn field(self) -> i64 {
        count(self)
    }
}
macro_rules! fields {
    ($($name:ident)*) => {$(impl Field<u32> for $name {
        fn field(self) -> u32 {
            self.to_raw()
        }
    })*};
}
fields! { Activation Engine Isa LayerFlags Norm Residual }

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: $type) -> &mut Self {
            self.raw.$name = $name.field();
            self
        }
    )*};
}

macro_rules! slot_setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If `slot` is none of the four.
        pub fn $name(&mut self, slot: NormSlot, $name: $type) -> &mut Self {
            self.raw.$name[slot.to_raw() as usize] = $name.field();
            self
        }
    )*};
}

impl LayerOptions {
    /// All defaults; an activation must be set.
    pub fn new() -> Self {
        let raw = sys::ffn_layer_options_t { struct_size: std::mem::size_of::<sys::ffn_layer_options_t>() as u32, ..Default::default() };
        LayerOptions { raw, allocator: None, moe: None }
    }

    setters! {
        /// Width of x. Default: taken from the tensors, as of `d_ff` and `d_out`.
        d_model: usize,
        /// Width of the hidden row.
        d_ff: usize,
        /// Width of y.
        d_out: usize,
        /// Required.
        activation: Activation,
        /// Default: none.
        residual: Residual,
        /// Parameter of leaky_relu, elu and xielu.
        alpha: f32,
        /// Parameter of swish and xielu.
        beta: f32,
        /// Gated only: gate = min(gate, gate_max) before the activation. 0: no clamp.
        gate_max: f32,
        /// Gated only: up = clip(up, -up_limit, up_limit). 0: no clamp.
        up_limit: f32,
        /// Gated only: added to up after its clamp.
        up_offset: f32,
        /// Who multiplies the matrices.
        engine: Engine,
        /// Use no level above it. `FFN_MAX_ISA` in the environment lowers it further.
        max_isa: Isa,
        /// tanh for the scales; to be trained.
        flags: LayerFlags,
    }

    slot_setters! {
        /// The kind of norm in a slot.
        norm: Norm,
        /// 0, the default: 1e-5 for layer, 1e-6 for rms.
        norm_eps: f32,
        /// 1 for norms that scale by 1 + w (Gemma).
        norm_offset: f32,
    }

    /// Where the layer's memory comes from. Default: the C library.
    pub fn allocator(&mut self, allocator: Arc<dyn Allocator>) -> &mut Self {
        self.allocator = Some(allocator);
        self
    }

    /// Makes the branch a mixture of experts.
    pub fn moe(&mut self, mixture: &Mixture) -> &mut Self {
        self.moe = Some(*mixture);
        self
    }

    pub(crate) fn get_moe(&self) -> Option<&Mixture> {
        self.moe.as_ref()
    }

    /// The activation that is set; of a model's layer [`Activation::NONE`] where its config.json has a name that is not known.
    pub fn get_activation(&self) -> Activation {
        Activation::from_raw(self.raw.activation)
    }

    pub(crate) fn get_allocator(&self) -> Option<Arc<dyn Allocator>> {
        self.allocator.clone()
    }

    /// For the C interface; the pointers of what is given back are NULL.
    pub(crate) fn raw(&self) -> sys::ffn_layer_options_t {
        self.raw
    }

    /// Of a description whose pointers are NULL.
    #[cfg(feature = "io")]
    pub(crate) fn from_raw(raw: sys::ffn_layer_options_t) -> Self {
        debug_assert!(raw.tensors.is_null() && raw.moe.is_null() && raw.allocator.is_null());
        LayerOptions { raw, allocator: None, moe: None }
    }
}

impl Default for LayerOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LayerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(formatter)
    }
}
