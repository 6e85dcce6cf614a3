//! Convolutional layers against plain loops in float64, and what is refused. What the library does in full, the C tests show.
use libffn::{Activation, Backward, Context, ContextOptions, Conv, ConvFlags, ConvMask, ConvOptions, ConvPadding, ConvRun, Dropout, DropoutSite};
use libffn::{Error, Role, Status, Tape, TapeOptions, Tensor, TensorMut};

use crate::reference::{bits, numbers};

const WIDTH: usize = 4;
const HIDDEN: usize = 6;
const LENGTH: usize = 5;
const BATCH: usize = 2;
const ROWS: usize = BATCH * LENGTH;

struct Case {
    up: Vec<f32>,
    taps: Option<Vec<f32>>,
    down: Vec<f32>,
    x: Vec<f32>,
}

impl Case {
    /// Three taps, dense or separable, then one.
    fn new(separable: bool) -> Self {
        let up = numbers(110, HIDDEN * WIDTH * if separable { 1 } else { 3 }, 0.8);
        let taps = separable.then(|| numbers(111, WIDTH * 3, 1.0));
        Case { up, taps, down: numbers(112, WIDTH * HIDDEN, 0.8), x: numbers(113, ROWS * WIDTH, 1.0) }
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        let mut tensors = vec![Tensor::new(Role::DOWN_WEIGHT, &self.down, &[WIDTH, HIDDEN]).unwrap()];
        match &self.taps {
            None => tensors.push(Tensor::new(Role::UP_WEIGHT, &self.up, &[HIDDEN, WIDTH, 3]).unwrap()),
            Some(taps) => {
                tensors.push(Tensor::new(Role::UP_WEIGHT, &self.up, &[HIDDEN, WIDTH]).unwrap());
                tensors.push(Tensor::new(Role::UP_TAPS, taps, &[WIDTH, 3]).unwrap());
            }
        }
        tensors
    }

    /// y with silu, of the number of positions before that a sequence is padded with.
    fn y(&self, before: usize) -> Vec<f64> {
        let mut y = vec![0.0; ROWS * WIDTH];
        for row in 0..ROWS {
            for f in 0..HIDDEN {
                let mut h = 0.0;
                for (i, k) in (0..WIDTH).flat_map(|i| (0..3).map(move |k| (i, k))) {
                    let at = row % LENGTH + k;
                    if at < before || at - before >= LENGTH {
                        continue;
                    }
                    let weight = match &self.taps {
                        None => f64::from(self.up[(f * WIDTH + i) * 3 + k]),
                        Some(taps) => f64::from(self.up[f * WIDTH + i]) * f64::from(taps[i * 3 + k]),
                    };
                    h += weight * f64::from(self.x[(row / LENGTH * LENGTH + at - before) * WIDTH + i]);
                }
                let h = h / (1.0 + (-h).exp());
                (0..WIDTH).for_each(|i| y[row * WIDTH + i] += f64::from(self.down[i * HIDDEN + f]) * h);
            }
        }
        y
    }
}

fn options() -> ConvOptions {
    let mut options = ConvOptions::new(Activation::SILU);
    options.flags(ConvFlags::TRAINABLE);
    options
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64]) {
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - expected).abs() <= 1e-5, "[{i}] is {got}, must be {expected}");
    }
}

#[test]
fn convolutions_are_those_of_the_formula() {
    for separable in [false, true] {
        let case = Case::new(separable);
        for (padding, before) in [(ConvPadding::SAME, 1), (ConvPadding::LEFT, 2)] {
            let conv = Conv::new(None, options().padding(padding).kernel_sizes(3, 1), &case.tensors()).unwrap();
            let (mut y, mut same) = ([0.0; ROWS * WIDTH], [0.0; ROWS * WIDTH]);
            conv.run(None, ConvRun::new(BATCH, &case.x, &mut y)).unwrap();
            assert_close(&y, &case.y(before));
            let mut context = Context::new(ContextOptions::new().threads(2)).unwrap();
            conv.reserve(Some(&mut context), None, BATCH, LENGTH).unwrap();
            conv.run(Some(&mut context), ConvRun::new(BATCH, &case.x, &mut same)).unwrap();
            assert_eq!(bits(&same), bits(&y));
            let info = conv.info();
            assert_eq!((info.d_model(), info.d_ff(), info.d_out(), info.kernel_sizes()), (WIDTH, HIDDEN, WIDTH, (3, 1)));
            assert_eq!(info.separable(), (separable, false));
            assert_eq!(info.parameters_of(Role::DOWN_WEIGHT), (WIDTH * HIDDEN) as i64);
        }
    }
}

#[test]
fn a_mask_makes_zeros() {
    let case = Case::new(false);
    let conv = Conv::new(None, options().mask(ConvMask::ALL), &case.tensors()).unwrap();
    let (mut mask, mut y) = ([1; ROWS], [7.0; ROWS * WIDTH]);
    mask[2] = 0;
    conv.run(None, ConvRun::new(BATCH, &case.x, &mut y).mask(&mask)).unwrap();
    assert_eq!(y[2 * WIDTH..3 * WIDTH], [0.0; WIDTH]);
    assert_close(&y[LENGTH * WIDTH..], &case.y(1)[LENGTH * WIDTH..]);
    let mut dropout = Dropout::new();
    conv.run(None, ConvRun::new(BATCH, &case.x, &mut y).dropout(dropout.p(DropoutSite::BRANCH, 1.0))).unwrap();
    assert_eq!(y, [0.0; ROWS * WIDTH]);
}

#[test]
fn gradients_are_those_of_the_formula_and_updates_take() {
    let mut case = Case::new(true);
    let d_y = numbers(114, ROWS * WIDTH, 1.0);
    let mut conv = Conv::new(None, &options(), &case.tensors()).unwrap();
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    conv.reserve(None, Some(&mut tape), BATCH, LENGTH).unwrap();
    let (mut y, mut d_x, mut d_taps) = ([0.0; ROWS * WIDTH], [0.0; ROWS * WIDTH], [0.0; WIDTH * 3]);
    {
        let x = case.x.clone();
        let mut recorded = conv.record(None, &mut tape, ConvRun::new(BATCH, &x, &mut y)).unwrap();
        let mut views = [TensorMut::new(Role::UP_TAPS, &mut d_taps, &[WIDTH, 3]).unwrap()];
        refused(recorded.backward(None, Backward::new(&d_y[1..]), &mut []), "d_y has 39 numbers, must have exactly 2 * 5 rows of 4");
        recorded.backward(None, Backward::new(&d_y).d_x(&mut d_x), &mut views).unwrap();
        refused(recorded.backward(None, Backward::new(&d_y), &mut []), "used up");
    }
    let loss = |case: &Case| case.y(1).iter().zip(&d_y).map(|(y, &d)| y * f64::from(d)).sum::<f64>();
    let step = 1.0 / 4096.0;
    for (i, gradient) in d_x.into_iter().enumerate().step_by(3) {
        let was = case.x[i];
        let values = [was + step, was - step].map(|moved| {
            case.x[i] = moved;
            (f64::from(moved), loss(&case))
        });
        case.x[i] = was;
        assert!((f64::from(gradient) - (values[0].1 - values[1].1) / (values[0].0 - values[1].0)).abs() < 1e-4, "x[{i}]");
    }
    for (i, gradient) in d_taps.into_iter().enumerate() {
        let was = case.taps.as_ref().unwrap()[i];
        let values = [was + step, was - step].map(|moved| {
            case.taps.as_mut().unwrap()[i] = moved;
            (f64::from(moved), loss(&case))
        });
        case.taps.as_mut().unwrap()[i] = was;
        assert!((f64::from(gradient) - (values[0].1 - values[1].1) / (values[0].0 - values[1].0)).abs() < 1e-4, "taps[{i}]");
    }
    case.down.iter_mut().for_each(|weight| *weight = -*weight);
    conv.update(None, &[Tensor::new(Role::DOWN_WEIGHT, &case.down, &[WIDTH, HIDDEN]).unwrap()]).unwrap();
    conv.run(None, ConvRun::new(BATCH, &case.x, &mut y)).unwrap();
    assert_close(&y, &case.y(1));
    let mut down = [0.0; WIDTH * HIDDEN];
    conv.read(&mut [TensorMut::new(Role::DOWN_WEIGHT, &mut down, &[WIDTH, HIDDEN]).unwrap()]).unwrap();
    assert_eq!(down, case.down[..]);
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.err().expect("refused");
    assert_eq!(error.status(), Status::INVALID, "{error}");
    assert!(error.message().contains(words), "\"{error}\" has not \"{words}\"");
}

#[test]
fn what_is_wrong_is_refused() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Conv>();
    is_shared::<ConvOptions>();
    let case = Case::new(false);
    refused(Conv::new(None, options().padding(ConvPadding::from_raw(9)), &case.tensors()), "padding is 9");
    refused(Conv::new(None, options().mask(ConvMask::from_raw(9)), &case.tensors()), "mask is 9");
    refused(Conv::new(None, options().flags(ConvFlags::from_raw(64) | ConvFlags::SCALE_BY_TAPS), &case.tensors()), "flags");
    refused(Conv::new(None, options().kernel_sizes(5, 0), &case.tensors()), "5");
    refused(Conv::new(None, options().parameters(1.0, 0.0), &case.tensors()), "alpha");
    refused(Conv::new(None, &options(), &case.tensors()[..1]), "missing");
    let mut conv = Conv::new(None, &ConvOptions::new(Activation::RELU), &case.tensors()).unwrap();
    let mut y = [7.0; ROWS * WIDTH];
    refused(conv.run(None, ConvRun::new(3, &case.x, &mut y)), "x has 40 numbers, must have 3 sequences of rows of 4");
    refused(conv.run(None, ConvRun::new(0, &case.x, &mut y)), "0 sequences");
    refused(conv.run(None, ConvRun::new(BATCH, &case.x, &mut y[1..])), "y has 39");
    refused(conv.run(None, ConvRun::new(BATCH, &case.x, &mut y).mask(&[1; 3])), "mask has 3");
    assert_eq!(y, [7.0; ROWS * WIDTH]);
    assert_eq!(conv.update(None, &case.tensors()).unwrap_err().status(), Status::UNSUPPORTED);
    let mut tape = Tape::new(&TapeOptions::new()).unwrap();
    assert_eq!(conv.record(None, &mut tape, ConvRun::new(BATCH, &case.x, &mut y)).unwrap_err().status(), Status::UNSUPPORTED);
}
