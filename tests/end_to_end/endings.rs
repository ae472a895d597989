//! However a program ends, its code or signal is kept and what it published is read.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::life::{report_of_all, same_as_untraced};
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Traced, bare_command, calls, count, run, run_command};

/// How a program ended, and how many of its launches have a device record.
#[track_caller]
fn ending(how: &str) -> Traced {
    let lives = same_as_untraced("ending", &[how]);
    lives.launches(3);
    lives.run
}

#[test]
fn ends_that_run_handlers_keep_everything() {
    for how in ["return", "exit", "thread", "main_thread_leaves"] {
        let traced = ending(how).expect_code(5);
        assert_eq!(calls(&traced.report(), "first_kernel"), 3, "{how}");
    }
}

#[test]
fn ends_that_run_no_handlers_keep_everything() {
    for how in ["_exit", "_Exit", "quick_exit"] {
        let traced = ending(how).expect_code(5);
        assert_eq!(calls(&traced.report(), "first_kernel"), 3, "{how}");
    }
}

#[test]
fn ends_that_nobody_can_catch_keep_everything() {
    ending("syscall").expect_code(5);
    assert_eq!(ending("kill").ended.signal(), Some(libc::SIGKILL));
}

/// Nothing of ours runs at a raw `exit_group`, so the latest records are not asked for.
#[test]
fn raw_exit_group_keeps_all_counts_and_counts_the_missing_times() {
    let traced = run("ending").arg("go").go().expect_code(5);
    let report = traced.report();
    assert_eq!((count(&report, "launches"), count(&report, "executed_operations")), (20, 20));
    let missing = count(&report, "untimed_operations");
    assert!(missing > 0, "{report:#}");
    assert_eq!(count(&report, "timed_operations") + missing, 20, "{report:#}");
    // The host waited for all of them.
    assert_eq!(report["in_flight"], serde_json::json!([]));
    let summary = traced.read("summary.txt").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(summary.contains(&format!("device times of {missing} operations")), "{summary}");
    assert!(summary.contains("ended without exit handlers"), "{summary}");
}

#[test]
fn signal_that_kills_the_program_kills_us_the_same_way() {
    assert_eq!(ending("abort").ended.signal(), Some(libc::SIGABRT));
    assert_eq!(ending("segv").ended.signal(), Some(libc::SIGSEGV));
}

#[test]
fn main_thread_may_leave_while_others_launch() {
    same_as_untraced("main_leaves", &[]).launches(2000);
}

/// The one that loses the race must not end the process under the one that hands over.
#[test]
fn threads_that_end_the_program_at_once_do_no_harm() {
    for _ in 0..5 {
        same_as_untraced("ends_twice", &[]).launches(2000).each(|report, how| {
            assert_eq!(calls(report, "first_kernel"), 2000, "{how}");
            assert_eq!(report["untimed_operations"], 0, "{how}");
        });
    }
}

/// A program that launches on demand and ends when its orders do, with code 7.
struct OnDemand(Child);

impl OnDemand {
    fn start(command: &mut Command) -> OnDemand {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "1000").unwrap();
        let mut done = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        done.read_line(&mut line).unwrap();
        assert_eq!(line, "1000\n");
        OnDemand(child)
    }

    /// Lets it end: what it said on stderr, and how long it took.
    fn end(mut self) -> (Option<i32>, String, Duration) {
        drop(self.0.stdin.take());
        let began = Instant::now();
        let status = self.0.wait().unwrap();
        let took = began.elapsed();
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said, took)
    }
}

fn send(pid: i32, signal: i32) {
    // SAFETY: plain numbers; the process is one that this test made.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// The collector of that program with auto-collect, by its command line.
fn collector_of(program: u32) -> i32 {
    let wanted = format!("collect\0--fd\03\0--pid\0{program}\0");
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).ends_with(&wanted).then_some(pid)
    });
    let found: Vec<_> = processes.collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// The promise is two seconds; the rest is for a machine with other things to do.
const STOPPED_MOST: Duration = Duration::from_secs(12);

#[test]
fn stopped_collector_delays_the_end_by_two_seconds_at_most() {
    let folder = Folder::new();
    let mut command = Command::new(compiled("on_demand", Link::Driver));
    tool::clean(&mut command);
    command.arg("7").env("LD_PRELOAD", tool::library()).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let program = OnDemand::start(command.env("GPUTRACE_OUT", folder.join("out")));
    let collector = collector_of(program.0.id());
    send(collector, libc::SIGSTOP);
    let (code, said, took) = program.end();
    send(collector, libc::SIGCONT);
    assert_eq!(code, Some(7), "{said}");
    assert!(took < STOPPED_MOST, "{took:?}\n{said}");
    assert!(said.contains("the collector did not finish in time"), "{said}");
    let trace = folder.join("out/trace.gputrace");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let read = finish(tool::gputrace().args(["report", "--json"]).arg(&trace));
        if read.code() == Some(0) {
            let report: Value = serde_json::from_str(&read.stdout).unwrap();
            break assert_eq!(count(&report, "launches"), 1_000, "{report:#}");
        }
        assert!(Instant::now() < deadline, "{}", read.stderr);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Under `run` nobody waits for anything: the program is gone while `run` itself stands still.
#[test]
fn stopped_run_does_not_delay_its_program_s_end() {
    let folder = Folder::new();
    let mut command = tool::gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--");
    let mut run = OnDemand::start(command.arg(compiled("on_demand", Link::Driver)).arg("7"));
    let pid = run.0.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let program: i32 = children.trim().parse().unwrap_or_else(|error| panic!("{children:?}: {error}"));
    send(pid.cast_signed(), libc::SIGSTOP);
    drop(run.0.stdin.take());
    let began = Instant::now();
    let is_over = || fs::read_to_string(format!("/proc/{program}/stat")).unwrap().contains(") Z ");
    while !is_over() && began.elapsed() < STOPPED_MOST {
        std::thread::sleep(Duration::from_millis(5));
    }
    let over = is_over();
    send(pid.cast_signed(), libc::SIGCONT);
    let (code, said, _) = run.end();
    assert!(over, "{said}");
    assert_eq!(code, Some(7), "{said}");
    assert_eq!(count(&tool::report(&[folder.join("out/trace.gputrace")]), "launches"), 1_000);
}

/// Each child of `dies_at_random`: what its launches were before it died, and how it died.
fn deaths(stdout: &str) -> HashMap<u64, (u64, u64, String)> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (pid, begun, done) = (number()?, number()?, number()?);
        Some((pid, (begun, done, words.collect::<Vec<_>>().join(" "))))
    };
    stdout.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{line:?} in {stdout}"))).collect()
}

/// The report and each process's launches. With auto-collect every process has a collector of its own,
/// which may still be about to make its trace when the killed process is gone.
#[track_caller]
fn once_all_are_in(traced: &Traced, deaths: &HashMap<u64, (u64, u64, String)>) -> (Value, HashMap<u64, u64>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let report = report_of_all(traced);
        let number = |process: &Value, name: &str| process[name].as_u64().unwrap();
        let processes = report["processes"].as_array().unwrap().iter();
        let recorded: HashMap<_, _> =
            processes.map(|process| (number(process, "pid"), number(process, "launches"))).collect();
        let is_in =
            |(pid, (_, done, _)): (&u64, &(u64, u64, String))| *done == 0 || recorded.contains_key(pid);
        if deaths.iter().all(is_in) || Instant::now() > deadline {
            return (report, recorded);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs so many children that die at random moments; all that they had launched must be recorded,
/// and nothing that they had not begun.
#[track_caller]
fn dies_at_random(how: &str, end: &str, children: usize) {
    let program = compiled("dies_at_random", Link::Driver);
    let (number, seed) = (children.to_string(), 1 + how.len() * 7);
    for (run, few) in [(run_command(&program), 1), (bare_command(&program), 3)] {
        let number = if few == 1 { number.clone() } else { (children / few).to_string() };
        let traced = run.arg(how).arg(number).arg(seed.to_string()).go().expect_code(0);
        let deaths = deaths(&traced.ended.stdout);
        assert_eq!(deaths.len(), children / few, "{}", traced.ended.stdout);
        let (report, recorded) = once_all_are_in(&traced, &deaths);
        let lost = report["dropped"]["ring_full"].as_u64().unwrap_or(0);
        assert_eq!(lost, 0, "{how}: {report:#}");
        for (pid, (begun, done, died)) in deaths {
            assert_eq!(died, end, "{how}: process {pid}");
            // One that died before its first launch may not have joined yet.
            let launches = recorded.get(&pid).copied().unwrap_or(0);
            assert!(
                (done..=begun).contains(&launches),
                "{how}: {pid} recorded {launches} of {done} to {begun}"
            );
        }
    }
}

#[test]
fn program_that_ends_itself_anywhere_keeps_what_it_did() {
    for how in ["_exit", "_Exit", "exit_group", "quick_exit"] {
        dies_at_random(how, "code 5", 15);
    }
}

#[test]
fn program_that_crashes_anywhere_keeps_what_it_did() {
    dies_at_random("abort", &format!("signal {}", libc::SIGABRT), 30);
    dies_at_random("segv", &format!("signal {}", libc::SIGSEGV), 30);
}

#[test]
fn program_that_is_killed_anywhere_keeps_what_it_did() {
    for (how, signal) in [("SIGKILL", libc::SIGKILL), ("SIGTERM", libc::SIGTERM), ("SIGINT", libc::SIGINT)] {
        dies_at_random(how, &format!("signal {signal}"), 40);
    }
}
