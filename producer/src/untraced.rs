//! How a process that cannot join its session reports that: by a symbolic link in the session's folder,
//! whose target is the reason.
//!
//! The link needs one system call, no descriptor and no memory, of which there may be none left. Without it
//! the reason would appear only on the program's standard error.

use core::ffi::CStr;
use std::io::Write as _;

use crate::stderr;
use crate::{ownership, system};

/// The number of possible link names. A later process whose pid gives the same name is not reported.
const LINK_NAMES: u32 = 1024;
/// A link target of this length works on every file system.
const WORD_BYTES: usize = 512;

/// The beginning of the reason of a process whose `cuInit` failed; the driver's error number follows. Such
/// a process did not try to join.
pub const NOT_INITIALISED: &str = "cuInit ";

/// Writes the reason into the folder of the session's socket, if the folder is this user's alone.
pub fn leave_word(session_path: &[u8], why: &[u8]) {
    if !ownership::folder_is_ours(session_path) {
        return;
    }
    let pid = system::getpid();
    let (mut link, mut word) = ([0u8; 160], [0u8; WORD_BYTES]);
    let Some(end) = session_path.iter().rposition(|byte| *byte == b'/') else { return };
    // Longer text is cut; the last byte stays the final zero.
    let [mut link_bytes, mut word_bytes] = [&mut link[..], &mut word[..]]
        .map(|room| room.split_last_mut().map_or(&mut [][..], |(_, rest)| rest));
    let folder = session_path.get(..end).unwrap_or_default();
    let written = link_bytes
        .write_all(folder)
        .and_then(|()| write!(link_bytes, "/untraced-{}", pid.cast_unsigned() % LINK_NAMES))
        .and_then(|()| write!(word_bytes, "{pid} "));
    let _ = word_bytes.write(why);
    if written.is_ok()
        && let (Ok(word), Ok(link)) = (CStr::from_bytes_until_nul(&word), CStr::from_bytes_until_nul(&link))
    {
        // A link that another process made under the same name stays.
        system::symlink(word, link);
    }
}

/// Writes to standard error and to the session's folder that nothing is traced.
pub fn say(session_path: Option<&[u8]>, why: &[u8]) {
    stderr::line(&[b"not tracing: ", why]);
    if let Some(path) = session_path {
        leave_word(path, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    #[test]
    fn note_is_left_once_and_only_in_a_folder_of_this_user() {
        let folder = std::env::temp_dir().join(format!("gputrace-untraced-{}", system::getpid()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let socket = folder.join("socket");
        let leave = |why: &str| leave_word(socket.as_os_str().as_bytes(), why.as_bytes());
        let link = folder.join(format!("untraced-{}", std::process::id() % LINK_NAMES));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        leave("first");
        assert!(fs::read_link(&link).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        leave("second");
        leave("third");
        let word = fs::read_link(&link).unwrap();
        assert_eq!(word.to_str().unwrap(), format!("{} second", system::getpid()));
        fs::remove_file(&link).unwrap();
        leave(&"x".repeat(1000));
        let word = fs::read_link(&link).unwrap();
        assert_eq!(word.as_os_str().len(), WORD_BYTES - 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
