//! The session's socket, in a folder that nobody but this user enters.
//!
//! The folder is held by a descriptor while it is looked at, so that what was checked is what is
//! used: nothing is done through a link, and nothing to a folder of another user.

use std::fs::{self, DirBuilder};
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

/// Listens at `directory`/socket. The folder is made if it is not there; it must be this user's,
/// and is closed to all others.
pub fn listen_in(directory: &Path) -> Result<(OwnedFd, PathBuf), Error> {
    listen_at(directory, NAME, SocketType::SEQPACKET)
}

/// Listens at `directory`/`name` for connections of bytes, in a folder of the same kind. Accepting
/// does not wait.
pub fn listen_for_talk(directory: &Path, name: &str) -> Result<UnixListener, Error> {
    listen_at(directory, name, SocketType::STREAM).map(|(socket, _)| socket.into())
}

fn listen_at(directory: &Path, name: &str, kind: SocketType) -> Result<(OwnedFd, PathBuf), Error> {
    let folder_error = |source| Error::SessionFolder { path: directory.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(folder_error)?;
    let folder = private(directory).map_err(folder_error)?;

    let path = directory.join(name);
    let bytes = path.as_os_str().len();
    if bytes >= SOCKET_PATH_MAX {
        return Err(Error::SocketPathTooLong { path, bytes, limit: SOCKET_PATH_MAX - 1 });
    }
    let listen_error = |source: io::Error| Error::Listen { path: path.clone(), source };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(listen_error(error)),
        _ => {}
    }
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // The path leads into the folder that was looked at, or the socket is not in there.
        let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != own_id() {
            return Err(Errno::PERM);
        }
        listen(&socket, 1024)?;
        Ok(socket)
    };
    let socket = open().map_err(|errno: Errno| listen_error(errno.into()))?;
    Ok((socket, path))
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
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_folder_is_closed_to_others_and_no_link_is_followed() {
        let base = std::env::temp_dir().join(format!("gputrace-listener-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (target, link) = (base.join("target"), base.join("link"));
        fs::create_dir_all(&target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&target, &link).unwrap();
        assert!(matches!(listen_in(&link), Err(Error::SessionFolder { .. })));
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o777, "nothing was done through the link");
        let (_socket, path) = listen_in(&target).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o700);
        assert_eq!(path, target.join("socket"));
        // What lies in the socket's place is replaced, not followed.
        fs::remove_file(&path).unwrap();
        symlink("/nonexistent/socket", &path).unwrap();
        listen_in(&target).unwrap();
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::remove_dir_all(&base).unwrap();
    }
}
