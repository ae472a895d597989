//! A folder for one test: removed when the test passes, kept for a look when it fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Everything that the tests write lies here, in the target folder.
pub fn base() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base().join(format!("t-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
