//! Initialisation and optimisers against their formulas in float64.
use libffn::{adamw_step, adamw_step_in, clip_global_norm, clip_global_norm_in, sgd_step, sgd_step_in, weight_init};
use libffn::{AdamwOptions, Context, ContextOptions, Error, InitOptions, InitScheme, SgdOptions, Status};

use crate::reference::{bits, numbers};

const COUNT: usize = 300;

fn context() -> Context {
    Context::new(ContextOptions::new().threads(2)).unwrap()
}

fn exact(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&v| v.into()).collect()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64]) {
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - expected).abs() <= 2e-6, "[{i}] is {got}, must be {expected}");
    }
}

#[test]
fn schemes_have_their_spread_and_depend_on_seed_and_stream_alone() {
    let (fan_in, fan_out, layers) = (200usize, 300usize, 12usize);
    let (i, o, l) = (fan_in as f64, fan_out as f64, layers as f64);
    let bound = |bound: f64| bound / 3f64.sqrt(); // the standard deviation of U(bound)
    for (scheme, deviation) in [
        (InitScheme::XAVIER_UNIFORM, bound((6.0 / (i + o)).sqrt())),
        (InitScheme::XAVIER_NORMAL, (2.0 / (i + o)).sqrt()),
        (InitScheme::KAIMING_UNIFORM, bound((6.0 / i).sqrt())),
        (InitScheme::KAIMING_NORMAL, (2.0 / i).sqrt()),
        (InitScheme::LECUN_NORMAL, i.sqrt().recip()),
        (InitScheme::NORMAL, 0.02),
        (InitScheme::TRUNCATED_NORMAL, 0.02 * 0.8796),
        (InitScheme::TORCH_LINEAR, bound(i.sqrt().recip())),
        (InitScheme::T5, i.sqrt().recip()),
        (InitScheme::GPT2_SCALED, 0.02 / (2.0 * l).sqrt()),
        (InitScheme::NEOX_SMALL, (2.0 / (5.0 * i)).sqrt()),
        (InitScheme::NEOX_WANG, 2.0 / (l * o.sqrt())),
        (InitScheme::UNIFORM_UNIT_SCALING, bound((6.0 / (i + o)).sqrt())),
    ] {
        let fill = |seed, stream| {
            let mut values = vec![0.0; fan_in * fan_out];
            weight_init(&mut values, InitOptions::new(scheme).seed(seed, stream).fans(fan_in, fan_out).layers(layers)).map(|()| values).unwrap()
        };
        let values = fill(1, 2);
        let square = exact(&values).iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!((square.sqrt() / deviation - 1.0).abs() < 0.02, "{scheme:?}: {} of {deviation}", square.sqrt());
        assert_eq!(bits(&fill(1, 2)), bits(&values));
        assert_ne!(bits(&fill(1, 3)), bits(&values));
        assert_ne!(bits(&fill(2, 2)), bits(&values));
    }
    let mut values = vec![0.0; 60_000];
    weight_init(&mut values, InitOptions::new(InitScheme::NORMAL).gain(0.5).cutoff(2.0).keep_variance()).unwrap();
    let square = exact(&values).iter().map(|v| v * v).sum::<f64>() / 60_000.0;
    assert!((square.sqrt() / 0.5 - 1.0).abs() < 0.02 && values.iter().all(|v| v.abs() < 1.14));
}

#[test]
fn sgd_steps_by_its_formula() {
    for (momentum, nesterov, decay) in [(0.0f32, false, 0.0f32), (0.5, false, 0.25), (0.5, true, 0.25)] {
        let mut options = SgdOptions::new(0.125);
        options.momentum(momentum).weight_decay(decay);
        if nesterov {
            options.nesterov();
        }
        let (mut weight, mut velocity) = (numbers(60, COUNT, 1.0), vec![0.0; COUNT]);
        let (mut w, mut v) = (exact(&weight), vec![0.0f64; COUNT]);
        for step in 0..3 {
            let gradient = numbers(61 + step, COUNT, 1.0);
            for i in 0..COUNT {
                let g = f64::from(gradient[i]) + f64::from(decay) * w[i];
                v[i] = f64::from(momentum) * v[i] + g;
                w[i] -= 0.125 * if nesterov { g + f64::from(momentum) * v[i] } else { v[i] };
            }
            let velocity = (momentum > 0.0).then_some(&mut velocity[..]);
            if step == 1 {
                sgd_step_in(&mut context(), &options, &mut weight, &gradient, velocity).unwrap();
            } else {
                sgd_step(&options, &mut weight, &gradient, velocity).unwrap();
            }
        }
        assert_close(&weight, &w);
    }
}

#[test]
fn adamw_steps_by_its_formula() {
    let mut options = AdamwOptions::new(1.0);
    options.learning_rate(0.01).betas(0.75, 0.875).eps(1e-6).weight_decay(0.125);
    let (mut weight, mut first, mut second) = (numbers(70, COUNT, 1.0), vec![0.0; COUNT], vec![0.0; COUNT]);
    let (mut w, mut m, mut v) = (exact(&weight), vec![0.0f64; COUNT], vec![0.0f64; COUNT]);
    for step in 1..=5 {
        let gradient = numbers(70 + step as u64, COUNT, 1.0);
        for i in 0..COUNT {
            let g = f64::from(gradient[i]);
            m[i] = 0.75 * m[i] + 0.25 * g;
            v[i] = 0.875 * v[i] + 0.125 * g * g;
            let (m, v) = (m[i] / (1.0 - 0.75f64.powi(step)), v[i] / (1.0 - 0.875f64.powi(step)));
            w[i] -= 0.01 * (0.125 * w[i] + m / (v.sqrt() + 1e-6));
        }
        options.step(step.into());
        if step == 2 {
            adamw_step_in(&mut context(), &options, &mut weight, &gradient, &mut first, &mut second).unwrap();
        } else {
            adamw_step(&options, &mut weight, &gradient, &mut first, &mut second).unwrap();
        }
    }
    assert_close(&weight, &w);
    assert_close(&first, &m);
    assert_close(&second, &v);
}

#[test]
fn gradients_are_clipped_together() {
    let (a, b) = (numbers(80, COUNT, 1.0), numbers(81, 7, 1.0));
    let norm = exact(&a).iter().chain(&exact(&b)).map(|v| v * v).sum::<f64>().sqrt();
    let (mut clipped_a, mut clipped_b) = (a.clone(), b.clone());
    let measured = clip_global_norm(&mut [&mut clipped_a, &mut clipped_b, &mut []], f64::INFINITY).unwrap();
    assert!((measured / norm - 1.0).abs() < 1e-7);
    assert_eq!((&clipped_a, &clipped_b), (&a, &b));
    clip_global_norm_in(&mut context(), &mut [&mut clipped_a, &mut clipped_b], norm / 2.0).unwrap();
    for (got, given) in clipped_a.iter().chain(&clipped_b).zip(a.iter().chain(&b)) {
        assert!((got - given / 2.0).abs() <= 1e-6);
    }
    clipped_a[0] = f32::NAN;
    let before = clipped_b.clone();
    assert!(clip_global_norm(&mut [&mut clipped_a, &mut clipped_b], 1e-3).unwrap().is_nan());
    assert_eq!(clipped_b, before);
    assert_eq!(clip_global_norm(&mut [], 1.0).unwrap(), 0.0);
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.err().expect("refused");
    assert_eq!(error.status(), Status::INVALID, "{error}");
    assert!(error.message().contains(words), "\"{error}\" has not \"{words}\"");
}

#[test]
fn wrong_arguments_are_refused_and_nothing_is_written() {
    let (mut w, g, mut m, mut v) = ([7.0f32; 4], [1.0f32; 4], [7.0f32; 4], [7.0f32; 4]);
    let (sgd, adamw) = (SgdOptions::new(1.0), AdamwOptions::new(1.0));
    refused(sgd_step(&sgd, &mut w, &g[..3], None), "gradient has 3 numbers, must have 4, as weight has");
    refused(sgd_step(&sgd, &mut w, &g, Some(&mut v[..3])), "velocity has 3 numbers");
    refused(sgd_step(sgd.clone().momentum(0.5), &mut w, &g, None), "velocity");
    refused(sgd_step(sgd.clone().nesterov(), &mut w, &g, None), "NESTEROV");
    refused(sgd_step(&SgdOptions::new(-1.0), &mut w, &g, None), "learning_rate is -1");
    refused(sgd_step(sgd.clone().weight_decay(f32::NAN), &mut w, &g, None), "weight_decay is nan");
    refused(adamw_step(&adamw, &mut w, &g[..3], &mut m, &mut v), "gradient has 3 numbers");
    refused(adamw_step(&adamw, &mut w, &g, &mut m[..3], &mut v), "first has 3 numbers");
    refused(adamw_step(&adamw, &mut w, &g, &mut m, &mut v[..3]), "second has 3 numbers");
    refused(adamw_step(adamw.clone().step(0), &mut w, &g, &mut m, &mut v), "step is 0");
    refused(adamw_step(adamw.clone().betas(1.0, 0.5), &mut w, &g, &mut m, &mut v), "beta1 is 1");
    refused(adamw_step(adamw.clone().eps(-1.0), &mut w, &g, &mut m, &mut v), "eps is -1");
    refused(clip_global_norm(&mut [&mut w], 0.0), "max_norm is 0");
    let mut init = |words: &str, options: &InitOptions| refused(weight_init(&mut w, options), words);
    init("scheme is 77", &InitOptions::new(InitScheme::from_raw(77)));
    init("fan_in is 0", &InitOptions::new(InitScheme::TORCH_LINEAR));
    init("fan_out", InitOptions::new(InitScheme::XAVIER_NORMAL).fans(3, 0));
    init("layers is 0", &InitOptions::new(InitScheme::GPT2_SCALED));
    init("stream", InitOptions::new(InitScheme::NORMAL).seed(1, 1 << 32));
    init("gain is -1", InitOptions::new(InitScheme::NORMAL).gain(-1.0));
    init("cutoff", InitOptions::new(InitScheme::XAVIER_UNIFORM).fans(3, 3).cutoff(2.0));
    init("KEEP_VARIANCE", InitOptions::new(InitScheme::NORMAL).keep_variance());
    assert_eq!((w, m, v), ([7.0; 4], [7.0; 4], [7.0; 4]));
}
