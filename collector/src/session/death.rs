//! How a process died, if that can be known.
//!
//! Until the parent reaps the process, the kernel shows the status in /proc; afterwards only the parent has
//! it. If this program is the parent, it notes the status before it reaps the process
//! ([`super::Handle::note_death`]), so that one of the two sources always has it.

use std::fs;

/// How a process ended without a good-bye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Killed by this signal.
    Signal(i32),
    /// Exited without running the library's exit handler.
    Exit,
}

impl Death {
    /// Decodes a status of `wait`.
    fn of_status(status: i32) -> Death {
        match status & 0x7f {
            0 => Death::Exit,
            signal => Death::Signal(signal),
        }
    }

    /// The death of a process that is dead and not yet reaped; `None` of any other.
    pub fn of_zombie(pid: u32) -> Option<Death> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// Parses /proc/PID/stat. The name is in parentheses and may contain parentheses; the state is the field
/// after it, the status is the last field.
fn parse(stat: &str) -> Option<Death> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let status = fields.last()?.parse().ok()?;
    is_dead.then(|| Death::of_status(status))
}

/// The name of a signal that ends programs.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 15] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGUSR1, "SIGUSR1"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombie_has_a_cause_of_death_and_a_live_process_has_none() {
        let died = |command: &str| {
            let mut child = std::process::Command::new("sh").args(["-c", command]).spawn().unwrap();
            let found = loop {
                if let Some(found) = Death::of_zombie(child.id()) {
                    break found;
                }
                std::thread::yield_now();
            };
            child.wait().unwrap();
            assert_eq!(Death::of_zombie(child.id()), None, "it was waited for");
            found
        };
        assert_eq!(died("kill -SEGV $$"), Death::Signal(libc::SIGSEGV));
        assert_eq!(died("exit 3"), Death::Exit);
        assert_eq!(Death::of_zombie(std::process::id()), None);
    }

    #[test]
    fn process_names_with_parentheses_are_parsed() {
        assert_eq!(parse("7 (a) Z (b) Z 1 2 139"), Some(Death::Signal(11)));
        assert_eq!(parse("7 (a) Z (b) R 1 2 139"), None);
        assert_eq!(parse("nonsense"), None);
    }
}
