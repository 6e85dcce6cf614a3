//! A folder with model.safetensors and config.json, which is removed again.
use std::fs;
use std::path::PathBuf;

pub struct Checkpoint(pub PathBuf);

impl Checkpoint {
    /// A LLaMA of one layer in float32; its tensors by what their names end in.
    pub fn llama(name: &str, tensors: &[(&str, &[usize], &[f32])]) -> Self {
        Self::of_type("llama", name, tensors)
    }

    /// A model of one layer, of a model_type.
    pub fn of_type(model_type: &str, name: &str, tensors: &[(&str, &[usize], &[f32])]) -> Self {
        let folder = std::env::temp_dir().join(format!("libffn-rust-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (mut header, mut data) = (Vec::new(), Vec::<u8>::new());
        for (name, shape, numbers) in tensors {
            let first = data.len();
            data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            let offsets = [first, data.len()];
            header.push(format!(r#""model.layers.0.{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":{offsets:?}}}"#));
        }
        let header = format!("{{{}}}", header.join(","));
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
        fs::write(folder.join("model.safetensors"), file).unwrap();
        let config = format!(r#"{{"model_type":"{model_type}","hidden_act":"silu","rms_norm_eps":1e-5}}"#);
        fs::write(folder.join("config.json"), config).unwrap();
        Checkpoint(folder)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
