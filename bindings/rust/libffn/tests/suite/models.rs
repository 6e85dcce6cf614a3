//! Layers of model files.
use std::fs;

use libffn::{Activation, Context, ContextOptions, Layer, Model, ModelOptions, Norm, NormSlot, Residual, Role, Status, Tensor};

use crate::checkpoint::Checkpoint;
use crate::reference::*;

struct Llama {
    folder: Checkpoint,
    gate: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
    norm: Vec<f32>,
}

fn llama(name: &str) -> Llama {
    let (gate, up, down) = (numbers(40, D_FF * D_MODEL, 0.4), numbers(41, D_FF * D_MODEL, 0.4), numbers(42, D_MODEL * D_FF, 0.4));
    let norm = numbers(43, D_MODEL, 1.5);
    let tensors: [(&str, &[usize], &[f32]); 4] = [
        ("mlp.gate_proj.weight", &[D_FF, D_MODEL], &gate),
        ("mlp.up_proj.weight", &[D_FF, D_MODEL], &up),
        ("mlp.down_proj.weight", &[D_MODEL, D_FF], &down),
        ("post_attention_layernorm.weight", &[D_MODEL], &norm),
    ];
    Llama { folder: Checkpoint::llama(name, &tensors), gate, up, down, norm }
}

impl Llama {
    fn by_hand(&self) -> Layer {
        let mut options = libffn::LayerOptions::new();
        options.activation(Activation::SILU).residual(Residual::INPUT).norm(NormSlot::IN, Norm::RMS).norm_eps(NormSlot::IN, 1e-5);
        let tensors = [
            Tensor::new(Role::GATE_WEIGHT, &self.gate, &[D_FF, D_MODEL]).unwrap(),
            Tensor::new(Role::UP_WEIGHT, &self.up, &[D_FF, D_MODEL]).unwrap(),
            Tensor::new(Role::DOWN_WEIGHT, &self.down, &[D_MODEL, D_FF]).unwrap(),
            Tensor::new(Role::NORM_IN_WEIGHT, &self.norm, &[D_MODEL]).unwrap(),
        ];
        Layer::new(&options, &tensors).unwrap()
    }
}

fn run(layer: &Layer) -> Vec<u32> {
    let mut y = vec![0.0; TOKENS * D_MODEL];
    layer.forward(&numbers(44, TOKENS * D_MODEL, 1.0), &mut y).unwrap();
    bits(&y)
}

#[test]
fn a_model_s_layer_is_the_one_made_by_hand() {
    let llama = llama("layer");
    let expected = run(&llama.by_hand());
    assert_eq!(run(&Layer::load(&llama.folder.0, 0).unwrap()), expected);

    let mut options = ModelOptions::new();
    options.family("llama").unwrap().config(llama.folder.0.join("config.json")).unwrap();
    // SAFETY: no one else knows the file.
    unsafe { options.map() };
    let model = Model::open_with(llama.folder.0.join("model.safetensors"), &options).unwrap();
    let mut context = Context::new(ContextOptions::new().threads(2)).unwrap();
    let layer = model.layer(0).unwrap().create_in(&mut context).unwrap();
    drop(model);
    assert_eq!(run(&layer), expected);
}

#[test]
fn a_model_tells_what_it_has() {
    let llama = llama("info");
    let model = Model::open(&llama.folder.0).unwrap();
    let info = model.info();
    assert_eq!((info.tensor_count(), info.layer_count()), (4, 1));
    assert_eq!((info.family().as_deref(), info.model_type().as_deref()), (Some("llama"), Some("llama")));
    assert_eq!(info.parameters() as usize, 3 * D_FF * D_MODEL + D_MODEL);
    assert!(info.bytes() > 4 * info.parameters() as u64);

    let index = model.find("model.layers.0.mlp.up_proj.weight").unwrap();
    let tensor = model.tensor(index).unwrap();
    assert_eq!((tensor.name().as_ref(), tensor.dtype().as_ref()), ("model.layers.0.mlp.up_proj.weight", "F32"));
    assert_eq!((tensor.shape(), tensor.elements() as usize), (&[D_FF as i64, D_MODEL as i64][..], D_FF * D_MODEL));
    assert_eq!(tensor.bytes() as usize, 4 * D_FF * D_MODEL);
    let mut up = vec![0.0; D_FF * D_MODEL];
    model.read(index, &mut up).unwrap();
    assert_eq!(up, llama.up);

    let found = model.layer(0).unwrap();
    assert_eq!((found.family().as_ref(), found.prefix().as_ref(), found.dtype().as_ref()), ("llama", "model.layers.0.", "F32"));
    assert_eq!(found.parameters(), info.parameters());
    assert!(format!("{model:?} {tensor:?} {found:?}").contains("up_proj"));
}

#[test]
fn a_description_can_be_changed() {
    let llama = llama("changed");
    let model = Model::open(&llama.folder.0).unwrap();
    let mut found = model.layer(0).unwrap();
    assert_eq!(found.options().get_activation(), Activation::SILU);
    found.options().activation(Activation::RELU);
    let layer = found.branch_only(true).create().unwrap();
    let info = layer.info();
    assert_eq!((info.activation(), info.residual(), info.norm(NormSlot::IN)), (Activation::RELU, Residual::NONE, Norm::NONE));
    let layer = found.branch_only(false).create().unwrap();
    assert_eq!(layer.info().residual(), Residual::INPUT);
    assert_eq!(run(&model.layer(0).unwrap().create().unwrap()), run(&llama.by_hand()), "the model itself is as before");
}

/// Two experts that are the same are the dense layer that each of them is, whatever the router says.
#[test]
fn a_layer_of_experts_is_made_from_a_model() {
    let llama = llama("dense");
    let router = numbers(45, 2 * D_MODEL, 1.0);
    let names: Vec<String> = (0..2).flat_map(|e| ["w1", "w3", "w2"].map(|w| format!("block_sparse_moe.experts.{e}.{w}.weight"))).collect();
    let mut tensors: Vec<(&str, &[usize], &[f32])> =
        vec![("block_sparse_moe.gate.weight", &[2, D_MODEL], &router), ("post_attention_layernorm.weight", &[D_MODEL], &llama.norm)];
    for experts in names.chunks(3) {
        tensors.push((&experts[0], &[D_FF, D_MODEL], &llama.gate));
        tensors.push((&experts[1], &[D_FF, D_MODEL], &llama.up));
        tensors.push((&experts[2], &[D_MODEL, D_FF], &llama.down));
    }
    let folder = Checkpoint::of_type("mixtral", "experts", &tensors);
    let model = Model::open(&folder.0).unwrap();
    let mut found = model.layer(0).unwrap();
    assert_eq!((found.family().as_ref(), found.experts()), ("mixtral", Some((2, 2))));
    assert_eq!((found.active_parameters(), model.info().active_parameters()), (found.parameters(), found.parameters()));
    assert_eq!(Model::open(&llama.folder.0).unwrap().layer(0).unwrap().experts(), None);

    let options = found.options().clone();
    let layer = found.create().unwrap();
    drop(model);
    let (x, mut y, mut expected) = (numbers(44, TOKENS * D_MODEL, 1.0), vec![0.0; TOKENS * D_MODEL], vec![0.0; TOKENS * D_MODEL]);
    layer.forward(&x, &mut y).unwrap();
    llama.by_hand().forward(&x, &mut expected).unwrap();
    assert!(y.iter().zip(&expected).all(|(y, expected)| (y - expected).abs() < 1e-5));

    // The options are a dense layer's once they have left the model.
    let tensors = [
        Tensor::new(Role::GATE_WEIGHT, &llama.gate, &[D_FF, D_MODEL]).unwrap(),
        Tensor::new(Role::UP_WEIGHT, &llama.up, &[D_FF, D_MODEL]).unwrap(),
        Tensor::new(Role::DOWN_WEIGHT, &llama.down, &[D_MODEL, D_FF]).unwrap(),
        Tensor::new(Role::NORM_IN_WEIGHT, &llama.norm, &[D_MODEL]).unwrap(),
    ];
    assert_eq!(run(&Layer::new(&options, &tensors).unwrap()), run(&llama.by_hand()));
}

#[test]
fn threads_share_a_model() {
    let llama = llama("shared");
    let expected = run(&llama.by_hand());
    let model = Model::open(&llama.folder.0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(run(&model.layer(0).unwrap().create().unwrap()), expected));
        }
    });
}

#[test]
fn faults_of_files_have_statuses_of_their_own() {
    let llama = llama("faults");
    let status = |outcome: libffn::Result<Layer>, words: &str| {
        let error = outcome.unwrap_err();
        assert!(error.message().contains(words), "{error}");
        error.status()
    };
    assert_eq!(status(Layer::load(llama.folder.0.join("absent.safetensors"), 0), "absent"), Status::FILE);
    assert_eq!(status(Layer::load(&llama.folder.0, 1), "1"), Status::INVALID);
    assert_eq!(status(Layer::load(&llama.folder.0, usize::MAX), "must be 0 to 0"), Status::INVALID);
    assert_eq!(status(Layer::load("a\0b", 0), "NUL"), Status::INVALID);

    let model = Model::open(&llama.folder.0).unwrap();
    let unknown = model.find("model.layers.0.mlp.up_proj.weigh").unwrap_err();
    assert_eq!(unknown.status(), Status::UNKNOWN);
    assert!(format!("{unknown:?}").starts_with("Status::UNKNOWN: "), "{unknown:?}");
    assert_eq!(model.tensor(4).unwrap_err().status(), Status::INVALID);
    let mut short = [7.0; 3];
    assert!(model.read(0, &mut short).unwrap_err().message().contains("out has 3 numbers"));
    assert_eq!(short, [7.0; 3]);

    fs::write(llama.folder.0.join("model.safetensors"), b"\x08\0\0\0\0\0\0\0not json").unwrap();
    assert_eq!(status(Layer::load(&llama.folder.0, 0), "model.safetensors"), Status::FORMAT);
}
