//! Names of everything that outputs show: processes, threads, streams, devices, kernels, quantities.
//!
//! A name is looked up once and is the same in every output. Where two things share a name, each gets a
//! number; the numbers count only the things that appear in that output.

mod devices;
mod kernels;
mod machinery;
mod modules;
mod processes;
mod stacks;
mod streams;
mod threads;
pub mod throttle;
pub mod units;

pub(crate) use devices::DeviceNames;
pub use devices::uuid;
pub use kernels::{KernelName, KernelNames};
pub(crate) use kernels::{KernelTable, full_name};
pub use modules::{ModuleFrame, is_backward, modules};
pub use processes::ProcessNames;
pub use stacks::{Line, NO_LINE, StackFrame, StackNames};
pub(crate) use streams::{LEGACY_STREAM, PER_THREAD_STREAM, StreamNames, stream_name};
pub(crate) use threads::ThreadNames;

use crate::aggregate::Aggregates;
use crate::model::Totals;

/// All names of one analysis. The report, the flamegraph and the exports take their names from here.
#[derive(Debug)]
pub struct Labels<'a> {
    pub processes: ProcessNames<'a>,
    pub kernels: KernelNames<'a>,
    pub stacks: StackNames<'a>,
}

impl<'a> Labels<'a> {
    pub fn new(totals: &'a Totals, aggregates: &'a Aggregates) -> Labels<'a> {
        Labels {
            processes: ProcessNames::new(totals),
            kernels: KernelNames::new(totals, aggregates),
            stacks: StackNames::new(totals),
        }
    }
}
