//! `gputrace collect --listen`: programs outlive the daemon, and the next one takes them over.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::tool::{self, count, gputrace};

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(100);

/// A child that is killed if the test fails before its end.
pub struct Running(pub Child);

impl Running {
    pub fn send(&self, signal: i32) {
        // SAFETY: plain numbers; the child is this test's and not reaped yet.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }

    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it did not end");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Collector {
    pub process: Running,
    trace: PathBuf,
}

impl Collector {
    /// Starts one; it listens when this returns.
    fn start(folder: &Folder, output: &str, once: bool) -> Collector {
        Collector::start_with(folder, output, once.then_some("--once").as_slice())
    }

    pub fn start_with(folder: &Folder, output: &str, options: &[&str]) -> Collector {
        Collector::start_by(folder, output, options, |_| {})
    }

    pub fn start_by(
        folder: &Folder,
        output: &str,
        options: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Collector {
        let mut command = gputrace();
        change(&mut command);
        command.arg("collect").arg("--listen").arg(folder.join("session"));
        command.arg("-o").arg(folder.join(output)).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(folder.join(&format!("{output}.stderr"))).unwrap());
        let mut process = Running(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), format!("GPUTRACE_SESSION={}", socket(folder).display()));
        Collector { process, trace: folder.join(output).join("trace.gputrace") }
    }

    pub fn kill(mut self) -> PathBuf {
        self.process.send(libc::SIGKILL);
        self.process.end();
        self.trace
    }

    /// Ends it, by SIGTERM if it does not end by itself.
    pub fn end(mut self, by_itself: bool) -> PathBuf {
        if !by_itself {
            self.process.send(libc::SIGTERM);
        }
        assert_eq!(self.process.end().code(), Some(0));
        self.trace
    }
}

pub fn socket(folder: &Folder) -> PathBuf {
    folder.path().canonicalize().unwrap().join("session/socket")
}

pub struct Program {
    process: Running,
    orders: Option<ChildStdin>,
    done: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(socket: &Path) -> Program {
        Program::start_with(socket, |_| {})
    }

    pub fn start_with(socket: &Path, change: impl FnOnce(&mut Command)) -> Program {
        let mut command = tool::joining("on_demand", socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut command);
        let mut process = Running(command.spawn().unwrap());
        let orders = process.0.stdin.take();
        let done = BufReader::new(process.0.stdout.take().unwrap());
        Program { process, orders, done }
    }

    pub fn order(&mut self, launches: u64) {
        writeln!(self.orders.as_mut().unwrap(), "{launches}").unwrap();
    }

    pub fn wait(&mut self) {
        let mut line = String::new();
        self.done.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the program ended");
    }

    pub fn launch(&mut self, launches: u64) {
        self.order(launches);
        self.wait();
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Lets it end, and says what it said on stderr.
    pub fn end(mut self) -> String {
        self.orders = None;
        assert_eq!(self.process.end().code(), Some(0));
        let mut said = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Its descriptors, as far as they can be told.
    fn descriptors(&self) -> Vec<String> {
        let folder = format!("/proc/{}/fd", self.process.0.id());
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .map(|target| target.to_string_lossy().split(':').next().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }
}

/// `gputrace report` of traces of which some are cut off.
pub fn report(traces: &[PathBuf]) -> Value {
    let ended = finish(gputrace().args(["report", "--json"]).args(traces));
    assert!(matches!(ended.code(), Some(0 | 3)), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn lost(report: &Value, reason: &str) -> u64 {
    report["dropped"][reason].as_u64().unwrap_or(0)
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn daemon_records_programs_that_come_and_go() {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "out", true);
    let mut programs: Vec<_> = (0..3).map(|_| Program::start(&socket(&folder))).collect();
    for (program, launches) in programs.iter_mut().zip([100, 200, 300]) {
        program.launch(launches);
    }
    for program in programs {
        assert_eq!(program.end(), "");
    }
    let report = report(&[collector.end(true)]);
    assert_eq!(count(&report, "launches"), 600);
    assert_eq!(report["processes"].as_array().map(Vec::len), Some(3));
    assert!(folder.join("out/summary.txt").is_file());
}

#[test]
fn second_collector_in_the_same_folder_is_refused() {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "a", false);
    let second = finish(
        gputrace().args(["collect", "--listen"]).arg(folder.join("session")).arg("-o").arg(folder.join("b")),
    );
    assert_eq!(second.code(), Some(1), "{}", second.stderr);
    assert!(second.stderr.contains("another collector listens in"), "{}", second.stderr);
    collector.end(false);
}

/// Killed at some moment while the program launches, with and without a while of nobody: what both
/// traces have, each once, and what they say is lost, is what was launched.
#[test]
fn killed_collector_is_replaced_by_another() {
    for (round, delay_ms) in [0, 3, 11, 35, 90].into_iter().enumerate() {
        let folder = Folder::new();
        let first = Collector::start(&folder, "a", false);
        let mut program = Program::start(&socket(&folder));
        program.launch(500);
        // Fewer than a collector holds back of a ring: none of them is lost with it.
        program.order(8_000);
        sleep(Duration::from_millis(delay_ms));
        let first = first.kill();
        program.wait();
        if round % 2 == 0 {
            program.launch(3_000);
        }
        let second = Collector::start(&folder, "b", true);
        program.launch(2_000);
        let said = program.end();
        let second = second.end(true);
        let launched = 10_500 + if round % 2 == 0 { 3_000 } else { 0 };
        let both = report(&[first.clone(), second.clone()]);
        assert_eq!(count(&both, "launches"), launched, "killed after {delay_ms} ms\n{said}\n{both:#}");
        assert_eq!(lost(&both, "lost_with_collector") + lost(&both, "ring_full"), 0);
        assert_eq!(both["processes"].as_array().map(Vec::len), Some(1), "one process in two traces");
        let alone = count(&report(&[second]), "launches");
        assert!((2_000..=launched).contains(&alone), "{alone}");
    }
}

/// While nobody empties them the rings fill; what does not fit is counted and nothing waits.
#[test]
fn events_that_do_not_fit_without_a_collector_are_counted() {
    let folder = Folder::new();
    let first = Collector::start(&folder, "a", false);
    let mut program = Program::start(&socket(&folder));
    program.launch(1_000);
    let before = Instant::now();
    let first = first.kill();
    program.launch(100_000);
    // 100 000 launches take a tenth of a second where they do not wait.
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    let second = Collector::start(&folder, "b", true);
    program.launch(10);
    let said = program.end();
    let both = report(&[first, second.end(true)]);
    let dropped = lost(&both, "ring_full");
    assert!(dropped > 30_000, "{both:#}");
    let all = count(&both, "launches") + dropped + lost(&both, "lost_with_collector");
    // The wait at the program's end may be among the dropped.
    assert!((101_010..=101_015).contains(&all), "{all}\n{said}\n{both:#}");
}

#[test]
fn restarted_collector_loses_nothing() {
    let folder = Folder::new();
    let mut program = None;
    let mut traces = Vec::new();
    for name in ["a", "b", "c"] {
        let collector = Collector::start(&folder, name, name == "c");
        program.get_or_insert_with(|| Program::start(&socket(&folder))).launch(1_000);
        if name == "c" {
            let said = program.take().unwrap().end();
            assert_eq!(said.matches("the collector is gone").count(), said.lines().count(), "{said}");
        }
        traces.push(collector.end(name == "c"));
    }
    let all = report(&traces);
    assert_eq!(count(&all, "launches"), 3_000);
    assert_eq!(tool::dropped(&all), 0, "{all:#}");
}

/// Joined, left, joined again: the program has as many descriptors as before.
#[test]
fn change_of_collectors_leaves_no_descriptor() {
    let folder = Folder::new();
    let first = Collector::start(&folder, "a", false);
    let mut program = Program::start(&socket(&folder));
    program.launch(10);
    wait_until("the collector answered", || program.descriptors().contains(&"socket".to_owned()));
    let before = program.descriptors();
    first.kill();
    wait_until("the socket is closed", || program.descriptors().len() < before.len());
    for name in ["b", "c"] {
        let collector = Collector::start(&folder, name, false);
        wait_until("it joined again", || program.descriptors() == before);
        collector.kill();
        wait_until("the socket is closed", || program.descriptors().len() < before.len());
    }
    program.launch(10);
    program.end();
}

/// Stopped for a while, as by a debugger: the program does not notice.
#[test]
fn stopped_collector_continues_after_a_minute() {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "a", true);
    let mut program = Program::start(&socket(&folder));
    program.launch(100);
    collector.process.send(libc::SIGSTOP);
    let before = Instant::now();
    program.launch(20_000);
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    let resident_kib = program.resident_kib();
    // For a minute, in which its thread goes on.
    for _ in 0..60 {
        sleep(Duration::from_secs(1));
        program.launch(300);
    }
    let grown_kib = program.resident_kib().saturating_sub(resident_kib);
    // The rings it fills meanwhile are mapped already, and the device's records wait in theirs.
    assert!(grown_kib < 16 << 10, "{grown_kib} KiB more");
    program.launch(20_000);
    collector.process.send(libc::SIGCONT);
    program.launch(100);
    assert_eq!(program.end(), "");
    let report = report(&[collector.end(true)]);
    assert_eq!(count(&report, "launches"), 58_200);
    assert_eq!(lost(&report, "ring_full"), 0, "{report:#}");
}

/// Nobody takes over from a killed collector: what it had not read is counted, by the program.
#[test]
fn killed_collector_s_losses_are_reported_at_the_end() {
    let folder = Folder::new();
    let mut collector = Collector::start(&folder, "a", true);
    let mut program = Program::start(&socket(&folder));
    program.launch(100);
    collector.process.send(libc::SIGSTOP);
    program.launch(5_000);
    collector.process.0.kill().unwrap();
    collector.process.0.wait().unwrap();
    program.launch(1_000);
    let said = program.end();
    let lost = said.lines().find_map(|line| {
        line.strip_prefix("gputrace: the collector is gone: ")?
            .strip_suffix(" entries that it had not read are lost")
    });
    let lost: u64 = lost.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    // Each launch, its device record, and some of what is neither.
    assert!((12_000..12_600).contains(&lost), "{said}");
}

/// Gives the program small rings, by a limit on the files that it may make.
fn with_small_rings(command: &mut Command) {
    // SAFETY: setrlimit only reads its argument, and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 16 << 20, rlim_max: 16 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            Ok(())
        });
    }
}

#[test]
fn full_ring_drops_and_every_drop_is_counted() {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "a", true);
    let mut program = Program::start_with(&socket(&folder), with_small_rings);
    program.launch(100);
    collector.process.send(libc::SIGSTOP);
    let before = Instant::now();
    program.launch(200_000);
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    collector.process.send(libc::SIGCONT);
    wait_until("there is room again", || {
        count(&report(std::slice::from_ref(&collector.trace)), "launches") > 1_000
    });
    program.launch(100);
    program.end();
    let report = report(&[collector.end(true)]);
    assert!(lost(&report, "ring_full") > 100_000, "{report:#}");
    assert_eq!(count(&report, "launches") + lost(&report, "ring_full"), 200_200, "{report:#}");
}

/// Launches while the collector is stopped again and again for as long as fills the rings many times
/// over. Returns how many launches were dropped; the others are all counted.
fn dropped_though_it_waits() -> u64 {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "a", true);
    let mut program = Program::start_with(&socket(&folder), |command| {
        with_small_rings(command);
        command.env("GPUTRACE_ON_FULL", "wait");
    });
    program.launch(10);
    for _ in 0..10 {
        collector.process.send(libc::SIGSTOP);
        program.order(20_000);
        sleep(Duration::from_millis(20));
        collector.process.send(libc::SIGCONT);
        program.wait();
    }
    program.end();
    let report = report(&[collector.end(true)]);
    let dropped = lost(&report, "ring_full");
    // The wait at the program's end may be among the dropped.
    let all = count(&report, "launches") + dropped;
    assert!((200_010..=200_012).contains(&all), "{report:#}");
    // Nobody waits for one that got no processor from the beginning.
    assert!(dropped > 0 || report.to_string().contains("threads waited for their full rings"), "{report:#}");
    dropped
}

/// The wait is bounded: a collector that gets no processor or no disk for a second counts as one that
/// stopped, and on a busy machine that happens. Not five times in a row.
#[test]
fn waiting_program_loses_nothing_to_a_slow_collector() {
    let dropped: Vec<_> =
        (0..5).map(|_| dropped_though_it_waits()).take_while(|dropped| *dropped > 0).collect();
    assert!(dropped.len() < 5, "{dropped:?}");
}

#[test]
fn waiting_program_waits_a_bounded_time_for_a_stopped_collector() {
    let folder = Folder::new();
    let collector = Collector::start(&folder, "a", true);
    let mut program = Program::start_with(&socket(&folder), |command| {
        with_small_rings(command);
        command.env("GPUTRACE_ON_FULL", "wait");
    });
    program.launch(10);
    collector.process.send(libc::SIGSTOP);
    let before = Instant::now();
    // Were each to wait for the bound of an event, this would take hours.
    program.launch(100_000);
    program.launch(100_000);
    assert!(before.elapsed() < Duration::from_secs(40), "{:?}", before.elapsed());
    collector.process.send(libc::SIGCONT);
    program.end();
    let report = report(&[collector.end(true)]);
    assert!(lost(&report, "ring_full") > 100_000, "{report:#}");
    let all = count(&report, "launches") + lost(&report, "ring_full");
    // The wait at the program's end may be among the dropped.
    assert!((200_010..=200_012).contains(&all), "{all}");
}
