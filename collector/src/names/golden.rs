//! The golden list of names: `tests/kernels.txt` holds names as device libraries say them, each
//! followed by the short name that people get.

use std::path::{Path, PathBuf};

use crate::names::{demangle, short};

/// Rewrites the golden file instead of comparing.
const BLESS: &str = "GPUTRACE_BLESS";

#[test]
fn kernels_have_the_short_names_people_know() {
    let golden = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/names/tests/kernels.txt"));
    let text = std::fs::read_to_string(&golden).unwrap();
    let full: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with("    ")).collect();
    assert!(full.len() >= 60, "only {} names", full.len());
    let now: String =
        full.iter().map(|name| format!("{name}\n    {}\n\n", short(&demangle(name.as_bytes())))).collect();
    compare(&golden, &text, &now);
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
