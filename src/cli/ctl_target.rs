//! Whom `gputrace ctl` asks: the session of a process, the one of a name, or all of this user's.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::{ctl_state, exit_code, printable};
use crate::launch::control::{self, STATUS};
use crate::launch::private_folder;

/// How long each session may take to report its status: one may be stopped.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a name in /proc/PID/comm is at most.
const COMM_BYTES: usize = 15;

/// A session that answers.
#[derive(Debug)]
pub struct Answering {
    /// The process that it belongs to.
    pub pid: i32,
    pub socket: PathBuf,
    pub status: Value,
}

impl Answering {
    /// What it is, in a few words.
    pub fn label(&self) -> String {
        let kind = printable::text(self.status["kind"].as_str().unwrap_or("?")).to_string();
        let program = self.command().unwrap_or_default();
        format!("{} ({})", self.pid, [kind.as_str(), program].join(" ").trim_end())
    }

    /// How it goes, in a line.
    pub fn line(&self) -> String {
        let recording = &self.status["recording"];
        let count = |key: &str| recording[key].as_u64().unwrap_or(0);
        format!(
            "{}; {} launches, {} host calls; {} running, {} ended",
            ctl_state::text(&self.status["state"]),
            count("launches"),
            count("host_calls"),
            count("running"),
            count("ended")
        )
    }

    fn command(&self) -> Option<&str> {
        file_name(self.status["command"][0].as_str()?)
    }

    /// Whether it is known by that name: its command's, its output folder's, or that of a program that it
    /// records now.
    fn has_name(&self, name: &str) -> bool {
        let programs = self.status["recording"]["processes"].as_array().into_iter().flatten();
        // The kernel keeps the first bytes of a program's name only.
        let kept = &name.as_bytes()[..name.len().min(COMM_BYTES)];
        let runs =
            |pid: u64| fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_ascii_end() == kept);
        self.command() == Some(name)
            || self.status["output"].as_str().and_then(file_name) == Some(name)
            || programs.filter_map(|program| program["pid"].as_u64()).any(runs)
    }
}

fn file_name(path: &str) -> Option<&str> {
    Path::new(path).file_name()?.to_str()
}

/// All sessions of this user that answer, by process, and the processes of those that do not.
pub fn all() -> Result<(Vec<Answering>, Vec<i32>), Failure> {
    let (bases, sessions) = private_folder::sessions(std::process::id().cast_signed());
    let (mut answering, mut silent) = (Vec::new(), Vec::new());
    for session in sessions.into_iter().filter(|session| session.usable.is_ok()) {
        let socket = session.path.join(control::SOCKET);
        match control::ask(&socket, STATUS, LIMIT) {
            Ok(status) => answering.push(Answering { pid: session.pid, socket, status }),
            // Left behind by a session that was killed.
            Err(_) if !Path::new(&format!("/proc/{}", session.pid)).exists() => {}
            Err(_) => silent.push(session.pid),
        }
    }
    answering.sort_by_key(|session| session.pid);
    if answering.is_empty() && silent.is_empty() {
        let bases: Vec<_> = bases.iter().map(|base| printable::name(base).to_string()).collect();
        let message =
            format!("no session is running: there is no folder gputrace-PID-… in {}", bases.join(", "));
        return Err(Failure::new(message).code(exit_code::collector::NO_INPUT));
    }
    Ok((answering, silent))
}

/// The one session of that name.
pub fn named(name: &str) -> Result<Answering, Failure> {
    let shown = printable::text(name).to_string();
    let (sessions, silent) = all()?;
    let without_answer = silent.iter().map(|pid| format!("{pid}, which did not answer"));
    let others: Vec<String> = sessions.iter().map(Answering::label).chain(without_answer).collect();
    let mut found: Vec<Answering> = sessions.into_iter().filter(|session| session.has_name(name)).collect();
    match (found.pop(), found.len()) {
        (Some(session), 0) => Ok(session),
        (None, _) => Err(Failure::new(format!("no session is named '{shown}'"))
            .code(exit_code::collector::NO_INPUT)
            .hint(format!(
                "a name is a command's, a program's or an output folder's; there are {}",
                others.join(", ")
            ))),
        (Some(last), _) => {
            let labels: Vec<String> = found.iter().chain([&last]).map(Answering::label).collect();
            let message = format!("'{shown}' names {} sessions: {}", labels.len(), labels.join(", "));
            Err(Failure::new(message).code(exit_code::USAGE).hint("give the process instead, or --all"))
        }
    }
}
