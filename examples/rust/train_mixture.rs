//! A mixture of 4 experts, 2 of them for each token, learns a function that has two cases, with Switch's load-balancing loss on its router.
//! docs/training.md shows the loop; examples/c and examples/cpp have the same program.
use libffn::moe::{self, Balance, Dispatch, DispatchGradients, Mixture};
use libffn::{
    adamw_step, weight_init, Activation, AdamwOptions, Backward, InitOptions, InitScheme, Layer,
    LayerFlags, LayerOptions, Role, Run, Tape, TapeOptions, Tensor, TensorMut,
};

const D_MODEL: usize = 8;
const D_FF: usize = 16;
const EXPERTS: usize = 4;
const TOP_K: usize = 2;
const TOKENS: usize = 256;
const STEPS: i64 = 300;

/// A tensor, its gradient, and what AdamW keeps of it.
struct Parameter {
    role: Role,
    shape: Vec<usize>,
    value: Vec<f32>,
    gradient: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
}

impl Parameter {
    fn new(
        role: Role,
        shape: &[usize],
        stream: u64,
        scheme: InitScheme,
        fan_in: usize,
    ) -> libffn::Result<Self> {
        let count = shape.iter().product();
        let [mut value, gradient, first, second] = [(); 4].map(|()| vec![0.0; count]);
        weight_init(
            &mut value,
            InitOptions::new(scheme).seed(1, stream).fans(fan_in, 0),
        )?;
        Ok(Parameter {
            role,
            shape: shape.to_vec(),
            value,
            gradient,
            first,
            second,
        })
    }
}

fn views(parameters: &[Parameter]) -> libffn::Result<Vec<Tensor<'_>>> {
    parameters
        .iter()
        .map(|one| Tensor::new(one.role, &one.value, &one.shape))
        .collect()
}

fn gradient_views(parameters: &mut [Parameter]) -> libffn::Result<Vec<TensorMut<'_>>> {
    parameters
        .iter_mut()
        .map(|one| TensorMut::new(one.role, &mut one.gradient, &one.shape))
        .collect()
}

fn main() -> libffn::Result<()> {
    let mut parameters = [
        Parameter::new(
            Role::ROUTER_WEIGHT,
            &[EXPERTS, D_MODEL],
            0,
            InitScheme::LECUN_NORMAL,
            D_MODEL,
        )?,
        Parameter::new(
            Role::UP_WEIGHT,
            &[EXPERTS, D_FF, D_MODEL],
            1,
            InitScheme::KAIMING_NORMAL,
            D_MODEL,
        )?,
        Parameter::new(
            Role::DOWN_WEIGHT,
            &[EXPERTS, D_MODEL, D_FF],
            2,
            InitScheme::LECUN_NORMAL,
            D_FF,
        )?,
    ];
    let mut x = vec![0.0; TOKENS * D_MODEL];
    weight_init(
        &mut x,
        InitOptions::new(InitScheme::NORMAL).seed(1, 3).gain(1.0),
    )?;
    let next = |row: &[f32], i: usize| row[0].signum() * row[(i + 1) % D_MODEL]; // the next number of the row, or its negative
    let target: Vec<f32> = x
        .chunks(D_MODEL)
        .flat_map(|row| (0..D_MODEL).map(move |i| next(row, i)))
        .collect();
    let (mut y, mut d_y) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let (mut scores, mut counts) = (vec![0.0; TOKENS * EXPERTS], [0; EXPERTS]);

    let mut options = LayerOptions::new();
    options
        .activation(Activation::GELU)
        .flags(LayerFlags::TRAINABLE)
        .moe(&Mixture::new(TOP_K));
    let mut layer = Layer::new(&options, &views(&parameters)?)?;
    let mut tape = Tape::new(&TapeOptions::new())?;
    let mut adamw = AdamwOptions::new(1e-2);
    for step in 1..=STEPS {
        let told = Dispatch::new().scores(&mut scores).counts(&mut counts);
        let mut recorded = layer.record(&mut tape, Run::new(&x, &mut y).moe(told))?;
        let mut error = 0.0;
        for ((d, y), target) in d_y.iter_mut().zip(&y).zip(&target) {
            error += f64::from(y - target).powi(2) / x.len() as f64;
            *d = 2.0 * (y - target) / x.len() as f32;
        }

        let mut d_scores = vec![0.0; scores.len()]; // losses add to it
        let balance = Balance::new(EXPERTS, TOP_K, &scores, &counts)?
            .coefficient(0.01)
            .gradient(&mut d_scores);
        let balance_loss = moe::loss_switch(balance)?;
        let losses = DispatchGradients::new().d_scores(&d_scores);
        let mut gradients = gradient_views(&mut parameters)?;
        recorded.backward(Backward::new(&d_y).moe(losses), &mut gradients)?;
        for one in &mut parameters {
            adamw_step(
                adamw.step(step),
                &mut one.value,
                &one.gradient,
                &mut one.first,
                &mut one.second,
            )?;
        }
        layer.update(&views(&parameters)?)?;
        if step == 1 || step % 100 == 0 {
            let [a, b, c, d] = counts;
            println!("step {step:3}: error {error:.3}, balance {balance_loss:.4}, tokens of the experts {a} {b} {c} {d}");
        }
    }
    Ok(())
}
