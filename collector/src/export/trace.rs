//! What a format looks up about a trace: names, devices, and times on the clock that outputs show.

use std::cell::Cell;
use std::sync::Arc;

use gputrace_wire::caller::Caller;
use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, StackKey};
use crate::batch::{DeviceIdentity, DeviceSamples, ProcessBegin, SessionBegin};
use crate::export::Choices;
use crate::export::missing::{missing, missing_or_damaged};
use crate::label::{DeviceNames, Labels, StreamNames, ThreadNames};
use crate::model::block::BlockEvent;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::{Process, Session, Totals};

/// An event of the second pass, with the definitions so far of its process. Those of [`Trace::process`] are
/// complete from the first event on.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    ProcessBegins {
        number: u32,
        process: &'e ProcessBegin,
        session: &'e SessionBegin,
    },
    /// Definitions were added.
    Defines {
        number: u32,
        definitions: &'e Definitions,
    },
    /// A hooked call, with its times on the host.
    Call(&'e HostCall, &'e Definitions),
    /// Something that a device executed.
    Operation(&'e Operation, &'e Definitions),
    /// What a caching allocator reports of its blocks.
    Block(&'e BlockEvent),
    /// Calls and ranges of this process use `number` for this active span from now on.
    Caller {
        process: u32,
        number: u32,
        caller: &'e Caller,
        definitions: &'e Definitions,
    },
    /// A pushed range, before the calls made in it.
    RangeBegins(&'e RangeInstance, &'e Definitions),
    /// A range that ended, or that was open at the end of its thread.
    Range(&'e RangeInstance, &'e Definitions),
    ProcessEnds {
        number: u32,
        last_seen_ns: u64,
        definitions: &'e Definitions,
    },
    /// What a device did, for all processes: [`Trace::sampled_device_name`], [`Trace::sample_unix_ns`].
    Samples(&'e DeviceSamples),
}

/// The names and facts of a trace, from the first pass.
pub struct Trace<'a> {
    pub totals: &'a Totals,
    pub aggregates: &'a Aggregates,
    pub labels: Labels<'a>,
    pub choices: Choices,
    /// Whether nothing is left out: what memory is live follows from the whole trace only.
    pub is_whole: bool,
    /// What the user is to know of, beside errors.
    pub warnings: Vec<String>,
    /// What the recording lacks, for formats that have a place for a text.
    pub missing: Vec<String>,
    threads: FxHashMap<(u32, u32), Arc<str>>,
    processes: FxHashMap<u32, Arc<str>>,
    streams: StreamNames,
    devices: DeviceNames,
    /// When the part of the sessions begins that was read, as nanoseconds since the Unix epoch: `--from` and
    /// `--to` count from there.
    pub begin_unix_ns: u64,
    /// By process: what is added to CLOCK_MONOTONIC to get the time since the Unix epoch.
    to_unix_ns: FxHashMap<u32, i128>,
    /// The process that was looked up last, and what is added to its times.
    last_to_unix_ns: Cell<(u32, i128)>,
    /// The same for samples of devices, which are of no process: of the session that is being read.
    samples_to_unix_ns: i128,
}

impl<'a> Trace<'a> {
    pub fn new(totals: &'a Totals, aggregates: &'a Aggregates) -> Trace<'a> {
        let labels = Labels::new(totals, aggregates);
        let defined = totals
            .processes
            .iter()
            .flat_map(|process| process.definitions.threads().map(|(id, _)| (process.number, id)));
        let defined: Vec<(u32, u32)> = defined.collect();
        let named = ThreadNames::new(&labels.processes, defined.iter().copied());
        let threads = defined.iter().map(|key| (*key, named.thread(key.0, key.1).into())).collect();
        let processes =
            totals.processes.iter().map(|known| (known.number, named.process(known.number).into())).collect();
        let shown = aggregates.streams.iter().map(|(key, _)| key).collect();
        let streams = StreamNames::new(&labels.processes, aggregates, &shown);
        let ordinals = totals
            .processes
            .iter()
            .flat_map(|process| process.definitions.devices().map(|device| (process.number, device.ordinal)));
        let devices = DeviceNames::new(&labels.processes, &ordinals.collect());
        Trace {
            totals,
            aggregates,
            labels,
            choices: Choices::default(),
            is_whole: true,
            warnings: missing(totals),
            missing: missing_or_damaged(totals),
            threads,
            processes,
            streams,
            devices,
            begin_unix_ns: totals.sessions.iter().map(Session::start_realtime_ns).min().unwrap_or(0),
            to_unix_ns: FxHashMap::default(),
            last_to_unix_ns: Cell::default(),
            samples_to_unix_ns: 0,
        }
    }

    pub(super) fn process_begins(&mut self, number: u32, session: &SessionBegin) {
        let offset = i128::from(session.realtime_ns) - i128::from(session.monotonic_ns);
        self.to_unix_ns.insert(number, offset);
        self.last_to_unix_ns.set((number, offset));
        self.samples_to_unix_ns = offset;
    }

    /// The time of a sample of a device, as nanoseconds since the Unix epoch.
    pub fn sample_unix_ns(&self, monotonic_ns: u64) -> u64 {
        let since_epoch_ns = i128::from(monotonic_ns) + self.samples_to_unix_ns;
        u64::try_from(since_epoch_ns.max(0)).unwrap_or(u64::MAX)
    }

    /// The processes that use a physical device, each with its own ordinal of it.
    pub fn users_of(&self, device: &DeviceIdentity) -> impl Iterator<Item = (u32, u32)> {
        self.totals.processes.iter().flat_map(|process| {
            let same = process.definitions.devices().filter(|known| known.identity() == *device);
            same.map(|known| (process.number, known.ordinal))
        })
    }

    /// The name of a physical device, with its PCI bus id.
    pub fn sampled_device_name(&self, device: &DeviceIdentity) -> String {
        let users = self.totals.processes.iter().flat_map(|process| process.definitions.devices());
        let name = users.into_iter().find(|known| known.identity() == *device).map(|known| known.name);
        format!("{} {}", name.as_deref().unwrap_or("GPU"), device.pci_bus_id())
    }

    /// A time on CLOCK_MONOTONIC as nanoseconds since the Unix epoch, by its session's clocks: the processes
    /// of one session have one clock.
    #[inline]
    pub fn unix_ns(&self, process: u32, monotonic_ns: u64) -> u64 {
        u64::try_from(self.since_epoch_ns(process, monotonic_ns).max(0)).unwrap_or(u64::MAX)
    }

    /// The same, before the epoch too: negative where a machine's clock was wrong.
    pub fn signed_unix_ns(&self, process: u32, monotonic_ns: u64) -> i64 {
        self.since_epoch_ns(process, monotonic_ns).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    #[inline]
    fn since_epoch_ns(&self, process: u32, monotonic_ns: u64) -> i128 {
        let (last, mut offset) = self.last_to_unix_ns.get();
        if last != process {
            offset = self.to_unix_ns.get(&process).copied().unwrap_or(0);
            self.last_to_unix_ns.set((process, offset));
        }
        i128::from(monotonic_ns) + offset
    }

    /// A process that is kept. Past 65 536 exited processes, the first to exit are not.
    pub fn process(&self, number: u32) -> Option<&'a Process> {
        self.labels.processes.process(number)
    }

    /// A process's title or command, with its rank or id where several share it.
    pub fn process_name(&self, number: u32) -> Arc<str> {
        self.processes.get(&number).cloned().unwrap_or_else(|| self.labels.processes.command(number).into())
    }

    /// A thread's name, `main`, or `thread N`.
    pub fn thread_name(&self, process: u32, thread: u32) -> Arc<str> {
        self.threads.get(&(process, thread)).cloned().unwrap_or_else(|| "(no thread known)".into())
    }

    /// The name of a stream definition.
    pub fn stream_name(&self, process: u32, stream: u32) -> &str {
        self.streams.stream(process, stream)
    }

    /// The name of a device, by the ordinal that the process knows.
    pub fn device_name(&self, process: u32, ordinal: u32) -> &str {
        self.devices.device(process, ordinal)
    }

    /// The name of a row of the flamegraph, which an operation has by [`StackKey::of_operation`]: a kernel's
    /// short name, `memcpy gpu_to_cpu` and the like.
    pub fn leaf_name(&mut self, key: &StackKey) -> Arc<str> {
        self.labels.kernels.leaf(key.process, key.leaf).unwrap_or_else(|| "(call)".into())
    }
}
