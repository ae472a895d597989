//! `gputrace top`: devices, processes and traced programs on one screen, live.

mod devices;
pub mod live;
mod sessions;

use std::env;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use gputrace_monitor::MonitorConfig;
use gputrace_tui::{Action, Glyphs, Palette, Pending, Scene, Tab, Terminal, TerminalError, View, key, plain};
use ratatui::crossterm::event::Event;

use crate::cli::failure::{Failure, reason};
use crate::cli::{exit_code, stdout, talk, variables};
use devices::Devices;
use live::Running;
use sessions::Sessions;

/// The size of a frame that goes to no terminal, without COLUMNS and LINES.
const PLAIN_SIZE: (u16, u16) = (120, 45);
/// At the beginning, the screen is drawn this often: devices and sessions answer one after another.
const FIRST_INTERVAL: Duration = Duration::from_millis(150);
const SETTLING: Duration = Duration::from_secs(3);
const INTERVAL_SECONDS_MIN: f64 = 0.1;
const INTERVAL_SECONDS_MAX: f64 = 3600.0;

pub fn command() -> Command {
    Command::new("top")
        .about("Watch GPUs, their processes, and traced programs, live")
        .next_line_help(true)
        .after_help(
            "Keys: q leaves, h lists all keys. Of a program under gputrace run, the tables Kernels, Lines,\n\
             Streams, Copies and Memory come from its session while it runs; the program does nothing for\n\
             them.\n\
             NO_COLOR switches colours off; without UTF-8 in the locale, the screen is ASCII.",
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .value_parser(interval)
                .default_value("0.5")
                .help("How often the screen is drawn; devices are read ten times a second"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Print one frame as text and leave, for scripts and pipes"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .requires("once")
                .help("With --once: everything that is known, as one JSON document"),
        )
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (INTERVAL_SECONDS_MIN..=INTERVAL_SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("seconds are a number from {INTERVAL_SECONDS_MIN} to {INTERVAL_SECONDS_MAX}")),
    }
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let glyphs = glyphs();
    if matches.get_flag("once") {
        return once(matches.get_flag("json"), &glyphs);
    }
    let interval = matches.get_one::<Duration>("interval").copied().unwrap_or(Duration::from_millis(500));
    let palette = Palette::new(wants_colours());
    let mut terminal = Terminal::open(glyphs, palette).map_err(|error| match error {
        TerminalError::NoTerminal => Failure::new(format!("top needs a terminal: {error}"))
            .hint("gputrace top --once prints one frame, and with --json everything for programs")
            .code(exit_code::USAGE),
        TerminalError::System(_) => Failure::new(error.to_string()).code(exit_code::collector::SYSTEM),
    })?;
    let sessions = Sessions::start(interval, None);
    watch(&mut terminal, interval, &sessions, View::default(), None).map(|()| exit_code::SUCCESS)
}

fn glyphs() -> Glyphs {
    if is_utf8() { Glyphs::UNICODE } else { Glyphs::ASCII }
}

/// How devices are read for somebody who looks at them: what takes a driver long is read each
/// second.
fn live_config() -> MonitorConfig {
    MonitorConfig {
        slow_interval: Some(Duration::from_secs(1)),
        counters_interval: Duration::from_secs(10),
        process_interval: Duration::from_secs(1),
        ..MonitorConfig::default()
    }
}

/// One frame, or everything as JSON.
fn once(is_json: bool, glyphs: &Glyphs) -> Result<u8, Failure> {
    let config = MonitorConfig { background_collection: false, ..live_config() };
    let devices = Devices::open(&config);
    let mut scene = devices.scene_now();
    sessions::add(&mut scene, sessions::all());
    let text = if is_json {
        let json = serde_json::to_string_pretty(&scene);
        let json = json.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
        format!("{json}\n")
    } else {
        plain(&scene, &first_view(&scene), plain_size(), glyphs)
    };
    stdout::print(text.as_bytes())?;
    let is_empty = scene.devices.is_empty() && scene.sessions.is_empty();
    Ok(if is_empty { exit_code::FAILED } else { exit_code::SUCCESS })
}

/// Without devices, the first table is one of the traced programs.
fn first_view(scene: &Scene) -> View {
    let tab =
        if scene.devices.is_empty() && !scene.sessions.is_empty() { Tab::Kernels } else { Tab::Processes };
    View { tab, ..View::default() }
}

fn plain_size() -> (u16, u16) {
    let of = |name| env::var(name).ok()?.trim().parse::<u16>().ok().filter(|size| *size > 0);
    (of("COLUMNS").unwrap_or(PLAIN_SIZE.0), of("LINES").unwrap_or(PLAIN_SIZE.1))
}

/// Draws and handles keys until the user leaves, or the program ends that runs behind the screen.
fn watch(
    terminal: &mut Terminal,
    interval: Duration,
    sessions: &Sessions,
    mut view: View,
    program: Option<&Running>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!("the terminal cannot be used: {}", reason(&error)))
            .code(exit_code::collector::SYSTEM)
    };
    // A driver may take seconds, or hang: keys work meanwhile.
    let (opened, opening) = mpsc::channel();
    let open = move || drop(opened.send(Devices::open(&live_config())));
    thread::Builder::new().name("gputrace-devices".into()).spawn(open).map_err(failed)?;
    let mut devices = None;
    let mut scene = Scene { is_opening: true, ..Scene::default() };
    let mut has_chosen = program.is_some();
    let begin = Instant::now();
    let mut due = begin;
    loop {
        if Instant::now() >= due {
            let is_settled = devices.is_some() && begin.elapsed() > SETTLING;
            due = Instant::now() + if is_settled { interval } else { interval.min(FIRST_INTERVAL) };
            devices = devices.or_else(|| opening.try_recv().ok());
            if let Some(devices) = &devices
                && !view.is_paused
            {
                scene = devices.scene();
                scene.problems.extend(talk::held_back());
            }
            if !view.is_paused {
                sessions::add(&mut scene, sessions.latest());
                if !has_chosen && devices.is_some() {
                    view.tab = first_view(&scene).tab;
                }
                view.fit(&scene);
            }
        }
        if program.is_some_and(Running::has_ended) {
            return Ok(());
        }
        terminal.show(&scene, &view).map_err(failed)?;
        let mut limit = due.saturating_duration_since(Instant::now());
        if let Some(program) = program {
            program.fit(terminal.size());
            limit = limit.min(live::LOOKS_EVERY);
        }
        let event = terminal.event(limit).map_err(failed)?;
        // Of other events only a new size matters, and the next frame has it.
        let Some(Event::Key(pressed)) = event else { continue };
        has_chosen = true;
        match key(pressed, &mut view, &scene) {
            Action::Nothing => {}
            Action::Stop if program.is_some() => terminal.stop_group(),
            Action::Stop => terminal.stop(),
            Action::Quit => return Ok(()),
            Action::Pass(byte) => program.into_iter().for_each(|program| program.press(byte)),
            Action::Signal(pending) => {
                let is_there = devices.as_ref().is_some_and(|devices| is_there(pending.pid, &scene, devices));
                view.message = if is_there { signal(pending) } else { gone(pending.pid) };
            }
        }
    }
}

/// Whether a process still is the one that the screen shows: a paused screen may be old, and the pid
/// another process's by now.
fn is_there(pid: u32, shown: &Scene, devices: &Devices) -> bool {
    let now = devices.scene();
    let command = |scene: &Scene| {
        scene.processes.iter().find(|process| process.pid == pid).map(|process| process.command.clone())
    };
    command(&now).is_some_and(|found| command(shown) == Some(found))
}

fn gone(pid: u32) -> String {
    format!("process {pid} does not use a GPU any more: no signal was sent")
}

/// Sends the signal and says what came of it.
fn signal(pending: Pending) -> String {
    let Pending { pid, signal } = pending;
    let name = if signal == libc::SIGKILL { "SIGKILL" } else { "SIGTERM" };
    let Ok(target) = libc::pid_t::try_from(pid) else { return format!("process {pid} cannot be signalled") };
    // SAFETY: kill takes plain numbers. The pid is positive, so it names one process.
    match unsafe { libc::kill(target, signal) } {
        0 => format!("{name} was sent to process {pid}"),
        _ => format!("{name} could not be sent to process {pid}: {}", reason(&io::Error::last_os_error())),
    }
}

/// Whether the locale's encoding is UTF-8.
fn is_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// <https://no-color.org>, and terminals that say that they have none.
fn wants_colours() -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && env::var("TERM").is_ok_and(|terminal| terminal != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for senseless in ["0", "-1", "nan", "inf", "3601", "", "1s"] {
            assert!(interval(senseless).is_err(), "{senseless}");
        }
    }
}
