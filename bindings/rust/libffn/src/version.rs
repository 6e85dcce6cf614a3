//! What the library says of itself.
use crate::{error, sys};

/// The version of the library that runs, as major * 65536 + minor * 256 + patch.
pub fn version() -> u32 {
    // SAFETY: takes nothing, and is safe from any thread.
    unsafe { sys::ffn_version() }
}

/// The same as text, `"0.1.0"`.
pub fn version_string() -> String {
    // SAFETY: a static string.
    unsafe { error::text(sys::ffn_version_string()) }.into_owned()
}

/// The number of the binary interface, which is the number in the name of the shared library.
pub fn abi_version() -> u32 {
    // SAFETY: as in version.
    unsafe { sys::ffn_abi_version() }
}

/// One line on how the library was built and what it found: version, compiler, ISA levels, BLAS library.
pub fn build_info() -> String {
    // SAFETY: a string of this thread's that lives until this thread's next call.
    unsafe { error::text(sys::ffn_build_info()) }.into_owned()
}
