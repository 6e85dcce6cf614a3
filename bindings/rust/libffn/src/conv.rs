//! The feed-forward layer whose products reach along the sequence.
use std::fmt;
use std::mem::{size_of, size_of_val};
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::checks::{check_length, check_optional, count, pointer};
use crate::context::lend;
use crate::run::Widths;
use crate::tape::Recording;
use crate::{
    allocator,
    constants::{constants, flags},
    error::check,
    sys, Activation, Allocator, Backward, Context, Dropout, Engine, Error, Isa, Result, Role, Stats,
};
use crate::{Tape, Tensor, TensorMut};

constants! {
    /// Where zeros stand around a sequence.
    ConvPadding(u32) {
        /// (k - 1) / 2 before, k / 2 behind.
        SAME = FFN_CONV_SAME,
        /// k - 1 before: causal.
        LEFT = FFN_CONV_LEFT,
    }
}
constants! {
    /// Where a run's mask makes zeros of positions.
    ConvMask(u32) {
        /// In the input of each convolution whose kernel size is not 1.
        TAPS = FFN_CONV_MASK_TAPS,
        /// In the input of both, and in y.
        ALL = FFN_CONV_MASK_ALL,
    }
}
flags! {
    /// Switches of a convolutional layer, to be or-ed.
    ConvFlags {
        /// Each convolution is multiplied by k^-1/2.
        SCALE_BY_TAPS = FFN_CONV_SCALE_BY_TAPS,
        /// It may be recorded, run with dropout, and updated.
        TRAINABLE = FFN_CONV_TRAINABLE,
    }
}

/// What a convolutional layer is to compute: the fields of `ffn_conv_options_t`.
#[derive(Clone)]
pub struct ConvOptions {
    raw: sys::ffn_conv_options_t, // its pointers are NULL
    allocator: Option<Arc<dyn Allocator>>,
}

// SAFETY: the pointers of raw are NULL; the allocator is Send and Sync.
unsafe impl Send for ConvOptions {}
// SAFETY: likewise.
unsafe impl Sync for ConvOptions {}

impl ConvOptions {
    /// All defaults but the activation.
    pub fn new(activation: Activation) -> Self {
        let struct_size = size_of::<sys::ffn_conv_options_t>() as u32;
        ConvOptions { raw: sys::ffn_conv_options_t { struct_size, activation: activation.to_raw(), ..Default::default() }, allocator: None }
    }

    /// Where zeros stand around a sequence. Default: SAME.
    pub fn padding(&mut self, padding: ConvPadding) -> &mut Self {
        self.raw.padding = padding.to_raw();
        self
    }

    /// Where a mask makes zeros. Default: TAPS.
    pub fn mask(&mut self, mask: ConvMask) -> &mut Self {
        self.raw.mask = mask.to_raw();
        self
    }

    /// Switches.
    pub fn flags(&mut self, flags: ConvFlags) -> &mut Self {
        self.raw.flags = flags.to_raw();
        self
    }

    /// Kernel sizes that the tensors must have. 0, the default: theirs.
    pub fn kernel_sizes(&mut self, first: usize, second: usize) -> &mut Self {
        (self.raw.kernel_size, self.raw.second_kernel_size) = (count(first), count(second));
        self
    }

    /// Parameters of the activation.
    pub fn parameters(&mut self, alpha: f32, beta: f32) -> &mut Self {
        (self.raw.alpha, self.raw.beta) = (alpha, beta);
        self
    }

    /// Who multiplies the matrices, and the highest level.
    pub fn engine(&mut self, engine: Engine, max_isa: Isa) -> &mut Self {
        (self.raw.engine, self.raw.max_isa) = (engine.to_raw(), max_isa.to_raw());
        self
    }

    /// Where the layer's memory comes from. Default: the C library.
    pub fn allocator(&mut self, allocator: Arc<dyn Allocator>) -> &mut Self {
        self.allocator = Some(allocator);
        self
    }
}

impl fmt::Debug for ConvOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(formatter)
    }
}

/// A convolutional feed-forward layer. It never changes but by [`Conv::update`], so that threads share it.
///
/// ```
/// use libffn::{Activation, Conv, ConvOptions, ConvPadding, ConvRun, Role, Tensor};
/// # fn main() -> libffn::Result<()> {
/// let (up, down) = ([1.0, 10.0], [1.0]); // one channel: 10 times the position, and the one before it
/// let tensors = [Tensor::new(Role::UP_WEIGHT, &up, &[1, 1, 2])?, Tensor::new(Role::DOWN_WEIGHT, &down, &[1, 1])?];
/// let conv = Conv::new(None, ConvOptions::new(Activation::RELU).padding(ConvPadding::LEFT), &tensors)?;
/// let mut y = [0.0; 3];
/// conv.run(None, ConvRun::new(1, &[1.0, 2.0, 3.0], &mut y))?;
/// assert_eq!(y, [10.0, 21.0, 32.0]);
/// # Ok(())
/// # }
/// ```
pub struct Conv {
    raw: NonNull<sys::ffn_conv_t>,
    d_model: usize,
    d_out: usize,
    _allocator: allocator::Kept,
}

// SAFETY: it never changes after it was made, but through &mut self; it belongs to no thread, and its allocator is Send and Sync.
unsafe impl Send for Conv {}
// SAFETY: likewise.
unsafe impl Sync for Conv {}

impl Conv {
    /// Makes it, of tensors by role: UP_WEIGHT `[d_ff, d_model, k]` or, separable, `[d_ff, d_model]` with UP_TAPS `[d_model, k]`, and so on.
    pub fn new(context: Option<&mut Context>, options: &ConvOptions, tensors: &[Tensor<'_>]) -> Result<Self> {
        let kept = allocator::keep(options.allocator.clone());
        let hook = allocator::hook(&kept);
        let mut given = options.raw;
        given.tensors = tensors.as_ptr().cast(); // a Tensor is an ffn_tensor_t
        given.tensor_count = tensors.len() as u64;
        given.allocator = hook.as_ref().map_or(null(), |hook| hook);
        let mut raw = null_mut();
        // SAFETY: options and tensors are alive, and each tensor was checked to lie within its array.
        lend(context, |context| check(unsafe { sys::ffn_conv_create(context, &given, &mut raw) }))?;
        let raw = NonNull::new(raw).expect("a layer that was made");
        let mut conv = Conv { raw, d_model: 0, d_out: 0, _allocator: kept };
        let info = conv.info();
        (conv.d_model, conv.d_out) = (info.d_model(), info.d_out());
        Ok(conv)
    }

    /// Runs it on sequences.
    pub fn run(&self, context: Option<&mut Context>, run: ConvRun<'_, '_>) -> Result<()> {
        let given = run.describe(self.d_model, self.d_out)?;
        // SAFETY: a live layer, a live context or NULL, and arrays that were checked to hold the sequences.
        lend(context, |context| check(unsafe { sys::ffn_conv_run(self.raw.as_ptr(), context, &given) }))
    }

    /// Runs a trainable one, and records the run on the tape, as [`Layer::record`](crate::Layer::record).
    pub fn record<'t>(&'t self, context: Option<&mut Context>, tape: &'t mut Tape, run: ConvRun<'t, '_>) -> Result<ConvRecorded<'t>> {
        let mut given = run.describe(self.d_model, self.d_out)?;
        given.tape = tape.as_mut_ptr();
        // SAFETY: as in run; what the tape borrows is borrowed for as long as what is given back lives.
        lend(context, |context| check(unsafe { sys::ffn_conv_run(self.raw.as_ptr(), context, &given) }))?;
        let widths = Widths { d_model: self.d_model, d_out: self.d_out, ..Default::default() };
        Ok(ConvRecorded { conv: self, recording: Recording { tape, batch: given.batch as usize, length: given.length as usize, widths } })
    }

    /// Puts new values of some tensors into a trainable one, as [`Layer::update`](crate::Layer::update).
    pub fn update(&mut self, context: Option<&mut Context>, tensors: &[Tensor<'_>]) -> Result<()> {
        let (data, length) = (tensors.as_ptr().cast(), tensors.len() as u64);
        // SAFETY: a live layer that no one else uses, a live context or NULL, and tensors that were checked to lie within their arrays.
        lend(context, |context| check(unsafe { sys::ffn_conv_update(self.raw.as_ptr(), context, data, length) }))
    }

    /// Allocates the scratch memory for up to batch * length positions, and the tape's room for recording them.
    pub fn reserve(&self, context: Option<&mut Context>, tape: Option<&mut Tape>, batch: usize, length: usize) -> Result<()> {
        let tape = tape.map_or(null_mut(), Tape::as_mut_ptr);
        // SAFETY: a live layer, and a live context and tape or NULL.
        lend(context, |context| check(unsafe { sys::ffn_conv_reserve(self.raw.as_ptr(), context, tape, count(batch), count(length)) }))
    }

    /// Gives tensors back, as [`Layer::read`](crate::Layer::read).
    pub fn read(&self, tensors: &mut [TensorMut<'_>]) -> Result<()> {
        // SAFETY: a live layer; each view was checked to lie within its array, which is borrowed for writing.
        check(unsafe { sys::ffn_conv_read(self.raw.as_ptr(), tensors.as_mut_ptr().cast_const().cast(), tensors.len() as u64) })
    }

    /// What it is.
    pub fn info(&self) -> ConvInfo {
        let mut info = sys::ffn_conv_info_t::default();
        info.struct_size = size_of_val(&info) as u32;
        // SAFETY: a live layer, and a struct of the size that it says.
        let status = unsafe { sys::ffn_conv_info(self.raw.as_ptr(), &mut info) };
        assert_eq!(status, sys::FFN_OK, "a live layer tells what it is");
        ConvInfo(info)
    }
}

impl Drop for Conv {
    fn drop(&mut self) {
        // SAFETY: made by the library, and no call is using it: there is no reference.
        unsafe { sys::ffn_conv_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Conv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Conv").field(&self.info().0).finish()
    }
}

/// What a convolutional layer is.
#[derive(Clone, Copy, Debug)]
pub struct ConvInfo(sys::ffn_conv_info_t);

impl ConvInfo {
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

    /// Kernel sizes of both convolutions.
    pub fn kernel_sizes(&self) -> (usize, usize) {
        (self.0.kernel_size as usize, self.0.second_kernel_size as usize)
    }

    /// Whether each of them is separable.
    pub fn separable(&self) -> (bool, bool) {
        (self.0.separable & 1 != 0, self.0.separable & 2 != 0)
    }

    /// As resolved: never auto.
    pub fn engine(&self) -> Engine {
        Engine::from_raw(self.0.engine)
    }

    /// Numbers in all tensors.
    pub fn parameters(&self) -> i64 {
        self.0.parameters
    }

    /// Numbers in the tensor of a role; 0 for an absent one.
    pub fn parameters_of(&self, role: Role) -> i64 {
        self.0.parameters_of.get(role.to_raw() as usize).copied().unwrap_or(0)
    }

    /// Memory that it holds.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

/// The arrays of one run: contiguous sequences of equal length. `'x` is what is read, `'y` what is written.
#[derive(Debug)]
pub struct ConvRun<'x, 'y> {
    x: &'x [f32],
    y: &'y mut [f32],
    mask: Option<&'x [u8]>,
    dropout: Option<&'x Dropout>,
    stats: Option<&'y mut Stats>,
    batch: usize,
}

impl<'x, 'y> ConvRun<'x, 'y> {
    /// `batch` sequences, from x \[batch, length, d_model\] to y \[batch, length, d_out\].
    pub fn new(batch: usize, x: &'x [f32], y: &'y mut [f32]) -> Self {
        ConvRun { x, y, mask: None, dropout: None, stats: None, batch }
    }

    /// \[batch, length\]: 0 where the position is padding.
    pub fn mask(mut self, mask: &'x [u8]) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Dropout, of a trainable one.
    pub fn dropout(mut self, dropout: &'x Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// Counts what the hidden units do at the positions that are no padding.
    pub fn stats(mut self, stats: &'y mut Stats) -> Self {
        self.stats = Some(stats);
        self
    }

    fn describe(self, d_model: usize, d_out: usize) -> Result<sys::ffn_conv_run_t> {
        let rows = self.x.len() / d_model;
        let length = rows.checked_div(self.batch).unwrap_or(0);
        if length * self.batch * d_model != self.x.len() {
            return Err(Error::invalid(format!("x has {} numbers, must have {} sequences of rows of {d_model}", self.x.len(), self.batch)));
        }
        check_length("y", self.y.len(), rows, d_out)?;
        check_optional("mask", self.mask, rows, 1)?;
        Ok(sys::ffn_conv_run_t {
            struct_size: size_of::<sys::ffn_conv_run_t>() as u32,
            batch: count(self.batch),
            length: count(length),
            x: self.x.as_ptr().cast(),
            y: self.y.as_mut_ptr().cast(),
            mask: pointer(self.mask),
            dropout: self.dropout.map_or(null(), |dropout| dropout.raw()),
            stats: self.stats.map_or(null_mut(), Stats::as_mut_ptr),
            ..Default::default()
        })
    }
}

/// A run of a convolutional layer that was recorded, as [`Recorded`](crate::Recorded).
#[derive(Debug)]
pub struct ConvRecorded<'t> {
    conv: &'t Conv,
    recording: Recording<'t>,
}

impl ConvRecorded<'_> {
    /// The exact derivatives of a loss, as [`Recorded::backward`](crate::Recorded::backward). `d_x` must be an array of its own.
    pub fn backward(&mut self, context: Option<&mut Context>, backward: Backward<'_>, gradients: &mut [TensorMut<'_>]) -> Result<()> {
        let conv = self.conv.raw.as_ptr();
        lend(context, |context| {
            // SAFETY: a live layer and a live context or NULL, and what the recording gives: what the tape borrows is borrowed still.
            self.recording.backward(backward, gradients, |given| unsafe { sys::ffn_conv_backward(conv, context, given) })
        })
    }
}
