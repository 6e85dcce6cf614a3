//! The numbers of tensors: weights, gradients, updates.
use std::mem::size_of;
use std::ptr::null_mut;

use crate::{error::check, sys, Context, Result, Tensor};

/// The numbers of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorHealth {
    /// How many.
    pub count: i64,
    /// 0 and -0.
    pub zeros: i64,
    /// Infinities and NaN.
    pub non_finite: i64,
    /// The square root of the sum of squares, in float64: infinite or NaN where a number is.
    pub norm: f64,
    /// |number|, of the finite ones; 0 if there is none.
    pub largest: f64,
}

/// Looks at the numbers of a tensor, whatever its role and strides.
///
/// ```
/// use libffn::{tensor_health, Role, Tensor};
/// let health = tensor_health(&Tensor::new(Role::UP_BIAS, &[3.0, 0.0, -4.0], &[3])?)?;
/// assert_eq!((health.norm, health.zeros, health.non_finite, health.largest), (5.0, 1, 0, 4.0));
/// # Ok::<(), libffn::Error>(())
/// ```
pub fn tensor_health(tensor: &Tensor<'_>) -> Result<TensorHealth> {
    health_raw(null_mut(), tensor)
}

/// The same with the context's threads, which change no bit of the result.
pub fn tensor_health_in(context: &mut Context, tensor: &Tensor<'_>) -> Result<TensorHealth> {
    context.lend(|context| health_raw(context, tensor))
}

/// A tensor is the C interface's.
fn raw(tensor: &Tensor<'_>) -> *const sys::ffn_tensor_t {
    (tensor as *const Tensor<'_>).cast()
}

fn health_raw(context: *mut sys::ffn_context_t, tensor: &Tensor<'_>) -> Result<TensorHealth> {
    let mut health = sys::ffn_tensor_health_t { struct_size: size_of::<sys::ffn_tensor_health_t>() as u32, ..Default::default() };
    // SAFETY: a live context or NULL, a tensor that was checked to lie within its array, and a struct of the size that it says.
    check(unsafe { sys::ffn_tensor_health(context, raw(tensor), &mut health) })?;
    Ok(TensorHealth { count: health.count, zeros: health.zeros, non_finite: health.non_finite, norm: health.norm, largest: health.largest })
}

/// How far a step moved a tensor: norm(after - before) / norm(before), in float64. 0 where nothing moved, infinite where something moved away from
/// zeros. (Of an update that is an array of its own, divide two norms of [`tensor_health`].)
///
/// ```
/// use libffn::{update_ratio, Role, Tensor};
/// let (before, after) = ([3.0, 4.0], [3.0, 4.5]);
/// let ratio = update_ratio(&Tensor::new(Role::UP_BIAS, &before, &[2])?, &Tensor::new(Role::UP_BIAS, &after, &[2])?)?;
/// assert_eq!(ratio, 0.1);
/// # Ok::<(), libffn::Error>(())
/// ```
pub fn update_ratio(before: &Tensor<'_>, after: &Tensor<'_>) -> Result<f64> {
    ratio_raw(null_mut(), before, after)
}

/// The same with the context's threads, which change no bit of the result.
pub fn update_ratio_in(context: &mut Context, before: &Tensor<'_>, after: &Tensor<'_>) -> Result<f64> {
    context.lend(|context| ratio_raw(context, before, after))
}

fn ratio_raw(context: *mut sys::ffn_context_t, before: &Tensor<'_>, after: &Tensor<'_>) -> Result<f64> {
    let mut ratio = 0.0;
    // SAFETY: as in health_raw.
    check(unsafe { sys::ffn_update_ratio(context, raw(before), raw(after), &mut ratio) })?;
    Ok(ratio)
}
