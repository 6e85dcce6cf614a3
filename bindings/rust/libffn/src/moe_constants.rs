//! The choices of routers, as [`moe`](crate::moe) has them.
use crate::{constants::constants, sys};

constants! {
    /// The scores of a row of logits z.
    Score(u32) {
        /// softmax(z)
        SOFTMAX = FFN_MOE_SCORE_SOFTMAX,
        /// sigmoid(z)
        SIGMOID = FFN_MOE_SCORE_SIGMOID,
        /// sqrt(log(1 + e^z)): DeepSeek-V4.
        SQRT_SOFTPLUS = FFN_MOE_SCORE_SQRT_SOFTPLUS,
        /// z itself.
        NONE = FFN_MOE_SCORE_NONE,
    }
}
constants! {
    /// The score of a group of experts.
    GroupScore(u32) {
        /// The largest (DeepSeek-V2).
        MAX = FFN_MOE_GROUP_MAX,
        /// The sum of the two largest (DeepSeek-V3).
        TOP2_SUM = FFN_MOE_GROUP_TOP2_SUM,
    }
}
constants! {
    /// The weights, before they are normalised.
    Weight(u32) {
        /// The scores of the chosen, without the selection bias.
        SCORE = FFN_MOE_WEIGHT_SCORE,
        /// Softmax over the logits of the chosen.
        SOFTMAX = FFN_MOE_WEIGHT_SOFTMAX,
        /// Sigmoid of the chosen one's logit.
        SIGMOID = FFN_MOE_WEIGHT_SIGMOID,
    }
}
constants! {
    /// What a token's weights are divided by.
    Normalise(u32) {
        /// They are not.
        NONE = FFN_MOE_NORMALISE_NONE,
        /// Their sum.
        SUM = FFN_MOE_NORMALISE_SUM,
        /// Their p-norm: DBRX.
        POWER = FFN_MOE_NORMALISE_POWER,
    }
}
constants! {
    /// What becomes of second choices.
    SecondPolicy(u32) {
        /// All are dropped.
        NONE = FFN_MOE_SECOND_NONE,
        /// Kept if the weight is above the threshold.
        THRESHOLD = FFN_MOE_SECOND_THRESHOLD,
        /// Kept with probability weight / threshold.
        RANDOM = FFN_MOE_SECOND_RANDOM,
        /// Chosen anew from the logits with noise, before the weights are made.
        SAMPLED = FFN_MOE_SECOND_SAMPLED,
    }
}
constants! {
    /// Which choices stay, where an expert is full.
    Drop(u32) {
        /// The first ones in the order of tokens: all first choices, then all second ones.
        POSITION = FFN_MOE_DROP_POSITION,
        /// Likewise, tokens in descending order of their first weight.
        PRIORITY = FFN_MOE_DROP_PRIORITY,
        /// Those with the largest weights.
        PROBABILITY = FFN_MOE_DROP_PROBABILITY,
    }
}
constants! {
    /// How a capacity by factor is rounded.
    Rounding(u32) {
        /// Down.
        DOWN = FFN_MOE_ROUND_DOWN,
        /// To nearest, halves to even.
        NEAREST = FFN_MOE_ROUND_NEAREST,
        /// Up.
        UP = FFN_MOE_ROUND_UP,
    }
}
