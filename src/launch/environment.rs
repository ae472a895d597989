//! What a traced program finds changed in its environment, and nothing else.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// `LD_PRELOAD` with our library in front of what is there, and the program's own AddressSanitizer in
/// front of that. The loader skips the empty element between the two; the library takes it and what
/// comes before it out of the environment as it is loaded (`interpose/src/preload_once.rs`).
pub fn preload(library: &Path, sanitizer: Option<&OsStr>) -> OsString {
    let value = in_front(library.as_os_str(), env::var_os("LD_PRELOAD"));
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
    fn what_was_there_stays_behind_ours() {
        assert_eq!(in_front("/a.so".as_ref(), Some("/b.so /c.so".into())), "/a.so:/b.so /c.so");
        // An empty element of LD_LIBRARY_PATH would mean the current folder.
        assert_eq!(in_front("/a".as_ref(), Some("".into())), "/a");
        assert_eq!(in_front("/a".as_ref(), None), "/a");
    }
}
