//! What was heard of a signal, as it goes through the pipe of [`group_signals`](super::group_signals):
//! written by signal handlers and by the witness, so nothing here allocates or can fail.

use libc::{c_int, pid_t, siginfo_t};

use crate::launch::signals;

/// Who heard it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Us = 1,
    /// Us, and it is passed on already: the program was not there yet.
    UsEarly,
    /// The process that stands in our group for this.
    Witness,
    /// Another, that stands in no group of ours.
    Outsider,
    /// No signal: a witness has said all that it had heard when it was asked. The value is the question's.
    Answer,
    /// No signal: there is no program any more.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    pub signal: c_int,
    /// How it was sent, as `si_code`.
    pub code: c_int,
    pub sender: pid_t,
    /// What was sent with it, if [`Heard::carries_value`].
    pub value: usize,
}

/// The length of each message in the pipe. It divides what a pipe writes at once.
pub const MESSAGE_BYTES: usize = 24;

impl Heard {
    pub const NOTHING: Heard = Heard { signal: 0, code: 0, sender: 0, value: 0 };

    /// # Safety
    /// `info` is what the kernel filled for this signal.
    pub unsafe fn new(signal: c_int, info: &siginfo_t) -> Heard {
        let code = info.si_code;
        // SAFETY: the caller's; those that a process sends have a sender, and queued ones a value.
        unsafe {
            let sender = if code <= 0 { info.si_pid() } else { 0 };
            let value = if code == libc::SI_QUEUE { info.si_value().sival_ptr as usize } else { 0 };
            Heard { signal, code, sender, value }
        }
    }

    pub fn carries_value(&self) -> bool {
        self.code == libc::SI_QUEUE
    }

    /// Whether this may have been sent to others of the group as well, and the program be one of them: by a
    /// process, or by a terminal that is gone (to the session's first process, to the group, or both).
    /// What timers and other kernel's reasons send, they send to one process.
    pub fn may_be_the_groups(&self) -> bool {
        let by_process = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&self.code);
        let by_hangup = self.signal == libc::SIGHUP && self.code == libc::SI_KERNEL;
        signals::is_for_the_program(self.signal) && (by_process || by_hangup)
    }

    /// Real-time signals queue; of the others one waits, however often it was sent.
    pub fn is_queued(&self) -> bool {
        self.signal >= libc::SIGRTMIN()
    }

    pub fn message(&self, by: By) -> [u8; MESSAGE_BYTES] {
        let mut message = [0; MESSAGE_BYTES];
        message[0] = by as u8;
        message[4..8].copy_from_slice(&self.signal.to_ne_bytes());
        message[8..12].copy_from_slice(&self.code.to_ne_bytes());
        message[12..16].copy_from_slice(&self.sender.to_ne_bytes());
        message[16..24].copy_from_slice(&(self.value as u64).to_ne_bytes());
        message
    }

    pub fn from_message(message: &[u8; MESSAGE_BYTES]) -> Option<(By, Heard)> {
        let known = [By::Us, By::UsEarly, By::Witness, By::Outsider, By::Answer, By::End];
        let by = known.into_iter().find(|by| *by as u8 == message[0])?;
        let part = |at: usize| [message[at], message[at + 1], message[at + 2], message[at + 3]];
        let number = |at| c_int::from_ne_bytes(part(at));
        let mut value = [0; 8];
        value.copy_from_slice(&message[16..]);
        let value = u64::from_ne_bytes(value) as usize;
        Some((by, Heard { signal: number(4), code: number(8), sender: number(12), value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_was_heard() {
        let heard =
            Heard { signal: 15, code: libc::SI_QUEUE, sender: 4_000_000, value: 0x1234_5678_9abc_def0 };
        assert_eq!(Heard::from_message(&heard.message(By::Witness)), Some((By::Witness, heard)));
        assert_eq!(Heard::from_message(&[0; MESSAGE_BYTES]), None);
    }
}
