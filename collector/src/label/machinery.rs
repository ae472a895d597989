//! What compilers put between a program's line and what they made of it, shown as one frame.
//!
//! Between the call of a compiled function and what it launches, PyTorch has twenty frames that are the same in all
//! programs. The code that was generated (`<eval_with_key>`, `torchinductor_…`) is none of that.

/// What stands for frames of PyTorch's compiler that follow one another.
pub const DYNAMO: &str = "[dynamo]";

/// Where its machinery is.
const FOLDERS: [&str; 4] = ["/torch/_dynamo/", "/torch/_functorch/", "/torch/_inductor/", "/torch/fx/"];
const FILES: [&str; 2] = ["/torch/_compile.py", "/torch/_ops.py"];
/// Frames that modules have whether they are compiled or not; part of a run, but not what makes one.
const MODULE: &str = "/torch/nn/modules/module.py";

/// What a frame has to do with the machinery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It is part of it.
    Machinery,
    /// It may stand between parts.
    Between,
    Other,
}

pub fn part(path: &str) -> Part {
    if FOLDERS.iter().any(|folder| path.contains(folder)) || FILES.iter().any(|file| path.ends_with(file)) {
        Part::Machinery
    } else if path.ends_with(MODULE) {
        Part::Between
    } else {
        Part::Other
    }
}

/// Where runs of at least two frames of the machinery are, outermost first; what stands between belongs to the run.
pub fn runs(parts: impl Iterator<Item = Part>) -> Vec<std::ops::Range<usize>> {
    const LEAST: usize = 2;
    let mut runs: Vec<(std::ops::Range<usize>, usize)> = Vec::new();
    let mut is_open = false;
    for (place, part) in parts.enumerate() {
        match (part, runs.last_mut()) {
            (Part::Machinery, Some((run, count))) if is_open => {
                run.end = place + 1;
                *count += 1;
            }
            (Part::Machinery, _) => {
                runs.push((place..place + 1, 1));
                is_open = true;
            }
            (Part::Between, _) => {}
            (Part::Other, _) => is_open = false,
        }
    }
    runs.into_iter().filter(|(_, count)| *count >= LEAST).map(|(run, _)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_compiler_are_told_from_what_it_generates() {
        let torch = "/opt/lib/python3.12/site-packages/torch";
        for (path, expected) in [
            ("/_dynamo/eval_frame.py", Part::Machinery),
            ("/_functorch/_aot_autograd/utils.py", Part::Machinery),
            ("/fx/graph_module.py", Part::Machinery),
            ("/_ops.py", Part::Machinery),
            ("/nn/modules/module.py", Part::Between),
            ("/nn/modules/linear.py", Part::Other),
            ("/optim/adam.py", Part::Other),
        ] {
            assert_eq!(part(&format!("{torch}{path}")), expected, "{path}");
        }
        for path in ["<eval_with_key>.3", "/tmp/torchinductor_me/ab/cab.py", "train.py", "/home/me/fx/x.py"] {
            assert_eq!(part(path), Part::Other, "{path}");
        }
    }

    #[test]
    fn a_run_begins_and_ends_with_the_machinery() {
        let found = |parts: &str| {
            runs(parts.chars().map(|part| match part {
                'm' => Part::Machinery,
                '-' => Part::Between,
                _ => Part::Other,
            }))
        };
        assert_eq!(found("o--m-mm--om-o-mm"), [3..7, 14..16]);
        assert_eq!(found("mm"), std::slice::from_ref(&(0..2)));
        assert!(found("m--o--m").is_empty());
        assert!(found("").is_empty());
    }
}
