//! A failure as the user reads it: what failed, on what, why, and what to do about it.

use std::fmt;

use crate::cli::{exit_code, printable};

#[derive(Debug)]
pub struct Failure {
    /// Lower case, one line: what failed, on what, why.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    pub exit_code: u8,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: None, exit_code: exit_code::FAILED }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    pub fn code(mut self, exit_code: u8) -> Failure {
        self.exit_code = exit_code;
        self
    }
}

impl From<&gputrace_collector::Error> for Failure {
    fn from(error: &gputrace_collector::Error) -> Failure {
        use gputrace_collector::Error::{TraceCreate, TraceWrite};
        let failure = |message: String| Failure::new(message).code(error.exit_code());
        match error {
            TraceCreate { path, source } => {
                let message = format!("cannot create the trace file {}: {}", path.display(), reason(source));
                failure(message)
                    .hint(remedy(source).unwrap_or("choose another folder with -o DIR or GPUTRACE_OUT"))
            }
            TraceWrite { path, whole_bytes, source } => {
                failure(format!("cannot write the trace file {}: {}", path.display(), reason(source))).hint(
                    format!(
                        "it holds the first {whole_bytes} bytes; later events are in this run's summary only"
                    ),
                )
            }
            _ => failure(error.to_string()),
        }
    }
}

impl From<gputrace_collector::Error> for Failure {
    fn from(error: gputrace_collector::Error) -> Failure {
        Failure::from(&error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "gputrace: {}", printable::name(&self.message))?;
        match &self.hint {
            Some(hint) => write!(out, "\n  hint: {}", printable::name(hint)),
            None => Ok(()),
        }
    }
}

/// The reason inside an I/O error, without Rust's "(os error 2)" behind it.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// What can usually be done about an I/O error.
pub fn remedy(error: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Some("choose a folder that you may write to with -o DIR or GPUTRACE_OUT")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space, or choose another file system with -o DIR or GPUTRACE_OUT")
        }
        ErrorKind::ReadOnlyFilesystem => {
            Some("choose a folder on a writable file system with -o DIR or GPUTRACE_OUT")
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            Some("choose a folder that is there or can be made with -o DIR or GPUTRACE_OUT")
        }
        ErrorKind::InvalidFilename => Some("choose a shorter name with -o DIR or GPUTRACE_OUT"),
        _ => None,
    }
}

/// What helps where a file or folder cannot be written that the user named, by whichever option.
pub fn remedy_for_named(error: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::PermissionDenied => Some("choose a folder that you may write to"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space, or choose another file system")
        }
        ErrorKind::ReadOnlyFilesystem => Some("choose a folder on a writable file system"),
        ErrorKind::NotFound => Some("make its folder first, or choose another one"),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            Some("choose another name")
        }
        ErrorKind::InvalidFilename => Some("choose a shorter name"),
        _ => None,
    }
}
