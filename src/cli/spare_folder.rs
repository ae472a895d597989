//! Where outputs go if the default folder cannot be made: the current folder may be read-only, or gone.
//!
//! The temporary folder is others' too: what is made there is made afresh, for this user only, and
//! never taken for ours because of its name.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;

use crate::cli::failure::Failure;
use crate::cli::output_folder::{OutputFolder, folder_name, numbered};

/// `gputrace-out-<program>-<pid>` in the temporary folder, or one of the next names; `None` where none
/// can be made.
pub fn make(name: &OsStr, pid: u32) -> Option<Result<OutputFolder, Failure>> {
    let mut first = OsStr::new("gputrace-out-").to_owned();
    first.push(folder_name(name, pid));
    for path in numbered(&std::env::temp_dir().join(first)) {
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Some(OutputFolder::prepare(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
    }
    None
}
