//! What a routing amounts to.
use std::mem::size_of;

use crate::sys;

/// What a routing amounts to: [`statistics`](crate::moe::statistics).
#[derive(Clone, Copy, Debug)]
pub struct Statistics(pub(crate) sys::ffn_moe_statistics_t);

impl Default for Statistics {
    fn default() -> Self {
        Statistics(sys::ffn_moe_statistics_t { struct_size: size_of::<sys::ffn_moe_statistics_t>() as u32, ..Default::default() })
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> $type {
            self.0.$name
        }
    )*};
}

impl Statistics {
    figures! {
        /// That are no padding.
        tokens: i64,
        /// Choices that stand.
        assignments: i64,
        /// Choices that do not.
        dropped: i64,
        /// Tokens without any expert.
        lost_tokens: i64,
        /// Experts without a token.
        idle_experts: i64,
        /// Tokens of the busiest expert.
        largest_load: i64,
        /// Of the experts' shares of the assignments, in nats.
        load_entropy: f64,
        /// The mean over tokens of the entropy of their scores, in nats; 0 without scores.
        router_entropy: f64,
    }
}
