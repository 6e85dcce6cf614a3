//! A layer in float64, written from the formula alone, and what the tests share.
use libffn::{Activation, Isa, Layer, LayerOptions, Norm, NormSlot, Residual, Role, Tensor};

pub const D_MODEL: usize = 24;
pub const D_FF: usize = 40;
pub const TOKENS: usize = 7;

/// Numbers in (-scale, scale) that look random.
pub fn numbers(seed: u64, count: usize, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        scale * ((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Silu, LayerNorm before, the input added; with or without a gate.
pub struct Case {
    pub up: Vec<f32>,
    pub up_bias: Vec<f32>,
    pub gate: Option<Vec<f32>>,
    pub down: Vec<f32>,
    pub down_bias: Vec<f32>,
    pub norm_weight: Vec<f32>,
    pub x: Vec<f32>,
}

impl Case {
    pub fn new(gated: bool) -> Self {
        Case {
            up: numbers(1, D_FF * D_MODEL, 0.4),
            up_bias: numbers(2, D_FF, 0.4),
            gate: gated.then(|| numbers(3, D_FF * D_MODEL, 0.4)),
            down: numbers(4, D_MODEL * D_FF, 0.4),
            down_bias: numbers(5, D_MODEL, 0.4),
            norm_weight: numbers(6, D_MODEL, 1.5),
            x: numbers(7, TOKENS * D_MODEL, 2.0),
        }
    }

    pub fn options() -> LayerOptions {
        let mut options = LayerOptions::new();
        options.activation(Activation::SILU).residual(Residual::INPUT).norm(NormSlot::IN, Norm::LAYER).norm_eps(NormSlot::IN, 1e-3);
        options
    }

    pub fn tensors(&self) -> Vec<Tensor<'_>> {
        let mut tensors = vec![
            Tensor::new(Role::UP_WEIGHT, &self.up, &[D_FF, D_MODEL]).unwrap(),
            Tensor::new(Role::UP_BIAS, &self.up_bias, &[D_FF]).unwrap(),
            Tensor::new(Role::DOWN_WEIGHT, &self.down, &[D_MODEL, D_FF]).unwrap(),
            Tensor::new(Role::DOWN_BIAS, &self.down_bias, &[D_MODEL]).unwrap(),
            Tensor::new(Role::NORM_IN_WEIGHT, &self.norm_weight, &[D_MODEL]).unwrap(),
        ];
        if let Some(gate) = &self.gate {
            tensors.push(Tensor::new(Role::GATE_WEIGHT, gate, &[D_FF, D_MODEL]).unwrap());
        }
        tensors
    }

    pub fn layer(&self) -> Layer {
        Layer::new(&Self::options(), &self.tensors()).unwrap()
    }

    /// W_down act(...) + b_down on one row, without the residual.
    pub fn branch(&self, x: &[f32]) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let normed: Vec<f64> =
            x.iter().zip(&self.norm_weight).map(|(v, &w)| (v - mean) / (variance + 1e-3f32 as f64).sqrt() * f64::from(w)).collect();
        let linear = |weight: &[f32], row: usize, x: &[f64]| -> f64 { weight[row * x.len()..].iter().zip(x).map(|(&w, v)| f64::from(w) * v).sum() };
        let silu = |v: f64| v / (1.0 + (-v).exp());
        let hidden: Vec<f64> = (0..D_FF)
            .map(|row| {
                let up = linear(&self.up, row, &normed) + f64::from(self.up_bias[row]);
                self.gate.as_ref().map_or_else(|| silu(up), |gate| silu(linear(gate, row, &normed)) * up)
            })
            .collect();
        (0..D_MODEL).map(|row| linear(&self.down, row, &hidden) + f64::from(self.down_bias[row])).collect()
    }

    /// The whole layer with the residual given.
    pub fn expected(&self, x: &[f32], residual: &[f32]) -> Vec<f64> {
        let rows = x.chunks(D_MODEL).zip(residual.chunks(D_MODEL));
        rows.flat_map(|(x, residual)| self.branch(x).into_iter().zip(residual).map(|(f, &r)| f + f64::from(r)).collect::<Vec<_>>()).collect()
    }

    pub fn y(&self) -> Vec<f64> {
        self.expected(&self.x, &self.x)
    }
}

/// Within 2e-6 of the largest value expected.
#[track_caller]
pub fn assert_close(got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0.0f64, |largest, v| largest.max(v.abs()));
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - expected).abs() <= 2e-6 * largest, "[{i}] is {got}, must be {expected}");
    }
}

pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// The levels that a layer can be told to stay below; the CPU and `FFN_MAX_ISA` may lower them further.
pub const LEVELS: [Isa; 3] = [Isa::SCALAR, Isa::AVX2, Isa::AVX512];
