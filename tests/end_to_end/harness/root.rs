//! A root folder that holds some files and what the loader needs for them, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool;

#[derive(Debug)]
pub struct Root {
    folder: Folder,
    /// Whether a user namespace must make us root first.
    in_namespace: bool,
}

impl Root {
    /// Every file at the path that it has outside, with the libraries that `ldd` names for it.
    /// `None`, and said, where this machine lets nobody change the root folder.
    pub fn with(test: &str, files: &[&Path]) -> Option<Root> {
        let in_namespace = match needs::change_of_root(test) {
            needs::ChangeOfRoot::Impossible => return None,
            needs::ChangeOfRoot::Plain => false,
            needs::ChangeOfRoot::InNamespace => true,
        };
        let root = Root { folder: Folder::new(), in_namespace };
        for file in files {
            root.add(file);
            let mut ldd = Command::new("ldd");
            let said = finish(ldd.arg(file).env("LD_LIBRARY_PATH", tool::simulated_folder())).expect_code(0);
            for word in said.stdout.split_whitespace().filter(|word| word.starts_with('/')) {
                root.add(Path::new(word));
            }
        }
        Some(root)
    }

    fn add(&self, file: &Path) {
        let to = self.inside(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, &to).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Where a path lies outside.
    pub fn inside(&self, path: &Path) -> PathBuf {
        self.folder.path().join(path.strip_prefix("/").unwrap())
    }

    /// Whether a file of that name is in it, in any folder.
    pub fn has(&self, name: &str) -> bool {
        fn find(folder: &Path, name: &str) -> bool {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
                true => find(&path, name),
                false => path.file_name().is_some_and(|file| file == name),
            })
        }
        find(self.folder.path(), name)
    }

    /// A command that runs a program there. The command that changes the root runs outside, so
    /// that what it is given for the program's loader must be harmless to it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(if self.in_namespace { "unshare" } else { "chroot" });
        if self.in_namespace {
            command.args(["-r", "--", "chroot"]);
        }
        tool::clean(&mut command);
        command.arg(self.folder.path()).arg(program);
        command
    }
}
