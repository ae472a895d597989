//! The summary's tables of PyTorch's modules and operators.

use crate::label::units::{count, duration, percent};
use crate::names::line_safe;
use crate::report::table::Table;
use crate::report::text::page::{NAME_MIN, TextPage};
use crate::report::words::dash;
use crate::report::{OutsideReport, Report};

/// Rows of classes, and of operators.
const SHOWN: usize = 8;
/// The least share of the device time that is worth a row.
const SHARE_MIN: f64 = 0.005;

struct InsideRow<'r> {
    name: &'r str,
    calls: u64,
    total_ns: Option<u64>,
    share: Option<f64>,
    self_ns: Option<u64>,
    backward_ns: Option<u64>,
    backward_calls: u64,
}

impl Report {
    pub(super) fn module_table(&self, page: &mut TextPage) {
        let Some(modules) = &self.modules else { return };
        let rows = modules.list.iter().map(|module| InsideRow {
            name: &module.class,
            calls: module.calls,
            total_ns: module.total_ns,
            share: module.share,
            self_ns: module.self_ns,
            backward_ns: module.backward_ns,
            backward_calls: module.backward_calls,
        });
        let outside = [("(backward pass)", modules.backward), ("(no module)", modules.outside)];
        self.inside_table(page, "Modules", &rows.collect::<Vec<_>>(), outside);
    }

    pub(super) fn operator_table(&self, page: &mut TextPage) {
        let Some(operators) = &self.operators else { return };
        let rows = operators.list.iter().map(|operator| InsideRow {
            name: &operator.name,
            calls: operator.calls,
            total_ns: operator.total_ns,
            share: operator.share,
            self_ns: operator.self_ns,
            backward_ns: operator.backward_ns,
            backward_calls: operator.backward_calls,
        });
        let outside = [("(backward pass)", operators.backward), ("(no operator)", operators.outside)];
        self.inside_table(page, "Operators", &rows.collect::<Vec<_>>(), outside);
    }

    /// Some of these are inside of others, so there is no row with a sum.
    fn inside_table(
        &self,
        page: &mut TextPage,
        what: &str,
        rows: &[InsideRow<'_>],
        outside: [(&str, OutsideReport); 2],
    ) {
        let timed = self.counts.timed_operations > 0;
        let trains = rows.iter().any(|row| row.backward_calls > 0);
        let (of_torch, untimed) = (format!("{what} (PyTorch)"), format!("{what} (no device times)"));
        let mut table = match (timed, trains) {
            (true, true) => Table::new(&[&of_torch, "calls", "total", "share", "itself", "backward"]),
            (true, false) => Table::new(&[&of_torch, "calls", "total", "share", "itself"]),
            (false, _) => Table::new(&[&untimed, "calls"]),
        };
        let mut row = |name: &str, calls: u64, ns: Option<u64>, share: Option<f64>, of_it: [String; 2]| {
            let figures = [count(calls), ns.map_or_else(dash, duration), share.map_or_else(dash, percent)];
            let name = line_safe(name).into_owned();
            let cells = std::iter::once(name).chain(figures).chain(of_it);
            let columns = if timed { 5 + usize::from(trains) } else { 2 };
            table.row(cells.take(columns).collect());
        };
        let is_worth = |row: &&InsideRow<'_>| !timed || row.share.is_some_and(|share| share >= SHARE_MIN);
        for one in rows.iter().filter(is_worth).take(SHOWN) {
            let of_it = [one.self_ns, one.backward_ns].map(|ns| ns.map_or_else(dash, duration));
            row(one.name, one.calls, one.total_ns, one.share, of_it);
        }
        for (name, OutsideReport { calls, total_ns, share }) in outside {
            if calls > 0 {
                row(name, calls, total_ns, share, Default::default());
            }
        }
        table.narrow(page.width, NAME_MIN);
        page.table(table, false);
    }
}
