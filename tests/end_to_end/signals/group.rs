//! Signals to gputrace's whole process group, in which the program is as well: it gets each of them, from the
//! group, and once more from `run`, which cannot tell that the group was signalled.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, eventually};
use crate::harness::tool::{self, gputrace};

/// A session whose program counts its signals.
struct Counting {
    session: Session,
    /// `gputrace run`, or the program itself where that is looked at.
    run: i32,
    program: i32,
    fences: u32,
}

/// The signals that the program counts.
const COUNTED: [(&str, i32); 5] = [
    ("TERM", libc::SIGTERM),
    ("INT", libc::SIGINT),
    ("HUP", libc::SIGHUP),
    ("QUIT", libc::SIGQUIT),
    ("USR1", libc::SIGUSR1),
];

impl Counting {
    fn run(folder: &Folder, arguments: &[&str]) -> Counting {
        let program = compiled("counts_signals", Link::Nothing);
        Counting::of(Session::run(folder, &[], program, arguments), |outer| outer)
    }

    /// `run` says which process gputrace is, from the one that was started.
    fn of(mut session: Session, run: impl FnOnce(i32) -> i32) -> Counting {
        let line = session.line();
        let program = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        let program = program.unwrap_or_else(|| panic!("{line}"));
        let mut counting = Counting { run: run(session.pid().cast_signed()), session, program, fences: 0 };
        // The program may be quicker than run, which passes on later what came before it knew of the program.
        counting.settles();
        counting
    }

    fn group(&self) -> i32 {
        -self.session.pid().cast_signed()
    }

    /// What the program has counted by now.
    fn counts(&mut self) -> BTreeMap<String, u32> {
        self.session.write("counts\n");
        let line = self.session.line();
        let words: Vec<_> = line.split(' ').collect();
        words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
    }

    /// Waits until so many have come, and until another would have come too: signals are passed on in the
    /// order in which they arrive, so another signal is sent after them and waited for. Twice, since two
    /// threads may handle two signals that arrive at once.
    #[track_caller]
    fn gets(&mut self, name: &str, times: u32) {
        eventually(name, || (self.counts()[name] >= times).then_some(()));
        self.settles();
        assert_eq!(self.counts()[name], times, "{name}");
    }

    /// The same of a signal that is sent so many times more, where one that comes while another waits is one
    /// with it.
    #[track_caller]
    fn gets_more(&mut self, name: &str, times: RangeInclusive<u32>, before: u32) -> u32 {
        eventually(name, || (self.counts()[name] >= before + times.start()).then_some(()));
        self.settles();
        let count = self.counts()[name];
        assert!(times.contains(&(count - before)), "{name}: {before}, then {count}");
        count
    }

    #[track_caller]
    fn settles(&mut self) {
        for _ in 0..2 {
            send(self.run, libc::SIGRTMIN());
            self.fences += 1;
            let fences = self.fences;
            eventually("the last signal", || (self.counts()["FENCE"] >= fences).then_some(()));
        }
    }
}

#[track_caller]
fn send(target: i32, signal: i32) {
    // SAFETY: plain numbers; the target is a process or the group that this test made.
    assert_eq!(unsafe { libc::kill(target, signal) }, 0, "{target}");
}

fn only_child_of(pid: i32) -> i32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|error| panic!("{children:?}: {error}"))
}

/// What a process does, as ps says it, and more; empty where there is none.
fn state(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

#[test]
fn signal_to_run_alone_comes_once_and_one_to_the_group_once_or_twice() {
    let folder = Folder::new();
    let mut counting = Counting::run(&folder, &[]);
    for (name, signal) in COUNTED {
        let mut count = 0;
        for _ in 0..10 {
            send(counting.run, signal);
            count = counting.gets_more(name, 1..=1, count);
            send(counting.group(), signal);
            count = counting.gets_more(name, 1..=2, count);
        }
    }
    // Those that queue are counted, also where they come at once.
    for _ in 0..10 {
        send(counting.run, libc::SIGRTMIN() + 1);
        send(counting.group(), libc::SIGRTMIN() + 1);
    }
    counting.gets("RT", 30);
    assert_eq!(counting.session.end().0.code(), Some(3));
    assert!(folder.join("out/summary.txt").is_file());
}

#[test]
fn run_starts_no_process_but_the_program() {
    let folder = Folder::new();
    let counting = Counting::run(&folder, &[]);
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", counting.run)).unwrap().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()));
    }
    assert_eq!(children, [counting.program]);
}

/// It signals the process that it started, and then its own group, in which that is.
#[test]
fn timeout_s_signal_reaches_the_program_at_most_once_more_than_without_us() {
    let program = compiled("counts_signals", Link::Nothing);
    let timeout = || {
        let mut command = Command::new("timeout");
        tool::clean(&mut command);
        command.args(["-s", "TERM", "1000"]);
        command
    };
    // timeout sends SIGCONT after its signal, which shows that it is done. Before it waits it may not know
    // of its child yet.
    let signalled = |mut counting: Counting| {
        eventually("timeout to wait", || {
            state(counting.session.pid().cast_signed()).starts_with('S').then_some(())
        });
        counting.session.send(libc::SIGTERM);
        eventually("the second signal", || (counting.counts()["CONT"] > 0).then_some(()));
        counting.settles();
        let count = counting.counts()["TERM"];
        assert_eq!(counting.session.end().0.code(), Some(3));
        count
    };
    for _ in 0..3 {
        let alone = Counting::of(Session::start(timeout().arg(&program)), only_child_of);
        // Two where the program takes the first before the second is sent.
        let untraced = signalled(alone);
        assert!((1..=2).contains(&untraced), "{untraced}");

        let folder = Folder::new();
        let mut command = timeout();
        command.arg(gputrace().get_program()).args(["run", "--simulate", "-o"]).arg(folder.join("out"));
        let session = Session::start(command.arg("--").arg(&program));
        let traced = signalled(Counting::of(session, only_child_of));
        assert!((1..=3).contains(&traced), "{traced}");
    }
}

/// A script's `trap 'kill 0' EXIT`, `os.killpg(0, …)`: it is in its own group.
#[test]
fn program_that_signals_its_own_group_gets_that_once() {
    let folder = Folder::new();
    let mut counting = Counting::run(&folder, &[]);
    for round in 1..10 {
        counting.session.write("kill0\ncounts\n");
        counting.session.line();
        counting.gets("USR1", round);
    }
}

/// What is meant for whoever started it must not end it.
#[test]
fn program_that_signals_its_parent_does_not_get_that() {
    let folder = Folder::new();
    let mut counting = Counting::run(&folder, &[]);
    counting.session.write("killparent\ncounts\n");
    counting.session.line();
    counting.gets("USR1", 0);
}

/// Without us it would lead the group and could not leave it.
#[test]
fn program_that_left_our_group_gets_what_the_group_gets() {
    let folder = Folder::new();
    let mut counting = Counting::run(&folder, &["leaves"]);
    for round in 0..10 {
        send(if round % 2 == 0 { counting.group() } else { counting.run }, libc::SIGTERM);
        counting.gets("TERM", round + 1);
    }
}

/// A terminal that hangs up signals its session's first process, and after that process's end the foreground
/// group.
#[test]
fn terminal_that_hangs_up_is_heard_of_once() {
    if !needs::python("terminal_that_hangs_up_is_heard_of_once") {
        return;
    }
    let script = "import os, pty, signal, sys, time\n\
        asks, heard, leads, command = sys.argv[1], sys.argv[2], sys.argv[3] == 'leads', sys.argv[4:]\n\
        os.mkfifo(asks)\n\
        pid, terminal = pty.fork()\n\
        if pid == 0:\n    \
            run = command if leads else ['sh', '-c', '\"$@\"; :', 'sh'] + command\n    \
            os.execvp(run[0], run)\n\
        asks, heard = open(asks, 'w', buffering=1), open(heard)\n\
        def line():\n    \
            end, text = time.time() + 100, ''\n    \
            while not text.endswith('\\n'):\n        \
                assert time.time() < end, text\n        \
                text += heard.readline()\n    \
            return text.split()\n\
        def counted(name):\n    \
            asks.write('counts\\n')\n    \
            words = line()\n    \
            return int(words[words.index(name) + 1])\n\
        def until(name, count):\n    \
            while counted(name) < count: time.sleep(0.005)\n\
        program = int(line()[1])\n\
        run = int(open(f'/proc/{program}/stat').read().split()[3])\n\
        def settle(count):\n    \
            os.kill(run, signal.SIGRTMIN)\n    \
            until('FENCE', count)\n\
        settle(1)\n\
        os.close(terminal)\n\
        until('HUP', 1)\n\
        settle(2)\n\
        settle(3)\n\
        print(counted('HUP'))";
    for who in ["leads", "follows"] {
        let folder = Folder::new();
        // The program's own input and output are no terminal.
        let (asks, heard) = (folder.join("asks"), folder.join("heard"));
        let program = [compiled("counts_signals", Link::Nothing), asks.clone(), heard.clone()];
        fs::write(&heard, "").unwrap();
        let mut command = Command::new("python3");
        tool::clean(&mut command);
        command.args(["-c", script]).args([&asks, &heard]).arg(who).arg(gputrace().get_program());
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--");
        command.args(["sh", "-c", "exec \"$0\" <\"$1\" >\"$2\""]).args(program);
        assert_eq!(finish(&mut command).expect_code(0).stdout.trim(), "1", "{who}");
        eventually("the summary", || folder.join("out/summary.txt").is_file().then_some(()));
    }
}

#[test]
fn group_that_was_stopped_goes_on_and_gets_its_signals() {
    let folder = Folder::new();
    let mut counting = Counting::run(&folder, &[]);
    let (group, run, program) = (counting.group(), counting.run, counting.program);
    let mut terms = 0;
    for round in 1..4 {
        send(group, libc::SIGSTOP);
        for process in [run, program] {
            eventually("all to stop", || state(process).starts_with('T').then_some(()));
        }
        send(group, libc::SIGTERM);
        // As a shell continues a job, and as somebody does it who knows of two processes alone.
        if round % 2 == 0 {
            send(group, libc::SIGCONT);
        } else {
            send(program, libc::SIGCONT);
            send(run, libc::SIGCONT);
        }
        terms = counting.gets_more("TERM", 1..=2, terms);
        send(run, libc::SIGINT);
        counting.gets("INT", round);
    }
}

/// From the moment that the signal is ours on, it is the program's, whether that is there yet or not.
#[test]
fn signal_in_the_middle_of_the_start_is_not_lost() {
    tool::library();
    let length_us = {
        let folder = Folder::new();
        let start = std::time::Instant::now();
        finish(gputrace().args(["run", "-o"]).arg(folder.join("out")).args(["--", "true"])).expect_code(0);
        start.elapsed().as_micros() as u64
    };
    for round in 0..40 {
        let folder = Folder::new();
        let mut command = gputrace();
        command.args(["run", "-o"]).arg(folder.join("out")).args(["--", "sleep", "1000"]);
        let session = Session::start(&mut command);
        sleep(Duration::from_micros(length_us * round / 40));
        let group = -session.pid().cast_signed();
        send(if round % 2 == 0 { group } else { -group }, libc::SIGTERM);
        let (status, said) = session.end();
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{said}");
        // SAFETY: plain numbers; the group is this test's.
        eventually("the end of all", || (unsafe { libc::kill(group, 0) } != 0).then_some(()));
    }
}
