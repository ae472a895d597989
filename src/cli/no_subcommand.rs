//! The error for a first word that is no subcommand: a command that was meant to be traced, or the name that
//! other tracers give to `run`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cli::exit_code;
use crate::cli::failure::Failure;
use crate::launch::traceable;

/// What `gputrace` alone prints: what to type next, in the order of a first visit.
pub const NEXT: &str = "\
gputrace traces CUDA programs without changing them. What to type next:

  gputrace demo                      try it on a bundled program, without a GPU too
  gputrace doctor                    what works on this machine, and the commands that mend the rest
  gputrace run -- python train.py    trace a program: prints a summary, writes a flamegraph
  gputrace report                    print the newest trace's summary again
  gputrace --help                    all commands
";

/// The failure for the words after `gputrace`; `None` if clap's own error is the best one.
pub fn explain(words: &[OsString]) -> Option<Failure> {
    let (first, rest) = words.split_first()?;
    // The subcommands of strace, gdb, py-spy, perf and rocprof.
    if first == "attach" {
        return Some(attaching(rest.first().map(OsString::as_os_str)));
    }
    if first == "record" {
        let own: Vec<_> = rest.iter().take_while(|word| *word != "--").collect();
        let is_pid = |word: &&OsString| *word == "-p" || *word == "--pid";
        if let Some(at) = own.iter().position(is_pid) {
            return Some(attaching(own.get(at + 1).map(|pid| pid.as_os_str())));
        }
        let command = rest.strip_prefix(&[OsString::from("--")]).unwrap_or(rest);
        return Some(failure("record is no subcommand", command));
    }
    let is_program = traceable::find(first).as_deref().is_some_and(is_executable);
    if is_program {
        return Some(failure(&format!("{} is no subcommand, but a program", first.display()), words));
    }
    if Path::new(first).extension() == Some(OsStr::new("py")) && Path::new(first).is_file() {
        let command: Vec<_> = [OsString::from("python3")].into_iter().chain(words.iter().cloned()).collect();
        return Some(failure(&format!("{} is no subcommand, but a Python file", first.display()), &command));
    }
    None
}

fn failure(message: &str, command: &[OsString]) -> Failure {
    let command: Vec<_> = command.iter().map(|word| quoted(word)).collect();
    let command = if command.is_empty() { "CMD".to_owned() } else { command.join(" ") };
    Failure::new(message).hint(format!("to trace it: gputrace run -- {command}")).code(exit_code::USAGE)
}

/// Nobody can be traced who runs already.
pub fn attaching(pid: Option<&OsStr>) -> Failure {
    let pid = pid.and_then(OsStr::to_str).filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    let (process, number) = match pid {
        Some(pid) => (format!("process {pid}"), pid),
        None => ("a process".to_owned(), "PID"),
    };
    Failure::new(format!(
        "cannot attach to {process}: the library is loaded when a program starts"
    ))
    .hint(format!(
        "restart it by gputrace run -- CMD or with LD_PRELOAD=$(gputrace lib); if it is traced: gputrace ctl \
         {number} status"
    ))
    .code(exit_code::USAGE)
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    let text = word.to_string_lossy();
    if !word.is_empty() && word.as_bytes().iter().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[&str]) -> Option<String> {
        let words: Vec<OsString> = line.iter().map(Into::into).collect();
        explain(&words).map(|failure| failure.to_string())
    }

    #[test]
    fn program_as_a_subcommand_gets_a_hint() {
        let line = said(&["sh", "-c", "echo it's", "x"]).unwrap();
        assert!(line.ends_with("\n  hint: to trace it: gputrace run -- sh -c 'echo it'\\''s' x"), "{line}");
        assert!(said(&["/bin/sh"]).unwrap().ends_with("gputrace run -- /bin/sh"));
        assert_eq!(said(&["reprot", "x"]), None);
        assert_eq!(said(&["/etc/passwd"]), None);
        assert_eq!(said(&["/etc"]), None);
        assert_eq!(said(&[]), None);
    }

    #[test]
    fn attaching_is_refused() {
        for line in [&["attach", "12"][..], &["record", "-p", "12"], &["record", "-o", "x", "--pid", "12"]] {
            let line = said(line).unwrap();
            assert!(
                line.contains("cannot attach to process 12: ") && line.contains("gputrace ctl 12 status"),
                "{line}"
            );
        }
        assert!(said(&["attach"]).unwrap().contains("gputrace ctl PID status"));
        let line = said(&["record", "--", "./app", "-p", "1"]).unwrap();
        assert!(line.ends_with("gputrace run -- ./app -p 1"), "{line}");
    }
}
