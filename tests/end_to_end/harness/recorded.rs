//! What a trace says of stacks, read as it lies in the file.

use std::collections::BTreeMap;
use std::path::Path;

use gputrace_collector::batch::{Batch, Definition};
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::kind;

use crate::harness::tool::Traced;

/// What a trace says of its stacks.
#[derive(Debug, Default)]
pub struct Recorded {
    pub definitions: BTreeMap<u32, Definition>,
    /// (blocks of the grid, stack), in the order of the trace.
    pub launches: Vec<(u32, u32)>,
    counters: Vec<(&'static str, u64)>,
}

impl Recorded {
    pub fn of(traced: &Traced) -> Recorded {
        Recorded::of_file(&traced.trace())
    }

    pub fn of_file(trace: &Path) -> Recorded {
        let mut recorded = Recorded::default();
        for batch in TraceReader::open(trace).unwrap() {
            match batch {
                Batch::Definitions { records, .. } => {
                    recorded.definitions.extend(records.into_iter().map(|record| (record.id, record)));
                }
                Batch::Cells { cells, .. } => {
                    for call in cells.iter().filter_map(Call::from_cell) {
                        if let Detail::Launch(launch) = call.detail {
                            recorded.launches.push((launch.grid[0], call.stack));
                        }
                    }
                }
                Batch::Counters(counters) => {
                    recorded.counters =
                        Counter::ALL.iter().map(|c| (c.name(), counters.values[*c as usize])).collect();
                }
                _ => {}
            }
        }
        recorded
    }

    pub fn counter(&self, name: &str) -> u64 {
        if self.counters.is_empty() {
            return 0;
        }
        let counter = self.counters.iter().find(|(of, _)| *of == name);
        counter.unwrap_or_else(|| panic!("there is no counter {name}")).1
    }

    pub fn notices(&self) -> Vec<String> {
        let notices = self.definitions.values().filter(|record| record.kind == kind::NOTICE);
        notices.map(|record| String::from_utf8_lossy(&record.text).into_owned()).collect()
    }
}
