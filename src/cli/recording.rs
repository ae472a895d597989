//! A recorded run of one command: `run` and `demo` differ in what they ask for only.
//!
//! The order matters: nothing of the user's is started before all that we need is there, or is known
//! not to be had, and what was recorded is written whatever the command came to.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::{ProcessEnd, SessionBegin};
use gputrace_collector::command_line;
use gputrace_collector::model::Process;
use gputrace_collector::session::{Recorder, RecorderConfig, Recording, Source, TraceNews};
use gputrace_collector::spans;

use crate::cli::failure::{Failure, reason};
use crate::cli::otlp::{self, Audience};
use crate::cli::output_folder::OutputFolder;
use crate::cli::settings::Settings;
use crate::cli::talk::{say, say_text};
use crate::cli::{
    exit_code, flight_recorder, library, options, outputs, printable, spare_folder, unseen, variables,
};
use crate::launch::control::About;
use crate::launch::descendants::{Seen, Watch};
use crate::launch::private_folder::{self, SessionFolder};
use crate::launch::{child, descriptors, ending, environment, refusal, sanitizer_runtime, signals, untraced};

/// How long the processes that the command leaves behind may take to end, if they are about to.
const GRACE: Duration = Duration::from_millis(500);
/// The most that the end waits for an OTLP back end.
pub const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Request {
    pub command: Vec<OsString>,
    /// What the default output folder is named after.
    pub name: OsString,
    pub settings: Settings,
    pub simulate: bool,
    /// Whether the summary shows what only experts look for.
    pub verbose: bool,
    /// Why the command's own program cannot be traced, if that is known beforehand.
    pub untraceable: Option<String>,
    /// Where to put the live session's report as JSON.
    pub json: Option<PathBuf>,
}

/// Runs the command and returns its exit code; dies of its signal if it died of one. A command that
/// cannot be traced is run all the same, which is said: its user wants what it does above all.
pub fn record(mut request: Request) -> Result<u8, Failure> {
    descriptors::raise();
    if let Err(why) = descriptors::are_enough() {
        say(format_args!("gputrace: warning: the command runs untraced: {why}"));
        return Err(run_untraced(&request));
    }
    let failure = match traced(&request) {
        Err(failure) if failure.exit_code == exit_code::NOT_STARTED => failure,
        ended => return ended,
    };
    if let Some(asked) = &request.settings.output
        && cannot_be_made(asked)
    {
        // A wrong name is better heard of at once than after the job.
        return Err(failure);
    }
    say(format_args!("{failure}"));
    if request.settings.output.is_none()
        && let Some(Ok(spare)) = spare_folder::make(&request.name, std::process::id())
    {
        let path = spare.path().to_owned();
        say(format_args!("gputrace: warning: the outputs go to {}", printable::name(&path)));
        request.settings.output = Some(path.clone());
        match traced(&request) {
            Err(failure) if failure.exit_code == exit_code::NOT_STARTED => {
                let _ = fs::remove_dir(path);
                say(format_args!("{failure}"));
            }
            ended => return ended,
        }
    }
    say(format_args!("gputrace: warning: the command runs untraced"));
    Err(run_untraced(&request))
}

/// Becomes the command, on the simulated driver if that was asked for. Returns only why it cannot.
fn run_untraced(request: &Request) -> Failure {
    let mut environment = Vec::new();
    if request.simulate {
        match library::for_untraced() {
            Ok(libraries) => {
                environment.push(("LD_LIBRARY_PATH", environment::library_path(&libraries.simulated)));
            }
            Err(failure) => {
                say(format_args!("{failure}"));
                say(format_args!("gputrace: warning: the command runs without the simulated driver"));
            }
        }
    }
    let error = untraced::become_the_command(&request.command, &environment);
    refusal::explain(&request.command[0], &error)
}

/// Whether it is the name that is wrong, and not a lack of room.
fn cannot_be_made(asked: &Path) -> bool {
    let tried = OutputFolder::prepare(asked.to_owned());
    tried.is_err_and(|failure| failure.exit_code == exit_code::collector::CANNOT_CREATE)
}

fn cannot_wait(error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for the command: {}", reason(error))).code(exit_code::collector::SYSTEM)
}

fn traced(request: &Request) -> Result<u8, Failure> {
    let not_started = |failure: Failure| failure.code(exit_code::NOT_STARTED);
    if let Some(value) = variables::switched_off() {
        say(format_args!("gputrace: warning: GPUTRACE={value}: nothing will be traced"));
    }
    let folder =
        OutputFolder::prepare_alone(request.settings.output.clone(), &request.name, std::process::id())
            .map_err(not_started)?;
    private_folder::sweep();
    let session = SessionFolder::create().map_err(|error| {
        not_started(Failure::new(format!("cannot make a folder for the session: {}", reason(&error))))
            .hint("set TMPDIR to a writable folder with a short path")
    })?;
    let libraries = library::for_session(&session).map_err(not_started)?;
    // Files of two runs must not lie beside each other; and where the command does not start, the
    // earlier run's stay.
    let earlier = folder.set_aside(&outputs::ALL).map_err(not_started)?;
    let trace = folder.file(outputs::TRACE);
    let command = request.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let begin = SessionBegin {
        traceparent: environment::traceparent(),
        hands_on: request.settings.hands_on,
        ..begin(command, request.settings.redacts)
    };
    if let Some(why) = spans::run::complaint(&begin).filter(|_| begin.hands_on) {
        say(format_args!("gputrace: warning: {why}; the command is given another one"));
    }
    let command_line = command_line::masked(&begin.command);
    let config = RecorderConfig {
        source: Source::Listen { directory: session.path().to_path_buf() },
        trace_path: trace.clone(),
        begin,
        flight: flight_recorder::config(request.settings.limits.flight, &folder, &request.settings.flames),
        max_bytes: request.settings.limits.max_bytes,
        rotation: None,
        hears_trace_news: Some(say_at_once),
    };
    let (sinks, mut sending) = otlp::start(&request.settings.otlp, Audience::Person, DRAIN);
    let recorder = match Recorder::start(config, sinks) {
        Ok(recorder) => recorder,
        Err(error) => {
            let _ = fs::remove_file(&trace);
            drop(earlier);
            folder.discard_if_empty();
            return Err(not_started(error.into()));
        }
    };

    let mut variables = request.settings.environment.clone();
    variables.extend(recorder.socket_path().map(|path| (options::SESSION.variable, path.into())));
    variables.extend(spans::run::traceparent(recorder.begin()).map(|own| ("TRACEPARENT", own.into())));
    let sanitizer = request.command.first().and_then(|program| sanitizer_runtime::of(program));
    variables.push(("LD_PRELOAD", environment::preload(&libraries.preload, sanitizer.as_deref())));
    if request.simulate {
        variables.push(("LD_LIBRARY_PATH", environment::library_path(&libraries.simulated)));
    }
    let before = signals::take_over();
    let handle = recorder.handle();
    let about = About {
        kind: "run",
        command: command_line,
        output: folder.path().to_owned(),
        sender: sending.sender(),
    };
    let control = flight_recorder::listen(
        Ok(session.path()),
        about,
        handle.clone(),
        request.settings.limits.flight.is_some(),
    );
    let program = match child::start(&request.command, &variables, before) {
        Ok(program) => program,
        Err(error) => {
            before.restore_all();
            drop(control);
            drop(recorder);
            let _ = fs::remove_file(&trace);
            drop(earlier);
            folder.discard_if_empty();
            if descriptors::is_shortage(&error) {
                let message = format!("cannot run the command under gputrace: {}", reason(&error));
                return Err(not_started(Failure::new(message)));
            }
            return Err(refusal::explain(&request.command[0], &error));
        }
    };
    earlier.remove();
    let session_variable = recorder.socket_path().map(|path| {
        let mut variable = format!("{}=", options::SESSION.variable).into_bytes();
        variable.extend_from_slice(path.as_os_str().as_encoded_bytes());
        variable
    });
    let watch = Watch::start(program.pid(), session_variable.unwrap_or_default());
    let mut seen = Seen::default();
    let ended = program.wait(|pid, signal| {
        handle.note_death(pid, signal);
        seen = watch.finish();
    });
    let status = ended.map_err(|error| cannot_wait(&error))?;
    for line in unseen::other_users(&seen) {
        handle.note_unrecorded(line);
    }

    // What was recorded is written now, whatever is wrong with it; the exit code stays the
    // command's. Once the trace is closed, signals mean us again: the first ends the wait for a back end.
    match recorder.finish(GRACE) {
        Ok(recording) => {
            before.hear_the_end();
            let recording = sending.take_last(recording);
            warn_about_running(&recording);
            let why_nothing = unseen::why_nothing(
                &recording.totals,
                &seen,
                request.untraceable.as_deref(),
                request.simulate,
            );
            let talk = outputs::Talk { verbose: request.verbose, why_nothing: why_nothing.as_deref() };
            say_text(&outputs::finish(
                &recording,
                &folder,
                request.json.as_deref(),
                sending,
                &request.settings.flames,
                talk,
            ));
        }
        Err(error) => say(format_args!("{}", Failure::from(error))),
    }
    drop(control);
    drop(session);
    Ok(ending::end_as(status))
}

/// The session ends soon after the command; whoever started a daemon may not expect that.
fn warn_about_running(recording: &Recording<Aggregates>) {
    let runs = |process: &&Process| matches!(process.end, Some((ProcessEnd::Running, _)));
    let running: Vec<_> =
        recording.totals.processes.iter().filter(runs).map(|process| process.begin.pid.to_string()).collect();
    if running.is_empty() {
        return;
    }
    say(format_args!(
        "gputrace: warning: not recorded from now on, since the command has ended and they run on: process {}\n  \
         hint: what outlives its command is recorded whole by gputrace collect --listen DIR",
        running.join(", ")
    ));
}

/// The program runs on, perhaps for days: somebody may make room.
pub fn say_at_once(news: &TraceNews) {
    match news {
        TraceNews::Stopped(error) => {
            let hint =
                "make room: it is written on from there; what comes meanwhile is in this run's summary only";
            say(format_args!("{}", Failure::from(*error).hint(hint)));
        }
        TraceNews::GoesOn { left_out } => say(format_args!(
            "gputrace: warning: the trace file is written again; {left_out} entries are in this run's summary only"
        )),
        TraceNews::NotRotated(error) => {
            let hint = "the trace file is written on; rotation is tried again every 10 s";
            say(format_args!("{}", Failure::from(*error).hint(hint)));
        }
        TraceNews::Removed(path) => say(format_args!(
            "gputrace: warning: {} was removed or moved away; what is recorded goes to the file that it was",
            printable::name(path)
        )),
    }
}

/// The head of a stream; the recorder fills in the times.
pub fn begin(command: Vec<String>, redact: bool) -> SessionBegin {
    let command = if redact { command_line::redacted(&command) } else { command };
    SessionBegin { recorder: env!("CARGO_PKG_VERSION").into(), command, ..SessionBegin::default() }
}
