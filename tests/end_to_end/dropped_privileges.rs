//! Processes that become another user's under `run`: they run as without us, and the record says that it
//! lacks them. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{clean, report};
use crate::harness::users::SharedFolder;

/// The live report, the trace's, and the summary: each lacks the processes and says so.
#[track_caller]
fn says_who_is_missing(shared: &SharedFolder, ended: &Ended, name: &str) {
    assert!(!ended.stderr.contains("ld.so"), "{}", ended.stderr);
    let live: Value = serde_json::from_slice(&fs::read(shared.join("live.json")).unwrap()).unwrap();
    let out = shared.join("out");
    let read = report(&[out.join("trace.gputrace")]);
    for report in [&live, &read] {
        assert_eq!(report["complete"], false, "{report:#}");
        let notices = report["notices"].as_array().unwrap();
        let texts: Vec<_> = notices.iter().map(|notice| notice["text"].as_str().unwrap()).collect();
        let found = texts.iter().any(|text| {
            text.starts_with("not recorded: process ")
                && text.contains(&format!(" ({name}) runs as user "))
                && text.contains("65534")
                && text.ends_with(" gputrace run -- CMD")
        });
        assert!(found, "{texts:?}");
    }
    let summary = fs::read_to_string(out.join("summary.txt")).unwrap();
    assert!(summary.contains("not recorded: process "), "{summary}");
    assert!(ended.stderr.contains("gputrace: warning: not recorded: process "), "{}", ended.stderr);
}

/// As root, with a cache that others can read.
fn run(shared: &SharedFolder) -> Command {
    let mut command = shared.gputrace(0);
    command.env("GPUTRACE_CACHE", shared.join("cache"));
    command.args(["run", "--simulate", "--json"]).arg(shared.join("live.json"));
    command.arg("-o").arg(shared.join("out")).arg("--").arg(shared.program("drops_privileges"));
    command
}

#[test]
fn dropped_privileges_make_the_record_incomplete() {
    let Some(shared) = SharedFolder::new("dropped_privileges_make_the_record_incomplete") else { return };
    for how in ["fork", "itself"] {
        let ended = finish(run(&shared).arg(how)).expect_code(0);
        assert_eq!(ended.stdout, "done\n", "{how}: {}", ended.stderr);
        let said = ended.stderr.lines().filter(|line| line.starts_with("gputrace: not tracing: ")).count();
        assert_eq!(said, 1, "{how}: {}", ended.stderr);
        says_who_is_missing(&shared, &ended, "drops_privilege");
    }
}

/// `setpriv`, `su` and `gosu` do this. It ends at once: the command itself is seen however short it lives.
#[test]
fn dropped_privileges_before_an_exec_make_the_record_incomplete() {
    let Some(shared) = SharedFolder::new("dropped_privileges_before_an_exec_make_the_record_incomplete")
    else {
        return;
    };
    let ended = finish(run(&shared).arg("exec").arg(shared.program("basic"))).expect_code(0);
    says_who_is_missing(&shared, &ended, "basic");
    assert!(
        ended.stderr.contains("not tracing: the session at GPUTRACE_SESSION is another user's"),
        "{}",
        ended.stderr
    );
}

/// root's own cache folder is usually closed to others. Then the library lies in the system's, which this
/// test has one of its own of.
#[test]
fn dropped_privileges_leave_the_library_readable() {
    let test = "dropped_privileges_leave_the_library_readable";
    let Some(shared) = SharedFolder::new(test) else { return };
    let home = shared.folder("home", 0, 0o700);
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        clean(&mut command);
        command.env_remove("GPUTRACE_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", &home);
        command.args([
            "-m",
            "sh",
            "-c",
            &format!("mount -t tmpfs -o mode=755 tmpfs /var/cache && {script}"),
            "sh",
        ]);
        command.arg(shared.join("gputrace")).arg(shared.join("out")).arg(shared.program("drops_privileges"));
        finish(command.arg(shared.program("basic")))
    };
    let mounted = shell("true");
    if mounted.code() != Some(0) {
        return needs::skipped(test, &format!("no file system can be mounted: {}", mounted.stderr));
    }
    let ended = shell("umask 077; exec \"$1\" run --simulate -o \"$2\" -- \"$3\" exec \"$4\"").expect_code(0);
    assert!(!ended.stderr.contains("ld.so"), "{}", ended.stderr);
    let lib =
        shell("umask 077; \"$1\" lib; stat -c '%a %u' /var/cache/gputrace/*/libgputrace.so").expect_code(0);
    assert!(
        lib.stdout.starts_with("/var/cache/gputrace/") && lib.stdout.ends_with("\n755 0\n"),
        "{}",
        lib.stdout
    );
    // Where others can enter it, it is the home's, as ever.
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let lib = shell("\"$1\" lib").expect_code(0);
    assert!(lib.stdout.starts_with(home.to_str().unwrap()), "{}", lib.stdout);
}

#[test]
fn privileges_that_are_kept_leave_the_record_complete() {
    let Some(shared) = SharedFolder::new("privileges_that_are_kept_leave_the_record_complete") else {
        return;
    };
    let mut command = shared.gputrace(0);
    command
        .env("GPUTRACE_CACHE", shared.join("cache"))
        .args(["run", "--simulate", "-o"])
        .arg(shared.join("out"));
    finish(command.arg("--").arg(shared.program("basic"))).expect_code(0);
    assert_eq!(report(&[shared.join("out/trace.gputrace")])["complete"], true);
}

/// A daemon has no parent of ours. root may read its environment, in which it has the session's variable.
#[test]
fn dropped_privileges_of_a_daemon_make_the_record_incomplete() {
    let Some(shared) = SharedFolder::new("dropped_privileges_of_a_daemon_make_the_record_incomplete") else {
        return;
    };
    let mut command = shared.gputrace(0);
    command
        .env("GPUTRACE_CACHE", shared.join("cache"))
        .args(["run", "--simulate", "-o"])
        .arg(shared.join("out"));
    let daemon = "(setsid setpriv --reuid 65534 --clear-groups sh -c 'sleep 1; exit 0' &); sleep 0.7";
    let ended = finish(command.args(["--", "sh", "-c", daemon])).expect_code(0);
    assert!(ended.stderr.contains("warning: not recorded: process"), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(!last.contains("nothing lost") && last.contains("not recorded"), "{last}");
    assert_eq!(report(&[shared.join("out/trace.gputrace")])["complete"], false);
}

/// The way that the message recommends is not itself reported.
#[test]
fn dropped_privileges_before_a_gputrace_of_their_own_leave_the_record_complete() {
    let Some(shared) =
        SharedFolder::new("dropped_privileges_before_a_gputrace_of_their_own_leave_the_record_complete")
    else {
        return;
    };
    let theirs = shared.folder("theirs", 65534, 0o700);
    let mut command = shared.gputrace(0);
    command
        .env("GPUTRACE_CACHE", shared.join("cache"))
        .args(["run", "--simulate", "-o"])
        .arg(shared.join("out"));
    command.args(["--", "setpriv", "--reuid", "65534", "--clear-groups", "env", "-u", "GPUTRACE_CACHE"]);
    command.arg(format!("HOME={}", theirs.display())).arg(shared.join("gputrace"));
    command.args(["run", "--simulate", "-o"]).arg(theirs.join("out")).arg("--").arg(shared.program("basic"));
    let ended = finish(&mut command).expect_code(0);
    let outer = ended.stderr.lines().last().unwrap();
    assert!(outer.contains("0 events, nothing lost"), "{}", ended.stderr);
    assert_eq!(report(&[shared.join("out/trace.gputrace")])["complete"], true, "{}", ended.stderr);
}
