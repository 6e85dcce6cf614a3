//! Finds the installed libffn with pkg-config, and makes Rust declarations of its headers.
use std::{env, path::PathBuf, process};

fn main() {
    // ffn-io.pc requires ffn, as ffn_io.h includes ffn.h.
    let (package, header) = match env::var_os("CARGO_FEATURE_IO") {
        None => ("ffn", "ffn/ffn.h"),
        Some(_) => ("ffn-io", "ffn/ffn_io.h"),
    };
    let library = pkg_config::Config::new().range_version("0.1".."0.2").probe(package).unwrap_or_else(|error| {
        eprintln!("{error}\n\nlibffn-sys needs an installed libffn: PKG_CONFIG_PATH names the folder of its {package}.pc");
        process::exit(1);
    });
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::builder()
        .header_contents("libffn.h", &format!("#include <{header}>\n"))
        .clang_args(library.include_paths.iter().map(|path| format!("-I{}", path.display())))
        .allowlist_item("(ffn|FFN)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .rust_target(bindgen::RustTarget::stable(70, 0).unwrap_or_default())
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate()
        .expect("bindgen reads the header")
        .write_to_file(output.join("bindings.rs"))
        .expect("OUT_DIR can be written");
}
