//! GPU time by PyTorch operator (`aten::mm`), which stacks have with `--torch-ops`.

use std::sync::Arc;

use serde::Serialize;

use crate::aggregate::Aggregates;
use crate::label::{Labels, StackFrame};
use crate::report::OutsideReport;
use crate::report::estimated::ReportEstimates;
use crate::report::inside::{InsideReport, InsideSums, inside};

/// Operators that have a row: the ones with the most device time.
const OPERATORS_MAX: usize = 1024;

/// The operators of a program whose stacks have some.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperatorsReport {
    /// The one with the most device time first, or with the most operations where no device time is known.
    pub list: Vec<OperatorReport>,
    /// Operations of backward passes that no operator launched.
    pub backward: OutsideReport,
    /// All other operations that no operator launched.
    pub outside: OutsideReport,
}

/// All calls of one operator.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperatorReport {
    pub name: String,
    #[serde(flatten)]
    pub launched: InsideReport,
}

/// The operator of a frame: names of operators have a namespace, and no other name of a frame has one.
fn operator(frame: &StackFrame) -> Option<Arc<str>> {
    match frame {
        StackFrame::Named(text) if text.contains("::") => Some(text.clone()),
        _ => None,
    }
}

/// `None` where no stack has an operator.
pub(super) fn operators_report(
    aggregates: &Aggregates,
    labels: &mut Labels<'_>,
    estimates: Option<&ReportEstimates>,
) -> Option<OperatorsReport> {
    let found =
        inside(aggregates, labels, estimates, |_, frames| frames.iter().filter_map(operator).collect());
    if found.by_key.is_empty() {
        return None;
    }
    let (all_ns, [backward, outside]) = (found.all_ns, OutsideReport::both(&found));
    let report = |(name, sums): (Arc<str>, InsideSums)| OperatorReport {
        name: name.to_string(),
        launched: InsideReport::new(&sums, all_ns),
    };
    let mut list: Vec<OperatorReport> = found.by_key.into_iter().map(report).collect();
    list.sort_by(|a, b| b.launched.weight().cmp(&a.launched.weight()).then_with(|| a.name.cmp(&b.name)));
    list.truncate(OPERATORS_MAX);
    Some(OperatorsReport { list, backward, outside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_namespace_are_operators() {
        for (text, is) in [
            ("aten::mm", true),
            ("torchvision::nms", true),
            ("MmBackward0", false),
            ("[autograd]", false),
            ("step #", false),
            ("Optimizer.step#Adam.step", false),
        ] {
            assert_eq!(operator(&StackFrame::Named(text.into())).is_some(), is, "{text}");
        }
        assert_eq!(operator(&StackFrame::Line(0)), None);
    }
}
