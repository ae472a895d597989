//! Launches that the process counted instead of recording them.

use gputrace_wire::call::Launch;
use gputrace_wire::counted::Counted;

use crate::model::counted::{CountedLaunches, LAUNCHES_MAX};
use crate::model::loss::Loss;
use crate::model::operation::Kernel;
use crate::model::process::ProcessState;
use crate::model::sink::Sink;

impl ProcessState {
    pub(super) fn counted<S: Sink>(&mut self, counted: &Counted, sink: &mut S) {
        let launches = counted.launches.min(LAUNCHES_MAX.saturating_sub(self.counts.counted));
        if launches < counted.launches {
            self.lose(Loss::DamagedEntries, 1);
        }
        if launches == 0 {
            return;
        }
        let (begin_ns, end_ns) =
            [counted.begin_ticks, counted.end_ticks].map(|ticks| self.clocks.monotonic_ns(ticks)).into();
        self.last_seen_ns = self.last_seen_ns.max(end_ns);
        self.counts.counted_launches(launches);
        let definitions = &self.definitions;
        let stream = definitions.stream(counted.stream);
        let device = stream.and_then(|stream| definitions.ordinal_of_context(stream.context)).unwrap_or(0);
        let launch = Launch { function: counted.function, ..Launch::default() };
        let counted = CountedLaunches {
            process: self.number,
            function: counted.function,
            kernel: Kernel::launched(&launch, definitions),
            stream: counted.stream,
            device,
            begin_ns,
            end_ns,
            launches,
        };
        sink.counted(&counted, definitions);
    }

    /// Counts launches that the process counted and that no entry has, which are those before it was killed.
    /// `is_whole`: whether the stream has all entries of the process.
    pub(in crate::model) fn count_unwritten(&mut self, is_whole: bool) {
        let lacks_entries =
            |(loss, _): &(Loss, u64)| matches!(loss, Loss::NotInTrace | Loss::LostWithCollector);
        if !is_whole || self.began_before || self.losses.iter().any(lacks_entries) {
            return;
        }
        let unwritten = self.counters.counted_launches.min(LAUNCHES_MAX).saturating_sub(self.counts.counted);
        if unwritten > 0 {
            self.counts.counted_launches(unwritten);
            self.lose(Loss::UnknownKernels, unwritten);
        }
    }
}
