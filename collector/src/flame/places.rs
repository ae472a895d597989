//! What streams and devices are called, told apart where they share a name.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, MANY_STREAMS, NO_DEVICE, StackKey};
use crate::flame::frames::{Frame, FrameKind};
use crate::label::stream_name;
use crate::model::Totals;
use crate::model::definitions::{Definitions, Device};

/// Labels of the streams and devices that have a part in a flamegraph.
#[derive(Debug)]
pub(super) struct Places<'a> {
    processes: FxHashMap<u32, &'a Definitions>,
    /// By process and definition.
    streams: FxHashMap<(u32, u32), Frame>,
    /// By process and ordinal.
    devices: FxHashMap<(u32, u32), Frame>,
}

impl<'a> Places<'a> {
    /// For the keys that will be asked for.
    pub fn new<'k>(
        totals: &'a Totals,
        aggregates: &Aggregates,
        keys: impl Iterator<Item = &'k StackKey>,
    ) -> Places<'a> {
        let processes = totals.named().map(|process| (process.number, &process.definitions));
        let mut places = Places {
            processes: processes.collect(),
            streams: FxHashMap::default(),
            devices: FxHashMap::default(),
        };
        let mut streams = BTreeSet::new();
        let mut devices = BTreeSet::new();
        for key in keys {
            streams.insert((key.process, key.stream));
            devices.insert((key.process, key.device));
        }
        places.name_streams(aggregates, &streams);
        places.name_devices(&devices);
        places
    }

    /// Streams of one process that share a name get numbers in order of definition.
    fn name_streams(&mut self, aggregates: &Aggregates, streams: &BTreeSet<(u32, u32)>) {
        let mut uses: FxHashMap<(u32, String), Vec<u32>> = FxHashMap::default();
        let mut unnamed: FxHashMap<u32, u32> = FxHashMap::default();
        for (process, stream) in streams.iter().copied() {
            let definitions = self.processes.get(&process);
            let name = definitions.and_then(|known| {
                known.stream(stream)?;
                stream_name(known, stream, aggregates.streams.number(process, stream))
            });
            let name = match name {
                _ if stream == 0 => "(no stream known)".to_owned(),
                _ if stream == MANY_STREAMS => "(more streams than are told apart)".to_owned(),
                Some(name) => name,
                None => {
                    let count = unnamed.entry(process).or_default();
                    *count += 1;
                    format!("stream #{count}")
                }
            };
            uses.entry((process, name)).or_default().push(stream);
        }
        for ((process, name), streams) in uses {
            for (at, stream) in streams.iter().enumerate() {
                let text = if streams.len() > 1 { format!("{name} [{}]", at + 1) } else { name.clone() };
                self.streams.insert((process, *stream), Frame::new(FrameKind::Stream, &text));
            }
        }
    }

    /// Processes number their devices as they see them, so two of one number and name get their
    /// addresses on the bus.
    fn name_devices(&mut self, devices: &BTreeSet<(u32, u32)>) {
        let mut uses: FxHashMap<String, BTreeSet<[u64; 2]>> = FxHashMap::default();
        let described: Vec<_> = devices
            .iter()
            .map(|(process, ordinal)| {
                let known = self.processes.get(process).and_then(|known| known.device_by_ordinal(*ordinal));
                let label = self.processes.get(process).map_or("", |known| known.device_label(*ordinal));
                let text = match &known {
                    _ if *ordinal == NO_DEVICE => "(no device known)".to_owned(),
                    Some(device) if !device.name.is_empty() => format!("GPU {ordinal} {}", device.name),
                    _ => format!("GPU {ordinal}"),
                };
                let text = if label.is_empty() { text } else { format!("{text} ({label})") };
                let uuid = known.as_ref().map_or([0; 2], |device| device.uuid);
                uses.entry(text.clone()).or_default().insert(uuid);
                ((*process, *ordinal), text, known)
            })
            .collect();
        for (place, text, known) in described {
            let shared = uses.get(&text).is_some_and(|uuids| uuids.len() > 1);
            let text = match known.filter(|_| shared) {
                Some(device) => format!("{text} [{}]", address(&device)),
                None => text,
            };
            self.devices.insert(place, Frame::new(FrameKind::Device, &text));
        }
    }

    pub fn stream(&self, process: u32, stream: u32) -> Frame {
        let unknown = || Frame::new(FrameKind::Stream, "(no stream known)");
        self.streams.get(&(process, stream)).cloned().unwrap_or_else(unknown)
    }

    pub fn device(&self, process: u32, ordinal: u32) -> Frame {
        let unknown = || Frame::new(FrameKind::Device, "(no device known)");
        self.devices.get(&(process, ordinal)).cloned().unwrap_or_else(unknown)
    }
}

/// `0000:1b:00`, as `nvidia-smi` begins it.
fn address(device: &Device) -> String {
    format!("{:04x}:{:02x}:{:02x}", device.pci_domain, device.pci_bus, device.pci_device)
}
