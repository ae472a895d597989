//! Programs that the loader puts no library into, and places that take no files of ours.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{count, gputrace, report, run, run_command};
use crate::harness::users::SharedFolder;

const NOBODY: u32 = 65534;

/// The program runs and keeps its code; the warning is one line and comes before anything else.
#[track_caller]
fn runs_untraced(program: &Path, why: &str) {
    let ended = run_command(program).go().expect_code(9).ended;
    assert_eq!(ended.stdout, "ran\n");
    warned(&ended, program, why);
}

#[track_caller]
fn warned(ended: &Ended, program: &Path, why: &str) {
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.contains("cannot be traced")).collect();
    // A program that gains rights takes LD_PRELOAD from what it starts as well.
    let itself = if why.contains("is set") || why.contains("capabilities") { "" } else { " itself" };
    let begin = format!("gputrace: warning: {}{itself} cannot be traced because ", program.display());
    assert!(lines.len() == 1 && lines[0].starts_with(&begin) && lines[0].contains(why), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().next(), lines.first().copied());
}

fn executable(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The source linked statically, in the one or the other way; `None`, and said, without a
/// static C library.
fn static_program(test: &str, folder: &Folder, option: &str, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = folder.join("static");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let made = finish(compiler.arg(option).arg("-o").arg(&program).arg(source));
    if made.code() != Some(0) {
        needs::skipped(test, &format!("cc {option} makes no program here: {}", made.stderr));
        return None;
    }
    Some(program)
}

#[test]
fn static_program_is_reported_as_not_traced() {
    let test = "static_program_is_reported_as_not_traced";
    for option in ["-static", "-static-pie"] {
        let folder = Folder::new();
        if let Some(program) = static_program(test, &folder, option, "ends_with_nine") {
            runs_untraced(&program, "is linked statically");
        }
    }
}

/// As many launchers are that are written in Go or Rust.
#[test]
fn static_launcher_is_reported_to_pass_tracing_on() {
    let folder = Folder::new();
    let test = "static_launcher_is_reported_to_pass_tracing_on";
    let Some(launcher) = static_program(test, &folder, "-static", "becomes") else { return };
    let traced = run_command(&launcher).arg(compiled("basic", Link::Driver)).succeed();
    assert_eq!(count(&traced.report(), "launches"), 10);
    let line = traced.ended.stderr.lines().next().unwrap_or_default();
    let begin = format!("gputrace: warning: {} itself cannot be traced because ", launcher.display());
    assert!(line.starts_with(&begin), "{line}");
    assert!(line.ends_with("; the programs that it starts are traced"), "{line}");
}

#[test]
fn script_is_judged_by_its_interpreter() {
    let folder = Folder::new();
    let test = "script_is_judged_by_its_interpreter";
    if let Some(interpreter) = static_program(test, &folder, "-static", "ends_with_nine") {
        let script = format!("#! {} -x\n", interpreter.display());
        runs_untraced(&executable(folder.join("script"), script.as_bytes()), "/static is linked statically");
    }
    let plain = executable(folder.join("plain"), b"#!/bin/sh\nexit 4\n");
    let ended = run_command(&plain).go().expect_code(4).ended;
    assert!(!ended.stderr.contains("cannot be traced"), "{}", ended.stderr);
}

#[test]
fn program_that_gains_rights_is_reported_as_not_traced() {
    let folder = Folder::new();
    for (mode, why) in [(0o4755, "is setuid"), (0o2755, "is setgid")] {
        let program =
            executable(folder.join(&why[3..]), &fs::read(compiled("ends_with_nine", Link::Nothing)).unwrap());
        if chown(&program, Some(NOBODY), Some(NOBODY)).is_err() {
            let test = "program_that_gains_rights_is_reported_as_not_traced";
            return needs::skipped(test, "only root can give a program to another user");
        }
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        runs_untraced(&program, why);
        // Nobody gains anything by a program of one's own.
        chown(&program, Some(0), Some(0)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let ended = run_command(&program).go().expect_code(9).ended;
        assert!(!ended.stderr.contains("cannot be traced"), "{}", ended.stderr);
    }
}

/// Gives the file the right to bind low ports, as `setcap cap_net_bind_service=ep` does.
fn give_capability(path: &Path) -> std::io::Result<()> {
    // Revision 2, effective; the set of permitted ones in two halves, each with its inheritable one.
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: two C strings and a live buffer of that length.
    let rc = unsafe {
        libc::setxattr(name.as_ptr(), c"security.capability".as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0)
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Root gains nothing by it and is traced; another user's program is not.
#[test]
fn program_with_file_capabilities_is_reported_as_not_traced() {
    let test = "program_with_file_capabilities_is_reported_as_not_traced";
    let Some(shared) = SharedFolder::new(test) else { return };
    let program = shared.program("ends_with_nine");
    if let Err(error) = give_capability(&program) {
        return needs::skipped(test, &format!("no file capabilities can be given here: {error}"));
    }
    let home = shared.folder("home", NOBODY, 0o700);
    let mut command = shared.gputrace(NOBODY);
    command.arg("run").arg("-o").arg(home.join("out")).arg("--").arg(&program).env("HOME", &home);
    let ended = finish(&mut command).expect_code(9);
    assert_eq!(ended.stdout, "ran\n");
    warned(&ended, &program, "has file capabilities");
    let ended = run_command(&program).go().expect_code(9).ended;
    assert!(!ended.stderr.contains("cannot be traced"), "{}", ended.stderr);
}

#[test]
fn program_of_another_architecture_is_reported_as_not_traced() {
    let folder = Folder::new();
    let mut bytes = fs::read(compiled("ends_with_nine", Link::Nothing)).unwrap();
    // The machine in an ELF header; 22 is s390, which no emulator takes without its class.
    bytes[18..20].copy_from_slice(&22u16.to_le_bytes());
    let program = executable(folder.join("foreign"), &bytes);
    // What the kernel refuses is a script to execvp, ours and that of everybody else.
    let alone = finish(Command::new("env").arg(&program));
    let ended = run_command(&program).go().ended;
    assert_eq!((ended.code(), &ended.stdout), (alone.code(), &alone.stdout), "{}", ended.stderr);
    warned(&ended, &program, "is of another architecture");
}

/// No folder of the system's or the user's can be written to; the current one can.
#[test]
fn home_and_temporary_folder_may_be_read_only() {
    let ended = run("basic").env("TMPDIR", "/proc").env("HOME", "/proc").env("XDG_RUNTIME_DIR", "/proc").go();
    let started = ended.ended.code() == Some(0) && count(&ended.report(), "launches") == 10;
    let refused = ended.ended.code() == Some(125) && ended.ended.stderr.contains("\n  hint: ");
    assert!(started || refused, "{:?}\n{}", ended.ended.status, ended.ended.stderr);
}

#[test]
fn current_folder_that_was_deleted() {
    let folder = Folder::new();
    let gone = folder.join("gone");
    fs::create_dir(&gone).unwrap();
    let mut command = gputrace();
    let tool = command.get_program().to_owned();
    let cache = command.get_envs().find(|(name, _)| *name == "GPUTRACE_CACHE").and_then(|(_, value)| value);
    let cache = cache.unwrap().to_owned();
    command = Command::new("sh");
    command.args(["-c", "rmdir \"$PWD\" && exec \"$0\" run --simulate -o \"$1\" -- \"$2\""]).arg(tool);
    command.arg(folder.join("out")).arg(compiled("basic", Link::Driver));
    finish(command.current_dir(&gone).env("GPUTRACE_CACHE", cache)).expect_code(0);
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 10);
}
