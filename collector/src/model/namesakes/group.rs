//! One group: processes of one name, with what their definitions come to.

use std::hash::{Hash, Hasher};

use gputrace_wire::definition::{self, kind};
use rustc_hash::{FxHashMap, FxHasher};

use crate::batch::Definition;
use crate::model::definitions::{Definitions, Said};
use crate::model::process_totals::Process;
use crate::names::process_name;

/// About what a definition takes beside its fields and text.
const DEFINITION_BYTES: usize = 96;
/// Contents with one hash that are told apart.
const PROBES_MAX: u64 = 16;
const DEVICES_MAX: usize = 64;

/// What the processes of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    /// As in the flamegraph, but for the process's id, which is `#`.
    text: String,
    rank: Option<u32>,
    simulated: bool,
    /// Ordinals and UUIDs: one ordinal may be another device in another process.
    devices: Vec<(u32, [u64; 2])>,
}

impl Name {
    pub fn of(process: &Process) -> Name {
        let definitions = &process.definitions;
        let info = definitions.process().unwrap_or_default();
        let text = without_number(&process_name(&info), [process.begin.pid, info.pid]);
        let mut devices: Vec<_> =
            definitions.devices().take(DEVICES_MAX).map(|device| (device.ordinal, device.uuid)).collect();
        devices.sort_unstable();
        Name {
            devices,
            text: if text.is_empty() { "(unnamed process)".to_owned() } else { text },
            rank: info.rank,
            simulated: info.simulated,
        }
    }

    /// That of all for whose names there is no room.
    pub fn others() -> Name {
        Name { text: "(other programs)".to_owned(), rank: None, simulated: false, devices: Vec::new() }
    }
}

/// The text with `#` for each number in it that is one of these.
fn without_number(text: &str, numbers: [u32; 2]) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, digits) = rest.split_at(at);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (number, after) = digits.split_at(end);
        cleaned += before;
        let is_one = number.parse().is_ok_and(|number: u32| number > 1 && numbers.contains(&number));
        cleaned += if is_one { "#" } else { number };
        rest = after;
    }
    cleaned + rest
}

#[derive(Debug)]
pub(super) struct Group {
    process: Process,
    by_content: FxHashMap<u64, u32>,
    /// Of all the other programs one ordinal may be several devices, so it has no name.
    has_devices: bool,
}

impl Group {
    pub fn new(number: u32, name: &Name) -> Group {
        let process = Process { number, ..Process::default() };
        let mut group =
            Group { process, by_content: FxHashMap::default(), has_devices: *name != Name::others() };
        let mut fields = [0; definition::process::RANK + 1];
        fields[definition::process::SIMULATED] = name.simulated.into();
        fields[definition::process::RANK] = name.rank.map_or(0, |rank| u64::from(rank) + 1);
        // Groups are bounded by number, and these two by length.
        let mut room = usize::MAX;
        group.define(kind::PROCESS, &fields, b"", &mut room);
        let title =
            Definition { kind: kind::SEEN, id: 0, fields: vec![0, 0], text: name.text.clone().into_bytes() };
        group.process.definitions.add(&title);
        group
    }

    pub fn number(&self) -> u32 {
        self.process.number
    }

    /// Takes in a process's ranges and devices; the nodes that those of its ranges are here.
    pub fn adopt(
        &mut self,
        process: &Process,
        room_bytes: &mut usize,
        ranges_room_bytes: &mut usize,
    ) -> Vec<u32> {
        let definitions = &process.definitions;
        let devices_max = if self.has_devices { DEVICES_MAX } else { 0 };
        for device in definitions.device_ids().iter().take(devices_max) {
            self.adopt_device(definitions, *device, room_bytes);
        }
        self.process.ranges.adopt(&process.ranges, ranges_room_bytes)
    }

    fn adopt_device(&mut self, definitions: &Definitions, device: u32, room_bytes: &mut usize) {
        let Some(said) = definitions.said(device) else { return };
        let Some(here) = self.define(said.kind, said.fields, said.text, room_bytes) else { return };
        let label = definitions.label(device);
        if !label.is_empty() {
            self.define(kind::LABEL, &[here.into(), 0], label.as_bytes(), room_bytes);
        }
    }

    /// The definition of that content, made if there is none so far; `None` if there is no room for it.
    pub fn define(&mut self, kind: u16, fields: &[u64], text: &[u8], room_bytes: &mut usize) -> Option<u32> {
        let said = Said { kind, fields, text };
        let mut hasher = FxHasher::default();
        said.hash(&mut hasher);
        let hash = hasher.finish();
        for probe in 0..PROBES_MAX {
            let hash = hash.wrapping_add(probe);
            match self.by_content.get(&hash) {
                Some(known) if self.process.definitions.said(*known) == Some(said) => return Some(*known),
                Some(_) => {}
                None => return self.add(said, hash, room_bytes),
            }
        }
        None
    }

    fn add(&mut self, said: Said<'_>, hash: u64, room_bytes: &mut usize) -> Option<u32> {
        let left = room_bytes.checked_sub(DEFINITION_BYTES + size_of_val(said.fields) + said.text.len())?;
        let definitions = &mut self.process.definitions;
        let before = definitions.len();
        let id = u32::try_from(before).ok()?.checked_add(1)?;
        definitions.add(&Definition {
            kind: said.kind,
            id,
            fields: said.fields.to_vec(),
            text: said.text.to_vec(),
        });
        if definitions.len() == before {
            return None;
        }
        *room_bytes = left;
        self.by_content.insert(hash, id);
        Some(id)
    }

    pub fn into_process(self) -> Process {
        self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_lose_only_the_process_s_own_number() {
        for (text, cleaned) in [
            ("worker 4711 of 8", "worker # of 8"),
            ("4711", "#"),
            ("a14711 b4711c 12:4711", "a14711 b#c 12:#"),
            ("ünï 99", "ünï #"),
            ("rank 1", "rank 1"),
            ("99999999999999999999", "99999999999999999999"),
            ("", ""),
        ] {
            assert_eq!(without_number(text, [4711, 99]), cleaned);
        }
        assert_eq!(without_number("python3 -c 0", [0, 1]), "python3 -c 0");
    }
}
