//! What lies in the output folder, and what is said on stderr.

use std::fs;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::Session;
use crate::harness::terminal::finish_on_terminal;
use crate::harness::tool::{self, count, gputrace, run};

#[test]
fn folded_lines_are_process_thread_call_kernel_and_microseconds() {
    let traced = run("basic").succeed();
    let folded = traced.read("flame.folded");
    let line =
        folded.lines().find(|line| line.contains(";first_kernel ")).unwrap_or_else(|| panic!("{folded}"));
    let (stack, weight) = line.rsplit_once(' ').unwrap();
    let frames: Vec<_> = stack.split(';').collect();
    assert_eq!(frames.len(), 4, "{line}");
    assert!(frames[0].contains("basic"), "{line}");
    assert_eq!(frames[2], "cuLaunchKernel", "{line}");
    assert_eq!(weight, "140", "{line}");
}

#[test]
fn drawing_states_that_it_is_simulated() {
    let svg = run("basic").succeed().read("flame.svg");
    assert!(svg.contains("<svg") && svg.contains("first_kernel"));
    assert!(svg.to_lowercase().contains("simulated"));
}

#[test]
fn stderr_ends_with_what_was_written_and_lost() {
    let traced = run("basic").succeed();
    let talk = &traced.ended.stderr;
    assert!(talk.contains(&traced.read("summary.txt")), "{talk}");
    let last = talk.lines().last().unwrap();
    assert!(last.contains(traced.output.to_str().unwrap()) && last.contains("nothing lost"), "{last}");
    let open = format!("; open {} in a browser", traced.output.join("flame.svg").display());
    assert!(last.ends_with(&open), "{last}");
    assert_eq!(traced.ended.stdout, "");
}

#[test]
fn output_folder_holds_nothing_else() {
    let traced = run("basic").succeed();
    let mut names: Vec<_> =
        fs::read_dir(&traced.output).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["flame-idle.svg", "flame.folded", "flame.svg", "summary.txt", "trace.gputrace"]);
}

#[test]
fn default_folder_is_named_after_the_program() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.current_dir(folder.path()).args(["run", "--simulate", "--"]);
    finish(command.arg(compiled("basic", Link::Driver))).expect_code(0);
    let made = fs::read_dir(folder.join("gputrace-out")).unwrap().next().unwrap().unwrap();
    let name = made.file_name().to_string_lossy().into_owned();
    let pid: u32 = name.strip_prefix("basic-").unwrap_or_else(|| panic!("{name}")).parse().unwrap();
    assert!(pid > 1);
}

#[test]
fn flamegraph_writes_to_a_file_too() {
    let traced = run("basic").succeed();
    let folder = Folder::new();
    let to = folder.join("x.svg");
    let ended = finish(gputrace().arg("flamegraph").arg(traced.trace()).arg("-o").arg(&to)).expect_code(0);
    assert_eq!(ended.stdout, "");
    assert_eq!(fs::read_to_string(to).unwrap(), traced.read("flame.svg"));
}

#[test]
fn flamegraph_on_a_terminal_writes_a_file_and_replaces_none() {
    let traced = run("basic").succeed();
    let drawing = traced.read("flame.svg");
    let folder = Folder::new();
    fs::write(folder.join("flame.svg"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("flame-2.svg")).unwrap();
    for made in ["flame-3.svg", "flame-4.svg"] {
        let mut command = gputrace();
        let command = command.current_dir(folder.path()).arg("flamegraph").arg(traced.trace());
        let (status, said) = finish_on_terminal(command, 80);
        assert!(status.success(), "{said}");
        assert_eq!(said, format!("gputrace: wrote {made}; open it in a browser\n"));
        assert_eq!(fs::read_to_string(folder.join(made)).unwrap(), drawing);
    }
    assert_eq!(fs::read_to_string(folder.join("flame.svg")).unwrap(), "mine");
    assert_eq!(names_in(folder.path()), ["flame-2.svg", "flame-3.svg", "flame-4.svg", "flame.svg"]);
    // Folded lines are text: they go to the terminal.
    let mut command = gputrace();
    command.current_dir(folder.path()).args(["flamegraph", "--folded"]).arg(traced.trace());
    let (status, folded) = finish_on_terminal(&mut command, 80);
    assert!(status.success() && folded == traced.read("flame.folded"), "{folded}");
    assert_eq!(names_in(folder.path()).len(), 4);
}

#[test]
fn flamegraph_chooses_the_format_by_the_file_s_ending() {
    let traced = run("basic").succeed();
    let folder = Folder::new();
    for (name, options, like) in [
        ("x.folded", &[][..], "flame.folded"),
        ("x.svg", &[], "flame.svg"),
        ("x", &[], "flame.svg"),
        ("y.svg", &["--folded"], "flame.folded"),
    ] {
        let mut command = gputrace();
        command.arg("flamegraph").args(options).arg(traced.trace()).arg("-o").arg(folder.join(name));
        finish(&mut command).expect_code(0);
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), traced.read(like), "{name}");
    }
}

#[test]
fn reader_that_goes_away_is_no_error() {
    let traced = run("basic").succeed();
    let script =
        format!("{} report --json {} | true", env!("CARGO_BIN_EXE_gputrace"), traced.trace().display());
    let ended = finish(tool::clean_command("sh").arg("-c").arg(script)).expect_code(0);
    assert_eq!(ended.stderr, "");
}

#[test]
fn session_folder_holds_the_library_without_a_cache_folder() {
    let report = run("basic").env("GPUTRACE_CACHE", "/proc/nowhere").succeed().report();
    assert_eq!(report["launches"], 10);
}

/// The names in a folder, in order.
fn names_in(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn folder_used_again_holds_the_new_run_alone_and_other_files() {
    let traced = run("basic").succeed();
    fs::write(traced.output.join("notes.txt"), "mine").unwrap();
    // While the second program runs, nothing of the first run lies beside its trace. It may begin
    // before the first run's files are gone; if they never go, it hangs and the test fails.
    let script = "while ls -A | grep -qv -e ^notes.txt$ -e ^trace.gputrace$; do sleep 0.01; done; ls -A";
    let mut again = gputrace();
    again.current_dir(&traced.output).args(["run", "-o", ".", "--", "sh", "-c", script]);
    assert_eq!(finish(&mut again).expect_code(0).stdout, "notes.txt\ntrace.gputrace\n");
    let expected = ["flame.folded", "flame.svg", "notes.txt", "summary.txt", "trace.gputrace"];
    assert_eq!(names_in(&traced.output), expected);
    assert_eq!(traced.report()["launches"], 0);
    assert_eq!(traced.read("notes.txt"), "mine");
}

#[test]
fn command_that_does_not_start_leaves_the_earlier_run_as_it_was() {
    let traced = run("basic").succeed();
    let contents =
        || names_in(&traced.output).into_iter().map(|name| fs::read(traced.output.join(name)).unwrap());
    let before: Vec<_> = contents().collect();
    for (command, code) in [("no-such-command-anywhere", 127), ("/etc", 126)] {
        let mut again = gputrace();
        again.args(["run", "-o"]).arg(&traced.output).arg("--").arg(command);
        finish(&mut again).expect_code(code);
        assert_eq!(contents().collect::<Vec<_>>(), before);
    }
}

/// Data that cannot be written has one code everywhere, and a reader that went away none.
#[test]
fn stdout_that_cannot_be_written_is_an_error() {
    let traced = run("basic").succeed();
    let trace = traced.trace().display().to_string();
    let shell = |script: String| {
        let mut command = std::process::Command::new("sh");
        crate::harness::tool::clean(&mut command);
        finish(command.args(["-c", &script]))
    };
    let program = env!("CARGO_BIN_EXE_gputrace");
    let commands = [
        format!("report {trace}"),
        format!("report --json {trace}"),
        format!("flamegraph {trace}"),
        "lib".into(),
        "doctor".into(),
        "--help".into(),
        "run --help".into(),
        "--version".into(),
        "help variables".into(),
    ];
    for arguments in commands {
        let full = shell(format!("{program} {arguments} >/dev/full")).expect_code(74);
        let expected = "gputrace: cannot write to stdout: no space left on device\n";
        assert_eq!(full.stderr, expected, "{arguments}");
        // The reader has gone for certain before anything is written.
        let broken = "exec 3>&1; { sleep 0.1; PROGRAM; echo $? >&3; } | true";
        let gone = shell(broken.replace("PROGRAM", &format!("{program} {arguments}"))).expect_code(0);
        assert_eq!(gone.stderr, "", "{arguments}");
        assert!(gone.stdout == "0\n" || arguments == "doctor", "{arguments}: {}", gone.stdout);
    }
}

#[test]
fn program_s_name_cannot_command_the_terminal() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let name = std::ffi::OsStr::from_bytes(b"n\nl\x1b[31m\xff");
    let program = folder.path().join(name);
    fs::copy(compiled("basic", Link::Driver), &program).unwrap();
    let mut command = gputrace();
    command.current_dir(folder.path()).args(["run", "--simulate", "--"]);
    let ended = finish(command.arg(&program)).expect_code(0);
    assert!(!ended.stderr.contains('\x1b'), "{:?}", ended.stderr);
    let made = names_in(&folder.join("gputrace-out"));
    assert!(made.len() == 1 && made[0].starts_with("n_l_[31m_-"), "{made:?}");
    let mut command = gputrace();
    let ended = finish(command.args(["run", "--", "no\x1b[31m\nsuch"])).expect_code(127);
    assert!(
        !ended.stderr.contains('\x1b') && ended.stderr.contains("no\\u{1b}[31m\\nsuch:"),
        "{:?}",
        ended.stderr
    );
}

/// As `mpirun -n 2 gputrace run -o out -- program` does.
#[test]
fn runs_with_one_folder_at_once_have_one_each() {
    let folder = Folder::new();
    let mut sessions: Vec<_> = [5, 7]
        .map(|launches: u32| {
            let mut session = Session::run(&folder, &[], compiled("on_demand", Link::Driver), &["6"]);
            session.write(&format!("{launches}\n"));
            assert_eq!(session.line(), launches.to_string());
            session
        })
        .into();
    let second = sessions[1].pid();
    for session in sessions.drain(..) {
        let (ended, said) = session.end();
        assert_eq!(ended.code(), Some(6), "{said}");
        assert!(said.lines().last().unwrap().contains("nothing lost"), "{said}");
    }
    let inside = folder.join("out").join(format!("on_demand-{second}"));
    for (out, launches) in [(folder.join("out"), 5), (inside, 7)] {
        assert_eq!(count(&tool::report(&[out.join("trace.gputrace")]), "launches"), launches);
        assert!(out.join("flame.svg").is_file() && out.join("summary.txt").is_file());
    }
}

/// In containers process ids come again: what a run left that crashed is what one wants most.
#[test]
fn default_folder_of_an_earlier_run_is_left_as_it_is() {
    let folder = Folder::new();
    let mut command = Command::new("bash");
    tool::clean(&mut command);
    let script = "out=gputrace-out/basic-$$; mkdir -p $out; echo earlier > $out/trace.gputrace; echo $$; \
                  exec \"$0\" run --simulate -- \"$1\"";
    command.args(["-c", script]).arg(gputrace().get_program()).arg(compiled("basic", Link::Driver));
    let ended = finish(command.current_dir(folder.path())).expect_code(0);
    let pid = ended.stdout.lines().next().unwrap();
    let base = folder.join("gputrace-out");
    assert_eq!(fs::read(base.join(format!("basic-{pid}/trace.gputrace"))).unwrap(), b"earlier\n");
    let others = fs::read_dir(&base).unwrap().flatten().map(|entry| entry.path());
    let others: Vec<_> = others.filter(|path| !path.ends_with(format!("basic-{pid}"))).collect();
    let [other] = others.as_slice() else { panic!("{others:?}: {}", ended.stderr) };
    assert_eq!(count(&tool::report(&[other.join("trace.gputrace")]), "launches"), 10);
}
