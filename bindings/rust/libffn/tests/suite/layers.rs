//! Layers: made, run, shared, read back, told.
use libffn::{gated_d_ff, Activation, Engine, Isa, Layer, LayerFlags, LayerOptions, Norm, NormSlot, Residual, Role, Status, Tensor, TensorMut};

use crate::reference::*;

#[test]
fn layers_match_the_formula_at_every_isa_level() {
    for gated in [false, true] {
        let case = Case::new(gated);
        for level in LEVELS {
            let layer = Layer::new(Case::options().max_isa(level), &case.tensors()).unwrap();
            assert!(layer.info().isa() >= Isa::SCALAR && layer.info().isa() <= level, "{:?} of {level:?}", layer.info().isa());
            let mut y = vec![f32::NAN; TOKENS * D_MODEL];
            layer.forward(&case.x, &mut y).unwrap();
            assert_close(&y, &case.y());
        }
    }
}

#[test]
fn a_layer_obeys_the_level_in_the_environment() {
    let level = Case::new(false).layer().info().isa();
    match std::env::var("FFN_MAX_ISA").as_deref() {
        Ok("scalar") => assert_eq!(level, Isa::SCALAR),
        Ok("avx2") => assert!(level <= Isa::AVX2),
        _ => assert!(level >= Isa::SCALAR),
    }
}

#[test]
fn a_layer_outlives_the_arrays_and_moves_between_threads() {
    let (layer, x, y) = {
        let case = Case::new(true);
        (case.layer(), case.x.clone(), case.y())
    };
    let got = std::thread::spawn(move || {
        let mut got = vec![0.0; TOKENS * D_MODEL];
        layer.forward(&x, &mut got).map(|()| got)
    });
    assert_close(&got.join().unwrap().unwrap(), &y);
}

#[test]
fn threads_share_a_layer() {
    let case = Case::new(true);
    let layer = case.layer();
    let mut alone = vec![0.0; TOKENS * D_MODEL];
    layer.forward(&case.x, &mut alone).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut y = vec![0.0; TOKENS * D_MODEL];
                    layer.forward(&case.x, &mut y).unwrap();
                    assert_eq!(bits(&y), bits(&alone));
                }
            });
        }
    });
}

#[test]
fn weights_of_any_strides_make_the_same_layer() {
    let case = Case::new(true);
    let gate = case.gate.as_ref().unwrap();
    let mut plain = vec![0.0; TOKENS * D_MODEL];
    case.layer().forward(&case.x, &mut plain).unwrap();

    let row = 4 * D_MODEL as isize;
    let shape = [D_FF, D_MODEL];
    let rows = |weight: &[f32]| weight.chunks(D_MODEL).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let transposed: Vec<f32> = (0..D_MODEL).flat_map(|column| rows(&case.up).into_iter().map(move |row| row[column])).collect();
    let reversed: Vec<f32> = rows(&case.up).into_iter().rev().flatten().collect();
    let interleaved: Vec<f32> = rows(gate).into_iter().zip(rows(&case.up)).flat_map(|(gate, up)| [gate, up].concat()).collect();
    let fused = [gate.clone(), case.up.clone()].concat();

    let up = [
        Tensor::strided(Role::UP_WEIGHT, &transposed, 0, &shape, &[4, 4 * D_FF as isize]),
        Tensor::strided(Role::UP_WEIGHT, &reversed, (D_FF - 1) * D_MODEL, &shape, &[-row, 4]),
        Tensor::strided(Role::UP_WEIGHT, &interleaved, D_MODEL, &shape, &[2 * row, 4]),
        Tensor::strided(Role::UP_WEIGHT, &fused, D_FF * D_MODEL, &shape, &[]),
    ];
    for up in up {
        let mut tensors = case.tensors();
        tensors[0] = up.unwrap();
        let layer = Layer::new(&Case::options(), &tensors).unwrap();
        let mut y = vec![0.0; TOKENS * D_MODEL];
        layer.forward(&case.x, &mut y).unwrap();
        assert_eq!(bits(&y), bits(&plain));
    }
}

#[test]
fn weights_come_back_into_views_of_any_strides() {
    let case = Case::new(true);
    let layer = case.layer();
    let (mut up, mut down, mut bias) = (vec![0.0; D_FF * D_MODEL], vec![7.0; D_FF * (D_MODEL + 1)], vec![0.0; D_MODEL]);
    let transposed = [4, 4 * (D_MODEL + 1) as isize];
    layer
        .read(&mut [
            TensorMut::new(Role::UP_WEIGHT, &mut up, &[D_FF, D_MODEL]).unwrap(),
            TensorMut::strided(Role::DOWN_WEIGHT, &mut down, 0, &[D_MODEL, D_FF], &transposed).unwrap(),
            TensorMut::new(Role::DOWN_BIAS, &mut bias, &[D_MODEL]).unwrap(),
        ])
        .unwrap();
    assert_eq!(up, case.up);
    assert_eq!(bias, case.down_bias);
    for (column, stored) in down.chunks(D_MODEL + 1).enumerate() {
        for (row, &got) in stored[..D_MODEL].iter().enumerate() {
            assert_eq!(got, case.down[row * D_FF + column]);
        }
        assert_eq!(stored[D_MODEL], 7.0, "padding");
    }

    let mut wrong = vec![7.0; D_FF];
    let error = layer.read(&mut [TensorMut::new(Role::GATE_BIAS, &mut wrong, &[D_FF]).unwrap()]).unwrap_err();
    assert_eq!(error.status(), Status::INVALID);
    assert_eq!(wrong, [7.0; D_FF]);
}

#[test]
fn a_layer_tells_what_it_is() {
    let case = Case::new(true);
    let layer = case.layer();
    let info = layer.info();
    assert_eq!((info.d_model(), info.d_ff(), info.d_out()), (D_MODEL, D_FF, D_MODEL));
    assert_eq!((layer.d_model(), layer.d_out()), (D_MODEL, D_MODEL));
    assert!(info.gated());
    assert_eq!((info.activation(), info.residual()), (Activation::SILU, Residual::INPUT));
    assert_eq!([NormSlot::IN, NormSlot::MID, NormSlot::OUT].map(|slot| info.norm(slot)), [Norm::LAYER, Norm::NONE, Norm::NONE]);
    assert_ne!(info.engine(), Engine::AUTO);
    assert_eq!(info.parameters() as usize, 3 * D_MODEL * D_FF + D_FF + 2 * D_MODEL);
    assert_eq!(info.parameters_of(Role::GATE_WEIGHT) as usize, D_MODEL * D_FF);
    assert_eq!(info.parameters_of(Role::GATE_BIAS), 0);
    assert!(info.bytes() >= 4 * info.parameters() as u64);
    assert!(format!("{layer:?}").contains("Activation::SILU"), "{layer:?}");
}

/// Each option is given a value that is refused by its name: so it arrives where it is meant to.
#[test]
fn every_option_reaches_its_field() {
    type Set = fn(&mut LayerOptions) -> &mut LayerOptions;
    let refused: &[(&str, Set)] = &[
        ("d_model", |o| o.d_model(D_MODEL + 1)),
        ("d_ff", |o| o.d_ff(D_FF + 1)),
        ("d_out", |o| o.d_out(usize::MAX)),
        ("activation", |o| o.activation(Activation::from_raw(77))),
        ("activation", |o| o.activation(Activation::NONE)),
        ("residual", |o| o.residual(Residual::from_raw(77))),
        ("alpha", |o| o.alpha(0.5)),
        ("beta", |o| o.beta(0.5)),
        ("gate_max", |o| o.gate_max(1.0)),
        ("up_limit", |o| o.up_limit(1.0)),
        ("up_offset", |o| o.up_offset(1.0)),
        ("engine", |o| o.engine(Engine::from_raw(77))),
        ("max_isa", |o| o.max_isa(Isa::from_raw(77))),
        ("norm", |o| o.norm(NormSlot::OUT, Norm::from_raw(77))),
        ("norm_eps", |o| o.norm_eps(NormSlot::OUT, 1.0)),
        ("norm_offset", |o| o.norm_offset(NormSlot::OUT, 1.0)),
        ("TANH_BRANCH_SCALE", |o| o.flags(LayerFlags::TANH_BRANCH_SCALE)),
        ("TANH_RESIDUAL_SCALE", |o| o.flags(LayerFlags::TANH_RESIDUAL_SCALE)),
    ];
    let case = Case::new(false);
    for (name, set) in refused {
        let mut options = Case::options();
        set(&mut options);
        let error = Layer::new(&options, &case.tensors()).unwrap_err();
        assert_eq!(error.status(), Status::INVALID, "{name}");
        assert!(error.message().contains(name), "{name}: {error}");
    }
}

#[test]
fn activations_have_the_library_s_names() {
    for number in 1..100 {
        let activation = Activation::from_raw(number);
        let name = activation.to_string();
        if name == "none" {
            assert!(number > 19);
            continue;
        }
        assert_eq!(name.parse::<Activation>().unwrap(), activation);
        assert_eq!(format!("{activation:?}"), format!("Activation::{}", name.to_uppercase()));
    }
    assert!("gelu\0".parse::<Activation>().unwrap_err().message().contains("NUL at byte 4"));
}

#[test]
fn the_library_says_what_it_is() {
    assert_eq!(gated_d_ff(3072, 1).unwrap(), 2048);
    assert_eq!(gated_d_ff(usize::MAX, 1).unwrap_err().status(), Status::INVALID);
    let [major, minor, patch] = [libffn::version() >> 16, libffn::version() >> 8 & 255, libffn::version() & 255];
    assert_eq!(libffn::version_string(), format!("{major}.{minor}.{patch}"));
    assert!(libffn::build_info().contains(&libffn::version_string()));
    assert_eq!(libffn::abi_version(), 0);
}
