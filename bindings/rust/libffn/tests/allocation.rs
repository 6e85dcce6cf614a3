//! Every allocation that the C libraries make fails once, through every function of this crate that may need memory: each time the status says
//! so, nothing is lost, and the next call is right.
//!
//! The C library's functions are replaced by those below, which fail when they are told to. Rust's own memory comes from glibc directly.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libffn::{
    Activation, Backward, Context, ContextOptions, Layer, LayerFlags, LayerOptions, Result, Role, Run, SgdOptions, Status, Tape, TapeOptions,
};
use libffn::{Tensor, TensorMut};

extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
    fn __errno_location() -> *mut c_int;
}

thread_local! {
    /// Allocations of this thread that go well before one fails; negative: none fails.
    static SPARE: Cell<i64> = const { Cell::new(-1) };
}

const ENOMEM: c_int = 12;

/// Whether this allocation is the one to fail.
fn fails() -> bool {
    let left = SPARE.with(|spare| spare.replace(spare.get().max(0) - 1));
    if left == 0 {
        // SAFETY: this thread's errno.
        unsafe { *__errno_location() = ENOMEM };
    }
    left == 0
}

struct Glibc;

// SAFETY: glibc's functions, which may be called from any thread.
unsafe impl GlobalAlloc for Glibc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise: the layout is not empty.
        unsafe { __libc_memalign(layout.align(), layout.size()) }.cast()
    }
    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from alloc.
        unsafe { __libc_free(memory.cast()) }
    }
}

#[global_allocator]
static GLIBC: Glibc = Glibc;

#[no_mangle]
extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size is allowed, here and below.
    if fails() {
        null_mut()
    } else {
        unsafe { __libc_malloc(size) }
    }
}
#[no_mangle]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: as in malloc.
    if fails() {
        null_mut()
    } else {
        unsafe { __libc_calloc(count, size) }
    }
}
#[no_mangle]
unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise: glibc's memory, as all is.
    if fails() {
        null_mut()
    } else {
        unsafe { __libc_realloc(memory, size) }
    }
}
#[no_mangle]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: as in malloc.
    if fails() {
        null_mut()
    } else {
        unsafe { __libc_memalign(alignment, size) }
    }
}
#[no_mangle]
unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if fails() {
        return ENOMEM;
    }
    // SAFETY: the caller's promise: a pointer to write to.
    unsafe { *memory = __libc_memalign(alignment, size) };
    0
}

/// Calls with the n-th allocation failing, for n = 0, 1, ... until none fails: how many did, and what came of it.
#[track_caller]
fn each_fails<T>(mut call: impl FnMut() -> Result<T>) -> (i64, T) {
    for n in 0.. {
        SPARE.with(|spare| spare.set(n));
        let outcome = call();
        let reached = SPARE.with(|spare| spare.replace(-1)) < 0;
        match outcome {
            Ok(value) if !reached => return (n, value),
            Ok(_) => {} // what did not need the memory
            Err(error) => {
                assert!(reached, "{error}");
                assert_eq!(error.status(), Status::NO_MEMORY, "allocation {n}: {error}");
                assert!(!error.message().is_empty());
            }
        }
    }
    unreachable!()
}

const WIDTH: usize = 8;
const TOKENS: usize = 5;

fn tensors(weights: &[f32]) -> [Tensor<'_>; 2] {
    [Role::UP_WEIGHT, Role::DOWN_WEIGHT].map(|role| Tensor::new(role, weights, &[WIDTH, WIDTH]).unwrap())
}

fn identity() -> Vec<f32> {
    (0..WIDTH * WIDTH).map(|i| f32::from(u8::from(i % (WIDTH + 1) == 0))).collect()
}

#[test]
fn every_allocation_of_layers_and_contexts_may_fail() {
    let weights = identity();
    let mut options = LayerOptions::new();
    options.activation(Activation::RELU);
    let x = [3.0; TOKENS * WIDTH];

    let (count, mut context) = each_fails(|| Context::new(ContextOptions::new().threads(2)));
    assert!(count >= 2, "{count}: a context and its workers");
    let (count, _) = each_fails(|| Layer::new(&options, &tensors(&weights)));
    assert!(count >= 1, "{count}: a layer");
    let (count, layer) = each_fails(|| Layer::new_in(&mut context, &options, &tensors(&weights)));
    assert!(count >= 1, "{count}: a layer");

    let mut y = [0.0; TOKENS * WIDTH];
    let (count, ()) = each_fails(|| layer.run_in(&mut context, Run::new(&x, &mut y)));
    assert!(count >= 1, "{count}: scratch memory");
    assert_eq!(y, x);
    let (count, ()) = each_fails(|| context.reserve(&layer, 100));
    assert!(count >= 1, "{count}: more scratch memory");
    let (count, ()) = each_fails(|| layer.forward_in(&mut context, &x, &mut y));
    assert_eq!(count, 0, "reserved");

    let mut up = vec![0.0; WIDTH * WIDTH];
    let (count, ()) = each_fails(|| layer.read(&mut [TensorMut::new(Role::UP_WEIGHT, &mut up, &[WIDTH, WIDTH]).unwrap()]));
    assert_eq!((count, up), (0, weights), "reading takes none");

    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut y = [0.0; TOKENS * WIDTH];
            let (count, ()) = each_fails(|| layer.forward(&x, &mut y));
            assert!(count >= 2, "{count}: a new thread's context and scratch memory");
            assert_eq!(y, x);
        });
        scope.spawn(|| {
            let (count, _) = each_fails(libffn::thread_info);
            assert_eq!(count, 1, "a new thread's context");
        });
    });
}

#[test]
fn every_allocation_of_training_may_fail() {
    let weights = identity();
    let mut options = LayerOptions::new();
    options.activation(Activation::RELU).flags(LayerFlags::TRAINABLE);
    let mut layer = Layer::new(&options, &tensors(&weights)).unwrap();
    let (x, mut y, mut d_x) = ([3.0; TOKENS * WIDTH], [0.0; TOKENS * WIDTH], [0.0; TOKENS * WIDTH]);

    let (count, mut tape) = each_fails(|| Tape::new(&TapeOptions::new()));
    assert_eq!(count, 1, "a tape");
    let (count, ()) = each_fails(|| tape.reserve(&layer, 2));
    assert_eq!(count, 1, "a tape's memory");
    let mut context = Context::new(ContextOptions::new().threads(1)).unwrap();
    let (count, ()) = each_fails(|| layer.record_in(&mut context, &mut tape, Run::new(&x, &mut y)).map(|_| ()));
    assert!(count >= 1, "{count}: a larger tape, scratch memory");
    let mut recorded = layer.record_in(&mut context, &mut tape, Run::new(&x, &mut y)).unwrap();
    let (_, ()) = each_fails(|| recorded.backward_in(&mut context, Backward::new(&y).d_x(&mut d_x), &mut []));
    assert_eq!((y, d_x), (x, x));
    let (count, ()) = each_fails(|| layer.update_in(&mut context, &tensors(&weights)));
    assert_eq!(count, 0, "an update takes none");

    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut weight = [1.0; WIDTH];
            let (count, ()) = each_fails(|| libffn::sgd_step(&SgdOptions::new(0.0), &mut weight, &[1.0; WIDTH], None));
            assert_eq!((count, weight), (1, [1.0; WIDTH]), "a new thread's context");
        });
    });
}

#[cfg(feature = "io")]
#[path = "suite/checkpoint.rs"]
mod checkpoint;

#[cfg(feature = "io")]
#[test]
fn every_allocation_of_models_may_fail() {
    let weights = identity();
    let [gate, up, down] =
        ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"].map(|name| (name, &[WIDTH, WIDTH][..], &weights[..]));
    let norm = ("post_attention_layernorm.weight", &[WIDTH][..], &weights[..WIDTH]);
    let folder = checkpoint::Checkpoint::llama("allocation", &[gate, up, down, norm]);

    let (count, model) = each_fails(|| libffn::Model::open(&folder.0));
    assert!(count >= 5, "{count}: files, headers, tables");
    let (_, index) = each_fails(|| model.find("model.layers.0.mlp.up_proj.weight"));
    let mut numbers = vec![0.0; WIDTH * WIDTH];
    let (_, ()) = each_fails(|| model.read(index, &mut numbers));
    assert_eq!(numbers, weights);
    let (_, mut found) = each_fails(|| model.layer(0));
    found.options().activation(Activation::RELU);
    found.branch_only(true);
    let mut context = Context::new(&ContextOptions::new()).unwrap();
    let (count, layer) = each_fails(|| found.create_in(&mut context));
    assert!(count >= 1, "{count}: a layer");
    let mut y = [0.0; WIDTH];
    layer.forward(&[2.0; WIDTH], &mut y).unwrap();
    assert_eq!(y, [4.0; WIDTH]); // relu(2) * 2
}
