//! The position-wise feed-forward sublayer of transformers on CPUs: the safe interface of [libffn](libffn_sys), a C library.
//!
//! ```text
//! dense   y = a * r + c * ( W_down act(W_up x + b_up) + b_down )
//! gated   y = a * r + c * ( W_down ( act(W_gate x + b_gate) * (W_up x + b_up) ) + b_down )
//! ```
//!
//! x is one token, a row of `d_model` numbers; r is the residual; every part but the two matrices may be absent, and a norm may stand at four
//! places. The header `ffn/ffn.h` has every formula and every default; names here are the names there.
//!
//! ```
//! use libffn::{Activation, Layer, LayerOptions, Norm, NormSlot, Residual, Role, Tensor};
//!
//! # fn main() -> libffn::Result<()> {
//! let up = vec![0.01; 2048 * 512];
//! let down = vec![0.02; 512 * 2048];
//! let layer = Layer::new(
//!     LayerOptions::new().activation(Activation::GELU).residual(Residual::INPUT).norm(NormSlot::IN, Norm::LAYER),
//!     &[Tensor::new(Role::UP_WEIGHT, &up, &[2048, 512])?, Tensor::new(Role::DOWN_WEIGHT, &down, &[512, 2048])?],
//! )?; // the weights are copied
//!
//! let x = vec![1.0; 3 * 512]; // three tokens
//! let mut y = vec![0.0; 3 * 512];
//! layer.forward(&x, &mut y)?;
//! assert_eq!(y, x); // a constant row has the norm 0, and gelu(0) = 0
//! # Ok(())
//! # }
//! ```
//!
//! - A [`Layer`] never changes but by [`Layer::update`]: any number of threads may use one at once.
//! - A [`Context`] is threads and scratch memory, for one call at a time. Functions that end in `_in` take one; the others compute on the calling
//!   thread alone, in scratch memory that the thread keeps.
//! - A layer made with [`LayerFlags::TRAINABLE`] is trained: [`Layer::record`] runs it onto a [`Tape`], [`Recorded::backward`] gives gradients,
//!   [`adamw_step`] and [`Layer::update`] take the step. [`Stats`], [`tensor_health`] and [`update_ratio`] tell whether it goes well.
//! - [`moe`] has the routers of mixtures of experts, their helpers and losses; [`LayerOptions::moe`] makes a layer a mixture.
//! - [`Conv`] is the layer whose two products reach along the sequence.
//! - Strides are in bytes.
//! - A failure is an [`Error`] with the library's status and sentence, and nothing else has happened. The library never prints, never aborts,
//!   and changes no global state. What the borrow checker rules out is not asked at run time: arrays that overlap, a context used twice.
//! - `Model` (feature `io`) makes layers of published checkpoints.
//!
//! The matrix products are OpenBLAS's, whose threads belong to the program (`OPENBLAS_NUM_THREADS` in the environment).
//!
//! # What does not compile
//!
//! One context in two threads at once:
//!
//! ```compile_fail,E0499
//! # fn both(layer: &libffn::Layer, context: &mut libffn::Context, x: &[f32], a: &mut [f32], b: &mut [f32]) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| layer.forward_in(context, x, a));
//!     scope.spawn(|| layer.forward_in(context, x, b));
//! });
//! # }
//! ```
//!
//! A shared context is of no use to another thread:
//!
//! ```compile_fail,E0277
//! # fn share(context: &libffn::Context) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| context.info());
//! });
//! # }
//! ```
//!
//! An output that is the input ([`Layer::forward_in_place`] is for that):
//!
//! ```compile_fail,E0502
//! # fn overlap(layer: &libffn::Layer, mut x: Vec<f32>) -> libffn::Result<()> {
//! layer.forward(&x, &mut x)
//! # }
//! ```
//!
//! A view that outlives its array:
//!
//! ```compile_fail,E0597
//! # use libffn::{Role, Tensor};
//! # fn dangle() -> libffn::Result<()> {
//! let view = {
//!     let bias = vec![0.0; 4];
//!     Tensor::new(Role::UP_BIAS, &bias, &[4])?
//! };
//! println!("{view:?}");
//! # Ok(())
//! # }
//! ```
//!
//! An input that changes, or goes, between a recorded run and its backward pass; and a layer that is updated meanwhile:
//!
//! ```compile_fail,E0506
//! # use libffn::{Backward, Layer, Run, Tape};
//! # fn change(layer: &Layer, tape: &mut Tape, mut x: [f32; 4], d_y: &[f32]) -> libffn::Result<()> {
//! let mut y = [0.0; 4];
//! let mut recorded = layer.record(tape, Run::new(&x, &mut y))?;
//! x[0] = 1.0;
//! recorded.backward(Backward::new(d_y), &mut [])
//! # }
//! ```
//!
//! ```compile_fail,E0597
//! # use libffn::{Backward, Layer, Run, Tape};
//! # fn dangle(layer: &Layer, tape: &mut Tape, y: &mut [f32], d_y: &[f32]) -> libffn::Result<()> {
//! let mut recorded = {
//!     let x = vec![1.0; 4];
//!     layer.record(tape, Run::new(&x, y))?
//! };
//! recorded.backward(Backward::new(d_y), &mut [])
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # use libffn::{Backward, Layer, Run, Tape};
//! # fn update(layer: &mut Layer, tape: &mut Tape, x: &[f32], y: &mut [f32], d_y: &[f32]) -> libffn::Result<()> {
//! let mut recorded = layer.record(tape, Run::new(x, y))?;
//! layer.update(&[])?;
//! recorded.backward(Backward::new(d_y), &mut [])
//! # }
//! ```
//!
//! One tape for two runs at once:
//!
//! ```compile_fail,E0499
//! # use libffn::{Backward, Layer, Run, Tape};
//! # fn twice(layer: &Layer, tape: &mut Tape, x: &[f32], y: &mut [f32], d_y: &[f32]) -> libffn::Result<()> {
//! let mut first = layer.record(tape, Run::new(x, y))?;
//! let second = layer.record(tape, Run::new(x, y))?;
//! first.backward(Backward::new(d_y), &mut [])
//! # }
//! ```
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod allocator;
mod checks;
mod constants;
mod context;
mod conv;
mod dropout;
mod error;
mod health;
mod init;
mod layer;
#[cfg(feature = "io")]
mod model;
pub mod moe;
mod moe_constants;
mod moe_layer;
mod moe_losses;
mod moe_statistics;
mod moe_training;
mod optimisers;
mod options;
mod parallel;
mod run;
mod stats;
mod tape;
mod tensor;
mod version;

pub use allocator::Allocator;
pub use constants::{Activation, Engine, Isa, LayerFlags, Norm, NormSlot, Residual, Role};
pub use context::{thread_info, Context, ContextInfo, ContextOptions};
pub use conv::{Conv, ConvFlags, ConvInfo, ConvMask, ConvOptions, ConvPadding, ConvRecorded, ConvRun};
pub use dropout::{Dropout, DropoutSite};
pub use error::{Error, Result, Status};
pub use health::{tensor_health, tensor_health_in, update_ratio, update_ratio_in, TensorHealth};
pub use init::{weight_init, InitOptions, InitScheme};
pub use layer::{gated_d_ff, Layer, LayerInfo};
#[cfg(feature = "io")]
pub use model::{Model, ModelInfo, ModelLayer, ModelOptions, ModelTensor};
pub use optimisers::{adamw_step, adamw_step_in, clip_global_norm, clip_global_norm_in, sgd_step, sgd_step_in, AdamwOptions, SgdOptions};
pub use options::LayerOptions;
pub use run::Run;
pub use stats::{Stats, StatsInfo};
pub use tape::{Backward, Recorded, Tape, TapeOptions};
pub use tensor::{Tensor, TensorMut};
pub use version::{abi_version, build_info, version, version_string};

/// The C interface, for what this crate does not have.
pub use libffn_sys as sys;
