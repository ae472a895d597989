//! `gputrace lib`: puts the preload library where it can stay, and prints its path.

use std::path::Path;

use clap::{ArgMatches, Command};

use crate::cli::failure::{Failure, reason};
use crate::cli::{exit_code, options, stdout, variables};
use crate::launch::extract::{self, Libraries};
use crate::launch::private_folder::SessionFolder;

pub fn command() -> Command {
    Command::new("lib")
        .about("Print the preload library's path")
        .after_help("Auto-collect: LD_PRELOAD=$(gputrace lib) python train.py")
}

pub fn main(_: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_near(&options::CACHE);
    let libraries = in_cache()?;
    if !libraries.has_program {
        return Err(Failure::new(
            "cannot find the program gputrace, which auto-collect starts: /proc is not mounted",
        )
        .hint("mount -t proc proc /proc; gputrace run works without"));
    }
    let mut line = libraries.preload.into_os_string().into_encoded_bytes();
    line.push(b'\n');
    stdout::print(&line)?;
    Ok(exit_code::SUCCESS)
}

/// Extracts the libraries into the cache folder.
fn in_cache() -> Result<Libraries, Failure> {
    let hint = "set GPUTRACE_CACHE to a folder of your own";
    let mut last =
        Failure::new("no folder for the preload library: neither HOME nor XDG_CACHE_HOME is set").hint(hint);
    for base in extract::cache_folders(options::CACHE.variable_value().map(Into::into)) {
        let extracted = extract::extract(&base).map_err(|error| {
            Failure::new(format!(
                "cannot put the preload library into {}: {}",
                base.display(),
                reason(&error)
            ))
        });
        match extracted.and_then(usable) {
            Ok(libraries) => return Ok(libraries),
            Err(failure) => last = failure.hint(hint),
        }
    }
    Err(last)
}

/// A library that the loader could not take would be ignored, with a line on the program's stderr.
fn usable(libraries: Libraries) -> Result<Libraries, Failure> {
    let path = libraries.preload.display();
    if !extract::is_preloadable(&libraries.preload) {
        return Err(Failure::new(format!("LD_PRELOAD cannot name {path}: it has a space or a colon in it")));
    }
    if extract::is_on_noexec(&libraries.preload) {
        return Err(Failure::new(format!("{path} cannot be loaded: its file system is mounted noexec")));
    }
    Ok(libraries)
}

/// For `run`: the cache folder if it will do, else a folder that lives as long as the session.
pub fn for_session(session: &SessionFolder) -> Result<Libraries, Failure> {
    in_cache().or_else(|_| in_session(session.path()))
}

/// For a command that this process becomes: nobody is left to remove a folder of the session's when the
/// command ends, so that the next run sweeps it.
pub fn for_untraced() -> Result<Libraries, Failure> {
    in_cache().or_else(|failure| {
        let session = SessionFolder::create().map_err(|_| failure)?;
        let libraries = in_session(session.path())?;
        std::mem::forget(session);
        Ok(libraries)
    })
}

fn in_session(folder: &Path) -> Result<Libraries, Failure> {
    let hint = "set GPUTRACE_CACHE to a folder of your own";
    let libraries = extract::extract(folder).map_err(|error| {
        let message = format!("cannot put the preload library into {}: {}", folder.display(), reason(&error));
        Failure::new(message).hint(hint)
    })?;
    usable(libraries).map_err(|failure| failure.hint(hint))
}
