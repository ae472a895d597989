//! Tests by golden lists: names from device libraries, each followed by its short name in a program with the
//! kernels of the file, in this order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::names::table::MARK_MAX_CHARS;
use crate::names::{NameTable, SHORT_MAX_CHARS, demangle};

/// Rewrites the golden files instead of comparing.
const BLESS: &str = "GPUTRACE_BLESS";

fn files() -> Vec<PathBuf> {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/names/tests/kernels.txt"));
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/kernel-names");
    let entries = std::fs::read_dir(libraries).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.push(own);
    files.sort();
    files
}

fn full_names(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("    ")).collect()
}

#[test]
fn kernels_have_the_short_names_people_know() {
    let mut names = 0;
    for golden in files() {
        let text = std::fs::read_to_string(&golden).unwrap();
        let mut table = NameTable::default();
        let full = full_names(&text);
        names += full.len();
        let entry = |name: &&str| format!("{name}\n    {}\n", table.short(&demangle(name.as_bytes())));
        let now: Vec<String> = full.iter().map(entry).collect();
        compare(&golden, &text, &now.join("\n"));
    }
    assert!(names >= 600, "only {names} names");
}

#[test]
fn kernels_of_a_program_have_different_short_names() {
    // All libraries in one program: more than any real program.
    let mut table = NameTable::default();
    let mut taken: HashMap<String, String> = HashMap::new();
    let mut comfortable = 0;
    for golden in files() {
        for name in full_names(&std::fs::read_to_string(&golden).unwrap()) {
            let full = demangle(name.as_bytes());
            let short = table.short(&full).to_string();
            let chars = short.chars().count();
            assert!(chars <= SHORT_MAX_CHARS + MARK_MAX_CHARS + 3, "{short}");
            comfortable += usize::from(chars <= 72);
            let first = taken.entry(short.clone()).or_insert(full.clone());
            assert_eq!(*first, full, "both are {short}");
        }
    }
    let share = comfortable * 100 / taken.len();
    assert!(share >= 85, "only {share} % of the names are comfortable to read");
}

fn compare(golden: &Path, expected: &str, now: &str) {
    if std::env::var_os(BLESS).is_some() {
        return std::fs::write(golden, now).unwrap();
    }
    if expected != now {
        let kept = std::env::temp_dir().join("gputrace-kernels.actual.txt");
        std::fs::write(&kept, now).unwrap();
        let line = expected.lines().zip(now.lines()).position(|(a, b)| a != b).unwrap_or(0) + 1;
        panic!("{} differs at line {line}; see {}; {BLESS}=1 accepts", golden.display(), kept.display());
    }
}
