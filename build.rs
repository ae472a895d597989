//! Builds what the program carries inside it: the preload library and the simulated device.
//!
//! They come out of a cargo of their own, so that whoever installs `gputrace` gets one file that
//! is the whole tool. Nothing is fetched here: the nested cargo sees the same lock file.

#[path = "build/artifacts.rs"]
mod artifacts;
#[path = "build/embedding.rs"]
mod embedding;
#[path = "build/nested_cargo.rs"]
mod nested_cargo;

use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed=GPUTRACE_PREBUILT_DIR");
    let folder = match std::env::var_os("GPUTRACE_PREBUILT_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => {
            let folder = PathBuf::from(folder);
            println!("cargo:rerun-if-changed={}", folder.display());
            folder
        }
        None => nested_cargo::build(&root, &out),
    };
    embedding::write(&folder, &out);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| give_up(&format!("cargo did not set {name}")))
}

/// Fails the build with one line; a panic would add a backtrace that tells nobody anything.
fn give_up(why: &str) -> ! {
    eprintln!("error: {why}");
    std::process::exit(1)
}
