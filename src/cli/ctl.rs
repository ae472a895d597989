//! `gputrace ctl`: asks a running session for its status or for a dump of its flight recorder, pauses it,
//! lets it go on, and changes its settings.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use gputrace_collector::report::grouped_count;
use serde_json::{Value, json};

use crate::cli::ctl_budget;
use crate::cli::ctl_state;
use crate::cli::ctl_target::{self, Answering};
use crate::cli::failure::{Failure, reason};
use crate::cli::talk::say;
use crate::cli::{exit_code, printable, stdout};
use crate::launch::control::{self, CHANGE_LIMIT, DUMP, DUMP_LIMIT, SET, START, STATUS, STOP};
use crate::launch::live_settings::Change;
use crate::launch::private_folder;

/// How long a session may take to report its status.
const LIMIT: Duration = Duration::from_secs(10);
/// The same for each other session, which is asked only whether it records the process: that one may hang.
const LIMIT_OF_OTHERS: Duration = Duration::from_secs(2);

pub fn command() -> Command {
    Command::new("ctl")
        .about("Start, pause or ask a running session, or write what its flight recorder holds")
        .after_help(
            "stop and start return once every program of the session has changed. While a session is paused,\n\
             launches, copies, memsets and waits are counted and not recorded; everything else is.\n\
             set device-metrics=TIME[,slow]|off samples devices that often from now on, or not at all; set\n\
             stacks=python,native|off, device-times=on|off|windows, torch-ops=on|off and memory=on|blocks change\n\
             what is recorded.\n\
             dump prints the folder that was written, once it is whole; it holds what a run leaves. It needs a\n\
             session with --flight-recorder, to which SIGUSR2 does the same. Only the session's own user can ask.",
        )
        .arg(
            Arg::new("target")
                .value_name("PID|NAME")
                .required_unless_present("all")
                .help("A process of run or collect or a traced one; or a command's name"),
        )
        .arg(
            Arg::new("question")
                .value_name("start|stop|status|dump|set")
                .required_unless_present("all")
                .help("record, pause, how it goes, write now, or change a setting"),
        )
        .arg(
            Arg::new("change")
                .value_name("KEY=VALUE")
                .help("With set: the setting, and its value from now on"),
        )
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("All sessions of this user, a line each"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
}

/// What is asked of a session.
struct Question<'a> {
    asked: &'a str,
    /// `KEY=VALUE`, where a setting is changed.
    change: Option<&'a str>,
    is_json: bool,
}

impl<'a> Question<'a> {
    fn new(words: &[&'a str], is_json: bool) -> Result<Question<'a>, Failure> {
        let usage = |message: String| Failure::new(message).code(exit_code::USAGE);
        let (asked, change) = match words {
            [asked] => (*asked, None),
            [asked, change] => (*asked, Some(*change)),
            _ => return Err(usage("ctl needs one of start, stop, status, dump and set".to_owned())),
        };
        match change {
            _ if ![START, STOP, STATUS, DUMP, SET].contains(&asked) => {
                Err(usage(format!("'{asked}' is none of start, stop, status, dump and set")))
            }
            None if asked == SET => Err(usage("set needs KEY=VALUE".to_owned())),
            Some(change) if asked != SET => {
                Err(usage(format!("'{change}' goes with set only, and this is {asked}")))
            }
            Some(change) => Change::parse(change).map_err(usage).map(|_| ()),
            None => Ok(()),
        }?;
        Ok(Question { asked, change, is_json })
    }

    /// The answer of a session, and the failure if it did a part only.
    fn ask(&self, session: &Answering) -> Result<(String, Option<Failure>), Failure> {
        let Answering { pid, socket, status } = session;
        if let Some(change) = self.change {
            return set(*pid, socket, change, self.is_json);
        }
        match self.asked {
            START | STOP => change(*pid, socket, self.asked, self.is_json),
            DUMP => Ok((dump(*pid, socket, self.is_json)?, None)),
            _ if self.is_json => Ok((format!("{status:#}\n"), None)),
            _ => Ok((text(status), None)),
        }
    }
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let is_json = matches.get_flag("json");
    let words = ["target", "question", "change"].map(|word| matches.get_one::<String>(word));
    let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    if matches.get_flag("all") {
        return ask_all(&Question::new(&words, is_json)?);
    }
    let [target, words @ ..] = &words[..] else { return Ok(exit_code::USAGE) };
    let question = Question::new(words, is_json)?;
    let session = match target.parse::<i32>() {
        Ok(pid @ 1..) => find(pid)?,
        Ok(_) => return Err(Failure::new(format!("'{target}' is no process")).code(exit_code::USAGE)),
        Err(_) => ctl_target::named(target)?,
    };
    let (answer, failure) = question.ask(&session)?;
    stdout::print(answer.as_bytes())?;
    failure.map_or(Ok(exit_code::SUCCESS), Err)
}

/// Asks all sessions, and prints a line for each. Returns the highest exit code.
fn ask_all(question: &Question) -> Result<u8, Failure> {
    let (sessions, silent) = ctl_target::all()?;
    let mut worst = exit_code::SUCCESS;
    let mut fail = |failure: &Failure| {
        say(format_args!("{failure}"));
        worst = worst.max(failure.exit_code);
    };
    for session in &sessions {
        match question.ask(session) {
            Ok((answer, failure)) => {
                let line = if question.is_json {
                    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                    json!({ "pid": session.pid, "answer": answer }).to_string()
                } else if question.asked == STATUS {
                    format!("{}: {}", session.label(), session.line())
                } else {
                    format!("{}: {}", session.label(), answer.trim_end().replace('\n', "; "))
                };
                stdout::print(format!("{line}\n").as_bytes())?;
                failure.iter().for_each(&mut fail);
            }
            Err(failure) => fail(&failure),
        }
    }
    for pid in silent {
        fail(&Failure::new(format!("the session of process {pid} did not answer")));
    }
    Ok(worst)
}

fn ask(pid: i32, socket: &Path, question: &str, limit: Duration) -> Result<Value, Failure> {
    control::ask(socket, question, limit).map_err(|error| {
        Failure::new(format!("the session of process {pid} did not answer: {}", reason(&error)))
    })
}

/// Why a session did not do what it was asked for.
fn why(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or("it did not say why")
}

/// Writes what the flight recorder holds. Returns the folder's name.
fn dump(pid: i32, socket: &Path, is_json: bool) -> Result<String, Failure> {
    let answer = ask(pid, socket, DUMP, DUMP_LIMIT + LIMIT)?;
    let Some(path) = answer["dump"].as_str() else {
        let why = why(&answer);
        return Err(Failure::new(format!("the session of process {pid} wrote no dump: {why}")));
    };
    Ok(if is_json { format!("{answer:#}\n") } else { format!("{}\n", printable::name(Path::new(path))) })
}

/// Changes a setting of the session. A program that does not answer in time, or cannot change so, is a
/// failure beside the answer.
fn set(pid: i32, socket: &Path, change: &str, is_json: bool) -> Result<(String, Option<Failure>), Failure> {
    let answer = ask(pid, socket, &format!("{SET} {change}"), CHANGE_LIMIT + LIMIT)?;
    let Some(values) = answer["set"].as_object() else {
        let why = why(&answer);
        return Err(Failure::new(format!("the session of process {pid} did not change: {why}")));
    };
    let seconds = answer["at_s"].as_f64().unwrap_or(0.0);
    let (refused, unanswered) = (numbers(&answer["refused"]), unanswered(&answer));
    let text = if is_json {
        format!("{answer:#}\n")
    } else if !refused.is_empty() || unanswered.is_some() {
        // Not in force everywhere: the failure says where not, and `status` what is.
        String::new()
    } else {
        let value = |value: &Value| printable::text(value.as_str().unwrap_or("?")).to_string();
        let lines = values.iter().map(|(key, now)| (printable::text(key).to_string(), value(now)));
        lines.map(|(key, now)| format!("{key}={now}, {seconds:.3} s after the session's begin\n")).collect()
    };
    let failure = (!refused.is_empty()).then(|| {
        Failure::new(format!("process {} cannot make this change", refused.join(", "))).hint(
            "device times need CUPTI from the start: the program was started with --device-times off, or CUPTI could \
             not be used; native stacks need more memory; torch-ops needs a PyTorch that gputrace knows",
        )
    });
    Ok((text, failure.or(unanswered)))
}

/// The process ids in an answer.
fn numbers(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(Value::to_string).collect()
}

/// The failure of programs that did not answer in time.
fn unanswered(answer: &Value) -> Option<Failure> {
    let unanswered = numbers(&answer["unanswered"]);
    (!unanswered.is_empty()).then(|| {
        let seconds = CHANGE_LIMIT.as_secs();
        Failure::new(format!("no answer within {seconds} s from process {}", unanswered.join(", ")))
            .hint("a program that is stopped changes as soon as it runs again")
    })
}

/// Pauses the session or lets it go on. A program that does not answer in time is a failure beside the
/// answer.
fn change(pid: i32, socket: &Path, asked: &str, is_json: bool) -> Result<(String, Option<Failure>), Failure> {
    let answer = ask(pid, socket, asked, CHANGE_LIMIT + LIMIT)?;
    let Some(processes) = answer["processes"].as_u64() else {
        let why = why(&answer);
        return Err(Failure::new(format!("the session of process {pid} did not {asked}: {why}")));
    };
    let programs = match processes {
        1 => "1 program".to_owned(),
        more => format!("{more} programs"),
    };
    let does = if asked == START { "recording" } else { "paused" };
    let text = match is_json {
        true => format!("{answer:#}\n"),
        false => format!(
            "{does}: {programs}, {:.3} s after the session's begin\n",
            answer["at_s"].as_f64().unwrap_or(0.0)
        ),
    };
    Ok((text, unanswered(&answer)))
}

/// The session that is that process's, or that records it.
fn find(pid: i32) -> Result<Answering, Failure> {
    let not_found = |message: String| Failure::new(message).code(exit_code::collector::NO_INPUT);
    // SAFETY: kill takes plain numbers, and signal 0 is sent to nobody.
    let answer = unsafe { libc::kill(pid, 0) };
    if answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return Err(not_found(format!("there is no process {pid}")));
    }
    let (bases, sessions) = private_folder::sessions(pid);
    let mut asked = 0;
    // The process's own first: it may be traced by another session, too.
    for own in [true, false] {
        for session in sessions.iter().filter(|session| (session.pid == pid) == own) {
            if let Err(error) = &session.usable {
                if own {
                    let why = reason(error);
                    return Err(not_found(format!("the session of process {pid} is not to be used: {why}")));
                }
                continue;
            }
            let socket = session.path.join(control::SOCKET);
            match control::ask(&socket, STATUS, if own { LIMIT } else { LIMIT_OF_OTHERS }) {
                Ok(status) if own || records(&status, pid) => return Ok(Answering { pid, socket, status }),
                Ok(_) => asked += 1,
                Err(error) if own => {
                    let why = reason(&error);
                    return Err(not_found(format!("the session of process {pid} did not answer: {why}")));
                }
                Err(_) => {}
            }
        }
    }
    let bases: Vec<_> = bases.iter().map(|base| printable::name(base).to_string()).collect();
    let others = match asked {
        0 => "and no other session there answers".to_owned(),
        1 => "and the one other session there does not record it".to_owned(),
        asked => format!("and none of the {asked} other sessions there records it"),
    };
    let message = format!(
        "process {pid} belongs to no session: there is no folder gputrace-{pid}-… in {}, {others}",
        bases.join(", ")
    );
    Err(not_found(message)
        .hint("give the process of gputrace run or collect, or a program that it traces now"))
}

fn records(status: &Value, pid: i32) -> bool {
    let processes = status["recording"]["processes"].as_array();
    processes.is_some_and(|processes| processes.iter().any(|process| process["pid"] == pid))
}

/// For people.
fn text(status: &Value) -> String {
    let recording = &status["recording"];
    let count = |value: &Value| grouped_count(value.as_u64().unwrap_or(0));
    let string = |value: &Value| printable::text(value.as_str().unwrap_or("?")).to_string();
    let command: Vec<_> = status["command"].as_array().into_iter().flatten().map(string).collect();
    let mut lines = vec![
        ("Session", format!("gputrace {}, process {}", string(&status["kind"]), status["pid"])),
        ("Command", command.join(" ")),
        ("Output", string(&status["output"])),
    ];
    lines.push(("State", ctl_state::text(&status["state"])));
    lines.push((
        "Keeps",
        match recording["flight_recorder_seconds"].as_f64() {
            None => "everything".to_owned(),
            Some(seconds) => format!(
                "the last {seconds} s: {} of at most {}, {} older entries left out",
                size(&recording["held_bytes"]),
                size(&recording["held_bytes_max"]),
                count(&recording["left_out_entries"]),
            ),
        },
    ));
    // Where the collector is behind, or has ended and writes its outputs.
    let age = match recording["age_ns"].as_u64().unwrap_or(0) / 1_000_000_000 {
        0 => String::new(),
        seconds => format!(" ({seconds} s ago)"),
    };
    lines.push((
        "Recorded",
        format!(
            "{} launches, {} host calls, {} device records; {} events a second{age}",
            count(&recording["launches"]),
            count(&recording["host_calls"]),
            count(&recording["device_records"]),
            grouped_count(recording["events_per_second"].as_f64().unwrap_or(0.0) as u64),
        ),
    ));
    let mut lost: Vec<_> = recording["dropped"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(reason, number)| format!("{} {}", count(number), printable::text(reason)))
        .collect();
    if let Some(entries) = recording["not_in_trace"].as_u64().filter(|entries| *entries > 0) {
        lost.push(format!("{entries} not_in_trace"));
    }
    if recording["trace_max_bytes"].is_u64() {
        let entries = count(&recording["beyond_trace_max"]);
        let limit = size(&recording["trace_max_bytes"]);
        lines.push(("Trace", format!("has the first {limit}, as --max-size asked; lacks {entries} entries")));
    }
    if recording["closed_files"].is_u64() {
        let (closed, deleted) = (count(&recording["closed_files"]), count(&recording["deleted_files"]));
        lines.push(("Files", format!("{closed} closed by rotation, {deleted} of them deleted by --keep")));
    }
    if let Some(bytes) = recording["trace_ends_at_byte"].as_u64() {
        lost.push(format!("the trace after its first {bytes} bytes, which could not be written so far"));
    }
    lines.push(("Lost", if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") }));
    for (key, items) in [("traces", "spans"), ("metrics", "data points")] {
        let status = &status["otlp"][key];
        if status.is_object() {
            lines.push(("OTLP", sending(status, items)));
        }
    }
    let settings = status["settings"].as_object().into_iter().flatten();
    let settings: Vec<_> =
        settings.map(|(key, now)| format!("{}={}", printable::text(key), string(now))).collect();
    lines.push(("Settings", settings.join(", ")));
    lines.push(("Memory", format!("{} resident", size(&status["resident_bytes"]))));
    let processes: Vec<_> = recording["processes"].as_array().into_iter().flatten().collect();
    if let Some(budget) = ctl_budget::text(&processes) {
        lines.push(("Budget", budget));
    }
    let numbers: Vec<_> = processes.iter().take(20).map(|process| process["pid"].to_string()).collect();
    let more = processes.len().saturating_sub(numbers.len());
    let numbers = match (numbers.is_empty(), more) {
        (true, _) => String::new(),
        (_, 0) => format!(" ({})", numbers.join(", ")),
        (_, more) => format!(" ({} and {more} more)", numbers.join(", ")),
    };
    lines.push((
        "Processes",
        format!("{} running{numbers}, {} ended", count(&recording["running"]), count(&recording["ended"])),
    ));
    let lines = lines.iter().filter(|(_, text)| !text.is_empty());
    lines.map(|(label, text)| format!("{label:<11}{text}\n")).collect()
}

/// The state of sending one signal.
fn sending(status: &Value, items: &str) -> String {
    let count = |key: &str| grouped_count(status[key].as_u64().unwrap_or(0));
    let text = |key: &str| printable::text(status[key].as_str().unwrap_or("?")).to_string();
    let error = match &status["last_error"] {
        Value::String(error) => format!("; last error: {}", printable::text(error)),
        _ => String::new(),
    };
    format!(
        "{} {items} sent to {} ({}), {} queued ({}), {} dropped, {} rejected, {} retries{error}",
        count("sent"),
        text("endpoint"),
        text("protocol"),
        count("queued"),
        size(&status["queued_bytes"]),
        count("dropped"),
        count("rejected"),
        count("retries"),
    )
}

fn size(bytes: &Value) -> String {
    let bytes = bytes.as_u64().unwrap_or(0) as f64;
    match bytes {
        ..1_048_576.0 => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}
