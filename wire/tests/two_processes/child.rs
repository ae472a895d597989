//! The producing process.

use crate::script::Entries;
use crate::segment::Segment;
use gputrace_wire::segment::state;
use std::sync::atomic::Ordering;

pub struct Child {
    pid: libc::pid_t,
    reaped: bool,
}

impl Child {
    /// Forks a process that maps the segment anew, writes the entries, says so and exits with 0.
    pub fn fork(segment: &Segment, entries: Entries) -> Child {
        // Mapped before the fork, after which little is allowed; the parent's copy goes at once.
        let mapping = segment.map_again();
        // SAFETY: the child of a process with threads may only do what a signal handler may: it
        // touches the mapping, yields and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            entries.write(&mapping);
            // Release: whoever sees the end sees everything before it.
            mapping.header().state.store(state::ENDED, Ordering::Release);
            // SAFETY: has no conditions; nothing of the parent's is run or flushed.
            unsafe { libc::_exit(0) }
        }
        Child { pid, reaped: false }
    }

    fn wait(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: `pid` is this process's child and not reaped yet; `status` outlives the call.
        let reaped = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(reaped, self.pid);
        self.reaped = true;
        status
    }

    pub fn wait_for_exit(&mut self) {
        let status = self.wait();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:x}");
    }

    /// Kills it and waits until nothing of it can run any more.
    pub fn kill(mut self) {
        // SAFETY: `pid` is this process's child and not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
        let status = self.wait();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "status {status:x}");
    }
}

impl Drop for Child {
    /// A failed assertion leaves no process behind.
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: `pid` is this process's child and not reaped yet.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}
