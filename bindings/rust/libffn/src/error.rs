//! Failures: a status of the C interface, and one sentence.
use std::borrow::Cow;
use std::ffi::{c_char, CStr, CString};
use std::fmt;

use crate::{constants::constants, sys};

constants! {
    /// Why a call failed, as a program asks it.
    Status(i32) {
        /// An argument is wrong.
        INVALID = FFN_INVALID,
        /// An allocation failed, or a thread that was needed could not be started.
        NO_MEMORY = FFN_NO_MEMORY,
        /// Well-formed, but this version, CPU or build cannot do it.
        UNSUPPORTED = FFN_UNSUPPORTED,
        /// The context is inside another call.
        BUSY = FFN_BUSY,
        /// The operating system refused: not found, no permission, cut short.
        #[cfg(feature = "io")]
        FILE = FFN_FILE,
        /// The file is not what its format demands.
        #[cfg(feature = "io")]
        FORMAT = FFN_FORMAT,
        /// No known family of layers, or a name that is not in the file.
        #[cfg(feature = "io")]
        UNKNOWN = FFN_UNKNOWN,
    }
}

/// A failure. Its text is one sentence that names the offending value and its limit.
///
/// ```
/// use libffn::{Activation, Layer, LayerOptions, Status};
/// let error = Layer::new(LayerOptions::new().activation(Activation::RELU).alpha(0.1), &[]).unwrap_err();
/// assert_eq!(error.status(), Status::INVALID);
/// assert!(error.to_string().contains("alpha"), "{error}");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: Cow<'static, str>,
}

/// What the functions of this crate give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Which kind of failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The sentence, as `Display` gives it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A failure that this crate found itself.
    #[cold]
    pub(crate) fn invalid(message: String) -> Self {
        Error { status: Status::INVALID, message: message.into() }
    }

    /// Takes over the sentence of a call into the library that failed. A sentence for which there is no memory is left out.
    ///
    /// # Safety
    /// `sentence` is a string with an end.
    #[cold]
    unsafe fn taken_over(status: i32, sentence: *const c_char) -> Self {
        // SAFETY: the caller's promise.
        let sentence = unsafe { text(sentence) };
        let mut message = String::new();
        if message.try_reserve_exact(sentence.len()).is_err() {
            return Error { status: Status(status), message: "out of memory".into() };
        }
        message.push_str(&sentence);
        Error { status: Status(status), message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}

/// The outcome of a call into libffn, asked on the thread that made it.
pub(crate) fn check(status: sys::ffn_status_t) -> Result<()> {
    if status == sys::FFN_OK {
        return Ok(());
    }
    // SAFETY: never NULL, and valid until this thread's next failure.
    Err(unsafe { Error::taken_over(status, sys::ffn_last_error()) })
}

/// The outcome of a call into libffn-io.
#[cfg(feature = "io")]
pub(crate) fn check_io(status: sys::ffn_status_t) -> Result<()> {
    if status == sys::FFN_OK {
        return Ok(());
    }
    // SAFETY: as in check.
    Err(unsafe { Error::taken_over(status, sys::ffn_io_last_error()) })
}

/// A string of the library's as Rust has it.
///
/// # Safety
/// `string` has an end, and lives as long as what is given back.
pub(crate) unsafe fn text<'a>(string: *const c_char) -> Cow<'a, str> {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy()
}

pub(crate) fn c_string(what: &str, bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|error| Error::invalid(format!("{what} has a NUL at byte {}", error.nul_position())))
}
