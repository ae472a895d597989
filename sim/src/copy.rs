//! Copies: which memory is meant, how long it takes, and the moving itself.

use crate::activity::{self, Activity};
use crate::device::{self, Route};
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::work::StreamIds;
use crate::world::World;

/// How a program names one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A host pointer, which may be any memory of the program.
    Host(u64),
    /// A device pointer.
    Device(u64),
    /// An address whose kind of memory follows from the address itself.
    Unified(u64),
}

impl Side {
    /// The address, whatever it means.
    pub fn address(self) -> u64 {
        match self {
            Side::Host(at) | Side::Device(at) | Side::Unified(at) => at,
        }
    }
}

/// Rows and slices of bytes to be moved, all addresses checked.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub source: u64,
    pub target: u64,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub source_pitch: u64,
    pub source_slice: u64,
    pub target_pitch: u64,
    pub target_slice: u64,
}

impl Shape {
    /// Bytes in one piece.
    pub fn line(source: u64, target: u64, bytes: u64) -> Shape {
        Shape {
            source,
            target,
            width: bytes,
            height: 1,
            depth: 1,
            source_pitch: bytes,
            source_slice: bytes,
            target_pitch: bytes,
            target_slice: bytes,
        }
    }

    /// How many bytes move.
    pub fn bytes(&self) -> Result<u64> {
        let area = self.width.checked_mul(self.height);
        area.and_then(|area| area.checked_mul(self.depth)).ok_or(Code::INVALID_VALUE)
    }

    /// From the first to one past the last byte touched on one side.
    fn span(&self, pitch: u64, slice: u64) -> Result<u64> {
        if self.bytes()? == 0 {
            return Ok(0);
        }
        let rows = (self.height - 1).checked_mul(pitch);
        let slices = (self.depth - 1).checked_mul(slice);
        let all =
            rows.zip(slices).and_then(|(rows, slices)| rows.checked_add(slices)?.checked_add(self.width));
        all.ok_or(Code::INVALID_VALUE)
    }

    /// Moves the bytes.
    pub fn run(&self) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let source = self.source.wrapping_add(z * self.source_slice + y * self.source_pitch);
                let target = self.target.wrapping_add(z * self.target_slice + y * self.target_pitch);
                // SAFETY: sides that are device memory were checked against the memory map; host sides are
                // the program's word, as with the real driver. `copy` allows overlap.
                unsafe { std::ptr::copy(source as *const u8, target as *mut u8, self.width as usize) };
            }
        }
    }
}

/// What is known of one side once it is looked up.
#[derive(Clone, Copy, Debug)]
struct Found {
    host: bool,
    activity_kind: u8,
    device: u32,
    context: Handle,
}

/// A copy that is ready to be performed, any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub shape: Shape,
    pub bytes: u64,
    pub source_side: Side,
    pub target_side: Side,
    route: Route,
    copy_kind: u8,
    source_kind: u8,
    target_kind: u8,
    asynchronous: bool,
    source_device: u32,
    target_device: u32,
    source_context: Handle,
    target_context: Handle,
}

impl Copy {
    /// Whether it goes from the device to ordinary memory of the program.
    pub fn writes_pageable(&self) -> bool {
        self.source_kind != PAGEABLE && self.target_kind == PAGEABLE
    }
}

const PAGEABLE: u8 = 1;
const ARRAY: u8 = 4;

impl World {
    fn look_up(&self, side: Side, span: u64, device: u32) -> Result<Found> {
        let found = self.memory.find(side.address());
        if span > 0 && found.is_some() {
            self.memory.find_range(side.address(), span)?;
        }
        match (found, side) {
            (Some(held), _) => Ok(Found {
                host: held.kind.is_host(),
                activity_kind: held.kind.activity_kind(),
                device: held.device,
                context: held.context,
            }),
            (None, Side::Device(_)) if span > 0 => Err(Code::INVALID_VALUE),
            (None, _) if span > 0 && side.address() == 0 => Err(Code::INVALID_VALUE),
            (None, _) => Ok(Found { host: true, activity_kind: PAGEABLE, device, context: 0 }),
        }
    }

    /// Checks both sides of a copy.
    pub fn plan_copy(&self, shape: Shape, source: Side, target: Side, asynchronous: bool) -> Result<Copy> {
        let device = self.contexts.get(self.current()?)?.device;
        let shape = Shape { source: source.address(), target: target.address(), ..shape };
        let bytes = shape.bytes()?;
        let from = self.look_up(source, shape.span(shape.source_pitch, shape.source_slice)?, device)?;
        let to = self.look_up(target, shape.span(shape.target_pitch, shape.target_slice)?, device)?;
        let array = (from.activity_kind == ARRAY, to.activity_kind == ARRAY);
        let (route, copy_kind) = match (from.host, to.host) {
            (true, true) => (Route::HostHost, 9),
            (true, false) => (Route::HostDevice, if array.1 { 3 } else { 1 }),
            (false, true) => (Route::HostDevice, if array.0 { 4 } else { 2 }),
            (false, false) if from.device != to.device => (Route::BetweenDevices, 10),
            (false, false) => {
                let kind = match array {
                    (true, true) => 5,
                    (true, false) => 6,
                    (false, true) => 7,
                    (false, false) => 8,
                };
                (Route::WithinDevice, kind)
            }
        };
        Ok(Copy {
            shape,
            bytes,
            source_side: source,
            target_side: target,
            route,
            copy_kind,
            source_kind: from.activity_kind,
            target_kind: to.activity_kind,
            asynchronous,
            source_device: from.device,
            target_device: to.device,
            source_context: from.context,
            target_context: to.context,
        })
    }

    /// Performs a copy that starts at `start_ns`; returns its end. `node` is the graph's and the node's id.
    pub fn perform_copy(
        &mut self,
        copy: &Copy,
        ids: &StreamIds,
        start_ns: u64,
        correlation: u32,
        node: Option<(u32, u64)>,
    ) -> u64 {
        let end_ns = start_ns + device::transfer_duration_ns(copy.route, copy.bytes);
        if copy.bytes > 0 {
            self.after.copy(copy.shape);
        }
        let kind = if copy.copy_kind == 10 { activity::MEMCPY_PEER } else { activity::MEMCPY };
        // The CPU copies between two ranges of ordinary memory, and CUPTI has no record of that.
        let by_cpu = copy.source_kind == PAGEABLE && copy.target_kind == PAGEABLE;
        if activity::wanted(kind) && self.node_records_wanted(node) && !by_cpu {
            let uid = |world: &World, context| world.contexts.get(context).map_or(ids.context_uid, |c| c.uid);
            let record = Activity {
                copy_kind: copy.copy_kind,
                source_kind: copy.source_kind,
                target_kind: copy.target_kind,
                flags: u8::from(copy.asynchronous),
                bytes: copy.bytes,
                source_device: copy.source_device,
                target_device: copy.target_device,
                source_context: uid(self, copy.source_context),
                target_context: uid(self, copy.target_context),
                ..self.record(kind, ids, start_ns, end_ns, correlation, node)
            };
            self.deliver(ids.context, record);
        }
        end_ns
    }

    /// The part that all records have in common.
    pub fn record(
        &self,
        kind: u32,
        ids: &StreamIds,
        start_ns: u64,
        end_ns: u64,
        correlation: u32,
        node: Option<(u32, u64)>,
    ) -> Activity {
        let (graph, graph_node) = node.unwrap_or((0, 0));
        Activity {
            device: ids.device,
            context: ids.context_uid,
            stream: ids.stream_id,
            priority: ids.priority,
            correlation,
            graph,
            graph_node,
            start_ns,
            end_ns,
            ..Activity::new(kind)
        }
    }

    /// Nodes of a graph are not recorded one by one while whole graphs are.
    pub fn node_records_wanted(&self, node: Option<(u32, u64)>) -> bool {
        node.is_none() || !activity::wanted(activity::GRAPH_TRACE)
    }
}
