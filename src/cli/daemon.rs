//! `gputrace collect --listen`: the daemon. Programs join and leave it, and keep running when it ends;
//! another daemon that listens in the same folder takes them over.

use std::fs::{self, DirBuilder, File};
use std::mem::zeroed;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gputrace_collector::session::{ProcessSource, Recorder, RecorderConfig};

use crate::cli::failure::{Failure, reason};
use crate::cli::otlp::{self, Audience};
use crate::cli::output_folder::{OutputFolder, TRACE};
use crate::cli::rotation::Rotation;
use crate::cli::settings::Settings;
use crate::cli::talk::{say, say_text};
use crate::cli::{exit_code, flight_recorder, options, outputs, recording, stdout, variables};
use crate::launch::control::About;
use crate::launch::live_settings::LiveSettings;
use crate::launch::private_folder;
use crate::sampling;

/// How long processes may take to leave, if they are about to, once the collector is to end.
const GRACE: Duration = Duration::from_millis(500);
/// Between looks whether the last process has left.
const LOOK: Duration = Duration::from_millis(100);
const ENDING: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Listens in `directory` and records into `folder` until a signal or, if `once`, until the last
/// process has left.
pub fn collect(
    directory: &Path,
    folder: &OutputFolder,
    once: bool,
    settings: &Settings,
    rotation: Option<Rotation>,
) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let (directory, _lock) = take(directory)?;
    private_folder::sweep();
    // Before any thread is made, so that none of them is interrupted.
    let signals = hold_signals();
    let trace = folder.file(TRACE);
    let (device_sampler, sampler) = sampling::of_session(settings.device_metrics);
    let config = RecorderConfig {
        source: ProcessSource::Daemon { directory },
        trace_path: trace.clone(),
        begin: recording::begin(std::env::args().collect(), settings.redacts),
        flight: flight_recorder::config(settings.limits.flight, folder, &settings.flames),
        max_bytes: settings.limits.max_bytes,
        rotation: rotation.map(|rotation| rotation.config(folder, &settings.flames)),
        on_trace_event: Some(recording::say_at_once),
        device_sampler,
    };
    let (sinks, mut sending) = otlp::start(&settings.otlp, Audience::Person, recording::DRAIN);
    // Of a trace that is cut, each file is added up by itself, once it is closed.
    let (aggregates, sent) = sinks;
    let live_view = Arc::clone(&aggregates.view);
    let sinks = (rotation.is_none().then_some(aggregates), sent);
    let recorder = Recorder::start(config, sinks).inspect_err(|_| {
        // The trace file was made for this collector alone; nothing is in it.
        let _ = fs::remove_file(trace);
    })?;
    let about = About {
        kind: "collect",
        command: Vec::new(),
        output: folder.path().to_owned(),
        sender: sending.sender(),
        live_view,
        settings: LiveSettings::new(settings.device_metrics, sampler),
    };
    let control = flight_recorder::listen_alone(about, recorder.handle(), settings.limits.flight.is_some());
    let timers = settings.limits.part.timers(recorder.handle())?;
    if let Some(socket) = recorder.socket_path() {
        stdout::print(format!("{}={}\n", options::SESSION.variable, socket.display()).as_bytes())?;
    }
    while !(has_end_signal(&signals) || once && recorder.has_ended()) {}
    drop(timers);
    let finished = recorder.finish(GRACE);
    drop(control);
    match finished {
        Ok(recording) => {
            let (recording, ()) =
                recording.with_sink(|(aggregates, sent)| ((aggregates.unwrap_or_default(), sent), ()));
            let mut recording = sending.take_last(recording);
            let files = rotation.map(|rotation| rotation.take_last_file(&mut recording));
            let flames = &settings.flames;
            let mut text =
                outputs::finish(&recording, folder, None, sending, flames, outputs::Talk::default());
            text.extend(files);
            say_text(&text);
            Ok(exit_code::SUCCESS)
        }
        Err(error) => {
            say(format_args!("{}", Failure::from(&error)));
            Ok(error.exit_code())
        }
    }
}

/// Makes the folder if it is not there, and sees to it that no other collector listens in it. The
/// path is absolute: programs change their working folder.
fn take(directory: &Path) -> Result<(PathBuf, File), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot listen in {}: {}", directory.display(), reason(&error)))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let path = directory.canonicalize().map_err(failed)?;
    let lock = File::open(&path).map_err(failed)?;
    if lock.try_lock().is_err() {
        return Err(Failure::new(format!("another collector listens in {}", directory.display()))
            .hint("programs join it with GPUTRACE_SESSION; a second one needs a folder of its own"));
    }
    Ok((path, lock))
}

/// Blocks the signals that end the collector, in this thread and all that it makes.
fn hold_signals() -> libc::sigset_t {
    // SAFETY: zero is a valid signal set, and the calls write to live ones only.
    unsafe {
        let mut signals: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut signals);
        for signal in ENDING {
            libc::sigaddset(&mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        signals
    }
}

/// Whether one of them came, waiting a moment for it.
fn has_end_signal(signals: &libc::sigset_t) -> bool {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    // SAFETY: a live set and a live timespec; what came is not asked for.
    unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &limit) > 0 }
}
