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
/// activation, and before every other. The counts are exact, whatever the threads and the order of runs; outputs have the same bits as without.
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
    d_ff: usize,
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
    /// Hidden units.
    pub d_ff: usize,
    /// Rows counted so far.
    pub positions: i64,
    /// Activations > 0, of positions * d_ff.
    pub positive: i64,
    /// Activations that are infinite or NaN.
    pub non_finite: i64,
    /// Units that were never > 0.
    pub dead_units: i64,
    /// positive / (positions * d_ff); NaN without a position.
    pub density: f64,
    /// Of |activation|, over the finite ones; NaN if there is none.
    pub mean: f64,
    /// |activation|, of the finite ones; 0 if there is none.
    pub largest: f64,
}

impl Stats {
    /// For layers with `d_ff` hidden units. It has counted nothing.
    pub fn new(d_ff: usize) -> Result<Self> {
        Self::make(d_ff, None)
    }

    /// The same in memory of the caller's.
    pub fn with_allocator(d_ff: usize, allocator: Arc<dyn Allocator>) -> Result<Self> {
        Self::make(d_ff, Some(allocator))
    }

    fn make(d_ff: usize, allocator: Option<Arc<dyn Allocator>>) -> Result<Self> {
        let kept = allocator::keep(allocator);
        let hook = allocator::hook(&kept);
        let given = sys::ffn_stats_options_t {
            struct_size: size_of::<sys::ffn_stats_options_t>() as u32,
            flags: 0,
            d_ff: count(d_ff),
            allocator: hook.as_ref().map_or(null(), |hook| hook),
        };
        let mut raw = null_mut();
        // SAFETY: options and out-parameter are alive; what outlives the call is kept beside the handle.
        check(unsafe { sys::ffn_stats_create(&given, &mut raw) })?;
        let raw = NonNull::new(raw).expect("stats that were made");
        Ok(Stats { raw, d_ff, _allocator: kept })
    }

    /// The sums over all units.
    pub fn info(&self) -> StatsInfo {
        let mut info = sys::ffn_stats_info_t { struct_size: size_of::<sys::ffn_stats_info_t>() as u32, ..Default::default() };
        // SAFETY: a live handle, and a struct of the size that it says.
        check(unsafe { sys::ffn_stats_info(self.raw.as_ptr(), &mut info) }).expect("stats can be read");
        StatsInfo {
            d_ff: self.d_ff,
            positions: info.positions,
            positive: info.positive,
            non_finite: info.non_finite,
            dead_units: info.dead_units,
            density: info.density,
            mean: info.mean,
            largest: info.largest,
        }
    }

    /// Of each unit, the rows where it was > 0.
    pub fn positive(&self) -> Vec<i64> {
        let mut positive = vec![0; self.d_ff];
        self.units(positive.as_mut_ptr(), null_mut(), null_mut());
        positive
    }

    /// Of each unit, the share of rows where it was > 0; NaN without a row.
    pub fn density(&self) -> Vec<f64> {
        let mut density = vec![0.0; self.d_ff];
        self.units(null_mut(), density.as_mut_ptr(), null_mut());
        density
    }

    /// Of each unit log(f + e^-10) - log(1 - f + e^-10), f its density: tensor2tensor's `hidden_density_logit`. -10 is dead, 10 always on.
    pub fn density_logit(&self) -> Vec<f64> {
        let mut density_logit = vec![0.0; self.d_ff];
        self.units(null_mut(), null_mut(), density_logit.as_mut_ptr());
        density_logit
    }

    fn units(&self, positive: *mut i64, density: *mut f64, density_logit: *mut f64) {
        // SAFETY: a live handle; each array is NULL or has d_ff numbers.
        check(unsafe { sys::ffn_stats_units(self.raw.as_ptr(), positive, density, density_logit) }).expect("stats can be read");
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

    /// Adds what another of the same d_ff has counted: threads that run a layer at once have one each.
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
