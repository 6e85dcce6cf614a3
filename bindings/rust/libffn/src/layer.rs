//! A layer: packed weights and configuration.
use std::fmt;
use std::mem::{size_of, size_of_val};
use std::ptr::{null, null_mut, NonNull};

use crate::checks::count;
use crate::moe::Mixture;
use crate::moe_layer::Particular;
use crate::run::Widths;
use crate::tape::Recording;
use crate::{allocator, error::check, sys, Activation, Context, Engine, Error, Isa, LayerOptions, Norm, NormSlot, Residual, Result, Role, Run};
use crate::{Recorded, Tape, Tensor, TensorMut};

/// Packed weights and configuration. A layer never changes but by [`Layer::update`], so that threads share it.
///
/// ```
/// use libffn::{Activation, Layer, LayerOptions, Role, Tensor};
/// # fn main() -> libffn::Result<()> {
/// let tensors = [
///     Tensor::new(Role::UP_WEIGHT, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?,
///     Tensor::new(Role::DOWN_WEIGHT, &[1.0, 1.0, 1.0, 0.0, 0.0, 1.0], &[2, 3])?,
/// ];
/// let layer = Layer::new(LayerOptions::new().activation(Activation::RELU), &tensors)?;
///
/// let mut y = [0.0; 4];
/// layer.forward(&[1.0, 1.0, 1.0, -1.0], &mut y)?; // two tokens: relu(W_up x) = [3, 7, 11] and [0, 0, 0]
/// assert_eq!(y, [21.0, 11.0, 0.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub struct Layer {
    raw: NonNull<sys::ffn_layer_t>,
    widths: Widths,
    _allocator: allocator::Kept,
}

// SAFETY: a layer never changes after it was made, but through &mut self; it belongs to no thread, and its allocator is Send and Sync.
unsafe impl Send for Layer {}
// SAFETY: likewise.
unsafe impl Sync for Layer {}

impl Layer {
    /// Makes a layer: checks the options, copies and packs the weights, and chooses engine and ISA level for good.
    pub fn new(options: &LayerOptions, tensors: &[Tensor<'_>]) -> Result<Self> {
        Self::create(null_mut(), options, tensors)
    }

    /// The same with the context's threads.
    pub fn new_in(context: &mut Context, options: &LayerOptions, tensors: &[Tensor<'_>]) -> Result<Self> {
        context.lend(|context| Self::create(context, options, tensors))
    }

    fn create(context: *mut sys::ffn_context_t, options: &LayerOptions, tensors: &[Tensor<'_>]) -> Result<Self> {
        let mut given = options.raw();
        let moe = options.get_moe().map(Mixture::raw);
        given.moe = moe.as_ref().map_or(null(), |moe| moe);
        given.tensors = tensors.as_ptr().cast(); // a Tensor is an ffn_tensor_t
        given.tensor_count = tensors.len() as u64;
        Self::adopt(options, |allocator, raw| {
            given.allocator = allocator;
            // SAFETY: options and tensors are alive, and each tensor was checked to lie within its array.
            check(unsafe { sys::ffn_layer_create(context, &given, raw) })
        })
    }

    /// The layer that `make` makes with the options' allocator.
    pub(crate) fn adopt(
        options: &LayerOptions,
        make: impl FnOnce(*const sys::ffn_allocator_t, &mut *mut sys::ffn_layer_t) -> Result<()>,
    ) -> Result<Self> {
        let kept = allocator::keep(options.get_allocator());
        let hook = allocator::hook(&kept);
        let mut raw = null_mut();
        make(hook.as_ref().map_or(null(), |hook| hook), &mut raw)?;
        let raw = NonNull::new(raw).expect("a layer that was made");
        let mut layer = Layer { raw, widths: Widths::default(), _allocator: kept };
        let info = layer.info();
        let (d_model, d_out) = (info.d_model(), info.d_out());
        let (experts, top_k) = (info.experts() + info.identity_experts(), info.top_k());
        layer.widths = Widths { d_model, d_out, experts, top_k, given_ids: options.get_moe().is_some_and(Mixture::given_ids) };
        Ok(layer)
    }

    /// Runs the layer: `y[t] = layer(x[t])` for as many tokens as `x` has rows of `d_model`. `y` has as many rows of `d_out`.
    #[inline]
    pub fn forward(&self, x: &[f32], y: &mut [f32]) -> Result<()> {
        self.forward_raw(null_mut(), x, y)
    }

    /// The same with the context's threads and scratch memory.
    #[inline]
    pub fn forward_in(&self, context: &mut Context, x: &[f32], y: &mut [f32]) -> Result<()> {
        context.lend(|context| self.forward_raw(context, x, y))
    }

    /// Runs the layer with its output in place of its input, where `d_out` is `d_model`. The bits are those of [`Layer::forward`].
    pub fn forward_in_place(&self, x: &mut [f32]) -> Result<()> {
        self.run(Run::in_place(x))
    }

    #[inline]
    fn forward_raw(&self, context: *mut sys::ffn_context_t, x: &[f32], y: &mut [f32]) -> Result<()> {
        let tokens = x.len() / self.widths.d_model;
        if x.len() != tokens * self.widths.d_model || Some(y.len()) != tokens.checked_mul(self.widths.d_out) {
            return Err(self.wrong_lengths(x.len(), y.len()));
        }
        // SAFETY: a live layer, a live context or NULL, and tokens dense rows in both slices, which do not overlap.
        check(unsafe { sys::ffn_layer_forward(self.raw.as_ptr(), context, tokens as i64, x.as_ptr(), 0, y.as_mut_ptr(), 0) })
    }

    #[cold]
    fn wrong_lengths(&self, x: usize, y: usize) -> Error {
        let (d_model, d_out) = (self.widths.d_model, self.widths.d_out);
        Error::invalid(format!("x has {x} numbers and y {y}, must have tokens * {d_model} (d_model) and tokens * {d_out} (d_out)"))
    }

    /// Runs the layer on sequences, with strides, with a residual of its own, or in place.
    #[inline]
    pub fn run(&self, run: Run<'_, '_>) -> Result<()> {
        self.run_raw(null_mut(), run)
    }

    /// The same with the context's threads and scratch memory.
    #[inline]
    pub fn run_in(&self, context: &mut Context, run: Run<'_, '_>) -> Result<()> {
        context.lend(|context| self.run_raw(context, run))
    }

    #[inline]
    fn run_raw(&self, context: *mut sys::ffn_context_t, run: Run<'_, '_>) -> Result<()> {
        let (mut given, mut moe) = run.describe(&self.widths)?;
        given.moe = moe.as_mut().map_or(null(), Particular::link);
        // SAFETY: a live layer, a live context or NULL, and rows that were checked to lie within their slices.
        check(unsafe { sys::ffn_layer_run(self.raw.as_ptr(), context, &given) })
    }

    /// Runs a trainable layer ([`LayerFlags::TRAINABLE`](crate::LayerFlags::TRAINABLE)) and records the run on the tape, for
    /// [`Recorded::backward`]. The input and an external residual stay borrowed until that is done, the layer and the tape too; the output does not.
    /// It may not be in place of the input or the residual.
    pub fn record<'t>(&'t self, tape: &'t mut Tape, run: Run<'t, '_>) -> Result<Recorded<'t>> {
        self.record_raw(null_mut(), tape, run)
    }

    /// The same with the context's threads and scratch memory.
    pub fn record_in<'t>(&'t self, context: &mut Context, tape: &'t mut Tape, run: Run<'t, '_>) -> Result<Recorded<'t>> {
        context.lend(|context| self.record_raw(context, tape, run))
    }

    fn record_raw<'t>(&'t self, context: *mut sys::ffn_context_t, tape: &'t mut Tape, run: Run<'t, '_>) -> Result<Recorded<'t>> {
        let (mut given, mut moe) = run.describe(&self.widths)?;
        given.moe = moe.as_mut().map_or(null(), Particular::link);
        given.tape = tape.as_mut_ptr();
        // SAFETY: as in run_raw; what the tape borrows is borrowed for as long as what is given back lives.
        check(unsafe { sys::ffn_layer_run(self.raw.as_ptr(), context, &given) })?;
        let widths = Widths { top_k: moe.as_ref().and_then(Particular::top_k).unwrap_or(self.widths.top_k), ..self.widths };
        Ok(Recorded::new(self, Recording { tape, batch: given.batch as usize, length: given.length as usize, widths }))
    }

    /// Puts new values of some tensors into a trainable layer, by role, each in the shape that the layer has it in, from any strides. Nothing is
    /// changed unless all are right.
    ///
    /// ```
    /// # use libffn::{Activation, Layer, LayerFlags, LayerOptions, Role, Tensor};
    /// # fn main() -> libffn::Result<()> {
    /// # let weights = [1.0, 0.0, 0.0, 1.0];
    /// # let tensors = [Tensor::new(Role::UP_WEIGHT, &weights, &[2, 2])?, Tensor::new(Role::DOWN_WEIGHT, &weights, &[2, 2])?];
    /// let mut layer = Layer::new(LayerOptions::new().activation(Activation::RELU).flags(LayerFlags::TRAINABLE), &tensors)?;
    /// layer.update(&[Tensor::new(Role::DOWN_WEIGHT, &[2.0, 0.0, 0.0, 2.0], &[2, 2])?])?;
    /// let mut y = [0.0; 2];
    /// layer.forward(&[3.0, 4.0], &mut y)?;
    /// assert_eq!(y, [6.0, 8.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&mut self, tensors: &[Tensor<'_>]) -> Result<()> {
        self.update_raw(null_mut(), tensors)
    }

    /// The same with the context's threads.
    pub fn update_in(&mut self, context: &mut Context, tensors: &[Tensor<'_>]) -> Result<()> {
        context.lend(|context| self.update_raw(context, tensors))
    }

    fn update_raw(&mut self, context: *mut sys::ffn_context_t, tensors: &[Tensor<'_>]) -> Result<()> {
        // SAFETY: a live layer that no one else uses, a live context or NULL, and tensors that were checked to lie within their arrays.
        check(unsafe { sys::ffn_layer_update(self.raw.as_ptr(), context, tensors.as_ptr().cast(), tensors.len() as u64) })
    }

    /// Allocates the calling thread's own scratch memory for up to `tokens` tokens. Of a context: [`Context::reserve`].
    pub fn reserve(&self, tokens: usize) -> Result<()> {
        self.reserve_raw(null_mut(), tokens)
    }

    pub(crate) fn reserve_raw(&self, context: *mut sys::ffn_context_t, tokens: usize) -> Result<()> {
        // SAFETY: a live layer, and a live context or NULL.
        check(unsafe { sys::ffn_context_reserve(context, self.raw.as_ptr(), count(tokens)) })
    }

    /// Gives weights back, exactly the numbers that the layer was made of: each view gets the tensor of its role. Nothing is written unless all
    /// views are right.
    ///
    /// ```
    /// # use libffn::{Activation, Layer, LayerOptions, Role, Tensor, TensorMut};
    /// # fn main() -> libffn::Result<()> {
    /// # let weights = [1.0, 2.0, 3.0, 4.0];
    /// # let tensors = [Tensor::new(Role::UP_WEIGHT, &weights, &[2, 2])?, Tensor::new(Role::DOWN_WEIGHT, &weights, &[2, 2])?];
    /// # let layer = Layer::new(LayerOptions::new().activation(Activation::RELU), &tensors)?;
    /// let mut up = [0.0; 4];
    /// layer.read(&mut [TensorMut::new(Role::UP_WEIGHT, &mut up, &[2, 2])?])?;
    /// assert_eq!(up, weights);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, tensors: &mut [TensorMut<'_>]) -> Result<()> {
        // SAFETY: a live layer; each view (a TensorMut is an ffn_tensor_t) was checked to lie within its array, which is borrowed for writing.
        check(unsafe { sys::ffn_layer_read(self.raw.as_ptr(), tensors.as_mut_ptr().cast_const().cast(), tensors.len() as u64) })
    }

    /// What the layer is.
    pub fn info(&self) -> LayerInfo {
        let mut info = sys::ffn_layer_info_t::default();
        info.struct_size = size_of_val(&info) as u32;
        // SAFETY: a live layer, and a struct of the size that it says.
        let status = unsafe { sys::ffn_layer_info(self.raw.as_ptr(), &mut info) };
        assert_eq!(status, sys::FFN_OK, "a live layer tells what it is");
        LayerInfo(info)
    }

    /// Width of an input row.
    pub fn d_model(&self) -> usize {
        self.widths.d_model
    }

    /// Width of an output row.
    pub fn d_out(&self) -> usize {
        self.widths.d_out
    }

    /// The handle, for calls into [`sys`](crate::sys). It lives as long as the layer.
    pub fn as_ptr(&self) -> *const sys::ffn_layer_t {
        self.raw.as_ptr()
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        // SAFETY: made by the library, and no call is using it: there is no reference.
        unsafe { sys::ffn_layer_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Layer").field(&self.info()).finish()
    }
}

/// What a layer is.
#[derive(Clone, Copy)]
pub struct LayerInfo(sys::ffn_layer_info_t);

impl LayerInfo {
    /// Width of x.
    pub fn d_model(&self) -> usize {
        self.0.d_model as usize
    }

    /// Width of the hidden row.
    pub fn d_ff(&self) -> usize {
        self.0.d_ff as usize
    }

    /// Width of y.
    pub fn d_out(&self) -> usize {
        self.0.d_out as usize
    }

    /// Whether it has a gate.
    pub fn gated(&self) -> bool {
        self.0.gated != 0
    }

    /// As in the options.
    pub fn activation(&self) -> Activation {
        Activation::from_raw(self.0.activation)
    }

    /// As in the options.
    pub fn residual(&self) -> Residual {
        Residual::from_raw(self.0.residual)
    }

    /// The kind of norm in a slot; none in a slot that there is not.
    pub fn norm(&self, slot: NormSlot) -> Norm {
        self.0.norm.get(slot.to_raw() as usize).map_or(Norm::NONE, |&kind| Norm::from_raw(kind))
    }

    /// As resolved: never auto.
    pub fn engine(&self) -> Engine {
        Engine::from_raw(self.0.engine)
    }

    /// As resolved: never auto.
    pub fn isa(&self) -> Isa {
        Isa::from_raw(self.0.isa)
    }

    /// Numbers in all tensors.
    pub fn parameters(&self) -> i64 {
        self.0.parameters
    }

    /// Numbers in the tensor of a role; 0 for an absent one.
    pub fn parameters_of(&self, role: Role) -> i64 {
        self.0.parameters_of.get(role.to_raw() as usize).copied().unwrap_or(0)
    }

    /// Experts with weights, of a mixture; 0 of a dense layer, as the next four.
    pub fn experts(&self) -> usize {
        self.0.experts as usize
    }

    /// Experts that return their input.
    pub fn identity_experts(&self) -> usize {
        self.0.identity_experts as usize
    }

    /// Choices of a token.
    pub fn top_k(&self) -> usize {
        self.0.top_k as usize
    }

    /// Hidden width of the shared experts.
    pub fn d_shared(&self) -> usize {
        self.0.d_shared as usize
    }

    /// Width of the latent projections.
    pub fn d_latent(&self) -> usize {
        self.0.d_latent as usize
    }

    /// Numbers that a token meets: all but those of experts - top_k experts.
    pub fn active_parameters(&self) -> i64 {
        self.0.active_parameters
    }

    /// Memory that the layer holds.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl fmt::Debug for LayerInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LayerInfo")
            .field("d_model", &self.d_model())
            .field("d_ff", &self.d_ff())
            .field("d_out", &self.d_out())
            .field("gated", &self.gated())
            .field("activation", &self.activation())
            .field("residual", &self.residual())
            .field("norm", &self.0.norm.map(Norm::from_raw))
            .field("engine", &self.engine())
            .field("isa", &self.isa())
            .field("parameters", &self.parameters())
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// The `d_ff` that gives a gated layer the parameters of a dense one: 2/3 `d_ff`, rounded up to a multiple of `multiple`.
///
/// ```
/// assert_eq!(libffn::gated_d_ff(16384, 256)?, 11008); // LLaMA's
/// # Ok::<(), libffn::Error>(())
/// ```
pub fn gated_d_ff(d_ff: usize, multiple: usize) -> Result<usize> {
    let mut gated = 0;
    // SAFETY: a number to write to.
    check(unsafe { sys::ffn_gated_d_ff(count(d_ff), count(multiple), &mut gated) })?;
    Ok(gated as usize)
}

const _: () = assert!(size_of::<Tensor<'_>>() == size_of::<sys::ffn_tensor_t>());
