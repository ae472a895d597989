//! A recorded run of one command, for `run` and `demo`.
//!
//! The order matters: the command is started only once everything that we need is there or known to be
//! unavailable, and what was recorded is written however the command ended.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::{ProcessEnd, SessionBegin};
use gputrace_collector::command_line;
use gputrace_collector::live::MessageWriter;
use gputrace_collector::model::Process;
use gputrace_collector::session::{
    DeviceSampler, ProcessSource, Recorder, RecorderConfig, Recording, TraceEvent,
};
use gputrace_collector::spans;

use crate::cli::failure::{Failure, reason};
use crate::cli::otlp::{self, Audience, Sending, Sinks};
use crate::cli::output_folder::{FILES, OUTPUT_LOG, OutputFolder, SetAside, TRACE};
use crate::cli::settings::Settings;
use crate::cli::talk::{say, say_text};
use crate::cli::top::live;
use crate::cli::{
    exit_code, flight_recorder, library, options, outputs, printable, spare_folder, unseen, variables,
};
use crate::launch::child::{self, Program};
use crate::launch::control::{About, Control};
use crate::launch::descendants::{Seen, Watch};
use crate::launch::extract::Libraries;
use crate::launch::live_settings::LiveSettings;
use crate::launch::private_folder::{self, SessionFolder};
use crate::launch::schedule::Timers;
use crate::launch::signals::{self, Before};
use crate::launch::{descriptors, ending, environment, refusal, sanitizer_runtime, untraced};
use crate::sampling;

/// How long the processes that the command leaves behind may take to end, if they are about to.
const GRACE: Duration = Duration::from_millis(500);
/// The most that the end waits for an OTLP back end.
pub const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct RunRequest {
    pub command: Vec<OsString>,
    /// What the default output folder is named after.
    pub name: OsString,
    pub settings: Settings,
    pub simulate: bool,
    /// Whether the terminal shows a screen while the command runs.
    pub is_live: bool,
    /// Whether the summary shows what only experts look for.
    pub verbose: bool,
    /// Why the command's own program cannot be traced, if that is known beforehand.
    pub untraceable: Option<String>,
    /// Where to put the live session's report as JSON.
    pub json: Option<PathBuf>,
}

/// Runs the command and returns its exit code; dies of its signal if it died of one. A command that
/// cannot be traced runs untraced, with a warning: running it matters more than tracing it.
pub fn record(mut request: RunRequest) -> Result<u8, Failure> {
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
        // Better to fail on a wrong name now than after the job.
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
fn run_untraced(request: &RunRequest) -> Failure {
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

/// Whether the name is wrong; otherwise the disk is full.
fn cannot_be_made(asked: &Path) -> bool {
    let tried = OutputFolder::prepare(asked.to_owned());
    tried.is_err_and(|failure| failure.exit_code == exit_code::collector::CANNOT_CREATE)
}

fn cannot_wait(error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for the command: {}", reason(error))).code(exit_code::collector::SYSTEM)
}

/// What a run needs before its command starts.
struct Preparation {
    folder: OutputFolder,
    session: SessionFolder,
    libraries: Libraries,
    /// The earlier run's files. They come back if the command does not start; files of two runs must not lie
    /// beside each other.
    earlier: SetAside,
}

impl Preparation {
    fn new(request: &RunRequest) -> Result<Preparation, Failure> {
        let asked = request.settings.output.clone();
        let folder = OutputFolder::prepare_alone(asked, &request.name, std::process::id())?;
        private_folder::sweep();
        let session = SessionFolder::create().map_err(|error| {
            Failure::new(format!("cannot make a folder for the session: {}", reason(&error)))
                .hint("set TMPDIR to a writable folder with a short path")
        })?;
        let libraries = library::for_session(&session)?;
        let names: Vec<&str> = FILES.into_iter().chain([OUTPUT_LOG]).collect();
        let earlier = folder.set_aside(&names)?;
        Ok(Preparation { folder, session, libraries, earlier })
    }

    /// Leaves the output folder as it was.
    fn undo(self) {
        for name in [TRACE, OUTPUT_LOG] {
            let _ = fs::remove_file(self.folder.file(name));
        }
        drop(self.earlier);
        self.folder.discard_if_empty();
    }

    fn recorder_config(
        &self,
        request: &RunRequest,
        device_sampler: Option<Box<dyn DeviceSampler>>,
    ) -> RecorderConfig {
        let command = request.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let begin = SessionBegin {
            traceparent: environment::traceparent(),
            hands_on: request.settings.hands_on,
            ..begin(command, request.settings.redacts)
        };
        if let Some(why) = spans::run::complaint(&begin).filter(|_| begin.hands_on) {
            say(format_args!("gputrace: warning: {why}; the command is given another one"));
        }
        let Settings { limits, flames, .. } = &request.settings;
        RecorderConfig {
            source: ProcessSource::Listen { directory: self.session.path().to_path_buf() },
            trace_path: self.folder.file(TRACE),
            begin,
            flight: flight_recorder::config(limits.flight, &self.folder, flames),
            max_bytes: limits.max_bytes,
            rotation: None,
            on_trace_event: Some(say_at_once),
            device_sampler,
        }
    }

    /// The variables with which the command joins the session.
    fn variables(&self, request: &RunRequest, recorder: &Recorder<Sinks>) -> Vec<(&'static str, OsString)> {
        let mut variables = request.settings.environment.clone();
        variables.extend(recorder.socket_path().map(|path| (options::SESSION.variable, path.into())));
        variables.extend(spans::run::traceparent(recorder.begin()).map(|own| ("TRACEPARENT", own.into())));
        let sanitizer = request.command.first().and_then(|program| sanitizer_runtime::of(program));
        let preload = environment::preload(&self.libraries.preload, sanitizer.as_deref());
        variables.push(("LD_PRELOAD", preload));
        if request.simulate {
            variables.push(("LD_LIBRARY_PATH", environment::library_path(&self.libraries.simulated)));
        }
        variables
    }
}

/// Runs the command traced. An error with the code `NOT_STARTED` means that it can still run untraced.
fn traced(request: &RunRequest) -> Result<u8, Failure> {
    let not_started = |failure: Failure| failure.code(exit_code::NOT_STARTED);
    if let Some(value) = variables::switched_off() {
        say(format_args!("gputrace: warning: GPUTRACE={value}: nothing will be traced"));
    }
    let preparation = Preparation::new(request).map_err(not_started)?;
    let sampled = request.settings.device_metrics;
    let (device_sampler, sampler) = sampling::of_session(sampled);
    let config = preparation.recorder_config(request, device_sampler);
    let command = command_line::masked(&config.begin.command);
    let (mut sinks, sending) = otlp::start(&request.settings.otlp, Audience::Person, DRAIN);
    sinks.0.write_message = Some(MessageWriter(Box::new(|text| say_text(&printable::text(text)))));
    let live_view = Arc::clone(&sinks.0.view);
    let recorder = match Recorder::start(config, sinks) {
        Ok(recorder) => recorder,
        Err(error) => {
            preparation.undo();
            return Err(not_started(error.into()));
        }
    };
    let variables = preparation.variables(request, &recorder);
    let before = signals::take_over();
    let output = preparation.folder.path().to_owned();
    let (sender, settings) = (sending.sender(), LiveSettings::new(sampled, sampler));
    let about = About { kind: "run", command, output, sender, live_view, settings };
    let is_flight_recorder = request.settings.limits.flight.is_some();
    let control =
        flight_recorder::listen(Ok(preparation.session.path()), about, recorder.handle(), is_flight_recorder);
    let undo = |control, recorder, preparation: Preparation| {
        before.restore_all();
        drop::<(Option<Control>, Recorder<Sinks>)>((control, recorder));
        preparation.undo();
    };
    let timers = match request.settings.limits.part.timers(recorder.handle()) {
        Ok(timers) => timers,
        Err(failure) => {
            undo(control, recorder, preparation);
            return Err(not_started(failure));
        }
    };
    let live = request.is_live.then(|| live::Prepared::new(&preparation.folder)).transpose();
    let mut live = match live {
        Ok(live) => live,
        Err(failure) => {
            undo(control, recorder, preparation);
            return Err(not_started(failure));
        }
    };
    let streams = live.as_mut().map(|live| std::mem::take(&mut live.streams)).unwrap_or_default();
    let program = match child::start(&request.command, &variables, before, streams) {
        Ok(program) => program,
        Err(error) => {
            undo(control, recorder, preparation);
            if descriptors::is_shortage(&error) {
                let message = format!("cannot run the command under gputrace: {}", reason(&error));
                return Err(not_started(Failure::new(message)));
            }
            return Err(refusal::explain(&request.command[0], &error));
        }
    };
    let Preparation { folder, session, earlier, .. } = preparation;
    earlier.remove();
    let showing = live.map(|live| live.start(session.path()));
    let shuts_down = request.settings.limits.part.shuts_down;
    let (status, seen) = wait_for(program, &recorder, shuts_down).map_err(|error| cannot_wait(&error))?;
    drop((showing, timers));
    // What was recorded is written now, whatever is wrong with it; the exit code stays the command's.
    match recorder.finish(GRACE) {
        Ok(recording) => write_outputs(request, recording, &folder, sending, &seen, before),
        Err(error) => say(format_args!("{}", Failure::from(error))),
    }
    drop(control);
    drop(session);
    Ok(ending::end_as(status))
}

/// Waits for the program's end, and watches its descendants meanwhile.
fn wait_for(
    program: Program,
    recorder: &Recorder<Sinks>,
    shuts_down: bool,
) -> io::Result<(ExitStatus, Seen)> {
    let handle = recorder.handle();
    let session_variable = recorder.socket_path().map(|path| {
        let mut variable = format!("{}=", options::SESSION.variable).into_bytes();
        variable.extend_from_slice(path.as_os_str().as_encoded_bytes());
        variable
    });
    let watch = Watch::start(program.pid(), session_variable.unwrap_or_default());
    let shutdown = shuts_down.then(|| Timers::shut_down(handle.clone(), program.pid(), say_shutdown));
    let shutdown = shutdown.transpose()?;
    let mut seen = Seen::default();
    let status = program.wait(|pid, signal| {
        // Before the process is reaped: its id may be another's afterwards.
        drop(shutdown);
        handle.note_death(pid, signal);
        seen = watch.finish();
    })?;
    for line in unseen::other_users(&seen) {
        handle.note_unrecorded(line);
    }
    Ok((status, seen))
}

fn write_outputs(
    request: &RunRequest,
    recording: Recording<Sinks>,
    folder: &OutputFolder,
    mut sending: Sending,
    seen: &Seen,
    before: Before,
) {
    // The trace is closed, so signals are for us again: the first ends the wait for a back end.
    before.hear_the_end();
    let recording = sending.take_last(recording);
    warn_about_running(&recording);
    let untraceable = request.untraceable.as_deref();
    let why_nothing = unseen::why_nothing(&recording.totals, seen, untraceable, request.simulate);
    let talk = outputs::Talk { verbose: request.verbose, why_nothing: why_nothing.as_deref() };
    let json = request.json.as_deref();
    say_text(&outputs::finish(&recording, folder, json, sending, &request.settings.flames, talk));
}

fn say_shutdown(pid: u32) {
    say(format_args!(
        "gputrace: the capture range has ended: sending SIGTERM to process {pid}, as --capture-range-end asked"
    ));
}

/// The session ends soon after the command, which users who start a daemon may not expect.
fn warn_about_running(recording: &Recording<Aggregates>) {
    let runs = |process: &&Process| matches!(process.end, Some((ProcessEnd::Running, _)));
    let running: Vec<_> =
        recording.totals.processes.iter().filter(runs).map(|process| process.begin.pid.to_string()).collect();
    if running.is_empty() {
        return;
    }
    say(format_args!(
        "gputrace: warning: no longer recorded, since the command has ended: process {}\n  \
         hint: to record programs that outlive the command: gputrace collect --listen DIR",
        running.join(", ")
    ));
}

/// Warns at once: the program runs on, perhaps for days, and its user may free some space.
pub fn say_at_once(change: &TraceEvent) {
    match change {
        TraceEvent::Stopped(error) => {
            let hint =
                "free some space to continue the file; events meanwhile are in this run's summary only";
            say(format_args!("{}", Failure::from(*error).hint(hint)));
        }
        TraceEvent::GoesOn { left_out } => say(format_args!(
            "gputrace: warning: the trace file is written again; {left_out} entries are in this run's summary only"
        )),
        TraceEvent::NotRotated(error) => {
            let hint = "the trace file is written on; rotation is tried again every 10 s";
            say(format_args!("{}", Failure::from(*error).hint(hint)));
        }
        TraceEvent::Removed(path) => say(format_args!(
            "gputrace: warning: {} was removed or moved; recording continues into that file",
            printable::name(path)
        )),
    }
}

/// The head of a stream; the recorder fills in the times.
pub fn begin(command: Vec<String>, redact: bool) -> SessionBegin {
    let command = if redact { command_line::redacted(&command) } else { command };
    SessionBegin { recorder: env!("CARGO_PKG_VERSION").into(), command, ..SessionBegin::default() }
}
