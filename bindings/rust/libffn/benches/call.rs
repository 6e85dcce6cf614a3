//! What a call through this crate costs beside the C call: one token through a tiny layer, in turn, and the medians. `cargo bench`.
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use libffn::{sys, Activation, Context, ContextOptions, Layer, LayerOptions, Role, Run, Tensor};

const D_MODEL: usize = 64;
const D_FF: usize = 172;
const ROUNDS: usize = 2001;
const CALLS: usize = 100; // per round and contender

fn main() -> libffn::Result<()> {
    let weights: Vec<f32> = (0..D_FF * D_MODEL).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
    let tensors = [Tensor::new(Role::UP_WEIGHT, &weights, &[D_FF, D_MODEL])?, Tensor::new(Role::DOWN_WEIGHT, &weights, &[D_MODEL, D_FF])?];
    let layer = Layer::new(LayerOptions::new().activation(Activation::RELU), &tensors)?;
    let mut context = Context::new(ContextOptions::new().threads(1))?;
    let (x, mut y) = ([0.5f32; D_MODEL], [0f32; D_MODEL]);

    let c_call = |_: &mut Context, x: &[f32], y: &mut [f32]| {
        // SAFETY: a live layer and one row each.
        assert_eq!(unsafe { sys::ffn_layer_forward(layer.as_ptr(), null_mut(), 1, x.as_ptr(), 0, y.as_mut_ptr(), 0) }, sys::FFN_OK);
    };
    let forward = |_: &mut Context, x: &[f32], y: &mut [f32]| layer.forward(x, y).unwrap();
    let forward_in = |context: &mut Context, x: &[f32], y: &mut [f32]| layer.forward_in(context, x, y).unwrap();
    let run = |_: &mut Context, x: &[f32], y: &mut [f32]| layer.run(Run::new(x, y)).unwrap();
    type Call<'a> = &'a dyn Fn(&mut Context, &[f32], &mut [f32]);
    let contenders: [(&str, Call<'_>); 4] =
        [("ffn_layer_forward", &c_call), ("Layer::forward", &forward), ("Layer::forward_in", &forward_in), ("Layer::run", &run)];

    let mut nanoseconds = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, call), times) in contenders.iter().zip(&mut nanoseconds) {
            let start = Instant::now();
            for _ in 0..CALLS {
                call(&mut context, black_box(&x), black_box(&mut y));
            }
            times.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    println!(
        "{}\none token through {D_MODEL}-{D_FF}-{D_MODEL}, ns per call (median of {ROUNDS} interleaved rounds; quartiles)",
        libffn::build_info()
    );
    for ((name, _), times) in contenders.iter().zip(&mut nanoseconds) {
        times.sort_by(f64::total_cmp);
        println!("{name:<20} {:8.1}  ({:.1} to {:.1})", times[ROUNDS / 2], times[ROUNDS / 4], times[ROUNDS * 3 / 4]);
    }
    Ok(())
}
