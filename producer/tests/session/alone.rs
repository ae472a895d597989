//! A test in a process of its own: a session is one for a process, and so are its statics.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "PRODUCER_TEST_ALONE";
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the test of that name again, in a new process, and there its body.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var(VARIABLE).is_ok_and(|value| value == name) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT => {
                child.kill().unwrap();
                panic!("{name} does not end: {:?}", child.wait());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{name}: {status}");
}

/// Runs the body in a forked child and returns how that ended, as `waitpid` says it. What the body
/// returns is the exit code; a panic is 101.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the process is this test's alone; its other threads hold no lock that the body needs.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

/// How many mappings of memory files and how many descriptors the process has.
pub fn holdings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let files = maps.lines().filter(|line| line.contains("/memfd:gputrace")).count();
    (files, std::fs::read_dir("/proc/self/fd").unwrap().count())
}
