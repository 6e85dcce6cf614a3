//! Mixture of experts: routers, the helpers of the published families, their losses, and the options of a layer that is a mixture.
//!
//! A router chooses for each token `top_k` of a number of experts, and a weight for each: [`logits`], then [`route`]. The header's page docs/routing.md
//! has the options of every published family. A [`Layer`](crate::Layer) whose options have a [`Mixture`] routes by itself.
//!
//! Functions take a context whose threads help, or None: the calling thread alone. Results do not depend on it. Arrays are contiguous.
//!
//! ```
//! use libffn::moe::{self, Normalise, Route, RouterOptions, Routing};
//! # fn main() -> libffn::Result<()> {
//! let logits = [0.0, 2.0, 1.0, 3.0, 0.0, 0.0]; // two tokens, three experts
//! let (mut ids, mut weights) = ([0; 4], [0.0; 4]);
//! let mut routing = Routing::new(3, 2, &mut ids, &mut weights)?;
//! moe::route(None, RouterOptions::new().normalise(Normalise::SUM), Route::new(&logits), &mut routing)?;
//! assert_eq!(ids, [1, 2, 0, 1]); // of equal ones the lowest first
//! assert!((weights[0] + weights[1] - 1.0).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```
use std::mem::size_of;

use crate::checks::{check_length, check_optional, count, pointer, pointer_mut};
use crate::context::lend;
use crate::{error::check, sys, Context, Error, Norm, Result};

pub use crate::moe_constants::{Drop, GroupScore, Normalise, Rounding, Score, SecondPolicy, Weight};
pub use crate::moe_layer::{Choose, Dispatch, DispatchGradients, Mixture, MixtureFlags};
pub use crate::moe_losses::{loss_deepseek, loss_gshard, loss_huggingface, loss_megatron, loss_switch, loss_z, update_bias, Balance};
pub use crate::moe_statistics::Statistics;
pub use crate::moe_training::{
    add_noise, add_noise_backward, jitter, jitter_in_place, logits_backward, route_backward, sparse_mixer_backward, sparse_mixer_sample,
    LogitsGradients, Noise, NoiseSite, RouteGradients,
};

/// Experts of a routing at the most.
pub const EXPERTS_MOST: usize = sys::FFN_MOE_EXPERTS_MOST as usize;
/// An id that stands for no expert: a dropped choice, a slot that is not used, a token of padding. Its weight is 0.
pub const NO_EXPERT: i32 = sys::FFN_MOE_NO_EXPERT;

/// Which experts each token goes to, and with which weights: arrays of the caller's that the functions here write, read and change.
#[derive(Debug)]
pub struct Routing<'a> {
    ids: &'a mut [i32],
    weights: &'a mut [f32],
    mask: Option<&'a [u8]>,
    experts: usize,
    top_k: usize,
}

impl<'a> Routing<'a> {
    /// `ids` and `weights` are \[tokens, top_k\]: ids 0 to experts - 1, distinct in a row, or [`NO_EXPERT`].
    pub fn new(experts: usize, top_k: usize, ids: &'a mut [i32], weights: &'a mut [f32]) -> Result<Self> {
        if top_k == 0 || ids.len() % top_k != 0 || ids.len() != weights.len() {
            return Err(Error::invalid(format!("there are {} ids and {} weights, must be tokens * {top_k} (top_k)", ids.len(), weights.len())));
        }
        Ok(Routing { ids, weights, mask: None, experts, top_k })
    }

    /// \[tokens\]: 0 is padding, which goes to no expert and counts for nothing.
    pub fn mask(mut self, mask: &'a [u8]) -> Result<Self> {
        check_length("mask", mask.len(), self.tokens(), 1)?;
        self.mask = Some(mask);
        Ok(self)
    }

    /// How many tokens it is for.
    pub fn tokens(&self) -> usize {
        self.ids.len() / self.top_k
    }

    /// Choices of a token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Of how many experts.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// \[tokens, top_k\]
    pub fn ids(&self) -> &[i32] {
        self.ids
    }

    /// \[tokens, top_k\]
    pub fn weights(&self) -> &[f32] {
        self.weights
    }

    /// For calls that read it.
    pub(crate) fn raw(&self) -> sys::ffn_moe_routing_t {
        self.describe(self.ids.as_ptr().cast_mut(), self.weights.as_ptr().cast_mut())
    }

    /// For calls that write it.
    pub(crate) fn raw_mut(&mut self) -> sys::ffn_moe_routing_t {
        let (ids, weights) = (self.ids.as_mut_ptr(), self.weights.as_mut_ptr());
        self.describe(ids, weights)
    }

    fn describe(&self, ids: *mut i32, weights: *mut f32) -> sys::ffn_moe_routing_t {
        sys::ffn_moe_routing_t {
            struct_size: size_of::<sys::ffn_moe_routing_t>() as u32,
            tokens: count(self.tokens()),
            experts: count(self.experts),
            top_k: count(self.top_k),
            ids,
            weights,
            mask: pointer(self.mask),
            ..Default::default()
        }
    }
}

/// How experts are chosen and weighed: the fields of `ffn_moe_router_options_t`. What is not set has its default: softmax, the scores as weights.
#[derive(Clone, Copy, Debug)]
pub struct RouterOptions(pub(crate) sys::ffn_moe_router_options_t);

impl RouterOptions {
    /// All defaults.
    pub fn new() -> Self {
        RouterOptions(sys::ffn_moe_router_options_t { struct_size: size_of::<sys::ffn_moe_router_options_t>() as u32, ..Default::default() })
    }

    /// Of the logits.
    pub fn score(&mut self, score: Score) -> &mut Self {
        self.0.score = score.to_raw();
        self
    }

    /// Of the chosen.
    pub fn weight(&mut self, weight: Weight) -> &mut Self {
        self.0.weight = weight.to_raw();
        self
    }

    /// What they are divided by.
    pub fn normalise(&mut self, normalise: Normalise) -> &mut Self {
        self.0.normalise = normalise.to_raw();
        self
    }

    /// So many groups of experts, of which the best `top` stay.
    pub fn groups(&mut self, groups: usize, top: usize, score: GroupScore) -> &mut Self {
        (self.0.groups, self.0.top_groups, self.0.group_score) = (count(groups), count(top), score.to_raw());
        self
    }

    /// p of [`Normalise::POWER`]: above 0, also infinity.
    pub fn norm_power(&mut self, power: f32) -> &mut Self {
        self.0.norm_power = power;
        self
    }

    /// Added to the norm, and the least that it is divided by.
    pub fn eps(&mut self, added: f32, least: f32) -> &mut Self {
        (self.0.eps_added, self.0.eps_least) = (added, least);
        self
    }

    /// Multiplies the weights. 0 stands for 1.
    pub fn scale(&mut self, scale: f32) -> &mut Self {
        self.0.scale = scale;
        self
    }

    /// The routing's ids are taken as they are: its weights alone are written.
    pub fn given_ids(&mut self) -> &mut Self {
        self.0.flags |= sys::FFN_MOE_GIVEN_IDS;
        self
    }

    pub(crate) fn takes_ids(&self) -> bool {
        self.0.flags & sys::FFN_MOE_GIVEN_IDS != 0
    }
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The arrays of [`route`].
#[derive(Debug)]
pub struct Route<'a> {
    logits: &'a [f32],
    selection_bias: Option<&'a [f32]>,
    expert_scale: Option<&'a [f32]>,
    scores: Option<&'a mut [f32]>,
}

impl<'a> Route<'a> {
    /// From logits \[tokens, experts\].
    pub fn new(logits: &'a [f32]) -> Self {
        Route { logits, selection_bias: None, expert_scale: None, scores: None }
    }

    /// \[experts\]: chooses, and is in no weight.
    pub fn selection_bias(mut self, bias: &'a [f32]) -> Self {
        self.selection_bias = Some(bias);
        self
    }

    /// \[experts\]: multiplies the weights.
    pub fn expert_scale(mut self, scale: &'a [f32]) -> Self {
        self.expert_scale = Some(scale);
        self
    }

    /// \[tokens, experts\]: the scores of every token are written to it, for the losses.
    pub fn scores(mut self, scores: &'a mut [f32]) -> Self {
        self.scores = Some(scores);
        self
    }
}

/// Chooses experts for each token, and weighs them. A row with a NaN, or of -inf alone, gets distinct valid ids and NaN weights; no other row changes.
pub fn route(context: Option<&mut Context>, options: &RouterOptions, arrays: Route<'_>, routing: &mut Routing<'_>) -> Result<()> {
    let (tokens, experts) = (routing.tokens(), routing.experts);
    check_length("logits", arrays.logits.len(), tokens, experts)?;
    check_optional("selection_bias", arrays.selection_bias, 1, experts)?;
    check_optional("expert_scale", arrays.expert_scale, 1, experts)?;
    check_optional("scores", arrays.scores.as_deref(), tokens, experts)?;
    let (bias, scale) = (pointer(arrays.selection_bias), pointer(arrays.expert_scale));
    let scores = pointer_mut(arrays.scores);
    let raw = routing.raw_mut();
    // SAFETY: a live context or NULL, options of the size that they say, and arrays that have been checked to be as long as the routing asks.
    lend(context, |context| check(unsafe { sys::ffn_moe_route(context, &options.0, arrays.logits.as_ptr(), bias, scale, scores, &raw) }))
}

/// A router's matrix, and the norm that a few families have before it.
#[derive(Clone, Copy, Debug)]
pub struct LogitsOptions<'a> {
    weight: &'a [f32],
    transposed: bool,
    bias: Option<&'a [f32]>,
    norm: (Norm, f32, Option<&'a [f32]>),
    experts: usize,
    d_model: usize,
}

impl<'a> LogitsOptions<'a> {
    /// A weight \[experts, d_model\].
    pub fn new(experts: usize, d_model: usize, weight: &'a [f32]) -> Result<Self> {
        check_length("weight", weight.len(), experts, d_model)?;
        Ok(LogitsOptions { weight, transposed: false, bias: None, norm: (Norm::NONE, 0.0, None), experts, d_model })
    }

    /// The weight is \[d_model, experts\].
    pub fn transposed(mut self) -> Self {
        self.transposed = true;
        self
    }

    /// \[experts\]
    pub fn bias(mut self, bias: &'a [f32]) -> Result<Self> {
        check_length("bias", bias.len(), 1, self.experts)?;
        self.bias = Some(bias);
        Ok(self)
    }

    /// A norm of x before the matrix, with its eps (0: the default) and a weight \[d_model\].
    pub fn norm(mut self, norm: Norm, eps: f32, weight: Option<&'a [f32]>) -> Result<Self> {
        check_optional("norm_weight", weight, 1, self.d_model)?;
        self.norm = (norm, eps, weight);
        Ok(self)
    }

    pub(crate) fn experts(&self) -> usize {
        self.experts
    }

    pub(crate) fn d_model(&self) -> usize {
        self.d_model
    }

    pub(crate) fn strides(&self) -> [i64; 2] {
        if self.transposed {
            [4, 4 * count(self.experts)]
        } else {
            [0, 0]
        }
    }

    pub(crate) fn raw(&self) -> sys::ffn_moe_logits_options_t {
        sys::ffn_moe_logits_options_t {
            struct_size: size_of::<sys::ffn_moe_logits_options_t>() as u32,
            d_model: count(self.d_model),
            experts: count(self.experts),
            weight: self.weight.as_ptr(),
            weight_stride: self.strides(),
            bias: pointer(self.bias),
            norm: self.norm.0.to_raw(),
            norm_eps: self.norm.1,
            norm_weight: pointer(self.norm.2),
            ..Default::default()
        }
    }
}

/// logits = weight norm(x) + bias, for x \[tokens, d_model\] into \[tokens, experts\]. A token's bits depend on the token, the weights and the ISA level
/// alone.
pub fn logits(context: Option<&mut Context>, options: &LogitsOptions<'_>, x: &[f32], logits: &mut [f32]) -> Result<()> {
    let tokens = x.len() / options.d_model.max(1);
    check_length("x", x.len(), tokens, options.d_model)?;
    check_length("logits", logits.len(), tokens, options.experts)?;
    let raw = options.raw();
    // SAFETY: as in route.
    lend(context, |context| check(unsafe { sys::ffn_moe_logits(context, &raw, count(tokens), x.as_ptr(), 0, logits.as_mut_ptr()) }))
}

/// SparseMixer, of PhiMoE (arXiv 2409.12136), where top_k is 2: writes ids and weights. `jitter_eps` is 0.01 there, at inference too.
pub fn sparse_mixer(context: Option<&mut Context>, jitter_eps: f32, logits: &[f32], routing: &mut Routing<'_>) -> Result<()> {
    check_length("logits", logits.len(), routing.tokens(), routing.experts)?;
    let raw = routing.raw_mut();
    // SAFETY: as in route.
    lend(context, |context| check(unsafe { sys::ffn_moe_sparse_mixer(context, jitter_eps, logits.as_ptr(), &raw) }))
}

/// Expert choice (arXiv 2202.09368): in each group of `group_tokens` tokens (0: all) each expert takes the `capacity` tokens with the largest scores
/// for it. A token that more than top_k experts choose is refused.
pub fn expert_choice(context: Option<&mut Context>, capacity: usize, group_tokens: usize, scores: &[f32], routing: &mut Routing<'_>) -> Result<()> {
    check_length("scores", scores.len(), routing.tokens(), routing.experts)?;
    let raw = routing.raw_mut();
    // SAFETY: as in route.
    lend(context, |context| check(unsafe { sys::ffn_moe_expert_choice(context, count(capacity), count(group_tokens), scores.as_ptr(), &raw) }))
}

/// Hash routing (arXiv 2106.04426): the ids of a token are the row of its id in a table \[vocabulary, top_k\]. [`route`] with
/// [`RouterOptions::given_ids`] then makes the weights.
pub fn hash(token_ids: &[i64], table: &[i32], routing: &mut Routing<'_>) -> Result<()> {
    let vocabulary = table.len() / routing.top_k;
    check_length("token_ids", token_ids.len(), routing.tokens(), 1)?;
    check_length("table", table.len(), vocabulary, routing.top_k)?;
    let raw = routing.raw_mut();
    // SAFETY: as in route; ids beyond the table are refused.
    check(unsafe { sys::ffn_moe_hash(token_ids.as_ptr(), count(vocabulary), table.as_ptr(), &raw) })
}

/// A policy of second choices (GShard, NLLB).
#[derive(Clone, Copy, Debug)]
pub struct SecondOptions(pub(crate) sys::ffn_moe_second_options_t);

impl SecondOptions {
    /// The policy.
    pub fn new(policy: SecondPolicy) -> Self {
        let struct_size = size_of::<sys::ffn_moe_second_options_t>() as u32;
        SecondOptions(sys::ffn_moe_second_options_t { struct_size, policy: policy.to_raw(), ..Default::default() })
    }

    /// Above 0, of THRESHOLD and RANDOM.
    pub fn threshold(&mut self, threshold: f32) -> &mut Self {
        self.0.threshold = threshold;
        self
    }

    /// Of RANDOM and SAMPLED: any number; which layer and step, 0 to 2^32 - 1; and the number of the first token. In a [`Mixture`] the last two are the
    /// run's, and 0 here.
    pub fn seed(&mut self, seed: u64, stream: u64, first_token: i64) -> &mut Self {
        (self.0.seed, self.0.stream, self.0.first_token) = (seed, stream, first_token);
        self
    }
}

/// Applies a policy where top_k is 2: what is not kept becomes [`NO_EXPERT`] with weight 0. SAMPLED takes the logits \[tokens, experts\], and writes ids.
pub fn second_expert(options: &SecondOptions, logits: Option<&[f32]>, routing: &mut Routing<'_>) -> Result<()> {
    check_optional("logits", logits, routing.tokens(), routing.experts)?;
    let raw = routing.raw_mut();
    // SAFETY: as in route.
    check(unsafe { sys::ffn_moe_second_expert(&options.0, pointer(logits), &raw) })
}

/// How many tokens an expert takes.
#[derive(Clone, Copy, Debug)]
pub struct CapacityOptions(pub(crate) sys::ffn_moe_capacity_options_t);

impl CapacityOptions {
    fn new() -> Self {
        CapacityOptions(sys::ffn_moe_capacity_options_t { struct_size: size_of::<sys::ffn_moe_capacity_options_t>() as u32, ..Default::default() })
    }

    /// So many.
    pub fn fixed(capacity: usize) -> Self {
        let mut made = Self::new();
        made.0.capacity = count(capacity);
        made
    }

    /// factor * tokens / experts, rounded, and at least `minimum`.
    pub fn by_factor(factor: f64, rounding: Rounding, minimum: usize) -> Self {
        let mut made = Self::new();
        (made.0.factor, made.0.rounding, made.0.minimum) = (factor, rounding.to_raw(), count(minimum));
        made
    }

    /// The factor is of tokens * top_k: Megatron.
    pub fn per_choice(&mut self) -> &mut Self {
        self.0.flags |= sys::FFN_MOE_CAPACITY_PER_CHOICE;
        self
    }

    /// Which choices stay.
    pub fn drop(&mut self, drop: Drop) -> &mut Self {
        self.0.drop = drop.to_raw();
        self
    }

    /// Tokens that a capacity is for. 0, the default: all.
    pub fn group_tokens(&mut self, tokens: usize) -> &mut Self {
        self.0.group_tokens = count(tokens);
        self
    }
}

/// Limits each expert to its capacity: choices beyond it become [`NO_EXPERT`] with weight 0; the other weights stay.
pub fn limit(context: Option<&mut Context>, options: &CapacityOptions, routing: &mut Routing<'_>) -> Result<()> {
    let raw = routing.raw_mut();
    // SAFETY: as in route.
    lend(context, |context| check(unsafe { sys::ffn_moe_limit(context, &options.0, &raw) }))
}

/// Tokens per expert: `counts` is \[groups, experts\], for groups of `group_tokens` tokens (0: all are one), of whose choices the first `choices` (0: all)
/// are counted.
pub fn count_tokens(routing: &Routing<'_>, group_tokens: usize, choices: usize, counts: &mut [i64]) -> Result<()> {
    let groups = groups_of(routing.tokens(), group_tokens);
    check_length("counts", counts.len(), groups, routing.experts)?;
    let raw = routing.raw();
    // SAFETY: as in route.
    check(unsafe { sys::ffn_moe_count(&raw, count(group_tokens), count(choices), counts.as_mut_ptr()) })
}

/// What a routing amounts to. With scores \[tokens, experts\] also the router's entropy.
pub fn statistics(routing: &Routing<'_>, scores: Option<&[f32]>) -> Result<Statistics> {
    check_optional("scores", scores, routing.tokens(), routing.experts)?;
    let (raw, mut found) = (routing.raw(), Statistics::default());
    // SAFETY: as in route.
    check(unsafe { sys::ffn_moe_statistics(&raw, pointer(scores), &mut found.0) })?;
    Ok(found)
}

/// How many groups of so many tokens there are; 0 tokens each: one.
pub(crate) fn groups_of(tokens: usize, group_tokens: usize) -> usize {
    match group_tokens {
        0 => 1,
        group => tokens / group + usize::from(tokens % group != 0),
    }
}
