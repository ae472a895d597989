//! `folded`: the flamegraph as folded lines. It is summed again in the second pass, so that a filter applies.

use std::io::{self, Write};

use crate::aggregate::Aggregates;
use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::flame::Flame;
use crate::model::sink::Sink;

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "folded",
    about: "folded lines, a stack and its time in µs each, for flamegraph programs",
    target: Target::Stream,
    open: |destination| Ok(Box::new(Folded { output: destination.stream()?, sums: Aggregates::default() })),
};

struct Folded {
    output: Box<dyn Write>,
    sums: Aggregates,
}

impl Format for Folded {
    fn event(&mut self, event: Event<'_>, _: &mut Trace<'_>) -> io::Result<()> {
        match event {
            Event::Call(call, definitions) => self.sums.host_call(call, definitions),
            Event::Operation(operation, definitions) => self.sums.operation(operation, definitions),
            Event::ProcessEnds { number, last_seen_ns, definitions } => {
                self.sums.process_ends(number, last_seen_ns, definitions);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        let Trace { totals, labels, choices, .. } = trace;
        let flame = Flame::with(totals, &self.sums, labels, choices.ranges, &choices.group_by);
        self.output.write_all(flame.folded().as_bytes())?;
        self.output.flush()?;
        Ok(flame.weighted().count() as u64)
    }
}
