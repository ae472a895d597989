//! The summary's tables of PyTorch's modules and operators.

use crate::label::units::{count, duration, percent};
use crate::names::line_safe;
use crate::report::table::Table;
use crate::report::text::page::{NAME_MIN, TextPage};
use crate::report::words::dash;
use crate::report::{InsideReport, OutsideReport, Report};

/// Rows of classes, and of operators.
const SHOWN: usize = 8;
/// The least share of the device time that is worth a row.
const SHARE_MIN: f64 = 0.005;

impl Report {
    pub(super) fn module_table(&self, page: &mut TextPage) {
        let Some(modules) = &self.modules else { return };
        let rows: Vec<_> =
            modules.list.iter().map(|module| (module.class.as_str(), &module.launched)).collect();
        let outside = [("(backward pass)", modules.backward), ("(no module)", modules.outside)];
        self.inside_table(page, "Modules", &rows, outside);
    }

    pub(super) fn operator_table(&self, page: &mut TextPage) {
        let Some(operators) = &self.operators else { return };
        let rows: Vec<_> =
            operators.list.iter().map(|operator| (operator.name.as_str(), &operator.launched)).collect();
        let outside = [("(backward pass)", operators.backward), ("(no operator)", operators.outside)];
        self.inside_table(page, "Operators", &rows, outside);
    }

    /// Some of these are inside of others, so there is no row with a sum.
    fn inside_table(
        &self,
        page: &mut TextPage,
        what: &str,
        rows: &[(&str, &InsideReport)],
        outside: [(&str, OutsideReport); 2],
    ) {
        let timed = self.counts.timed_operations > 0;
        let trains = rows.iter().any(|(_, launched)| launched.backward_calls > 0);
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
        let is_worth = |(_, launched): &&(&str, &InsideReport)| {
            !timed || launched.share.is_some_and(|share| share >= SHARE_MIN)
        };
        for (name, launched) in rows.iter().filter(is_worth).take(SHOWN) {
            let of_it = [launched.self_ns, launched.backward_ns].map(|ns| ns.map_or_else(dash, duration));
            row(name, launched.calls, launched.time_ns(), launched.share, of_it);
        }
        for (name, of) in outside {
            if of.calls > 0 {
                row(name, of.calls, of.time_ns(), of.share, Default::default());
            }
        }
        table.narrow(page.width, NAME_MIN);
        page.table(table, false);
    }
}
