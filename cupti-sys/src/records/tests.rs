//! The readers against `facts/cupti_offsets.txt`, the compiler's own view of NVIDIA's headers.

use std::collections::HashMap;
use std::ffi::CString;

use super::*;
use crate::cupti::{ApiVersion, CUpti_ActivityKind as Kind};

/// The records of one release: its version, and each family's current struct.
struct Release {
    name: &'static str,
    version: ApiVersion,
    current: Vec<&'static str>,
}

/// offset and size, by field, by struct; `.` is the whole struct.
type Layouts = HashMap<&'static str, HashMap<&'static str, (usize, usize)>>;

fn facts() -> (Vec<Release>, Layouts) {
    let mut releases = Vec::new();
    let mut layouts = Layouts::new();
    for line in include_str!("../../facts/cupti_offsets.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["release", name, version, ref current @ ..] => {
                let version = ApiVersion(version.parse().unwrap());
                releases.push(Release { name, version, current: current.to_vec() });
            }
            [record, field, offset, size, _releases] => {
                let extent = (offset.parse().unwrap(), size.parse().unwrap());
                // What was padding in one release may be named in a later one: the first name stands.
                layouts.entry(record).or_default().entry(field).or_insert(extent);
            }
            _ => panic!("not understood: {line}"),
        }
    }
    (releases, layouts)
}

impl Release {
    /// The struct that this release writes for a family of records.
    fn record(&self, family: &str) -> &'static str {
        let is_family = |record: &str| record.trim_end_matches(|c: char| c.is_ascii_digit()) == family;
        self.current.iter().find(|record| is_family(record)).unwrap()
    }
}

const READERS: [(&str, &[Field]); 5] = [
    ("Kernel", KernelRecord::FIELDS),
    ("Memcpy", MemcpyRecord::FIELDS),
    ("MemcpyPtoP", MemcpyPtoPRecord::FIELDS),
    ("Memset", MemsetRecord::FIELDS),
    ("GraphTrace", GraphTraceRecord::FIELDS),
];

/// Fields that a release writes and that cannot be read all the same, because it reports an older one's
/// version.
const HIDDEN: [(&str, &str); 2] = [("12.0", "maxPotentialClusterSize"), ("12.0", "maxActiveClusters")];

#[test]
fn fields_are_where_the_headers_have_them_and_no_sooner() {
    let (releases, layouts) = facts();
    for release in &releases {
        for (family, fields) in READERS {
            let record = release.record(family);
            for field in fields {
                let extent = layouts[record].get(field.name);
                let context = format!("{} {record} {}", release.name, field.name);
                if field.since <= release.version {
                    assert_eq!(extent, Some(&(field.offset, field.size)), "{context}");
                } else if !HIDDEN.contains(&(release.name, field.name)) && field.name != "isDeviceLaunched" {
                    // `isDeviceLaunched` took the place of padding in structs that kept their names.
                    assert_eq!(extent, None, "{context} could be read from this release on");
                }
            }
        }
    }
}

#[test]
fn releases_are_those_that_matter() {
    let (releases, _) = facts();
    for (name, version) in [("11.8", 18), ("12.9", 28), ("13.5", 130_500)] {
        assert!(releases.iter().any(|release| release.name == name && release.version.0 == version));
    }
}

#[test]
fn oldest_records_have_every_field_without_a_version() {
    let (_, layouts) = facts();
    for (record, fields) in [
        ("Kernel5", KernelRecord::FIELDS),
        ("Memcpy4", MemcpyRecord::FIELDS),
        ("MemcpyPtoP3", MemcpyPtoPRecord::FIELDS),
        ("Memset3", MemsetRecord::FIELDS),
        ("GraphTrace1", GraphTraceRecord::FIELDS),
    ] {
        for field in fields.iter().filter(|field| field.since == ApiVersion::OLDEST) {
            assert_eq!(
                layouts[record].get(field.name),
                Some(&(field.offset, field.size)),
                "{record} {}",
                field.name
            );
        }
    }
}

/// A record that ends where readable memory ends: reading beyond it is a segmentation fault.
struct Guarded {
    page: *mut u8,
    length: usize,
}

const PAGE: usize = 65536;

impl Guarded {
    /// `length` bytes, each one its own position's low seven bits plus one: fields next to each other differ.
    fn new(length: usize) -> Self {
        // SAFETY: a fresh private mapping of two pages, the second made inaccessible; nobody else knows it.
        let page = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(page.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            page.cast::<u8>()
        };
        let guarded = Self { page, length };
        for position in 0..length {
            // SAFETY: inside the first page, which is writable.
            unsafe { guarded.start().add(position).write((position & 0x7f) as u8 + 1) };
        }
        guarded
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the record is shorter than a page.
        unsafe { self.page.add(PAGE - self.length) }
    }

    fn set_kind(&self, kind: Kind) {
        // SAFETY: every record is longer than its kind.
        unsafe { self.start().cast::<u32>().write_unaligned(kind.0) };
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the readers borrow nothing that outlives a test.
        unsafe { libc::munmap(self.page.cast(), 2 * PAGE) };
    }
}

/// The number that `Guarded` holds at a field.
fn expected(field: &Field) -> u64 {
    let bytes = (field.offset..field.offset + field.size).rev();
    bytes.fold(0, |value, position| value << 8 | ((position & 0x7f) as u64 + 1))
}

/// Calls the accessors and asserts that each returns the bytes at the offset of the field with that C name.
macro_rules! assert_accessors {
    ($record:expr, $type:ident, $version:expr; $($always:ident = $always_name:literal)* ; $($gated:ident = $gated_name:literal)*) => {
        let field = |name: &str| $type::FIELDS.iter().find(|field| field.name == name).unwrap();
        let mut called = 0;
        $(
            assert_eq!($record.$always() as u64, expected(field($always_name)), "{}", $always_name);
            called += 1;
        )*
        $(
            let want = (field($gated_name).since <= $version).then(|| expected(field($gated_name)));
            assert_eq!($record.$gated().map(|value| value as u64), want, "{}", $gated_name);
            called += 1;
        )*
        assert_eq!(called, $type::FIELDS.len(), "a field of {} is not asserted", stringify!($type));
    };
}

#[test]
fn accessors_return_their_field_and_stay_inside_the_record() {
    let (releases, layouts) = facts();
    // No wheel has the oldest release's library; newer headers still describe its structs.
    let oldest =
        [("Kernel", "Kernel5"), ("Memcpy", "Memcpy4"), ("MemcpyPtoP", "MemcpyPtoP3"), ("Memset", "Memset3")];
    let mut cases: Vec<(ApiVersion, &str, &str)> =
        oldest.map(|(family, record)| (ApiVersion::OLDEST, family, record)).to_vec();
    for release in &releases {
        for (family, _) in READERS {
            cases.push((release.version, family, release.record(family)));
        }
    }
    for (version, family, record) in cases {
        let (_, size) = layouts[record]["."];
        let guarded = Guarded::new(size);
        let start = guarded.start();
        // SAFETY: the bytes are any values, the length is that of the record the version writes, and the raw
        // pointer among the fields is not followed.
        unsafe {
            match family {
                "Kernel" => {
                    let kernel = KernelRecord::new(start, version);
                    assert_accessors!(kernel, KernelRecord, version;
                        cache_config = "cacheConfig" shared_memory_config = "sharedMemoryConfig"
                        registers_per_thread = "registersPerThread" start_ns = "start" end_ns = "end"
                        completed_ns = "completed" device_id = "deviceId" context_id = "contextId"
                        stream_id = "streamId" grid_x = "gridX" grid_y = "gridY" grid_z = "gridZ"
                        block_x = "blockX" block_y = "blockY" block_z = "blockZ"
                        static_shared_bytes = "staticSharedMemory" dynamic_shared_bytes = "dynamicSharedMemory"
                        local_bytes_per_thread = "localMemoryPerThread" correlation_id = "correlationId"
                        grid_id = "gridId" name_pointer = "name" queued_ns = "queued"
                        submitted_ns = "submitted" launch_type = "launchType"
                        shared_memory_executed_bytes = "sharedMemoryExecuted" graph_node_id = "graphNodeId"
                        graph_id = "graphId" ;
                        channel_id = "channelID" channel_type = "channelType" cluster_x = "clusterX"
                        cluster_y = "clusterY" cluster_z = "clusterZ"
                        cluster_scheduling_policy = "clusterSchedulingPolicy"
                        local_bytes_total = "localMemoryTotal_v2"
                        max_potential_cluster_size = "maxPotentialClusterSize"
                        max_active_clusters = "maxActiveClusters" is_device_launched = "isDeviceLaunched"
                        priority = "priority" execution_model = "executionModel"
                        source_graph_id = "sourceGraphId" source_graph_node_id = "sourceGraphNodeId");
                }
                "Memcpy" => {
                    let memcpy = MemcpyRecord::new(start, version);
                    assert_accessors!(memcpy, MemcpyRecord, version;
                        copy_kind = "copyKind" source_kind = "srcKind" destination_kind = "dstKind"
                        flags = "flags" bytes = "bytes" start_ns = "start" end_ns = "end"
                        device_id = "deviceId" context_id = "contextId" stream_id = "streamId"
                        correlation_id = "correlationId" runtime_correlation_id = "runtimeCorrelationId"
                        graph_node_id = "graphNodeId" graph_id = "graphId" ;
                        channel_id = "channelID" channel_type = "channelType"
                        is_device_launched = "isDeviceLaunched" copy_count = "copyCount"
                        source_graph_id = "sourceGraphId" source_graph_node_id = "sourceGraphNodeId");
                }
                "MemcpyPtoP" => {
                    let memcpy = MemcpyPtoPRecord::new(start, version);
                    assert_accessors!(memcpy, MemcpyPtoPRecord, version;
                        copy_kind = "copyKind" source_kind = "srcKind" destination_kind = "dstKind"
                        flags = "flags" bytes = "bytes" start_ns = "start" end_ns = "end"
                        device_id = "deviceId" context_id = "contextId" stream_id = "streamId"
                        source_device_id = "srcDeviceId" source_context_id = "srcContextId"
                        destination_device_id = "dstDeviceId" destination_context_id = "dstContextId"
                        correlation_id = "correlationId" graph_node_id = "graphNodeId"
                        graph_id = "graphId" ;
                        channel_id = "channelID" channel_type = "channelType");
                }
                "Memset" => {
                    let memset = MemsetRecord::new(start, version);
                    assert_accessors!(memset, MemsetRecord, version;
                        value = "value" bytes = "bytes" start_ns = "start" end_ns = "end"
                        device_id = "deviceId" context_id = "contextId" stream_id = "streamId"
                        correlation_id = "correlationId" flags = "flags" memory_kind = "memoryKind"
                        graph_node_id = "graphNodeId" graph_id = "graphId" ;
                        channel_id = "channelID" channel_type = "channelType"
                        is_device_launched = "isDeviceLaunched" source_graph_id = "sourceGraphId"
                        source_graph_node_id = "sourceGraphNodeId");
                }
                "GraphTrace" => {
                    let graph = GraphTraceRecord::new(start, version);
                    assert_accessors!(graph, GraphTraceRecord, version;
                        correlation_id = "correlationId" start_ns = "start" end_ns = "end"
                        device_id = "deviceId" graph_id = "graphId" context_id = "contextId"
                        stream_id = "streamId" ;
                        end_device_id = "endDeviceId" end_context_id = "endContextId");
                }
                _ => panic!("no reader for {family}"),
            }
        }
    }
}

#[test]
fn unaligned_records_are_read() {
    let mut buffer = [0_u8; 257];
    buffer[1 + 92..1 + 96].copy_from_slice(&0x1234_5678_u32.to_ne_bytes());
    buffer[1 + 16..1 + 24].copy_from_slice(&77_u64.to_ne_bytes());
    // SAFETY: the buffer is longer than any kernel record.
    let kernel = unsafe { KernelRecord::new(buffer[1..].as_ptr(), ApiVersion::CUDA_13_4) };
    assert_eq!((kernel.correlation_id(), kernel.start_ns()), (0x1234_5678, 77));
}

#[test]
fn kernel_record_has_grid_block_cluster_and_name() {
    let name = CString::new("_Z6squarePf").unwrap();
    let mut buffer = [0_u8; 200];
    for (offset, value) in
        [(52, 65535_u32), (56, 2), (60, 3), (64, 1024), (68, 5), (72, 6), (176, 2), (180, 1), (184, 4)]
    {
        buffer[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }
    // SAFETY: the buffer has the length of this version's record; a null name is not followed.
    unsafe {
        let kernel = KernelRecord::new(buffer.as_ptr(), ApiVersion::CUDA_11_8);
        assert_eq!((kernel.grid(), kernel.block()), ([65535, 2, 3], [1024, 5, 6]));
        assert_eq!(kernel.cluster(), Some([2, 1, 4]));
        assert_eq!(kernel.name(), None);
        assert_eq!(KernelRecord::new(buffer.as_ptr(), ApiVersion::CUDA_11_7).cluster(), None);
    }
    buffer[104..112].copy_from_slice(&name.as_ptr().expose_provenance().to_ne_bytes());
    // SAFETY: as above, and `name` outlives the reader.
    let kernel = unsafe { KernelRecord::new(buffer.as_ptr(), ApiVersion::CUDA_11_8) };
    // SAFETY: the pointer is `name`'s.
    assert_eq!(unsafe { kernel.name() }, Some(name.as_c_str()));
}

#[test]
fn records_are_read_by_their_kind() {
    let guarded = Guarded::new(248);
    let read = |kind| {
        guarded.set_kind(kind);
        // SAFETY: the bytes are longer than any record here.
        unsafe { Record::new(guarded.start(), ApiVersion::CUDA_13_4) }
    };
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_KERNEL), Record::Kernel(_)));
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), Record::Kernel(_)));
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_MEMCPY), Record::Memcpy(_)));
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_MEMCPY2), Record::MemcpyPtoP(_)));
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_MEMSET), Record::Memset(_)));
    assert!(matches!(read(Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE), Record::GraphTrace(_)));
    assert!(matches!(read(Kind(4711)), Record::Other(Kind(4711))));
}
