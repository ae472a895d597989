//! Names of the devices that one output shows, unique where devices share a name.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::aggregate::NO_DEVICE;
use crate::label::ProcessNames;
use crate::model::definitions::Device;

const UNKNOWN: &str = "(no device known)";

/// Names of devices by process and ordinal.
#[derive(Debug)]
pub struct DeviceNames(FxHashMap<(u32, u32), String>);

impl DeviceNames {
    /// `shown` has the (process, ordinal) pairs that the output shows. Each process numbers the devices that
    /// it sees, so two devices can have the same number and name. The PCI address is then added to both.
    pub fn new(processes: &ProcessNames<'_>, shown: &BTreeSet<(u32, u32)>) -> DeviceNames {
        let mut uses: FxHashMap<String, BTreeSet<[u64; 2]>> = FxHashMap::default();
        let described: Vec<_> = shown
            .iter()
            .map(|(process, ordinal)| {
                let definitions = processes.definitions(*process);
                let known = definitions.and_then(|known| known.device_by_ordinal(*ordinal));
                let label = definitions.map_or("", |known| known.device_label(*ordinal));
                let text = match &known {
                    _ if *ordinal == NO_DEVICE => UNKNOWN.to_owned(),
                    Some(device) if !device.name.is_empty() => format!("GPU {ordinal} {}", device.name),
                    _ => format!("GPU {ordinal}"),
                };
                let text = if label.is_empty() { text } else { format!("{text} ({label})") };
                let uuid = known.as_ref().map_or([0; 2], |device| device.uuid);
                uses.entry(text.clone()).or_default().insert(uuid);
                ((*process, *ordinal), text, known)
            })
            .collect();
        let named = described.into_iter().map(|(key, text, known)| {
            let shared = uses.get(&text).is_some_and(|uuids| uuids.len() > 1);
            match known.filter(|_| shared) {
                Some(device) => (key, format!("{text} [{}]", address(&device))),
                None => (key, text),
            }
        });
        DeviceNames(named.collect())
    }

    pub fn device(&self, process: u32, ordinal: u32) -> &str {
        self.0.get(&(process, ordinal)).map_or(UNKNOWN, String::as_str)
    }
}

/// The PCI address without the function, `0000:1b:00`, written as in `nvidia-smi`.
fn address(device: &Device) -> String {
    format!("{:04x}:{:02x}:{:02x}", device.pci_domain, device.pci_bus, device.pci_device)
}

/// The UUID as OpenTelemetry's CUDA conventions write it: without `GPU-`. Empty if it is unknown.
pub fn uuid([low, high]: [u64; 2]) -> String {
    if low == 0 && high == 0 {
        return String::new();
    }
    let mut text = String::new();
    for (index, byte) in low.to_le_bytes().into_iter().chain(high.to_le_bytes()).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_in_the_order_of_its_bytes() {
        let bytes: Vec<u8> = (1..=16).collect();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(uuid([word(0), word(8)]), "01020304-0506-0708-090a-0b0c0d0e0f10");
        assert_eq!(uuid([0, 0]), "");
    }
}
