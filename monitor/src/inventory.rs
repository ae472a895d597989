//! The list of all devices.

use std::sync::mpsc;
use std::thread;

use crate::backends::BACKENDS;
use crate::config::MonitorConfig;
use crate::device::{DeviceLink, GpuDeviceInfo};
use crate::error::GpuMonitorError;
use crate::source::{Backend, Found};

/// All devices of this machine, idle ones too.
#[derive(Debug, Default)]
pub struct Inventory {
    pub devices: Vec<GpuDeviceInfo>,
    /// How devices reach each other: one entry for each pair of which something is known.
    pub links: Vec<DeviceLink>,
    /// What kept a backend from listing its devices. With devices there may still be
    /// [`GpuMonitorError::NoDriver`] of a vendor whose devices the machine does not have.
    pub problems: Vec<GpuMonitorError>,
    /// The backend of each device.
    pub(crate) backends: Vec<Backend>,
}

impl Inventory {
    /// Asks every backend, and waits at most [`MonitorConfig::start_limit`] for each; a backend that needs
    /// longer is a problem of the list.
    pub fn read(config: &MonitorConfig) -> Inventory {
        let mut inventory = Inventory::default();
        for backend in BACKENDS {
            let first = inventory.devices.len() as u32;
            match listed(*backend, config, first) {
                Ok(found) => {
                    inventory.backends.extend(found.devices.iter().map(|_| *backend));
                    inventory.devices.extend(found.devices);
                    inventory.links.extend(found.links);
                    inventory.problems.extend(found.problems);
                }
                Err(problem) => inventory.problems.push(problem),
            }
        }
        inventory
    }
}

/// A backend's list, read by another thread: a driver that hangs keeps that thread, not this one.
fn listed(backend: Backend, config: &MonitorConfig, first: u32) -> Result<Found, GpuMonitorError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let its_config = config.clone();
    let list = move || {
        // Nobody waits any more if this fails.
        let _ = sender.send((backend.list)(&its_config, first));
    };
    let thread = thread::Builder::new().name("gpu-list".into()).spawn(list);
    thread.map_err(|error| GpuMonitorError::NoThread(error.to_string()))?;
    receiver.recv_timeout(config.start_limit).unwrap_or_else(|_| {
        Err(GpuMonitorError::NoAnswer { subject: backend.name.into(), waited: config.start_limit })
    })
}
