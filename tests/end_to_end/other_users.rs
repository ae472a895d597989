//! A second user on the machine can neither read nor write a session, nor have one write or read
//! for him. Users of the numbers 65533 (who traces) and 65534 (who should not); needs root.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::harness::process::finish;
use crate::harness::tool::{count, dropped, report};
use crate::harness::users::{ATTACKER, SharedFolder, VICTIM, as_user};

/// What a user can do to a running session; empty if nothing.
fn ways_in(socket: PathBuf, trace: PathBuf, processes: [u32; 2]) -> Vec<String> {
    let mut ways = Vec::new();
    let mut attempt = |what: String, succeeded: bool| ways.extend(succeeded.then_some(what));
    let folder = socket.parent().unwrap();
    attempt("connected".into(), connects(&socket));
    attempt("listed the session's folder".into(), fs::read_dir(folder).is_ok());
    attempt("wrote into the session's folder".into(), fs::write(folder.join("x"), "").is_ok());
    attempt("removed the socket".into(), fs::rename(&socket, folder.join("y")).is_ok());
    attempt("moved the session's folder".into(), fs::rename(folder, "/tmp/gputrace-moved").is_ok());
    for file in ["trace.gputrace", "flame.svg"] {
        let file = trace.with_file_name(file);
        attempt(format!("read {}", file.display()), fs::read(&file).is_ok());
        attempt(
            format!("wrote {}", file.display()),
            fs::OpenOptions::new().append(true).create(true).open(&file).is_ok(),
        );
    }
    for pid in processes {
        attempt(format!("listed the descriptors of {pid}"), fs::read_dir(format!("/proc/{pid}/fd")).is_ok());
        for descriptor in 0..64 {
            let path = format!("/proc/{pid}/fd/{descriptor}");
            attempt(format!("opened {path}"), fs::File::open(&path).is_ok());
        }
        attempt(format!("read the maps of {pid}"), fs::read(format!("/proc/{pid}/maps")).is_ok());
        attempt(format!("opened the memory of {pid}"), fs::File::open(format!("/proc/{pid}/mem")).is_ok());
    }
    ways
}

/// Whether the kernel lets us connect to a SOCK_SEQPACKET listener.
fn connects(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    // SAFETY: a zeroed sockaddr_un is valid and outlives the calls; the descriptor is closed.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let length = size_of::<libc::sockaddr_un>() as u32;
        let connected = libc::connect(socket, (&raw const address).cast(), length) == 0;
        libc::close(socket);
        connected
    }
}

/// The value of a variable in another process's environment.
fn variable_of(pid: u32, name: &str) -> String {
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let all = String::from_utf8(all).unwrap();
    let found = all.split('\0').find_map(|entry| entry.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("{name} is not set in {pid}")).to_owned()
}

#[test]
fn session_is_closed_to_other_users() {
    let Some(shared) = SharedFolder::new("session_is_closed_to_other_users") else { return };
    let out = shared.folder("out", VICTIM, 0o755);
    let go = shared.join("go");
    let mut command = shared.gputrace(VICTIM);
    command.args(["run", "--simulate", "-o"]).arg(&out).arg("--").arg(shared.program("lingers")).arg(&go);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let program: u32 = line.trim().strip_prefix("there ").expect(&line).parse().unwrap();
    let socket = PathBuf::from(variable_of(program, "GPUTRACE_SESSION"));
    let trace = out.join("trace.gputrace");
    let processes = [running.id(), program];

    let attempts = {
        let (socket, trace) = (socket.clone(), trace.clone());
        as_user(ATTACKER, move || ways_in(socket, trace, processes))
    };
    assert_eq!(attempts, Vec::<String>::new());
    // Nothing but who asks is what keeps them out: the user himself gets in by all these ways.
    assert!(as_user(VICTIM, move || connects(&socket)));
    let victims = as_user(VICTIM, move || fs::File::open(trace).is_ok());
    assert!(victims);

    fs::write(&go, "").unwrap();
    let mut said = String::new();
    running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(running.wait().unwrap().success(), "{said}");
    for file in fs::read_dir(&out).unwrap().map(|file| file.unwrap()) {
        let found = file.metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o600, VICTIM), "{}", file.path().display());
    }
    let report = report(&[out.join("trace.gputrace")]);
    assert_eq!((count(&report, "launches"), dropped(&report)), (3, 0));
}

/// A SOCK_SEQPACKET listener that anybody can connect to, made by the calling user.
fn false_collector(path: &Path) -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    let bytes = path.as_os_str().as_encoded_bytes();
    // SAFETY: a zeroed sockaddr_un is valid and outlives the calls; the descriptor is new.
    let socket = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let length = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(socket, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(socket, 8), 0);
        std::os::fd::OwnedFd::from_raw_fd(socket)
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    socket
}

#[test]
fn program_that_is_sent_to_another_users_socket_sends_nothing() {
    let test = "program_that_is_sent_to_another_users_socket_sends_nothing";
    let Some(shared) = SharedFolder::new(test) else { return };
    let library = shared.folder("library", 0, 0o755);
    let lib = finish(shared.gputrace(0).arg("lib").env("GPUTRACE_CACHE", &library)).expect_code(0);
    // For a program of any user, as an administrator would put it somewhere.
    finish(std::process::Command::new("chmod").args(["-R", "a+rX"]).arg(&library)).expect_code(0);
    let lib = PathBuf::from(lib.stdout.trim_end());
    let program = shared.program("basic");
    for victim in [VICTIM, 0] {
        let name = format!("trap-{victim}");
        let folder = shared.folder(&name, ATTACKER, 0o700);
        let socket = folder.join("socket");
        let listener = {
            let socket = socket.clone();
            as_user(ATTACKER, move || false_collector(&socket))
        };
        // The victim can enter; root could in any case.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let mut command = shared.command(victim, &program);
        command.env("LD_PRELOAD", &lib).env("LD_LIBRARY_PATH", lib.with_file_name("simulated"));
        let ended = finish(command.env("GPUTRACE_SESSION", &socket)).expect_code(0);
        assert!(ended.stderr.contains("another user's"), "{}", ended.stderr);
        // It came, looked who is there, and went without a word or a descriptor.
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true).unwrap();
        let (mut heard, _) = listener.accept().expect("it connected");
        let mut bytes = Vec::new();
        heard.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"");
    }
}

#[test]
fn folders_that_another_user_prepared_are_not_used() {
    let Some(shared) = SharedFolder::new("folders_that_another_user_prepared_are_not_used") else { return };
    let trap = shared.folder("trap", ATTACKER, 0o777);
    let out = shared.folder("out", VICTIM, 0o700);
    let program = shared.program("basic");
    // A temporary folder and a runtime folder of another user's are passed over.
    let mut command = shared.gputrace(VICTIM);
    command.args(["run", "--simulate", "-o"]).arg(&out).arg("--").arg(&program);
    finish(command.env("TMPDIR", &trap).env("XDG_RUNTIME_DIR", &trap)).expect_code(0);
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
    assert_eq!(count(&report(&[out.join("trace.gputrace")]), "launches"), 10);

    // A cache with a library in it: the folder is another user's, whatever the library's owner.
    let made = shared.folder("made", VICTIM, 0o700);
    let lib = finish(shared.gputrace(VICTIM).arg("lib").env("GPUTRACE_CACHE", &made)).expect_code(0).stdout;
    let relative = Path::new(lib.trim_end()).strip_prefix(&made).unwrap().to_path_buf();
    let planted = trap.join(&relative);
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::write(&planted, b"a library of the attacker's").unwrap();
    finish(std::process::Command::new("chown").arg("-R").arg(ATTACKER.to_string()).arg(&trap)).expect_code(0);
    let said = finish(shared.gputrace(VICTIM).arg("lib").env("GPUTRACE_CACHE", &trap));
    assert_ne!(said.code(), Some(0));
    assert!(said.stderr.contains("belongs to another user"), "{}", said.stderr);
    // The same where the version's folder is a link into it.
    let linked = shared.folder("linked", VICTIM, 0o700);
    symlink(planted.parent().unwrap(), linked.join(relative.parent().unwrap())).unwrap();
    let said = finish(shared.gputrace(VICTIM).arg("lib").env("GPUTRACE_CACHE", &linked));
    assert_ne!(said.code(), Some(0));
    assert!(said.stderr.contains("is a link"), "{}", said.stderr);
    // `run` has another place, and traces by a library of its own.
    let mut command = shared.gputrace(VICTIM);
    command.args(["run", "--simulate", "-o"]).arg(&out).arg("--").arg(&program);
    finish(command.env("GPUTRACE_CACHE", &trap)).expect_code(0);
    assert_eq!(count(&report(&[out.join("trace.gputrace")]), "launches"), 10);
    assert_eq!(fs::read(&planted).unwrap(), b"a library of the attacker's");
}

#[test]
fn links_that_another_user_laid_in_the_output_folder_are_not_followed() {
    let test = "links_that_another_user_laid_in_the_output_folder_are_not_followed";
    let Some(shared) = SharedFolder::new(test) else { return };
    let own = shared.folder("own", VICTIM, 0o700);
    let trap = shared.folder("trap", ATTACKER, 0o777);
    let dear = own.join("dear");
    fs::write(&dear, b"dear").unwrap();
    std::os::unix::fs::chown(&dear, Some(VICTIM), Some(VICTIM)).unwrap();
    let names = ["trace.gputrace", "flame.folded", "flame.svg", "flame-idle.svg", "summary.txt"];
    for bare in [false, true] {
        for name in names {
            let _ = fs::remove_file(trap.join(name));
            symlink(&dear, trap.join(name)).unwrap();
        }
        let program = shared.program("basic");
        if bare {
            let cache = shared.folder("cache", VICTIM, 0o700);
            let lib = finish(shared.gputrace(VICTIM).arg("lib").env("GPUTRACE_CACHE", cache)).expect_code(0);
            let lib = PathBuf::from(lib.stdout.trim_end());
            let mut command = shared.command(VICTIM, &program);
            command.env("LD_PRELOAD", &lib).env("LD_LIBRARY_PATH", lib.with_file_name("simulated"));
            finish(command.env("GPUTRACE_OUT", &trap)).expect_code(0);
        } else {
            let mut command = shared.gputrace(VICTIM);
            finish(command.args(["run", "--simulate", "-o"]).arg(&trap).arg("--").arg(&program))
                .expect_code(0);
            for name in names {
                let found = fs::symlink_metadata(trap.join(name)).unwrap();
                assert!(found.is_file(), "{name}");
                assert_eq!((found.mode() & 0o777, found.uid()), (0o600, VICTIM), "{name}");
            }
        }
        assert_eq!(fs::read(&dear).unwrap(), b"dear", "auto-collect: {bare}");
    }
}

#[test]
fn user_without_privileges_and_without_a_home_is_traced() {
    let Some(shared) = SharedFolder::new("user_without_privileges_and_without_a_home_is_traced") else {
        return;
    };
    let out = shared.folder("out", ATTACKER, 0o700);
    let program = shared.program("basic");
    // Nothing but the output folder can be written to: not the home, not the folder it runs in.
    let mut command = shared.gputrace(ATTACKER);
    command.args(["run", "--simulate", "-o"]).arg(&out).arg("--").arg(&program);
    finish(command.env("HOME", "/nonexistent").current_dir("/")).expect_code(0);
    let report = report(&[out.join("trace.gputrace")]);
    assert_eq!((count(&report, "launches"), dropped(&report)), (10, 0));
    // Auto-collect needs a folder, and says so; with one it works.
    let said = finish(shared.gputrace(ATTACKER).arg("lib").env("HOME", "/nonexistent"));
    assert_ne!(said.code(), Some(0));
    assert!(said.stderr.contains("GPUTRACE_CACHE"), "{}", said.stderr);
    let cache = shared.folder("cache", ATTACKER, 0o700);
    let lib = finish(shared.gputrace(ATTACKER).arg("lib").env("GPUTRACE_CACHE", cache)).expect_code(0);
    let lib = PathBuf::from(lib.stdout.trim_end());
    let mut command = shared.command(ATTACKER, &program);
    command.env("LD_PRELOAD", &lib).env("LD_LIBRARY_PATH", lib.with_file_name("simulated"));
    let bare = shared.folder("bare", ATTACKER, 0o700);
    finish(command.env("GPUTRACE_OUT", &bare).env("HOME", "/nonexistent").current_dir("/")).expect_code(0);
    assert_eq!(count(&crate::harness::tool::report(&[bare.join("trace.gputrace")]), "launches"), 10);
}
