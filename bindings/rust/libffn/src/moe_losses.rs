//! The losses of routers, each under its own name: they are not the same.
use std::mem::size_of;

use crate::checks::{check_length, check_optional, count, pointer, pointer_mut};
use crate::moe::groups_of;
use crate::{error::check, sys, Result};

/// The arrays of a load-balancing loss. With groups of N tokens, n_e the count of expert e in a group, P_e the mean of its probability over the group's
/// tokens, E experts, K choices per token, c the coefficient.
///
/// ```
/// use libffn::moe::{self, Balance};
/// let (probabilities, counts) = ([0.5, 0.5, 0.5, 0.5], [1, 1]); // two tokens, one expert each: balanced
/// assert_eq!(moe::loss_switch(Balance::new(2, 1, &probabilities, &counts)?)?, 1.0);
/// # Ok::<(), libffn::Error>(())
/// ```
#[derive(Debug)]
pub struct Balance<'a> {
    probabilities: &'a [f32],
    counts: &'a [i64],
    mask: Option<&'a [u8]>,
    gradient: Option<&'a mut [f32]>,
    experts: usize,
    top_k: usize,
    group_tokens: usize,
    coefficient: f64,
    flags: u32,
}

impl<'a> Balance<'a> {
    /// `probabilities` \[tokens, experts\]: scores, as [`route`](crate::moe::route) writes them. `counts` \[groups, experts\], as
    /// [`count_tokens`](crate::moe::count_tokens) writes them: constants.
    pub fn new(experts: usize, top_k: usize, probabilities: &'a [f32], counts: &'a [i64]) -> Result<Self> {
        check_length("probabilities", probabilities.len(), probabilities.len() / experts.max(1), experts)?;
        Ok(Balance { probabilities, counts, mask: None, gradient: None, experts, top_k, group_tokens: 0, coefficient: 1.0, flags: 0 })
    }

    /// Tokens of a group. 0, the default: all are one.
    pub fn group_tokens(mut self, tokens: usize) -> Self {
        self.group_tokens = tokens;
        self
    }

    /// \[tokens\]: 0 is padding, which counts nowhere.
    pub fn mask(mut self, mask: &'a [u8]) -> Self {
        self.mask = Some(mask);
        self
    }

    /// \[tokens, experts\]: the derivative by each probability is **added** to it.
    pub fn gradient(mut self, gradient: &'a mut [f32]) -> Self {
        self.gradient = Some(gradient);
        self
    }

    /// c; default 1, for which 0 stands too.
    pub fn coefficient(mut self, coefficient: f64) -> Self {
        self.coefficient = coefficient;
        self
    }

    /// Each row of probabilities is divided by its sum: sigmoid and sqrt-softplus scores.
    pub fn normalise(mut self) -> Self {
        self.flags |= sys::FFN_MOE_LOSS_NORMALISE;
        self
    }

    fn value(self, loss: unsafe extern "C" fn(*const sys::ffn_moe_balance_t, *mut f64) -> sys::ffn_status_t) -> Result<f64> {
        let tokens = self.probabilities.len() / self.experts.max(1);
        let groups = groups_of(tokens, self.group_tokens);
        check_length("counts", self.counts.len(), groups, self.experts)?;
        check_optional("mask", self.mask, tokens, 1)?;
        check_optional("gradient", self.gradient.as_deref(), tokens, self.experts)?;
        let given = sys::ffn_moe_balance_t {
            struct_size: size_of::<sys::ffn_moe_balance_t>() as u32,
            flags: self.flags,
            tokens: count(tokens),
            experts: count(self.experts),
            top_k: count(self.top_k),
            group_tokens: count(self.group_tokens),
            probabilities: self.probabilities.as_ptr(),
            counts: self.counts.as_ptr(),
            mask: pointer(self.mask),
            gradient: pointer_mut(self.gradient),
            coefficient: self.coefficient,
        };
        let mut value = 0.0;
        // SAFETY: arrays that have been checked to be as long as the sizes say, and a number to write to.
        check(unsafe { loss(&given, &mut value) })?;
        Ok(value)
    }
}

/// c mean over groups of E sum_e (n_e / N) P_e; balanced: c K. Fedus et al., arXiv 2101.03961.
pub fn loss_switch(balance: Balance<'_>) -> Result<f64> {
    balance.value(sys::ffn_moe_loss_switch)
}

/// Likewise, n_e counting first choices alone; balanced: c. Lepikhin et al., arXiv 2006.16668.
pub fn loss_gshard(balance: Balance<'_>) -> Result<f64> {
    balance.value(sys::ffn_moe_loss_gshard)
}

/// c E sum_e (n_e / N) P_e over all tokens at once; balanced: c K. Mixtral, Qwen, ... in Transformers.
pub fn loss_huggingface(balance: Balance<'_>) -> Result<f64> {
    balance.value(sys::ffn_moe_loss_huggingface)
}

/// c E / (K N^2) sum_e n_e (sum_t p_te), all at once; balanced: c. Megatron-LM's aux_loss.
pub fn loss_megatron(balance: Balance<'_>) -> Result<f64> {
    balance.value(sys::ffn_moe_loss_megatron)
}

/// c mean over groups of sum_e (n_e E / (N K)) P_e, a group is a sequence; balanced: c. DeepSeek-V2 and V3.
pub fn loss_deepseek(balance: Balance<'_>) -> Result<f64> {
    balance.value(sys::ffn_moe_loss_deepseek)
}

/// The router z-loss (ST-MoE, arXiv 2202.08906): coefficient (0: 1) * mean over tokens of (log sum_e e^z_te)^2, over logits \[tokens, experts\]. The
/// derivative by each logit is **added** to `gradient`, \[tokens, experts\]; `mask` \[tokens\] has 0 for padding.
pub fn loss_z(experts: usize, logits: &[f32], mask: Option<&[u8]>, coefficient: f64, gradient: Option<&mut [f32]>) -> Result<f64> {
    let tokens = logits.len() / experts.max(1);
    check_length("logits", logits.len(), tokens, experts)?;
    check_optional("mask", mask, tokens, 1)?;
    check_optional("gradient", gradient.as_deref(), tokens, experts)?;
    let (mask, gradient) = (pointer(mask), pointer_mut(gradient));
    let mut value = 0.0;
    // SAFETY: as in value.
    check(unsafe { sys::ffn_moe_loss_z(count(tokens), count(experts), logits.as_ptr(), mask, coefficient, gradient, &mut value) })?;
    Ok(value)
}

/// Balancing without a loss (DeepSeek-V3, arXiv 2412.19437): `selection_bias[e] += rate * sign(mean of the counts - counts[e])`, after a step.
pub fn update_bias(counts: &[i64], rate: f32, selection_bias: &mut [f32]) -> Result<()> {
    check_length("counts", counts.len(), 1, selection_bias.len())?;
    // SAFETY: as in value.
    check(unsafe { sys::ffn_moe_update_bias(count(counts.len()), counts.as_ptr(), rate, selection_bias.as_mut_ptr()) })
}
