//! Dropout of a run.
use crate::{constants::constants, sys};

constants! {
    /// Where dropout acts.
    DropoutSite(u32) {
        /// On W_up x + b_up; gated: on W_gate x + b_gate, before its clamp.
        PRE_ACTIVATION = FFN_DROPOUT_PRE_ACTIVATION,
        /// On act(...): the Transformer's relu_dropout.
        ACTIVATION = FFN_DROPOUT_ACTIVATION,
        /// On the hidden row, before the norm there; gated: on the product.
        HIDDEN = FFN_DROPOUT_HIDDEN,
        /// On the branch, after its norm: residual dropout.
        BRANCH = FFN_DROPOUT_BRANCH,
        /// The whole branch of a sequence at once: DropPath, stochastic depth.
        PATH = FFN_DROPOUT_PATH,
    }
}

/// Dropout: each number is dropped, to 0 whatever it was, with probability p, else multiplied by 1 / (1 - p).
///
/// What is dropped is a function of these numbers and of the number's place alone, by Philox 4x32-10 as the header says: the same for any number of
/// threads, in each part of a batch that goes through in parts, and in the backward pass.
///
/// ```
/// use libffn::{Dropout, DropoutSite};
/// let mut dropout = Dropout::new();
/// dropout.seed(1).layer(3).p(DropoutSite::HIDDEN, 0.1).p(DropoutSite::BRANCH, 0.1);
/// for step in 0..3 {
///     dropout.step(step); // then Run::new(&x, &mut y).dropout(&dropout)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Dropout(sys::ffn_dropout_t);

impl Dropout {
    /// Nothing is dropped.
    pub fn new() -> Self {
        Dropout(sys::ffn_dropout_t { struct_size: std::mem::size_of::<sys::ffn_dropout_t>() as u32, ..Default::default() })
    }

    /// The probability at a site: 0 to 1. 0 leaves it alone, to the bit.
    ///
    /// # Panics
    /// If `site` is none of the five.
    pub fn p(&mut self, site: DropoutSite, p: f32) -> &mut Self {
        self.0.p[site.to_raw() as usize] = p;
        self
    }

    /// One mask for all rows of a sequence, at a site that is not [`DropoutSite::PATH`].
    pub fn broadcast(&mut self, site: DropoutSite) -> &mut Self {
        self.0.broadcast |= 1u32.checked_shl(site.to_raw()).unwrap_or(u32::MAX); // which is refused
        self
    }

    /// Any number.
    pub fn seed(&mut self, seed: u64) -> &mut Self {
        self.0.seed = seed;
        self
    }

    /// Of training: 0 to 2^32 - 1.
    pub fn step(&mut self, step: u64) -> &mut Self {
        self.0.step = step;
        self
    }

    /// Number of the layer in the model: 0 to 65534.
    pub fn layer(&mut self, layer: u64) -> &mut Self {
        self.0.layer = layer;
        self
    }

    /// Numbers of the run's first row and of its first sequence, where a batch goes through in parts.
    pub fn first(&mut self, row: i64, sequence: i64) -> &mut Self {
        (self.0.first_row, self.0.first_sequence) = (row, sequence);
        self
    }

    pub(crate) fn raw(&self) -> &sys::ffn_dropout_t {
        &self.0
    }
}

impl Default for Dropout {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Dropout {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}
