//! Who the processes are that a driver lists: name, user and command from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{GpuProcess, ProcessKind};

/// What is known about a process besides its use of a device.
#[derive(Debug, Clone, Default)]
struct Identity {
    container_pids: Vec<u32>,
    name: Option<String>,
    user: Option<String>,
    command: Option<String>,
}

/// Looks processes up, each one once while it is listed.
#[derive(Debug)]
pub struct Identities {
    proc: PathBuf,
    /// Whether our process ids are not the host's, which drivers give.
    is_contained: bool,
    known: HashMap<u32, Identity>,
    users: Option<HashMap<u32, String>>,
}

/// The initial namespace of process ids: the kernel gives it this inode number.
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";
/// A command line is kept up to here.
const COMMAND_MAX: usize = 4096;

impl Identities {
    pub fn new(proc: &Path) -> Identities {
        let namespace = fs::read_link(proc.join("self/ns/pid"));
        // What cannot be read is taken for the host: a wrong name is looked up for a process id only where
        // another process has that id.
        let is_contained = namespace.is_ok_and(|name| name.as_os_str() != INITIAL_NAMESPACE);
        Identities { proc: proc.to_owned(), is_contained, known: HashMap::new(), users: None }
    }

    /// For process ids that come from our own `/proc`.
    pub fn of_our_ids(proc: &Path) -> Identities {
        Identities { is_contained: false, ..Identities::new(proc) }
    }

    /// The process, of whose use nothing is known yet.
    pub fn process(&mut self, pid: u32, kind: ProcessKind) -> GpuProcess {
        let identity = match self.known.get(&pid) {
            Some(identity) => identity.clone(),
            None => {
                let identity = if self.is_contained { Identity::default() } else { self.look_up(pid) };
                self.known.insert(pid, identity.clone());
                identity
            }
        };
        GpuProcess {
            pid,
            is_host_pid: self.is_contained,
            container_pids: identity.container_pids,
            kind,
            name: identity.name,
            user: identity.user,
            command: identity.command,
            memory: None,
            gpu_percent: None,
            memory_percent: None,
            encoder_percent: None,
            decoder_percent: None,
        }
    }

    /// Forgets who is not listed any more: the id may become another process's.
    pub fn keep_only(&mut self, listed: &[GpuProcess]) {
        self.known.retain(|pid, _| listed.iter().any(|process| process.pid == *pid));
    }

    fn look_up(&mut self, pid: u32) -> Identity {
        let folder = self.proc.join(pid.to_string());
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let numbers = |text: &str| -> Vec<u32> {
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        let user = field("Uid:").and_then(|text| numbers(text).first().copied());
        // The first number is the id in our own namespace.
        let container_pids = field("NSpid:").map(numbers).unwrap_or_default().into_iter().skip(1).collect();
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command[..command.len().min(COMMAND_MAX)]).into_owned();
        let command = command.trim_end_matches('\0').replace('\0', " ");
        Identity {
            container_pids,
            name: field("Name:").map(|name| name.trim().to_owned()),
            user: user.map(|id| self.user(id)),
            command: Some(command).filter(|command| !command.is_empty()),
        }
    }

    /// By /etc/passwd: asking the system's name service could wait for a server.
    fn user(&mut self, id: u32) -> String {
        let users =
            self.users.get_or_insert_with(|| users(&fs::read_to_string("/etc/passwd").unwrap_or_default()));
        users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

fn users(passwd: &str) -> HashMap<u32, String> {
    let row = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    passwd.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn proc(namespace: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("self/ns")).unwrap();
        symlink(namespace, folder.path().join("self/ns/pid")).unwrap();
        fs::create_dir(folder.path().join("4242")).unwrap();
        let status = "Name:\tpython3\nUid:\t0\t0\t0\t0\nNSpid:\t4242\t17\n";
        fs::write(folder.path().join("4242/status"), status).unwrap();
        fs::write(folder.path().join("4242/cmdline"), "python3\0train.py\0").unwrap();
        folder
    }

    #[test]
    fn process_on_the_host_has_its_container_ids() {
        let proc = proc(INITIAL_NAMESPACE);
        let process = Identities::new(proc.path()).process(4242, ProcessKind::Compute);
        assert_eq!(process.container_pids, [17]);
        assert_eq!(process.name.as_deref(), Some("python3"));
        assert_eq!(process.user.as_deref(), Some("root"));
        assert_eq!(process.command.as_deref(), Some("python3 train.py"));
        assert!(!process.is_host_pid);
    }

    /// The driver's process ids are the host's; the same number is another process in the container.
    #[test]
    fn process_seen_from_a_container_is_the_hosts_and_has_no_name() {
        let proc = proc("pid:[4026532290]");
        let process = Identities::new(proc.path()).process(4242, ProcessKind::Compute);
        assert!(process.is_host_pid);
        assert_eq!((process.pid, process.name, process.user), (4242, None, None));
    }

    #[test]
    fn process_that_exited_has_no_name() {
        let proc = proc(INITIAL_NAMESPACE);
        let process = Identities::new(proc.path()).process(7, ProcessKind::Unknown);
        assert_eq!((process.name, process.user, process.command), (None, None, None));
    }

    #[test]
    fn identity_is_forgotten_once_it_is_not_listed() {
        let proc = proc(INITIAL_NAMESPACE);
        let mut identities = Identities::new(proc.path());
        let listed = [identities.process(4242, ProcessKind::Compute)];
        fs::write(proc.path().join("4242/status"), "Name:\tother\n").unwrap();
        identities.keep_only(&listed);
        assert_eq!(identities.process(4242, ProcessKind::Compute).name.as_deref(), Some("python3"));
        identities.keep_only(&[]);
        assert_eq!(identities.process(4242, ProcessKind::Compute).name.as_deref(), Some("other"));
    }
}
