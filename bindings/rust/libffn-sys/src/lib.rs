//! The C interface of [libffn](https://docs.rs/libffn), the feed-forward sublayer of transformers on CPUs, as `bindgen` reads it from
//! the installed header; nothing is declared by hand. The header is the manual: `ffn/ffn.h`, and with the feature `io` also `ffn/ffn_io.h`.
//! The crate `libffn` is the safe interface.
//!
//! pkg-config finds the library. `FFN_STATIC=1` in the environment of the build links `libffn.a` (with the feature `io` it is `FFN_IO_STATIC`).
#![allow(non_camel_case_types)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
