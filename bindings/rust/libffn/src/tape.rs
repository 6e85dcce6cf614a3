//! The tape, and the backward pass of what was recorded on it.
use std::fmt;
use std::mem::size_of;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::checks::count;
use crate::moe::DispatchGradients;
use crate::run::{Rows, Widths};
use crate::{allocator, error::check, sys, Allocator, Context, Error, Layer, Result, TensorMut};

/// Memory for what a forward pass leaves for the backward pass: [`Layer::record`]. It is used for one run after the other, also of other layers, and
/// allocates only where it has to grow.
pub struct Tape {
    raw: NonNull<sys::ffn_tape_t>,
    _allocator: allocator::Kept,
}

// SAFETY: a tape belongs to no thread, and its allocator is Send and Sync.
unsafe impl Send for Tape {}
// SAFETY: nothing of it is reached through a shared reference.
unsafe impl Sync for Tape {}

/// How a tape is made. What is not set has its default.
#[derive(Clone, Default)]
pub struct TapeOptions {
    recompute: bool,
    allocator: Option<Arc<dyn Allocator>>,
}

impl TapeOptions {
    /// All defaults: the pre-activations are kept, which is the fastest.
    pub fn new() -> Self {
        Self::default()
    }

    /// The backward pass computes the pre-activations again, from the input: no memory for them, and one product more.
    pub fn recompute(&mut self, recompute: bool) -> &mut Self {
        self.recompute = recompute;
        self
    }

    /// Where the tape's memory comes from. Default: the C library.
    pub fn allocator(&mut self, allocator: Arc<dyn Allocator>) -> &mut Self {
        self.allocator = Some(allocator);
        self
    }
}

impl Tape {
    /// Makes an empty tape.
    pub fn new(options: &TapeOptions) -> Result<Self> {
        let kept = allocator::keep(options.allocator.clone());
        let hook = allocator::hook(&kept);
        let given = sys::ffn_tape_options_t {
            struct_size: size_of::<sys::ffn_tape_options_t>() as u32,
            flags: if options.recompute { sys::FFN_TAPE_RECOMPUTE } else { 0 },
            allocator: hook.as_ref().map_or(null(), |hook| hook),
        };
        let mut raw = null_mut();
        // SAFETY: options and out-parameter are alive; what outlives the call is kept beside the handle.
        check(unsafe { sys::ffn_tape_create(&given, &mut raw) })?;
        let raw = NonNull::new(raw).expect("a tape that was made");
        Ok(Tape { raw, _allocator: kept })
    }

    /// Allocates what recording runs of `layer` on up to `tokens` tokens needs.
    pub fn reserve(&mut self, layer: &Layer, tokens: usize) -> Result<()> {
        // SAFETY: a live tape and a live layer.
        check(unsafe { sys::ffn_tape_reserve(self.raw.as_ptr(), layer.as_ptr(), count(tokens)) })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sys::ffn_tape_t {
        self.raw.as_ptr()
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        // SAFETY: made by ffn_tape_create, and no call is using it: there is no reference.
        unsafe { sys::ffn_tape_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Tape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tape")
    }
}

/// A run that was recorded: [`Layer::record`] gives it. It borrows the layer, the tape, and what the run read: none of them changes before the
/// backward pass.
///
/// ```
/// use libffn::{Activation, Backward, Layer, LayerFlags, LayerOptions, Role, Run, Tape, TapeOptions, Tensor, TensorMut};
/// # fn main() -> libffn::Result<()> {
/// let (mut up, down) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
/// let tensors = [Tensor::new(Role::UP_WEIGHT, &up, &[2, 2])?, Tensor::new(Role::DOWN_WEIGHT, &down, &[2, 2])?];
/// let mut layer = Layer::new(LayerOptions::new().activation(Activation::IDENTITY).flags(LayerFlags::TRAINABLE), &tensors)?;
/// let mut tape = Tape::new(&TapeOptions::new())?;
/// let (x, mut y, mut d_x, mut d_up) = ([1.0, 1.0], [0.0; 2], [0.0; 2], [0.0; 4]);
///
/// let mut recorded = layer.record(&mut tape, Run::new(&x, &mut y))?;
/// assert_eq!(y, [3.0, 7.0]);
/// let d_y = [1.0, 0.0]; // the loss is y[0]
/// recorded.backward(Backward::new(&d_y).d_x(&mut d_x), &mut [TensorMut::new(Role::UP_WEIGHT, &mut d_up, &[2, 2])?])?;
/// assert_eq!((d_x, d_up), ([1.0, 2.0], [1.0, 1.0, 0.0, 0.0]));
///
/// for (weight, gradient) in up.iter_mut().zip(d_up) {
///     *weight -= 0.5 * gradient;
/// }
/// layer.update(&[Tensor::new(Role::UP_WEIGHT, &up, &[2, 2])?])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recorded<'t> {
    layer: &'t Layer,
    recording: Recording<'t>,
}

impl<'t> Recorded<'t> {
    /// What the tape borrows is borrowed for 't: the caller's word.
    pub(crate) fn new(layer: &'t Layer, recording: Recording<'t>) -> Self {
        Recorded { layer, recording }
    }

    /// The exact derivatives of a loss by each tensor of the layer that has a view in `gradients`, by role and in its shape, and by what `backward`
    /// asks for; through the same dropout. Of scales with tanh they are by the number before the tanh, of xielu's scalars by those before their
    /// softplus. Of a mixture's own tensors the views are stacks, or of one expert each: [`TensorMut::expert`].
    ///
    /// The recording is used up; another call is refused. One that fails has written nothing, and leaves the recording as it was.
    pub fn backward(&mut self, backward: Backward<'_>, gradients: &mut [TensorMut<'_>]) -> Result<()> {
        self.backward_raw(null_mut(), backward, gradients)
    }

    /// The same with the context's threads and scratch memory. The bits do not depend on them.
    pub fn backward_in(&mut self, context: &mut Context, backward: Backward<'_>, gradients: &mut [TensorMut<'_>]) -> Result<()> {
        context.lend(|context| self.backward_raw(context, backward, gradients))
    }

    fn backward_raw(&mut self, context: *mut sys::ffn_context_t, backward: Backward<'_>, gradients: &mut [TensorMut<'_>]) -> Result<()> {
        let layer = self.layer.as_ptr();
        // SAFETY: a live layer and a live context or NULL, and what the recording gives: what the tape borrows is borrowed still.
        self.recording.backward(backward, gradients, |given| unsafe { sys::ffn_layer_backward(layer, context, given) })
    }
}

/// What a tape holds of a run, of a layer or of a convolution.
#[derive(Debug)]
pub(crate) struct Recording<'t> {
    pub(crate) tape: &'t mut Tape,
    pub(crate) batch: usize,
    pub(crate) length: usize,
    pub(crate) widths: Widths, // of a run that brought its routing, with that one's top_k
}

impl Recording<'_> {
    /// Calls the library's backward pass with the tape, rows that were checked to lie within their slices, and views that were checked to lie within
    /// their arrays; all that is written is borrowed for writing.
    pub(crate) fn backward(
        &mut self,
        backward: Backward<'_>,
        gradients: &mut [TensorMut<'_>],
        call: impl FnOnce(&sys::ffn_backward_t) -> sys::ffn_status_t,
    ) -> Result<()> {
        let (mut given, moe) = backward.describe(self)?;
        given.tape = self.tape.as_mut_ptr();
        given.gradients = gradients.as_mut_ptr().cast_const().cast(); // a TensorMut is an ffn_tensor_t
        given.gradient_count = gradients.len() as u64;
        given.moe = moe.as_ref().map_or(null(), |moe| moe);
        check(call(&given))
    }
}

/// The rows of a backward pass, for [`Recorded::backward`]: in the recorded run's sequences, with strides in bytes as those of
/// [`Run`](crate::Run).
#[derive(Debug)]
pub struct Backward<'a> {
    d_y: Given<'a>,
    d_x: Option<&'a mut [f32]>,
    d_residual: Option<&'a mut [f32]>,
    d_y_stride: [usize; 2],
    d_x_stride: [usize; 2],
    d_residual_stride: [usize; 2],
    accumulate: bool,
    moe: Option<DispatchGradients<'a>>,
}

#[derive(Debug)]
enum Given<'a> {
    Read(&'a [f32]),
    ForX(&'a mut [f32]),
    ForResidual(&'a mut [f32]),
}

impl<'a> Backward<'a> {
    /// From the derivatives of the loss by y.
    pub fn new(d_y: &'a [f32]) -> Self {
        Self::of(Given::Read(d_y))
    }

    /// The same; those by x take their place.
    pub fn in_place(d_y: &'a mut [f32]) -> Self {
        Self::of(Given::ForX(d_y))
    }

    /// The same; those by an external residual take their place.
    pub fn residual_in_place(d_y: &'a mut [f32]) -> Self {
        Self::of(Given::ForResidual(d_y))
    }

    fn of(d_y: Given<'a>) -> Self {
        let zero = [0; 2];
        Backward { d_y, d_x: None, d_residual: None, d_y_stride: zero, d_x_stride: zero, d_residual_stride: zero, accumulate: false, moe: None }
    }

    /// Where the derivatives by x go, which are overwritten.
    pub fn d_x(mut self, d_x: &'a mut [f32]) -> Self {
        self.d_x = Some(d_x);
        self
    }

    /// Where those by an external residual go, likewise.
    pub fn d_residual(mut self, d_residual: &'a mut [f32]) -> Self {
        self.d_residual = Some(d_residual);
        self
    }

    /// The tensors' gradients are added to what their arrays hold, instead of overwriting it.
    pub fn accumulate(mut self) -> Self {
        self.accumulate = true;
        self
    }

    /// What is particular to the backward pass of a mixture of experts.
    pub fn moe(mut self, gradients: DispatchGradients<'a>) -> Self {
        self.moe = Some(gradients);
        self
    }

    /// Bytes from sequence to sequence and from row to row of `d_y`, as those of [`Run::x_stride`](crate::Run::x_stride).
    pub fn d_y_stride(mut self, sequence: usize, row: usize) -> Self {
        self.d_y_stride = [sequence, row];
        self
    }

    /// Likewise of `d_x`; in place `d_y`'s are taken.
    pub fn d_x_stride(mut self, sequence: usize, row: usize) -> Self {
        self.d_x_stride = [sequence, row];
        self
    }

    /// Likewise of `d_residual`.
    pub fn d_residual_stride(mut self, sequence: usize, row: usize) -> Self {
        self.d_residual_stride = [sequence, row];
        self
    }

    /// For the C interface. `moe` is for the caller to link.
    fn describe(self, recording: &Recording<'_>) -> Result<(sys::ffn_backward_t, Option<sys::ffn_moe_backward_t>)> {
        let Recording { batch, length, ref widths, .. } = *recording;
        let (d_model, d_out, length_of_each) = (widths.d_model, widths.d_out, length);
        let rows = |name, numbers, width, stride| {
            // Without strides no number may be left over.
            Rows { name, numbers, batch, length: length_of_each, width, stride, whole: stride == [0; 2] }.strides()
        };
        let mut given = sys::ffn_backward_t {
            struct_size: size_of::<sys::ffn_backward_t>() as u32,
            flags: if self.accumulate { sys::FFN_BACKWARD_ACCUMULATE } else { 0 },
            ..Default::default()
        };
        let (d_y, length, place) = match self.d_y {
            Given::Read(d_y) => (d_y.as_ptr(), d_y.len(), None),
            Given::ForX(d_y) => (d_y.as_mut_ptr().cast_const(), d_y.len(), Some("d_x")),
            Given::ForResidual(d_y) => (d_y.as_mut_ptr().cast_const(), d_y.len(), Some("d_residual")),
        };
        let target = |name, array: Option<&mut [f32]>, width, stride| match (array, place == Some(name)) {
            (Some(_), true) => Err(Error::invalid(format!("{name} is given, but takes the place of d_y"))),
            (Some(array), false) => Ok((array.as_mut_ptr().cast(), rows(name, array.len(), width, stride)?)),
            (None, true) => Ok((d_y.cast_mut().cast(), rows(name, length, width, self.d_y_stride)?)),
            (None, false) => Ok((null_mut(), [0; 2])),
        };
        (given.d_x, given.d_x_stride) = target("d_x", self.d_x, d_model, self.d_x_stride)?;
        (given.d_residual, given.d_residual_stride) = target("d_residual", self.d_residual, d_out, self.d_residual_stride)?;
        given.d_y_stride = rows("d_y", length, d_out, self.d_y_stride)?;
        given.d_y = d_y.cast();
        let moe = self.moe.map(|moe| moe.describe(batch * length_of_each, widths)).transpose()?;
        Ok((given, moe))
    }
}
