//! Why a command did not start, in words, with the exit code that env and timeout give for it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::exit_code;
use crate::cli::failure::{Failure, reason};

pub fn explain(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.display();
    let found = find(program);
    let failed = |why: &str| Failure::new(format!("cannot run {name}: {why}"));
    match (error.raw_os_error(), found) {
        (Some(libc::ENOENT | libc::ENOTDIR), None) if has_folder(program) => {
            failed("no such file").code(exit_code::NOT_FOUND)
        }
        (Some(libc::ENOENT | libc::ENOTDIR), None) => failed("no such command")
            .hint(format!("check the spelling and PATH; a file in this folder is ./{name}"))
            .code(exit_code::NOT_FOUND),
        (Some(libc::ENOENT), Some(path)) => {
            failed("the file is there, but not the interpreter or loader that it names")
                .hint(format!("see its first line, or file {}", path.display()))
                .code(exit_code::NOT_EXECUTABLE)
        }
        (Some(libc::EACCES), Some(path)) if path.is_dir() => {
            failed("it is a folder").code(exit_code::NOT_EXECUTABLE)
        }
        (Some(libc::EACCES), found) => {
            let path = found.unwrap_or_else(|| PathBuf::from(program));
            failed("permission denied")
                .hint(format!("is it a program, and executable? chmod +x {}", path.display()))
                .code(exit_code::NOT_EXECUTABLE)
        }
        (Some(libc::ENOEXEC), _) => failed("it is no program of this machine's kind")
            .hint("a script needs a first line that names its interpreter, as in #!/bin/sh")
            .code(exit_code::NOT_EXECUTABLE),
        (Some(libc::EAGAIN | libc::ENOMEM), _) => failed(&reason(error))
            .hint("no further process is allowed: raise ulimit -u or the container's limits")
            .code(exit_code::NOT_STARTED),
        _ => failed(&reason(error)).code(exit_code::NOT_EXECUTABLE),
    }
}

fn has_folder(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

/// The file that the name stands for, executable or not.
fn find(program: &OsStr) -> Option<PathBuf> {
    if has_folder(program) {
        return Path::new(program).exists().then(|| PathBuf::from(program));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
