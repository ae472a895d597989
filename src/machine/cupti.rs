//! Every libcupti on this machine, and its version. Which one a traced program gets is decided
//! inside that program, from the CUDA it has loaded.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::machine::finding::Finding;
use crate::machine::gpu;
use crate::workload::driver::words;

const SUBJECT: &str = "cupti";

pub fn findings(asked: Option<PathBuf>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(path) = asked {
        findings.push(match version(&path) {
            Ok(version) => Finding::good(SUBJECT, format!("GPUTRACE_CUPTI: {version}, {}", path.display())),
            // Programs are traced all the same, with host times.
            Err(why) => Finding::limited(
                SUBJECT,
                format!("GPUTRACE_CUPTI: {}: {why}: no device times", path.display()),
            )
            .hint("unset the variable, or name a libcupti.so of CUDA 11.4 or newer")
            .command("unset GPUTRACE_CUPTI"),
        });
    }
    let found = libraries();
    if found.is_empty() && findings.is_empty() {
        findings.push(
            Finding::limited(SUBJECT, "no libcupti found: counts and host times only, no device times")
                .hint("install it in the program's Python environment, or install the CUDA toolkit")
                .commands(gpu::supported_cuda().and_then(wheel).map(|wheel| format!("pip install {wheel}"))),
        );
    }
    for path in found {
        findings.push(match version(&path) {
            Ok(version) => Finding::good(SUBJECT, format!("{version}, {}", path.display())),
            Err(why) => Finding::limited(SUBJECT, format!("{}: {why}", path.display())),
        });
    }
    findings
}

/// NVIDIA's package of the libcupti for that CUDA release.
fn wheel(cuda: i32) -> Option<&'static str> {
    match cuda {
        11 => Some("nvidia-cuda-cupti-cu11"),
        12 => Some("nvidia-cuda-cupti-cu12"),
        13.. => Some("nvidia-cuda-cupti"),
        _ => None,
    }
}

/// Loads the library, asks it for its API version, and describes that ([`described`]).
fn version(path: &Path) -> Result<String, String> {
    // SAFETY: libcupti's constructors are what any program that links it runs.
    let library =
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| words(&error))?;
    let mut version = 0u32;
    // SAFETY: cuptiGetVersion takes a pointer to a 32-bit word, and needs no initialised driver.
    let code = unsafe {
        let get = library
            .get::<unsafe extern "C" fn(*mut u32) -> i32>(b"cuptiGetVersion\0")
            .map_err(|error| words(&error))?;
        get(&raw mut version)
    };
    // libcupti does not survive being unloaded in every release.
    std::mem::forget(library);
    if code == 0 { Ok(described(version)) } else { Err(format!("cuptiGetVersion failed with {code}")) }
}

/// 12.9 and 13.0 take 3 to 5 ns more for each record with each second that they are in a process
/// (docs/OVERHEAD.md, "With time"). 11.8, 12.4 and 13.5 do not; others were not tried.
fn described(version: u32) -> String {
    let slower = matches!(version, 28 | 130_000..=130_099);
    let note =
        if slower { ", takes longer for each record the longer a program runs (13.5 does not)" } else { "" };
    format!("API version {version}{note}")
}

/// Real paths of all that are found, each once.
fn libraries() -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in folders() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name == "libcupti.so" || name.starts_with("libcupti.so."))
                && let Ok(real) = entry.path().canonicalize()
            {
                found.insert(real);
            }
        }
    }
    found.into_iter().collect()
}

/// Toolkits, the loader's path, and the Python environments in sight.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    folders.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    let architecture = if cfg!(target_arch = "aarch64") { "sbsa-linux" } else { "x86_64-linux" };
    let toolkits = env::var_os("CUDA_HOME").into_iter().chain(env::var_os("CUDA_PATH")).map(PathBuf::from);
    let installed = matching(Path::new("/usr/local"), "cuda").into_iter().chain([PathBuf::from("/opt/cuda")]);
    for toolkit in toolkits.chain(installed) {
        folders.push(toolkit.join("extras/CUPTI/lib64"));
        folders.push(toolkit.join("targets").join(architecture).join("lib"));
        folders.push(toolkit.join("lib64"));
    }
    folders.push(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH).into());
    for environment in python_environments() {
        for site in ["site-packages", "dist-packages"] {
            for python in matching(&environment.join("lib"), "python3") {
                let nvidia = python.join(site).join("nvidia");
                folders.push(nvidia.join("cuda_cupti/lib"));
                folders.extend(matching(&nvidia, "cu").into_iter().map(|cuda| cuda.join("lib")));
            }
        }
    }
    folders
}

fn python_environments() -> Vec<PathBuf> {
    let mut environments: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from).collect();
    for folder in env::var_os("PATH").iter().flat_map(env::split_paths) {
        if folder.join("python3").exists()
            && let Some(prefix) = folder.parent()
        {
            environments.push(prefix.to_path_buf());
        }
    }
    environments
}

/// The folder's entries whose names begin so.
fn matching(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_get_slower_are_said_to() {
        for (version, is_slower) in [(18, false), (22, false), (28, true), (130_001, true), (130_500, false)]
        {
            assert_eq!(described(version).contains("takes longer"), is_slower, "{version}");
        }
    }
}
