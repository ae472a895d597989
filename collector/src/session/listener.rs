//! The session's socket, in a folder that only this user can enter.
//!
//! The folder is held by a descriptor, so that the folder that was checked is the one that is used: no link
//! is followed, and no folder of another user is changed. Only sockets are ever removed from it: one that an
//! earlier session left, and this session's own at the end.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::error::Error;

/// The kernel's limit for a socket's path, with its final zero.
const SOCKET_PATH_MAX: usize = 108;
const NAME: &str = "socket";
/// How the names of the preload library's notes begin (`producer/src/untraced.rs`).
const UNTRACED: &[u8] = b"untraced-";

/// The socket at which a session listens. Dropping this value removes its file.
#[derive(Debug)]
pub struct SessionSocket {
    path: PathBuf,
    folder: OwnedFd,
    /// The socket's file: held, so that its inode is not reused.
    file: OwnedFd,
}

impl SessionSocket {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The notes of processes that could not join, as `(pid, why)`. Removes the notes. The library leaves a
    /// bounded number of them.
    pub fn untraced(&self) -> Vec<(u32, String)> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.folder) else { return Vec::new() };
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_owned());
        let notes = names.filter(|name| name.to_bytes().starts_with(UNTRACED)).filter_map(|name| {
            let note = rustix::fs::readlinkat(&self.folder, &name, Vec::new()).ok()?;
            let _ = rustix::fs::unlinkat(&self.folder, &name, AtFlags::empty());
            let note = note.to_string_lossy().replace(char::is_control, " ");
            let (pid, why) = note.split_once(' ')?;
            Some((pid.parse().ok()?, why.to_owned()))
        });
        let mut notes: Vec<_> = notes.collect();
        notes.sort();
        notes
    }
}

impl Drop for SessionSocket {
    /// If another session listens here by now, its socket stays.
    fn drop(&mut self) {
        let ours = rustix::fs::fstat(&self.file);
        let there = rustix::fs::statat(&self.folder, NAME, AtFlags::SYMLINK_NOFOLLOW);
        if let (Ok(ours), Ok(there)) = (ours, there)
            && (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
        {
            let _ = rustix::fs::unlinkat(&self.folder, NAME, AtFlags::empty());
        }
    }
}

/// Listens at `directory`/socket. The folder is created if necessary; it must be this user's, and is closed
/// to all others.
pub fn listen_in(directory: &Path) -> Result<(OwnedFd, SessionSocket), Error> {
    let (socket, path, folder) = listen_at(directory, NAME, SocketType::SEQPACKET)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, NAME, flags, Mode::empty())
        .map_err(|errno| Error::Listen { path: path.clone(), source: errno.into() })?;
    Ok((socket, SessionSocket { path, folder, file }))
}

/// Listens at `directory`/`name` with a stream socket, in a folder of the same kind. Accepting does not
/// block.
pub fn listen_for_talk(directory: &Path, name: &str) -> Result<UnixListener, Error> {
    // The session removes the folder, and the socket with it.
    listen_at(directory, name, SocketType::STREAM).map(|(socket, ..)| socket.into())
}

fn listen_at(directory: &Path, name: &str, kind: SocketType) -> Result<(OwnedFd, PathBuf, OwnedFd), Error> {
    let folder_error = |source| Error::SessionFolder { path: directory.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(folder_error)?;
    let folder = private(directory).map_err(folder_error)?;

    let path = directory.join(name);
    let bytes = path.as_os_str().len();
    if bytes >= SOCKET_PATH_MAX {
        return Err(Error::SocketPathTooLong { path, bytes, limit: SOCKET_PATH_MAX - 1 });
    }
    let listen_error = |source: io::Error| Error::Listen { path: path.clone(), source };
    remove_socket(&folder, name).map_err(listen_error)?;
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // The socket must be in the folder that was checked.
        let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != own_id() {
            return Err(Errno::PERM);
        }
        listen(&socket, 1024)?;
        Ok(socket)
    };
    let socket = open().map_err(|errno: Errno| listen_error(errno.into()))?;
    Ok((socket, path, folder))
}

/// Removes a socket that an earlier session left. Any other file is somebody's own, and stays.
fn remove_socket(folder: &OwnedFd, name: &str) -> io::Result<()> {
    let found = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something that is no socket has this name; it was left as it is",
        ));
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
}

/// Opens the folder, if it is this user's, and closes it to all others.
fn private(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(directory, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&folder)?;
    if found.st_uid != own_id() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if found.st_mode & 0o777 != 0o700 {
        rustix::fs::fchmod(&folder, Mode::RWXU)?;
    }
    Ok(folder)
}

fn own_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folder_is_closed_to_others_and_no_link_is_followed() {
        let base = std::env::temp_dir().join(format!("gputrace-listener-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (target, link) = (base.join("target"), base.join("link"));
        fs::create_dir_all(&target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&target, &link).unwrap();
        assert!(matches!(listen_in(&link), Err(Error::SessionFolder { .. })));
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o777, "nothing was done through the link");
        let (_socket, session_socket) = listen_in(&target).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o700);
        assert_eq!(session_socket.path(), target.join("socket"));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn files_other_than_the_session_s_own_socket_are_kept() {
        let base = std::env::temp_dir().join(format!("gputrace-listener-own-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let path = base.join(NAME);
        fs::create_dir_all(&base).unwrap();
        fs::write(&path, b"precious").unwrap();
        let refused = listen_in(&base).unwrap_err();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        // A link is somebody's own as well.
        symlink("/nonexistent/socket", &path).unwrap();
        listen_in(&base).unwrap_err();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::remove_file(&path).unwrap();

        // A socket that was left is replaced; its session does not remove its successor's socket.
        let (_first, left) = listen_in(&base).unwrap();
        let (_second, ours) = listen_in(&base).unwrap();
        drop(left);
        assert!(path.exists());
        // A file that the user put there in the meantime stays as well.
        let aside = base.join("aside");
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, b"precious").unwrap();
        drop(ours);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let (_third, own) = listen_in(&base).unwrap();
        drop(own);
        assert!(!path.exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
