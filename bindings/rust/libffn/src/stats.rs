//! What the hidden units of a layer do while it runs.
use std::fmt;
use std::mem::size_of;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::checks::count;
use crate::{allocator, error::check, sys, Allocator, Error, Result};

/// Counts what the hidden units of a layer do, in the runs that it is given to: [`Run::stats`](crate::Run::stats).
///
/// A unit's activation at a row is act(W_up x + b_up), in a gated layer act(W_gate x + b_gate), before the product; after dropout before the
/// activation, and before every other. A convolutional layer counts its first convolution's, where the mask is not 0
/// ([`ConvRun::stats`](crate::ConvRun::stats)). In a mixture ([`Stats::of_mixture`]) unit j of expert e is number e * d_ff + j, unit j of the shared
/// experts experts * d_ff + j, and each is judged by the tokens that its expert computed. The counts are exact, whatever the threads and the order of runs; outputs have the same bits as without.
///
/// ```
/// use libffn::{Activation, Layer, LayerOptions, Role, Run, Stats, Tensor};
/// # fn main() -> libffn::Result<()> {
/// let (up, down) = ([1.0, 1.0, -1.0, -1.0], [1.0, 1.0]); // the second unit is the negative of the first
/// let tensors = [Tensor::new(Role::UP_WEIGHT, &up, &[2, 2])?, Tensor::new(Role::DOWN_WEIGHT, &down, &[1, 2])?];
/// let layer = Layer::new(LayerOptions::new().activation(Activation::RELU), &tensors)?;
/// let mut stats = Stats::new(2)?;
/// let (x, mut y) = ([1.0, 2.0, 3.0, 4.0, 1.0, 0.0], [0.0; 3]);
/// layer.run(Run::new(&x, &mut y).stats(&mut stats))?;
/// assert_eq!(stats.positive(), [3, 0]);
/// let info = stats.info();
/// assert_eq!((info.positions, info.dead_units, info.density, info.largest), (3, 1, 0.5, 7.0));
/// assert_eq!(stats.histogram(2)?, [1, 1]); // of dead units and of those that are always on
/// # Ok(())
/// # }
/// ```
pub struct Stats {
    raw: NonNull<sys::ffn_stats_t>,
    units: usize,
    networks: usize,
    _allocator: allocator::Kept,
}

// SAFETY: it belongs to no thread, and its allocator is Send and Sync.
unsafe impl Send for Stats {}
// SAFETY: what a shared reference allows only reads.
unsafe impl Sync for Stats {}

/// What all units did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StatsInfo {
    /// Hidden units, of a mixture those of each expert.
    pub d_ff: usize,
    /// Rows counted so far; of a mixture of all experts, and of the shared ones, together.
    pub positions: i64,
    /// Activations > 0.
    pub positive: i64,
    /// Activations that are infinite or NaN.
    pub non_finite: i64,
    /// Units that were never > 0, and had a position.
    pub dead_units: i64,
    /// positive / activations; NaN without a position.
    pub density: f64,
    /// Of |activation|, over the finite ones; NaN if there is none.
    pub mean: f64,
    /// |activation|, of the finite ones; 0 if there is none.
    pub largest: f64,
    /// Of a mixture; 0 of a layer.
    pub experts: usize,
    /// Hidden units of a mixture's shared experts.
    pub d_shared: usize,
    /// All hidden units: d_ff, or experts * d_ff + d_shared.
    pub units: usize,
    /// Counted so far: for each unit its positions.
    pub activations: i64,
    /// Units that had no position: of experts that no token came to.
    pub unseen_units: i64,
}

impl Stats {
    /// For layers with `d_ff` hidden units. It has counted nothing.
    pub fn new(d_ff: usize) -> Result<Self> {
        Self::make(d_ff, 0, 0, None)
    }

    /// For mixtures of `experts` experts of `d_ff` hidden units each, and shared ones of `d_shared` (0: none).
    pub fn of_mixture(d_ff: usize, experts: usize, d_shared: usize) -> Result<Self> {
        Self::make(d_ff, experts, d_shared, None)
    }

    /// The same in memory of the caller's.
    pub fn with_allocator(d_ff: usize, allocator: Arc<dyn Allocator>) -> Result<Self> {
        Self::make(d_ff, 0, 0, Some(allocator))
    }

    fn make(d_ff: usize, experts: usize, d_shared: usize, allocator: Option<Arc<dyn Allocator>>) -> Result<Self> {
        let kept = allocator::keep(allocator);
        let hook = allocator::hook(&kept);
        let given = sys::ffn_stats_options_t {
            struct_size: size_of::<sys::ffn_stats_options_t>() as u32,
            flags: 0,
            d_ff: count(d_ff),
            allocator: hook.as_ref().map_or(null(), |hook| hook),
            experts: count(experts),
            d_shared: count(d_shared),
        };
        let mut raw = null_mut();
        // SAFETY: options and out-parameter are alive; what outlives the call is kept beside the handle.
        check(unsafe { sys::ffn_stats_create(&given, &mut raw) })?;
        let raw = NonNull::new(raw).expect("stats that were made");
        let mut stats = Stats { raw, units: 0, networks: experts.max(1) + usize::from(d_shared > 0), _allocator: kept };
        stats.units = stats.info().units;
        Ok(stats)
    }

    /// The sums over all units.
    pub fn info(&self) -> StatsInfo {
        let mut info = sys::ffn_stats_info_t { struct_size: size_of::<sys::ffn_stats_info_t>() as u32, ..Default::default() };
        // SAFETY: a live handle, and a struct of the size that it says.
        check(unsafe { sys::ffn_stats_info(self.raw.as_ptr(), &mut info) }).expect("stats can be read");
        StatsInfo {
            d_ff: info.d_ff as usize,
            positions: info.positions,
            positive: info.positive,
            non_finite: info.non_finite,
            dead_units: info.dead_units,
            density: info.density,
            mean: info.mean,
            largest: info.largest,
            experts: info.experts as usize,
            d_shared: info.d_shared as usize,
            units: info.units as usize,
            activations: info.activations,
            unseen_units: info.unseen_units,
        }
    }

    /// Of each unit, the rows where it was > 0.
    pub fn positive(&self) -> Vec<i64> {
        let mut positive = vec![0; self.units];
        self.units(positive.as_mut_ptr(), null_mut(), null_mut());
        positive
    }

    /// Of each unit, the share of rows where it was > 0; NaN without a row.
    pub fn density(&self) -> Vec<f64> {
        let mut density = vec![0.0; self.units];
        self.units(null_mut(), density.as_mut_ptr(), null_mut());
        density
    }

    /// Of each unit log(f + e^-10) - log(1 - f + e^-10), f its density: tensor2tensor's `hidden_density_logit`. -10 is dead, 10 always on.
    pub fn density_logit(&self) -> Vec<f64> {
        let mut density_logit = vec![0.0; self.units];
        self.units(null_mut(), null_mut(), density_logit.as_mut_ptr());
        density_logit
    }

    fn units(&self, positive: *mut i64, density: *mut f64, density_logit: *mut f64) {
        // SAFETY: a live handle; each array is NULL or has a number for each unit.
        check(unsafe { sys::ffn_stats_units(self.raw.as_ptr(), positive, density, density_logit) }).expect("stats can be read");
    }

    /// The tokens that each expert computed, the shared ones behind them. Of a layer without experts: one number.
    pub fn expert_positions(&self) -> Vec<i64> {
        let mut positions = vec![0; self.networks];
        self.experts(positions.as_mut_ptr(), null_mut(), null_mut());
        positions
    }

    /// Likewise the share of each expert's activations that are > 0; NaN without a token.
    pub fn expert_density(&self) -> Vec<f64> {
        let mut density = vec![0.0; self.networks];
        self.experts(null_mut(), density.as_mut_ptr(), null_mut());
        density
    }

    /// Likewise each expert's dead units; 0 without a token.
    pub fn expert_dead_units(&self) -> Vec<i64> {
        let mut dead_units = vec![0; self.networks];
        self.experts(null_mut(), null_mut(), dead_units.as_mut_ptr());
        dead_units
    }

    fn experts(&self, positions: *mut i64, density: *mut f64, dead_units: *mut i64) {
        // SAFETY: a live handle; each array is NULL or has a number for each expert and one for the shared ones.
        check(unsafe { sys::ffn_stats_experts(self.raw.as_ptr(), positions, density, dead_units) }).expect("stats can be read");
    }

    /// The histogram of [`Stats::density_logit`]: units in each of 1 to 2^20 bins of equal width over -10.0000454 to 10.0000454, the whole range.
    pub fn histogram(&self, bins: usize) -> Result<Vec<i64>> {
        self.histogram_raw(bins, null())
    }

    /// The same between ascending edges, infinite ones too. Units outside of them count nowhere.
    pub fn histogram_between(&self, edges: &[f64]) -> Result<Vec<i64>> {
        self.histogram_raw(edges.len().saturating_sub(1), edges.as_ptr())
    }

    fn histogram_raw(&self, bins: usize, edges: *const f64) -> Result<Vec<i64>> {
        if bins > 1 << 20 {
            return Err(Error::invalid(format!("bins is {bins}, must be 1 to {}", 1 << 20)));
        }
        let mut counts = vec![0; bins];
        // SAFETY: a live handle, bins numbers to write, and bins + 1 edges or NULL; bins 0 is refused.
        check(unsafe { sys::ffn_stats_histogram(self.raw.as_ptr(), count(bins), edges, counts.as_mut_ptr()) })?;
        Ok(counts)
    }

    /// Back to having counted nothing.
    pub fn reset(&mut self) {
        // SAFETY: a live handle.
        check(unsafe { sys::ffn_stats_reset(self.raw.as_ptr()) }).expect("stats can be reset");
    }

    /// Adds what another of the same shape has counted: threads that run a layer at once have one each.
    pub fn merge(&mut self, from: &Stats) -> Result<()> {
        // SAFETY: two live handles.
        check(unsafe { sys::ffn_stats_merge(self.raw.as_ptr(), from.raw.as_ptr()) })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sys::ffn_stats_t {
        self.raw.as_ptr()
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // SAFETY: made by ffn_stats_create, and no call is using it: there is no reference.
        unsafe { sys::ffn_stats_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Stats").field(&self.info()).finish()
    }
}
