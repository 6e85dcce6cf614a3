//! Bad input: a status, a sentence, and nothing is touched.
use libffn::{Context, ContextOptions, Error, Layer, LayerOptions, Residual, Role, Run, Status, Tensor, TensorMut};

use crate::reference::*;

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), Status::INVALID, "{error}");
    assert!(error.message().contains(words), "\"{error}\" has not \"{words}\"");
    assert_eq!(format!("{error:?}"), format!("Status::INVALID: {error}"));
}

#[test]
fn slices_of_wrong_lengths_are_refused() {
    let case = Case::new(false);
    let layer = case.layer();
    for (x, y) in [(D_MODEL - 1, D_MODEL), (D_MODEL, D_MODEL + 1), (D_MODEL, 0), (0, D_MODEL), (2 * D_MODEL, D_MODEL), (D_MODEL, 2 * D_MODEL)] {
        let mut out = vec![7.0; y];
        refused(layer.forward(&case.x[..x], &mut out), &format!("x has {x} numbers and y {y}"));
        refused(layer.run(Run::new(&case.x[..x], &mut out)), "numbers, must have exactly");
        assert!(out.iter().all(|&v| v == 7.0));
    }
    refused(layer.forward_in_place(&mut [0.0; D_MODEL + 1]), "must have exactly");
}

#[test]
fn rows_beyond_their_slice_are_refused() {
    let case = Case::new(false);
    let layer = case.layer();
    let row = 4 * D_MODEL;
    let x = &case.x[..4 * D_MODEL];
    let mut y = vec![7.0; 4 * D_MODEL];
    let mut run =
        |words: &str, change: for<'x, 'y> fn(Run<'x, 'y>, usize) -> Run<'x, 'y>| refused(layer.run(change(Run::new(x, &mut y), row)), words);
    run("x has 96 numbers, must have at least 1 * 5 rows", |run, _| run.batch(1, 5));
    run("x has 96 numbers", |run, row| run.batch(2, 2).x_stride(3 * row + 4, row));
    run("y has 96 numbers", |run, row| run.batch(2, 2).y_stride(0, 2 * row));
    run("x has 96 numbers", |run, row| run.batch(2, 2).x_stride(usize::MAX - 3, row));
    run("x has 96 numbers", |run, _| run.batch(usize::MAX >> 1, usize::MAX >> 1));
    run("batch is", |run, _| run.batch(usize::MAX, 1));
    run("batch is", |run, _| run.batch(usize::MAX, 0));
    run("row stride of x is 4 bytes", |run, _| run.batch(1, 4).x_stride(0, 4));
    run("multiple of 4", |run, row| run.batch(1, 2).x_stride(0, row + 2));
    run("overlap", |run, row| run.batch(2, 2).y_stride(row, row));
    run("strides are given, but not batch and length", |run, row| run.x_stride(0, row));
    run("residual", |run, _| run.residual(&[0.0; D_MODEL]));
    assert!(y.iter().all(|&v| v == 7.0));
}

#[test]
fn a_residual_is_where_it_belongs() {
    let case = Case::new(false);
    let layer = Layer::new(Case::options().residual(Residual::EXTERNAL), &case.tensors()).unwrap();
    let mut y = vec![7.0; TOKENS * D_MODEL];
    refused(layer.forward(&case.x, &mut y), "residual");
    refused(layer.run(Run::new(&case.x, &mut y)), "residual");
    refused(layer.run(Run::new(&case.x, &mut y).residual(&case.x[1..])), "residual has 167 numbers");
    refused(case.layer().run(Run::new(&case.x, &mut y).residual(&case.x)), "residual");
    assert!(y.iter().all(|&v| v == 7.0));
}

#[test]
fn views_beyond_their_array_are_refused() {
    const MOST: isize = isize::MAX - 3;
    let array = vec![0.0; 12];
    let strided = |first: usize, shape: &[usize], strides: &[isize]| {
        let mut copy = array.clone();
        let writable = TensorMut::strided(Role::UP_WEIGHT, &mut copy, first, shape, strides).map(|_| ());
        assert_eq!(Tensor::strided(Role::UP_WEIGHT, &array, first, shape, strides).map(|_| ()), writable);
        writable
    };
    for (first, shape, strides) in [
        (0, &[3usize, 4][..], &[][..]),
        (0, &[3, 4], &[16, 4]),
        (0, &[4, 3], &[4, 16]),
        (8, &[3, 4], &[-16, 4]),
        (11, &[3, 4], &[-16, -4]),
        (11, &[5, 1], &[0, 4]),
        (11, &[1, 1], &[MOST, -MOST]),
        (5, &[1, 7], &[MOST, 4]),
        (0, &[2, 3, 2], &[]),
    ] {
        assert_eq!(strided(first, shape, strides), Ok(()), "{first} {shape:?} {strides:?}");
    }
    for (first, shape, strides) in [
        (1, &[3usize, 4][..], &[][..]),
        (0, &[3, 4], &[20, 4]),
        (0, &[3, 4], &[16, 8]),
        (7, &[3, 4], &[-16, 4]),
        (12, &[1, 1], &[4, 4]),
        (usize::MAX, &[1, 1], &[4, 4]),
        (0, &[13, 1], &[0, 0]), // all 0 is contiguous, not a broadcast
        (0, &[2, 1], &[MOST, 4]),
        (0, &[2, 2], &[MOST, MOST]),
        (0, &[2, 2], &[-MOST, -MOST]),
        (0, &[usize::MAX >> 1, usize::MAX >> 1], &[]),
        (0, &[usize::MAX >> 1; 4], &[isize::MAX; 4]),
        (0, &[usize::MAX >> 1, 2], &[-MOST, MOST]),
    ] {
        refused(strided(first, shape, strides), "reaches beyond its array of 12 numbers");
    }
    refused(strided(0, &[usize::MAX], &[4]), "dimension");
    refused(strided(0, &[], &[]), "0 dimensions");
    refused(strided(0, &[1; 5], &[]), "5 dimensions");
    refused(strided(0, &[3, 4], &[4]), "1 strides");
    refused(Tensor::new(Role::UP_WEIGHT, &array, &[3, 3]), "has 12 numbers");
    refused(Tensor::new(Role::UP_WEIGHT, &array, &[usize::MAX, 4]), "has 12 numbers");
    refused(TensorMut::new(Role::UP_WEIGHT, &mut [0.0; 12], &[13]), "has 12 numbers");
}

#[test]
fn tensors_that_do_not_make_a_layer_are_refused() {
    let case = Case::new(false);
    let with = |change: fn(&mut Vec<Tensor<'_>>)| {
        let mut tensors = case.tensors();
        change(&mut tensors);
        Layer::new(&Case::options(), &tensors)
    };
    refused(Layer::new(&Case::options(), &[]), "up weight is missing");
    refused(with(|tensors| tensors[0] = tensors[2]), "twice");
    refused(with(|tensors| tensors.truncate(2)), "down");
    refused(with(|tensors| tensors[0] = Tensor::new(Role::UP_WEIGHT, &[], &[0, 4]).unwrap()), "0");
    refused(with(|tensors| tensors[1] = Tensor::new(Role::UP_BIAS, &[0.0], &[1]).unwrap()), "1");
    refused(with(|tensors| tensors[1] = Tensor::new(Role::from_raw(60), &[0.0], &[1]).unwrap()), "60");
    refused(with(|tensors| tensors[1] = Tensor::strided(Role::UP_BIAS, &[0.0; 80], 0, &[D_FF], &[6]).unwrap()), "multiple of 4");
    refused(Layer::new(&LayerOptions::default(), &case.tensors()), "activation");
}

#[test]
fn views_that_cannot_be_written_are_refused() {
    let layer = Case::new(false).layer();
    let mut out = [7.0; D_FF * D_MODEL];
    refused(layer.read(&mut [TensorMut::strided(Role::UP_WEIGHT, &mut out, 0, &[D_FF, D_MODEL], &[0, 4]).unwrap()]), "stride");
    refused(layer.read(&mut [TensorMut::new(Role::UP_WEIGHT, &mut out, &[D_MODEL, D_FF]).unwrap()]), "shape");
    assert_eq!(out, [7.0; D_FF * D_MODEL]);
    layer.read(&mut []).unwrap();
}

#[test]
fn contexts_that_cannot_be_are_refused() {
    refused(Context::new(ContextOptions::new().threads(1025)), "threads is 1025");
}
