//! Devices, and the contexts and streams on them.

use gputrace_wire::definition::{self, kind};

use crate::model::definitions::{Context, Definitions, Device, StreamInfo};

impl Definitions {
    pub fn context(&self, id: u32) -> Option<Context> {
        let entry = self.of_kind(id, kind::CONTEXT)?;
        Some(Context {
            handle: entry.field(definition::context::HANDLE),
            device: entry.id(definition::context::DEVICE),
        })
    }

    /// How many contexts were defined.
    pub fn contexts(&self) -> usize {
        self.entries.iter().flatten().filter(|entry| entry.kind == kind::CONTEXT).count()
    }

    /// The device that all contexts of the process are on, if it is one.
    pub fn device_in_use(&self) -> Option<Device> {
        let contexts = self.entries.iter().flatten().filter(|entry| entry.kind == kind::CONTEXT);
        let mut devices = contexts.map(|entry| entry.id(definition::context::DEVICE));
        let first = devices.next()?;
        devices.all(|device| device == first).then(|| self.device(first))?
    }

    pub fn stream(&self, id: u32) -> Option<StreamInfo> {
        use definition::stream as field;
        let entry = self.of_kind(id, kind::STREAM)?;
        Some(StreamInfo {
            handle: entry.field(field::HANDLE),
            context: entry.id(field::CONTEXT),
            flags: entry.field(field::FLAGS),
            priority: entry.field(field::PRIORITY).cast_signed(),
            record_id: entry.small(field::RECORD_ID),
        })
    }

    pub fn device(&self, id: u32) -> Option<Device> {
        use definition::device as field;
        let entry = self.of_kind(id, kind::DEVICE)?;
        Some(Device {
            ordinal: entry.small(field::ORDINAL),
            name: entry.text().to_owned(),
            total_memory_bytes: entry.field(field::TOTAL_MEMORY_BYTES),
            compute_major: entry.small(field::COMPUTE_MAJOR),
            compute_minor: entry.small(field::COMPUTE_MINOR),
            multiprocessors: entry.small(field::MULTIPROCESSORS),
            warp_size: entry.small(field::WARP_SIZE),
            max_threads_per_multiprocessor: entry.small(field::MAX_THREADS_PER_MULTIPROCESSOR),
            max_threads_per_block: entry.small(field::MAX_THREADS_PER_BLOCK),
            max_blocks_per_multiprocessor: entry.small(field::MAX_BLOCKS_PER_MULTIPROCESSOR),
            registers_per_multiprocessor: entry.small(field::REGISTERS_PER_MULTIPROCESSOR),
            registers_per_block: entry.small(field::REGISTERS_PER_BLOCK),
            shared_bytes_per_multiprocessor: entry.small(field::SHARED_BYTES_PER_MULTIPROCESSOR),
            shared_bytes_per_block_optin: entry.small(field::SHARED_BYTES_PER_BLOCK_OPTIN),
            reserved_shared_bytes_per_block: entry.small(field::RESERVED_SHARED_BYTES_PER_BLOCK),
            clock_khz: entry.small(field::CLOCK_KHZ),
            memory_clock_khz: entry.small(field::MEMORY_CLOCK_KHZ),
            memory_bus_bits: entry.small(field::MEMORY_BUS_BITS),
            l2_bytes: entry.field(field::L2_BYTES),
            uuid: [entry.field(field::UUID_LOW), entry.field(field::UUID_HIGH)],
            pci_domain: entry.small(field::PCI_DOMAIN),
            pci_bus: entry.small(field::PCI_BUS),
            pci_device: entry.small(field::PCI_DEVICE),
            simulated: entry.field(field::SIMULATED) == 1,
        })
    }

    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.devices.iter().filter_map(|id| self.device(*id))
    }

    /// What the program calls its device of that ordinal; empty if it does not.
    pub fn device_label(&self, ordinal: u32) -> &str {
        let is_it = |id: &&u32| {
            let device = self.of_kind(**id, kind::DEVICE);
            device.is_some_and(|device| device.small(definition::device::ORDINAL) == ordinal)
        };
        self.devices.iter().find(is_it).map_or("", |id| self.label(*id))
    }

    pub fn device_by_ordinal(&self, ordinal: u32) -> Option<Device> {
        self.devices().find(|device| device.ordinal == ordinal)
    }

    /// The ordinal of the device that a context definition belongs to.
    pub fn ordinal_of_context(&self, context: u32) -> Option<u32> {
        let context = self.of_kind(context, kind::CONTEXT)?;
        let device = self.of_kind(context.id(definition::context::DEVICE), kind::DEVICE)?;
        Some(device.small(definition::device::ORDINAL))
    }
}
