//! `gputrace collect`: the collector alone, which the preload library starts for auto-collect.
//!
//! Nobody reads its stdout or stderr: its messages go back over the socket. With `--listen` a user starts it,
//! and `daemon` does the rest.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use gputrace_collector::command_line;
use gputrace_collector::live::MessageWriter;
use gputrace_collector::session::{self, ProcessSource, Recorder, RecorderConfig};
use gputrace_wire::handshake::{self, HEAD_BYTES, Head};

use crate::cli::failure::Failure;
use crate::cli::otlp::{self, Audience, Sending, Sinks};
use crate::cli::output_folder::{OutputFolder, TRACE, default_path, folder_name, numbered};
use crate::cli::rotation::Rotation;
use crate::cli::settings::{Limits, Settings};
use crate::cli::{
    daemon, exit_code, flight_recorder, options, output_argument, outputs, printable, recording, rotation,
    trace_folder, variables,
};
use crate::launch::control::{About, Control};
use crate::launch::live_settings::LiveSettings;
use crate::launch::private_folder::SessionFolder;
use crate::launch::schedule::Timers;
use crate::sampling;

/// The most that the end waits for an OTLP back end. The program waits too, for at most two seconds without
/// progress.
const DRAIN: Duration = Duration::from_millis(1500);
/// The most of a command line that the kernel takes in one argument.
const COMMAND_MAX: usize = 128 * 1024;

pub fn command() -> Command {
    Command::new("collect")
        .about("Collect from programs that join and leave; auto-collect starts it")
        .next_line_help(true)
        .after_help(
            "With --listen the first line on stdout is the variable that a program joins by, beside the preload\n\
             library: LD_PRELOAD=$(gputrace lib) GPUTRACE_SESSION=DIR/socket program\n\
             A collector that is started again after its end, however it ended, takes over the programs that run;\n\
             gputrace report reads both traces as one. With --flight-recorder there is nothing to be taken over.\n\
             With --rotate-size or --rotate-every a closed trace file is trace.000001.gputrace and so on;\n\
             gputrace report of the folder reads all of them as one.\n\
             gputrace help OPTION describes an option in full.",
        )
        .arg(
            Arg::new("fd")
                .long("fd")
                .value_name("N")
                .required_unless_present("listen")
                .value_parser(value_parser!(RawFd).range(0..))
                .help("The descriptor of the socket to one process"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("DIR")
                .conflicts_with_all(["fd", "program", "pid"])
                .value_parser(value_parser!(PathBuf))
                .help("Listen in this folder, which becomes private, for programs, until SIGTERM or SIGINT"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .requires("listen")
                .action(ArgAction::SetTrue)
                .help("End when the last program has left"),
        )
        .arg(output_argument::folder("The folder to write to; a folder inside it, if it holds a trace"))
        .args(options::FLIGHT_RECORDER.argument())
        .args(options::MAX_SIZE.argument())
        .args(options::DELAY.argument())
        .args(options::DURATION.argument())
        .args(rotation::arguments())
        .args(options::GROUP_BY.argument())
        .args(options::DEVICE_METRICS.argument())
        .args(options::OTLP.argument())
        .args(otlp::arguments())
        .arg(
            Arg::new("program")
                .long("program")
                .value_name("NAME")
                .value_parser(value_parser!(OsString))
                .help("What the default folder is named after"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .help("The process, for the default folder's name"),
        )
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let settings = Limits::new(matches)
        .and_then(|limits| limits.part.refuse_shutdown().map(|()| Settings::new(matches, limits)));
    if let Some(directory) = matches.get_one::<PathBuf>("listen") {
        let settings = settings?;
        let rotation = Rotation::new(matches, &settings.limits)?;
        let folder = choose_folder(settings.output.clone(), OsStr::new("collect"), std::process::id())?;
        return daemon::collect(directory, &folder, matches.get_flag("once"), &settings, rotation);
    }
    Rotation::refuse_without_listen(matches)?;
    let fd = matches.get_one::<RawFd>("fd").copied().unwrap_or(-1);
    let socket = owned_socket(fd)?;
    // Failures have to reach the user through the process, so a second handle stays here until
    // the recording works; kept longer it would hide the socket's end from the process.
    let second = socket.try_clone().ok();
    let started = settings.and_then(|settings| Ok((start(matches, socket, &settings)?, settings.flames)));
    match started {
        Ok(((recorder, folder, control, mut sending), flames)) => {
            drop(second);
            recorder.wait_for_end();
            let handle = recorder.handle();
            let recording = recorder.finish(Duration::ZERO);
            drop(control);
            let recording = sending.take_last(recording?);
            let mut text = handle.take_texts().concat();
            text.extend(variables::warnings().into_iter().map(|line| line + "\n"));
            text += &outputs::finish(&recording, &folder, None, sending, &flames, outputs::Talk::default());
            recording.reply(&text);
            Ok(exit_code::SUCCESS)
        }
        Err(failure) => {
            if let Some(socket) = second {
                answer_goodbye(&socket, &format!("{failure}\n"));
            }
            Err(failure)
        }
    }
}

/// What lasts as long as the session: the recorder, where it writes, and who answers for it.
type Started =
    (Recorder<Sinks>, OutputFolder, (Option<Timers>, Option<Control>, Option<SessionFolder>), Sending);

fn start(matches: &ArgMatches, socket: OwnedFd, settings: &Settings) -> Result<Started, Failure> {
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or(0);
    let name = matches.get_one::<OsString>("program").cloned().unwrap_or_else(|| name_of(pid));
    let folder = choose_folder(settings.output.clone(), &name, pid)?;
    let (device_sampler, sampler) = sampling::of_session(settings.device_metrics);
    let config = RecorderConfig {
        source: ProcessSource::Connected(socket),
        trace_path: folder.file(TRACE),
        begin: recording::begin(command_of(pid), settings.redacts),
        flight: flight_recorder::config(settings.limits.flight, &folder, &settings.flames),
        max_bytes: settings.limits.max_bytes,
        rotation: None,
        // Nobody reads the messages of this collector before the end.
        on_trace_event: None,
        device_sampler,
    };
    let command = command_line::masked(&config.begin.command);
    let trace = config.trace_path.clone();
    let (mut sinks, sending) = otlp::start(&settings.otlp, Audience::Nobody, DRAIN);
    let live_view = Arc::clone(&sinks.0.view);
    // The process writes what the user should see at once.
    let recording_handle = Arc::new(OnceLock::<session::Handle>::new());
    let to_process = Arc::clone(&recording_handle);
    sinks.0.write_message = Some(MessageWriter(Box::new(move |text| {
        to_process.get().into_iter().for_each(|handle| handle.say(&printable::text(text)));
    })));
    match Recorder::start(config, sinks) {
        Ok(recorder) => {
            let _ = recording_handle.set(recorder.handle());
            let output = folder.path().to_owned();
            let sender = sending.sender();
            let settings_now = LiveSettings::new(settings.device_metrics, sampler);
            let about = About { kind: "collect", command, output, sender, live_view, settings: settings_now };
            let timers = settings.limits.part.timers(recorder.handle())?;
            let (control, session) =
                flight_recorder::listen_alone(about, recorder.handle(), settings.limits.flight.is_some());
            Ok((recorder, folder, (timers, control, session), sending))
        }
        Err(error) => {
            // The trace file was made for this process alone; nothing is in it.
            let _ = fs::remove_file(trace);
            folder.discard_if_empty();
            Err(error.into())
        }
    }
}

/// Waits for the process's good-bye and answers with why there is no recording; the process prints that
/// instead of the summary. Descriptors that come with its messages are dropped unread.
fn answer_goodbye(socket: &OwnedFd, text: &str) {
    let mut packet = [0; HEAD_BYTES];
    loop {
        // SAFETY: a live buffer of that length and a descriptor of ours.
        let got = unsafe { libc::recv(socket.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
        match usize::try_from(got) {
            Ok(0) => return,
            Ok(_) if Head::parse(&packet).is_ok_and(|(head, _)| head.kind == handshake::kind::BYE) => break,
            Err(_) if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
    let text = text.as_bytes();
    let head = Head { text_bytes: text.len() as u32, ..Head::new(handshake::kind::DONE, 0, 0, 0) };
    let packet = [&head.to_bytes()[..], text].concat();
    // SAFETY: as above; no signal if the process is gone.
    unsafe { libc::send(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
}

/// Takes the descriptor over, if it is a socket at all.
fn owned_socket(fd: RawFd) -> Result<OwnedFd, Failure> {
    let mut kind = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: getsockopt writes at most `length` bytes into `kind` and fails on what is no socket.
    let found = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut length)
    };
    if found != 0 || kind != libc::SOCK_SEQPACKET {
        return Err(Failure::new(format!("descriptor {fd} is no socket to a traced process"))
            .hint("collect is started by the preload library; to trace a command, use gputrace run")
            .code(exit_code::USAGE));
    }
    // SAFETY: the descriptor is open, was given to us for this purpose, and nobody else here
    // knows its number.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: fcntl on a descriptor that we own.
    unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(socket)
}

/// The folder asked for, or the default one. Several processes may be given the same folder: the first
/// one uses it, and each of the others makes one inside it. A process that becomes another program by exec
/// has several sessions, each with its folder.
fn choose_folder(asked: Option<PathBuf>, name: &OsStr, pid: u32) -> Result<OutputFolder, Failure> {
    let own =
        asked.as_ref().map_or_else(|| default_path(name, pid), |path| path.join(folder_name(name, pid)));
    for path in asked.into_iter().chain(numbered(&own)) {
        let folder = OutputFolder::prepare(path)?;
        let trace = folder.file(TRACE);
        if trace_folder::holds_trace(folder.path()) {
            continue;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(trace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            _ => return Ok(folder),
        }
    }
    OutputFolder::prepare(own)
}

fn command_of(pid: u32) -> Vec<String> {
    let line = session::command_line(pid, COMMAND_MAX).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    if line.is_empty() {
        return Vec::new();
    }
    line.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

fn name_of(pid: u32) -> OsString {
    command_of(pid).first().map_or_else(|| "program".into(), OsString::from)
}
