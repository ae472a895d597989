//! C programs run against the two built libraries, one behaviour each.
//!
//! A program checks what it sees, and exits with 0 or writes to stderr what was wrong.
//! They are C because that is what the libraries serve: layouts and names are theirs, not Rust's.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Builds both libraries as cargo built this test, and puts them under their installed names.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
        let target = profile.parent().expect("target");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "gputrace-sim-cuda", "--package", "gputrace-sim-cupti"]);
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "the libraries do not build");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim-libraries");
        std::fs::create_dir_all(&folder).expect("a folder for the libraries");
        for (built, name) in [("libcuda.so", "libcuda.so.1"), ("libcupti.so", "libcupti.so.13")] {
            let installed = folder.join(name);
            // A fresh file each time: a test that still runs keeps what it has mapped.
            let _ = std::fs::remove_file(&installed);
            std::fs::copy(profile.join(built), &installed).expect("a built library");
        }
        folder
    })
}

/// `test` keeps the programs of tests that run at the same time apart.
fn compiled(test: &str, name: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = libraries().join(test);
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    cc.arg(sources.join(format!("{name}.c"))).arg(libraries().join("libcuda.so.1"));
    // Linked by file: cupti is found among the mapped libraries as any program's would be.
    cc.arg(libraries().join("libcupti.so.13")).arg("-ldl");
    assert!(cc.status().expect("a C compiler").success(), "{name}.c does not compile");
    program
}

fn run(test: &str, name: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(compiled(test, name));
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("GPUTRACE_")) {
        command.env_remove(variable);
    }
    command.env("LD_LIBRARY_PATH", libraries()).envs(variables.iter().copied());
    command.output().expect("the program runs")
}

fn check(test: &str, name: &str, variables: &[(&str, &str)]) {
    let output = run(test, name, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {variables:?}: {}\n{said}", output.status);
}

macro_rules! programs {
    ($($test:ident $name:literal $variables:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check(stringify!($test), $name, &$variables);
            }
        )*
    };
}

programs! {
    records_tell_what_ran "records" [];
    records_tell_what_ran_without_waiting "records" [("GPUTRACE_SIM_PACE", "off")];
    a_running_kernel_is_withheld "flush" [];
    graph_nodes_share_the_launch "graph_records" [];
    nodes_are_heard_of_as_they_are_made "graph_nodes" [];
    one_subscriber_at_a_time "subscribers" [];
    dead_handles_are_errors "handles" [];
    errors_come_on_demand "failures"
        [("GPUTRACE_SIM_FAIL", "cuMemAlloc_v2:2=2,cuLaunchKernel:*=700,cuStreamQuery_ptsz:1=999")];
    a_fault_stays "faults" [];
    a_fault_stays_without_pace "faults" [("GPUTRACE_SIM_PACE", "off")];
    eight_threads_lose_nothing "threads" [];
    streams_wait_for_each_other_as_stated "default_streams" [];
    a_forked_child_has_no_device "fork" [];
    without_pace_nothing_waits "pace" [("GPUTRACE_SIM_PACE", "off")];
    host_functions_hold_their_stream "host_order" [];
    host_functions_hold_their_stream_without_pace "host_order" [("GPUTRACE_SIM_PACE", "off")];
    look_ups_find_the_variant "look_ups" [];
    copies_between_devices "peers" [("GPUTRACE_SIM_DEVICES", "2")];
    copies_of_every_shape "shapes" [];
}

#[test]
fn graph_made_before_its_kind_went_on_ends_the_program() {
    let output = run("graph_made_before_its_kind_went_on_ends_the_program", "graph_too_early", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{said}");
    assert!(said.starts_with("launching\n"), "{said}");
}
