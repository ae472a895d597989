//! Where a libcupti may lie, given where a libcudart or a toolkit lies.
//!
//! These look at the file system and nothing else: not at the environment, not at what is loaded. Which
//! candidate to open is the caller's choice; a file that cannot be read is no candidate. They allocate, so
//! they are not for hooks.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders below a toolkit's root that are named after this architecture.
const TARGETS: &[&str] = if cfg!(target_arch = "aarch64") {
    &["targets/sbsa-linux/lib", "targets/aarch64-linux/lib"]
} else {
    &["targets/x86_64-linux/lib"]
};

/// Where toolkits are installed when nobody says otherwise.
pub const TOOLKIT_ROOTS: &[&str] = &["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"];

/// The libcupti files that may belong to the libcudart at `cudart`, the likeliest first, each once.
///
/// The wheels' layouts come first (`nvidia/cuda_runtime/lib` beside `nvidia/cuda_cupti/lib`; one
/// `nvidia/cu13/lib` for both), then the toolkits' (`extras/CUPTI/lib64`, `targets/…/lib`). Within a folder
/// the file whose version begins like libcudart's comes first.
pub fn beside_cudart(cudart: &Path) -> Vec<PathBuf> {
    // libcudart may be reached through a link (`/usr/local/cuda`, `lib64`): both places count.
    let resolved = fs::canonicalize(cudart).ok();
    let mut folders = Vec::new();
    for path in [Some(cudart), resolved.as_deref()].into_iter().flatten() {
        folders.extend(folders_beside(path));
    }
    libraries(folders, major(cudart))
}

/// The libcupti files of the toolkit at `root`, the likeliest first, each once.
pub fn in_toolkit(root: &Path) -> Vec<PathBuf> {
    libraries(toolkit_folders(root), None)
}

/// The folders in which the libcupti of the libcudart at `cudart` may be, existing or not.
fn folders_beside(cudart: &Path) -> Vec<PathBuf> {
    let Some(own) = cudart.parent() else { return Vec::new() };
    let mut folders = vec![own.to_path_buf()];
    let mut above = own.ancestors().skip(1);
    // The wheels: nvidia/cuda_runtime/lib/libcudart.so.12 and nvidia/cuda_cupti/lib/libcupti.so.12.
    folders.extend(above.by_ref().nth(1).map(|nvidia| nvidia.join("cuda_cupti/lib")));
    // The toolkits: <root>/lib64/libcudart.so and <root>/targets/x86_64-linux/lib/libcudart.so.
    for root in own.ancestors().skip(1).take(3) {
        folders.extend(toolkit_folders(root));
    }
    folders
}

fn toolkit_folders(root: &Path) -> Vec<PathBuf> {
    ["extras/CUPTI/lib64"]
        .iter()
        .chain(TARGETS)
        .chain(&["lib64", "lib"])
        .map(|below| root.join(below))
        .collect()
}

/// The files named libcupti.so… in those folders, each file once however many links lead to it.
fn libraries(folders: Vec<PathBuf>, preferred_major: Option<u32>) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for folder in folders {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut here: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        here.retain(|path| version(path, "libcupti.so").is_some());
        // Within a folder: names of the preferred major version first, then larger numbers, and `libcupti.so`
        // last. Of links to one file the first is kept, in the order of folders and then of names.
        here.sort_by_cached_key(|path| {
            let version = version(path, "libcupti.so").unwrap_or_default();
            let other_major = preferred_major.is_some() && version.first().copied() != preferred_major;
            (other_major, Reverse(version), path.clone())
        });
        for path in here {
            let Ok(file) = fs::canonicalize(&path) else { continue };
            if !seen.contains(&file) {
                seen.push(file);
                found.push(path);
            }
        }
    }
    found
}

/// The numbers after `stem` in a file name: `libcupti.so.11.8` gives 11 and 8, `libcupti.so` none.
fn version(path: &Path, stem: &str) -> Option<Vec<u32>> {
    let rest = path.file_name()?.to_str()?.strip_prefix(stem)?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    rest.strip_prefix('.')?.split('.').map(|part| part.parse().ok()).collect()
}

fn major(cudart: &Path) -> Option<u32> {
    let named = version(cudart, "libcudart.so").filter(|version| !version.is_empty());
    named.or_else(|| version(&fs::canonicalize(cudart).ok()?, "libcudart.so"))?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of empty files and links, removed when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("cupti-sys-locate-{}-{name}", std::process::id()));
            for file in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            Self(fs::canonicalize(root).unwrap())
        }

        fn link(&self, link: &str, target: &str) {
            let path = self.0.join(link);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }

        fn beside(&self, cudart: &str) -> Vec<String> {
            let found = beside_cudart(&self.0.join(cudart));
            found
                .iter()
                .map(|path| path.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned())
                .collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn wheels_of_cuda_11_and_12_are_found() {
        let tree = Tree::new(
            "cu12",
            &[
                "nvidia/cuda_runtime/lib/libcudart.so.12",
                "nvidia/cuda_cupti/lib/libcupti.so.12",
                "nvidia/cuda_cupti/lib/libnvperf_host.so",
                "nvidia/cuda_cupti/lib/libcupti.so.12.backup",
            ],
        );
        assert_eq!(
            tree.beside("nvidia/cuda_runtime/lib/libcudart.so.12"),
            ["nvidia/cuda_cupti/lib/libcupti.so.12"]
        );
    }

    #[test]
    fn wheels_of_cuda_13_are_found() {
        let tree = Tree::new("cu13", &["nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"]);
        assert_eq!(tree.beside("nvidia/cu13/lib/libcudart.so.13"), ["nvidia/cu13/lib/libcupti.so.13"]);
    }

    #[test]
    fn toolkit_is_found_through_links() {
        let tree = Tree::new(
            "toolkit",
            &[
                "cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127",
                "cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.1",
            ],
        );
        tree.link("cuda-12.4/lib64", "targets/x86_64-linux/lib");
        tree.link("cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12", "libcudart.so.12.4.127");
        tree.link("cuda-12.4/extras/CUPTI/lib64/libcupti.so.12", "libcupti.so.2024.1.1");
        tree.link("cuda-12.4/extras/CUPTI/lib64/libcupti.so", "libcupti.so.12");
        tree.link("cuda", "cuda-12.4");
        assert_eq!(tree.beside("cuda/lib64/libcudart.so.12"), ["cuda/extras/CUPTI/lib64/libcupti.so.12"]);
        assert_eq!(
            in_toolkit(&tree.0.join("cuda")),
            [tree.0.join("cuda/extras/CUPTI/lib64/libcupti.so.2024.1.1")]
        );
    }

    #[test]
    fn cudarts_own_version_comes_first() {
        let tree = Tree::new("both", &["lib/libcudart.so.12", "lib/libcupti.so.12", "lib/libcupti.so.13"]);
        assert_eq!(tree.beside("lib/libcudart.so.12"), ["lib/libcupti.so.12", "lib/libcupti.so.13"]);
    }

    #[test]
    fn empty_system_has_no_library() {
        assert!(beside_cudart(Path::new("/nonexistent/lib/libcudart.so.12")).is_empty());
        assert!(beside_cudart(Path::new("")).is_empty());
        assert!(beside_cudart(Path::new("libcudart.so")).is_empty());
        assert!(in_toolkit(Path::new("/nonexistent")).is_empty());
    }
}
