//! Calls that take the program's time: memory that is allocated and freed all the time, code that is loaded
//! all the time.

use super::input::{ByLine, RuleInput, most, sum, weight};
use super::{Confidence, Finding};
use crate::aggregate::CallClass;
use crate::label::units::{count, duration};

/// The least part of the time that is a fault of this kind.
const SHARE_MIN: f64 = 0.05;
/// A program that frees so often does not keep its memory.
const FREES_MIN: u64 = 100;
const LOADS_MIN: u64 = 5;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    to.extend(churn(input));
    to.extend(loads(input));
}

fn churn(input: &RuleInput<'_>) -> Option<Finding> {
    let (allocs, frees) = (input.class(CallClass::Alloc)?, input.class(CallClass::Free)?);
    let calls = allocs.calls.min(frees.calls);
    let ns = sum([allocs, frees].into_iter().filter_map(|class| class.spread.total_ns));
    if calls < FREES_MIN || input.share(ns) < SHARE_MIN {
        return None;
    }
    Some(Finding {
        rule: "allocator_churn",
        title: format!("Memory is allocated and freed {} times, which takes {}", count(calls), duration(ns)),
        lines: input.lines_of(CallClass::Alloc),
        advice:
            "Keep the memory and use it again: a caching allocator (PyTorch's without empty_cache() in the \
                 loop, RMM, cudaMallocAsync with a release threshold), or buffers made once"
                .to_owned(),
        saves: input.saves(ns.min(input.span_ns.saturating_sub(input.busy_ns))),
        basis: "the time in these calls, at most the GPU's idle time",
        confidence: Confidence::High,
    })
}

fn loads(input: &RuleInput<'_>) -> Option<Finding> {
    let (late, late_ns) = input.aggregates.calls.late_loads();
    // Compiling goes before loading: the GPU waits for both. What happens once belongs to the start.
    let again = input.idle.iter().filter(|line| line.pieces >= LOADS_MIN && input.has_loads(line));
    let mut lines = ByLine::new();
    for line in again {
        if let Some(at) = line.to.as_ref().or(line.from.as_ref()) {
            lines.entry(at.clone()).or_default().add(weight(line));
        }
    }
    let again_ns = sum(lines.values().map(|weight| weight.ns));
    let ns =
        if input.has_lines() { again_ns } else { late_ns.min(input.span_ns.saturating_sub(input.busy_ns)) };
    if late < LOADS_MIN || input.share(ns) < SHARE_MIN {
        return None;
    }
    Some(Finding {
        rule: "recompilation",
        title: format!(
            "Code is compiled or loaded {} times in the last quarter of all launches; the GPU waits {} for such lines",
            count(late),
            duration(ns)
        ),
        lines: most(&lines),
        advice: "Something is compiled again and again, often for a new shape: mark dimensions as dynamic or pad \
                 them (torch.compile, Triton), keep compiled kernels (NVRTC, CuPy), and warm up before serving"
            .to_owned(),
        saves: input.saves(ns.min(input.span_ns.saturating_sub(input.busy_ns))),
        basis: "idle time at lines that load code again and again",
        confidence: Confidence::Medium,
    })
}
