//! The summary's table of PyTorch's modules.

use crate::label::units::{count, duration, percent};
use crate::names::line_safe;
use crate::report::table::Table;
use crate::report::text::page::{NAME_MIN, TextPage};
use crate::report::words::dash;
use crate::report::{ModuleReport, OutsideReport, Report};

/// Rows of classes.
const SHOWN: usize = 8;
/// The least share of the device time that is worth a row.
const SHARE_MIN: f64 = 0.005;

impl Report {
    /// Modules are inside of others, so there is no row with a sum.
    pub(super) fn module_table(&self, page: &mut TextPage) {
        let Some(modules) = &self.modules else { return };
        let timed = self.counts.timed_operations > 0;
        let trains = modules.list.iter().any(|module| module.backward_calls > 0);
        let mut table = match (timed, trains) {
            (true, true) => {
                Table::new(&["Modules (PyTorch)", "calls", "total", "share", "itself", "backward"])
            }
            (true, false) => Table::new(&["Modules (PyTorch)", "calls", "total", "share", "itself"]),
            (false, _) => Table::new(&["Modules (no device times)", "calls"]),
        };
        let mut row = |name: &str, calls: u64, ns: Option<u64>, share: Option<f64>, of_it: [String; 2]| {
            let figures = [count(calls), ns.map_or_else(dash, duration), share.map_or_else(dash, percent)];
            let name = line_safe(name).into_owned();
            let cells = std::iter::once(name).chain(figures).chain(of_it);
            let columns = if timed { 5 + usize::from(trains) } else { 2 };
            table.row(cells.take(columns).collect());
        };
        let is_worth =
            |module: &&ModuleReport| !timed || module.share.is_some_and(|share| share >= SHARE_MIN);
        for module in modules.list.iter().filter(is_worth).take(SHOWN) {
            let of_it = [module.self_ns, module.backward_ns].map(|ns| ns.map_or_else(dash, duration));
            row(&module.class, module.calls, module.total_ns, module.share, of_it);
        }
        for (name, OutsideReport { calls, total_ns, share }) in
            [("(backward pass)", modules.backward), ("(no module)", modules.outside)]
        {
            if calls > 0 {
                row(name, calls, total_ns, share, Default::default());
            }
        }
        table.narrow(page.width, NAME_MIN);
        page.table(table, false);
    }
}
