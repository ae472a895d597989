//! Metrics of what one device executed for a process.

use crate::histogram::Unit;
use crate::label::uuid;
use crate::metrics::instruments as i;
use crate::metrics::page::{Distribution, Page};
use crate::metrics::total::Total;
use crate::model::definitions::Definitions;
use crate::model::operation::Direction;
use crate::spans::describe::memcpy_kind;
use crate::spans::span::{Attribute, Value};

/// The most devices of a process with points of their own; the others share one with `otel.metric.overflow`.
pub const DEVICES_MAX: usize = 64;

const DIRECTIONS: [Direction; 6] = [
    Direction::CpuToGpu,
    Direction::GpuToCpu,
    Direction::GpuToGpu,
    Direction::PeerToPeer,
    Direction::CpuToCpu,
    Direction::Unknown,
];

#[derive(Debug)]
pub struct DeviceMetrics {
    /// `None` for the devices that share a point.
    pub ordinal: Option<u32>,
    pub kernels: Total<u64>,
    pub durations: Distribution,
    pub queue: Distribution,
    copies: [Option<Box<Copies>>; DIRECTIONS.len()],
    pub filled: Total<u64>,
    pub fills: Distribution,
    pub graphs: Distribution,
    /// Of operations without device times; in seconds.
    pub estimated: Total<f64>,
}

#[derive(Debug)]
pub struct Copies {
    pub sizes: Distribution,
    pub durations: Distribution,
}

impl DeviceMetrics {
    pub fn new(ordinal: Option<u32>) -> DeviceMetrics {
        DeviceMetrics {
            ordinal,
            kernels: Total::default(),
            durations: Distribution::seconds(),
            queue: Distribution::seconds(),
            copies: Default::default(),
            filled: Total::default(),
            fills: Distribution::seconds(),
            graphs: Distribution::seconds(),
            estimated: Total::default(),
        }
    }

    pub fn copies(&mut self, direction: Direction) -> Option<&mut Copies> {
        let at = DIRECTIONS.iter().position(|known| *known == direction)?;
        let copies = self.copies.get_mut(at)?.get_or_insert_with(|| {
            Box::new(Copies { sizes: Distribution::new(Unit::Bytes), durations: Distribution::seconds() })
        });
        Some(copies)
    }

    /// The attributes of the device's points.
    pub fn attributes(&self, definitions: &Definitions) -> Vec<Attribute> {
        let Some(ordinal) = self.ordinal else { return vec![("otel.metric.overflow", Value::Flag(true))] };
        let mut attributes = vec![("cuda.device.index", Value::number(ordinal))];
        if let Some(device) = definitions.device_by_ordinal(ordinal) {
            let uuid = uuid(device.uuid);
            attributes.extend((!uuid.is_empty()).then(|| ("cuda.device.uuid", Value::text(&uuid))));
            let model = &device.name;
            attributes.extend((!model.is_empty()).then(|| ("cuda.device.model", Value::text(model))));
        }
        attributes
    }

    /// `durations_too`: kernel durations are emitted here, not by kernel name.
    pub fn emit(&mut self, durations_too: bool, definitions: &Definitions, page: &mut Page) {
        let attributes = self.attributes(definitions);
        page.count(&i::KERNELS, &attributes, &mut self.kernels);
        if durations_too {
            page.histogram(&i::KERNEL_DURATION, &attributes, &mut self.durations);
        }
        page.histogram(&i::KERNEL_QUEUE, &attributes, &mut self.queue);
        for (direction, copies) in DIRECTIONS.into_iter().zip(&mut self.copies) {
            let Some(copies) = copies else { continue };
            let mut attributes = attributes.clone();
            attributes.push(("cuda.memcpy.kind", Value::text(memcpy_kind(direction))));
            attributes.push(("gpu_transfer.direction", Value::text(direction.name())));
            page.histogram(&i::COPIES, &attributes, &mut copies.sizes);
            page.histogram(&i::COPY_DURATION, &attributes, &mut copies.durations);
        }
        page.count(&i::FILLED, &attributes, &mut self.filled);
        page.histogram(&i::FILL_DURATION, &attributes, &mut self.fills);
        page.histogram(&i::GRAPH_DURATION, &attributes, &mut self.graphs);
        page.time(&i::ESTIMATED, &attributes, &mut self.estimated);
    }
}
