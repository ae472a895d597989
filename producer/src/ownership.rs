//! Whether a session belongs to this user, checked before anything is sent to its listener.
//!
//! `GPUTRACE_SESSION` is a path that may name another user's socket. A process that receives our memory's
//! descriptor can read what the program launches and write what we read. All calls here are
//! async-signal-safe.

use core::mem::{size_of, zeroed};

use crate::system;

/// The longest folder of a socket, with its final zero: the size of a `sockaddr_un` path.
const PATH_BYTES: usize = 108;

/// Whether the socket's folder belongs to this user alone: owned by us, not accessible to others, and not a
/// symbolic link. A path without a folder is refused.
pub fn folder_is_ours(socket_path: &[u8]) -> bool {
    let Some(end) = socket_path.iter().rposition(|byte| *byte == b'/') else { return false };
    let mut folder = [0u8; PATH_BYTES];
    let Some(name) = socket_path.get(..end) else { return false };
    match folder.get_mut(..end) {
        // The last byte stays the final zero.
        Some(room) if end < PATH_BYTES => room.copy_from_slice(name),
        _ => return false,
    }
    // SAFETY: zero is a valid stat; the path is a C string, and the pointer is to a live stat.
    let found = unsafe {
        let mut found: libc::stat = zeroed();
        if system::lstat(folder.as_ptr().cast(), &mut found) != 0 {
            return false;
        }
        found
    };
    found.st_mode & libc::S_IFMT == libc::S_IFDIR
        && found.st_uid == system::geteuid()
        && found.st_mode & 0o077 == 0
}

/// Whether this user made the other end of a connected socket. The kernel recorded that at the connection,
/// so later changes of the path do not matter.
pub fn peer_is_us(descriptor: i32) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the two pointers are to live values, the second says how large the first is.
    let known = unsafe {
        let peer = (&raw mut peer).cast();
        system::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &mut bytes)
    } == 0;
    known && peer.uid == system::geteuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

    #[test]
    fn folder_that_others_can_enter_is_refused() {
        let folder = std::env::temp_dir().join(format!("gputrace-ownership-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let socket = folder.join("socket");
        assert!(folder_is_ours(socket.as_os_str().as_bytes()));
        for mode in [0o750, 0o705, 0o710, 0o777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(!folder_is_ours(socket.as_os_str().as_bytes()), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(".", folder.join("link")).unwrap();
        assert!(!folder_is_ours(folder.join("link/socket").as_os_str().as_bytes()));
        for no_folder in [&b"socket"[..], b"", b"/nonexistent/socket", &[b'/'; 300]] {
            assert!(!folder_is_ours(no_folder));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn kernel_names_the_user_of_the_other_end() {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, closed below.
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert!(peer_is_us(ends[0]));
        assert!(!peer_is_us(-1));
        for end in ends {
            // SAFETY: the test's own descriptors.
            unsafe { libc::close(end) };
        }
    }
}
