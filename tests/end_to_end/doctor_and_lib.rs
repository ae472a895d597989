//! `gputrace doctor` and `gputrace lib`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool::{self, clean_command, gputrace};
use crate::harness::users::{SharedFolder, VICTIM};

#[test]
fn lib_prints_a_private_library_with_the_program_beside_it() {
    let folder = Folder::new();
    let ended = finish(gputrace().arg("lib").env("GPUTRACE_CACHE", folder.path())).expect_code(0);
    let path = std::path::PathBuf::from(ended.stdout.trim_end());
    assert_eq!(path.file_name().unwrap(), "libgputrace.so");
    let found = fs::metadata(path.parent().unwrap()).unwrap();
    // What root starts may become another user's, who has to read the library.
    assert_eq!(found.mode() & 0o777, if found.uid() == 0 { 0o755 } else { 0o700 });
    let link = fs::read_link(path.with_file_name("gputrace")).unwrap();
    assert_eq!(link.canonicalize().unwrap(), fs::canonicalize(env!("CARGO_BIN_EXE_gputrace")).unwrap());
    assert_eq!(ended.stderr, "");
}

#[test]
fn lib_without_a_home_gives_a_hint() {
    // root has the system's cache folder.
    let shared = SharedFolder::new("lib_without_a_home_gives_a_hint");
    let mut command = shared.as_ref().map_or_else(gputrace, |shared| shared.gputrace(VICTIM));
    command.arg("lib").env_remove("GPUTRACE_CACHE").env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let ended = finish(&mut command).expect_code(1);
    assert_eq!(
        ended.stderr,
        "gputrace: no folder for the preload library: neither HOME nor XDG_CACHE_HOME is set\n  \
         hint: set GPUTRACE_CACHE to a folder of your own\n"
    );
}

#[test]
fn lib_refuses_a_path_that_the_loader_would_split() {
    let folder = Folder::new();
    let ended = finish(gputrace().arg("lib").env("GPUTRACE_CACHE", folder.join("a b"))).expect_code(1);
    assert!(ended.stderr.contains("has a space or a colon in it"), "{}", ended.stderr);
}

#[test]
fn doctor_accepts_the_simulated_device() {
    let mut command = gputrace();
    command.args(["doctor", "--json"]).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let ended = finish(&mut command).expect_code(0);
    let doctor: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(doctor["can_trace"], true);
    let subjects: Vec<_> =
        doctor["findings"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap()).collect();
    for subject in ["system", "memory", "session", "library", "driver", "device", "cupti"] {
        assert!(subjects.contains(&subject), "{subject}: {}", ended.stdout);
    }
}

#[test]
fn doctor_reports_why_there_is_no_device() {
    let mut command = gputrace();
    command.arg("doctor").env("LD_LIBRARY_PATH", tool::simulated_folder()).env("GPUTRACE_SIM_DEVICES", "0");
    let ended = finish(&mut command).expect_code(1);
    assert!(ended.stdout.contains("broken"), "{}", ended.stdout);
    assert!(ended.stdout.ends_with("what is broken is marked above.\n"), "{}", ended.stdout);
}

/// Programs are traced without device times then, which is no reason to say that they are not.
#[test]
fn doctor_names_a_libcupti_that_is_none() {
    let mut command = gputrace();
    command.arg("doctor").env("LD_LIBRARY_PATH", tool::simulated_folder());
    let ended = finish(command.env("GPUTRACE_CUPTI", "/etc/hostname")).expect_code(0);
    let line = ended.stdout.lines().find(|line| line.contains("GPUTRACE_CUPTI: /etc/hostname: "));
    assert!(line.is_some_and(|line| line.starts_with("cupti    limited ")), "{}", ended.stdout);
}

/// The package is NVIDIA's for the release that the driver supports.
#[test]
fn doctor_prints_the_command_that_installs_a_libcupti() {
    let folder = Folder::new();
    fs::copy(tool::simulated_folder().join("libcuda.so.1"), folder.join("libcuda.so.1")).unwrap();
    let ended = finish(gputrace().arg("doctor").env("LD_LIBRARY_PATH", folder.path())).expect_code(0);
    if !ended.stdout.contains("no libcupti found") {
        let test = "doctor_prints_the_command_that_installs_a_libcupti";
        return needs::skipped(test, "there is a libcupti here");
    }
    let supported = ended.stdout.split_once("supports CUDA ").unwrap().1;
    let major: u32 = supported.split('.').next().unwrap().parse().unwrap();
    let package = if major >= 13 { String::new() } else { format!("-cu{major}") };
    let command = format!(" $ pip install nvidia-cuda-cupti{package}\n");
    assert!(ended.stdout.contains(&command), "{command}: {}", ended.stdout);
}

#[test]
fn doctor_reports_that_the_library_is_switched_off() {
    let mut command = gputrace();
    command.arg("doctor").env("LD_LIBRARY_PATH", tool::simulated_folder()).env("GPUTRACE", "off");
    let ended = finish(&mut command).expect_code(1);
    assert!(ended.stdout.contains("GPUTRACE=off: the library does nothing"), "{}", ended.stdout);
}

/// Each case is a shell's line that makes a fault. Behind it come the commands that doctor prints for the
/// fault, and a second doctor that no longer finds it.
#[test]
fn doctor_prints_commands_that_mend_what_it_found() {
    let tool = gputrace();
    let programs = std::path::Path::new(tool.get_program()).parent().unwrap().to_owned();
    for (fault, finding) in [
        ("export GPUTRACE=off", "GPUTRACE=off"),
        ("export GPUTRACE_CUPTI=/etc/hostname", "GPUTRACE_CUPTI: /etc/hostname"),
        ("export LD_PRELOAD=/nowhere/libgputrace.so", "/nowhere/libgputrace.so, which is not there"),
        (
            "cp \"$(gputrace lib)\" .; echo >> libgputrace.so; export LD_PRELOAD=$PWD/libgputrace.so",
            "another gputrace's",
        ),
        ("export GPUTRACE_CACHE=\"$PWD/a b\"", "has a space or a colon in it"),
        ("export GPUTRACE_CACHE=/proc/gputrace", "cannot keep it in /proc/gputrace"),
        ("ulimit -S -n 40", "40 open files"),
        ("ulimit -S -v 4000000", "of address space"),
    ] {
        let folder = Folder::new();
        let doctor = |commands: &str| {
            let mut shell = clean_command("sh");
            let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
            shell.env("PATH", path).env("LD_LIBRARY_PATH", tool::simulated_folder());
            shell.args(["-c", &format!("{fault}\n{commands}\ngputrace doctor || true")]);
            finish(shell.current_dir(folder.path())).expect_code(0).stdout
        };
        let found = doctor("");
        let mut rows = found.lines().skip_while(|line| !line.contains(finding)).skip(1);
        assert!(rows.next().unwrap().trim_start().starts_with("hint: "), "{fault}: {found}");
        let commands: Vec<_> = rows.map_while(|line| line.trim_start().strip_prefix("$ ")).collect();
        assert!(!commands.is_empty(), "{fault}: {found}");
        let mended = doctor(&commands.join("\n"));
        if let Some(made) = commands[0].strip_prefix("export GPUTRACE_CACHE=") {
            fs::remove_dir_all(made).unwrap();
        }
        assert!(!mended.contains(finding) && mended.contains("can be traced here"), "{fault}: {mended}");
    }
}

#[test]
fn doctor_under_the_library_traces_nothing_and_says_that_programs_are() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.arg("doctor").env("LD_PRELOAD", tool::library()).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let ended = finish(command.current_dir(folder.path())).expect_code(0);
    assert!(ended.stdout.contains(": every CUDA program started here is traced\n"), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
