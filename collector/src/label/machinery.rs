//! Recognizes the frames of PyTorch's compiler, which stacks show as one frame.
//!
//! About twenty frames, the same in all programs, lie between the call of a compiled function and its
//! launches. Code that the compiler generated (`<eval_with_key>`, `torchinductor_…`) is not among them.

/// The frame that replaces a run of the compiler's frames.
pub const DYNAMO: &str = "[dynamo]";

/// The compiler's own files.
const FOLDERS: [&str; 4] = ["/torch/_dynamo/", "/torch/_functorch/", "/torch/_inductor/", "/torch/fx/"];
const FILES: [&str; 2] = ["/torch/_compile.py", "/torch/_ops.py"];
/// Every module has frames in this file, compiled or not. Inside a run they belong to it; alone they make
/// none.
const MODULE: &str = "/torch/nn/modules/module.py";

/// What a frame is to the compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameRole {
    /// A frame of the compiler.
    Machinery,
    /// A frame that may lie between two of the compiler.
    Between,
    Other,
}

pub fn role(path: &str) -> FrameRole {
    if FOLDERS.iter().any(|folder| path.contains(folder)) || FILES.iter().any(|file| path.ends_with(file)) {
        FrameRole::Machinery
    } else if path.ends_with(MODULE) {
        FrameRole::Between
    } else {
        FrameRole::Other
    }
}

/// Ranges of at least two of the compiler's frames, outermost first, with the frames between them.
pub fn runs(roles: impl Iterator<Item = FrameRole>) -> Vec<std::ops::Range<usize>> {
    const LEAST: usize = 2;
    let mut runs: Vec<(std::ops::Range<usize>, usize)> = Vec::new();
    let mut is_open = false;
    for (index, role) in roles.enumerate() {
        match (role, runs.last_mut()) {
            (FrameRole::Machinery, Some((run, count))) if is_open => {
                run.end = index + 1;
                *count += 1;
            }
            (FrameRole::Machinery, _) => {
                runs.push((index..index + 1, 1));
                is_open = true;
            }
            (FrameRole::Between, _) => {}
            (FrameRole::Other, _) => is_open = false,
        }
    }
    runs.into_iter().filter(|(_, count)| *count >= LEAST).map(|(run, _)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_frames_are_distinguished_from_generated_code() {
        let torch = "/opt/lib/python3.12/site-packages/torch";
        for (path, expected) in [
            ("/_dynamo/eval_frame.py", FrameRole::Machinery),
            ("/_functorch/_aot_autograd/utils.py", FrameRole::Machinery),
            ("/fx/graph_module.py", FrameRole::Machinery),
            ("/_ops.py", FrameRole::Machinery),
            ("/nn/modules/module.py", FrameRole::Between),
            ("/nn/modules/linear.py", FrameRole::Other),
            ("/optim/adam.py", FrameRole::Other),
        ] {
            assert_eq!(role(&format!("{torch}{path}")), expected, "{path}");
        }
        for path in ["<eval_with_key>.3", "/tmp/torchinductor_me/ab/cab.py", "train.py", "/home/me/fx/x.py"] {
            assert_eq!(role(path), FrameRole::Other, "{path}");
        }
    }

    #[test]
    fn run_begins_and_ends_with_compiler_frames() {
        let found = |roles: &str| {
            runs(roles.chars().map(|role| match role {
                'm' => FrameRole::Machinery,
                '-' => FrameRole::Between,
                _ => FrameRole::Other,
            }))
        };
        assert_eq!(found("o--m-mm--om-o-mm"), [3..7, 14..16]);
        assert_eq!(found("mm"), std::slice::from_ref(&(0..2)));
        assert!(found("m--o--m").is_empty());
        assert!(found("").is_empty());
    }
}
