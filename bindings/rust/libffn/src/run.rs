//! A run: sequences with strides, an external residual, in place.
use crate::moe_layer::{Dispatch, Particular};
use crate::{sys, Dropout, Error, Result, Stats};

/// The arrays of one run, for [`Layer::run`](crate::Layer::run). Strides are in bytes; rows are dense.
///
/// ```
/// # use libffn::{Activation, Layer, LayerOptions, Residual, Role, Run, Tensor};
/// # fn main() -> libffn::Result<()> {
/// # let weights = [1.0, 0.0, 0.0, 1.0];
/// # let tensors = [Tensor::new(Role::UP_WEIGHT, &weights, &[2, 2])?, Tensor::new(Role::DOWN_WEIGHT, &weights, &[2, 2])?];
/// # let layer = Layer::new(LayerOptions::new().activation(Activation::RELU).residual(Residual::EXTERNAL), &tensors)?;
/// // 2 sequences of 3 rows, each row 2 numbers of 3; the output and the residual are contiguous
/// let x = [1.0, 2.0, -9.0, 3.0, 4.0, -9.0, 5.0, 6.0, -9.0, 7.0, 8.0, -9.0, 9.0, 10.0, -9.0, 11.0, 12.0, -9.0];
/// let (residual, mut y) = ([100.0; 12], [0.0; 12]);
/// layer.run(Run::new(&x, &mut y).batch(2, 3).x_stride(36, 12).residual(&residual))?;
/// assert_eq!(y[..4], [101.0, 102.0, 103.0, 104.0]);
/// # Ok(())
/// # }
/// ```
///
/// `'x` is what is read, `'y` what is written.
#[derive(Debug)]
pub struct Run<'x, 'y> {
    x: Option<&'x [f32]>, // None: y's
    y: &'y mut [f32],
    residual: External<'x>,
    dropout: Option<&'x Dropout>,
    moe: Option<Dispatch<'x, 'y>>,
    stats: Option<&'y mut Stats>,
    rows: Option<(usize, usize)>,
    x_stride: [usize; 2],
    y_stride: [usize; 2],
    residual_stride: [usize; 2],
}

#[derive(Debug)]
enum External<'x> {
    Absent,
    Array(&'x [f32]),
    Output,
}

impl<'x, 'y> Run<'x, 'y> {
    /// From x to y; without [`Run::batch`] one sequence, contiguous, of as many rows as `x` has.
    #[inline]
    pub fn new(x: &'x [f32], y: &'y mut [f32]) -> Self {
        let zero = [0; 2];
        let residual = External::Absent;
        Run { x: Some(x), y, residual, dropout: None, moe: None, stats: None, rows: None, x_stride: zero, y_stride: zero, residual_stride: zero }
    }

    /// The output in place of the input.
    pub fn in_place(y: &'y mut [f32]) -> Self {
        Run { x: None, ..Run::new(&[], y) }
    }

    /// How many sequences, and how many rows each has. Needed where there are strides.
    pub fn batch(mut self, batch: usize, length: usize) -> Self {
        self.rows = Some((batch, length));
        self
    }

    /// The residual of a layer with [`Residual::EXTERNAL`](crate::Residual::EXTERNAL): as many rows, of `d_out`.
    pub fn residual(mut self, residual: &'x [f32]) -> Self {
        self.residual = External::Array(residual);
        self
    }

    /// The residual is what y holds.
    pub fn residual_in_place(mut self) -> Self {
        self.residual = External::Output;
        self
    }

    /// Dropout, of a trainable layer. Without [`Run::batch`] all rows are one sequence.
    pub fn dropout(mut self, dropout: &'x Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// What is particular to a run of a mixture of experts.
    pub fn moe(mut self, dispatch: Dispatch<'x, 'y>) -> Self {
        self.moe = Some(dispatch);
        self
    }

    /// What the hidden units do is counted there.
    pub fn stats(mut self, stats: &'y mut Stats) -> Self {
        self.stats = Some(stats);
        self
    }

    /// Bytes from sequence to sequence and from row to row of x. 0: the rows' length, and length times the row stride. In place y's are taken.
    pub fn x_stride(mut self, sequence: usize, row: usize) -> Self {
        self.x_stride = [sequence, row];
        self
    }

    /// Likewise of y.
    pub fn y_stride(mut self, sequence: usize, row: usize) -> Self {
        self.y_stride = [sequence, row];
        self
    }

    /// Likewise of the residual.
    pub fn residual_stride(mut self, sequence: usize, row: usize) -> Self {
        self.residual_stride = [sequence, row];
        self
    }

    /// For the C interface: every row lies within its slice. `moe` is for the caller to link.
    #[inline]
    pub(crate) fn describe(self, widths: &Widths) -> Result<(sys::ffn_run_t, Option<Particular>)> {
        let (d_model, d_out) = (widths.d_model, widths.d_out);
        let (y_data, y_length) = (self.y.as_mut_ptr(), self.y.len());
        let (x_data, x_length) = self.x.map_or((y_data.cast_const(), y_length), |x| (x.as_ptr(), x.len()));
        let x_stride = if self.x.is_some() { self.x_stride } else { self.y_stride };
        let (batch, length) = match self.rows {
            Some(rows) => rows,
            None if self.x_stride == [0; 2] && self.y_stride == [0; 2] && self.residual_stride == [0; 2] => (1, x_length / d_model),
            None => return Err(Error::invalid("strides are given, but not batch and length".to_owned())),
        };
        let whole = self.rows.is_none();
        let rows = |name, numbers, width, stride| Rows { name, numbers, batch, length, width, stride, whole }.strides();
        let (residual, residual_stride) = match self.residual {
            External::Absent => (std::ptr::null(), [0; 2]),
            External::Array(array) => (array.as_ptr(), rows("residual", array.len(), d_out, self.residual_stride)?),
            External::Output => (y_data.cast_const(), rows("residual", y_length, d_out, self.y_stride)?),
        };
        let particular = match self.moe {
            None => None,
            Some(dispatch) => Some(dispatch.describe(batch.saturating_mul(length), widths)?),
        };
        let given = sys::ffn_run_t {
            struct_size: std::mem::size_of::<sys::ffn_run_t>() as u32,
            batch: size("batch", batch)?,
            length: size("length", length)?,
            x_stride: rows("x", x_length, d_model, x_stride)?,
            y_stride: rows("y", y_length, d_out, self.y_stride)?,
            residual_stride,
            x: x_data.cast(),
            y: y_data.cast(),
            residual: residual.cast(),
            dropout: self.dropout.map_or(std::ptr::null(), |dropout| dropout.raw()),
            stats: self.stats.map_or(std::ptr::null_mut(), |stats| stats.as_mut_ptr()),
            ..Default::default()
        };
        Ok((given, particular))
    }
}

/// What a layer's runs are measured by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Widths {
    pub(crate) d_model: usize,
    pub(crate) d_out: usize,
    pub(crate) experts: usize, // identity experts included; 0: no mixture
    pub(crate) top_k: usize,
    pub(crate) given_ids: bool, // runs bring ids, and the layer makes their weights
}

fn size(name: &str, number: usize) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::invalid(format!("{name} is {number}, must be at most 2^63 - 1")))
}

/// The rows of one array, and what it has.
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) numbers: usize,
    pub(crate) batch: usize,
    pub(crate) length: usize,
    pub(crate) width: usize,
    pub(crate) stride: [usize; 2],
    pub(crate) whole: bool, // no number may be left over
}

impl Rows {
    /// The strides as the library is given them, resolved, so that what is checked here is what it uses.
    #[inline]
    pub(crate) fn strides(&self) -> Result<[i64; 2]> {
        let given = |stride, default: Option<usize>| if stride != 0 { Some(stride) } else { default };
        let row_bytes = self.width.checked_mul(4);
        let row = given(self.stride[1], row_bytes);
        let sequence = given(self.stride[0], row.and_then(|row| row.checked_mul(self.length)));
        let end = || {
            let sequences = (self.batch - 1).checked_mul(sequence?)?;
            (self.length - 1).checked_mul(row?)?.checked_add(sequences)?.checked_add(row_bytes?)
        };
        let needed = if self.batch == 0 || self.length == 0 { Some(0) } else { end() };
        let there = self.numbers * 4; // a slice has at most isize::MAX bytes
        let fits = needed.is_some_and(|needed| if self.whole { needed == there } else { needed <= there });
        match (sequence.map(i64::try_from), row.map(i64::try_from)) {
            (Some(Ok(sequence)), Some(Ok(row))) if fits => Ok(if self.stride == [0; 2] { [0; 2] } else { [sequence, row] }),
            _ => Err(self.does_not_fit()),
        }
    }

    #[cold]
    fn does_not_fit(&self) -> Error {
        let Rows { name, numbers, batch, length, width, stride, whole } = self;
        let must = if *whole { "exactly" } else { "at least" };
        Error::invalid(format!("{name} has {numbers} numbers, must have {must} {batch} * {length} rows of {width} (strides {stride:?} bytes)"))
    }
}
