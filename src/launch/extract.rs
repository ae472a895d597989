//! Puts the embedded libraries on disk, where the dynamic loader can reach them.
//!
//! They stay in a cache folder, named by version and content: a program that outlives its
//! session still has its preload file, and one that is running keeps the one it started with.

use std::env;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::embedded::{Embedded, LIBGPUTRACE, SIMULATED_CUPTI, SIMULATED_DRIVER};
use crate::launch::private_folder;

/// Where the extracted files are.
#[derive(Debug, Clone)]
pub struct Libraries {
    /// The preload library.
    pub preload: PathBuf,
    /// The folder with the simulated driver and its libcupti.
    pub simulated: PathBuf,
}

/// `GPUTRACE_CACHE`, or the user's cache folder; `None` where there is no home.
pub fn cache_folder(asked: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    asked
        .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("gputrace")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/gputrace")))
}

/// Version and content of everything embedded.
pub fn version_folder() -> String {
    let hash = [LIBGPUTRACE, SIMULATED_DRIVER, SIMULATED_CUPTI]
        .iter()
        .fold(0u64, |hash, part| hash.rotate_left(21).wrapping_mul(31) ^ part.hash);
    format!("{}-{hash:016x}", env!("CARGO_PKG_VERSION"))
}

/// Extracts into the folder what is not there yet, and checks what is.
pub fn extract(base: &Path) -> io::Result<Libraries> {
    let base = std::path::absolute(base)?;
    let folder = base.join(version_folder());
    let simulated = folder.join("simulated");
    private_folder::ensure(&folder)?;
    private_folder::ensure(&simulated)?;
    let preload = ensure_file(&folder, &LIBGPUTRACE)?;
    ensure_file(&simulated, &SIMULATED_DRIVER)?;
    ensure_file(&simulated, &SIMULATED_CUPTI)?;
    link_program(&folder)?;
    Ok(Libraries { preload, simulated })
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
        write_atomically(&path, embedded.bytes)?;
    }
    Ok(path)
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
    // SAFETY: geteuid has no precondition and cannot fail.
    let ours = found.uid() == unsafe { libc::geteuid() } && found.mode() & 0o022 == 0;
    if !found.is_file() || !ours || found.len() != embedded.bytes.len() as u64 {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(embedded.bytes.len());
    file.read_to_end(&mut bytes)?;
    Ok(bytes == embedded.bytes)
}

/// Never writes into a file that a running program has mapped: a new file takes its place.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
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
fn link_program(folder: &Path) -> io::Result<()> {
    let program = env::current_exe()?;
    let link = folder.join("gputrace");
    if fs::read_link(&link).is_ok_and(|target| target == program) {
        return Ok(());
    }
    let temporary = folder.join(format!("gputrace.{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
    symlink(&program, &temporary)?;
    fs::rename(&temporary, &link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::private_folder::SessionFolder;

    #[test]
    fn what_was_tampered_with_is_replaced() {
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

    #[test]
    fn what_is_intact_stays_the_same_file() {
        let base = SessionFolder::create().unwrap();
        let first = extract(base.path()).unwrap();
        let inode = fs::metadata(&first.preload).unwrap().ino();
        extract(base.path()).unwrap();
        assert_eq!(fs::metadata(&first.preload).unwrap().ino(), inode);
    }

    #[test]
    fn paths_that_the_loader_would_split_are_known() {
        assert!(is_preloadable(Path::new("/home/user/.cache/gputrace/libgputrace.so")));
        assert!(!is_preloadable(Path::new("/home/a user/libgputrace.so")));
        assert!(!is_preloadable(Path::new("/home/a:b/libgputrace.so")));
    }
}
