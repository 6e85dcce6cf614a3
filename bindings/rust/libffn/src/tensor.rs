//! Views of the caller's arrays, each with the role that it has in the layer.
use std::marker::PhantomData;

use crate::{sys, Error, Result, Role};

const ELEMENT: i128 = 4; // bytes

/// A borrowed view of weights: role, shape, and byte strides.
///
/// ```
/// use libffn::{Role, Tensor};
/// # fn main() -> libffn::Result<()> {
/// let (d_ff, d_model) = (8, 4);
/// let numbers = vec![0.5; 2 * d_ff * d_model];
///
/// // [out, in], contiguous
/// Tensor::new(Role::UP_WEIGHT, &numbers[..d_ff * d_model], &[d_ff, d_model])?;
/// // stored as [in, out], as GPT-2 has it
/// Tensor::strided(Role::UP_WEIGHT, &numbers, 0, &[d_ff, d_model], &[4, 4 * d_ff as isize])?;
/// // gate and up interleaved row by row in one tensor: up is the odd rows
/// Tensor::strided(Role::UP_WEIGHT, &numbers, d_model, &[d_ff, d_model], &[8 * d_model as isize, 4])?;
/// // more than there is
/// assert!(Tensor::strided(Role::UP_WEIGHT, &numbers, d_model + 1, &[d_ff, d_model], &[8 * d_model as isize, 4]).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Tensor<'a> {
    raw: sys::ffn_tensor_t,
    array: PhantomData<&'a [f32]>,
}

/// A borrowed view that weights are written to: [`Layer::read`](crate::Layer::read).
#[derive(Debug)]
#[repr(transparent)]
pub struct TensorMut<'a> {
    raw: sys::ffn_tensor_t,
    array: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is a reference to a slice.
unsafe impl Send for Tensor<'_> {}
// SAFETY: likewise.
unsafe impl Sync for Tensor<'_> {}
// SAFETY: it is an exclusive reference to a slice, and shows nothing of it by a shared reference.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: likewise.
unsafe impl Sync for TensorMut<'_> {}

impl<'a> Tensor<'a> {
    /// All of an array, the last dimension fastest.
    pub fn new(role: Role, array: &'a [f32], shape: &[usize]) -> Result<Self> {
        check_whole(role, array.len(), shape)?;
        Self::strided(role, array, 0, shape, &[])
    }

    /// Part of an array: element \[0, 0\] is `array[first]`, and `strides` are the **bytes** from an element to the next in each dimension,
    /// negative and 0 (a broadcast) too. No strides, or all 0: contiguous. What the view reaches must lie within the array.
    pub fn strided(role: Role, array: &'a [f32], first: usize, shape: &[usize], strides: &[isize]) -> Result<Self> {
        let raw = describe(role, array.as_ptr().cast_mut(), array.len(), first, shape, strides)?;
        Ok(Tensor { raw, array: PhantomData })
    }

    /// The expert of a mixture that it describes; of a stack, which has one dimension more, the first one.
    pub fn expert(mut self, expert: u32) -> Self {
        self.raw.expert = expert;
        self
    }
}

impl<'a> TensorMut<'a> {
    /// As [`Tensor::new`].
    pub fn new(role: Role, array: &'a mut [f32], shape: &[usize]) -> Result<Self> {
        check_whole(role, array.len(), shape)?;
        Self::strided(role, array, 0, shape, &[])
    }

    /// As [`Tensor::strided`], but no two elements may share an address.
    pub fn strided(role: Role, array: &'a mut [f32], first: usize, shape: &[usize], strides: &[isize]) -> Result<Self> {
        let raw = describe(role, array.as_mut_ptr(), array.len(), first, shape, strides)?;
        Ok(TensorMut { raw, array: PhantomData })
    }

    /// As [`Tensor::expert`].
    pub fn expert(mut self, expert: u32) -> Self {
        self.raw.expert = expert;
        self
    }
}

fn check_whole(role: Role, length: usize, shape: &[usize]) -> Result<()> {
    let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if elements == Some(length) {
        return Ok(());
    }
    Err(Error::invalid(format!("the array of {role:?} has {length} numbers, its shape {shape:?} has another product")))
}

fn describe(role: Role, array: *mut f32, length: usize, first: usize, shape: &[usize], strides: &[isize]) -> Result<sys::ffn_tensor_t> {
    let mut raw = sys::ffn_tensor_t { role: role.to_raw(), ndim: shape.len() as u32, ..Default::default() };
    if !(1..=raw.shape.len()).contains(&shape.len()) {
        return Err(Error::invalid(format!("{role:?} has {} dimensions, must have 1 to {}", shape.len(), raw.shape.len())));
    }
    if !strides.is_empty() && strides.len() != shape.len() {
        return Err(Error::invalid(format!("{role:?} has {} strides, but {} dimensions", strides.len(), shape.len())));
    }
    for (to, &size) in raw.shape.iter_mut().zip(shape) {
        *to = i64::try_from(size).map_err(|_| Error::invalid(format!("{role:?} has a dimension of {size}")))?;
    }
    for (to, &stride) in raw.stride.iter_mut().zip(strides) {
        *to = stride as i64;
    }
    let within = reach(&raw).and_then(|(low, high)| {
        let first = first as i128 * ELEMENT;
        Some(first.checked_add(low)? >= 0 && first.checked_add(high)?.checked_add(ELEMENT)? <= length as i128 * ELEMENT)
    });
    if within != Some(true) && !shape.contains(&0) {
        return Err(Error::invalid(format!(
            "{role:?} reaches beyond its array of {length} numbers: first {first}, shape {shape:?}, strides {strides:?} bytes"
        )));
    }
    raw.data = array.wrapping_add(first).cast();
    Ok(raw)
}

/// The lowest and the highest offset of an element from the first, in bytes; None beyond all addresses. The library takes strides that are all 0
/// for contiguous, so this does too: a view must not reach further than what was checked.
fn reach(raw: &sys::ffn_tensor_t) -> Option<(i128, i128)> {
    let contiguous = raw.stride.iter().all(|&stride| stride == 0);
    let (mut low, mut high, mut packed) = (0i128, 0i128, ELEMENT);
    for i in (0..raw.ndim as usize).rev() {
        let stride = if contiguous { packed } else { raw.stride[i].into() };
        let span = i128::from(raw.shape[i] - 1).checked_mul(stride)?;
        if span < 0 {
            low = low.checked_add(span)?;
        } else {
            high = high.checked_add(span)?;
        }
        packed = packed.checked_mul(raw.shape[i].into())?;
    }
    Some((low, high))
}
