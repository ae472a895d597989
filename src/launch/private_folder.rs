//! Folders that only we may write to, since a library out of them runs inside other programs.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the folder, parents too, or accepts the one that is there if it is ours alone.
pub fn ensure(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check(folder)
}

/// A folder that somebody else owns, may write to, or made a link of, is refused.
fn check(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let fault = if found.is_symlink() {
        "is a link, and no folder"
    } else if !found.is_dir() {
        "is not a folder"
    } else if found.uid() != own_id() {
        "belongs to another user"
    } else if is_writable_by_others(&found) {
        "is writable by other users"
    } else {
        return Ok(());
    };
    Err(refused(folder, fault))
}

/// The folder's path without links, if nobody but root and us can put another folder in its
/// place or in the place of one above it: each belongs to one of the two, and where others may
/// write, only the owner of an entry may take it away (the sticky bit, as in /tmp).
pub fn trusted(folder: &Path) -> io::Result<PathBuf> {
    let folder = fs::canonicalize(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    for part in folder.ancestors() {
        let found = fs::symlink_metadata(part)?;
        let owner = found.uid();
        if owner != own_id() && owner != 0 && !(owner == OVERFLOW_ID && is_in_user_namespace()) {
            return Err(refused(part, "belongs to another user, who could exchange what is in it"));
        }
        if is_writable_by_others(&found) && found.mode() & libc::S_ISVTX == 0 {
            return Err(refused(part, "is writable by other users, who could exchange what is in it"));
        }
    }
    Ok(folder)
}

/// Whether all users can enter the folder, as far as it is there; what is made below gets a mode of its own.
pub fn is_open_to_others(folder: &Path) -> bool {
    let modes = folder.ancestors().filter_map(|part| fs::metadata(part).ok()).map(|found| found.mode());
    modes.into_iter().all(|mode| mode & 0o001 != 0)
}

/// What the kernel says of an owner who has no number in our user namespace, such as the one of a
/// container's root folder. Outside of such a namespace it is the number of a user like others.
const OVERFLOW_ID: u32 = 65534;

fn is_in_user_namespace() -> bool {
    let all = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    !fs::read_to_string("/proc/self/uid_map").is_ok_and(all)
}

/// A group of the user's own, which has the user's number, has nobody else in it.
fn is_writable_by_others(found: &fs::Metadata) -> bool {
    let mode = found.mode();
    let group_is_own = found.gid() == found.uid() && found.uid() == own_id();
    mode & 0o002 != 0 || mode & 0o020 != 0 && !group_is_own
}

/// Who we are, as far as files are concerned.
pub fn own_id() -> u32 {
    // SAFETY: geteuid has no precondition and cannot fail.
    unsafe { libc::geteuid() }
}

fn refused(folder: &Path, fault: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {fault}", folder.display()))
}

/// A fresh folder for one session, removed with all that is in it when this value goes.
#[derive(Debug)]
pub struct SessionFolder {
    path: PathBuf,
    /// Open and locked while the session lasts: a process of another container may share the
    /// folder's parent and not know our process id.
    _lock: File,
}

const PREFIX: &str = "gputrace-";

/// Variables that name folders for what is temporary, best first.
const BASES: [&str; 2] = ["XDG_RUNTIME_DIR", "TMPDIR"];

/// Where session folders are made, best first.
fn bases() -> impl Iterator<Item = OsString> {
    let bases = BASES.iter().filter_map(std::env::var_os).chain([OsString::from("/tmp")]);
    bases.filter(|base| Path::new(base).is_absolute())
}

/// Removes what sessions of this user left behind that were killed before they could.
pub fn sweep() {
    for base in bases().filter_map(|base| trusted(Path::new(&base)).ok()) {
        let left = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in left {
            // Locked until it is removed.
            if let Some(_held) = abandoned(&path) {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// A session folder of any user.
#[derive(Debug)]
pub struct FoundSession {
    /// The process in its name.
    pub pid: i32,
    pub path: PathBuf,
    /// Whether it is ours alone, or why it is not.
    pub usable: io::Result<()>,
}

/// The session folders where we would make them, and where that process would; and where that is.
pub fn sessions(pid: i32) -> (Vec<PathBuf>, Vec<FoundSession>) {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let theirs = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let value = BASES.iter().find_map(|name| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        Some(OsString::from_vec(value?.to_vec()))
    });
    let mut folders: Vec<PathBuf> = Vec::new();
    for base in bases().chain(theirs).filter_map(|base| trusted(Path::new(&base)).ok()) {
        if !folders.contains(&base) {
            folders.push(base);
        }
    }
    let entries = folders.iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
    let found = entries.filter_map(|entry| {
        let (pid, path) = (owner(entry.file_name().to_str()?)?, entry.path());
        let usable = check(&path);
        Some(FoundSession { pid, path, usable })
    });
    let found = found.collect();
    (folders, found)
}

/// A session folder of ours whose process has gone, and which nobody held: we do now.
fn abandoned(path: &Path) -> Option<File> {
    let pid = path.file_name().and_then(|name| owner(name.to_str()?))?;
    // SAFETY: kill takes plain numbers, and signal 0 is sent to nobody.
    let answer = unsafe { libc::kill(pid, 0) };
    let is_gone = answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if !is_gone || check(path).is_err() {
        return None;
    }
    open(path).ok().filter(|folder| folder.try_lock().is_ok())
}

/// Holds a folder that was just made. `None`: somebody who takes it for abandoned was faster.
fn hold(path: &Path) -> Option<File> {
    let folder = open(path).ok()?;
    if let Err(fs::TryLockError::WouldBlock) = folder.try_lock() {
        return None;
    }
    let (held, there) = (folder.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    ((held.dev(), held.ino()) == (there.dev(), there.ino())).then_some(folder)
}

/// Opens a folder, never what a link leads to.
pub fn open(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(folder)
}

/// The process id in a session folder's name, if it is the name of one.
fn owner(folder: &str) -> Option<i32> {
    let (pid, suffix) = folder.strip_prefix(PREFIX)?.split_once('-')?;
    let is_ours = suffix.len() == 8 && suffix.bytes().all(|digit| digit.is_ascii_hexdigit());
    pid.parse().ok().filter(|pid| is_ours && *pid > 0)
}

/// A unix socket's path has 108 bytes with its NUL; a name inside the folder must still fit.
const PATH_BYTES_MAX: usize = 108 - 1 - "/session.socket".len();

impl SessionFolder {
    pub fn create() -> io::Result<SessionFolder> {
        SessionFolder::create_in(bases())
    }

    /// In the first of these folders that can be used.
    pub fn create_in(bases: impl IntoIterator<Item = OsString>) -> io::Result<SessionFolder> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for base in bases {
            let base = match trusted(Path::new(&base)) {
                Ok(base) => base,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            for attempt in 0..8 {
                let path = base.join(name(attempt));
                if path.as_os_str().len() > PATH_BYTES_MAX {
                    last = io::Error::new(
                        io::ErrorKind::InvalidFilename,
                        format!("{} is too long for a socket", path.display()),
                    );
                    break;
                }
                match DirBuilder::new().mode(0o700).create(&path) {
                    Ok(()) => match hold(&path) {
                        Some(lock) => return Ok(SessionFolder { path, _lock: lock }),
                        None => drop(fs::remove_dir(&path)),
                    },
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                    Err(error) => {
                        last = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionFolder {
    fn drop(&mut self) {
        // What is left behind after a failure here is an empty socket in a temporary folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Distinct, not secret: the folder is created exclusively.
fn name(attempt: u32) -> String {
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.subsec_nanos());
    format!("{PREFIX}{}-{:08x}", std::process::id(), moment ^ attempt << 28)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn session_folder_is_private_and_goes_away() {
        let session = SessionFolder::create().unwrap();
        let path = session.path().to_path_buf();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(session);
        assert!(!path.exists());
    }

    #[test]
    fn abandoned_folders_are_those_of_dead_sessions() {
        let session = SessionFolder::create().unwrap();
        assert!(abandoned(session.path()).is_none(), "its process lives");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let left = session.path().join(format!("gputrace-{}-0123abcd", child.id()));
        ensure(&left).unwrap();
        assert!(abandoned(&left).is_some());
        assert!(hold(&left).is_some());
        let lock = File::open(&left).unwrap();
        lock.try_lock().unwrap();
        assert!(abandoned(&left).is_none(), "somebody holds it");
        assert!(hold(&left).is_none(), "somebody holds it, and will remove it");
        drop(lock);
        fs::set_permissions(&left, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(abandoned(&left).is_none(), "others may have written to it");
        assert_eq!(owner("gputrace-1-0123abcd"), Some(1));
        for other in ["gputrace-out", "gputrace-1-0123abc", "gputrace-x-0123abcd", "gputrace--1-0123abcd"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn folder_that_others_can_write_to_is_refused() {
        let session = SessionFolder::create().unwrap();
        let open = session.path().join("open");
        ensure(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ensure(&open).unwrap_err().to_string().contains("writable by other users"));
    }

    #[test]
    fn link_is_refused() {
        let session = SessionFolder::create().unwrap();
        let (target, link) = (session.path().join("target"), session.path().join("link"));
        ensure(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(ensure(&link).unwrap_err().to_string().contains("is a link"));
    }

    #[test]
    fn folder_that_can_be_exchanged_is_not_trusted() {
        let session = SessionFolder::create().unwrap();
        let (above, below) = (session.path().join("above"), session.path().join("above/below"));
        ensure(&below).unwrap();
        assert_eq!(trusted(&below).unwrap(), below);
        let with_mode = |mode| {
            fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
            trusted(&below)
        };
        assert!(with_mode(0o777).unwrap_err().to_string().contains("above is writable by other users"));
        // As /tmp is: there only the owner of an entry can take it away.
        assert!(with_mode(0o1777).is_ok());
        // What a link leads to is what counts.
        let link = session.path().join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert_eq!(trusted(&link).unwrap(), below);
        with_mode(0o777).unwrap_err();
        trusted(&link).unwrap_err();
    }
}
