//! Programs in which the C library's functions are wrapped, and the wrappers look the real ones up at
//! their first call, as sanitizers and allocators do: the lookup must not call what is being looked up.

use std::path::Path;
use std::process::Command;

use crate::harness::life::{report_of_all, same_as_untraced};
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Run, bare_command, count, dropped, run_command};
use crate::harness::wrapper;

/// Programs, their arguments, and how often they launch.
const PROGRAMS: [(&str, &[&str], u64); 15] = [
    ("basic", &[], 10),
    ("threads", &[], 400),
    ("thread_churn", &[], 300),
    ("fork_first", &[], 10),
    ("fork_after", &[], 6),
    ("exec_after", &["/bin/true"], 2),
    ("spawns", &[], 5),
    ("nothing", &[], 0),
    ("ending", &["return"], 3),
    ("ending", &["exit"], 3),
    ("ending", &["_exit"], 3),
    ("ending", &["quick_exit"], 3),
    ("ending", &["syscall"], 3),
    ("ending", &["thread"], 3),
    ("ending", &["abort"], 3),
];

fn program(name: &str) -> std::path::PathBuf {
    compiled(name, if name == "nothing" { Link::Nothing } else { Link::Driver })
}

/// The program with that LD_PRELOAD and no tracing.
fn untraced(program: &Path, arguments: &[&str], preload: &str, switch: &str) -> Ended {
    let mut command = Command::new(program);
    tool::clean(&mut command);
    command.args(arguments).env("LD_PRELOAD", preload).env("GPUTRACE", switch);
    finish(command.env("LD_LIBRARY_PATH", tool::simulated_folder()))
}

#[track_caller]
fn same(alone: &Ended, seen: &Ended, how: &str) {
    let end = |ended: &Ended| (ended.code(), ended.signal(), ended.stdout.clone());
    assert_eq!(end(alone), end(seen), "{how}\n--- alone\n{alone:#?}\n--- beside us\n{seen:#?}");
}

/// In the order given, as the only difference to the program without us.
#[track_caller]
fn traced(run: Run, arguments: &[&str], alone: &Ended, launches: u64, how: &str) {
    let traced = arguments.iter().fold(run, |run, argument| run.arg(argument)).go();
    same(alone, &traced.ended, how);
    if launches > 0 {
        let report = report_of_all(&traced);
        assert_eq!(count(&report, "launches"), launches, "{how}: {report:#}");
        assert_eq!(dropped(&report), 0, "{how}: {report:#}");
    }
}

#[test]
fn wrapped_functions_are_nearly_all_imports() {
    let imports = wrapper::imports();
    let left_out: Vec<_> = imports.iter().filter(|name| wrapper::exemption(name).is_some()).collect();
    assert!(left_out.len() <= 16, "{left_out:?}");
    assert_eq!(wrapper::wrapped().len() + left_out.len(), imports.len());
    assert!(imports.iter().any(|name| name == "malloc") && imports.len() > 30, "{imports:?}");
}

#[test]
fn wrapped_functions_find_the_real_ones_where_tracing_is_off() {
    for (name, arguments, _) in PROGRAMS {
        let program = program(name);
        let alone = untraced(&program, arguments, wrapper::library().to_str().unwrap(), "");
        for order in wrapper::orders() {
            let off = untraced(&program, arguments, &order, "off");
            same(&alone, &off, &format!("{name} {arguments:?} {order}"));
            assert_eq!(alone.stderr, off.stderr, "{name} {arguments:?} {order}");
        }
    }
}

#[test]
fn wrapped_functions_find_the_real_ones_with_auto_collect() {
    for (name, arguments, launches) in PROGRAMS {
        let program = program(name);
        let alone = untraced(&program, arguments, wrapper::library().to_str().unwrap(), "");
        for order in wrapper::orders() {
            let run = bare_command(&program).env("LD_PRELOAD", &order);
            traced(run, arguments, &alone, launches, &format!("{name} {arguments:?} {order}"));
        }
    }
}

/// `run` preloads its library into `env`, which starts the program with the order that is tested.
#[test]
fn wrapped_functions_find_the_real_ones_under_run() {
    for (name, arguments, launches) in PROGRAMS {
        let program = program(name);
        let alone = untraced(&program, arguments, wrapper::library().to_str().unwrap(), "");
        for order in wrapper::orders() {
            let run = run_command("env").arg(format!("LD_PRELOAD={order}")).arg(&program);
            traced(run, arguments, &alone, launches, &format!("{name} {arguments:?} {order}"));
        }
    }
}

/// What our own code may call on each path of watched_paths.c; on the others, nothing. The two of `exit`
/// neither block nor allocate; the C runtime of every library calls the third as the library is left.
const MAY_BE_CALLED: [(&str, &[&str]); 1] =
    [("exit", &["clock_gettime", "pthread_setcancelstate", "__cxa_finalize"])];

/// Signals, allocation, locks, stdio and the environment may all be somebody's own: on these paths our
/// code calls nothing of the C library that can be wrapped.
#[test]
fn wrapped_functions_are_not_called_by_lookups_forks_and_ends() {
    let program = compiled("watched_paths", Link::Driver);
    for how in ["return", "_exit", "quick_exit"] {
        for order in wrapper::orders() {
            for switch in ["on", "off"] {
                let ended =
                    bare_command(&program).arg(how).env("LD_PRELOAD", &order).env("GPUTRACE", switch).go();
                let ended = ended.expect_code(5).ended;
                let watched = ended.stderr.lines().filter_map(|line| line.strip_prefix("watched "));
                let calls = watched.filter_map(|line| line.split_once(": "));
                let surplus: Vec<_> = calls
                    .filter(|(path, name)| {
                        !MAY_BE_CALLED.iter().any(|(of, may)| of == path && may.contains(name))
                    })
                    .collect();
                assert_eq!(surplus, [], "{how}, GPUTRACE={switch}, {order}");
            }
        }
    }
}

/// The smallest: the program's own `pthread_sigmask`, looked up at its first use.
#[test]
fn wrapped_pthread_sigmask_of_the_program_finds_the_real_one() {
    same_as_untraced("own_sigmask", &[]).launches(2);
    let program = compiled("own_sigmask", Link::Driver);
    let off = untraced(&program, &[], tool::library().to_str().unwrap(), "off").expect_code(7);
    assert_eq!(off.stdout, untraced(&program, &[], "", "").stdout);
}
