//! Published checkpoints, through libffn-io.
use std::borrow::Cow;
use std::ffi::{c_char, CString};
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use crate::checks::count;
use crate::error::{c_string, check_io, text};
use crate::{sys, Context, Error, Layer, LayerOptions, Result};

/// A checkpoint: a .safetensors file, a model.safetensors.index.json with its shards beside it, or a folder that holds one of the two. It never
/// changes, so that threads share it.
///
/// ```no_run
/// use libffn::Model;
/// # fn main() -> libffn::Result<()> {
/// let model = Model::open("model.safetensors")?;
/// for index in 0..model.info().layer_count() {
///     let found = model.layer(index)?;
///     println!("{}: {}, {} parameters", found.prefix(), found.family(), found.parameters());
///     let layer = found.create()?;
///     let x = vec![1.0; layer.d_model()];
///     let mut y = vec![0.0; layer.d_out()];
///     layer.forward(&x, &mut y)?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Model {
    raw: NonNull<sys::ffn_model_t>,
}

// SAFETY: a model never changes after it was opened, and belongs to no thread.
unsafe impl Send for Model {}
// SAFETY: likewise.
unsafe impl Sync for Model {}

/// How a model is opened.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    flags: u32,
    config: Option<CString>,
    family: Option<CString>,
}

impl ModelOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The path of a config.json. Default: config.json in the model's folder, if there is one.
    pub fn config(&mut self, path: impl AsRef<Path>) -> Result<&mut Self> {
        self.config = Some(c_path(path.as_ref())?);
        Ok(self)
    }

    /// The row of the family table (`"gpt2"`), for files that several rows fit. Default: recognised.
    pub fn family(&mut self, name: &str) -> Result<&mut Self> {
        self.family = Some(c_string("a name of a family", name.as_bytes())?);
        Ok(self)
    }

    /// Packs float32 weights straight from a mapping of the files.
    ///
    /// # Safety
    /// No one truncates or changes the files while the model is open: the process would get SIGBUS.
    pub unsafe fn map(&mut self) -> &mut Self {
        self.flags |= sys::FFN_MODEL_MAP;
        self
    }
}

impl Model {
    /// Opens a checkpoint. Headers and config.json are read only: time and memory do not depend on the weights' size. Succeeds where no layer
    /// is recognised.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &ModelOptions::new())
    }

    /// The same with options.
    pub fn open_with(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        let pointer = |string: &Option<CString>| string.as_ref().map_or(null(), |string| string.as_ptr());
        let mut given = sys::ffn_model_options_t {
            flags: options.flags,
            config: pointer(&options.config),
            family: pointer(&options.family),
            ..Default::default()
        };
        given.struct_size = size_of_val(&given) as u32;
        let mut raw = null_mut();
        // SAFETY: strings with an end that outlive the call, and a pointer to write to.
        check_io(unsafe { sys::ffn_model_open(path.as_ptr(), &given, &mut raw) })?;
        Ok(Model { raw: NonNull::new(raw).expect("a model that was opened") })
    }

    /// What it is.
    pub fn info(&self) -> ModelInfo<'_> {
        let mut raw = sys::ffn_model_info_t::default();
        raw.struct_size = size_of_val(&raw) as u32;
        // SAFETY: a live model, and a struct of the size that it says.
        let status = unsafe { sys::ffn_model_info(self.raw.as_ptr(), &mut raw) };
        assert_eq!(status, sys::FFN_OK, "a live model tells what it is");
        ModelInfo { raw, model: PhantomData }
    }

    /// Tensor 0 .. tensor_count - 1, sorted by name.
    pub fn tensor(&self, index: usize) -> Result<ModelTensor<'_>> {
        let mut raw = sys::ffn_model_tensor_t::default();
        raw.struct_size = size_of_val(&raw) as u32;
        // SAFETY: a live model, and a struct of the size that it says.
        check_io(unsafe { sys::ffn_model_tensor(self.raw.as_ptr(), count(index), &mut raw) })?;
        Ok(ModelTensor { raw, model: PhantomData })
    }

    /// The index of a tensor by its whole name.
    pub fn find(&self, name: &str) -> Result<usize> {
        let name = c_string("a name of a tensor", name.as_bytes())?;
        let mut index = 0;
        // SAFETY: a live model, a string with an end, and a number to write to.
        check_io(unsafe { sys::ffn_model_find(self.raw.as_ptr(), name.as_ptr(), &mut index) })?;
        Ok(index as usize)
    }

    /// Reads a tensor as float32, in the file's order. `out` has as many numbers as the tensor; what it holds after a failure is not told.
    pub fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let elements = self.tensor(index)?.elements();
        if i64::try_from(out.len()) != Ok(elements) {
            return Err(Error::invalid(format!("out has {} numbers, tensor {index} has {elements}", out.len())));
        }
        // SAFETY: a live model, and room for all elements.
        check_io(unsafe { sys::ffn_model_read(self.raw.as_ptr(), count(index), out.as_mut_ptr()) })
    }

    /// Layer 0 .. layer_count - 1, in the model's order. In a model without recognised layers the sentence lists the names that it has.
    pub fn layer(&self, index: usize) -> Result<ModelLayer<'_>> {
        let mut found = null();
        // SAFETY: a live model, and a pointer to write to.
        check_io(unsafe { sys::ffn_model_layer(self.raw.as_ptr(), count(index), &mut found) })?;
        // SAFETY: the description lives as long as the model.
        let raw = unsafe { *found };
        // SAFETY: so do the options.
        let mut options = unsafe { *raw.options };
        let moe = std::mem::replace(&mut options.moe, null()); // the model's: options may outlive it
        Ok(ModelLayer { raw, options: LayerOptions::from_raw(options), moe, model: self })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: opened by the library, and no call is using it: there is no reference.
        unsafe { sys::ffn_model_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Model").field(&self.info()).finish()
    }
}

/// What a model is.
#[derive(Clone, Copy)]
pub struct ModelInfo<'a> {
    raw: sys::ffn_model_info_t,
    model: PhantomData<&'a Model>,
}

impl<'a> ModelInfo<'a> {
    /// Tensors of the file or files.
    pub fn tensor_count(&self) -> usize {
        self.raw.tensor_count as usize
    }

    /// Feed-forward layers that were recognised.
    pub fn layer_count(&self) -> usize {
        self.raw.layer_count as usize
    }

    /// Elements of all floating-point tensors.
    pub fn parameters(&self) -> i64 {
        self.raw.parameters
    }

    /// Those that a token meets: without those of the experts that its layers leave out.
    pub fn active_parameters(&self) -> i64 {
        self.raw.active_parameters
    }

    /// Of the file or files.
    pub fn bytes(&self) -> u64 {
        self.raw.bytes
    }

    /// Of the layers, where some were recognised; of a model with layers of experts that of the first of these.
    pub fn family(&self) -> Option<Cow<'a, str>> {
        // SAFETY: a string that lives as long as the model.
        unsafe { optional(self.raw.family) }
    }

    /// config.json's.
    pub fn model_type(&self) -> Option<Cow<'a, str>> {
        // SAFETY: likewise.
        unsafe { optional(self.raw.model_type) }
    }
}

impl fmt::Debug for ModelInfo<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ModelInfo")
            .field("tensor_count", &self.tensor_count())
            .field("layer_count", &self.layer_count())
            .field("family", &self.family())
            .field("model_type", &self.model_type())
            .finish()
    }
}

/// A tensor as the file describes it.
#[derive(Clone, Copy)]
pub struct ModelTensor<'a> {
    raw: sys::ffn_model_tensor_t,
    model: PhantomData<&'a Model>,
}

impl<'a> ModelTensor<'a> {
    /// Its whole name.
    pub fn name(&self) -> Cow<'a, str> {
        // SAFETY: a string that lives as long as the model.
        unsafe { text(self.raw.name) }
    }

    /// As the file has it: `"F32"`, `"BF16"`, ...
    pub fn dtype(&self) -> Cow<'a, str> {
        // SAFETY: likewise.
        unsafe { text(self.raw.dtype) }
    }

    /// Its dimensions.
    pub fn shape(&self) -> &'a [i64] {
        if self.raw.ndim == 0 {
            return &[];
        }
        // SAFETY: ndim numbers that live as long as the model.
        unsafe { std::slice::from_raw_parts(self.raw.shape, self.raw.ndim as usize) }
    }

    /// How many numbers.
    pub fn elements(&self) -> i64 {
        self.raw.elements
    }

    /// In the file.
    pub fn bytes(&self) -> u64 {
        self.raw.bytes
    }
}

impl fmt::Debug for ModelTensor<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ModelTensor").field("name", &self.name()).field("dtype", &self.dtype()).field("shape", &self.shape()).finish()
    }
}

/// A feed-forward layer of a model: what it is, and what a [`Layer`] is to be made with.
#[derive(Clone)]
pub struct ModelLayer<'a> {
    raw: sys::ffn_model_layer_t, // its pointers are the model's
    options: LayerOptions,
    moe: *const sys::ffn_moe_options_t, // the model's too
    model: &'a Model,
}

impl<'a> ModelLayer<'a> {
    /// The row of the family table, such as `"llama"`.
    pub fn family(&self) -> Cow<'a, str> {
        // SAFETY: a string that lives as long as the model.
        unsafe { text(self.raw.family) }
    }

    /// What the names of its tensors have in common, such as `"model.layers.0."`.
    pub fn prefix(&self) -> Cow<'a, str> {
        // SAFETY: likewise.
        unsafe { text(self.raw.prefix) }
    }

    /// Of the up weight.
    pub fn dtype(&self) -> Cow<'a, str> {
        // SAFETY: likewise.
        unsafe { text(self.raw.dtype) }
    }

    /// Of this layer, norms included.
    pub fn parameters(&self) -> i64 {
        self.raw.parameters
    }

    /// Those that a token meets: all but those of the experts that it does not go to.
    pub fn active_parameters(&self) -> i64 {
        self.raw.active_parameters
    }

    /// The experts of a mixture, and how many of them a token goes to; of a dense layer `None`.
    pub fn experts(&self) -> Option<(usize, usize)> {
        // SAFETY: NULL, or options that live as long as the model.
        unsafe { self.moe.as_ref() }.map(|moe| (moe.experts as usize, moe.top_k as usize))
    }

    /// The configuration, to be changed before [`ModelLayer::create`]. Of a mixture of experts without what is said of the experts, which stays.
    pub fn options(&mut self) -> &mut LayerOptions {
        &mut self.options
    }

    /// Leaves out the residual, scales and the norms around the matrices: the feed-forward network alone.
    pub fn branch_only(&mut self, only: bool) -> &mut Self {
        self.raw.flags = if only { self.raw.flags | sys::FFN_MODEL_BRANCH } else { self.raw.flags & !sys::FFN_MODEL_BRANCH };
        self
    }

    /// Makes the layer. The weights are copied: the model may be closed.
    pub fn create(&self) -> Result<Layer> {
        self.create_raw(null_mut())
    }

    /// The same with the context's threads.
    pub fn create_in(&self, context: &mut Context) -> Result<Layer> {
        context.lend(|context| self.create_raw(context))
    }

    fn create_raw(&self, context: *mut sys::ffn_context_t) -> Result<Layer> {
        let mut options = self.options.raw();
        Layer::adopt(&self.options, |allocator, made| {
            options.allocator = allocator;
            options.moe = self.moe;
            let given = sys::ffn_model_layer_t { options: &options, ..self.raw };
            // SAFETY: a live model and its own description, with other options that outlive the call.
            check_io(unsafe { sys::ffn_model_layer_create(self.model.raw.as_ptr(), context, &given, made) })
        })
    }
}

impl fmt::Debug for ModelLayer<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ModelLayer").field("family", &self.family()).field("prefix", &self.prefix()).field("options", &self.options).finish()
    }
}

impl Layer {
    /// Layer `index` of the model at `path`.
    pub fn load(path: impl AsRef<Path>, index: usize) -> Result<Self> {
        Model::open(path)?.layer(index)?.create()
    }
}

fn c_path(path: &Path) -> Result<CString> {
    c_string("a path", path.as_os_str().as_bytes())
}

/// # Safety
/// As of [`text`], or NULL.
unsafe fn optional<'a>(string: *const c_char) -> Option<Cow<'a, str>> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { text(string) })
}
