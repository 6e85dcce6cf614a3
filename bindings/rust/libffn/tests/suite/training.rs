//! Recorded runs: gradients against float64 differences of the formula, dropout, updates, and what is refused.
use libffn::{Activation, Backward, Context, ContextOptions, Dropout, DropoutSite, Error, Layer, LayerFlags, LayerOptions, Norm, NormSlot, Recorded};
use libffn::{Residual, Role, Run, Status, Tape, TapeOptions, Tensor, TensorMut};

use crate::reference::{bits, numbers};

const D_MODEL: usize = 5;
const D_FF: usize = 7;
const TOKENS: usize = 3;

const ROLES: [Role; 6] = [Role::UP_WEIGHT, Role::UP_BIAS, Role::DOWN_WEIGHT, Role::DOWN_BIAS, Role::NORM_IN_WEIGHT, Role::GATE_WEIGHT];

fn shape(role: Role) -> Vec<usize> {
    match role {
        Role::UP_WEIGHT | Role::GATE_WEIGHT => vec![D_FF, D_MODEL],
        Role::UP_BIAS => vec![D_FF],
        Role::DOWN_WEIGHT => vec![D_MODEL, D_FF],
        _ => vec![D_MODEL],
    }
}

/// Silu, LayerNorm before, an external residual; with or without a gate, which is the last of the tensors.
struct Case {
    tensors: Vec<Vec<f32>>,
    x: Vec<f32>,
    residual: Vec<f32>,
    d_y: Vec<f32>,
}

impl Case {
    fn new(gated: bool) -> Self {
        let roles = &ROLES[..ROLES.len() - usize::from(!gated)];
        let make = |(seed, role): (usize, &Role)| numbers(30 + seed as u64, shape(*role).iter().product(), 0.8);
        let tensors = roles.iter().enumerate().map(make).collect();
        let rows = |seed| numbers(seed, TOKENS * D_MODEL, 1.5);
        Case { tensors, x: rows(41), residual: rows(42), d_y: rows(43) }
    }

    fn options(residual: Residual) -> LayerOptions {
        let mut options = LayerOptions::new();
        options.activation(Activation::SILU).residual(residual).norm(NormSlot::IN, Norm::LAYER).flags(LayerFlags::TRAINABLE);
        options
    }

    fn views(&self) -> Vec<Tensor<'_>> {
        self.tensors.iter().zip(ROLES).map(|(tensor, role)| Tensor::new(role, tensor, &shape(role)).unwrap()).collect()
    }

    fn layer(&self, residual: Residual) -> Layer {
        Layer::new(&Self::options(residual), &self.views()).unwrap()
    }

    fn run<'x, 'y>(&'x self, y: &'y mut [f32]) -> Run<'x, 'y> {
        Run::new(&self.x, y).residual(&self.residual)
    }

    /// The sum of d_y * y, in float64, of these tensors, x and residual.
    fn loss(&self, tensors: &[Vec<f64>], x: &[f64], residual: &[f64]) -> f64 {
        let mut sum = 0.0;
        for t in 0..TOKENS {
            let row = &x[t * D_MODEL..][..D_MODEL];
            let mean = row.iter().sum::<f64>() / D_MODEL as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / D_MODEL as f64;
            let normed: Vec<f64> = row.iter().zip(&tensors[4]).map(|(v, w)| (v - mean) / (variance + 1e-5f32 as f64).sqrt() * w).collect();
            let linear = |weight: &[f64], row: usize, x: &[f64]| weight[row * x.len()..].iter().zip(x).map(|(w, v)| w * v).sum::<f64>();
            let silu = |v: f64| v / (1.0 + (-v).exp());
            let hidden: Vec<f64> = (0..D_FF)
                .map(|f| {
                    let up = linear(&tensors[0], f, &normed) + tensors[1][f];
                    tensors.get(5).map_or_else(|| silu(up), |gate| silu(linear(gate, f, &normed)) * up)
                })
                .collect();
            for i in 0..D_MODEL {
                let y = linear(&tensors[2], i, &hidden) + tensors[3][i] + residual[t * D_MODEL + i];
                sum += f64::from(self.d_y[t * D_MODEL + i]) * y;
            }
        }
        sum
    }
}

fn exact(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&v| v.into()).collect()
}

/// Central differences of a function by an array.
fn differences(at: &[f64], function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |i: usize, step: f64| {
        let mut moved = at.to_vec();
        moved[i] += step;
        function(&moved)
    };
    (0..at.len()).map(|i| (moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5).collect()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(1.0f64, |largest, v| largest.max(v.abs()));
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - expected).abs() <= 2e-6 * largest, "[{i}] is {got}, must be {expected}");
    }
}

fn tape() -> Tape {
    Tape::new(&TapeOptions::new()).unwrap()
}

#[test]
fn gradients_are_those_of_the_formula() {
    for (gated, recompute) in [(false, false), (true, false), (true, true)] {
        let case = Case::new(gated);
        let layer = case.layer(Residual::EXTERNAL);
        let mut tape = Tape::new(TapeOptions::new().recompute(recompute)).unwrap();
        let (mut y, mut d_x, mut d_residual) = (vec![0.0; TOKENS * D_MODEL], vec![f32::NAN; TOKENS * D_MODEL], vec![f32::NAN; TOKENS * D_MODEL]);
        let mut gradients: Vec<Vec<f32>> = case.tensors.iter().map(|tensor| vec![f32::NAN; tensor.len()]).collect();
        {
            let mut recorded = layer.record(&mut tape, case.run(&mut y)).unwrap();
            let mut views: Vec<_> =
                gradients.iter_mut().zip(ROLES).map(|(gradient, role)| TensorMut::new(role, gradient, &shape(role)).unwrap()).collect();
            recorded.backward(Backward::new(&case.d_y).d_x(&mut d_x).d_residual(&mut d_residual), &mut views).unwrap();
        }
        let (tensors, x, residual): (Vec<_>, _, _) = (case.tensors.iter().map(|t| exact(t)).collect(), exact(&case.x), exact(&case.residual));
        let value: f64 = y.iter().zip(&case.d_y).map(|(&y, &d)| f64::from(y) * f64::from(d)).sum();
        assert!((value - case.loss(&tensors, &x, &residual)).abs() < 1e-4);
        for (i, gradient) in gradients.iter().enumerate() {
            let by_tensor = |moved: &[f64]| {
                let mut tensors = tensors.clone();
                tensors[i] = moved.to_vec();
                case.loss(&tensors, &x, &residual)
            };
            assert_close(gradient, &differences(&tensors[i], by_tensor));
        }
        assert_close(&d_x, &differences(&x, |moved| case.loss(&tensors, moved, &residual)));
        assert_close(&d_residual, &differences(&residual, |moved| case.loss(&tensors, &x, moved)));
    }
}

/// The gradient of the up weight, and by x.
fn gradients(layer: &Layer, tape: &mut Tape, run: Run<'_, '_>, d_y: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut d_up, mut d_x) = (vec![0.0; D_FF * D_MODEL], vec![0.0; d_y.len()]);
    let mut recorded = layer.record(tape, run).unwrap();
    let mut views = [TensorMut::new(Role::UP_WEIGHT, &mut d_up, &[D_FF, D_MODEL]).unwrap()];
    recorded.backward(Backward::new(d_y).d_x(&mut d_x), &mut views).unwrap();
    (d_up, d_x)
}

#[test]
fn gradients_are_added_where_asked_and_lie_in_views_of_any_strides() {
    let case = Case::new(true);
    let (layer, mut tape, mut y) = (case.layer(Residual::INPUT), tape(), vec![0.0; TOKENS * D_MODEL]);
    let (d_up, _) = gradients(&layer, &mut tape, Run::new(&case.x, &mut y), &case.d_y);

    let start = numbers(50, D_FF * D_MODEL, 1.0);
    let mut transposed: Vec<f32> = (0..D_MODEL * D_FF).map(|i| start[i % D_FF * D_MODEL + i / D_FF]).collect();
    let view = TensorMut::strided(Role::UP_WEIGHT, &mut transposed, 0, &[D_FF, D_MODEL], &[4, 4 * D_FF as isize]).unwrap();
    layer.record(&mut tape, Run::new(&case.x, &mut y)).unwrap().backward(Backward::new(&case.d_y).accumulate(), &mut [view]).unwrap();
    for (i, got) in transposed.iter().enumerate() {
        let at = i % D_FF * D_MODEL + i / D_FF;
        assert!((got - start[at] - d_up[at]).abs() <= 1e-5, "[{i}]");
    }
    layer.record(&mut tape, Run::new(&case.x, &mut y)).unwrap().backward(Backward::new(&case.d_y), &mut []).unwrap();
}

#[test]
fn rows_have_strides_and_take_each_other_s_place() {
    let case = Case::new(true);
    let (layer, mut tape, mut y) = (case.layer(Residual::EXTERNAL), tape(), vec![0.0; TOKENS * D_MODEL]);
    let (_, d_x) = gradients(&layer, &mut tape, case.run(&mut y), &case.d_y);

    let mut both = case.d_y.clone();
    layer.record(&mut tape, case.run(&mut y)).unwrap().backward(Backward::in_place(&mut both), &mut []).unwrap();
    assert_eq!(bits(&both), bits(&d_x));
    let mut both = case.d_y.clone();
    layer.record(&mut tape, case.run(&mut y)).unwrap().backward(Backward::residual_in_place(&mut both), &mut []).unwrap();
    assert_eq!(bits(&both), bits(&case.d_y)); // the residual's scale is 1

    let padded = |rows: &[f32]| rows.chunks(D_MODEL).flat_map(|row| [row, &[9.0]].concat()).collect::<Vec<f32>>();
    let (wide, row) = (padded(&case.d_y), 4 * D_MODEL + 4);
    let (mut d_x_wide, mut d_residual_wide) = (padded(&[0.0; TOKENS * D_MODEL]), padded(&[0.0; TOKENS * D_MODEL]));
    let backward = Backward::new(&wide).d_x(&mut d_x_wide).d_residual(&mut d_residual_wide);
    let backward = backward.d_y_stride(0, row).d_x_stride(0, row).d_residual_stride(0, row);
    layer.record(&mut tape, case.run(&mut y)).unwrap().backward(backward, &mut []).unwrap();
    assert_eq!(bits(&d_x_wide), bits(&padded(&d_x)));
    assert_eq!(bits(&d_residual_wide), bits(&wide));
}

#[test]
fn dropout_reaches_its_sites_and_is_the_same_in_parts() {
    let case = Case::new(true);
    let (layer, mut tape) = (case.layer(Residual::INPUT), tape());
    let run = |dropout: &Dropout, x: &[f32], batch| {
        let mut y = vec![0.0; x.len()];
        layer.run(Run::new(x, &mut y).batch(batch, x.len() / D_MODEL / batch).dropout(dropout)).unwrap();
        y
    };
    let plain = run(&Dropout::new(), &case.x, 1);
    for site in [DropoutSite::PRE_ACTIVATION, DropoutSite::ACTIVATION, DropoutSite::HIDDEN, DropoutSite::BRANCH, DropoutSite::PATH] {
        let mut dropout = Dropout::new();
        dropout.seed(7).step(2).layer(3);
        assert_eq!(bits(&run(dropout.p(site, 0.0), &case.x, 1)), bits(&plain), "{site:?}");
        let whole = run(dropout.p(site, 0.5), &case.x, TOKENS);
        let second = run(dropout.first(1, 1), &case.x[D_MODEL..], TOKENS - 1);
        for (whole, second) in whole[D_MODEL..].iter().zip(second) {
            assert!((whole - second).abs() <= 1e-5, "{site:?}: {whole} and {second}");
            // another number of rows for BLAS
        }
        let all = run(dropout.p(site, 1.0), &case.x, 1);
        if site == DropoutSite::BRANCH || site == DropoutSite::PATH {
            assert_eq!(bits(&all), bits(&case.x));
            continue;
        }
        let bias = case.x.iter().zip(case.tensors[3].iter().cycle()).map(|(x, b)| x + b);
        assert!(site == DropoutSite::PRE_ACTIVATION || all.iter().zip(bias).all(|(y, expected)| (y - expected).abs() <= 1e-6), "{site:?}");
    }

    // one mask for a sequence: rows that are equal stay so
    let (mut dropout, equal) = (Dropout::new(), case.x[..D_MODEL].repeat(4));
    let rows = |dropout: &Dropout| run(dropout, &equal, 1).chunks(D_MODEL).map(bits).collect::<Vec<_>>();
    dropout.seed(1).p(DropoutSite::BRANCH, 0.5);
    assert!(rows(&dropout).iter().any(|row| *row != rows(&dropout)[0]));
    dropout.broadcast(DropoutSite::BRANCH);
    assert!(rows(&dropout).iter().all(|row| *row == rows(&dropout)[0]));

    // the backward pass drops what the forward pass did: with all of the branch dropped, y = x
    let (mut y, mut all) = (vec![0.0; TOKENS * D_MODEL], Dropout::new());
    all.p(DropoutSite::PATH, 1.0);
    let (d_up, d_x) = gradients(&layer, &mut tape, Run::new(&case.x, &mut y).dropout(&all), &case.d_y);
    assert_eq!((bits(&d_x), d_up), (bits(&case.d_y), vec![0.0; D_FF * D_MODEL]));
}

#[test]
fn an_updated_layer_is_the_one_made_of_the_new_weights() {
    let (case, other) = (
        Case::new(true),
        Case { tensors: Case::new(true).tensors.into_iter().map(|t| t.iter().map(|v| v / 3.0).collect()).collect(), ..Case::new(true) },
    );
    let (mut layer, made) = (case.layer(Residual::INPUT), other.layer(Residual::INPUT));
    let run = |layer: &Layer| {
        let mut y = vec![0.0; TOKENS * D_MODEL];
        layer.forward(&case.x, &mut y).map(|()| bits(&y)).unwrap()
    };
    let before = run(&layer);
    let mut wrong = other.views();
    wrong[1] = Tensor::new(Role::UP_BIAS, &case.x[..1], &[1]).unwrap();
    refused(layer.update(&wrong), "1");
    assert_eq!(run(&layer), before);
    layer.update(&other.views()).unwrap();
    assert_eq!(run(&layer), run(&made));
    layer.update_in(&mut Context::new(ContextOptions::new().threads(2)).unwrap(), &case.views()).unwrap();
    assert_eq!(run(&layer), before);
}

#[test]
fn contexts_and_tapes_that_were_used_give_the_same_bits() {
    let case = Case::new(true);
    let (layer, dense) = (case.layer(Residual::INPUT), Case::new(false).layer(Residual::INPUT));
    let (mut tape, mut y) = (tape(), vec![0.0; TOKENS * D_MODEL]);
    let (d_up, d_x) = gradients(&layer, &mut tape, Run::new(&case.x, &mut y), &case.d_y);
    gradients(&dense, &mut tape, Run::new(&case.x, &mut y), &case.d_y);
    tape.reserve(&layer, 100).unwrap();
    let mut context = Context::new(ContextOptions::new().threads(3)).unwrap();
    context.reserve(&layer, 100).unwrap();
    let (mut d_up_in, mut d_x_in) = (vec![0.0; D_FF * D_MODEL], vec![0.0; TOKENS * D_MODEL]);
    let mut recorded = layer.record_in(&mut context, &mut tape, Run::new(&case.x, &mut y)).unwrap();
    let mut views = [TensorMut::new(Role::UP_WEIGHT, &mut d_up_in, &[D_FF, D_MODEL]).unwrap()];
    recorded.backward_in(&mut context, Backward::new(&case.d_y).d_x(&mut d_x_in), &mut views).unwrap();
    assert_eq!((bits(&d_up_in), bits(&d_x_in)), (bits(&d_up), bits(&d_x)));
}

#[test]
fn recordings_move_between_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Tape>();
    is_sync::<Tape>();
    is_send::<Recorded<'_>>();
    is_send::<Backward<'_>>();
    is_send::<Dropout>();
    let case = Case::new(true);
    let (layer, mut tape, mut y) = (case.layer(Residual::INPUT), tape(), vec![0.0; TOKENS * D_MODEL]);
    let (_, expected) = gradients(&layer, &mut tape, Run::new(&case.x, &mut y), &case.d_y);
    let mut recorded = layer.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    let mut d_x = vec![0.0; TOKENS * D_MODEL];
    std::thread::scope(|scope| {
        scope.spawn(|| recorded.backward(Backward::new(&case.d_y).d_x(&mut d_x), &mut []).unwrap());
    });
    assert_eq!(bits(&d_x), bits(&expected));
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.err().expect("refused");
    assert_eq!(error.status(), Status::INVALID, "{error}");
    assert!(error.message().contains(words), "\"{error}\" has not \"{words}\"");
}

#[test]
fn wrong_backward_passes_are_refused_and_leave_the_recording_as_it_was() {
    let case = Case::new(true);
    let (layer, mut tape) = (case.layer(Residual::INPUT), tape());
    let (mut y, mut d_x, mut d_up) = (vec![0.0; TOKENS * D_MODEL], vec![7.0; TOKENS * D_MODEL], vec![7.0; D_FF * D_MODEL]);
    let mut recorded = layer.record(&mut tape, Run::new(&case.x, &mut y)).unwrap();
    refused(recorded.backward(Backward::new(&case.d_y[1..]), &mut []), "d_y has 14 numbers, must have exactly 1 * 3 rows of 5");
    refused(recorded.backward(Backward::new(&case.d_y).d_y_stride(0, 24), &mut []), "d_y has 15 numbers, must have at least");
    refused(recorded.backward(Backward::new(&case.d_y).d_x(&mut d_x[1..]), &mut []), "d_x has 14 numbers");
    refused(recorded.backward(Backward::new(&case.d_y).d_residual(&mut d_x), &mut []), "not external");
    refused(recorded.backward(Backward::in_place(&mut case.d_y.clone()).d_x(&mut d_x), &mut []), "d_x is given, but takes the place of d_y");
    for (role, shape) in [(Role::UP_WEIGHT, [D_MODEL, D_FF]), (Role::from_raw(60), [D_FF, D_MODEL])] {
        let mut view = [TensorMut::new(role, &mut d_up, &shape).unwrap()];
        assert_eq!(recorded.backward(Backward::new(&case.d_y).d_x(&mut d_x), &mut view).unwrap_err().status(), Status::INVALID);
    }
    assert!(d_x.iter().chain(&d_up).all(|&v| v == 7.0));
    recorded.backward(Backward::new(&case.d_y).d_x(&mut d_x), &mut []).unwrap();
    assert!(d_x.iter().all(|&v| v != 7.0));
    refused(recorded.backward(Backward::new(&case.d_y), &mut []), "used up");

    let external = case.layer(Residual::EXTERNAL);
    refused(external.record(&mut tape, Run::new(&case.x, &mut y)), "residual");
    refused(external.record(&mut tape, Run::new(&case.x, &mut y).residual_in_place()), "tape");
    refused(layer.record(&mut tape, Run::in_place(&mut y)), "tape");
    for (wrong, words) in [
        (Dropout::new().p(DropoutSite::HIDDEN, f32::NAN), "nan"),
        (Dropout::new().p(DropoutSite::HIDDEN, 1.5), "1.5"),
        (Dropout::new().step(1 << 32), "step"),
        (Dropout::new().layer(65535), "layer"),
        (Dropout::new().first(-1, 0), "first_row"),
        (Dropout::new().broadcast(DropoutSite::PATH), "broadcast"),
        (Dropout::new().broadcast(DropoutSite::from_raw(99)), "broadcast"),
    ] {
        refused(layer.record(&mut tape, Run::new(&case.x, &mut y).dropout(wrong)), words);
    }
}

#[test]
fn training_takes_a_trainable_layer() {
    let case = Case::new(false);
    let mut layer = Layer::new(Case::options(Residual::INPUT).flags(LayerFlags::from_raw(0)), &case.views()).unwrap();
    let (mut tape, mut y, dropout) = (tape(), vec![0.0; TOKENS * D_MODEL], Dropout::new());
    let statuses = [
        layer.record(&mut tape, Run::new(&case.x, &mut y)).map(|_| ()),
        layer.run(Run::new(&case.x, &mut y).dropout(&dropout)),
        tape.reserve(&layer, 3),
        layer.update(&case.views()),
    ];
    for outcome in statuses {
        assert_eq!(outcome.unwrap_err().status(), Status::UNSUPPORTED);
    }
}

#[test]
fn no_tokens_give_gradients_of_zero() {
    let case = Case::new(false);
    let (layer, mut tape) = (case.layer(Residual::INPUT), tape());
    let (d_up, d_x) = gradients(&layer, &mut tape, Run::new(&[], &mut []), &[]);
    assert_eq!((d_up, d_x), (vec![0.0; D_FF * D_MODEL], vec![]));
}
