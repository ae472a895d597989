//! PyTorch 1.x, whose wheels link a CUPTI statically into libtorch_cpu.so. From 2.0 on they load libcupti.so.
//!
//! The driver serves one CUPTI of a process, and calls of a static one cannot be intercepted, so CUPTI is
//! left to PyTorch. The driver refuses any other static CUPTI, as it does beside any other profiler.

use std::path::Path;

use super::library;

/// The version of the PyTorch in this process, if it has a static CUPTI.
pub fn version() -> Option<String> {
    let library = library::mapped("libtorch_cpu.so")?;
    // A PyTorch that was built from source may use the shared library.
    if library::is_mapped("libcupti.so") {
        return None;
    }
    installed(library.parent()?.parent()?).filter(|version| version.starts_with("1."))
}

/// Reads the version of the PyTorch in that folder. The wheel and the C++ archive keep it in different
/// files.
fn installed(folder: &Path) -> Option<String> {
    let text = ["version.py", "build-version"]
        .iter()
        .find_map(|file| std::fs::read_to_string(folder.join(file)).ok())?;
    let version = |line: &str| line.trim_start_matches("__version__ = ").trim_matches(['\'', '"']).to_owned();
    text.lines().map(version).find(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}
