//! What is embedded: one row a shared object.

pub struct Artifact {
    /// The file that cargo leaves for it.
    pub built_as: &'static str,
    /// The file name it has when it is extracted.
    pub name: &'static str,
    /// The constant that `embedded.rs` gives it.
    pub constant: &'static str,
}

pub const ARTIFACTS: [Artifact; 3] = [
    Artifact { built_as: "libgputrace.so", name: "libgputrace.so", constant: "LIBGPUTRACE" },
    Artifact { built_as: "libcuda.so", name: "libcuda.so.1", constant: "SIMULATED_DRIVER" },
    Artifact { built_as: "libcupti.so", name: "libcupti.so", constant: "SIMULATED_CUPTI" },
];

/// Folders that the artifacts are made from, besides the workspace's own two files.
pub const SOURCES: [&str; 6] = ["wire", "producer", "callstack", "cupti-sys", "interpose", "sim"];
