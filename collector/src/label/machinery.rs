//! Recognizes frames that are the same in all programs, which stacks show as one frame: those of PyTorch's
//! compiler, those that call a PyTorch module or begin a backward pass, and those of a notebook.
//!
//! About twenty frames lie between the call of a compiled function and its launches, and as many before the
//! first line of a notebook's cell. Code that the compiler generated (`<eval_with_key>`, `torchinductor_…`)
//! is not among them.

use std::ops::Range;

/// The frames that replace a run of the compiler's frames, of those that call a module, of those that begin a
/// backward pass, and of a notebook's. The third is also recorded: it precedes what runs in a backward pass.
pub const DYNAMO: &str = "[dynamo]";
pub const MODULE_CALL: &str = "[nn.Module]";
pub const AUTOGRAD: &str = "[autograd]";
pub const NOTEBOOK: &str = "[notebook]";

/// What files of these folders and of these names are.
const FOLDERS: [(&str, &str); 7] = [
    ("/torch/_dynamo/", DYNAMO),
    ("/torch/_functorch/", DYNAMO),
    ("/torch/_inductor/", DYNAMO),
    ("/torch/fx/", DYNAMO),
    ("/IPython/", NOTEBOOK),
    ("/ipykernel/", NOTEBOOK),
    ("/traitlets/", NOTEBOOK),
];
const FILES: [(&str, &str); 5] = [
    ("/torch/autograd/__init__.py", AUTOGRAD),
    ("/torch/_compile.py", DYNAMO),
    ("/torch/_ops.py", DYNAMO),
    ("/ipykernel_launcher.py", NOTEBOOK),
    ("/gputrace/notebook.py", NOTEBOOK),
];
/// Functions that lead to a backward pass, by their files.
const TO_BACKWARD: [(&str, &str); 2] =
    [("/torch/_tensor.py", "backward"), ("/torch/autograd/graph.py", "_engine_run_backward")];
/// Every module of PyTorch has frames in the first file, compiled or not, and every server in the folders.
/// Inside a run they belong to it; alone they make none, but for the functions that call a module.
const MODULE: &str = "/torch/nn/modules/module.py";
const MODULE_CALLERS: [&str; 2] = ["_call_impl", "_call_impl.<locals>.inner"];
const LOOPS: [&str; 2] = ["/asyncio/", "/tornado/"];

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameRole {
    /// One of those that this text stands for.
    Machinery(&'static str),
    /// A frame that may lie between two of them.
    Between,
    /// The same, and one that calls a module.
    CallsModule,
    Other,
}

pub fn role(path: &str, function: &str) -> FrameRole {
    let folder = FOLDERS.iter().find(|(folder, _)| path.contains(folder));
    match folder.or_else(|| FILES.iter().find(|(file, _)| path.ends_with(file))) {
        Some((_, text)) => FrameRole::Machinery(text),
        None if TO_BACKWARD.iter().any(|(file, name)| path.ends_with(file) && function.ends_with(name)) => {
            FrameRole::Machinery(AUTOGRAD)
        }
        None if path.ends_with(MODULE) && MODULE_CALLERS.iter().any(|name| function.ends_with(name)) => {
            FrameRole::CallsModule
        }
        None if path.ends_with(MODULE) || LOOPS.iter().any(|folder| path.contains(folder)) => {
            FrameRole::Between
        }
        None => FrameRole::Other,
    }
}

/// Ranges of frames that have one text, outermost first: at least two frames of machinery with the frames
/// between them, and outside of these all that call one module.
pub fn runs(roles: &[FrameRole]) -> Vec<(Range<usize>, &'static str)> {
    let mut runs = of_machinery(roles);
    let mut at = 0;
    for calls in roles.chunk_by(|one, next| one == next) {
        let run = at..at + calls.len();
        at = run.end;
        let is_inside = runs.iter().any(|(other, _)| other.start < run.end && run.start < other.end);
        if calls.first() == Some(&FrameRole::CallsModule) && !is_inside {
            runs.push((run, MODULE_CALL));
        }
    }
    runs.sort_by_key(|(run, _)| run.start);
    runs
}

fn of_machinery(roles: &[FrameRole]) -> Vec<(Range<usize>, &'static str)> {
    const LEAST: usize = 2;
    let mut runs: Vec<(Range<usize>, &'static str, usize)> = Vec::new();
    let mut is_open = false;
    for (index, role) in roles.iter().copied().enumerate() {
        match (role, runs.last_mut()) {
            (FrameRole::Machinery(text), Some((run, open, count))) if is_open && text == *open => {
                run.end = index + 1;
                *count += 1;
            }
            (FrameRole::Machinery(text), _) => {
                runs.push((index..index + 1, text, 1));
                is_open = true;
            }
            (FrameRole::Between | FrameRole::CallsModule, _) => {}
            (FrameRole::Other, _) => is_open = false,
        }
    }
    runs.into_iter().filter(|(_, _, count)| *count >= LEAST).map(|(run, text, _)| (run, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_machinery_are_distinguished_from_generated_code() {
        let torch = "/opt/lib/python3.12/site-packages/torch";
        for (path, expected) in [
            ("/_dynamo/eval_frame.py", FrameRole::Machinery(DYNAMO)),
            ("/_functorch/_aot_autograd/utils.py", FrameRole::Machinery(DYNAMO)),
            ("/fx/graph_module.py", FrameRole::Machinery(DYNAMO)),
            ("/_ops.py", FrameRole::Machinery(DYNAMO)),
            ("/nn/modules/module.py", FrameRole::Between),
            ("/nn/modules/linear.py", FrameRole::Other),
            ("/optim/adam.py", FrameRole::Other),
            ("/autograd/__init__.py", FrameRole::Machinery(AUTOGRAD)),
            ("/autograd/function.py", FrameRole::Other),
            ("/_tensor.py", FrameRole::Other),
            ("/../ipykernel/kernelbase.py", FrameRole::Machinery(NOTEBOOK)),
            ("/../tornado/ioloop.py", FrameRole::Between),
        ] {
            assert_eq!(role(&format!("{torch}{path}"), "f"), expected, "{path}");
        }
        for (function, expected) in [
            ("Module._wrapped_call_impl", FrameRole::CallsModule),
            ("_call_impl", FrameRole::CallsModule),
            ("Module._call_impl.<locals>.inner", FrameRole::CallsModule),
            ("Module._apply", FrameRole::Between),
        ] {
            assert_eq!(role(&format!("{torch}/nn/modules/module.py"), function), expected, "{function}");
            assert_eq!(role("train.py", function), FrameRole::Other);
        }
        let backward = FrameRole::Machinery(AUTOGRAD);
        assert_eq!(role(&format!("{torch}/_tensor.py"), "Tensor.backward"), backward);
        assert_eq!(role(&format!("{torch}/autograd/graph.py"), "_engine_run_backward"), backward);
        for path in ["<eval_with_key>.3", "/tmp/torchinductor_me/ab/cab.py", "train.py", "/home/me/fx/x.py"] {
            assert_eq!(role(path, "f"), FrameRole::Other, "{path}");
        }
    }

    #[test]
    fn run_begins_and_ends_with_frames_of_one_text() {
        let found = |roles: &str| -> Vec<_> {
            let roles = roles.chars().map(|role| match role {
                'c' => FrameRole::CallsModule,
                'm' => FrameRole::Machinery(DYNAMO),
                'n' => FrameRole::Machinery(NOTEBOOK),
                '-' => FrameRole::Between,
                _ => FrameRole::Other,
            });
            let found = runs(&roles.collect::<Vec<_>>());
            found.into_iter().map(|(run, text)| (run.start, run.end, text)).collect()
        };
        assert_eq!(found("o--m-mm--om-o-mm"), [(3, 7, DYNAMO), (14, 16, DYNAMO)]);
        assert_eq!(found("mm"), [(0, 2, DYNAMO)]);
        assert_eq!(found("nn--nmmn"), [(0, 5, NOTEBOOK), (5, 7, DYNAMO)]);
        assert_eq!(found("occoco"), [(1, 3, MODULE_CALL), (4, 5, MODULE_CALL)]);
        assert_eq!(found("ccmccmcc"), [(0, 2, MODULE_CALL), (2, 6, DYNAMO), (6, 8, MODULE_CALL)]);
        assert_eq!(found("mcco"), [(1, 3, MODULE_CALL)]);
        assert!(found("m--o--m").is_empty());
        assert!(found("").is_empty());
    }
}
