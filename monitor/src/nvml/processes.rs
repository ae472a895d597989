//! The processes on a device: memory from one list, utilisation from another.

use std::collections::HashMap;
use std::time::Instant;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::raw::{Buffers, Running};
use crate::identity::Identities;
use crate::pace::Paced;
use crate::plausible;
use crate::process::{GpuProcess, ProcessKind};

/// Reads them again and again; NVML gives samples of utilisation since the last time.
#[derive(Debug)]
pub struct Processes {
    identities: Identities,
    buffers: Buffers,
    /// The time of the newest sample of utilisation, by the driver's clock.
    newest_us: u64,
    /// By process: of the device, its memory, encoder and decoder, in percent.
    newest_use: HashMap<u32, [Option<u32>; 4]>,
}

impl Processes {
    pub fn new(identities: Identities) -> Processes {
        Processes { identities, buffers: Buffers::default(), newest_us: 0, newest_use: HashMap::new() }
    }

    /// The processes, those with most memory first. Their utilisation is the last one until it is `used`'s
    /// time to read it; without processes there is none to read.
    pub fn read(
        &mut self,
        device: &Device<'_>,
        used: &mut Paced<()>,
        now: Instant,
    ) -> Result<Vec<GpuProcess>, NvmlError> {
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
        if !found.is_empty() && used.is_due(now) {
            used.set((), now);
            self.read_use(device);
        }
        self.add_use(&mut found);
        self.identities.keep_only(&found);
        found.sort_by_key(|process| std::cmp::Reverse(process.memory));
        Ok(found)
    }

    /// A process without a sample in the period stays without a value.
    fn read_use(&mut self, device: &Device<'_>) {
        self.newest_use.clear();
        let Ok(samples) = self.buffers.samples(device, self.newest_us) else { return };
        let mut times: HashMap<u32, u64> = HashMap::new();
        for sample in samples {
            self.newest_us = self.newest_us.max(sample.timeStamp);
            let time = times.entry(sample.pid).or_insert(0);
            if sample.timeStamp >= *time {
                *time = sample.timeStamp;
                let parts = [sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil];
                self.newest_use.insert(sample.pid, parts.map(plausible::percent));
            }
        }
    }

    fn add_use(&self, found: &mut [GpuProcess]) {
        for process in found {
            if let Some([gpu, memory, encoder, decoder]) = self.newest_use.get(&process.pid) {
                process.gpu_percent = *gpu;
                process.memory_percent = *memory;
                process.encoder_percent = *encoder;
                process.decoder_percent = *decoder;
            }
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}
