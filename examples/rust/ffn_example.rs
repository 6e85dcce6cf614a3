//! A transformer's feed-forward layer, 512 -> 2048 -> 512 with GELU, a LayerNorm before it and a residual around it, on three tokens.
//!     cargo run --example ffn_example      (in bindings/rust)
use libffn::{Activation, Layer, LayerOptions, Norm, NormSlot, Residual, Role, Tensor};

const D_MODEL: usize = 512;
const D_FF: usize = 2048;
const TOKENS: usize = 3;

/// Small numbers that look random, the same on every machine.
fn make(count: usize, scale: f32) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        scale * ((state >> 8) as f32 / 8388608.0 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> libffn::Result<()> {
    let (up, down) = (make(D_FF * D_MODEL, 0.05), make(D_MODEL * D_FF, 0.05));
    let tensors = [
        Tensor::new(Role::UP_WEIGHT, &up, &[D_FF, D_MODEL])?,
        Tensor::new(Role::DOWN_WEIGHT, &down, &[D_MODEL, D_FF])?,
    ];
    let mut options = LayerOptions::new();
    options
        .activation(Activation::GELU)
        .residual(Residual::INPUT)
        .norm(NormSlot::IN, Norm::LAYER);
    let layer = Layer::new(&options, &tensors)?;

    let x = make(TOKENS * D_MODEL, 1.0);
    let mut y = vec![0.0; TOKENS * D_MODEL];
    layer.forward(&x, &mut y)?;

    let sum: f64 = y.iter().map(|&v| f64::from(v).abs()).sum();
    println!("{TOKENS} tokens through {D_MODEL}-{D_FF}-{D_MODEL}, sum of |y|: {sum:.3}");
    Ok(())
}
