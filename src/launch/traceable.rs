//! Whether the dynamic loader will put our library into a program, judged before it starts by
//! its file alone. What cannot be read is taken for traceable: the kernel has the last word.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// As deep as the kernel follows interpreters that are scripts themselves.
const SCRIPT_DEPTH: usize = 5;
const HEAD_BYTES: usize = 256;
/// More program headers than any linker makes are not read.
const PROGRAM_HEADERS_MAX: u16 = 256;
const DYNAMIC_BYTES_MAX: u64 = 1 << 16;

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const ET_EXEC: u16 = 2;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
const ELF_CLASS_64: u8 = 2;
const ELF_LITTLE_ENDIAN: u8 = 1;
#[cfg(target_arch = "x86_64")]
const OUR_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OUR_MACHINE: u16 = 183;

/// Why a program cannot be traced.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// A clause about the file.
    pub text: String,
    /// Whether the programs that it starts get LD_PRELOAD all the same.
    hands_on: bool,
}

impl Reason {
    /// One sentence about the command's program.
    pub fn sentence(&self, program: &OsStr) -> String {
        let (program, text) = (program.display(), &self.text);
        if self.hands_on {
            format!(
                "{program} itself cannot be traced because {text}; the programs that it starts are traced"
            )
        } else {
            format!("{program} cannot be traced because {text}")
        }
    }
}

/// The reason; `None` for a program that can be traced as far as its
/// file shows. A script is judged by its interpreter: the kernel ignores the script's own rights.
pub fn why_not(program: &OsStr) -> Option<Reason> {
    let mut path = find(program)?;
    for _ in 0..SCRIPT_DEPTH {
        let mut head = [0; HEAD_BYTES];
        let mut file = File::open(&path).ok()?;
        let count = file.read(&mut head).ok()?;
        let head = head.get(..count)?;
        let Some(interpreter) = interpreter(head) else {
            return judge(&path, &file, head);
        };
        path = interpreter;
    }
    None
}

/// The file whose library list the loader reads: the program's, or that of the interpreter of a script.
pub fn executed_file(program: &OsStr) -> Option<File> {
    let mut path = find(program)?;
    for _ in 0..SCRIPT_DEPTH {
        let mut head = [0; HEAD_BYTES];
        let mut file = File::open(&path).ok()?;
        let count = file.read(&mut head).ok()?;
        match interpreter(head.get(..count)?) {
            Some(interpreter) => path = interpreter,
            None => return Some(file),
        }
    }
    None
}

/// The file that the name stands for.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0))
}

/// What the first line of a script names.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    let word = line.split(blank).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

fn judge(path: &Path, file: &File, head: &[u8]) -> Option<Reason> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let name = path.display();
    let machine = u16::from_le_bytes(*head.get(18..)?.first_chunk()?);
    if head.get(4..6)? != [ELF_CLASS_64, ELF_LITTLE_ENDIAN] || machine != OUR_MACHINE {
        let text = format!("{name} is of another architecture than gputrace");
        return Some(Reason { text, hands_on: true });
    }
    if is_static(file, head)? {
        let text = format!("{name} is linked statically, so that no loader puts a library into it");
        return Some(Reason { text, hands_on: true });
    }
    let right = gained_rights(path, file)?;
    let text = format!("{name} {right}: the loader ignores LD_PRELOAD in a program that gains rights");
    Some(Reason { text, hands_on: false })
}

/// Whether it names no loader, and is not a loader itself. `None` where the headers are nonsense.
fn is_static(file: &File, head: &[u8]) -> Option<bool> {
    let kind = u16::from_le_bytes(*head.get(16..)?.first_chunk()?);
    let table = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
    let size = u16::from_le_bytes(*head.get(54..)?.first_chunk()?);
    let count = u16::from_le_bytes(*head.get(56..)?.first_chunk()?);
    if count > PROGRAM_HEADERS_MAX {
        return None;
    }
    let mut is_pie = false;
    for index in 0..u64::from(count) {
        let mut header = [0; 56];
        file.read_exact_at(&mut header, table.checked_add(index * u64::from(size))?).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        match word(0)? as u32 {
            PT_INTERP => return Some(false),
            PT_DYNAMIC => is_pie |= says_pie(file, word(8)?, word(32)?)?,
            _ => {}
        }
    }
    // The loader, run by its own name, is a shared object without an interpreter.
    Some(kind == ET_EXEC || is_pie)
}

/// Whether the dynamic section says that the object is a program.
fn says_pie(file: &File, offset: u64, bytes: u64) -> Option<bool> {
    let mut dynamic = vec![0; bytes.min(DYNAMIC_BYTES_MAX) as usize];
    file.read_exact_at(&mut dynamic, offset).ok()?;
    let entries = dynamic.chunks_exact(16).filter_map(|entry| {
        let tag = u64::from_le_bytes(*entry.first_chunk()?);
        Some((tag, u64::from_le_bytes(*entry.last_chunk()?)))
    });
    Some(entries.into_iter().any(|(tag, value)| tag == DT_FLAGS_1 && value & DF_1_PIE != 0))
}

/// The right that starting the file gives and we do not have, if any.
fn gained_rights(path: &Path, file: &File) -> Option<&'static str> {
    let found = file.metadata().ok()?;
    let name = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: prctl and the get calls take plain numbers; statvfs fills zeroed plain data and
    // getxattr only measures; the name is a C string.
    let (inert, user, group, has_capabilities) = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        let nosuid = libc::statvfs(name.as_ptr(), &raw mut about) == 0 && about.f_flag & libc::ST_NOSUID != 0;
        let inert = nosuid || libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        let size = libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0);
        (inert, libc::getuid(), libc::getgid(), size > 0)
    };
    // The group's bit without its right to execute asks for mandatory locks instead.
    let setgid = libc::S_ISGID | libc::S_IXGRP;
    if inert {
        None
    } else if found.mode() & libc::S_ISUID != 0 && found.uid() != user {
        Some("is setuid")
    } else if found.mode() & setgid == setgid && found.gid() != group {
        Some("is setgid")
    } else if has_capabilities && user != 0 {
        Some("has file capabilities")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_program_is_traceable_and_so_is_the_loader() {
        let own = env::current_exe().unwrap();
        assert_eq!(why_not(own.as_os_str()), None);
        for loader in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"] {
            assert_eq!(why_not(loader.as_ref()), None);
        }
        assert_eq!(why_not("/nonexistent/program".as_ref()), None);
        assert_eq!(why_not("no-such-command-anywhere".as_ref()), None);
    }

    #[test]
    fn first_line_names_the_interpreter() {
        let named = |head: &[u8]| interpreter(head).map(PathBuf::into_os_string);
        assert_eq!(named(b"#! /bin/sh -e\nfoo"), Some("/bin/sh".into()));
        assert_eq!(named(b"#!/usr/bin/env\tpython3\n"), Some("/usr/bin/env".into()));
        assert_eq!(named(b"\x7fELF"), None);
    }
}
