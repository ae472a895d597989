//! Rows of PyTorch's modules and operators: each with those inside of it, then what is inside of none.

use super::{Cell, percent, time, with};
use crate::report::{OutsideReport, Report};

pub(super) fn modules(report: &Report) -> Vec<Vec<Cell>> {
    let Some(modules) = &report.modules else { return Vec::new() };
    let rows = modules.list.iter().map(|module| {
        let figures = vec![
            percent(module.share),
            time(module.total_ns),
            Cell::Count(module.calls),
            time(module.backward_ns),
            Cell::Count(module.backward_calls),
            time(module.self_ns),
            Cell::Count(module.self_calls),
            Cell::Count(module.host_calls),
            Cell::Count(module.host_total_ns),
        ];
        with(figures, format!("{} {}", module.class, module.file))
    });
    let none = [("(backward pass)", modules.backward), ("(no module)", modules.outside)];
    rows.chain(outside(none)).collect()
}

pub(super) fn operators(report: &Report) -> Vec<Vec<Cell>> {
    let Some(operators) = &report.operators else { return Vec::new() };
    let rows = operators.list.iter().map(|operator| {
        let figures = vec![
            percent(operator.share),
            time(operator.total_ns),
            Cell::Count(operator.calls),
            time(operator.backward_ns),
            Cell::Count(operator.backward_calls),
            time(operator.self_ns),
            Cell::Count(operator.self_calls),
            Cell::Count(operator.host_calls),
            Cell::Count(operator.host_total_ns),
        ];
        with(figures, operator.name.as_str())
    });
    let none = [("(backward pass)", operators.backward), ("(no operator)", operators.outside)];
    rows.chain(outside(none)).collect()
}

fn outside(rows: [(&str, OutsideReport); 2]) -> impl Iterator<Item = Vec<Cell>> {
    rows.into_iter().filter(|(_, of)| of.calls > 0).map(|(name, of)| {
        let mut figures = vec![percent(of.share), time(of.total_ns), Cell::Count(of.calls)];
        figures.resize(9, Cell::Missing);
        with(figures, name)
    })
}
