//! The caller's parallel-for, made safe: the caller says only on which threads, and the tasks are handed out here.
use std::any::Any;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use crate::sys;

/// See [`ContextOptions::parallel_for`](crate::ContextOptions::parallel_for).
pub(crate) type ParallelFor = dyn Fn(usize, &(dyn Fn() + Sync)) + Send + Sync;

/// What a context keeps of it, at an address that stays the same.
pub(crate) struct Kept {
    function: Arc<ParallelFor>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Kept {
    pub(crate) fn new(function: Arc<ParallelFor>) -> Box<Self> {
        Box::new(Kept { function, panic: Mutex::new(None) })
    }

    /// Goes on with a panic of the function, once C has returned.
    pub(crate) fn resume(&self) {
        let panic = self.panic.lock().map(|mut panic| panic.take());
        if let Ok(Some(panic)) = panic {
            resume_unwind(panic);
        }
    }
}

/// A group of tasks, each of which any thread may run, once.
struct Tasks {
    task: unsafe extern "C" fn(*mut c_void, i64),
    data: *mut c_void,
    count: i64,
    next: AtomicI64,
}

// SAFETY: libffn's tasks are independent, and may run on any thread.
unsafe impl Sync for Tasks {}

impl Tasks {
    /// Runs tasks that no one has taken yet, until there are none.
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: each index from 0 to count - 1 is handed out once, and call returns after all of them.
            unsafe { (self.task)(self.data, index) };
        }
    }
}

/// `ffn_parallel_for_fn`. The function gets `work` by a reference that it cannot keep, so that no thread is inside of `work` when it returns,
/// nor when it unwinds; what it left is done here.
pub(crate) unsafe extern "C" fn call(user: *mut c_void, count: i64, task: sys::ffn_task_fn, data: *mut c_void) {
    // SAFETY: user is a context's Kept, which outlives the C context.
    let kept = unsafe { &*user.cast::<Kept>() };
    let Some(task) = task else { return };
    let tasks = Tasks { task, data, count, next: AtomicI64::new(0) };
    let outcome = catch_unwind(AssertUnwindSafe(|| (kept.function)(usize::try_from(count).unwrap_or(0), &|| tasks.work())));
    tasks.work();
    if let (Err(panic), Ok(mut slot)) = (outcome, kept.panic.lock()) {
        *slot = Some(panic);
    }
}
