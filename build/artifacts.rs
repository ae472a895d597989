//! What is embedded: one row a shared object.

pub struct Artifact {
    /// The workspace package that makes it.
    pub package: &'static str,
    /// Whether it is compiled as one unit, as cargo's `lto` says it.
    pub lto: &'static str,
    /// The file that cargo leaves for it.
    pub built_as: &'static str,
    /// The file name it has when it is extracted.
    pub name: &'static str,
    /// The constant that `embedded.rs` gives it.
    pub constant: &'static str,
}

/// What runs inside of programs is compiled as one unit: a launch's hook then runs through less code. The
/// simulated device is not, as that changes how many bytes its thread-locals have. With 224 of them,
/// LeakSanitizer takes the allocator's words before them for the C library's, and fails
/// (`tests/end_to_end/sanitizers.rs`).
pub const ARTIFACTS: [Artifact; 3] = [
    Artifact {
        package: "gputrace-interpose",
        lto: "fat",
        built_as: "libgputrace.so",
        name: "libgputrace.so",
        constant: "LIBGPUTRACE",
    },
    Artifact {
        package: "gputrace-sim-cuda",
        lto: "false",
        built_as: "libcuda.so",
        name: "libcuda.so.1",
        constant: "SIMULATED_DRIVER",
    },
    Artifact {
        package: "gputrace-sim-cupti",
        lto: "false",
        built_as: "libcupti.so",
        name: "libcupti.so",
        constant: "SIMULATED_CUPTI",
    },
];

/// Folders that the artifacts are made from, besides the workspace's own two files.
pub const SOURCES: [&str; 6] = ["wire", "producer", "callstack", "cupti-sys", "interpose", "sim"];
