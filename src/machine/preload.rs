//! Whether the preload library can be put on disk and is taken by the dynamic loader.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cli::failure::reason;
use crate::launch::extract::{self, is_preloadable};
use crate::launch::private_folder::SessionFolder;
use crate::machine::finding::Finding;

pub fn findings(cache: Option<PathBuf>) -> Vec<Finding> {
    vec![session_folder(), cache_folder(cache)]
}

fn session_folder() -> Finding {
    match SessionFolder::create() {
        Ok(folder) => {
            let base = folder.path().parent().unwrap_or(folder.path());
            Finding::good("session", format!("sessions meet in {}", base.display()))
        }
        Err(error) => Finding::broken("session", format!("no folder for a session: {}", reason(&error)))
            .hint("set TMPDIR to a writable folder with a short path"),
    }
}

fn cache_folder(cache: Option<PathBuf>) -> Finding {
    let Some(base) = cache else {
        return Finding::limited(
            "library",
            "neither HOME nor XDG_CACHE_HOME is set; run works, auto-collect does not",
        )
        .hint("set GPUTRACE_CACHE to a folder of your own");
    };
    let libraries = match extract::extract(&base) {
        Ok(libraries) => libraries,
        Err(error) => {
            return Finding::limited(
                "library",
                format!("cannot keep it in {}: {}", base.display(), reason(&error)),
            )
            .hint("set GPUTRACE_CACHE to a folder of your own; run works without");
        }
    };
    let path = libraries.preload;
    if !is_preloadable(&path) {
        return Finding::limited("library", format!("{} has a space or a colon in it", path.display()))
            .hint("LD_PRELOAD cannot name it; set GPUTRACE_CACHE to another folder");
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
        }
        Err(error) => {
            Finding::broken("library", format!("cannot start a program under it: {}", reason(&error)))
        }
    }
}
