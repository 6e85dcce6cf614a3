//! Steps of optimisers, over arrays. Results depend neither on a context's threads nor on the ISA level.
use std::mem::size_of;
use std::ptr::null_mut;

use crate::{error::check, sys, Context, Error, Result};

/// A step of SGD: g = gradient + weight_decay * weight; velocity = momentum * velocity + g; weight -= learning_rate * velocity.
#[derive(Clone, Copy, Debug)]
pub struct SgdOptions(sys::ffn_sgd_options_t);

impl SgdOptions {
    /// Without momentum and decay.
    pub fn new(learning_rate: f32) -> Self {
        SgdOptions(sys::ffn_sgd_options_t { struct_size: size_of::<sys::ffn_sgd_options_t>() as u32, learning_rate, ..Default::default() })
    }

    /// 0 to below 1; needs a velocity.
    pub fn momentum(&mut self, momentum: f32) -> &mut Self {
        self.0.momentum = momentum;
        self
    }

    /// weight -= learning_rate * (g + momentum * velocity) instead.
    pub fn nesterov(&mut self) -> &mut Self {
        self.0.flags |= sys::FFN_SGD_NESTEROV;
        self
    }

    /// Added to the gradient, times the weight: L2.
    pub fn weight_decay(&mut self, weight_decay: f32) -> &mut Self {
        self.0.weight_decay = weight_decay;
        self
    }
}

/// One step of SGD in place. `velocity` is the optimiser's state, zeros before the first step; None where there is no momentum.
pub fn sgd_step(options: &SgdOptions, weight: &mut [f32], gradient: &[f32], velocity: Option<&mut [f32]>) -> Result<()> {
    sgd_raw(null_mut(), options, weight, gradient, velocity)
}

/// The same with the context's threads.
pub fn sgd_step_in(context: &mut Context, options: &SgdOptions, weight: &mut [f32], gradient: &[f32], velocity: Option<&mut [f32]>) -> Result<()> {
    context.lend(|context| sgd_raw(context, options, weight, gradient, velocity))
}

fn sgd_raw(context: *mut sys::ffn_context_t, options: &SgdOptions, weight: &mut [f32], gradient: &[f32], velocity: Option<&mut [f32]>) -> Result<()> {
    check_length("gradient", gradient, weight)?;
    if let Some(velocity) = &velocity {
        check_length("velocity", velocity, weight)?;
    }
    let velocity = velocity.map_or(null_mut(), <[f32]>::as_mut_ptr);
    let n = weight.len() as i64;
    // SAFETY: a live context or NULL, options of the size that they say, and n numbers in each array.
    check(unsafe { sys::ffn_sgd_step(context, &options.0, n, weight.as_mut_ptr(), gradient.as_ptr(), velocity) })
}

/// A step of AdamW (Loshchilov & Hutter, arXiv 1711.05101): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// weight -= learning_rate * (weight_decay * weight + m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)).
///
/// ```
/// use libffn::{adamw_step, AdamwOptions};
/// let (mut weight, mut first, mut second) = ([1.0, 2.0], [0.0; 2], [0.0; 2]);
/// let mut options = AdamwOptions::new(0.1);
/// for step in 1..=10 {
///     let gradient = weight; // of |weight|^2 / 2
///     adamw_step(options.step(step), &mut weight, &gradient, &mut first, &mut second)?;
/// }
/// assert!(weight[0] < 0.2 && weight[1] < 1.2);
/// # Ok::<(), libffn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AdamwOptions(sys::ffn_adamw_options_t);

impl AdamwOptions {
    /// The first step, beta1 0.9, beta2 0.999, eps 1e-8, without decay.
    pub fn new(learning_rate: f32) -> Self {
        let struct_size = size_of::<sys::ffn_adamw_options_t>() as u32;
        AdamwOptions(sys::ffn_adamw_options_t { struct_size, step: 1, learning_rate, ..Default::default() })
    }

    /// 1, 2, 3, ...
    pub fn step(&mut self, step: i64) -> &mut Self {
        self.0.step = step;
        self
    }

    /// As in [`AdamwOptions::new`].
    pub fn learning_rate(&mut self, learning_rate: f32) -> &mut Self {
        self.0.learning_rate = learning_rate;
        self
    }

    /// Each 0 to below 1; 0 stands for the default, as in C.
    pub fn betas(&mut self, beta1: f32, beta2: f32) -> &mut Self {
        (self.0.beta1, self.0.beta2) = (beta1, beta2);
        self
    }

    /// 0 stands for the default, as in C.
    pub fn eps(&mut self, eps: f32) -> &mut Self {
        self.0.eps = eps;
        self
    }

    /// Decoupled from the gradient.
    pub fn weight_decay(&mut self, weight_decay: f32) -> &mut Self {
        self.0.weight_decay = weight_decay;
        self
    }
}

/// One step of AdamW in place. `first` (m) and `second` (v) are the optimiser's state, zeros before step 1.
pub fn adamw_step(options: &AdamwOptions, weight: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32]) -> Result<()> {
    adamw_raw(null_mut(), options, weight, gradient, first, second)
}

/// The same with the context's threads.
pub fn adamw_step_in(
    context: &mut Context,
    options: &AdamwOptions,
    weight: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) -> Result<()> {
    context.lend(|context| adamw_raw(context, options, weight, gradient, first, second))
}

fn adamw_raw(
    context: *mut sys::ffn_context_t,
    options: &AdamwOptions,
    weight: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) -> Result<()> {
    check_length("gradient", gradient, weight)?;
    check_length("first", first, weight)?;
    check_length("second", second, weight)?;
    let (n, state) = (weight.len() as i64, (first.as_mut_ptr(), second.as_mut_ptr()));
    // SAFETY: as in sgd_raw.
    check(unsafe { sys::ffn_adamw_step(context, &options.0, n, weight.as_mut_ptr(), gradient.as_ptr(), state.0, state.1) })
}

/// Clips gradients in place by their global norm, and gives it: the square root of the sum of squares over all arrays, summed in float64. If it is
/// above `max_norm` and finite, every number is multiplied by `max_norm` / norm. With a norm that is not finite nothing is changed: leave that step
/// out. An infinite `max_norm` only measures.
///
/// ```
/// let (mut a, mut b) = ([3.0, 0.0], [4.0]);
/// assert_eq!(libffn::clip_global_norm(&mut [&mut a, &mut b], 1.0)?, 5.0);
/// assert!((a[0] - 0.6).abs() < 1e-6 && (b[0] - 0.8).abs() < 1e-6);
/// # Ok::<(), libffn::Error>(())
/// ```
pub fn clip_global_norm(gradients: &mut [&mut [f32]], max_norm: f64) -> Result<f64> {
    clip_raw(null_mut(), gradients, max_norm)
}

/// The same with the context's threads.
pub fn clip_global_norm_in(context: &mut Context, gradients: &mut [&mut [f32]], max_norm: f64) -> Result<f64> {
    context.lend(|context| clip_raw(context, gradients, max_norm))
}

fn clip_raw(context: *mut sys::ffn_context_t, gradients: &mut [&mut [f32]], max_norm: f64) -> Result<f64> {
    let counts: Vec<i64> = gradients.iter().map(|gradient| gradient.len() as i64).collect();
    let arrays: Vec<*mut f32> = gradients.iter_mut().map(|gradient| gradient.as_mut_ptr()).collect();
    let mut norm = 0.0;
    // SAFETY: a live context or NULL, as many arrays and counts, and so many numbers in each array.
    check(unsafe { sys::ffn_clip_global_norm(context, arrays.as_ptr(), counts.as_ptr(), arrays.len() as u64, max_norm, &mut norm) })?;
    Ok(norm)
}

fn check_length(name: &str, array: &[f32], weight: &[f32]) -> Result<()> {
    if array.len() == weight.len() {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} has {} numbers, must have {}, as weight has", array.len(), weight.len())))
}
