//! What the headers have, this crate has, or leaves to `libffn::sys` on purpose: a new constant or function is not forgotten.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What begins like these is reached through `libffn::sys` alone. A line for each reason.
#[rustfmt::skip]
const LEFT_TO_SYS: &[&str] = &[
    "FFN_OK", "FFN_ROLE_NONE", "FFN_DTYPE_", // this crate's own business
    "ffn_status_name", "ffn_io_status_name", // Status has Debug
    "ffn_npy_", // Rust has crates for .npy arrays
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Words of a text that begin with a prefix.
fn words<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with(prefix)).collect()
}

fn source() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    fs::read_dir(folder).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[track_caller]
fn assert_known(names: &[&str], prefix: &str) {
    let source = source();
    let known = words(&source, prefix);
    let missing: Vec<_> = names.iter().filter(|name| !known.contains(**name) && !LEFT_TO_SYS.iter().any(|left| name.starts_with(left))).collect();
    assert!(missing.is_empty(), "neither in bindings/rust/libffn/src nor in LEFT_TO_SYS of {}: {missing:?}", file!());
}

#[test]
fn every_constant_has_a_name() {
    let header = fs::read_to_string(root().join("include/ffn/ffn.h")).unwrap();
    // one constant a line, or several on the line of their enum
    let code = header.lines().map(|line| line.split_once("/*").map_or(line, |(code, _)| code));
    let names = code.flat_map(|code| code.split(['{', ',', '}'])).filter_map(|part| part.split_once('=').map(|(name, _)| name.trim()));
    let names: Vec<_> = names.filter(|name| name.starts_with("FFN_")).collect();
    assert!(names.len() > 60, "{names:?}");
    assert_known(&names, "FFN_");
}

#[test]
fn every_function_is_used() {
    for (exported, least) in [("src/ffn.map", 15), ("src/io/ffn_io.map", 8)] {
        let exported = fs::read_to_string(root().join(exported)).unwrap();
        let names: Vec<_> = exported.lines().filter_map(|line| line.trim().strip_suffix(';')).filter(|name| name.starts_with("ffn_")).collect();
        assert!(names.len() >= least, "{names:?}");
        assert_known(&names, "ffn_");
    }
}
