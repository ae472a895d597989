//! The folder that `run`, `demo` and `collect` write to, and files that appear in it whole.
//!
//! What is recorded is its user's affair: folders are made for this user only, and files too.
//! Nothing is written through a link that lies where a file belongs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::cli::failure::{Failure, reason, remedy, remedy_for_named};
use crate::cli::{exit_code, printable};

/// Where outputs go by default.
pub const DEFAULT_BASE: &str = "gputrace-out";
/// Names with a number behind them that are tried.
const NUMBERED_MAX: u32 = 10_000;

/// Letters of a program's name that a folder is named after.
const NAME_LETTERS_MAX: usize = 50;

pub const TRACE: &str = "trace.gputrace";
pub const FOLDED: &str = "flame.folded";
pub const DRAWING: &str = "flame.svg";
/// The flamegraph of idle time, where device times are known.
pub const IDLE_DRAWING: &str = "flame-idle.svg";
pub const SUMMARY: &str = "summary.txt";
/// What the program of `run --live` writes to the terminal.
pub const OUTPUT_LOG: &str = "output.log";
/// Every file that a run may leave in its folder.
pub const FILES: [&str; 5] = [TRACE, FOLDED, DRAWING, IDLE_DRAWING, SUMMARY];
/// Those that are made of the trace.
pub const BESIDE_TRACE: [&str; 4] = [FOLDED, DRAWING, IDLE_DRAWING, SUMMARY];

#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    /// Made by us for this run: taken away again if nothing could be put into it.
    is_new: bool,
    /// Held by a run, so that another knows that somebody writes here.
    lock: Option<File>,
}

/// `gputrace-out/<program>-<pid>`.
pub fn default_path(program: &OsStr, pid: u32) -> PathBuf {
    Path::new(DEFAULT_BASE).join(folder_name(program, pid))
}

/// `<program>-<pid>`, with as much of a long name as fits into one of any file system.
pub fn folder_name(program: &OsStr, pid: u32) -> OsString {
    let name = Path::new(program).file_name().unwrap_or(OsStr::new("program"));
    let name: String = printable::file_name(name).chars().take(NAME_LETTERS_MAX).collect();
    format!("{name}-{pid}").into()
}

/// The path, and then `path-2`, `path-3` and so on, for where the name is taken.
pub fn numbered(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..NUMBERED_MAX).map(move |number| {
        let mut path = path.as_os_str().to_owned();
        if number > 1 {
            path.push(format!("-{number}"));
        }
        path.into()
    })
}

impl OutputFolder {
    /// Makes the folder and finds out whether it takes a file, before any program runs for it.
    pub fn prepare(path: PathBuf) -> Result<OutputFolder, Failure> {
        let is_new = !path.exists();
        let probe = path.join(format!(".gputrace-{}", std::process::id()));
        let tried = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .and_then(|()| create(&probe))
            .and_then(|_| fs::remove_file(&probe));
        match tried {
            Ok(()) => Ok(OutputFolder { path, is_new, lock: None }),
            Err(error) => Err(unwritable("write to the output folder", &path, &error)),
        }
    }

    /// The folder asked for, if no other run writes to it at the moment. The ranks of a job are often given
    /// the same folder; then each of the others makes one inside it. If no folder is asked for: the default
    /// one, under a name that no run had, since process ids repeat in containers.
    pub fn prepare_alone(asked: Option<PathBuf>, name: &OsStr, pid: u32) -> Result<OutputFolder, Failure> {
        let own = match &asked {
            Some(asked) => asked.join(folder_name(name, pid)),
            None => default_path(name, pid),
        };
        if let Some(asked) = asked {
            let mut folder = OutputFolder::prepare(asked)?;
            if folder.is_taken_alone() {
                return Ok(folder);
            }
        }
        for path in numbered(&own) {
            let mut folder = OutputFolder::prepare(path)?;
            if folder.is_taken_alone() && fs::symlink_metadata(folder.file(TRACE)).is_err() {
                return Ok(folder);
            }
        }
        OutputFolder::prepare(own)
    }

    /// Keeps other runs out as long as this value lives. A file system that knows no locks keeps nobody
    /// out.
    fn is_taken_alone(&mut self) -> bool {
        self.lock = File::open(&self.path).ok();
        let locked = self.lock.as_ref().map(File::try_lock);
        !matches!(locked, Some(Err(TryLockError::WouldBlock)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A new file of the folder, to be written as it comes.
    pub fn create(&self, name: &str) -> Result<File, Failure> {
        let path = self.file(name);
        create(&path).map_err(|error| unwritable("write", &path, &error))
    }

    /// Writes a file of the folder, which appears whole or not at all and replaces a file of its name.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), Failure> {
        let path = self.file(name);
        replace(&path, contents).map_err(|error| unwritable("write", &path, &error))
    }

    /// Moves an earlier run's files of these names out of the way, until it is known whether there
    /// is anything to replace them with.
    pub fn set_aside(&self, names: &[&str]) -> Result<SetAside, Failure> {
        let mut aside = SetAside { moved: Vec::new() };
        for name in names {
            let (from, to) = (self.file(name), self.file(&format!(".{name}.{}.old", std::process::id())));
            match fs::rename(&from, &to) {
                Ok(()) => aside.moved.push((from, to)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unwritable("replace the earlier run's", &from, &error)),
            }
        }
        Ok(aside)
    }

    /// Takes the folder away again if we made it and nothing is in it.
    pub fn discard_if_empty(self) {
        if self.is_new {
            // Refused while there is anything in it, which is the point.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Files of an earlier run, out of the way; they come back when this value goes.
#[derive(Debug)]
pub struct SetAside {
    /// Where each was and where it is.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl SetAside {
    /// The new run has begun: the earlier one's files are removed.
    pub fn remove(mut self) {
        for (_, to) in self.moved.drain(..) {
            let _ = fs::remove_file(to);
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        for (from, to) in &self.moved {
            let _ = fs::rename(to, from);
        }
    }
}

/// Writes a file that the user named, which appears whole or not at all.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    try_write_whole(path, contents).map_err(|error| unwritable_named(path, &error))
}

/// Writes a file under the given name, or under `name-2.svg` and so on where a file has the name
/// already, and returns the path. The file appears whole or not at all.
pub fn write_without_replacing(path: &Path, contents: &[u8]) -> Result<PathBuf, Failure> {
    let ending = path.extension().unwrap_or_default();
    for free in numbered(&path.with_extension("")) {
        let free = free.with_extension(ending);
        // The empty file keeps the name for us, and is then replaced by the whole one.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&free) {
            Ok(_) => {
                return match replace(&free, contents) {
                    Ok(()) => Ok(free),
                    Err(error) => {
                        let _ = fs::remove_file(&free);
                        Err(unwritable_named(&free, &error))
                    }
                };
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable_named(&free, &error)),
        }
    }
    Err(unwritable_named(path, &io::ErrorKind::AlreadyExists.into()))
}

fn try_write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    // Devices and pipes (/dev/stdout, /dev/null) cannot be replaced by renaming.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return OpenOptions::new().write(true).open(path)?.write_all(contents);
    }
    replace(path, contents)
}

/// The same for what is too much to be held: it is written as it is made.
pub fn stream_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error: io::Error| unwritable_named(path, &error);
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return write(&mut OpenOptions::new().write(true).open(path).map_err(failed)?);
    }
    let temporary = beside(path);
    let written = create(&temporary).map_err(failed).and_then(|mut file| write(&mut file));
    let written = written.and_then(|done| fs::rename(&temporary, path).map(|()| done).map_err(failed));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file under a temporary name of ours. A file of that name was left by a killed run that had our
/// process id, as happens in containers: it is removed. Of a link, the link is removed, not its target.
fn create(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The temporary file beside a path.
pub fn beside(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".{}.part", std::process::id()));
    PathBuf::from(temporary)
}

/// Writes a temporary file beside it and renames that.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = beside(path);
    let mut file = create(&temporary)?;
    let written = file.write_all(contents).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The failure of what lies in the folder of a run.
fn unwritable(what: &str, path: &Path, error: &io::Error) -> Failure {
    failure_of(what, path, error, remedy(error))
}

/// The failure of what the user named.
pub fn unwritable_named(path: &Path, error: &io::Error) -> Failure {
    failure_of("write", path, error, remedy_for_named(error))
}

fn failure_of(what: &str, path: &Path, error: &io::Error, hint: Option<&str>) -> Failure {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let code = match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => exit_code::collector::WRITE_FAILED,
        _ => exit_code::collector::CANNOT_CREATE,
    };
    let failure = Failure::new(format!("cannot {what} {}: {}", path.display(), reason(error))).code(code);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::private_folder::SessionFolder;

    #[test]
    fn default_folder_names_program_and_process() {
        assert_eq!(default_path("/usr/bin/python3".as_ref(), 42), Path::new("gputrace-out/python3-42"));
        assert_eq!(default_path("..".as_ref(), 42), Path::new("gputrace-out/program-42"));
    }

    #[test]
    fn file_appears_whole_and_leaves_nothing_beside_it() {
        let base = SessionFolder::create().unwrap();
        let folder = OutputFolder::prepare(base.path().join("a/b")).unwrap();
        write_whole(&folder.file("x"), b"one").unwrap();
        write_whole(&folder.file("x"), b"two").unwrap();
        assert_eq!(fs::read(folder.file("x")).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn outputs_are_for_their_user_only_and_follow_no_link() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let base = SessionFolder::create().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        let folder = OutputFolder::prepare(base.path().join("a/b")).unwrap();
        assert_eq!((mode(&base.path().join("a")), mode(folder.path())), (0o700, 0o700));
        let victim = base.path().join("victim");
        fs::write(&victim, b"dear").unwrap();
        symlink(&victim, folder.file("x")).unwrap();
        folder.write("x", b"ours").unwrap();
        assert_eq!(mode(&folder.file("x")), 0o600);
        assert_eq!(fs::read(&victim).unwrap(), b"dear");
        // A pipe of somebody who waits for what we write.
        let pipe = folder.file("y");
        symlink("/dev/null", &pipe).unwrap();
        folder.write("y", b"ours").unwrap();
        assert_eq!(fs::read(&pipe).unwrap(), b"ours");
        // The name that the file has until it is whole may be guessed.
        symlink(&victim, folder.file(&format!("z.{}.part", std::process::id()))).unwrap();
        folder.write("z", b"ours").unwrap();
        assert_eq!(fs::read(folder.file("z")).unwrap(), b"ours");
        assert_eq!(fs::read(&victim).unwrap(), b"dear");
    }

    #[test]
    fn leftovers_of_a_killed_run_with_our_process_id_do_no_harm() {
        let base = SessionFolder::create().unwrap();
        let pid = std::process::id();
        let (probe, part) = (format!(".gputrace-{pid}"), format!("x.{pid}.part"));
        for left in [&probe, &part] {
            fs::write(base.path().join(left), b"half").unwrap();
        }
        let folder = OutputFolder::prepare(base.path().to_owned()).unwrap();
        folder.write("x", b"whole").unwrap();
        assert_eq!(fs::read(folder.file("x")).unwrap(), b"whole");
        assert!(!folder.file(&probe).exists() && !folder.file(&part).exists());
    }

    /// The ranks of a job that are given the same folder, and later runs.
    #[test]
    fn runs_at_once_have_a_folder_each_and_later_ones_the_one_asked_for() {
        let base = SessionFolder::create().unwrap();
        let asked = base.path().join("out");
        let prepare = || OutputFolder::prepare_alone(Some(asked.clone()), "many".as_ref(), 7).unwrap();
        let (first, second) = (prepare(), prepare());
        let third = prepare();
        let paths = [&first, &second, &third].map(|folder| folder.path().to_owned());
        assert_eq!(paths, [asked.clone(), asked.join("many-7"), asked.join("many-7-2")]);
        drop(first);
        assert_eq!(prepare().path(), asked);
        // One that ended left a trace, which the next of its name inside does not replace.
        fs::write(second.file(TRACE), b"x").unwrap();
        drop(second);
        let _first = prepare();
        drop(third);
        assert_eq!(prepare().path(), asked.join("many-7-2"));
    }

    #[test]
    fn discarded_folders_are_new_and_empty() {
        let base = SessionFolder::create().unwrap();
        let new = OutputFolder::prepare(base.path().join("new")).unwrap();
        new.discard_if_empty();
        assert!(!base.path().join("new").exists());
        fs::create_dir(base.path().join("old")).unwrap();
        OutputFolder::prepare(base.path().join("old")).unwrap().discard_if_empty();
        assert!(base.path().join("old").exists());
    }

    #[test]
    fn unwritable_folder_is_an_error_with_its_reason() {
        let failure = OutputFolder::prepare("/proc/nowhere".into()).unwrap_err();
        assert_eq!(
            failure.message,
            "cannot write to the output folder /proc/nowhere: no such file or directory"
        );
    }
}
