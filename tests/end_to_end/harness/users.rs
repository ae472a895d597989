//! Several users on one machine: programs that run as one, and threads of the test that act as one.
//!
//! Only root can become somebody else, so the tests that need this are skipped, and say so, where
//! they do not run as root.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::needs::skipped;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::clean;

/// Who traces programs.
pub const VICTIM: u32 = 65_533;
/// Who has no business with it.
pub const ATTACKER: u32 = 65_534;

/// A folder under /tmp that every user can enter, with the tool and what was put there.
pub struct SharedFolder {
    path: PathBuf,
}

impl SharedFolder {
    /// `None`, and said, where the test does not run as root.
    pub fn new(test: &str) -> Option<SharedFolder> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            skipped(test, "only root can become two users");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/gputrace-users-{}-{number}", std::process::id()));
        let shared = SharedFolder { path };
        let _ = fs::remove_dir_all(&shared.path);
        fs::create_dir(&shared.path).unwrap();
        fs::set_permissions(&shared.path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_gputrace"), shared.join("gputrace")).unwrap();
        Some(shared)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A folder of that user's, with that mode.
    pub fn folder(&self, name: &str, user: u32, mode: u32) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(user), Some(user)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A test program that every user can run.
    pub fn program(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::copy(compiled(name, Link::Driver), &path).unwrap();
        path
    }

    /// A command as that user, in an environment without a home, a cache or variables of ours.
    pub fn command(&self, user: u32, program: &Path) -> Command {
        let mut command = Command::new(program);
        clean(&mut command);
        for name in ["GPUTRACE_CACHE", "HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"] {
            command.env_remove(name);
        }
        command.current_dir(&self.path).uid(user).gid(user);
        command
    }

    pub fn gputrace(&self, user: u32) -> Command {
        self.command(user, &self.join("gputrace"))
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Does something on a thread that is that user, as far as the kernel is concerned: the system
/// calls, unlike the C library's functions, change the calling thread alone.
pub fn as_user<T: Send + 'static>(user: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        // SAFETY: plain numbers, and a null list of no groups.
        let became = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                && libc::syscall(libc::SYS_setresgid, user, user, user) == 0
                && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
        };
        assert!(became, "cannot become {user}: {}", io::Error::last_os_error());
        act()
    })
    .join()
    .unwrap()
}
