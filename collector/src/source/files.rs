//! Short names of files: `linear.py` for `/usr/lib/python3/dist-packages/torch/nn/modules/linear.py`.
//!
//! A file's short name is the last part of its path. Two files of a session with the same last part get as
//! many folders as make them differ; `__init__.py` and `__main__.py` always have their folder.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Names grow one part at a time up to this many, and then to the whole path.
const PARTS_MAX: usize = 12;
/// File names that are always shown with their folder.
const ANONYMOUS: [&str; 2] = ["__init__.py", "__main__.py"];

#[derive(Clone, Debug, Default)]
pub struct FileNames {
    names: FxHashMap<Arc<str>, Arc<str>>,
}

impl FileNames {
    /// Names the files of a session. A path may repeat; the order does not matter.
    pub fn new(paths: impl Iterator<Item = Arc<str>>) -> FileNames {
        let mut names: FxHashMap<Arc<str>, Arc<str>> = FxHashMap::default();
        let mut open: Vec<(Arc<str>, usize)> = Vec::new();
        for path in paths {
            if let std::collections::hash_map::Entry::Vacant(vacant) = names.entry(path) {
                let path = vacant.key().clone();
                let last = path.rsplit('/').next().unwrap_or("");
                open.push((path.clone(), 1 + usize::from(ANONYMOUS.contains(&last))));
                vacant.insert(path);
            }
        }
        let mut files: FxHashMap<String, Vec<(Arc<str>, usize)>> = FxHashMap::default();
        while !open.is_empty() {
            for (path, parts) in open.drain(..) {
                files.entry(ending(&path, parts)).or_default().push((path, parts));
            }
            for (name, same) in files.drain() {
                // Paths that cannot grow any more are spellings of one file.
                let grows = |(path, parts): &(Arc<str>, usize)| {
                    ending(path, usize::MAX) != *name && *parts < usize::MAX
                };
                if same.len() == 1 || !same.iter().any(grows) {
                    let name: Arc<str> = name.into();
                    names.extend(same.into_iter().map(|(path, _)| (path, name.clone())));
                } else {
                    let next = |parts: usize| if parts < PARTS_MAX { parts + 1 } else { usize::MAX };
                    open.extend(same.into_iter().map(|(path, parts)| (path, next(parts))));
                }
            }
        }
        FileNames { names }
    }

    /// The file's short name; for an unknown file the path itself.
    pub fn name(&self, path: &Arc<str>) -> Arc<str> {
        self.names.get(path).unwrap_or(path).clone()
    }
}

/// The last `parts` parts of a path. A name like `<stdin>` is one part.
fn ending(path: &str, parts: usize) -> String {
    if path.starts_with('<') {
        return path.to_owned();
    }
    if parts == usize::MAX {
        let kept: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let root = if path.starts_with('/') { "/" } else { "" };
        return root.to_owned() + &kept.join("/");
    }
    let mut last: Vec<&str> =
        path.rsplit('/').filter(|part| !matches!(*part, "" | ".")).take(parts).collect();
    last.reverse();
    last.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn named(paths: &[&str]) -> BTreeMap<String, String> {
        let paths: Vec<Arc<str>> = paths.iter().map(|path| Arc::from(*path)).collect();
        let names = FileNames::new(paths.iter().cloned());
        paths.iter().map(|path| (path.to_string(), names.name(path).to_string())).collect()
    }

    #[test]
    fn file_is_called_by_its_last_part() {
        for (path, name) in [
            ("/home/me/train.py", "train.py"),
            ("train.py", "train.py"),
            ("./train.py", "train.py"),
            ("/x/torch/nn/modules/linear.py", "linear.py"),
            ("/x/torch/nn/__init__.py", "nn/__init__.py"),
            ("__main__.py", "__main__.py"),
            ("<stdin>", "<stdin>"),
            ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
            ("<a/b>", "<a/b>"),
            ("", ""),
        ] {
            assert_eq!(named(&[path])[path], name);
        }
    }

    #[test]
    fn files_that_end_alike_keep_the_folders_in_which_they_differ() {
        let names = named(&[
            "/a/nn/linear.py",
            "/a/nn/quantized/linear.py",
            "/b/q/quantized/linear.py",
            "linear.py",
            "/a/x.py",
        ]);
        assert_eq!(names["/a/nn/linear.py"], "nn/linear.py");
        assert_eq!(names["/a/nn/quantized/linear.py"], "nn/quantized/linear.py");
        assert_eq!(names["/b/q/quantized/linear.py"], "q/quantized/linear.py");
        assert_eq!(names["linear.py"], "linear.py");
        assert_eq!(names["/a/x.py"], "x.py");
        let root = named(&["/train.py", "train.py", "./train.py"]);
        assert_eq!(
            (&*root["/train.py"], &*root["train.py"], &*root["./train.py"]),
            ("/train.py", "train.py", "train.py")
        );
    }

    proptest! {
        #[test]
        fn different_files_have_different_names(
            paths in prop::collection::vec("/?([ab]/|\\./|/){0,16}(c\\.py|__init__\\.py|<x>)?", 0..40),
        ) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let names = named(&paths);
            let mut files: BTreeMap<&str, String> = BTreeMap::new();
            for (path, name) in &names {
                let file = ending(path, usize::MAX);
                let known = files.entry(name).or_insert_with(|| file.clone());
                prop_assert_eq!(&*known, &file, "{}", name);
            }
        }
    }
}
