//! Training of mixtures: the gradients of a task's loss and of the routers' losses together, against float64 differences of the formula.
use libffn::moe::{self, *};
use libffn::{Activation, Backward, Conv, ConvFlags, ConvOptions, ConvRun, Layer, LayerFlags, LayerOptions};
use libffn::{Role, Run, Tape, TapeOptions, Tensor, TensorMut};

use crate::mixtures::{refused, Experts, EXPERTS, HIDDEN, TOKENS, WIDTH};
use crate::reference::numbers;

const TOP_K: usize = 2;
const BALANCE: f64 = 0.5;
const Z: f64 = 0.25;

fn mixture() -> Mixture {
    let mut mixture = Mixture::new(TOP_K);
    mixture.router(RouterOptions::new().normalise(Normalise::SUM));
    mixture
}

fn trainable(mixture: &Mixture, tensors: &[Tensor<'_>]) -> Layer {
    Layer::new(Experts::options(mixture).flags(LayerFlags::TRAINABLE), tensors).unwrap()
}

/// The case in float64: x, router, up and down, one after the other.
#[derive(Clone)]
struct Exact([Vec<f64>; 4]);

fn dot(w: &[f64], x: &[f64]) -> f64 {
    w.iter().zip(x).map(|(w, x)| w * x).sum()
}

impl Exact {
    fn new(case: &Experts) -> Self {
        Exact([&case.x, &case.router, &case.up, &case.down].map(|array| array.iter().map(|&number| number.into()).collect()))
    }

    /// An expert's output for a row.
    fn expert(&self, id: usize, x: &[f64]) -> Vec<f64> {
        let part = id * HIDDEN * WIDTH..(id + 1) * HIDDEN * WIDTH;
        let hidden: Vec<f64> = self.0[2][part.clone()].chunks(WIDTH).map(|w| dot(w, x).max(0.0)).collect();
        self.0[3][part].chunks(HIDDEN).map(|w| dot(w, &hidden)).collect()
    }

    /// The sum of d_y * y, Switch's loss and the z-loss, for choices and counts that do not move.
    fn loss(&self, ids: &[i32], counts: &[i64], d_y: &[f32]) -> f64 {
        let (mut sum, mut means, mut squares) = (0.0, [0.0; EXPERTS], 0.0);
        for ((x, ids), d_y) in self.0[0].chunks(WIDTH).zip(ids.chunks(TOP_K)).zip(d_y.chunks(WIDTH)) {
            let powers: Vec<f64> = self.0[1].chunks(WIDTH).map(|w| dot(w, x).exp()).collect();
            let total: f64 = powers.iter().sum();
            means.iter_mut().zip(&powers).for_each(|(mean, power)| *mean += power / total / TOKENS as f64);
            squares += total.ln().powi(2) / TOKENS as f64;
            let chosen: f64 = ids.iter().map(|&id| powers[id as usize]).sum();
            let mut y = x.to_vec();
            for &id in ids {
                let (weight, expert) = (powers[id as usize] / chosen, self.expert(id as usize, x));
                y.iter_mut().zip(expert).for_each(|(y, expert)| *y += weight * expert);
            }
            sum += y.iter().zip(d_y).map(|(y, &d)| y * f64::from(d)).sum::<f64>();
        }
        let balance: f64 = counts.iter().zip(means).map(|(&n, mean)| n as f64 / TOKENS as f64 * mean).sum();
        sum + BALANCE * EXPERTS as f64 * balance + Z * squares
    }

    #[track_caller]
    fn assert_gradient(&self, array: usize, gradient: &[f32], loss: impl Fn(&Exact) -> f64) {
        let step = 1e-5;
        assert_eq!(gradient.len(), self.0[array].len());
        for (i, &got) in gradient.iter().enumerate() {
            let values = [step, -step].map(|step| {
                let mut moved = self.clone();
                moved.0[array][i] += step;
                loss(&moved)
            });
            let expected = (values[0] - values[1]) / (2.0 * step);
            assert!((f64::from(got) - expected).abs() < 2e-5, "[{i}] of array {array} is {got}, must be {expected}");
        }
    }
}

#[test]
fn gradients_of_the_task_and_of_the_losses_come_together() {
    let (case, d_y) = (Experts::new(), numbers(104, TOKENS * WIDTH, 1.0));
    let layer = trainable(&mixture(), &case.stacks());
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    let (mut y, mut ids, mut counts) = ([0.0; TOKENS * WIDTH], [0; TOP_K * TOKENS], [0; EXPERTS]);
    let (mut logits, mut scores) = ([0.0; TOKENS * EXPERTS], [0.0; TOKENS * EXPERTS]);
    let dispatch = Dispatch::new().ids(&mut ids).counts(&mut counts).logits(&mut logits).scores(&mut scores);
    let mut recorded = layer.record(&mut tape, Run::new(&case.x, &mut y).moe(dispatch)).unwrap();
    let (mut d_scores, mut d_logits) = ([0.0; TOKENS * EXPERTS], [0.0; TOKENS * EXPERTS]);
    let balance = Balance::new(EXPERTS, TOP_K, &scores, &counts).unwrap().coefficient(BALANCE).gradient(&mut d_scores);
    let losses = moe::loss_switch(balance).unwrap() + moe::loss_z(EXPERTS, &logits, None, Z, Some(&mut d_logits)).unwrap();

    let (mut d_x, mut d_weights) = ([0.0; TOKENS * WIDTH], [f32::NAN; TOP_K * TOKENS]);
    let (mut d_router, mut d_up, mut d_down) = ([f32::NAN; EXPERTS * WIDTH], vec![f32::NAN; case.up.len()], vec![f32::NAN; case.down.len()]);
    let mut gradients = [
        TensorMut::new(Role::ROUTER_WEIGHT, &mut d_router, &[EXPERTS, WIDTH]).unwrap(),
        TensorMut::new(Role::UP_WEIGHT, &mut d_up, &[EXPERTS, HIDDEN, WIDTH]).unwrap(),
        TensorMut::new(Role::DOWN_WEIGHT, &mut d_down, &[EXPERTS, WIDTH, HIDDEN]).unwrap(),
    ];
    let particular = DispatchGradients::new().d_scores(&d_scores).d_logits(&d_logits).d_weights(&mut d_weights);
    recorded.backward(Backward::new(&d_y).d_x(&mut d_x).moe(particular), &mut gradients).unwrap();

    let exact = Exact::new(&case);
    let loss = |exact: &Exact| exact.loss(&ids, &counts, &d_y);
    let task: f64 = y.iter().zip(&d_y).map(|(&y, &d)| f64::from(y) * f64::from(d)).sum();
    assert!((loss(&exact) - (task + losses)).abs() < 1e-4);
    for (array, gradient) in [&d_x[..], &d_router, &d_up, &d_down].into_iter().enumerate() {
        exact.assert_gradient(array, gradient, loss);
    }
    // by the weights themselves: how much of d_y an expert's output has
    for (slot, &d) in d_weights.iter().enumerate() {
        let token = slot / TOP_K * WIDTH..(slot / TOP_K + 1) * WIDTH;
        let expert = exact.expert(ids[slot] as usize, &exact.0[0][token.clone()]);
        let expected: f64 = expert.iter().zip(&d_y[token]).map(|(expert, &d)| expert * f64::from(d)).sum();
        assert!((f64::from(d) - expected).abs() < 2e-5, "[{slot}] is {d}, must be {expected}");
    }
}

#[test]
fn a_router_of_ones_own_goes_on_from_the_derivatives_by_its_weights() {
    let (case, d_y) = (Experts::new(), numbers(105, TOKENS * WIDTH, 1.0));
    let d_scores = numbers(106, TOKENS * EXPERTS, 0.3);
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    let (mut y, mut d_router, mut d_up) = ([0.0; TOKENS * WIDTH], [0.0; EXPERTS * WIDTH], vec![0.0; case.up.len()]);
    let routed = trainable(&mixture(), &case.stacks());
    let mut gradients = [TensorMut::new(Role::ROUTER_WEIGHT, &mut d_router, &[EXPERTS, WIDTH]).unwrap()];
    let mut recorded = routed.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    recorded.backward(Backward::new(&d_y).moe(DispatchGradients::new().d_scores(&d_scores)), &mut gradients).unwrap();

    // the same outside of a layer that has no router, and keeps to top_k 1 itself
    let router = *RouterOptions::new().normalise(Normalise::SUM);
    let options = LogitsOptions::new(EXPERTS, WIDTH, &case.router).unwrap();
    let (mut logits, mut ids, mut weights) = ([0.0; TOKENS * EXPERTS], [0; TOP_K * TOKENS], [0.0; TOP_K * TOKENS]);
    moe::logits(None, &options, &case.x, &mut logits).unwrap();
    let mut routing = Routing::new(EXPERTS, TOP_K, &mut ids, &mut weights).unwrap();
    moe::route(None, &router, Route::new(&logits), &mut routing).unwrap();
    let layer = trainable(&Mixture::new(1), &case.stacks()[..2]);
    let (mut d_weights, mut d_logits, mut d_own) = ([0.0; TOP_K * TOKENS], [0.0; TOKENS * EXPERTS], [0.0; EXPERTS * WIDTH]);
    let mut recorded = layer.record(&mut tape, Run::new(&case.x, &mut y).moe(Dispatch::new().routing(&routing))).unwrap();
    refused(recorded.backward(Backward::new(&d_y).moe(DispatchGradients::new().d_scores(&d_scores)), &mut []), "brought its weights");
    refused(recorded.backward(Backward::new(&d_y).moe(DispatchGradients::new().d_logits(&d_scores)), &mut []), "brought its weights");
    let one_choice = DispatchGradients::new().d_weights(&mut d_weights[..TOKENS]);
    refused(recorded.backward(Backward::new(&d_y).moe(one_choice), &mut []), "d_weights has 11 numbers, must have 11 * 2");
    let mut gradients = [TensorMut::new(Role::UP_WEIGHT, &mut d_up, &[EXPERTS, HIDDEN, WIDTH]).unwrap()];
    recorded.backward(Backward::new(&d_y).moe(DispatchGradients::new().d_weights(&mut d_weights)), &mut gradients).unwrap();
    let onwards = RouteGradients::new(&mut d_logits).d_weights(&d_weights).d_scores(&d_scores);
    moe::route_backward(None, &router, &logits, None, &routing, onwards).unwrap();
    moe::logits_backward(None, &options, &case.x, LogitsGradients::new(&d_logits).d_weight(&mut d_own)).unwrap();
    for (i, (own, routed)) in d_own.iter().zip(&d_router).enumerate() {
        assert!((own - routed).abs() < 1e-5, "[{i}] is {own}, of the layer's own router {routed}");
    }
    for (expert, gradient) in d_up.chunks(HIDDEN * WIDTH).enumerate() {
        assert_eq!(gradient.iter().any(|&d| d != 0.0), routing.ids().contains(&(expert as i32)), "expert {expert}");
    }
}

#[test]
fn wrong_gradients_of_mixtures_are_refused_and_leave_the_recording_as_it_was() {
    let case = Experts::new();
    let layer = trainable(&mixture(), &case.stacks());
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    let (d, short, mut y) = ([1.0; TOKENS * EXPERTS], [1.0; TOKENS * EXPERTS - 1], [1.0; TOKENS * WIDTH]);
    let (mut d_x, mut d_weights) = ([7.0; TOKENS * WIDTH], [7.0; TOP_K * TOKENS]);
    let mut recorded = layer.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    let new = DispatchGradients::new;
    let mut backward = |particular, words| refused(recorded.backward(Backward::new(&y).d_x(&mut d_x).moe(particular), &mut []), words);
    backward(new().d_logits(&short), "d_logits has 87 numbers, must have 11 * 8");
    backward(new().d_scores(&short), "d_scores has 87 numbers, must have 11 * 8");
    backward(new().d_weights(&mut d_weights[1..]), "d_weights has 21 numbers, must have 11 * 2");
    assert_eq!((d_x, d_weights), ([7.0; TOKENS * WIDTH], [7.0; TOP_K * TOKENS]));
    recorded.backward(Backward::new(&y).moe(new()), &mut []).unwrap();

    let sparse = trainable(Mixture::new(2).choose(Choose::SPARSE_MIXER, 0.01), &case.stacks());
    let mut recorded = sparse.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    refused(recorded.backward(Backward::new(&d[..TOKENS * WIDTH]).moe(new().d_scores(&d)), &mut []), "SparseMixer");

    let tensors = [
        Tensor::new(Role::UP_WEIGHT, &case.up[..HIDDEN * WIDTH], &[HIDDEN, WIDTH]).unwrap(),
        Tensor::new(Role::DOWN_WEIGHT, &case.down[..HIDDEN * WIDTH], &[WIDTH, HIDDEN]).unwrap(),
    ];
    let dense = Layer::new(LayerOptions::new().activation(Activation::RELU).flags(LayerFlags::TRAINABLE), &tensors).unwrap();
    let mut recorded = dense.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    refused(recorded.backward(Backward::new(&d[..TOKENS * WIDTH]).moe(new()), &mut []), "no mixture of experts");
    let conv = Conv::new(None, ConvOptions::new(Activation::RELU).flags(ConvFlags::TRAINABLE), &tensors).unwrap();
    let mut recorded = conv.record(None, &mut tape, ConvRun::new(1, &case.x, &mut y)).unwrap();
    refused(recorded.backward(None, Backward::new(&d[..TOKENS * WIDTH]).moe(new()), &mut []), "no mixture of experts");
}
