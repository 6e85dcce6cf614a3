//! The caller's memory for a layer or a context.
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::sys;

/// Where the memory of a layer or a context comes from. It may be called from any thread that uses the handle.
///
/// # Safety
/// What `allocate` gives is NULL, or `size` bytes at a multiple of `alignment` that are no one else's until they are given to `release`.
pub unsafe trait Allocator: Send + Sync {
    /// `alignment` is a power of two, 64 or more. NULL when there is none: the call that needed it fails with
    /// [`Status::NO_MEMORY`](crate::Status::NO_MEMORY). A panic counts as NULL.
    fn allocate(&self, size: usize, alignment: usize) -> *mut u8;

    /// Takes back what `allocate` gave.
    ///
    /// # Safety
    /// `memory` came from `allocate` with the same size, and is not used any more.
    unsafe fn release(&self, memory: *mut u8, size: usize);
}

/// An allocator at an address that stays the same, for as long as a handle uses it.
pub(crate) type Kept = Option<Box<Arc<dyn Allocator>>>;

pub(crate) fn keep(allocator: Option<Arc<dyn Allocator>>) -> Kept {
    allocator.map(Box::new)
}

/// For the C interface, which copies it; `kept` must outlive the handle that is made.
pub(crate) fn hook(kept: &Kept) -> Option<sys::ffn_allocator_t> {
    kept.as_ref().map(|allocator| sys::ffn_allocator_t {
        struct_size: std::mem::size_of::<sys::ffn_allocator_t>() as u32,
        reserved: 0,
        user: (&**allocator as *const Arc<dyn Allocator>).cast_mut().cast(),
        allocate: Some(allocate),
        release: Some(release),
    })
}

unsafe extern "C" fn allocate(user: *mut c_void, size: u64, alignment: u64) -> *mut c_void {
    // SAFETY: user is what hook gave, and the handle keeps it.
    let allocator = unsafe { &*user.cast::<Arc<dyn Allocator>>() };
    let (Ok(size), Ok(alignment)) = (size.try_into(), alignment.try_into()) else { return null_mut() };
    // No panic may go through C.
    catch_unwind(AssertUnwindSafe(|| allocator.allocate(size, alignment))).map_or(null_mut(), |memory| memory.cast())
}

unsafe extern "C" fn release(user: *mut c_void, memory: *mut c_void, size: u64) {
    // SAFETY: as in allocate.
    let allocator = unsafe { &*user.cast::<Arc<dyn Allocator>>() };
    // SAFETY: libffn gives back what it got, once. A panic must not go through C, and there is no one to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { allocator.release(memory.cast(), size as usize) }));
}
