//! Sizes and arrays on their way to the C interface.
use std::ptr::{null, null_mut};

use crate::{Error, Result};

/// A size as C has it. One that is too large for that is too large for every function, which says so.
pub(crate) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn check_length(name: &str, length: usize, rows: usize, width: usize) -> Result<()> {
    if rows.checked_mul(width) == Some(length) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} has {length} numbers, must have {rows} * {width}")))
}

pub(crate) fn check_optional<T>(name: &str, array: Option<&[T]>, rows: usize, width: usize) -> Result<()> {
    array.map_or(Ok(()), |array| check_length(name, array.len(), rows, width))
}

/// NULL for None.
pub(crate) fn pointer<T>(array: Option<&[T]>) -> *const T {
    array.map_or(null(), <[T]>::as_ptr)
}

/// Likewise.
pub(crate) fn pointer_mut<T>(array: Option<&mut [T]>) -> *mut T {
    array.map_or(null_mut(), <[T]>::as_mut_ptr)
}
