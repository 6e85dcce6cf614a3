//! The options of a layer that is a mixture of experts, and what is particular to its runs.
use std::mem::size_of;
use std::ptr::{null, null_mut};

use crate::checks::{check_length, check_optional, count, pointer, pointer_mut};
use crate::constants::{constants, flags};
use crate::moe::{CapacityOptions, RouterOptions, Routing, SecondOptions, Statistics};
use crate::{run::Widths, sys, Error, Norm, Result};

constants! {
    /// How experts are chosen.
    Choose(u32) {
        /// By [`route`](crate::moe::route).
        TOP_K = FFN_MOE_CHOOSE_TOP_K,
        /// By [`sparse_mixer`](crate::moe::sparse_mixer); top_k is 2.
        SPARSE_MIXER = FFN_MOE_CHOOSE_SPARSE_MIXER,
        /// By [`expert_choice`](crate::moe::expert_choice), with a capacity; top_k is all experts.
        BY_EXPERTS = FFN_MOE_CHOOSE_BY_EXPERTS,
    }
}
flags! {
    /// Switches of a mixture, to be or-ed.
    MixtureFlags {
        /// The weight multiplies the expert's input: Llama-4.
        WEIGHT_ON_INPUT = FFN_MOE_WEIGHT_ON_INPUT,
        /// The router's input is x, before the norm: Gemma-4.
        ROUTE_UNNORMED = FFN_MOE_ROUTE_UNNORMED,
        /// Weights are normalised after choices were dropped: NLLB-MoE.
        NORMALISE_LAST = FFN_MOE_NORMALISE_LAST,
        /// The clamps are the routed experts' alone: DeepSeek-V4.
        SHARED_UNCLAMPED = FFN_MOE_SHARED_UNCLAMPED,
    }
}

/// A mixture of experts, for [`LayerOptions::moe`](crate::LayerOptions::moe): the fields of `ffn_moe_options_t`. The experts' tensors are stacks, with
/// one dimension more, or one by one with [`Tensor::expert`](crate::Tensor::expert).
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    raw: sys::ffn_moe_options_t, // its pointers are NULL
    router: Option<RouterOptions>,
    second: Option<SecondOptions>,
    capacity: Option<CapacityOptions>,
}

// SAFETY: the pointers of raw are NULL.
unsafe impl Send for Mixture {}
// SAFETY: likewise.
unsafe impl Sync for Mixture {}

impl Mixture {
    /// Choices of a token.
    pub fn new(top_k: usize) -> Self {
        let struct_size = size_of::<sys::ffn_moe_options_t>() as u32;
        let raw = sys::ffn_moe_options_t { struct_size, top_k: count(top_k), ..Default::default() };
        Mixture { raw, router: None, second: None, capacity: None }
    }

    /// How many experts have weights. Default: as many as the tensors describe.
    pub fn experts(&mut self, experts: usize) -> &mut Self {
        self.raw.experts = count(experts);
        self
    }

    /// So many more return their input (LongCat).
    pub fn identity_experts(&mut self, experts: usize) -> &mut Self {
        self.raw.identity_experts = count(experts);
        self
    }

    /// The router. With [`RouterOptions::given_ids`] each run brings ids.
    pub fn router(&mut self, router: &RouterOptions) -> &mut Self {
        self.router = Some(*router);
        self
    }

    /// How they are chosen; `jitter_eps` is of SPARSE_MIXER, else 0.
    pub fn choose(&mut self, choose: Choose, jitter_eps: f32) -> &mut Self {
        (self.raw.choose, self.raw.jitter_eps) = (choose.to_raw(), jitter_eps);
        self
    }

    /// A norm of the router's input, and its eps.
    pub fn router_norm(&mut self, norm: Norm, eps: f32) -> &mut Self {
        (self.raw.router_norm, self.raw.router_norm_eps) = (norm.to_raw(), eps);
        self
    }

    /// A policy of second choices.
    pub fn second(&mut self, second: &SecondOptions) -> &mut Self {
        self.second = Some(*second);
        self
    }

    /// How many tokens an expert takes.
    pub fn capacity(&mut self, capacity: &CapacityOptions) -> &mut Self {
        self.capacity = Some(*capacity);
        self
    }

    /// Switches.
    pub fn flags(&mut self, flags: MixtureFlags) -> &mut Self {
        self.raw.flags = flags.to_raw();
        self
    }

    /// Scratch memory of a chunk of tokens. Default: 64 MiB.
    pub fn chunk_bytes(&mut self, bytes: u64) -> &mut Self {
        self.raw.chunk_bytes = bytes;
        self
    }

    /// Whether each run brings ids, without weights.
    pub(crate) fn given_ids(&self) -> bool {
        self.router.as_ref().is_some_and(RouterOptions::takes_ids)
    }

    /// For the C interface: it points into self.
    pub(crate) fn raw(&self) -> sys::ffn_moe_options_t {
        let mut raw = self.raw;
        raw.router = self.router.as_ref().map_or(null(), |router| &router.0);
        raw.second = self.second.as_ref().map_or(null(), |second| &second.0);
        raw.capacity = self.capacity.as_ref().map_or(null(), |capacity| &capacity.0);
        raw
    }
}

/// What is particular to a run of a mixture, for [`Run::moe`](crate::Run::moe): where its tokens go, and what is to be told of that.
#[derive(Debug, Default)]
pub struct Dispatch<'x, 'y> {
    routing: Option<&'x Routing<'x>>,
    mask: Option<&'x [u8]>,
    stream: u64,
    first_token: i64,
    ids: Option<&'y mut [i32]>,
    weights: Option<&'y mut [f32]>,
    logits: Option<&'y mut [f32]>,
    scores: Option<&'y mut [f32]>,
    counts: Option<&'y mut [i64]>,
    statistics: Option<&'y mut Statistics>,
}

impl<'x, 'y> Dispatch<'x, 'y> {
    /// The layer routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ids and weights in place of the layer's router; of one with given ids, the ids alone.
    pub fn routing(mut self, routing: &'x Routing<'x>) -> Self {
        self.routing = Some(routing);
        self
    }

    /// \[tokens\]: 0 is padding, which goes to no routed expert. Not with a routing, which has its own.
    pub fn mask(mut self, mask: &'x [u8]) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Of second choices at random: which layer and step, and the number of the first token.
    pub fn stream(mut self, stream: u64, first_token: i64) -> Self {
        (self.stream, self.first_token) = (stream, first_token);
        self
    }

    /// \[tokens, top_k\]: where each token went.
    pub fn ids(mut self, ids: &'y mut [i32]) -> Self {
        self.ids = Some(ids);
        self
    }

    /// \[tokens, top_k\]
    pub fn weights(mut self, weights: &'y mut [f32]) -> Self {
        self.weights = Some(weights);
        self
    }

    /// \[tokens, experts\], of a layer that routes.
    pub fn logits(mut self, logits: &'y mut [f32]) -> Self {
        self.logits = Some(logits);
        self
    }

    /// \[tokens, experts\], likewise, for the losses.
    pub fn scores(mut self, scores: &'y mut [f32]) -> Self {
        self.scores = Some(scores);
        self
    }

    /// \[experts\]: tokens that each expert computed.
    pub fn counts(mut self, counts: &'y mut [i64]) -> Self {
        self.counts = Some(counts);
        self
    }

    /// What the routing amounts to.
    pub fn statistics(mut self, statistics: &'y mut Statistics) -> Self {
        self.statistics = Some(statistics);
        self
    }

    /// For the C interface: every array is as long as the run's tokens and the layer's experts ask.
    pub(crate) fn describe(self, tokens: usize, widths: &Widths) -> Result<Particular> {
        let (experts, top_k) = (widths.experts, self.routing.map_or(widths.top_k, Routing::top_k));
        if let Some(routing) = self.routing {
            check_length("the routing's mask or ids", routing.tokens(), tokens, 1)?;
        }
        check_optional("mask", self.mask, tokens, 1)?;
        check_optional("ids", self.ids.as_deref(), tokens, top_k)?;
        check_optional("weights", self.weights.as_deref(), tokens, top_k)?;
        check_optional("logits", self.logits.as_deref(), tokens, experts)?;
        check_optional("scores", self.scores.as_deref(), tokens, experts)?;
        check_optional("counts", self.counts.as_deref(), 1, experts)?;
        let run = sys::ffn_moe_run_t {
            struct_size: size_of::<sys::ffn_moe_run_t>() as u32,
            mask: pointer(self.mask),
            stream: self.stream,
            first_token: self.first_token,
            ids: pointer_mut(self.ids),
            weights: pointer_mut(self.weights),
            logits: pointer_mut(self.logits),
            scores: pointer_mut(self.scores),
            counts: pointer_mut(self.counts),
            statistics: self.statistics.map_or(null_mut(), |statistics| &mut statistics.0),
            ..Default::default()
        };
        let mut routing = self.routing.map(Routing::raw);
        if let (Some(routing), true) = (&mut routing, widths.given_ids) {
            routing.weights = null_mut();
        }
        Ok(Particular { run, routing })
    }
}

/// The structs of one run, at the place where they stay for the call.
pub(crate) struct Particular {
    run: sys::ffn_moe_run_t,
    routing: Option<sys::ffn_moe_routing_t>,
}

impl Particular {
    /// Choices of a token in the routing that the run brings.
    pub(crate) fn top_k(&self) -> Option<usize> {
        self.routing.map(|routing| routing.top_k as usize)
    }

    /// It points into self.
    pub(crate) fn link(&mut self) -> *const sys::ffn_moe_run_t {
        self.run.routing = self.routing.as_ref().map_or(null(), |routing| routing);
        &self.run
    }
}

/// What is particular to the backward pass of a mixture, for [`Backward::moe`](crate::Backward::moe): where the losses of routers come in, and where a
/// router of your own goes on. The layer's own router is gone through at once, as its experts; which of them are chosen is a constant.
///
/// ```
/// use libffn::moe::{self, Balance, Dispatch, DispatchGradients, Mixture};
/// use libffn::{Activation, Backward, Layer, LayerFlags, LayerOptions, Role, Run, Tape, TapeOptions, Tensor, TensorMut};
/// # fn main() -> libffn::Result<()> {
/// let (up, down, router) = ([1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]); // two experts of one hidden unit
/// let tensors = [
///     Tensor::new(Role::UP_WEIGHT, &up, &[2, 1, 2])?,
///     Tensor::new(Role::DOWN_WEIGHT, &down, &[2, 2, 1])?,
///     Tensor::new(Role::ROUTER_WEIGHT, &router, &[2, 2])?,
/// ];
/// let mixture = Mixture::new(1);
/// let layer = Layer::new(LayerOptions::new().activation(Activation::RELU).flags(LayerFlags::TRAINABLE).moe(&mixture), &tensors)?;
/// let mut tape = Tape::new(&TapeOptions::new())?;
/// let (x, mut y, mut scores, mut counts) = ([1.0, 1.0, 2.0, 1.0], [0.0; 4], [0.0; 4], [0; 2]); // two tokens, which expert 0 gets both
///
/// let mut recorded = layer.record(&mut tape, Run::new(&x, &mut y).moe(Dispatch::new().scores(&mut scores).counts(&mut counts)))?;
/// assert_eq!(counts, [2, 0]);
/// let mut d_scores = [0.0; 4];
/// let loss = moe::loss_switch(Balance::new(2, 1, &scores, &counts)?.coefficient(0.01).gradient(&mut d_scores))?;
/// assert!(loss > 0.01); // that of a balanced load
///
/// let (d_y, mut d_router) = ([0.0; 4], [0.0; 4]); // the loss is that one alone
/// let gradients = &mut [TensorMut::new(Role::ROUTER_WEIGHT, &mut d_router, &[2, 2])?];
/// recorded.backward(Backward::new(&d_y).moe(DispatchGradients::new().d_scores(&d_scores)), gradients)?;
/// assert!(d_router[0] > 0.0 && d_router[2] < 0.0); // a step against it makes expert 0 less likely
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct DispatchGradients<'a> {
    d_logits: Option<&'a [f32]>,
    d_scores: Option<&'a [f32]>,
    d_weights: Option<&'a mut [f32]>,
}

impl<'a> DispatchGradients<'a> {
    /// Nothing particular.
    pub fn new() -> Self {
        Self::default()
    }

    /// \[tokens, experts\]: added to the derivatives by the logits: the gradient of [`loss_z`](crate::moe::loss_z). Of a run that routed.
    pub fn d_logits(mut self, d_logits: &'a [f32]) -> Self {
        self.d_logits = Some(d_logits);
        self
    }

    /// \[tokens, experts\]: likewise to those by the scores: the gradients of the load-balancing losses. Not of [`Choose::SPARSE_MIXER`].
    pub fn d_scores(mut self, d_scores: &'a [f32]) -> Self {
        self.d_scores = Some(d_scores);
        self
    }

    /// \[tokens, top_k\], top_k of the routing that the run brought, else the layer's: the derivatives by the weights are written to it, 0 in slots of
    /// no expert. With [`route_backward`](crate::moe::route_backward) a router of your own goes on from there.
    pub fn d_weights(mut self, d_weights: &'a mut [f32]) -> Self {
        self.d_weights = Some(d_weights);
        self
    }

    /// For the C interface: every array is as long as the run's tokens and the layer's experts ask.
    pub(crate) fn describe(self, tokens: usize, widths: &Widths) -> Result<sys::ffn_moe_backward_t> {
        if widths.experts == 0 {
            return Err(Error::invalid("moe of the backward pass is given, but the layer is no mixture of experts".to_owned()));
        }
        check_optional("d_logits", self.d_logits, tokens, widths.experts)?;
        check_optional("d_scores", self.d_scores, tokens, widths.experts)?;
        check_optional("d_weights", self.d_weights.as_deref(), tokens, widths.top_k)?;
        Ok(sys::ffn_moe_backward_t {
            struct_size: size_of::<sys::ffn_moe_backward_t>() as u32,
            flags: 0,
            d_logits: pointer(self.d_logits),
            d_scores: pointer(self.d_scores),
            d_weights: pointer_mut(self.d_weights),
        })
    }
}
