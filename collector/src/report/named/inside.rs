//! Rows of PyTorch's modules and operators: each with those inside of it, then what is inside of none.

use super::{Cell, estimated, percent, time, with};
use crate::report::{InsideReport, OutsideReport, Report};

/// The headings; `last` is that of the name.
pub(super) const fn columns(last: &'static str) -> [&'static str; 10] {
    [
        "Time (%)",
        "Total Time (ns)",
        "Operations",
        "Backward Time (ns)",
        "Backward Operations",
        "Self Time (ns)",
        "Self Operations",
        "Host Calls",
        "Host Time (ns)",
        last,
    ]
}

pub(super) fn modules(report: &Report) -> Vec<Vec<Cell>> {
    let Some(modules) = &report.modules else { return Vec::new() };
    let name = |class: &str, file: &str| format!("{class} {file}");
    let rows = modules.list.iter().map(|module| row(name(&module.class, &module.file), &module.launched));
    let none = [("(backward pass)", modules.backward), ("(no module)", modules.outside)];
    rows.chain(outside(none)).collect()
}

pub(super) fn operators(report: &Report) -> Vec<Vec<Cell>> {
    let Some(operators) = &report.operators else { return Vec::new() };
    let rows = operators.list.iter().map(|operator| row(operator.name.clone(), &operator.launched));
    let none = [("(backward pass)", operators.backward), ("(no operator)", operators.outside)];
    rows.chain(outside(none)).collect()
}

fn row(name: String, launched: &InsideReport) -> Vec<Cell> {
    let figures = vec![
        percent(launched.share),
        estimated(launched.estimate, launched.total_ns),
        Cell::Count(launched.calls),
        time(launched.backward_ns),
        Cell::Count(launched.backward_calls),
        time(launched.self_ns),
        Cell::Count(launched.self_calls),
        Cell::Count(launched.host_calls),
        Cell::Count(launched.host_total_ns),
    ];
    with(figures, name)
}

fn outside(rows: [(&str, OutsideReport); 2]) -> impl Iterator<Item = Vec<Cell>> {
    rows.into_iter().filter(|(_, of)| of.calls > 0).map(|(name, of)| {
        let mut figures = vec![percent(of.share), estimated(of.estimate, of.total_ns), Cell::Count(of.calls)];
        figures.resize(9, Cell::Missing);
        with(figures, name)
    })
}
