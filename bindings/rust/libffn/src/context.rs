//! Threads and scratch memory.
use std::fmt;
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::{allocator, error::check, parallel, sys, Allocator, Layer, Result};

/// Threads and scratch memory, for one call at a time. It may move between threads, but not be shared by them.
///
/// ```
/// use libffn::{Context, ContextOptions};
/// # fn main() -> libffn::Result<()> {
/// let context = Context::new(ContextOptions::new().threads(2))?;
/// assert_eq!(context.info()?.threads_requested(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Context {
    raw: NonNull<sys::ffn_context_t>,
    parallel: Option<Box<parallel::Kept>>,
    _allocator: allocator::Kept,
    _not_sync: PhantomData<std::cell::Cell<()>>,
}

// SAFETY: a context belongs to no thread; it serves one call at a time, which `&mut self` and not being Sync ensure.
unsafe impl Send for Context {}

impl Context {
    /// Makes a context. Workers that the system refuses to start are done without: [`ContextInfo::threads`] tells.
    pub fn new(options: &ContextOptions) -> Result<Self> {
        let kept = allocator::keep(options.allocator.clone());
        let hook = allocator::hook(&kept);
        let parallel = options.parallel_for.clone().map(parallel::Kept::new);
        let given = sys::ffn_context_options_t {
            struct_size: size_of::<sys::ffn_context_options_t>() as u32,
            threads: options.threads,
            parallel_for: parallel.as_ref().map(|_| parallel::call as unsafe extern "C" fn(_, _, _, _)),
            parallel_user: parallel.as_deref().map_or(null_mut(), |kept| (kept as *const parallel::Kept).cast_mut().cast()),
            allocator: hook.as_ref().map_or(null(), |hook| hook),
            ..Default::default()
        };
        let mut raw = null_mut();
        // SAFETY: options and out-parameter are alive; what outlives the call is kept beside the handle.
        check(unsafe { sys::ffn_context_create(&given, &mut raw) })?;
        let raw = NonNull::new(raw).expect("a context that was made");
        Ok(Context { raw, parallel, _allocator: kept, _not_sync: PhantomData })
    }

    /// What it is, and what it holds.
    pub fn info(&self) -> Result<ContextInfo> {
        context_info(self.raw.as_ptr())
    }

    /// Allocates the scratch memory that runs of `layer` on up to `tokens` tokens need: those then allocate nothing.
    pub fn reserve(&mut self, layer: &Layer, tokens: usize) -> Result<()> {
        self.lend(|context| layer.reserve_raw(context, tokens))
    }

    /// A call into C with this context, and then with the panic of its parallel-for, if there was one.
    pub(crate) fn lend<T>(&mut self, call: impl FnOnce(*mut sys::ffn_context_t) -> T) -> T {
        let outcome = call(self.raw.as_ptr());
        if let Some(parallel) = &self.parallel {
            parallel.resume();
        }
        outcome
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by ffn_context_create, and no call is running: there is no reference.
        unsafe { sys::ffn_context_free(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Context").field(&self.info()).finish()
    }
}

/// How a context is made. What is not set has its default.
#[derive(Clone, Default)]
pub struct ContextOptions {
    threads: u32,
    parallel_for: Option<Arc<parallel::ParallelFor>>,
    allocator: Option<Arc<dyn Allocator>>,
}

impl ContextOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Threads of a call, the calling one included. 0, the default: as many as the affinity mask and the cgroup's CPU quota allow. OpenBLAS's
    /// threads are the program's, and not set.
    pub fn threads(&mut self, threads: u32) -> &mut Self {
        self.threads = threads;
        self
    }

    /// Threads of the program's own instead of workers: `function` gets the number of tasks and `work`, calls `work` on as many threads as it
    /// likes, and returns when all of these calls have. Each call of `work` runs tasks until none is left. A panic of `function` goes on in the
    /// caller of the layer, when the tasks are done.
    ///
    /// ```
    /// use libffn::{Context, ContextOptions};
    /// # fn main() -> libffn::Result<()> {
    /// let context = Context::new(ContextOptions::new().threads(2).parallel_for(|tasks, work| {
    ///     std::thread::scope(|scope| {
    ///         for _ in 1..tasks.min(2) {
    ///             scope.spawn(|| work());
    ///         }
    ///         work();
    ///     });
    /// }))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn parallel_for(&mut self, function: impl Fn(usize, &(dyn Fn() + Sync)) + Send + Sync + 'static) -> &mut Self {
        self.parallel_for = Some(Arc::new(function));
        self
    }

    /// Where the scratch memory comes from. Default: the C library.
    pub fn allocator(&mut self, allocator: Arc<dyn Allocator>) -> &mut Self {
        self.allocator = Some(allocator);
        self
    }
}

/// What a context is.
#[derive(Clone, Copy, Debug)]
pub struct ContextInfo(sys::ffn_context_info_t);

impl ContextInfo {
    /// Threads that were asked for, after the default was resolved.
    pub fn threads_requested(&self) -> usize {
        self.0.threads_requested as usize
    }

    /// Threads of a call, the calling one included.
    pub fn threads(&self) -> usize {
        self.0.threads as usize
    }

    /// Scratch memory held now, in bytes.
    pub fn scratch_bytes(&self) -> u64 {
        self.0.scratch_bytes
    }
}

/// The same of the calling thread's own scratch memory, which calls without a context use.
pub fn thread_info() -> Result<ContextInfo> {
    context_info(null_mut())
}

fn context_info(context: *mut sys::ffn_context_t) -> Result<ContextInfo> {
    let mut info = sys::ffn_context_info_t::default();
    info.struct_size = size_of_val(&info) as u32;
    // SAFETY: a live context or NULL, and a struct of the size that it says.
    check(unsafe { sys::ffn_context_info(context, &mut info) })?;
    Ok(ContextInfo(info))
}

/// A call with a context's handle, or NULL.
pub(crate) fn lend<T>(context: Option<&mut Context>, call: impl FnOnce(*mut sys::ffn_context_t) -> T) -> T {
    match context {
        Some(context) => context.lend(call),
        None => call(null_mut()),
    }
}
