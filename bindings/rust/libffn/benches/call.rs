//! What a call through this crate costs beside the C call, on one token through a tiny layer: `cargo bench --bench call`.
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use libffn::{sys, Activation, Context, ContextOptions, Layer, LayerOptions, Role, Run, Tensor};

const D_MODEL: usize = 64;
const D_FF: usize = 172;
const ROUNDS: usize = 2001;
const CALLS: usize = 100; // in each round of each contender

/// The number that a share of the sorted numbers is below.
fn percentile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(share * (sorted.len() - 1) as f64 + 0.5) as usize]
}

fn main() -> libffn::Result<()> {
    let weights: Vec<f32> = (0..D_FF * D_MODEL).map(|i| (i % 17) as f32 / 170.0 - 0.05).collect();
    let tensors = [Tensor::new(Role::UP_WEIGHT, &weights, &[D_FF, D_MODEL])?, Tensor::new(Role::DOWN_WEIGHT, &weights, &[D_MODEL, D_FF])?];
    let layer = Layer::new(LayerOptions::new().activation(Activation::RELU), &tensors)?;
    let mut context = Context::new(ContextOptions::new().threads(1))?;
    let (x, mut y) = ([0.5f32; D_MODEL], [0f32; D_MODEL]);

    let c = |_: &mut Context, x: &[f32], y: &mut [f32]| {
        // SAFETY: a live layer and one row each.
        let status = unsafe { sys::ffn_layer_forward(layer.as_ptr(), null_mut(), 1, x.as_ptr(), 0, y.as_mut_ptr(), 0) };
        assert_eq!(status, sys::FFN_OK);
    };
    let forward = |_: &mut Context, x: &[f32], y: &mut [f32]| layer.forward(x, y).unwrap();
    let run = |_: &mut Context, x: &[f32], y: &mut [f32]| layer.run(Run::new(x, y)).unwrap();
    let forward_in = |context: &mut Context, x: &[f32], y: &mut [f32]| layer.forward_in(context, x, y).unwrap();
    let c_run = |_: &mut Context, x: &[f32], y: &mut [f32]| {
        let given = sys::ffn_run_t {
            struct_size: std::mem::size_of::<sys::ffn_run_t>() as u32,
            batch: 1,
            length: 1,
            x: x.as_ptr().cast(),
            y: y.as_mut_ptr().cast(),
            ..Default::default()
        };
        // SAFETY: likewise.
        assert_eq!(unsafe { sys::ffn_layer_run(layer.as_ptr(), null_mut(), &given) }, sys::FFN_OK);
    };
    // what a context adds is C's: the calls with one are beside ffn_layer_forward too
    type Call<'a> = &'a dyn Fn(&mut Context, &[f32], &mut [f32]);
    let contenders: [(&str, Call<'_>, usize); 5] = [
        ("ffn_layer_forward", &c, 0),
        ("Layer::forward", &forward, 0),
        ("Layer::forward_in", &forward_in, 0),
        ("ffn_layer_run", &c_run, 3),
        ("Layer::run", &run, 3),
    ];

    let mut nanoseconds = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, call, _), times) in contenders.iter().zip(&mut nanoseconds) {
            let start = Instant::now();
            for _ in 0..CALLS {
                call(&mut context, black_box(&x), black_box(&mut y));
            }
            times.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    println!(
        "{}\none token through {D_MODEL}-{D_FF}-{D_MODEL}, ns a call (median of {ROUNDS} interleaved rounds; 10th and 90th percentile), \
         and the median ratio to C in the same round",
        libffn::build_info()
    );
    for ((name, _, beside), times) in contenders.iter().zip(&nanoseconds) {
        let ratios: Vec<f64> = times.iter().zip(&nanoseconds[*beside]).map(|(time, c)| time / c).collect();
        let [low, median, high] = [0.1, 0.5, 0.9].map(|share| percentile(times, share));
        println!("{name:<20} {median:8.1}  ({low:.1} to {high:.1})  {:.3}", percentile(&ratios, 0.5));
    }
    Ok(())
}
