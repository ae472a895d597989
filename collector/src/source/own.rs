//! User code: which files belong to the program, and not to a library or the runtime.
//!
//! Decided by where Python installs files. Unknown files count as user code.

/// Folders of installed packages.
const LIBRARIES: [&str; 2] = ["site-packages", "dist-packages"];
/// Sources without a file that are user code.
const TYPED: [&str; 4] = ["<string>", "<stdin>", "<ipython", "<doctest"];

/// Whether a source file is user code. The standard library lies in `lib/python3.12`, wherever it is
/// installed, and generated code in the compilers' folders.
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

/// Whether the code was passed to `exec`, `eval` or `python -c`. Libraries do this too, for example for
/// Triton's launchers and the methods of data classes, so such a line is taken as user code only if the stack
/// has no other.
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
