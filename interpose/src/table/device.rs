//! Device properties, asked of the driver once per device.

use core::ffi::c_int;

use gputrace_producer::session::Session;
use gputrace_wire::definition::{device, kind};

use crate::symbols::driver::{self, Device, SUCCESS};
use crate::symbols::originals;

/// (field of the definition, `CUdevice_attribute`).
const ATTRIBUTES: [(usize, c_int); 20] = [
    (device::COMPUTE_MAJOR, 75),
    (device::COMPUTE_MINOR, 76),
    (device::MULTIPROCESSORS, 16),
    (device::WARP_SIZE, 10),
    (device::MAX_THREADS_PER_MULTIPROCESSOR, 39),
    (device::MAX_BLOCKS_PER_MULTIPROCESSOR, 106),
    (device::REGISTERS_PER_MULTIPROCESSOR, 82),
    (device::REGISTERS_PER_BLOCK, 12),
    (device::SHARED_BYTES_PER_MULTIPROCESSOR, 81),
    (device::SHARED_BYTES_PER_BLOCK_OPTIN, 97),
    (device::RESERVED_SHARED_BYTES_PER_BLOCK, 111),
    (device::CLOCK_KHZ, 13),
    (device::MEMORY_CLOCK_KHZ, 36),
    (device::MEMORY_BUS_BITS, 37),
    (device::L2_BYTES, 38),
    (device::PCI_DOMAIN, 50),
    (device::PCI_BUS, 33),
    (device::PCI_DEVICE, 34),
    (device::MAX_THREADS_PER_BLOCK, 1),
    (device::ORDINAL, 0),
];

/// Defines the device of that ordinal and returns the definition.
pub fn define(session: &Session, ordinal: Device) -> u32 {
    let mut fields = [0u64; 24];
    for (field, attribute) in ATTRIBUTES {
        let mut value = 0;
        if attribute != 0
            && driver::device_attribute(&mut value, attribute, ordinal) == Some(SUCCESS)
            && let Some(to) = fields.get_mut(field)
        {
            *to = u64::try_from(value).unwrap_or(0);
        }
    }
    let mut bytes = 0;
    driver::device_total_memory(&mut bytes, ordinal);
    let mut uuid = [0u8; 16];
    driver::device_uuid(&mut uuid, ordinal);
    let (low, high) = uuid.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or([0; 8]));
    for (field, value) in [
        (device::ORDINAL, ordinal as u64),
        (device::TOTAL_MEMORY_BYTES, bytes as u64),
        (device::UUID_LOW, word(low)),
        (device::UUID_HIGH, word(high)),
        (device::SIMULATED, u64::from(is_simulated())),
    ] {
        if let Some(to) = fields.get_mut(field) {
            *to = value;
        }
    }
    let mut name = [0u8; 128];
    driver::device_name(name.as_mut_ptr().cast(), name.len() as c_int - 1, ordinal);
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    session.define(kind::DEVICE, &fields, name.get(..length).unwrap_or_default())
}

/// Whether the driver is the project's own simulation.
pub fn is_simulated() -> bool {
    !originals::find_in_driver("gputrace_sim_version\0").is_null()
}
