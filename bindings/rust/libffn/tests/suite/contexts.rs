//! Contexts: their threads, the caller's threads and memory.
use std::alloc::{alloc, dealloc, Layout};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use libffn::{thread_info, Allocator, Context, ContextOptions, Layer, Run, Status};

use crate::reference::*;

const MANY: usize = 1500;

/// Many tokens, and what they must give.
fn many() -> &'static (Case, Vec<f32>, Vec<f64>) {
    static MADE: OnceLock<(Case, Vec<f32>, Vec<f64>)> = OnceLock::new();
    MADE.get_or_init(|| {
        let case = Case::new(true);
        let x = numbers(30, MANY * D_MODEL, 2.0);
        let y = case.expected(&x, &x);
        (case, x, y)
    })
}

#[test]
fn what_may_move_and_what_may_be_shared() {
    fn moves<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    moves::<Context>(); // and is not Sync: the documentation has an example that does not compile
    moves::<libffn::TensorMut<'_>>();
    moves::<Run<'_, '_>>();
    is_shared::<Layer>();
    is_shared::<libffn::LayerOptions>();
    is_shared::<ContextOptions>();
    is_shared::<libffn::Tensor<'_>>();
    is_shared::<libffn::Error>();
    #[cfg(feature = "io")]
    is_shared::<libffn::Model>();
}

#[test]
fn a_context_serves_one_call_after_the_other_on_any_thread() {
    let (case, x, expected) = many();
    let mut context = Context::new(ContextOptions::new().threads(3)).unwrap();
    assert_eq!(context.info().unwrap().threads_requested(), 3);
    let layer = Layer::new_in(&mut context, &Case::options(), &case.tensors()).unwrap();
    for _ in 0..3 {
        let mut y = vec![0.0; MANY * D_MODEL];
        let (layer, out) = (&layer, &mut y);
        context = std::thread::scope(|scope| {
            let on_another = scope.spawn(move || layer.forward_in(&mut context, x, out).map(|()| context));
            on_another.join().unwrap().unwrap()
        });
        assert_close(&y, expected);
    }
    assert!(context.info().unwrap().scratch_bytes() > 0);
}

#[test]
fn every_call_without_a_context_uses_the_thread_s_scratch_memory() {
    std::thread::spawn(|| {
        assert_eq!(thread_info().unwrap().scratch_bytes(), 0);
        let case = Case::new(false);
        let layer = case.layer();
        layer.reserve(TOKENS).unwrap();
        let reserved = thread_info().unwrap();
        assert_eq!(reserved.threads(), 1);
        assert!(reserved.scratch_bytes() > 0);
        let mut y = vec![0.0; TOKENS * D_MODEL];
        layer.forward(&case.x, &mut y).unwrap();
        assert_eq!(thread_info().unwrap().scratch_bytes(), reserved.scratch_bytes());
    })
    .join()
    .unwrap();
}

/// A parallel-for that counts its calls.
fn counted(function: impl Fn(usize, &(dyn Fn() + Sync)) + Send + Sync + 'static) -> (Context, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let context = Context::new(ContextOptions::new().threads(4).parallel_for(move |tasks, work| {
        count.fetch_add(1, Ordering::Relaxed);
        function(tasks, work)
    }));
    (context.unwrap(), calls)
}

#[test]
fn the_caller_s_threads_do_the_work() {
    let (case, x, expected) = many();
    let on_threads = |tasks: usize, work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| (0..tasks).for_each(|_| drop(scope.spawn(work))));
    };
    let not_at_all = |_: usize, _: &(dyn Fn() + Sync)| (); // what is left is done all the same
    let more_than_once = |_: usize, work: &(dyn Fn() + Sync)| (0..5).for_each(|_| work());
    for (mut context, calls) in [counted(on_threads), counted(not_at_all), counted(more_than_once)] {
        let layer = Layer::new_in(&mut context, &Case::options(), &case.tensors()).unwrap();
        let mut y = vec![0.0; MANY * D_MODEL];
        layer.forward_in(&mut context, x, &mut y).unwrap();
        assert_close(&y, expected);
        assert!(calls.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn a_panic_of_the_caller_s_parallel_for_goes_through_and_leaves_all_right() {
    let (case, x, expected) = many();
    let layer = case.layer();
    let (mut context, calls) = counted(|_, work| {
        std::thread::scope(|scope| drop(scope.spawn(work)));
        panic!("of the parallel-for");
    });
    for _ in 0..2 {
        let mut y = vec![0.0; MANY * D_MODEL];
        let panic = catch_unwind(AssertUnwindSafe(|| layer.forward_in(&mut context, x, &mut y))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"of the parallel-for"));
        assert_close(&y, expected);
    }
    assert!(calls.load(Ordering::Relaxed) > 1);
}

/// Memory that is counted, and of which some allocations fail.
#[derive(Default)]
struct Counting {
    held: Mutex<HashMap<usize, Layout>>,
    asked: AtomicUsize,
    spare: Option<usize>, // allocations that go well; then one fails, by a panic if `panics`
    panics: bool,
}

// SAFETY: each block is the global allocator's, of the size and alignment that were asked for.
unsafe impl Allocator for Counting {
    fn allocate(&self, size: usize, alignment: usize) -> *mut u8 {
        if self.spare == Some(self.asked.fetch_add(1, Ordering::Relaxed)) {
            assert!(!self.panics, "of the allocator");
            return std::ptr::null_mut();
        }
        let layout = Layout::from_size_align(size, alignment).unwrap();
        // SAFETY: the library asks for no empty block.
        let memory = unsafe { alloc(layout) };
        self.held.lock().unwrap().insert(memory as usize, layout);
        memory
    }

    unsafe fn release(&self, memory: *mut u8, size: usize) {
        let layout = self.held.lock().unwrap().remove(&(memory as usize)).unwrap();
        assert_eq!(layout.size(), size);
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(memory, layout) }
    }
}

/// Context, layer, reserve, run with memory of an allocator: how many steps failed for want of memory. Each is then done again.
fn live(allocator: &Arc<Counting>) -> usize {
    let (case, x, expected) = many();
    let mut failures = 0;
    let mut refused = |error: libffn::Error| {
        assert_eq!(error.status(), Status::NO_MEMORY, "{error}");
        assert!(!error.message().is_empty());
        failures += 1;
    };
    let mut options = ContextOptions::new();
    options.threads(2).allocator(Arc::clone(allocator) as Arc<dyn Allocator>);
    let mut context = Context::new(&options).map_err(&mut refused).or_else(|()| Context::new(&options)).unwrap();
    let mut options = Case::options();
    options.allocator(Arc::clone(allocator) as Arc<dyn Allocator>);
    let tensors = case.tensors();
    let made = Layer::new_in(&mut context, &options, &tensors).map_err(&mut refused);
    let layer = made.or_else(|()| Layer::new_in(&mut context, &options, &tensors)).unwrap();
    let _ = context.reserve(&layer, 3).map_err(&mut refused);
    let mut y = vec![7.0; MANY * D_MODEL];
    if let Err(error) = layer.forward_in(&mut context, x, &mut y) {
        refused(error);
        assert!(y.iter().all(|&v| v == 7.0), "y was written");
        layer.run_in(&mut context, Run::new(x, &mut y)).unwrap();
    }
    assert_close(&y, expected);
    failures
}

#[test]
fn every_allocation_of_the_caller_s_may_fail_or_panic() {
    for panics in [false, true] {
        for spare in 0.. {
            let allocator = Arc::new(Counting { spare: Some(spare), panics, ..Counting::default() });
            let failures = live(&allocator);
            assert!(allocator.held.lock().unwrap().is_empty(), "memory is lost");
            if allocator.asked.load(Ordering::Relaxed) <= spare {
                assert!(spare >= 4, "context, layer, scratch for few and for many are {spare} allocations");
                assert_eq!(failures, 0);
                break;
            }
            assert_eq!(failures, 1, "allocation {spare}");
        }
    }
}

#[test]
fn an_allocator_lives_as_long_as_what_it_serves() {
    let allocator = Arc::new(Counting::default());
    let case = Case::new(false);
    let layer = Layer::new(Case::options().allocator(allocator.clone()), &case.tensors()).unwrap();
    assert_eq!(Arc::strong_count(&allocator), 2);
    drop(layer);
    assert_eq!(Arc::strong_count(&allocator), 1);
    assert!(allocator.asked.load(Ordering::Relaxed) > 0);
}

#[test]
fn reserved_memory_is_enough() {
    let (case, x, expected) = many();
    let allocator = Arc::new(Counting::default());
    let layer = case.layer();
    let mut context = Context::new(ContextOptions::new().threads(2).allocator(allocator.clone())).unwrap();
    context.reserve(&layer, MANY).unwrap();
    let asked = allocator.asked.load(Ordering::Relaxed);
    let mut y = vec![0.0; MANY * D_MODEL];
    layer.forward_in(&mut context, x, &mut y).unwrap();
    assert_close(&y, expected);
    assert_eq!(allocator.asked.load(Ordering::Relaxed), asked);
}
