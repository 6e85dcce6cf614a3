//! Mixture of experts: routing, losses and layers against float64 from the formulas of the header. What each function does in full, the C tests show.
use libffn::moe::{self, *};
use libffn::{Activation, Context, ContextOptions, Error, Layer, LayerOptions, Norm, Residual, Role, Run, Status, Tensor};

use crate::reference::{bits, numbers};

pub const TOKENS: usize = 11;
pub const EXPERTS: usize = 8;

fn context() -> Context {
    Context::new(ContextOptions::new().threads(2)).unwrap()
}

fn softmax(z: &[f32]) -> Vec<f64> {
    let powers: Vec<f64> = z.iter().map(|&z| f64::from(z).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Ids by descending c, the lowest first where equal.
fn chosen(c: &[f64], top_k: usize) -> Vec<i32> {
    let mut ids: Vec<i32> = (0..c.len() as i32).collect();
    ids.sort_by(|&a, &b| c[b as usize].partial_cmp(&c[a as usize]).unwrap());
    ids[..top_k].to_vec()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64], limit: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - expected).abs() <= limit, "[{i}] is {got}, must be {expected}");
    }
}

#[test]
fn experts_are_chosen_and_weighed_by_the_formula() {
    let z = numbers(90, TOKENS * EXPERTS, 2.0);
    let (mut ids, mut weights, mut scores) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS], [0.0; TOKENS * EXPERTS]);
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap();
    assert_eq!((routing.tokens(), routing.top_k(), routing.experts()), (TOKENS, 2, EXPERTS));
    let options = *RouterOptions::new().normalise(Normalise::SUM).scale(0.5);
    moe::route(Some(&mut context()), &options, Route::new(&z).scores(&mut scores), &mut routing).unwrap();
    for (t, z) in z.chunks(EXPERTS).enumerate() {
        let s = softmax(z);
        let expected = chosen(&s, 2);
        assert_eq!(routing.ids()[2 * t..][..2], expected);
        let sum: f64 = expected.iter().map(|&id| s[id as usize]).sum();
        let normalised: Vec<f64> = expected.iter().map(|&id| 0.5 * s[id as usize] / sum).collect();
        assert_close(&routing.weights()[2 * t..][..2], &normalised, 1e-6);
        assert_close(&scores[t * EXPERTS..][..EXPERTS], &s, 1e-6);
    }
    let found = moe::statistics(&routing, Some(&scores)).unwrap();
    assert_eq!((found.tokens(), found.assignments(), found.dropped(), found.lost_tokens()), (TOKENS as i64, 2 * TOKENS as i64, 0, 0));
    assert!(found.router_entropy() > 0.0 && found.load_entropy() > 0.0 && found.largest_load() > 0 && found.idle_experts() < EXPERTS as i64);

    // DeepSeek-V3's groups and bias: a bias that is large enough decides, and is in no weight
    let mut bias = [0.0; EXPERTS];
    bias[5] = 10.0;
    let mut options = RouterOptions::new();
    options.score(Score::SIGMOID).groups(4, 1, GroupScore::TOP2_SUM);
    moe::route(None, &options, Route::new(&z).selection_bias(&bias), &mut routing).unwrap();
    for (t, z) in z.chunks(EXPERTS).enumerate() {
        assert_eq!(routing.ids()[2 * t..][..2], [5, 4]);
        assert_close(&routing.weights()[2 * t..][..1], &[1.0 / (1.0 + (-f64::from(z[5])).exp())], 1e-6);
    }
    // ids that are given
    moe::route(None, RouterOptions::new().score(Score::NONE).weight(Weight::SOFTMAX).given_ids(), Route::new(&z), &mut routing).unwrap();
    assert_close(&routing.weights()[..2], &softmax(&[z[5], z[4]]), 1e-6);
}

#[test]
fn logits_are_a_product_after_a_norm() {
    const WIDTH: usize = 6;
    let (x, weight, bias) = (numbers(91, TOKENS * WIDTH, 1.0), numbers(92, EXPERTS * WIDTH, 1.0), numbers(93, EXPERTS, 1.0));
    let transposed: Vec<f32> = (0..WIDTH * EXPERTS).map(|i| weight[i % EXPERTS * WIDTH + i / EXPERTS]).collect();
    let row = |x: &[f64]| -> Vec<f64> {
        weight.chunks(WIDTH).zip(&bias).map(|(w, &b)| w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>() + f64::from(b)).collect()
    };
    let exact: Vec<f64> = x.chunks(WIDTH).flat_map(|x| row(&x.iter().map(|&v| v.into()).collect::<Vec<f64>>())).collect();
    let (mut plain, mut other) = ([0.0; TOKENS * EXPERTS], [0.0; TOKENS * EXPERTS]);
    moe::logits(None, &LogitsOptions::new(EXPERTS, WIDTH, &weight).unwrap().bias(&bias).unwrap(), &x, &mut plain).unwrap();
    assert_close(&plain, &exact, 1e-5);
    let options = LogitsOptions::new(EXPERTS, WIDTH, &transposed).unwrap().transposed().bias(&bias).unwrap();
    moe::logits(Some(&mut context()), &options, &x, &mut other).unwrap();
    assert_eq!(bits(&other), bits(&plain));
    let normed: Vec<f64> = x
        .chunks(WIDTH)
        .flat_map(|x| {
            let square = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / WIDTH as f64;
            row(&x.iter().map(|&v| f64::from(v) / (square + 1e-6).sqrt()).collect::<Vec<f64>>())
        })
        .collect();
    let options = LogitsOptions::new(EXPERTS, WIDTH, &weight).unwrap().bias(&bias).unwrap().norm(Norm::RMS, 0.0, None).unwrap();
    moe::logits(None, &options, &x, &mut other).unwrap();
    assert_close(&other, &normed, 1e-5);

    // the backward pass, of the sum of d * logits
    let (d, mut d_x, mut d_weight, mut d_bias) =
        (numbers(94, TOKENS * EXPERTS, 1.0), vec![0.0; TOKENS * WIDTH], vec![0.0; EXPERTS * WIDTH], vec![0.0; EXPERTS]);
    let options = LogitsOptions::new(EXPERTS, WIDTH, &weight).unwrap();
    let gradients = LogitsGradients::new(&d).d_x(&mut d_x, false).d_weight(&mut d_weight).d_bias(&mut d_bias);
    moe::logits_backward(None, &options, &x, gradients).unwrap();
    let by_x: f64 = (0..EXPERTS).map(|e| f64::from(d[e]) * f64::from(weight[e * WIDTH + 1])).sum();
    let by_weight: f64 = (0..TOKENS).map(|t| f64::from(d[t * EXPERTS + 2]) * f64::from(x[t * WIDTH + 3])).sum();
    let by_bias: f64 = (0..TOKENS).map(|t| f64::from(d[t * EXPERTS + 2])).sum();
    assert_close(&[d_x[1], d_weight[2 * WIDTH + 3], d_bias[2]], &[by_x, by_weight, by_bias], 1e-5);
}

#[test]
fn the_other_ways_to_choose_and_to_drop() {
    let z = numbers(95, TOKENS * EXPERTS, 2.0);
    let largest: Vec<i32> = z.chunks(EXPERTS).map(|z| chosen(&z.iter().map(|&v| v.into()).collect::<Vec<_>>(), 1)[0]).collect();
    let (mut ids, mut weights) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS]);
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap();
    moe::sparse_mixer(None, 0.01, &z, &mut routing).unwrap();
    assert!(routing.ids().chunks(2).zip(&largest).all(|(ids, &first)| ids[0] == first && ids[1] != first));

    let (table, tokens) = ([1, 2, 3, 0, 7, 5], [2i64, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    moe::hash(&tokens, &table, &mut routing).unwrap();
    assert_eq!(routing.ids()[..4], [7, 5, 1, 2]);
    moe::second_expert(SecondOptions::new(SecondPolicy::SAMPLED).seed(1, 2, 0), Some(&z), &mut routing).unwrap();
    assert!(routing.ids().chunks(2).zip(&largest).all(|(ids, &first)| ids[0] == first && ids[1] != first));
    moe::route(None, RouterOptions::new().given_ids(), Route::new(&z), &mut routing).unwrap();
    let before = routing.weights().to_vec();
    moe::second_expert(SecondOptions::new(SecondPolicy::THRESHOLD).threshold(0.2), None, &mut routing).unwrap();
    assert!(routing.ids().chunks(2).zip(before.chunks(2)).all(|(ids, before)| (ids[1] != NO_EXPERT) == (before[1] > 0.2)));
    moe::limit(None, CapacityOptions::fixed(1).drop(moe::Drop::PRIORITY), &mut routing).unwrap();
    let mut counts = [0; EXPERTS];
    moe::count_tokens(&routing, 0, 0, &mut counts).unwrap();
    assert!(counts.iter().all(|&count| count <= 1) && counts.contains(&1));
    moe::limit(None, CapacityOptions::by_factor(1.0, Rounding::UP, 1).per_choice().group_tokens(4), &mut routing).unwrap();

    let mut scores = [0.0; TOKENS * EXPERTS];
    moe::route(None, &RouterOptions::new(), Route::new(&z).scores(&mut scores), &mut routing).unwrap();
    let (mut ids, mut weights) = ([0; EXPERTS * TOKENS], [0.0; EXPERTS * TOKENS]);
    let mut all = Routing::new(EXPERTS, EXPERTS, &mut ids, &mut weights).unwrap();
    moe::expert_choice(Some(&mut context()), 3, 0, &scores, &mut all).unwrap();
    moe::count_tokens(&all, 0, 0, &mut counts).unwrap();
    assert_eq!(counts, [3; EXPERTS]);
}

/// The value of a loss over one group, from counts and probabilities.
type Formula = fn(&[i64], &[f64], f64) -> f64;
type Loss = fn(Balance<'_>) -> libffn::Result<f64>;

fn mean_product(counts: &[i64], p: &[f64], factor: f64) -> f64 {
    let tokens = (p.len() / EXPERTS) as f64;
    let means = (0..EXPERTS).map(|e| p.iter().skip(e).step_by(EXPERTS).sum::<f64>() / tokens);
    factor * counts.iter().zip(means).map(|(&n, mean)| n as f64 / tokens * mean).sum::<f64>()
}

#[test]
fn losses_and_their_gradients_are_those_of_their_formulas() {
    let z = numbers(96, TOKENS * EXPERTS, 2.0);
    let (mut ids, mut weights, mut p) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS], [0.0; TOKENS * EXPERTS]);
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap();
    moe::route(None, &RouterOptions::new(), Route::new(&z).scores(&mut p), &mut routing).unwrap();
    let (mut all, mut first) = ([0; EXPERTS], [0; EXPERTS]);
    moe::count_tokens(&routing, 0, 0, &mut all).unwrap();
    moe::count_tokens(&routing, 0, 1, &mut first).unwrap();
    let whole: Formula = |n, p, _| mean_product(n, p, EXPERTS as f64);
    let per_choice: Formula = |n, p, k| mean_product(n, p, EXPERTS as f64 / k);
    let cases: [(Loss, Formula, &[i64]); 5] = [
        (moe::loss_switch, whole, &all),
        (moe::loss_gshard, whole, &first),
        (moe::loss_huggingface, whole, &all),
        (moe::loss_megatron, per_choice, &all),
        (moe::loss_deepseek, per_choice, &all),
    ];
    let exact: Vec<f64> = p.iter().map(|&v| v.into()).collect();
    for (loss, formula, counts) in cases {
        let mut gradient = [1.0; TOKENS * EXPERTS];
        let value = loss(Balance::new(EXPERTS, 2, &p, counts).unwrap().coefficient(0.5).gradient(&mut gradient)).unwrap();
        assert!((value - 0.5 * formula(counts, &exact, 2.0)).abs() < 1e-6);
        let mut moved = exact.clone();
        moved[13] += 0.5;
        let slope = (formula(counts, &moved, 2.0) - formula(counts, &exact, 2.0)) / 0.5;
        assert_close(&gradient[13..14], &[1.0 + 0.5 * slope], 1e-6);
    }
    let mask = [[1; TOKENS - 1].as_slice(), &[0]].concat();
    assert!(moe::loss_switch(Balance::new(EXPERTS, 2, &p, &[1; EXPERTS]).unwrap().mask(&mask).normalise()).unwrap() > 0.0);
    let mut gradient = [0.0; TOKENS * EXPERTS];
    let value = moe::loss_z(EXPERTS, &z, Some(&mask), 2.0, Some(&mut gradient)).unwrap();
    let squares = z.chunks(EXPERTS).take(TOKENS - 1).map(|z| z.iter().map(|&v| f64::from(v).exp()).sum::<f64>().ln().powi(2));
    assert!((value - 2.0 * squares.sum::<f64>() / (TOKENS - 1) as f64).abs() < 1e-6);
    assert!(gradient[..EXPERTS].iter().all(|&g| g != 0.0) && gradient[(TOKENS - 1) * EXPERTS..] == [0.0; EXPERTS]);
    let mut bias = [0.0; 4];
    moe::update_bias(&[1, 3, 2, 2], 0.5, &mut bias).unwrap();
    assert_eq!(bias, [0.5, -0.5, 0.0, 0.0]);
}

#[test]
fn routers_have_backward_passes_and_noise() {
    let z = numbers(97, TOKENS * EXPERTS, 2.0);
    let (mut ids, mut weights) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS]);
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap();
    moe::route(None, &RouterOptions::new(), Route::new(&z), &mut routing).unwrap();
    // the loss is the first weight of token 0: a softmax's derivatives
    let (mut d_weights, mut d_logits) = ([0.0; 2 * TOKENS], [7.0; TOKENS * EXPERTS]);
    d_weights[0] = 1.0;
    moe::route_backward(None, &RouterOptions::new(), &z, None, &routing, RouteGradients::new(&mut d_logits).d_weights(&d_weights)).unwrap();
    let (s, id) = (softmax(&z[..EXPERTS]), routing.ids()[0] as usize);
    let expected: Vec<f64> = (0..EXPERTS).map(|e| s[id] * (f64::from(u8::from(e == id)) - s[e])).collect();
    assert_close(&d_logits[..EXPERTS], &expected, 1e-6);
    assert_eq!(d_logits[EXPERTS..], [0.0; (TOKENS - 1) * EXPERTS]);
    let (scale, mut d_scale) = ([2.0; EXPERTS], [0.0; EXPERTS]);
    let gradients = RouteGradients::new(&mut d_logits).d_weights(&d_weights).d_expert_scale(&mut d_scale).accumulate();
    moe::route_backward(Some(&mut context()), &RouterOptions::new(), &z, Some(&scale), &routing, gradients).unwrap();
    assert_close(&d_logits[..EXPERTS], &expected.iter().map(|v| 3.0 * v).collect::<Vec<_>>(), 1e-5);
    assert_close(&d_scale[id..=id], &[s[id]], 1e-6);
    moe::sparse_mixer(None, 0.01, &z, &mut routing).unwrap();
    moe::sparse_mixer_backward(None, 0.01, &z, &routing, RouteGradients::new(&mut d_logits).d_weights(&d_weights)).unwrap();
    moe::sparse_mixer_sample(None, &Noise::new(NoiseSite::CHOICE, 0.0), 0.01, &z, &mut routing).unwrap();
    refused(moe::sparse_mixer_sample(None, &Noise::new(NoiseSite::NOISE, 0.0), 0.01, &z, &mut routing), "site of the noise is 7");

    let mut noise = Noise::new(NoiseSite::LOGITS, 0.0);
    let (mut out, mut parts) = ([0.0; TOKENS * EXPERTS], [0.0; (TOKENS - 1) * EXPERTS]);
    moe::jitter(None, &noise, EXPERTS, &z, &mut out).unwrap();
    assert_eq!(bits(&out), bits(&z));
    noise = Noise::new(NoiseSite::LOGITS, 0.25);
    moe::jitter(None, noise.seed(1, 2, 3, 0), EXPERTS, &z, &mut out).unwrap();
    assert!(out.iter().zip(&z).all(|(out, z)| (out / z - 1.0).abs() <= 0.2501) && bits(&out) != bits(&z));
    moe::jitter(None, noise.seed(1, 2, 3, 1), EXPERTS, &z[EXPERTS..], &mut parts).unwrap();
    assert_eq!(bits(&parts), bits(&out[EXPERTS..]));
    let mut in_place = z.clone();
    moe::jitter_in_place(None, noise.seed(1, 2, 3, 0), EXPERTS, &mut in_place).unwrap();
    assert_eq!(bits(&in_place), bits(&out));
    let (zero, mut noisy, mut d_noise) = ([0.0; TOKENS * EXPERTS], z.clone(), [0.0; TOKENS * EXPERTS]);
    let noise = Noise::new(NoiseSite::NOISE, 0.0);
    moe::add_noise(None, &noise, EXPERTS, Some(&zero), &mut noisy).unwrap();
    moe::add_noise_backward(None, &noise, EXPERTS, &zero, &[1.0; TOKENS * EXPERTS], &mut d_noise).unwrap();
    for ((noisy, z), d) in noisy.iter().zip(&z).zip(&d_noise) {
        let normal = f64::from(noisy - z) / 2f64.ln(); // softplus(0) = log 2, sigmoid(0) = 1/2
        assert!((f64::from(*d) - normal / 2.0).abs() < 1e-5, "{d} of {normal}");
    }
}

pub const WIDTH: usize = 6;
pub const HIDDEN: usize = 10;

pub struct Experts {
    pub up: Vec<f32>,
    pub down: Vec<f32>,
    pub router: Vec<f32>,
    pub x: Vec<f32>,
}

impl Experts {
    pub fn new() -> Self {
        let many = EXPERTS * HIDDEN * WIDTH;
        Experts {
            up: numbers(100, many, 0.8),
            down: numbers(101, many, 0.5),
            router: numbers(102, EXPERTS * WIDTH, 1.0),
            x: numbers(103, TOKENS * WIDTH, 1.0),
        }
    }

    pub fn stacks(&self) -> Vec<Tensor<'_>> {
        vec![
            Tensor::new(Role::UP_WEIGHT, &self.up, &[EXPERTS, HIDDEN, WIDTH]).unwrap(),
            Tensor::new(Role::DOWN_WEIGHT, &self.down, &[EXPERTS, WIDTH, HIDDEN]).unwrap(),
            Tensor::new(Role::ROUTER_WEIGHT, &self.router, &[EXPERTS, WIDTH]).unwrap(),
        ]
    }

    pub fn options(mixture: &Mixture) -> LayerOptions {
        let mut options = LayerOptions::new();
        options.activation(Activation::RELU).residual(Residual::INPUT).moe(mixture);
        options
    }

    /// x plus the sum over a token's slots of weight * expert(x).
    fn y(&self, ids: &[i32], weights: &[f32], top_k: usize) -> Vec<f64> {
        let mut y: Vec<f64> = self.x.iter().map(|&v| v.into()).collect();
        for (slot, (&id, &weight)) in ids.iter().zip(weights).enumerate() {
            let (x, id) = (&self.x[slot / top_k * WIDTH..][..WIDTH], id as usize * HIDDEN * WIDTH);
            let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
            let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            let hidden: Vec<f64> = self.up[id..][..HIDDEN * WIDTH].chunks(WIDTH).map(|w| dot(w, &x).max(0.0)).collect();
            for (i, w) in self.down[id..][..HIDDEN * WIDTH].chunks(HIDDEN).enumerate() {
                y[slot / top_k * WIDTH + i] += f64::from(weight) * dot(w, &hidden);
            }
        }
        y
    }
}

#[test]
fn a_layer_runs_a_mixture_and_tells_where_tokens_went() {
    let case = Experts::new();
    let mut mixture = Mixture::new(2);
    mixture.router(RouterOptions::new().normalise(Normalise::SUM));
    let layer = Layer::new(&Experts::options(&mixture), &case.stacks()).unwrap();
    let info = layer.info();
    assert_eq!((info.experts(), info.identity_experts(), info.top_k(), info.d_shared(), info.d_latent()), (EXPERTS, 0, 2, 0, 0));
    assert_eq!(info.active_parameters(), info.parameters() - ((EXPERTS - 2) * 2 * HIDDEN * WIDTH) as i64);

    let (mut y, mut told_y) = ([0.0; TOKENS * WIDTH], [0.0; TOKENS * WIDTH]);
    layer.forward(&case.x, &mut y).unwrap();
    let (mut ids, mut weights, mut logits) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS], [0.0; TOKENS * EXPERTS]);
    let (mut scores, mut counts, mut statistics) = ([0.0; TOKENS * EXPERTS], [0; EXPERTS], Statistics::default());
    let dispatch = Dispatch::new().ids(&mut ids).weights(&mut weights).logits(&mut logits).scores(&mut scores);
    let dispatch = dispatch.counts(&mut counts).statistics(&mut statistics);
    layer.run_in(&mut context(), Run::new(&case.x, &mut told_y).moe(dispatch)).unwrap();
    assert_eq!(bits(&told_y), bits(&y));
    assert_close(&y, &case.y(&ids, &weights, 2), 1e-5);
    assert_eq!(counts.iter().sum::<i64>(), 2 * TOKENS as i64);
    assert_eq!(statistics.assignments(), 2 * TOKENS as i64);
    let mut expected = [0.0; TOKENS * EXPERTS];
    moe::logits(None, &LogitsOptions::new(EXPERTS, WIDTH, &case.router).unwrap(), &case.x, &mut expected).unwrap();
    assert_eq!(bits(&logits), bits(&expected));

    // one by one, in another order
    let mut tensors = vec![case.stacks()[2]];
    for e in (0..EXPERTS).rev() {
        let part = e * HIDDEN * WIDTH..(e + 1) * HIDDEN * WIDTH;
        tensors.push(Tensor::new(Role::UP_WEIGHT, &case.up[part.clone()], &[HIDDEN, WIDTH]).unwrap().expert(e as u32));
        tensors.push(Tensor::new(Role::DOWN_WEIGHT, &case.down[part], &[WIDTH, HIDDEN]).unwrap().expert(e as u32));
    }
    let same = Layer::new(&Experts::options(&mixture), &tensors).unwrap();
    same.forward(&case.x, &mut told_y).unwrap();
    assert_eq!(bits(&told_y), bits(&y));
}

#[test]
fn a_run_may_bring_its_routing() {
    let case = Experts::new();
    let layer = Layer::new(&Experts::options(&Mixture::new(2)), &case.stacks()[..2]).unwrap();
    let (mut ids, mut weights, mut y) = ([3; TOKENS], [0.5; TOKENS], [7.0; TOKENS * WIDTH]);
    ids[4] = 0;
    let expected = case.y(&ids, &weights, 1);
    let mask = [1; TOKENS];
    let routing = Routing::new(EXPERTS, 1, &mut ids, &mut weights).unwrap().mask(&mask).unwrap();
    layer.run(Run::new(&case.x, &mut y).moe(Dispatch::new().routing(&routing))).unwrap();
    assert_close(&y, &expected, 1e-5);
    let mut untouched = [7.0; TOKENS * WIDTH];
    refused(layer.forward(&case.x, &mut untouched), "rout");
    refused(layer.run(Run::new(&case.x[WIDTH..], &mut untouched[WIDTH..]).moe(Dispatch::new().routing(&routing))), "routing");
    assert_eq!(untouched, [7.0; TOKENS * WIDTH]);
}

#[test]
fn a_run_may_bring_the_ids_alone() {
    let case = Experts::new();
    let mut mixture = Mixture::new(2);
    mixture.router(RouterOptions::new().given_ids());
    let layer = Layer::new(&Experts::options(&mixture), &case.stacks()).unwrap();
    let (mut ids, mut not_read, mut y) = ([0; 2 * TOKENS], [f32::NAN; 2 * TOKENS], [0.0; TOKENS * WIDTH]);
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut not_read).unwrap();
    moe::hash(&[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1], &[1, 2, 3, 0, 7, 5], &mut routing).unwrap();
    let mut weights = [0.0; 2 * TOKENS];
    layer.run(Run::new(&case.x, &mut y).moe(Dispatch::new().routing(&routing).weights(&mut weights))).unwrap();
    let ids = routing.ids().to_vec();
    for (t, x) in case.x.chunks(WIDTH).enumerate() {
        let z: Vec<f32> = case.router.chunks(WIDTH).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
        let s = softmax(&z);
        assert_close(&weights[2 * t..][..2], &[s[ids[2 * t] as usize], s[ids[2 * t + 1] as usize]], 1e-5);
    }
    assert_close(&y, &case.y(&ids, &weights, 2), 1e-5);
}

#[track_caller]
pub fn refused<T>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.err().expect("refused");
    assert_eq!(error.status(), Status::INVALID, "{error}");
    assert!(error.message().contains(words), "\"{error}\" has not \"{words}\"");
}

#[test]
fn wrong_routings_and_mixtures_are_refused() {
    let z = numbers(98, TOKENS * EXPERTS, 2.0);
    let (mut ids, mut weights) = ([0; 2 * TOKENS], [0.0; 2 * TOKENS]);
    refused(Routing::new(EXPERTS, 0, &mut ids, &mut weights), "top_k");
    refused(Routing::new(EXPERTS, 3, &mut ids, &mut weights), "22 ids");
    refused(Routing::new(EXPERTS, 2, &mut ids, &mut weights[1..]), "21 weights");
    refused(Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap().mask(&[1]), "mask has 1 numbers, must have 11 * 1");
    let mut routing = Routing::new(EXPERTS, 2, &mut ids, &mut weights).unwrap();
    let plain = RouterOptions::new();
    refused(moe::route(None, &plain, Route::new(&z[1..]), &mut routing), "logits has 87 numbers, must have 11 * 8");
    refused(moe::route(None, &plain, Route::new(&z).selection_bias(&z[..3]), &mut routing), "selection_bias has 3");
    refused(moe::route(None, &plain, Route::new(&z).expert_scale(&z[..3]), &mut routing), "expert_scale has 3");
    refused(moe::route(None, RouterOptions::new().groups(3, 1, GroupScore::MAX), Route::new(&z), &mut routing), "groups is 3");
    refused(moe::route(None, RouterOptions::new().norm_power(2.0), Route::new(&z), &mut routing), "norm_power");
    refused(moe::route(None, RouterOptions::new().eps(1.0, 1.0), Route::new(&z), &mut routing), "eps_added");
    refused(moe::route(None, RouterOptions::new().score(Score::from_raw(9)), Route::new(&z), &mut routing), "score is 9");
    refused(moe::limit(None, &CapacityOptions::fixed(0), &mut routing), "factor");
    refused(moe::limit(None, &CapacityOptions::by_factor(f64::NAN, Rounding::DOWN, 0), &mut routing), "factor is nan");
    refused(moe::hash(&[9; TOKENS], &[0, 1], &mut routing), "9");
    refused(moe::count_tokens(&routing, 4, 0, &mut [0; EXPERTS]), "counts has 8 numbers, must have 3 * 8");
    refused(moe::loss_switch(Balance::new(EXPERTS, 2, &z, &[0; 3]).unwrap()), "counts has 3");
    refused(Balance::new(0, 2, &z, &[0; 3]), "probabilities has 88");
    refused(moe::loss_z(EXPERTS, &z[1..], None, 1.0, None), "logits has 87");
    refused(moe::update_bias(&[1], 1.0, &mut [0.0; 2]), "counts has 1");
    refused(LogitsOptions::new(EXPERTS, WIDTH, &z), "weight has 88 numbers, must have 8 * 6");
    refused(moe::jitter(None, &Noise::new(NoiseSite::NOISE, 0.1), EXPERTS, &z, &mut z.clone()), "site");
    refused(moe::add_noise(None, &Noise::new(NoiseSite::NOISE, -1.0), EXPERTS, None, &mut z.clone()), "size of the noise is -1");

    let case = Experts::new();
    let with = |mixture: &Mixture| Layer::new(&Experts::options(mixture), &case.stacks());
    refused(with(&Mixture::new(9)), "top_k is 9");
    refused(with(&Mixture::new(0)), "top_k");
    refused(with(Mixture::new(2).experts(7)), "7");
    refused(with(Mixture::new(2).choose(Choose::from_raw(9), 0.0)), "choose is 9");
    refused(with(Mixture::new(2).flags(MixtureFlags::from_raw(1 << 20))), "flags");
    refused(with(Mixture::new(2).router_norm(Norm::AFFINE, 0.0)), "norm");
    refused(with(Mixture::new(2).second(SecondOptions::new(SecondPolicy::THRESHOLD).threshold(-1.0))), "threshold");
    refused(with(Mixture::new(2).capacity(&CapacityOptions::by_factor(-1.0, Rounding::UP, 0))), "factor");
    let layer = with(&Mixture::new(2)).unwrap();
    let mut y = [7.0; TOKENS * WIDTH];
    refused(layer.run(Run::new(&case.x, &mut y).moe(Dispatch::new().counts(&mut [0; 3]))), "counts has 3 numbers, must have 1 * 8");
    refused(layer.run(Run::new(&case.x, &mut y).moe(Dispatch::new().mask(&[1; 3]))), "mask has 3");
    assert_eq!(y, [7.0; TOKENS * WIDTH]);
}
