//! Which files are the program's own, and not a library's or the runtime's.
//!
//! A matter of where Python installs things. What cannot be told counts as the program's own.

/// Folders that hold what is installed.
const LIBRARIES: [&str; 2] = ["site-packages", "dist-packages"];
/// Sources that are no file and yet somebody's own words.
const TYPED: [&str; 4] = ["<string>", "<stdin>", "<ipython", "<doctest"];

/// Whether a source file is the program's own. The interpreter's own library lies in
/// `lib/python3.12`, wherever it is installed, and what compilers generate in folders named so.
pub fn is_own(path: &str) -> bool {
    if path.starts_with('<') {
        return TYPED.iter().any(|typed| path.starts_with(typed));
    }
    let mut before = "";
    for part in path.split('/') {
        let standard = matches!(before, "lib" | "lib64") && is_python(part);
        if standard || LIBRARIES.contains(&part) || part.starts_with("torchinductor_") {
            return false;
        }
        before = part;
    }
    true
}

/// Whether the text is one that was handed to `exec` or `eval`: what stands after `python -c`, but also functions that libraries make,
/// such as Triton's launchers and the methods of data classes. It answers for what it asks for where nothing else of
/// the program's own does.
pub fn is_made(path: &str) -> bool {
    path.starts_with("<string>")
}

/// `python3`, `python3.12`, `python3.13t`.
fn is_python(folder: &str) -> bool {
    folder.strip_prefix("python3").is_some_and(|version| {
        version.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b't' | b'd'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_where_they_are() {
        for own in [
            "train.py",
            "/home/me/lib/train.py",
            "/home/me/python3/x.py",
            "/srv/lib/python3tools/x.py",
            "<stdin>",
            "<string>",
            "<ipython-input-3-0a1b>",
            "/tmp/ipykernel_12/3456.py",
            "",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "/usr/lib/python3/dist-packages/numpy/core/x.py",
            "/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            "/opt/python/lib/python3.13t/threading.py",
            "/usr/lib64/python3.9/runpy.py",
            "<frozen runpy>",
            "<eval_with_key>.7",
            "/tmp/torchinductor_me/ab/cabc.py",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
