//! The nested cargo: where it builds, what it inherits, and what makes it run again.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::{ARTIFACTS, SOURCES};
use crate::{give_up, variable};

const PROFILE: &str = "embedded";

/// Builds the artifacts and returns the folder they lie in.
pub fn build(root: &Path, out: &Path) -> PathBuf {
    for file in ["Cargo.toml", "Cargo.lock"].iter().chain(&SOURCES) {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
    let target_folder = target_folder(out);
    let (target, host) = (variable("TARGET"), variable("HOST"));
    for artifact in &ARTIFACTS {
        let mut cargo = Command::new(variable("CARGO"));
        cargo
            .current_dir(root)
            .args(["build", "--locked", "--profile", PROFILE, "--package", artifact.package, "--target-dir"])
            .arg(&target_folder);
        if target != host {
            cargo.args(["--target", &target]);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_none_or(|name| !is_inherited(name, target != host)) {
                cargo.env_remove(&name);
            }
        }
        match cargo.env("CARGO_PROFILE_EMBEDDED_LTO", artifact.lto).status() {
            Ok(status) if status.success() => {}
            Ok(status) => give_up(&format!(
                "building the libraries to embed failed ({status}); cargo's words are above"
            )),
            Err(error) => give_up(&format!("cannot start cargo for the libraries to embed: {error}")),
        }
    }
    if target != host { target_folder.join(&target).join(PROFILE) } else { target_folder.join(PROFILE) }
}

/// One folder for every profile of the outer build, since the artifacts are the same for all of
/// them. The outer build's own folder cannot serve: its lock is held while this script runs.
fn target_folder(out: &Path) -> PathBuf {
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let shared = out.ancestors().nth(4).filter(|folder| folder.join("CACHEDIR.TAG").exists());
    shared.unwrap_or(out).join("gputrace-embedded")
}

/// Flags and wrappers meant for the outer build (sanitizers, coverage, clippy) must not reach
/// the libraries; where cargo finds its home, its registries and its job server, must.
fn is_inherited(name: &str, crossing: bool) -> bool {
    const KEPT: [&str; 6] =
        ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    if name.starts_with("CARGO") || name.starts_with("RUSTC") {
        let linker = crossing && name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
        return linker || KEPT.iter().any(|kept| name.starts_with(kept));
    }
    // The rest of what cargo sets for build scripts; a nested build script gets its own.
    !matches!(
        name,
        "RUSTFLAGS"
            | "RUSTDOCFLAGS"
            | "TARGET"
            | "HOST"
            | "OUT_DIR"
            | "PROFILE"
            | "OPT_LEVEL"
            | "DEBUG"
            | "NUM_JOBS"
            | "LD_LIBRARY_PATH"
            | "LD_PRELOAD"
    ) && !name.starts_with("DEP_")
}
