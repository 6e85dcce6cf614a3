//! Noise of routers in training, and their backward passes.
use std::mem::size_of;

use crate::checks::{check_length, check_optional, count, pointer, pointer_mut};
use crate::context::lend;
use crate::moe::{LogitsOptions, RouterOptions, Routing};
use crate::{constants::constants, error::check, sys, Context, Result};

constants! {
    /// Where noise acts: numbers of sites in the streams of dropout, behind its own.
    NoiseSite(u32) {
        /// Jitter of the router's input, or of the whole block's.
        INPUT = FFN_MOE_SITE_INPUT,
        /// Jitter of logits.
        LOGITS = FFN_MOE_SITE_LOGITS,
        /// Normal noise added to logits.
        NOISE = FFN_MOE_SITE_NOISE,
        /// Choices of SparseMixer; the size is 0.
        CHOICE = FFN_MOE_SITE_CHOICE,
    }
}

/// Noise whose numbers depend on these fields and on their place alone: drawn again in the backward pass, the same in each part of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Noise(sys::ffn_moe_noise_t);

impl Noise {
    /// `size` is jitter's epsilon, at most 1, or a standard deviation. 0 leaves alone, to the bit.
    pub fn new(site: NoiseSite, size: f32) -> Self {
        let struct_size = size_of::<sys::ffn_moe_noise_t>() as u32;
        Noise(sys::ffn_moe_noise_t { struct_size, site: site.to_raw(), size, ..Default::default() })
    }

    /// Any number; the step of training, 0 to 2^32 - 1; the number of the layer, 0 to 65534; and of the call's first row.
    pub fn seed(&mut self, seed: u64, step: u64, layer: u64, first_row: i64) -> &mut Self {
        (self.0.seed, self.0.step, self.0.layer, self.0.first_row) = (seed, step, layer, first_row);
        self
    }
}

/// out = input * (1 + size * (2 u - 1)), for rows of `width`. The backward pass is the same call on derivatives.
pub fn jitter(context: Option<&mut Context>, noise: &Noise, width: usize, input: &[f32], out: &mut [f32]) -> Result<()> {
    check_length("out", out.len(), 1, input.len())?;
    jitter_raw(context, noise, width, input.as_ptr(), out.as_mut_ptr(), input.len())
}

/// The same in place.
pub fn jitter_in_place(context: Option<&mut Context>, noise: &Noise, width: usize, rows: &mut [f32]) -> Result<()> {
    let rows_data = rows.as_mut_ptr();
    jitter_raw(context, noise, width, rows_data, rows_data, rows.len())
}

fn jitter_raw(context: Option<&mut Context>, noise: &Noise, width: usize, input: *const f32, out: *mut f32, length: usize) -> Result<()> {
    let rows = length / width.max(1);
    check_length("the input", length, rows, width)?;
    // SAFETY: a live context or NULL, and so many rows in both, which are one or apart.
    lend(context, |context| check(unsafe { sys::ffn_moe_jitter(context, &noise.0, count(rows), count(width), input, 0, out, 0) }))
}

/// logits += (size + softplus(noise_logits)) * z, z normal; without noise_logits logits += size * z. All \[tokens, experts\].
pub fn add_noise(context: Option<&mut Context>, noise: &Noise, experts: usize, noise_logits: Option<&[f32]>, logits: &mut [f32]) -> Result<()> {
    let tokens = logits.len() / experts.max(1);
    check_length("logits", logits.len(), tokens, experts)?;
    check_optional("noise_logits", noise_logits, tokens, experts)?;
    let (tokens, experts, more) = (count(tokens), count(experts), pointer(noise_logits));
    // SAFETY: a live context or NULL, and arrays that have been checked to be as long as the sizes say.
    lend(context, |context| check(unsafe { sys::ffn_moe_add_noise(context, &noise.0, tokens, experts, more, logits.as_mut_ptr()) }))
}

/// d_noise_logits = d_logits * z * sigmoid(noise_logits), with the z of [`add_noise`]; written.
pub fn add_noise_backward(
    context: Option<&mut Context>,
    noise: &Noise,
    experts: usize,
    noise_logits: &[f32],
    d_logits: &[f32],
    d_noise_logits: &mut [f32],
) -> Result<()> {
    let tokens = noise_logits.len() / experts.max(1);
    check_length("noise_logits", noise_logits.len(), tokens, experts)?;
    check_length("d_logits", d_logits.len(), tokens, experts)?;
    check_length("d_noise_logits", d_noise_logits.len(), tokens, experts)?;
    let (tokens, experts, target) = (count(tokens), count(experts), d_noise_logits.as_mut_ptr());
    lend(context, |context| {
        // SAFETY: as in add_noise.
        check(unsafe { sys::ffn_moe_add_noise_backward(context, &noise.0, tokens, experts, noise_logits.as_ptr(), d_logits.as_ptr(), target) })
    })
}

/// The arrays of [`route_backward`].
#[derive(Debug)]
pub struct RouteGradients<'a> {
    d_weights: Option<&'a [f32]>,
    d_scores: Option<&'a [f32]>,
    d_logits: &'a mut [f32],
    d_expert_scale: Option<&'a mut [f32]>,
    flags: u32,
}

impl<'a> RouteGradients<'a> {
    /// Into `d_logits`, \[tokens, experts\].
    pub fn new(d_logits: &'a mut [f32]) -> Self {
        RouteGradients { d_weights: None, d_scores: None, d_logits, d_expert_scale: None, flags: 0 }
    }

    /// The derivatives by the weights, \[tokens, top_k\].
    pub fn d_weights(mut self, d_weights: &'a [f32]) -> Self {
        self.d_weights = Some(d_weights);
        self
    }

    /// Those by the scores, \[tokens, experts\]: the load-balancing losses' gradients.
    pub fn d_scores(mut self, d_scores: &'a [f32]) -> Self {
        self.d_scores = Some(d_scores);
        self
    }

    /// Where those by the experts' scales go, \[experts\].
    pub fn d_expert_scale(mut self, d_expert_scale: &'a mut [f32]) -> Self {
        self.d_expert_scale = Some(d_expert_scale);
        self
    }

    /// The results are added to what their arrays hold, instead of overwriting it.
    pub fn accumulate(mut self) -> Self {
        self.flags |= sys::FFN_BACKWARD_ACCUMULATE;
        self
    }

    fn raw(self, routing: &Routing<'_>) -> Result<sys::ffn_moe_route_gradients_t> {
        let (tokens, experts) = (routing.tokens(), routing.experts());
        check_optional("d_weights", self.d_weights, tokens, routing.top_k())?;
        check_optional("d_scores", self.d_scores, tokens, experts)?;
        check_length("d_logits", self.d_logits.len(), tokens, experts)?;
        check_optional("d_expert_scale", self.d_expert_scale.as_deref(), 1, experts)?;
        Ok(sys::ffn_moe_route_gradients_t {
            struct_size: size_of::<sys::ffn_moe_route_gradients_t>() as u32,
            flags: self.flags,
            d_weights: pointer(self.d_weights),
            d_scores: pointer(self.d_scores),
            d_logits: self.d_logits.as_mut_ptr(),
            d_expert_scale: pointer_mut(self.d_expert_scale),
        })
    }
}

/// The backward pass of [`route`](crate::moe::route): options, logits, expert_scale and routing as they were there. Which experts are chosen is a
/// constant.
pub fn route_backward(
    context: Option<&mut Context>,
    options: &RouterOptions,
    logits: &[f32],
    expert_scale: Option<&[f32]>,
    routing: &Routing<'_>,
    gradients: RouteGradients<'_>,
) -> Result<()> {
    check_length("logits", logits.len(), routing.tokens(), routing.experts())?;
    check_optional("expert_scale", expert_scale, 1, routing.experts())?;
    let (gradients, raw, scale) = (gradients.raw(routing)?, routing.raw(), pointer(expert_scale));
    // SAFETY: a live context or NULL, and arrays that have been checked to be as long as the routing asks.
    lend(context, |context| check(unsafe { sys::ffn_moe_route_backward(context, &options.0, logits.as_ptr(), scale, &raw, &gradients) }))
}

/// [`sparse_mixer`](crate::moe::sparse_mixer) as it is trained (arXiv 2310.00811): choices are drawn from the softmax over the experts that did not drop
/// out, and weights are whole or a third of it. `noise` is at the site CHOICE. Its backward pass is [`sparse_mixer_backward`].
pub fn sparse_mixer_sample(context: Option<&mut Context>, noise: &Noise, jitter_eps: f32, logits: &[f32], routing: &mut Routing<'_>) -> Result<()> {
    check_length("logits", logits.len(), routing.tokens(), routing.experts())?;
    let raw = routing.raw_mut();
    // SAFETY: a live context or NULL, and arrays that are as long as the sizes say.
    lend(context, |context| check(unsafe { sys::ffn_moe_sparse_mixer_sample(context, &noise.0, jitter_eps, logits.as_ptr(), &raw) }))
}

/// The same for [`sparse_mixer`](crate::moe::sparse_mixer); it takes d_weights alone.
pub fn sparse_mixer_backward(
    context: Option<&mut Context>,
    jitter_eps: f32,
    logits: &[f32],
    routing: &Routing<'_>,
    gradients: RouteGradients<'_>,
) -> Result<()> {
    check_length("logits", logits.len(), routing.tokens(), routing.experts())?;
    let (gradients, raw) = (gradients.raw(routing)?, routing.raw());
    // SAFETY: as in route_backward.
    lend(context, |context| check(unsafe { sys::ffn_moe_sparse_mixer_backward(context, jitter_eps, logits.as_ptr(), &raw, &gradients) }))
}

/// The arrays of [`logits_backward`].
#[derive(Debug)]
pub struct LogitsGradients<'a> {
    d_logits: &'a [f32],
    d_x: Option<&'a mut [f32]>,
    d_weight: Option<&'a mut [f32]>,
    d_bias: Option<&'a mut [f32]>,
    d_norm_weight: Option<&'a mut [f32]>,
    flags: u32,
}

impl<'a> LogitsGradients<'a> {
    /// From the derivatives by the logits, \[tokens, experts\].
    pub fn new(d_logits: &'a [f32]) -> Self {
        LogitsGradients { d_logits, d_x: None, d_weight: None, d_bias: None, d_norm_weight: None, flags: 0 }
    }

    /// Where those by x go, \[tokens, d_model\]: written, or added to the experts' share of it.
    pub fn d_x(mut self, d_x: &'a mut [f32], add: bool) -> Self {
        self.d_x = Some(d_x);
        self.flags = self.flags & !sys::FFN_MOE_ADD_D_X | if add { sys::FFN_MOE_ADD_D_X } else { 0 };
        self
    }

    /// Where those by the weight go, in its layout.
    pub fn d_weight(mut self, d_weight: &'a mut [f32]) -> Self {
        self.d_weight = Some(d_weight);
        self
    }

    /// \[experts\]
    pub fn d_bias(mut self, d_bias: &'a mut [f32]) -> Self {
        self.d_bias = Some(d_bias);
        self
    }

    /// \[d_model\], with a norm.
    pub fn d_norm_weight(mut self, d_norm_weight: &'a mut [f32]) -> Self {
        self.d_norm_weight = Some(d_norm_weight);
        self
    }

    /// The tensors' gradients are added to what their arrays hold, instead of overwriting it.
    pub fn accumulate(mut self) -> Self {
        self.flags |= sys::FFN_BACKWARD_ACCUMULATE;
        self
    }
}

/// The backward pass of [`logits`](crate::moe::logits): options and x as they were there.
pub fn logits_backward(context: Option<&mut Context>, options: &LogitsOptions<'_>, x: &[f32], gradients: LogitsGradients<'_>) -> Result<()> {
    let (experts, d_model) = (options.experts(), options.d_model());
    let tokens = x.len() / d_model.max(1);
    check_length("x", x.len(), tokens, d_model)?;
    check_length("d_logits", gradients.d_logits.len(), tokens, experts)?;
    check_optional("d_x", gradients.d_x.as_deref(), tokens, d_model)?;
    check_optional("d_weight", gradients.d_weight.as_deref(), experts, d_model)?;
    check_optional("d_bias", gradients.d_bias.as_deref(), 1, experts)?;
    check_optional("d_norm_weight", gradients.d_norm_weight.as_deref(), 1, d_model)?;
    let given = sys::ffn_moe_logits_gradients_t {
        struct_size: size_of::<sys::ffn_moe_logits_gradients_t>() as u32,
        flags: gradients.flags,
        d_logits: gradients.d_logits.as_ptr(),
        d_x: pointer_mut(gradients.d_x),
        d_weight: pointer_mut(gradients.d_weight),
        d_weight_stride: options.strides(),
        d_bias: pointer_mut(gradients.d_bias),
        d_norm_weight: pointer_mut(gradients.d_norm_weight),
        ..Default::default()
    };
    let raw = options.raw();
    // SAFETY: a live context or NULL, and arrays that have been checked to be as long as the options and x ask.
    lend(context, |context| check(unsafe { sys::ffn_moe_logits_backward(context, &raw, count(tokens), x.as_ptr(), 0, &given) }))
}
