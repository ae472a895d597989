//! The processes on a device: memory from one list, utilisation from another.

use std::collections::HashMap;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::raw::{Buffers, Running};
use crate::identity::Identities;
use crate::plausible;
use crate::process::{GpuProcess, ProcessKind};

/// Reads them again and again; NVML gives samples of utilisation since the last time.
#[derive(Debug)]
pub struct Processes {
    identities: Identities,
    buffers: Buffers,
    /// The time of the newest sample of utilisation, by the driver's clock.
    newest_us: u64,
}

impl Processes {
    pub fn new(identities: Identities) -> Processes {
        Processes { identities, buffers: Buffers::default(), newest_us: 0 }
    }

    /// The processes, those with most memory first.
    pub fn read(&mut self, device: &Device<'_>) -> Result<Vec<GpuProcess>, NvmlError> {
        let mut found: Vec<GpuProcess> = Vec::new();
        for (running, kind) in
            [(Running::Compute, ProcessKind::Compute), (Running::Graphics, ProcessKind::Graphics)]
        {
            let listed = match self.buffers.processes(device, running) {
                Ok(listed) => listed,
                // Devices without graphics have no such list.
                Err(_) if running == Running::Graphics => continue,
                Err(error) => return Err(error),
            };
            for listed in listed {
                // All bits set: the driver does not know.
                let memory = plausible::bytes(listed.usedGpuMemory);
                match found.iter_mut().find(|known| known.pid == listed.pid) {
                    // On a divided device a process is listed once for each instance.
                    Some(known) if known.kind == kind => known.memory = sum(known.memory, memory),
                    Some(known) => known.kind = ProcessKind::Both,
                    None => found.push(GpuProcess { memory, ..self.identities.process(listed.pid, kind) }),
                }
            }
        }
        self.add_utilisation(device, &mut found);
        self.identities.keep_only(&found);
        found.sort_by_key(|process| std::cmp::Reverse(process.memory));
        Ok(found)
    }

    /// A process without a sample in the period stays without a value.
    fn add_utilisation(&mut self, device: &Device<'_>, found: &mut [GpuProcess]) {
        let Ok(samples) = self.buffers.samples(device, self.newest_us) else { return };
        let mut newest: HashMap<u32, _> = HashMap::new();
        for sample in samples {
            self.newest_us = self.newest_us.max(sample.timeStamp);
            let kept = newest.entry(sample.pid).or_insert(sample);
            if sample.timeStamp > kept.timeStamp {
                *kept = sample;
            }
        }
        for process in found {
            if let Some(sample) = newest.get(&process.pid) {
                process.gpu_percent = plausible::percent(sample.smUtil);
                process.memory_percent = plausible::percent(sample.memUtil);
                process.encoder_percent = plausible::percent(sample.encUtil);
                process.decoder_percent = plausible::percent(sample.decUtil);
            }
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}
