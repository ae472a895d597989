//! Bad input: each a clear message and a documented exit code. The texts are snapshots.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{self, calls, count, gputrace, run};

fn run_in(folder: &Folder, command: &[&str]) -> Ended {
    finish(gputrace().args(["run", "-o"]).arg(folder.join("out")).arg("--").args(command))
}

/// With the test's own folder written as DIR.
fn talk(ended: &Ended, folder: &Folder) -> String {
    ended.stderr.replace(folder.path().to_str().unwrap(), "DIR")
}

#[test]
fn missing_command_is_an_error() {
    let folder = Folder::new();
    let ended = run_in(&folder, &["no-such-command-anywhere"]).expect_code(127);
    assert_eq!(
        ended.stderr,
        "gputrace: cannot run no-such-command-anywhere: no such command\n  \
         hint: check the spelling and PATH; a file in this folder is ./no-such-command-anywhere\n"
    );
    assert!(!folder.join("out").exists(), "an empty output folder was left behind");
}

#[test]
fn script_whose_interpreter_is_missing_is_an_error() {
    let folder = Folder::new();
    let script = folder.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run_in(&folder, &[script.to_str().unwrap()]).expect_code(126);
    assert_eq!(
        talk(&ended, &folder),
        "gputrace: cannot run DIR/script: the file is there, but not the interpreter or loader that it names\n  \
         hint: see its first line, or file DIR/script\n"
    );
}

#[test]
fn command_that_is_not_executable_is_an_error() {
    let folder = Folder::new();
    let file = folder.join("data");
    fs::write(&file, "no program").unwrap();
    let ended = run_in(&folder, &[file.to_str().unwrap()]).expect_code(126);
    assert_eq!(
        talk(&ended, &folder),
        "gputrace: cannot run DIR/data: permission denied\n  hint: is it a program, and executable? chmod +x DIR/data\n"
    );
}

#[test]
fn empty_command_is_an_error() {
    let ended = finish(gputrace().arg("run")).expect_code(2);
    assert!(ended.stderr.contains("<CMD>"), "{}", ended.stderr);
}

#[test]
fn mistyped_option_of_run_is_no_command() {
    for (mistyped, meant) in [("--otuput=x", "--output"), ("--device-time", "--device-times")] {
        let ended = finish(gputrace().args(["run", mistyped, "--", "true"])).expect_code(2);
        assert!(ended.stderr.contains(&format!("'{meant}'")), "{mistyped}: {}", ended.stderr);
    }
    finish(gputrace().args(["run", "--bogus", "true"])).expect_code(2);
    // What follows the command is the command's own, and -- allows any command.
    let folder = Folder::new();
    assert_eq!(run_in(&folder, &["--bogus"]).code(), Some(127));
    let mut without_dashes = gputrace();
    without_dashes.args(["run", "-o"]).arg(folder.join("out")).args(["sh", "-c", "exit 9", "--output"]);
    finish(&mut without_dashes).expect_code(9);
}

#[test]
fn empty_output_is_none() {
    let folder = Folder::new();
    let mut command = gputrace();
    let ended = finish(command.current_dir(folder.path()).args(["run", "-o", "", "--", "true"]));
    assert!(ended.expect_code(2).stderr.contains("--output"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn output_folder_that_cannot_be_made_is_an_error() {
    let ended = finish(gputrace().args(["run", "-o", "/proc/nowhere", "--", "true"])).expect_code(125);
    assert!(
        ended.stderr.starts_with("gputrace: cannot write to the output folder /proc/nowhere: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn full_disk_is_reported_and_the_program_s_code_kept() {
    // A limit on file sizes stands in for a full disk: writing fails after so many bytes.
    let folder = Folder::new();
    let program = crate::harness::program::compiled("many", crate::harness::program::Link::Driver);
    let script = format!(
        "ulimit -f 4; trap '' XFSZ; exec {} run --simulate -o {} -- sh -c 'ulimit -f unlimited 2>/dev/null; {} 20000; exit 6'",
        env!("CARGO_BIN_EXE_gputrace"),
        folder.join("out").display(),
        program.display()
    );
    let mut command = Command::new("sh");
    tool::clean(&mut command);
    let ended = finish(command.arg("-c").arg(script)).expect_code(6);
    assert!(ended.stderr.contains("cannot write"), "{}", ended.stderr);
}

#[test]
fn full_disk_is_reported_at_once_in_the_status_and_last() {
    let folder = Folder::new();
    tool::library();
    let script = "ulimit -S -f 4; exec \"$0\" run --simulate -o \"$1\" -- sh -c 'ulimit -S -f unlimited; exec \"$0\" 6' \"$2\"";
    let mut command = Command::new("bash");
    tool::clean(&mut command);
    command.args(["-c", script]).arg(gputrace().get_program()).arg(folder.join("out"));
    let mut session = Session::start(command.arg(compiled("on_demand", Link::Driver)));
    let status = eventually("the end of the trace", || {
        session.write("10000\n");
        assert_eq!(session.line(), "10000");
        let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["recording"]["trace_ends_at_byte"].as_u64()
    });
    assert!((1..=4096).contains(&status), "{status}");
    let text = ctl(session.pid(), &["status"]).expect_code(0).stdout;
    assert!(text.contains(&format!("the trace after its first {status} bytes")), "{text}");
    let (ended, said) = session.end();
    assert_eq!(ended.code(), Some(6), "{said}");
    assert!(said.starts_with("gputrace: cannot write the trace file"), "{said}");
    let last = said.lines().last().unwrap();
    // The end may have found room for what is left to write, or none.
    assert!(last.contains(" not_in_trace"), "{said}");
}

/// By somebody who tidies up: the program goes on, and nobody is told that there is a trace.
#[test]
fn output_folder_that_is_removed_or_moved_meanwhile_is_reported() {
    for moves in [false, true] {
        let folder = Folder::new();
        let mut session = Session::run(&folder, &[], compiled("on_demand", Link::Driver), &["6"]);
        session.write("10\n");
        assert_eq!(session.line(), "10");
        let out = folder.join("out");
        if moves {
            fs::rename(&out, folder.join("elsewhere")).unwrap();
        } else {
            fs::remove_dir_all(&out).unwrap();
        }
        let (ended, said) = session.end();
        assert_eq!(ended.code(), Some(6), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.contains("lost: the trace, which was removed or moved)"), "{said}");
        assert!(said.contains("\n  hint: "), "{said}");
    }
}

/// As production starts it: no -o, in a folder that takes nothing.
#[test]
fn trace_that_is_given_twice_counts_once() {
    let traced = run("basic").succeed();
    let folder = traced.trace().parent().unwrap().to_owned();
    let ended = finish(gputrace().args(["report", "--json"]).arg(&folder).arg(traced.trace()));
    assert!(ended.code() == Some(0) && ended.stderr.contains("is given twice, and read once"), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(count(&report, "launches"), 10, "{report:#}");
}

#[test]
fn default_folder_that_cannot_be_made_is_made_elsewhere() {
    for spoil in ["echo > gputrace-out", "rmdir \"$PWD\""] {
        let folder = Folder::new();
        let (gone, temporary) = (folder.join("gone"), folder.join("temporary"));
        fs::create_dir(&gone).unwrap();
        fs::create_dir(&temporary).unwrap();
        let mut command = Command::new("bash");
        tool::clean(&mut command);
        let script = format!("{spoil}; exec \"$0\" run --simulate -- \"$1\"");
        command.args(["-c", &script]).arg(gputrace().get_program()).arg(compiled("basic", Link::Driver));
        let ended = finish(command.current_dir(&gone).env("TMPDIR", &temporary)).expect_code(0);
        assert!(ended.stderr.starts_with("gputrace: cannot "), "{}", ended.stderr);
        assert!(ended.stderr.contains("\n  hint: "), "{}", ended.stderr);
        assert!(ended.stderr.contains("gputrace: warning: the outputs go to "), "{}", ended.stderr);
        let made: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().map(|entry| entry.path()).collect();
        let [made] = made.as_slice() else { panic!("{made:?}: {}", ended.stderr) };
        assert_eq!(count(&tool::report(&[made.join("trace.gputrace")]), "launches"), 10);
    }
}

#[test]
fn command_runs_untraced_where_nothing_can_be_written() {
    let folder = Folder::new();
    let script = "echo > gputrace-out; exec \"$0\" run -- bash -c 'echo ran $LD_PRELOAD; kill -TERM $$'";
    let mut command = Command::new("bash");
    tool::clean(&mut command);
    command.args(["-c", script]).arg(gputrace().get_program());
    let ended = finish(command.current_dir(folder.path()).env("TMPDIR", "/proc"));
    assert_eq!(ended.signal(), Some(libc::SIGTERM), "{}", ended.stderr);
    assert_eq!(ended.stdout, "ran\n");
    assert!(ended.stderr.ends_with("gputrace: warning: the command runs untraced\n"), "{}", ended.stderr);
    // What is no command is none still.
    let script = "exec \"$0\" run -- no-such-command-anywhere";
    let mut command = Command::new("bash");
    tool::clean(&mut command);
    command.args(["-c", script]).arg(gputrace().get_program());
    finish(command.current_dir(folder.path()).env("TMPDIR", "/proc")).expect_code(127);
}

#[test]
fn program_with_a_long_name_is_traced() {
    let folder = Folder::new();
    let program = folder.join(&"long".repeat(60));
    fs::copy(compiled("basic", Link::Driver), &program).unwrap();
    let ended = finish(gputrace().args(["run", "--simulate", "--"]).arg(&program).current_dir(folder.path()));
    assert!(ended.expect_code(0).stderr.contains("nothing lost"));
    assert_eq!(fs::read_dir(folder.join("gputrace-out")).unwrap().count(), 1);
}

fn report_on(path: &Path) -> Ended {
    finish(gputrace().arg("report").arg(path))
}

#[test]
fn missing_trace_is_an_error() {
    let ended = report_on(Path::new("/nonexistent/trace.gputrace")).expect_code(66);
    assert_eq!(ended.stderr, "gputrace: there is no trace file /nonexistent/trace.gputrace\n");
}

#[test]
fn file_that_is_no_trace_is_an_error() {
    let folder = Folder::new();
    let file = folder.join("x");
    fs::write(&file, "this is something else altogether, long enough to hold any header\n".repeat(9))
        .unwrap();
    let ended = report_on(&file).expect_code(65);
    assert_eq!(talk(&ended, &folder), "gputrace: DIR/x is not a gputrace trace: it does not begin as one\n");
}

#[test]
fn empty_file_is_an_error() {
    let folder = Folder::new();
    fs::write(folder.join("x"), "").unwrap();
    report_on(&folder.join("x")).expect_code(65);
}

#[test]
fn truncated_trace_is_read_to_its_last_whole_block() {
    let traced = run("many").arg("200000").env("GPUTRACE_SIM_PACE", "off").succeed();
    let bytes = fs::read(traced.trace()).unwrap();
    let folder = Folder::new();
    let cut = folder.join("cut");
    fs::write(&cut, &bytes[..bytes.len() * 3 / 4]).unwrap();
    let ended = finish(gputrace().args(["report", "--json"]).arg(&cut)).expect_code(3);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let read = count(&report, "launches");
    assert!(read > 0 && read < 200_000, "{read}");
    assert!(
        ended.stderr.contains("DIR/cut") || ended.stderr.contains(cut.to_str().unwrap()),
        "{}",
        ended.stderr
    );
    // The flamegraph of what is left is made too.
    let folded = finish(gputrace().args(["flamegraph", "--folded"]).arg(&cut)).expect_code(3);
    assert!(folded.stdout.contains("first_kernel"));
}

#[test]
fn memory_of_a_truncated_trace_is_what_is_known_of_it() {
    if !needs::python("bad_input::memory_of_a_truncated_trace_is_what_is_known_of_it") {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/programs/memory_use.py");
    let traced = tool::run_command("python3").arg(program).arg("leak").succeed();
    let bytes = fs::read(traced.trace()).unwrap();
    let folder = Folder::new();
    let cut = folder.join("cut");
    let mut found = 0;
    for part in 1..20 {
        fs::write(&cut, &bytes[..bytes.len() * part / 20]).unwrap();
        let ended = finish(gputrace().args(["memory", "--json"]).arg(&cut));
        assert!(matches!(ended.code(), Some(3 | 65)) && !ended.stderr.is_empty(), "{part}: {ended:?}");
        let Ok(document) = serde_json::from_str::<serde_json::Value>(&ended.stdout) else { continue };
        for process in document["processes"].as_array().unwrap() {
            let of = |name: &str| process[name].as_u64().unwrap();
            assert!(of("peak_bytes") <= 576 << 20 && of("peak_allocations") <= 65, "{part}: {process}");
            assert_eq!(process["unmatched_frees"]["unknown"], 0, "{part}");
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn trace_cut_anywhere_is_read_or_refused() {
    let traced = run("graph").succeed();
    let bytes = fs::read(traced.trace()).unwrap();
    let folder = Folder::new();
    let cut = folder.join("cut");
    for length in (0..bytes.len()).step_by(bytes.len().div_ceil(60)) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let ended = report_on(&cut);
        assert!(matches!(ended.code(), Some(3 | 65)), "{length}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{length}: nothing was said");
    }
}

#[test]
fn damaged_block_is_noticed() {
    let traced = run("many").arg("200000").env("GPUTRACE_SIM_PACE", "off").succeed();
    let mut bytes = fs::read(traced.trace()).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 16] {
        *byte ^= 0x5a;
    }
    let folder = Folder::new();
    let damaged = folder.join("damaged");
    fs::write(&damaged, &bytes).unwrap();
    let ended = finish(gputrace().args(["report", "--json"]).arg(&damaged)).expect_code(3);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(calls(&report, "first_kernel") < 200_000);
    assert!(ended.stderr.contains("damaged"), "{}", ended.stderr);
}

#[test]
fn trace_of_a_newer_format_is_refused() {
    let traced = run("basic").succeed();
    let mut bytes = fs::read(traced.trace()).unwrap();
    // The major version: docs/FORMAT.md, "The trace file".
    bytes[10] = bytes[10].wrapping_add(1);
    // The writer's version, which every later format has here.
    bytes[20..44].fill(0);
    bytes[20..26].copy_from_slice(b"12.3.4");
    let folder = Folder::new();
    let newer = folder.join("newer");
    fs::write(&newer, &bytes).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "gputrace: the trace file DIR/newer needs gputrace 12.3.4 or newer: it has format version 2.4, and this is \
         gputrace {own}, which reads version 1\n"
    );
    for command in [&["report"][..], &["flamegraph"], &["export", "--format", "otlp-json"]] {
        let ended = finish(gputrace().args(command).arg(&newer)).expect_code(65);
        assert_eq!(talk(&ended, &folder), expected);
    }
}

#[test]
fn flamegraph_that_cannot_be_written_is_an_error() {
    let traced = run("basic").succeed();
    let ended =
        finish(gputrace().arg("flamegraph").arg(traced.trace()).args(["-o", "/proc/x.svg"])).expect_code(73);
    assert!(ended.stderr.starts_with("gputrace: cannot write /proc/x.svg: "), "{}", ended.stderr);
}

/// The output is found to be an input by what it is, not by how it is spelt.
#[test]
fn flamegraph_never_overwrites_a_trace_that_it_is_made_of() {
    let traced = run("basic").succeed();
    let before = fs::read(traced.trace()).unwrap();
    let folder = Folder::new();
    let link = folder.join("link.svg");
    std::os::unix::fs::symlink(traced.trace(), &link).unwrap();
    for output in [traced.trace(), traced.output.join("../out/trace.gputrace"), link] {
        let mut command = gputrace();
        let ended = finish(command.arg("flamegraph").arg(&traced.output).arg("-o").arg(&output));
        let ended = ended.expect_code(2);
        assert!(ended.stderr.contains("it is one of the traces to read"), "{}", ended.stderr);
        assert_eq!(fs::read(traced.trace()).unwrap(), before);
    }
}

#[test]
fn library_of_another_version_is_refused_and_the_program_runs() {
    // The wire's version word is a constant in the library; a copy with another major is built
    // by changing it where HELLO and the segment carry it would be guesswork, so the collector
    // is spoken to directly.
    if !needs::python("bad_input::library_of_another_version_is_refused_and_the_program_runs") {
        return;
    }
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "-o"]).arg(folder.join("out")).arg("--");
    command.arg("python3").arg("-c").arg(OTHER_VERSION);
    let ended = finish(&mut command).expect_code(0);
    assert_eq!(ended.stdout, "refused\n");
    assert!(ended.stderr.contains("version"), "{}", ended.stderr);
}

/// A client that says HELLO in the name of a major version from the future.
const OTHER_VERSION: &str = r"
import os, socket, struct
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(os.environ['GPUTRACE_SESSION'])
memory = os.memfd_create('segment', os.MFD_ALLOW_SEALING)
os.truncate(memory, 1 << 20)
head = struct.pack('<4sIIIIIQ', b'GTS1', 99 << 16, 1, os.getpid(), 1, 0, 0)
s.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', memory))])
answer = s.recv(65536)
print('refused' if struct.unpack('<I', answer[8:12])[0] == 17 else answer)
";
