//! How LD_PRELOAD, LD_LIBRARY_PATH and TRACEPARENT of a traced program are made. The variables that stand
//! for options come from `cli/recording.rs`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// `LD_PRELOAD` with our library in front of what is there but for another gputrace's, and the program's own
/// AddressSanitizer in front of that. The loader skips the empty element between the two. At load, the
/// library removes it and what comes before it (`interpose/src/process/preload_once.rs`).
pub fn preload(library: &Path, sanitizer: Option<&OsStr>) -> OsString {
    let others = env::var_os("LD_PRELOAD").map(without_ours);
    let value = in_front(library.as_os_str(), others);
    let Some(sanitizer) = sanitizer else { return value };
    let mut first = sanitizer.to_os_string();
    first.push("::");
    first.push(value);
    first
}

/// `LD_LIBRARY_PATH` with a folder in front of what is there.
pub fn library_path(folder: &Path) -> OsString {
    in_front(folder.as_os_str(), env::var_os("LD_LIBRARY_PATH"))
}

/// TRACEPARENT as we were given it; empty where it is not set.
pub fn traceparent() -> String {
    /// Longer than any that is valid today; what is cut is malformed either way.
    const MAX_BYTES: usize = 1024;
    let given = env::var_os("TRACEPARENT").unwrap_or_default();
    let mut given = given.to_string_lossy().into_owned();
    given.truncate(given.floor_char_boundary(MAX_BYTES));
    given
}

/// A `run` inside another `run` has the program for itself: two of our libraries would hook each other.
fn without_ours(list: OsString) -> OsString {
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    let is_ours = |entry: &[u8]| entry.ends_with(b"/libgputrace.so");
    let kept = list.as_bytes().split(is_separator).filter(|entry| !is_ours(entry));
    OsString::from_vec(kept.collect::<Vec<_>>().join(&b':'))
}

fn in_front(first: &OsStr, rest: Option<OsString>) -> OsString {
    let mut value = first.to_os_string();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_has_one_library_of_ours() {
        let kept = |list: &str| without_ours(list.into());
        assert_eq!(kept("/a/libgputrace.so:/b.so /c.so"), "/b.so:/c.so");
        assert_eq!(kept("/b.so:/x/libgputrace.so"), "/b.so");
        assert_eq!(kept("/a/libgputrace.so"), "");
        assert_eq!(kept("libasan.so.8::/a.so"), "libasan.so.8::/a.so");
    }

    #[test]
    fn preloads_that_were_there_stay_behind_ours() {
        assert_eq!(in_front("/a.so".as_ref(), Some("/b.so /c.so".into())), "/a.so:/b.so /c.so");
        // An empty element of LD_LIBRARY_PATH would mean the current folder.
        assert_eq!(in_front("/a".as_ref(), Some("".into())), "/a");
        assert_eq!(in_front("/a".as_ref(), None), "/a");
    }
}
