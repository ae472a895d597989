//! Stream capture: calls become nodes of a graph, and nothing is executed.

use crate::context::thread_key;
use crate::error::{Code, Result};
use crate::graph::NodeWork;
use crate::handle::Handle;
use crate::stream::Role;
use crate::work::Work;
use crate::world::World;
use std::cell::Cell;

/// How much a capture forbids elsewhere, as `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    /// From the driver's number.
    pub fn from_number(number: u32) -> Result<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed]
            .get(number as usize)
            .copied()
            .ok_or(Code::INVALID_VALUE)
    }
}

/// One capture, which any number of streams may have joined.
pub struct Capture {
    pub graph: Handle,
    origin: Handle,
    mode: Mode,
    thread: u64,
    invalid: bool,
    /// The graph was the program's before and stays so if the capture fails.
    into_existing: bool,
}

/// A stream's part in a capture.
pub struct StreamCapture {
    pub id: u64,
    /// What the stream's next node depends on.
    pub leaves: Vec<Handle>,
}

/// Where in a capture an event was recorded.
#[derive(Clone, Debug)]
pub struct CapturedPoint {
    capture: u64,
    leaves: Vec<Handle>,
}

/// The result of `cuStreamGetCaptureInfo`.
pub struct CaptureInfo {
    /// 0 none, 1 active, 2 invalidated.
    pub status: u32,
    pub id: u64,
    pub graph: Handle,
    pub leaves: Vec<Handle>,
}

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// `cuThreadExchangeStreamCaptureMode`.
pub fn exchange_thread_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

impl World {
    /// Whether work for the stream has to be captured; an error if it must not be given at all now.
    pub fn capture_applies(&mut self, stream: Handle) -> Result<bool> {
        let held = self.streams.get(stream)?;
        if let Some(part) = &held.capture {
            let invalid = self.capture_states.get(&part.id).is_none_or(|capture| capture.invalid);
            return if invalid { Err(Code::STREAM_CAPTURE_INVALIDATED) } else { Ok(true) };
        }
        if held.role == Role::Legacy {
            // Such work would have to wait for a capturing stream.
            let context = held.context;
            let peers = self.streams.iter().map(|(_, peer)| peer);
            let ids: Vec<u64> = peers
                .filter(|peer| peer.context == context && peer.role == Role::Blocking)
                .filter_map(|peer| peer.capture.as_ref().map(|part| part.id))
                .collect();
            if !ids.is_empty() {
                ids.iter().for_each(|id| self.invalidate(*id));
                return Err(Code::STREAM_CAPTURE_IMPLICIT);
            }
        }
        Ok(false)
    }

    fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.capture_states.get_mut(&id) {
            capture.invalid = true;
        }
    }

    /// Spoils the stream's capture and reports `code`.
    pub fn fail_capture<R>(&mut self, stream: Handle, code: Code) -> Result<R> {
        if let Some(part) = &self.streams.get(stream)?.capture {
            let id = part.id;
            self.invalidate(id);
        }
        Err(code)
    }

    /// Waiting for or asking about a capturing stream is an error that spoils the capture.
    pub fn refuse_if_capturing(&mut self, stream: Handle) -> Result {
        if self.captures > 0 && self.capture_applies(stream)? {
            return self.fail_capture(stream, Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// As above for a whole context.
    pub fn refuse_if_context_captures(&mut self, context: Handle) -> Result {
        if self.captures == 0 {
            return Ok(());
        }
        let found = self.streams.iter().find(|(_, held)| held.context == context && held.capture.is_some());
        match found.map(|(stream, _)| stream) {
            Some(stream) => self.fail_capture(stream, Code::STREAM_CAPTURE_UNSUPPORTED),
            None => Ok(()),
        }
    }

    /// Refuses calls that are unsafe during a capture, such as `cuMemAlloc`, by capture and thread mode.
    pub fn refuse_while_capturing(&mut self) -> Result {
        if self.captures == 0 || THREAD_MODE.get() == Mode::Relaxed {
            return Ok(());
        }
        let thread = thread_key();
        let global = THREAD_MODE.get() == Mode::Global;
        let found = self.capture_states.values_mut().find(|capture| match capture.mode {
            Mode::Global => global || capture.thread == thread,
            Mode::ThreadLocal => capture.thread == thread,
            Mode::Relaxed => false,
        });
        match found {
            Some(capture) => {
                capture.invalid = true;
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// `cuStreamBeginCapture`, into a new graph or behind nodes of one that is there.
    pub fn begin_capture(
        &mut self,
        stream: Handle,
        mode: Mode,
        existing: Option<(Handle, Vec<Handle>)>,
    ) -> Result {
        let held = self.streams.get(stream)?;
        if held.role == Role::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if held.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let into_existing = existing.is_some();
        let (graph, leaves) = match existing {
            Some((graph, leaves)) => {
                for leaf in &leaves {
                    if self.nodes.get(*leaf)?.graph != graph {
                        return Err(Code::INVALID_VALUE);
                    }
                }
                self.graphs.get(graph)?;
                (graph, leaves)
            }
            None => (self.create_graph()?, Vec::new()),
        };
        let id = self.new_capture_id();
        let capture =
            Capture { graph, origin: stream, mode, thread: thread_key(), invalid: false, into_existing };
        self.capture_states.insert(id, capture);
        self.streams.get_mut(stream)?.capture = Some(Box::new(StreamCapture { id, leaves }));
        self.captures += 1;
        Ok(())
    }

    /// `cuStreamEndCapture`.
    pub fn end_capture(&mut self, stream: Handle) -> Result<Handle> {
        let id = self.streams.get(stream)?.capture.as_ref().ok_or(Code::ILLEGAL_STATE)?.id;
        let capture = self.capture_states.get(&id).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if capture.origin != stream {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread_key() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let unjoined = !capture.invalid && self.has_unjoined(id, stream)?;
        for (_, held) in self.streams.iter_mut() {
            if held.capture.as_ref().is_some_and(|part| part.id == id) {
                held.capture = None;
                self.captures -= 1;
            }
        }
        let capture = self.capture_states.remove(&id).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if !capture.invalid && !unjoined {
            return Ok(capture.graph);
        }
        if !capture.into_existing {
            self.destroy_graph(capture.graph)?;
        }
        Err(if capture.invalid { Code::STREAM_CAPTURE_INVALIDATED } else { Code::STREAM_CAPTURE_UNJOINED })
    }

    fn has_unjoined(&self, id: u64, origin: Handle) -> Result<bool> {
        let empty = Vec::new();
        let leaves = self.streams.get(origin)?.capture.as_ref().map_or(&empty, |part| &part.leaves);
        for (_, held) in self.streams.iter() {
            let Some(part) = held.capture.as_ref().filter(|part| part.id == id) else { continue };
            for &leaf in &part.leaves {
                if !self.reaches(leaves, leaf)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What the stream's capture is like.
    pub fn capture_info(&mut self, stream: Handle) -> Result<CaptureInfo> {
        match self.capture_applies(stream) {
            Err(Code::STREAM_CAPTURE_INVALIDATED) => {
                return Ok(CaptureInfo { status: 2, id: 0, graph: 0, leaves: Vec::new() });
            }
            other => other?,
        };
        let Some(part) = &self.streams.get(stream)?.capture else {
            return Ok(CaptureInfo { status: 0, id: 0, graph: 0, leaves: Vec::new() });
        };
        let graph = self.capture_states.get(&part.id).map_or(0, |capture| capture.graph);
        Ok(CaptureInfo { status: 1, id: part.id, graph, leaves: part.leaves.clone() })
    }

    /// `cuStreamUpdateCaptureDependencies`.
    pub fn update_capture(&mut self, stream: Handle, leaves: &[Handle], replace: bool) -> Result {
        if !self.capture_applies(stream)? {
            return Err(Code::ILLEGAL_STATE);
        }
        let graph = self.capture_info(stream)?.graph;
        for &leaf in leaves {
            if self.nodes.get(leaf)?.graph != graph {
                return Err(Code::INVALID_VALUE);
            }
        }
        let part = self.streams.get_mut(stream)?.capture.as_mut().ok_or(Code::ILLEGAL_STATE)?;
        if replace {
            part.leaves.clear();
        }
        for &leaf in leaves {
            if !part.leaves.contains(&leaf) {
                part.leaves.push(leaf);
            }
        }
        Ok(())
    }

    /// Where the stream's capture has got to.
    pub fn capture_point(&self, stream: Handle) -> Result<CapturedPoint> {
        let part = self.streams.get(stream)?.capture.as_ref().ok_or(Code::ILLEGAL_STATE)?;
        Ok(CapturedPoint { capture: part.id, leaves: part.leaves.clone() })
    }

    /// The stream waits for a point of a capture, and so joins it.
    pub fn join_capture(&mut self, stream: Handle, point: CapturedPoint) -> Result {
        if !self.capture_states.contains_key(&point.capture) {
            return Ok(());
        }
        let held = self.streams.get_mut(stream)?;
        if held.role == Role::Legacy {
            self.invalidate(point.capture);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        match &mut held.capture {
            Some(part) if part.id != point.capture => {
                let other = part.id;
                self.invalidate(other);
                self.invalidate(point.capture);
                return Err(Code::STREAM_CAPTURE_MERGE);
            }
            Some(part) => {
                for leaf in point.leaves {
                    if !part.leaves.contains(&leaf) {
                        part.leaves.push(leaf);
                    }
                }
            }
            none => {
                *none = Some(Box::new(StreamCapture { id: point.capture, leaves: point.leaves }));
                self.captures += 1;
            }
        }
        Ok(())
    }

    /// Adds a node behind what the stream captured so far.
    pub fn capture_node(&mut self, stream: Handle, work: NodeWork) -> Result<Handle> {
        let info = self.capture_info(stream)?;
        let node = match work {
            NodeWork::Child(child) => self.add_child(info.graph, &info.leaves, child)?,
            work => self.add_node(info.graph, &info.leaves, work)?,
        };
        self.update_capture(stream, &[node], true)?;
        Ok(node)
    }

    /// Turns an operation into a node.
    pub fn capture_work(&mut self, stream: Handle, work: Work) -> Result {
        let node = match work {
            Work::Kernel(kernel) => NodeWork::Kernel(kernel),
            Work::Copy(copy) => NodeWork::Copy(copy),
            Work::Fill(fill) => NodeWork::Fill(fill),
            Work::Host(call) => NodeWork::Host(call),
            Work::WriteValue(write) => NodeWork::WriteValue(write),
            Work::WaitValue(wait) => NodeWork::WaitValue(wait),
            Work::Free(address) => NodeWork::Free { address },
            Work::Graph(plan) => NodeWork::Child(plan.source),
            Work::Mark => return Ok(()),
            Work::WaitFor(_) | Work::Callback(_) => {
                return self.fail_capture(stream, Code::STREAM_CAPTURE_UNSUPPORTED);
            }
        };
        self.capture_node(stream, node).map(|_| ())
    }
}
