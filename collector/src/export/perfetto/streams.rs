//! A stream's timeline: what a device executed, in rows where it overlaps.
//!
//! Executions come in the order in which their records were joined with their calls. A few wait, so that they
//! can be put in the order of their times; one that comes later still has a row of its own if it needs one.

use std::collections::VecDeque;
use std::io;

use crate::aggregate::Leaf;
use crate::export::Trace;
use crate::export::perfetto::rows::{RowSlot, TrackRows};
use crate::export::perfetto::sequence::{
    AnnotationKey, AnnotationText, EventCategory, EventFields, EventType, Name, SourceText,
};
use crate::export::perfetto::tracks::Tracks;
use crate::model::operation::{GraphNode, Kernel, Operation, Timing, What};

/// So many executions of a stream wait for earlier ones.
const WAITING_MAX: usize = 32;

/// A timed operation, with times since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    pub process: u32,
    pub what: What,
    pub graph: Option<GraphNode>,
    pub timing: Timing,
    /// The id that it shares with its call, 0 for none.
    pub flow: u64,
}

#[derive(Debug)]
pub struct StreamTrack {
    sequence: Option<usize>,
    device: u64,
    name: String,
    rank: u64,
    rows: TrackRows,
    waiting: VecDeque<Execution>,
    /// Executions without a row, since there were too many at the same time.
    pub crowded: u64,
}

impl StreamTrack {
    pub fn new(device: u64, name: String, rank: u64) -> StreamTrack {
        let (rows, waiting) = (TrackRows::default(), VecDeque::new());
        StreamTrack { sequence: None, device, name, rank, rows, waiting, crowded: 0 }
    }

    #[inline]
    pub fn add(
        &mut self,
        tracks: &mut Tracks,
        execution: Execution,
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let start_ns = execution.timing.start_ns;
        // Most come in order, or nearly.
        let later = self.waiting.iter().rev().take_while(|waiting| waiting.timing.start_ns > start_ns);
        self.waiting.insert(self.waiting.len() - later.count(), execution);
        match self.waiting.len() > WAITING_MAX {
            true => self.write_first(tracks, trace),
            false => Ok(()),
        }
    }

    /// Writes all that wait, and their ends.
    pub fn finish(&mut self, tracks: &mut Tracks, trace: &mut Trace<'_>) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.write_first(tracks, trace)?;
        }
        self.write_ends(tracks, u64::MAX)
    }

    fn write_ends(&mut self, tracks: &mut Tracks, until_ns: u64) -> io::Result<()> {
        while let Some((track, end_ns)) = self.rows.take_end(until_ns) {
            tracks.end(self.sequence.unwrap_or(0), track, end_ns)?;
        }
        Ok(())
    }

    fn write_first(&mut self, tracks: &mut Tracks, trace: &mut Trace<'_>) -> io::Result<()> {
        let Some(execution) = self.waiting.pop_front() else { return Ok(()) };
        let Timing { start_ns, duration_ns } = execution.timing;
        self.write_ends(tracks, start_ns)?;
        loop {
            match self.rows.put(start_ns, duration_ns) {
                RowSlot::New => {
                    let track = tracks.child(self.device, &self.name, self.rank)?;
                    if self.sequence.is_none() {
                        self.sequence = Some(tracks.sequence_of(track));
                    }
                    self.rows.add(track);
                }
                RowSlot::Full => {
                    self.crowded += 1;
                    return Ok(());
                }
                RowSlot::Row { track, begin_ns, ends_ns } => {
                    let sequence = self.sequence.unwrap_or(0);
                    if let Some(end_ns) = ends_ns {
                        tracks.end(sequence, track, end_ns)?;
                    }
                    return tracks.event(sequence, (EventType::Begin, track, begin_ns), |event| {
                        describe(event, &execution, trace);
                    });
                }
            }
        }
    }
}

/// What is known about an execution beside its time.
#[inline]
fn describe(event: &mut EventFields<'_>, execution: &Execution, trace: &mut Trace<'_>) {
    let Execution { process, what, graph, flow, .. } = *execution;
    let (category, leaf) = category_of(&what, graph);
    event.category(category);
    if flow != 0 {
        match graph {
            // Other nodes may follow.
            Some(_) => event.flow(flow),
            None => event.flow_end(flow),
        }
    }
    match what {
        What::Kernel(kernel) if event.known_kernel(process, &kernel) => {}
        What::Kernel(kernel) => {
            let name = event.name(Name::Leaf(process, leaf), || leaf_text(process, leaf, trace));
            let source = event.source((process, kernel.name), |write| {
                let full = trace.labels.kernels.name(process, kernel.name).full;
                let source = trace.labels.kernels.sources(process, kernel.name).only();
                let (file, line) = source.map_or(("", 0), |source| (&*source.path, source.line));
                write(SourceText { function: &full, file, line });
            });
            let shape = Kernel { name: 0, ..kernel };
            let text = AnnotationText::Launch(shape);
            let launch = event.text(AnnotationKey::Launch, text, || launch_text(&shape));
            event.learn_kernel(process, &kernel, [name, source, launch]);
        }
        What::Copy { .. } | What::Fill { .. } | What::Graph => {
            event.name(Name::Leaf(process, leaf), || leaf_text(process, leaf, trace));
        }
    }
    if let What::Copy { bytes, .. } | What::Fill { bytes } = what {
        event.number(AnnotationKey::Bytes, bytes);
    }
    if let Some(node) = graph {
        event.number(AnnotationKey::Graph, node.graph.into());
        match what {
            What::Graph => event.number(AnnotationKey::Nodes, node.nodes.into()),
            _ => event.number(AnnotationKey::Node, node.node),
        }
    }
}

fn leaf_text(process: u32, leaf: Leaf, trace: &mut Trace<'_>) -> String {
    trace.labels.kernels.leaf(process, leaf).as_deref().unwrap_or_default().to_owned()
}

/// The category and the name of an operation.
pub fn category_of(what: &What, graph: Option<GraphNode>) -> (EventCategory, Leaf) {
    match what {
        What::Kernel(kernel) => (EventCategory::Kernel, Leaf::Kernel(kernel.name)),
        What::Copy { direction, source_memory, target_memory, .. } => {
            (EventCategory::Memcpy, Leaf::of_copy(*direction, [*source_memory, *target_memory]))
        }
        What::Fill { .. } => (EventCategory::Memset, Leaf::Fill),
        What::Graph => (EventCategory::Graph, Leaf::Graph(graph.map_or(0, |node| node.graph))),
    }
}

/// `grid 16x1x1, block 256x1x1, 32 registers, 1024+0 B shared`; shared memory is static and dynamic.
fn launch_text(kernel: &Kernel) -> String {
    let shape = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    let mut text = format!("grid {}, block {}", shape(kernel.grid), shape(kernel.block));
    if kernel.cluster != [0; 3] {
        text += &format!(", cluster {}", shape(kernel.cluster));
    }
    if kernel.registers != 0 {
        text += &format!(", {} registers", kernel.registers);
    }
    let shared = (kernel.static_shared_bytes, kernel.dynamic_shared_bytes);
    if shared != (0, 0) {
        text += &format!(", {}+{} B shared", shared.0, shared.1);
    }
    text
}

/// A timed operation on the clock of outputs.
pub fn execution_of(operation: &Operation, timing: Timing, flow: u64, trace: &Trace<'_>) -> Execution {
    let start_ns = trace.unix_ns(operation.process, timing.start_ns);
    Execution {
        process: operation.process,
        what: operation.what,
        graph: operation.graph,
        timing: Timing { start_ns, ..timing },
        flow,
    }
}
