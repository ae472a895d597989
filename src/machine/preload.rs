//! Whether the preload library can be put on disk and is taken by the dynamic loader.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::failure::reason;
use crate::embedded::LIBGPUTRACE;
use crate::launch::extract::{self, is_preloadable};
use crate::launch::private_folder::{self, SessionFolder};
use crate::machine::finding::Finding;

/// `preloaded`: what LD_PRELOAD is for the programs started here.
pub fn findings(cache: Option<PathBuf>, preloaded: &OsStr) -> Vec<Finding> {
    let mut findings = vec![session_folder(), cache_folder(cache)];
    findings.extend(ours(preloaded).map(already_preloaded));
    findings
}

/// Our library in a value of LD_PRELOAD.
pub fn ours(list: &OsStr) -> Option<&Path> {
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    let mut entries = list.as_bytes().split(is_separator).map(|entry| Path::new(OsStr::from_bytes(entry)));
    entries.find(|entry| entry.file_name() == Some(OsStr::new("libgputrace.so")))
}

/// What LD_PRELOAD has of ours, as a login shell may set it for everything that it starts.
fn already_preloaded(ours: &Path) -> Finding {
    let path = ours.display();
    let again = "export LD_PRELOAD=\"$(env -u LD_PRELOAD gputrace lib)\"";
    if !ours.exists() {
        let text = format!("LD_PRELOAD names {path}, which is not there: each program starts with an error");
        return Finding::limited("library", text).hint("set it anew where it is set").command(again);
    }
    // By content: a container's volume has a copy.
    if fs::read(ours).is_ok_and(|bytes| bytes == LIBGPUTRACE.bytes) {
        let text = format!("LD_PRELOAD names {path}: every CUDA program started here is traced");
        return Finding::good("library", text);
    }
    let text = format!("LD_PRELOAD names {path}, which is another gputrace's than this one");
    Finding::limited("library", text).hint("set it anew where it is set").command(again)
}

/// The command that names a folder for sessions, which are tried in /tmp last.
fn another_session_base() -> Option<String> {
    let is_usable = |base: &&str| SessionFolder::create_in([OsString::from(base)]).is_ok();
    ["/var/tmp", "/dev/shm"].into_iter().find(is_usable).map(|base| format!("export TMPDIR={base}"))
}

/// The command that names a cache folder from which libraries can be loaded.
fn another_cache() -> Option<String> {
    let is_usable = |base: &&str| {
        let made = SessionFolder::create_in([OsString::from(base)]);
        made.is_ok_and(|folder| !extract::is_on_noexec(folder.path()))
    };
    let base = ["/var/tmp", "/tmp", "/dev/shm"].into_iter().find(is_usable)?;
    Some(format!("export GPUTRACE_CACHE={base}/gputrace-cache-{}", private_folder::own_id()))
}

fn session_folder() -> Finding {
    match SessionFolder::create() {
        Ok(folder) => {
            let base = folder.path().parent().unwrap_or(folder.path());
            Finding::good("session", format!("sessions meet in {}", base.display()))
        }
        Err(error) => Finding::broken("session", format!("no folder for a session: {}", reason(&error)))
            .hint("name a writable folder with a short path")
            .commands(another_session_base()),
    }
}

fn cache_folder(cache: Option<PathBuf>) -> Finding {
    let Some(base) = cache else {
        return Finding::limited(
            "library",
            "neither HOME nor XDG_CACHE_HOME is set; run works, auto-collect does not",
        )
        .hint("set GPUTRACE_CACHE to a folder of your own")
        .commands(another_cache());
    };
    let libraries = match extract::extract(&base) {
        Ok(libraries) => libraries,
        Err(error) => {
            return Finding::limited(
                "library",
                format!("cannot keep it in {}: {}", base.display(), reason(&error)),
            )
            .hint("set GPUTRACE_CACHE to a folder of your own; run works without")
            .commands(another_cache());
        }
    };
    let path = libraries.preload;
    if !is_preloadable(&path) {
        return Finding::limited("library", format!("{} has a space or a colon in it", path.display()))
            .hint("LD_PRELOAD cannot name it; set GPUTRACE_CACHE to another folder")
            .commands(another_cache());
    }
    // The loader complains on stderr and starts the program all the same.
    let tried = Command::new("/proc/self/exe")
        .arg("--version")
        .env("LD_PRELOAD", &path)
        .env_remove("GPUTRACE_SESSION")
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Finding::good("library", format!("{} loads", path.display()))
        }
        Ok(output) => {
            let talk = String::from_utf8_lossy(&output.stderr);
            let talk = talk.lines().next().unwrap_or("the program did not start under it").to_string();
            Finding::broken("library", format!("{}: {talk}", path.display()))
                .hint("a file system mounted noexec, or a C library too old; try another GPUTRACE_CACHE")
                .commands(another_cache())
        }
        Err(error) => {
            Finding::broken("library", format!("cannot start a program under it: {}", reason(&error)))
        }
    }
}
