//! The built `gputrace`: running programs under it and reading what it made.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Once, OnceLock};

use serde_json::Value;

use crate::harness::folder::{self, Folder};
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};

/// `gputrace`, with an environment in which no variable of ours is left over.
pub fn gputrace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    clean(&mut command);
    command
}

/// Any program in such an environment.
pub fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    clean(&mut command);
    command
}

/// Takes our variables and the loader's out of a command's environment.
pub fn clean(command: &mut Command) {
    hear_the_terminal();
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("GPUTRACE_") || name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
    // The width of the summary is what a test says, or the default.
    command.env_remove("COLUMNS");
    command.env("GPUTRACE_CACHE", folder::base().join("cache"));
}

/// A shell's background job, or nohup, starts the tests with these signals ignored, and so all their
/// programs.
fn hear_the_terminal() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action, which this process has in a shell's foreground.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    });
}

/// What `gputrace lib` prints, asked once.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| PathBuf::from(finish(gputrace().arg("lib")).expect_code(0).stdout.trim_end()))
}

/// The simulated driver and its libcupti, which `lib` puts beside the library.
pub fn simulated_folder() -> PathBuf {
    library().parent().unwrap().join("simulated")
}

/// A program that ran under the tool, and where its outputs are.
#[derive(Debug)]
pub struct Traced {
    pub ended: Ended,
    pub output: PathBuf,
    _folder: Option<Folder>,
}

/// A run in the making: change what differs, then [`go`](Run::go).
#[derive(Debug)]
pub struct Run {
    command: Command,
    folder: Folder,
    bare: bool,
}

/// `gputrace run --simulate -o … -- program`, the program linked against the driver.
pub fn run(program: &str) -> Run {
    run_command(compiled(program, Link::Driver))
}

/// The same for any command.
pub fn run_command(program: impl AsRef<OsStr>) -> Run {
    run_with(&[], program)
}

/// The same with options of `run`.
pub fn run_with(options: &[&str], program: impl AsRef<OsStr>) -> Run {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(options).arg("--").arg(program);
    Run { command, folder, bare: false }
}

/// `LD_PRELOAD=$(gputrace lib) program`, with the simulated driver in front.
pub fn bare(program: &str) -> Run {
    bare_command(compiled(program, Link::Driver))
}

pub fn bare_command(program: impl AsRef<OsStr>) -> Run {
    let folder = Folder::new();
    let mut command = Command::new(program);
    clean(&mut command);
    command
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", simulated_folder())
        .env("GPUTRACE_OUT", folder.join("out"));
    Run { command, folder, bare: true }
}

/// A program that joins the session at a socket, on a device that takes no time.
pub fn joining(program: &str, socket: &Path) -> Command {
    let mut command = Command::new(compiled(program, Link::Driver));
    clean(&mut command);
    command
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", simulated_folder())
        .env("GPUTRACE_SIM_PACE", "off")
        .env("GPUTRACE_SESSION", socket);
    command
}

impl Run {
    /// Whether nothing but the preload library traces it.
    pub fn is_bare(&self) -> bool {
        self.bare
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.command.arg(argument);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    #[track_caller]
    pub fn go(mut self) -> Traced {
        let output = self.folder.join("out");
        Traced { ended: finish(&mut self.command), output, _folder: Some(self.folder) }
    }

    /// Runs it and expects the program to end well, and the outputs to be there.
    #[track_caller]
    pub fn succeed(self) -> Traced {
        let bare = self.bare;
        let traced = self.go().expect_code(0);
        for name in ["trace.gputrace", "flame.folded", "flame.svg", "summary.txt"] {
            let path = traced.output.join(name);
            assert!(
                path.is_file(),
                "{} is missing (auto-collect: {bare})\n{}",
                path.display(),
                traced.ended.stderr
            );
        }
        traced
    }
}

impl Traced {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Traced {
        let Traced { ended, output, _folder } = self;
        Traced { ended: ended.expect_code(code), output, _folder }
    }

    pub fn trace(&self) -> PathBuf {
        self.output.join("trace.gputrace")
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.output.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The words of its summary, without the line breaks that keep the page narrow.
    pub fn summary_words(&self) -> String {
        self.read("summary.txt").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// `gputrace report --json` on its trace.
    #[track_caller]
    pub fn report(&self) -> Value {
        report(&[self.trace()])
    }
}

/// `gputrace report --json` on several traces.
#[track_caller]
pub fn report(traces: &[PathBuf]) -> Value {
    let ended = finish(gputrace().args(["report", "--json"]).args(traces)).expect_code(0);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

/// How often the kernel of that (short) name executed.
#[track_caller]
pub fn calls(report: &Value, kernel: &str) -> u64 {
    let kernels = report["kernels"].as_array().unwrap_or_else(|| panic!("no kernels: {report:#}"));
    kernels.iter().filter(|row| row["name"] == kernel).map(|row| row["calls"].as_u64().unwrap()).sum()
}

/// A number of the report's top level.
#[track_caller]
pub fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} is no number: {report:#}"))
}

/// (calls, bytes) of the transfers in that direction.
#[track_caller]
pub fn transfers(report: &Value, direction: &str) -> (u64, u64) {
    let rows = report["transfers"].as_array().unwrap_or_else(|| panic!("no transfers: {report:#}"));
    let row = rows.iter().find(|row| row["direction"] == direction);
    row.map_or((0, 0), |row| (row["calls"].as_u64().unwrap(), row["bytes"].as_u64().unwrap()))
}

/// Everything that was lost, over all reasons.
#[track_caller]
pub fn dropped(report: &Value) -> u64 {
    let reasons = report["dropped"].as_object().unwrap_or_else(|| panic!("no dropped: {report:#}"));
    reasons.values().map(|count| count.as_u64().unwrap()).sum()
}
