//! Runs: sequences, strides, residuals, in place.
use libffn::{Layer, Residual, Run};

use crate::reference::*;

const BATCH: usize = 3;
const LENGTH: usize = 2;
const ROWS: usize = BATCH * LENGTH;

/// Rows laid out with bytes from sequence to sequence and from row to row; NaN in between.
fn spread(rows: &[f32], sequence: usize, row: usize) -> Vec<f32> {
    let mut numbers = vec![f32::NAN; ((BATCH - 1) * sequence + (LENGTH - 1) * row) / 4 + D_MODEL];
    for (i, from) in rows.chunks(D_MODEL).enumerate() {
        let first = (i / LENGTH * sequence + i % LENGTH * row) / 4;
        numbers[first..first + D_MODEL].copy_from_slice(from);
    }
    numbers
}

#[test]
fn sequences_with_strides_match_the_formula_and_padding_is_left_alone() {
    let case = Case::new(true);
    let x = &case.x[..ROWS * D_MODEL];
    let expected: Vec<f32> = case.expected(x, x).iter().map(|&v| v as f32).collect();
    let row = 4 * D_MODEL;
    for (sequence, row) in [(LENGTH * row, row), (5 * row + 8, 2 * row + 4), (row, BATCH * row)] {
        let mut y = spread(&vec![0.0; ROWS * D_MODEL], sequence, row);
        case.layer().run(Run::new(&spread(x, sequence, row), &mut y).batch(BATCH, LENGTH).x_stride(sequence, row).y_stride(sequence, row)).unwrap();
        for (i, (got, expected)) in y.iter().zip(spread(&expected, sequence, row)).enumerate() {
            assert_eq!(got.is_nan(), expected.is_nan(), "[{i}] of {sequence}, {row}");
            assert!(got.is_nan() || (got - expected).abs() <= 1e-5, "[{i}] is {got}, must be {expected}");
        }
    }
}

#[test]
fn an_external_residual_is_added() {
    let case = Case::new(false);
    let layer = Layer::new(Case::options().residual(Residual::EXTERNAL), &case.tensors()).unwrap();
    let residual = numbers(20, TOKENS * D_MODEL, 3.0);
    let expected = case.expected(&case.x, &residual);

    let mut y = vec![0.0; TOKENS * D_MODEL];
    layer.run(Run::new(&case.x, &mut y).residual(&residual)).unwrap();
    assert_close(&y, &expected);

    let mut both = residual.clone();
    layer.run(Run::new(&case.x, &mut both).residual_in_place()).unwrap();
    assert_eq!(bits(&both), bits(&y));

    let padded: Vec<f32> = residual.chunks(D_MODEL).flat_map(|row| [row, &[f32::NAN]].concat()).collect();
    let mut again = vec![0.0; TOKENS * D_MODEL];
    layer.run(Run::new(&case.x, &mut again).batch(1, TOKENS).residual(&padded).residual_stride(0, 4 * D_MODEL + 4)).unwrap();
    assert_eq!(bits(&again), bits(&y));
}

#[test]
fn in_place_gives_the_same_bits() {
    let case = Case::new(true);
    let layer = case.layer();
    let mut y = vec![0.0; TOKENS * D_MODEL];
    layer.forward(&case.x, &mut y).unwrap();

    let mut both = case.x.clone();
    layer.forward_in_place(&mut both).unwrap();
    assert_eq!(bits(&both), bits(&y));

    let padded = |rows: &[f32]| rows.chunks(D_MODEL).flat_map(|row| [row, &[5.0]].concat()).collect::<Vec<f32>>();
    let mut strided = padded(&case.x);
    layer.run(Run::in_place(&mut strided).batch(1, TOKENS).y_stride(0, 4 * D_MODEL + 4)).unwrap();
    assert_eq!(bits(&strided), bits(&padded(&y)));
}

#[test]
fn no_tokens_do_nothing() {
    let layer = Case::new(false).layer();
    layer.forward(&[], &mut []).unwrap();
    let mut y = [7.0; 3];
    layer.run(Run::new(&[], &mut y).batch(0, 5)).unwrap();
    layer.run(Run::new(&[], &mut y).batch(usize::MAX >> 1, 0).x_stride(4 * D_MODEL, 0)).unwrap();
    assert_eq!(y, [7.0; 3]);
}
