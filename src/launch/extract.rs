//! Puts the embedded libraries on disk, where the dynamic loader can reach them.
//!
//! They stay in a cache folder, named by version and content: a program that outlives its
//! session still has its preload file, and one that is running keeps the one it started with.
//! What is there is compared byte for byte before each use, in folders that nobody else can
//! write to or exchange; copies of other builds that nobody has used for long are removed.

use std::env;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::embedded::{Embedded, LIBGPUTRACE, SIMULATED_CUPTI, SIMULATED_DRIVER};
use crate::launch::private_folder;

/// Where the extracted files are.
#[derive(Debug, Clone)]
pub struct Libraries {
    /// The preload library.
    pub preload: PathBuf,
    /// The folder with the simulated driver and its libcupti.
    pub simulated: PathBuf,
    /// Whether this program lies beside the library, by a link: auto-collect starts the collector by it. It
    /// does not where this program cannot find itself, since /proc is not mounted.
    pub has_program: bool,
}

/// For root, where its cache folder is closed to others: the system's, and one for images that are read-only.
const ROOTS_CACHES: [&str; 2] = ["/var/cache/gputrace", "/tmp/gputrace-cache"];

/// Where the libraries can be put, best first: `GPUTRACE_CACHE` and nowhere else, or the user's cache folder.
/// Empty where there is no home.
///
/// What root starts may become another user's, with LD_PRELOAD in its environment, and the loader writes an
/// error into the output of each program that may not read the library. So for root a folder comes first that
/// all users can enter.
pub fn cache_folders(asked: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(asked) = asked {
        return vec![asked];
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = absolute("XDG_CACHE_HOME")
        .map(|cache| cache.join("gputrace"))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/gputrace")));
    match own {
        Some(own) if !is_root() || private_folder::is_open_to_others(&own) => vec![own],
        own if is_root() => ROOTS_CACHES.iter().map(PathBuf::from).chain(own).collect(),
        own => own.into_iter().collect(),
    }
}

fn is_root() -> bool {
    private_folder::own_id() == 0
}

/// Version and content of everything embedded.
pub fn version_folder() -> String {
    let hash = [&LIBGPUTRACE, &SIMULATED_DRIVER, &SIMULATED_CUPTI]
        .iter()
        .fold(0u64, |hash, part| hash.rotate_left(21).wrapping_mul(31) ^ part.hash);
    format!("{}-{hash:016x}", env!("CARGO_PKG_VERSION"))
}

/// How long a copy of another build stays unused before it is removed. A job script may name
/// one by its path, and finds it for as long as it runs now and then.
const STALE_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Extracts into the folder what is not there yet, and checks what is.
pub fn extract(base: &Path) -> io::Result<Libraries> {
    let base = std::path::absolute(base)?;
    let is_new = !base.exists();
    private_folder::ensure(&base)?;
    let base = private_folder::trusted(&base)?;
    let lock = private_folder::open(&base)?;
    // Keeps others from removing stale copies meanwhile. Never waited for: a session's folder is
    // locked by its owner, and a stopped process must not stop us; the age that a stale copy must
    // have keeps the two apart besides.
    let _ = lock.try_lock_shared();
    let folder = base.join(version_folder());
    let simulated = folder.join("simulated");
    private_folder::ensure(&folder)?;
    private_folder::ensure(&simulated)?;
    if is_root() {
        // A folder that was there is somebody's choice.
        let opened = [&folder, &simulated].into_iter().chain(is_new.then_some(&base));
        opened.for_each(|folder| let_others_read(folder));
    }
    let _ = private_folder::open(&folder)?.set_modified(SystemTime::now());
    let preload = ensure_file(&folder, &LIBGPUTRACE)?;
    ensure_file(&simulated, &SIMULATED_DRIVER)?;
    ensure_file(&simulated, &SIMULATED_CUPTI)?;
    let has_program = match env::current_exe() {
        Ok(program) => link_program(&folder, &program).map(|()| true)?,
        Err(_) => false,
    };
    let _ = lock.unlock();
    remove_stale(&base, &lock);
    Ok(Libraries { preload, simulated, has_program })
}

/// Removes the copies of other builds that were not used for long and that no process has mapped.
/// What cannot be removed stays.
fn remove_stale(base: &Path, lock: &File) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    let stale: Vec<_> = entries.filter(|path| is_stale(path)).collect();
    if stale.is_empty() || lock.try_lock().is_err() {
        return;
    }
    // Asked again: whoever had the lock may have begun to use one.
    for path in stale.iter().filter(|path| is_stale(path) && !is_mapped(path)) {
        let _ = fs::remove_dir_all(path);
    }
    let _ = lock.unlock();
}

/// Whether it is a copy of another build, ours, and unused for long.
fn is_stale(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !is_version_folder(name) || name == version_folder() {
        return false;
    }
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    if !found.is_dir() || found.uid() != private_folder::own_id() {
        return false;
    }
    // Set at each use by this program; the library's own is the loader's, where it is kept.
    let library = fs::symlink_metadata(path.join(LIBGPUTRACE.name));
    let used = found.modified().into_iter().chain(library.and_then(|library| library.accessed())).max();
    used.and_then(|used| used.elapsed().ok()).is_some_and(|unused| unused > STALE_AFTER)
}

/// `<version>-<16 hexadecimal digits>`.
fn is_version_folder(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(version, hash)| {
        version.starts_with(|first: char| first.is_ascii_digit())
            && hash.len() == 16
            && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Whether a process that we can see has a file out of the folder mapped.
fn is_mapped(folder: &Path) -> bool {
    let folder = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .filter_map(|entry| fs::read(entry.path().join("maps")).ok())
        .any(|maps| maps.windows(folder.len()).any(|part| part == folder))
}

/// `ld.so` splits LD_PRELOAD at spaces and colons and has no way to quote them.
pub fn is_preloadable(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'))
}

/// Whether the file system forbids mapping the file for execution.
pub fn is_on_noexec(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: statvfs fills the zeroed struct; the path is a C string.
    unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut about) == 0 && about.f_flag & libc::ST_NOEXEC != 0
    }
}

fn ensure_file(folder: &Path, embedded: &Embedded) -> io::Result<PathBuf> {
    let path = folder.join(embedded.name);
    if !is_intact(&path, embedded)? {
        remove_parts(folder);
        write_atomically(&path, embedded.bytes)?;
        if !is_intact(&path, embedded)? {
            return Err(io::Error::other(format!("{} is not what was written there", path.display())));
        }
    }
    if is_root() {
        let_others_read(&path);
    }
    Ok(path)
}

/// What a file is called until it is whole. Containers that share a home often have the same process
/// ids too, and each is to write a file of its own.
fn part_of(path: &Path) -> PathBuf {
    let mut random = [0; 8];
    // SAFETY: a live buffer of eight bytes. Without the call, which is older than any kernel that runs
    // this, the name is as good as the process id.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    let unique = u64::from_ne_bytes(random);
    path.with_extension(format!("{}-{unique:016x}{PART}", std::process::id()))
}

const PART: &str = ".new";
/// Nobody takes that long to write a file.
const PART_IS_LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Removes what was left by those that were killed while they wrote.
fn remove_parts(folder: &Path) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let written = fs::symlink_metadata(&path).and_then(|found| found.modified());
        let is_left = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > PART_IS_LEFT_AFTER));
        if is_left && path.as_os_str().as_encoded_bytes().ends_with(PART.as_bytes()) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether the file is ours, a plain one, and byte for byte what is embedded.
fn is_intact(path: &Path, embedded: &Embedded) -> io::Result<bool> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // A link in our place: it is replaced, not followed.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(false),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let ours = found.uid() == private_folder::own_id() && found.mode() & 0o022 == 0;
    if !found.is_file() || !ours || found.len() != embedded.bytes.len() as u64 {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(embedded.bytes.len());
    file.read_to_end(&mut bytes)?;
    Ok(bytes == embedded.bytes)
}

/// Lets all users read a folder or a file of ours, and enter or map it. Where that fails, a program of
/// another user's runs untraced, with the loader's error.
fn let_others_read(path: &Path) {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    if let Ok(file) = opened
        && let Ok(found) = file.metadata()
        && found.uid() == private_folder::own_id()
        && found.mode() & 0o777 != 0o755
    {
        let _ = file.set_permissions(fs::Permissions::from_mode(0o755));
    }
}

/// Never writes into a file that a running program has mapped: a new file takes its place.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = part_of(path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&temporary)
        .and_then(|mut file: File| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The library starts `gputrace collect` through this link, which lies beside it.
fn link_program(folder: &Path, program: &Path) -> io::Result<()> {
    let link = folder.join("gputrace");
    if fs::read_link(&link).is_ok_and(|target| target == program) {
        return Ok(());
    }
    let temporary = part_of(&link);
    symlink(program, &temporary)?;
    fs::rename(&temporary, &link).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::private_folder::SessionFolder;

    #[test]
    fn copies_that_were_tampered_with_are_replaced() {
        let base = SessionFolder::create().unwrap();
        let first = extract(base.path()).unwrap();
        assert_eq!(fs::read(&first.preload).unwrap(), LIBGPUTRACE.bytes);
        fs::write(&first.preload, b"something else").unwrap();
        let simulated = first.simulated.join(SIMULATED_DRIVER.name);
        fs::remove_file(&simulated).unwrap();
        symlink("/etc/passwd", &simulated).unwrap();
        extract(base.path()).unwrap();
        assert_eq!(fs::read(&first.preload).unwrap(), LIBGPUTRACE.bytes);
        assert!(fs::symlink_metadata(&simulated).unwrap().is_file());
        assert_eq!(fs::read(&simulated).unwrap(), SIMULATED_DRIVER.bytes);
    }

    /// As containers do that share a home, and have the same process ids.
    #[test]
    fn processes_with_one_process_id_fill_one_cache() {
        let base = SessionFolder::create().unwrap();
        for round in 0..20 {
            let cache = base.path().join(format!("{round}"));
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        let libraries = extract(&cache).unwrap();
                        assert!(is_intact(&libraries.preload, &LIBGPUTRACE).unwrap());
                    });
                }
            });
            let parts = fs::read_dir(cache.join(version_folder())).unwrap().flatten();
            assert_eq!(parts.filter(|part| part.path().to_string_lossy().ends_with(PART)).count(), 0);
        }
    }

    #[test]
    fn leftovers_of_a_killed_writer_are_removed_once_old() {
        let base = SessionFolder::create().unwrap();
        let first = extract(base.path()).unwrap();
        let (old, young) = (part_of(&first.preload), part_of(&first.preload));
        fs::write(&old, b"half").unwrap();
        fs::write(&young, b"half").unwrap();
        let long_ago = SystemTime::now() - 2 * PART_IS_LEFT_AFTER;
        File::open(&old).unwrap().set_modified(long_ago).unwrap();
        fs::remove_file(&first.preload).unwrap();
        extract(base.path()).unwrap();
        assert!(!old.exists() && young.exists());
    }

    #[test]
    fn intact_copy_stays_the_same_file() {
        let base = SessionFolder::create().unwrap();
        let first = extract(base.path()).unwrap();
        let inode = fs::metadata(&first.preload).unwrap().ino();
        extract(base.path()).unwrap();
        assert_eq!(fs::metadata(&first.preload).unwrap().ino(), inode);
    }

    /// A copy of another build, last used so many days ago.
    fn other_build(base: &Path, name: &str, days: u64) -> PathBuf {
        let folder = base.join(name);
        private_folder::ensure(&folder).unwrap();
        let library = folder.join(LIBGPUTRACE.name);
        fs::write(&library, b"of another build").unwrap();
        let used = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        let times = fs::FileTimes::new().set_accessed(used).set_modified(used);
        File::open(&library).unwrap().set_times(times).unwrap();
        private_folder::open(&folder).unwrap().set_times(times).unwrap();
        folder
    }

    #[test]
    fn unused_old_copies_of_other_builds_are_removed() {
        let session = SessionFolder::create().unwrap();
        let base = session.path().join("cache");
        extract(&base).unwrap();
        let old = other_build(&base, "0.0.1-0123456789abcdef", 31);
        let young = other_build(&base, "0.0.2-0123456789abcdef", 29);
        let strange = other_build(&base, "somebody's folder", 31);
        let mapped = other_build(&base, "0.0.3-0123456789abcdef", 31);
        let current = base.join(version_folder());
        let long_ago = SystemTime::now() - Duration::from_secs(365 * 24 * 3600);
        private_folder::open(&current).unwrap().set_modified(long_ago).unwrap();
        let linked = base.join("0.0.4-0123456789abcdef");
        symlink(&strange, &linked).unwrap();
        let library = File::open(mapped.join(LIBGPUTRACE.name)).unwrap();
        // SAFETY: a new private mapping of the test's own file, which nobody reads.
        let address = unsafe {
            use std::os::fd::AsRawFd;
            libc::mmap(std::ptr::null_mut(), 16, libc::PROT_READ, libc::MAP_PRIVATE, library.as_raw_fd(), 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        // Mapping it was a use, by the file system's account; in this test it was long ago.
        let times = fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        library.set_times(times).unwrap();
        private_folder::open(&mapped).unwrap().set_times(times).unwrap();

        // Locked by a process that extracts: nothing is removed.
        let busy = private_folder::open(&base).unwrap();
        busy.lock_shared().unwrap();
        extract(&base).unwrap();
        assert!(old.exists());
        drop(busy);

        extract(&base).unwrap();
        assert!(!old.exists());
        for kept in [&young, &strange, &mapped, &current, &linked] {
            assert!(kept.exists(), "{}", kept.display());
        }
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(address, 16) };
        extract(&base).unwrap();
        assert!(!mapped.exists());
    }

    #[test]
    fn cache_that_others_can_exchange_or_that_is_a_link_is_refused() {
        let base = SessionFolder::create().unwrap();
        let above = base.path().join("above");
        let cache = above.join("cache");
        extract(&cache).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(extract(&cache).unwrap_err().to_string().contains("is writable by other users"));
        fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).unwrap();
        let link = base.path().join("link");
        symlink(&cache, &link).unwrap();
        assert!(extract(&link).unwrap_err().to_string().contains("is a link"));
    }

    #[test]
    fn paths_that_the_loader_would_split_are_known() {
        assert!(is_preloadable(Path::new("/home/user/.cache/gputrace/libgputrace.so")));
        assert!(!is_preloadable(Path::new("/home/a user/libgputrace.so")));
        assert!(!is_preloadable(Path::new("/home/a:b/libgputrace.so")));
    }
}
