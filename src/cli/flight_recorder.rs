//! `--flight-recorder`: how much is kept, and the folders that it is written to before the end.
//!
//! A dump is a folder of the files that a run leaves. It is made aside and renamed, so that it is
//! whole or not there, and only the newest few are kept: who asks for one a minute fills no disk.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flight_recorder::{BYTES_MAX, Snapshot};
use gputrace_collector::session::{FlightConfig, Handle};

use crate::cli::analysis::Analysis;
use crate::cli::failure::{Failure, reason};
use crate::cli::output_folder::{FILES, OutputFolder, TRACE, numbered};
use crate::cli::settings::Flames;
use crate::cli::talk::say;
use crate::cli::{exit_code, outputs, printable};
use crate::launch::control::{self, About, Control};
use crate::launch::private_folder::{self, SessionFolder};
use crate::launch::signals;

/// Dumps that stay in a folder; older ones go.
pub const DUMPS_KEPT: usize = 8;
const PREFIX: &str = "dump-";
const HALF: &str = ".part";

/// A flight recorder that writes its dumps into `folder` and reports each on stderr.
pub fn config(window: Option<Duration>, folder: &OutputFolder, flames: &Flames) -> Option<FlightConfig> {
    let window = window?;
    let (folder, flames) = (folder.path().to_owned(), flames.clone());
    let write = Box::new(move |snapshot: &Snapshot, name: &str| {
        let written = write(&folder, snapshot, &flames, name);
        if let Ok(path) = &written {
            let reason = &snapshot.excerpt().reason;
            say(format_args!(
                "gputrace: wrote the last {} s to {}: {reason}",
                window.as_secs_f64(),
                printable::name(path)
            ));
        }
        written.map_err(|failure| failure.message)
    });
    Some(FlightConfig { window, bytes_max: BYTES_MAX, write })
}

/// Answers `gputrace ctl` in the session's folder, and SIGUSR2 if there is a flight recorder. A
/// session that cannot do that records all the same.
pub fn listen(
    session: io::Result<&Path>,
    about: About,
    handle: Handle,
    is_recorder: bool,
) -> Option<Control> {
    let unheard = |what: &str, error: &io::Error| {
        say(format_args!("gputrace: warning: {what} will not be heard: {}", reason(error)));
    };
    let listener = session.and_then(control::listen).map_err(|error| unheard("gputrace ctl", &error)).ok();
    let dumps = is_recorder.then(signals::watch_dumps).transpose();
    let dumps = dumps.map_err(|error| unheard("SIGUSR2", &error)).ok().flatten();
    let control = Control::start(listener, dumps, about, handle);
    control.map_err(|error| unheard("gputrace ctl", &error)).ok()
}

/// The same in a folder of its own, for sessions that have none. The folder must be dropped last.
pub fn listen_alone(
    about: About,
    handle: Handle,
    is_recorder: bool,
) -> (Option<Control>, Option<SessionFolder>) {
    let (session, folder) = match SessionFolder::create() {
        Ok(session) => (Ok(session.path().to_owned()), Some(session)),
        Err(error) => (Err(error), None),
    };
    let session = session.as_deref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
    (listen(session, about, handle, is_recorder), folder)
}

fn write(folder: &Path, snapshot: &Snapshot, flames: &Flames, name: &str) -> Result<PathBuf, Failure> {
    remove_halves(folder);
    let aside = folder.join(format!(".{name}.{}{HALF}", std::process::id()));
    let written = write_files(&aside, snapshot, flames).and_then(|()| {
        move_to_free_name(&aside, folder, name).map_err(|error| {
            let message = format!("cannot write {}: {}", folder.join(name).display(), reason(&error));
            Failure::new(message).code(exit_code::collector::CANNOT_CREATE)
        })
    });
    if written.is_err() {
        remove(&aside);
    }
    let path = written?;
    remove_oldest(folder, &path);
    Ok(path)
}

/// Another session that writes here may have had a dump of the same name within the second.
fn move_to_free_name(aside: &Path, folder: &Path, name: &str) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for path in numbered(&folder.join(name)) {
        match fs::rename(aside, &path) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
        use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
        if !matches!(last.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory) {
            break;
        }
    }
    Err(last)
}

fn write_files(aside: &Path, snapshot: &Snapshot, flames: &Flames) -> Result<(), Failure> {
    // Nothing of that name is there that we know.
    DirBuilder::new().mode(0o700).create(aside).map_err(|error| {
        let message = format!("cannot make the folder {}: {}", aside.display(), reason(&error));
        Failure::new(message).code(exit_code::collector::CANNOT_CREATE)
    })?;
    let part = OutputFolder::prepare(aside.to_owned())?;
    snapshot.write(&part.file(TRACE))?;
    let (totals, aggregates) = snapshot.model(Aggregates::default()).map_err(|error| {
        Failure::new(format!("cannot read what was kept: {}", reason(&error)))
            .code(exit_code::collector::DEFECT)
    })?;
    let failures = outputs::write(&Analysis::new(&totals, &aggregates, flames), &part);
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.path())))
}

/// Dumps that a recorder began and was killed before it could end them.
fn remove_halves(folder: &Path) {
    for (name, path) in entries(folder) {
        let half = name.strip_prefix('.').and_then(|name| name.strip_suffix(HALF));
        let dump = half.filter(|half| half.starts_with(PREFIX)).and_then(|half| half.rsplit_once('.'));
        let pid = dump.and_then(|(_, pid)| pid.parse::<libc::pid_t>().ok()).filter(|pid| *pid > 0);
        // SAFETY: kill takes plain numbers, and signal 0 is sent to nobody.
        if pid.is_some_and(|pid| unsafe { libc::kill(pid, 0) } != 0) {
            remove(&path);
        }
    }
}

/// Oldest by name, since names begin with the time. The dump that was just made always stays, even if
/// the clock was set back: its path has been printed.
fn remove_oldest(folder: &Path, made: &Path) {
    let mut dumps: Vec<_> = entries(folder).filter(|(name, path)| is_dump(name) && path != made).collect();
    dumps.sort();
    let old = (dumps.len() + 1).saturating_sub(DUMPS_KEPT);
    dumps.iter().take(old).for_each(|(_, path)| remove(path));
}

/// Whether it is a name as the recorder gives: dump-20260131T235959Z-001-crash.
fn is_dump(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.splitn(3, '-');
    let is_time = parts.next().is_some_and(|time| time.len() == 16 && time.ends_with('Z'));
    is_time && parts.next().is_some_and(|number| number.parse::<u32>().is_ok()) && parts.next().is_some()
}

/// The files that are a dump's, and the folder if nobody has put anything else into it. Nothing is
/// removed through a link, nor from a folder of another user's.
fn remove(dump: &Path) {
    let Ok(held) = private_folder::open(dump) else { return };
    if !held.metadata().is_ok_and(|found| found.uid() == private_folder::own_id()) {
        return;
    }
    for name in FILES {
        let _ = fs::remove_file(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    }
    let _ = fs::remove_dir(dump);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_dumps_stay_and_other_files_too() {
        let base = SessionFolder::create().unwrap();
        let dump = |number: usize| format!("dump-20260131T2359{number:02}Z-{number:03}-signal");
        for name in (0..DUMPS_KEPT + 3).map(dump).chain(["dump-mine".to_owned(), "other".to_owned()]) {
            fs::create_dir(base.path().join(&name)).unwrap();
            fs::write(base.path().join(&name).join(TRACE), b"x").unwrap();
        }
        // A link where a dump would be the oldest of all.
        let linked = "dump-20250131T235959Z-001-signal";
        std::os::unix::fs::symlink(base.path().join("other"), base.path().join(linked)).unwrap();
        // Somebody's own file in the oldest.
        fs::write(base.path().join(dump(0)).join("notes"), b"x").unwrap();
        remove_oldest(base.path(), &base.path().join(dump(DUMPS_KEPT + 2)));
        let there = |name: &str| base.path().join(name).exists();
        assert!(there("dump-mine/trace.gputrace") && there("other/trace.gputrace"));
        assert!(there(&format!("{}/notes", dump(0))) && !there(&dump(1)) && !there(&dump(2)));
        assert!((3..DUMPS_KEPT + 3).all(|number| there(&dump(number))));
        // Made after the clock was set back.
        let made = base.path().join("dump-20200131T235959Z-001-signal");
        fs::create_dir(&made).unwrap();
        remove_oldest(base.path(), &made);
        assert!(made.exists() && !there(&dump(3)) && there(&dump(4)));
    }

    #[test]
    fn dump_of_the_same_name_is_left_as_it_is() {
        let base = SessionFolder::create().unwrap();
        let (name, aside) = ("dump-20260131T235959Z-001-crash", base.path().join("aside"));
        fs::create_dir(base.path().join(name)).unwrap();
        fs::write(base.path().join(name).join(TRACE), b"theirs").unwrap();
        fs::create_dir(&aside).unwrap();
        let path = move_to_free_name(&aside, base.path(), name).unwrap();
        assert_eq!(path, base.path().join(format!("{name}-2")));
        assert!(is_dump(path.file_name().unwrap().to_str().unwrap()));
        assert_eq!(fs::read(base.path().join(name).join(TRACE)).unwrap(), b"theirs");
    }

    #[test]
    fn halves_of_dead_recorders_go() {
        let base = SessionFolder::create().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let half = |pid: u32| base.path().join(format!(".dump-20260131T235959Z-001-exit.{pid}.part"));
        fs::create_dir(half(child.id())).unwrap();
        fs::create_dir(half(std::process::id())).unwrap();
        remove_halves(base.path());
        assert!(!half(child.id()).exists() && half(std::process::id()).exists());
    }
}
