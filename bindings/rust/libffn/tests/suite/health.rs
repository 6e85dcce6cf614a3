//! Counts of hidden units and health of tensors against float64.
use std::sync::Arc;

use libffn::moe::{Dispatch, Mixture, Routing};
use libffn::{tensor_health, tensor_health_in, update_ratio, update_ratio_in};
use libffn::{
    Activation, Context, ContextOptions, Conv, ConvOptions, ConvPadding, ConvRun, Error, Layer, LayerFlags, LayerOptions, Role, Run, Stats, Status,
    Tape, TapeOptions, Tensor,
};

use crate::reference::{bits, numbers};

const D_MODEL: usize = 6;
const D_FF: usize = 21;
const ROWS: usize = 37;

struct Case {
    gate: Vec<f32>,
    layer: Layer,
    x: Vec<f32>,
}

/// A SwiGLU layer: what is counted is the gate's.
fn case() -> Case {
    let (up, gate, down) = (numbers(1, D_FF * D_MODEL, 1.0), numbers(2, D_FF * D_MODEL, 1.0), numbers(3, D_MODEL * D_FF, 1.0));
    let tensors = [
        Tensor::new(Role::UP_WEIGHT, &up, &[D_FF, D_MODEL]).unwrap(),
        Tensor::new(Role::GATE_WEIGHT, &gate, &[D_FF, D_MODEL]).unwrap(),
        Tensor::new(Role::DOWN_WEIGHT, &down, &[D_MODEL, D_FF]).unwrap(),
    ];
    let layer = Layer::new(LayerOptions::new().activation(Activation::SILU).flags(LayerFlags::TRAINABLE), &tensors).unwrap();
    Case { gate, layer, x: numbers(4, ROWS * D_MODEL, 1.0) }
}

impl Case {
    fn activations(&self) -> Vec<f64> {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let rows = self.x.chunks(D_MODEL);
        rows.flat_map(|x| self.gate.chunks(D_MODEL).map(move |w| dot(w, x))).map(|z| z / (1.0 + (-z).exp())).collect()
    }
}

#[test]
fn counts_are_those_of_float64_in_runs_of_every_kind() {
    let case = case();
    let a = case.activations();
    let expected: Vec<i64> = (0..D_FF).map(|j| a.iter().skip(j).step_by(D_FF).filter(|&&a| a > 0.0).count() as i64).collect();
    let (mut plain, mut y) = (vec![0.0; ROWS * D_MODEL], vec![0.0; ROWS * D_MODEL]);
    let mut context = Context::new(ContextOptions::new().threads(3)).unwrap();
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    let mut stats = Stats::new(D_FF).unwrap();
    case.layer.run(Run::new(&case.x, &mut plain)).unwrap();
    case.layer.run(Run::new(&case.x, &mut y).stats(&mut stats)).unwrap();
    assert_eq!(bits(&y), bits(&plain));
    assert_eq!(stats.positive(), expected);
    let info = stats.info();
    let (all, sum) = (expected.iter().sum::<i64>(), a.iter().map(|a| a.abs()).sum::<f64>());
    assert_eq!((info.d_ff, info.positions, info.positive, info.non_finite), (D_FF, ROWS as i64, all, 0));
    assert_eq!(info.dead_units, expected.iter().filter(|&&positive| positive == 0).count() as i64);
    assert!((info.mean - sum / a.len() as f64).abs() < 1e-6 && (info.density - all as f64 / a.len() as f64).abs() < 1e-15);
    for ((density, logit), positive) in stats.density().iter().zip(stats.density_logit()).zip(&expected) {
        let (f, floor) = (*positive as f64 / ROWS as f64, (-10f64).exp());
        assert!(*density == f && (logit - ((f + floor) / (1.0 - f + floor)).ln()).abs() < 1e-12);
    }
    assert_eq!(stats.histogram(7).unwrap().iter().sum::<i64>(), D_FF as i64);
    let halves = stats.histogram_between(&[f64::NEG_INFINITY, 0.0, f64::INFINITY]).unwrap();
    assert_eq!(halves[1], expected.iter().filter(|&&positive| 2 * positive as usize >= ROWS).count() as i64);

    let (mut split, mut rest) = (Stats::new(D_FF).unwrap(), Stats::new(D_FF).unwrap());
    let cut = 5 * D_MODEL;
    case.layer.run_in(&mut context, Run::new(&case.x[..cut], &mut y[..cut]).stats(&mut split)).unwrap();
    case.layer.record(&mut tape, Run::new(&case.x[cut..], &mut y[cut..]).stats(&mut rest)).unwrap();
    split.merge(&rest).unwrap();
    let merged = split.info();
    assert_eq!(split.positive(), expected);
    assert_eq!((merged.positions, merged.positive, merged.dead_units), (info.positions, info.positive, info.dead_units));
    // with OpenBLAS a token's bits may depend on the number of rows
    assert!((merged.mean - info.mean).abs() < 1e-6 && (merged.largest - info.largest).abs() < 1e-5);
    split.reset();
    assert!(split.info().positions == 0 && split.info().density.is_nan() && format!("{split:?}").contains("positions: 0"));
}

#[test]
fn mistakes_are_refused() {
    let case = case();
    let mut y = vec![0.0; ROWS * D_MODEL];
    let refused = |result: Result<(), Error>| assert_eq!(result.unwrap_err().status(), Status::INVALID);
    refused(case.layer.run(Run::new(&case.x, &mut y).stats(&mut Stats::new(D_FF + 1).unwrap())));
    let mut stats = Stats::new(D_FF).unwrap();
    refused(stats.merge(&Stats::new(3).unwrap()));
    for bins in [0, (1 << 20) + 1, usize::MAX] {
        refused(stats.histogram(bins).map(drop));
    }
    for edges in [&[][..], &[1.0], &[1.0, 1.0], &[1.0, f64::NAN]] {
        refused(stats.histogram_between(edges).map(drop));
    }
    for d_ff in [0, usize::MAX] {
        refused(Stats::new(d_ff).map(drop));
    }
}

struct Nothing;

// SAFETY: it gives nothing.
unsafe impl libffn::Allocator for Nothing {
    fn allocate(&self, _: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
    unsafe fn release(&self, _: *mut u8, _: usize) {}
}

#[test]
fn memory_comes_from_the_allocator() {
    assert_eq!(Stats::with_allocator(4, Arc::new(Nothing)).unwrap_err().status(), Status::NO_MEMORY);
}

fn whole(array: &[f32]) -> Tensor<'_> {
    Tensor::new(Role::UP_WEIGHT, array, &[50, 60]).unwrap()
}

#[test]
fn health_of_tensors_is_that_of_float64() {
    let (mut before, step) = (numbers(5, 3000, 1.0), numbers(6, 3000, 1.0));
    before[7] = 0.0;
    let after: Vec<f32> = before.iter().zip(&step).map(|(b, s)| b + 1e-3 * s).collect();
    let square = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>();
    let norm = square(&mut before.iter().map(|&v| v.into())).sqrt();
    let moved = square(&mut before.iter().zip(&after).map(|(&b, &a)| f64::from(a) - f64::from(b))).sqrt();
    let mut context = Context::new(ContextOptions::new().threads(2)).unwrap();
    let health = tensor_health(&whole(&before)).unwrap();
    assert_eq!((health.count, health.zeros, health.non_finite), (3000, 1, 0));
    assert!((health.norm / norm - 1.0).abs() < 1e-12);
    assert_eq!(tensor_health_in(&mut context, &whole(&before)).unwrap(), health);
    let ratio = update_ratio(&whole(&before), &whole(&after)).unwrap();
    assert!((ratio / (moved / norm) - 1.0).abs() < 1e-9);
    assert_eq!(update_ratio_in(&mut context, &whole(&before), &whole(&after)).unwrap(), ratio);
    let columns = Tensor::strided(Role::UP_WEIGHT, &before, 2, &[10, 25], &[4, 240]).unwrap();
    assert_eq!(tensor_health(&columns).unwrap().count, 250);
    assert_eq!(update_ratio(&whole(&before), &columns).unwrap_err().status(), Status::INVALID);
    before[5] = f32::NAN;
    assert!(tensor_health(&whole(&before)).unwrap().norm.is_nan());
}

#[test]
fn a_convolution_counts_what_is_no_padding() {
    let (length, kernel) = (13, 3);
    let (up, down) = (numbers(1, D_FF * D_MODEL * kernel, 1.0), numbers(2, D_MODEL * D_FF, 1.0));
    let tensors =
        [Tensor::new(Role::UP_WEIGHT, &up, &[D_FF, D_MODEL, kernel]).unwrap(), Tensor::new(Role::DOWN_WEIGHT, &down, &[D_MODEL, D_FF]).unwrap()];
    let conv = Conv::new(None, ConvOptions::new(Activation::RELU).padding(ConvPadding::LEFT), &tensors).unwrap();
    let (x, mut y, mut plain) = (numbers(3, 2 * length * D_MODEL, 1.0), vec![0.0; 2 * length * D_MODEL], vec![0.0; 2 * length * D_MODEL]);
    let mask: Vec<u8> = (0..2 * length).map(|t| u8::from(t < length || t < length + 4)).collect();
    let mut stats = Stats::new(D_FF).unwrap();
    conv.run(None, ConvRun::new(2, &x, &mut plain).mask(&mask)).unwrap();
    conv.run(None, ConvRun::new(2, &x, &mut y).mask(&mask).stats(&mut stats)).unwrap();
    assert_eq!(bits(&y), bits(&plain));
    let mut expected = vec![0; D_FF];
    for t in (0..2 * length).filter(|&t| mask[t] != 0) {
        for (unit, count) in expected.iter_mut().enumerate() {
            let mut z = 0.0;
            for j in (0..kernel).filter(|&j| t % length + j >= kernel - 1) {
                let row = &x[(t + j + 1 - kernel) * D_MODEL..];
                z += (0..D_MODEL).map(|i| f64::from(up[(unit * D_MODEL + i) * kernel + j]) * f64::from(row[i])).sum::<f64>();
            }
            *count += i64::from(z > 0.0);
        }
    }
    assert_eq!(stats.positive(), expected);
    assert_eq!(stats.info().positions, length as i64 + 4);
    let mut other = Stats::new(D_FF + 1).unwrap();
    let error = conv.run(None, ConvRun::new(2, &x, &mut y).stats(&mut other)).unwrap_err();
    assert_eq!(error.message(), "the stats are for a d_ff of 22, the layer has 21");
}

#[test]
fn a_mixture_counts_by_expert() {
    let (experts, shared) = (3, 5);
    let (up, down) = (numbers(1, experts * D_FF * D_MODEL, 1.0), numbers(2, experts * D_FF * D_MODEL, 1.0));
    let (shared_up, shared_down) = (numbers(3, shared * D_MODEL, 1.0), numbers(4, shared * D_MODEL, 1.0));
    let tensors = [
        Tensor::new(Role::UP_WEIGHT, &up, &[experts, D_FF, D_MODEL]).unwrap(),
        Tensor::new(Role::DOWN_WEIGHT, &down, &[experts, D_MODEL, D_FF]).unwrap(),
        Tensor::new(Role::SHARED_UP_WEIGHT, &shared_up, &[shared, D_MODEL]).unwrap(),
        Tensor::new(Role::SHARED_DOWN_WEIGHT, &shared_down, &[D_MODEL, shared]).unwrap(),
    ];
    let layer = Layer::new(LayerOptions::new().activation(Activation::RELU).moe(&Mixture::new(1)), &tensors).unwrap();
    let (x, mut y) = (numbers(5, ROWS * D_MODEL, 1.0), vec![0.0; ROWS * D_MODEL]);
    let mut ids: Vec<i32> = (0..ROWS).map(|t| if t % 3 == 0 { 2 } else { 0 }).collect(); // none to expert 1
    let mut weights = vec![1.0; ROWS];
    let mut stats = Stats::of_mixture(D_FF, experts, shared).unwrap();
    let routing = Routing::new(experts, 1, &mut ids, &mut weights).unwrap();
    layer.run(Run::new(&x, &mut y).moe(Dispatch::new().routing(&routing)).stats(&mut stats)).unwrap();
    let on = |w: &[f32], x: &[f32]| i64::from(w.iter().zip(x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() > 0.0);
    let rows: Vec<_> = x.chunks(D_MODEL).collect();
    let seen = |e: usize| rows.iter().enumerate().filter(move |(t, _)| (if t % 3 == 0 { 2 } else { 0 }) == e).map(|(_, x)| *x);
    let routed = (0..experts).flat_map(|e| (0..D_FF).map(move |j| (e, j)));
    let mut expected: Vec<i64> = routed.map(|(e, j)| seen(e).map(|x| on(&up[(e * D_FF + j) * D_MODEL..][..D_MODEL], x)).sum()).collect();
    expected.extend(shared_up.chunks(D_MODEL).map(|w| rows.iter().map(|x| on(w, x)).sum::<i64>()));
    assert_eq!(stats.positive(), expected);
    let positions = stats.expert_positions();
    assert_eq!(positions, [24, 0, 13, 37]);
    let density = stats.expert_density();
    assert!(density[1].is_nan() && density[2] == expected[2 * D_FF..3 * D_FF].iter().sum::<i64>() as f64 / (13.0 * D_FF as f64));
    assert_eq!(stats.expert_dead_units()[0], expected[..D_FF].iter().filter(|&&n| n == 0).count() as i64);
    let info = stats.info();
    assert_eq!((info.units, info.unseen_units, info.experts, info.d_shared), (3 * D_FF + 5, D_FF as i64, 3, 5));
    assert_eq!(info.activations, (37 * D_FF + 37 * 5) as i64);
    let error = layer.run(Run::new(&x, &mut y).moe(Dispatch::new().routing(&routing)).stats(&mut Stats::new(D_FF).unwrap())).unwrap_err();
    assert_eq!(error.message(), "the stats are for 0 experts, the layer has 3");
    assert_eq!(Stats::of_mixture(D_FF, 0, 3).unwrap_err().message(), "d_shared of the stats is 3, but experts is 0");
}
