//! Tests of whole traces, intact and damaged.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::device::{Execution, Kernel};
use proptest::prelude::*;

use crate::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::error::Error;
use crate::trace_file::columns::CELLS_MAX;
use crate::trace_file::{DamageReason, TraceReader, TraceWriter, block, header};

fn small_stream() -> Vec<Batch> {
    let begin = SessionBegin {
        recorder: "gputrace 0.1.0".into(),
        command: vec!["python".into(), String::new(), "ünïcode".into()],
        realtime_ns: u64::MAX,
        monotonic_ns: 5,
        traceparent: "00-not-one".into(),
        hands_on: true,
    };
    let process = ProcessBegin { process: 0, pid: 42, start_ticks: 1 << 60, ..ProcessBegin::default() };
    let records = vec![
        Definition { kind: 2, id: 1, fields: vec![], text: b"kernel".to_vec() },
        Definition { kind: 3, id: 2, fields: vec![u64::MAX, 1, 0], text: vec![0xff, 0] },
    ];
    let mut values = [0; Counter::COUNT];
    values[3] = u64::MAX;
    vec![
        Batch::SessionBegin(begin),
        Batch::ProcessBegin(process),
        Batch::Definitions { process: 0, records },
        Batch::Cells { process: 0, ring: 2, cells: launches(1, 20) },
        Batch::Cells { process: 0, ring: 0, cells: records_of(1, 20) },
        Batch::Counters(Counters {
            values,
            written: 40,
            ring_full: 1,
            counted_launches: 77,
            ..Counters::default()
        }),
        Batch::ProcessEnd { process: 0, end: ProcessEnd::Vanished, monotonic_ns: 99 },
        Batch::SessionEnd { wall_ns: 123_456_789 },
    ]
}

/// Launches as in an eager PyTorch step: a repeating sequence of a few dozen kernels with a few dozen stacks,
/// about one launch every 10 µs.
fn launches(first: u32, count: u32) -> Vec<Cell> {
    let mut random = Random(first.into());
    (0..count)
        .map(|i| {
            let op = i % 640;
            let launch = Launch {
                function: 100 + op * 7 % 41,
                grid: [1 + op * 37 % 500, 1 + op % 3, 1],
                block: [32 << (op % 5), 1, 1],
                dynamic_shared_bytes: (op % 4) * 16_384,
                ..Launch::default()
            };
            let call = Call {
                kind: kind::LAUNCH,
                api: 3,
                start_ticks: 1_000_000_000 + u64::from(i) * 30_000 + random.below(9_000),
                duration_ticks: 6_000 + random.below(4_000),
                correlation: first + i,
                stack: 1_000 + op * 13 % 97,
                stream: 9,
                detail: Detail::Launch(launch),
                ..Call::default()
            };
            let mut cell = call.to_cell();
            // The recorded trace of version 1.0 has a context here, which today's hooks leave zero.
            cell.put_u32(28, 8);
            cell
        })
        .collect()
}

/// The records of those launches.
fn records_of(first: u32, count: u32) -> Vec<Cell> {
    let mut random = Random(u64::from(first) + 1);
    let mut end_ns = 5_000_000_000;
    (0..count)
        .flat_map(|i| {
            let op = i % 640;
            let start_ns = end_ns + 800 + random.below(4_000);
            // Durations are multiples of 32 ns on the device.
            end_ns = start_ns + (u64::from(op % 29) * 40 + 60 + random.below(6)) * 32;
            let origin = Execution {
                correlation: first + i,
                start_ns,
                end_ns,
                context: 1,
                stream: 7,
                ..Execution::default()
            };
            let base = Kernel { execution: origin, ..Kernel::default() };
            let kernel = Kernel {
                name: 20 + op * 7 % 41,
                grid: [1 + op * 37 % 500, 1 + op % 3, 1],
                block: [32 << (op % 5), 1, 1],
                registers: (op * 7 % 41 * 3) as u16,
                dynamic_shared_bytes: (op % 4) * 16_384,
                shared_executed_bytes: 32_768,
                ..base
            };
            kernel.to_cells()
        })
        .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn write(batches: &[Batch]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    let bytes = fs::read(&path).unwrap();
    assert_eq!(writer.whole_bytes(), bytes.len() as u64);
    bytes
}

/// The batches, and why reading stopped early.
fn read(bytes: &[u8]) -> Result<(Vec<Batch>, Option<DamageReason>), Error> {
    let mut reader = TraceReader::new(Cursor::new(bytes), bytes.len() as u64, Path::new("trace"))?;
    let batches: Vec<_> = reader.by_ref().collect();
    assert!(reader.next().is_none());
    Ok((batches, reader.damage().map(|damage| damage.reason.clone())))
}

#[test]
fn stream_comes_back_as_it_was() {
    let stream = small_stream();
    let (batches, damage) = read(&write(&stream)).unwrap();
    assert!(batches == stream);
    assert_eq!(damage, None);
}

#[test]
fn trace_cut_off_anywhere_is_read_to_its_last_whole_block() {
    let stream = small_stream();
    let bytes = write(&stream);
    let mut last = 0;
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Err(Error::TraceEmpty { bytes, .. }) => assert_eq!(bytes, length as u64),
            Err(error) => panic!("{length}: {error}"),
            Ok((batches, damage)) => {
                assert!(length >= header::HEADER_BYTES);
                assert!(batches == stream[..batches.len()]);
                assert!(batches.len() >= last && batches.len() < stream.len());
                last = batches.len();
                assert!(
                    matches!(damage, Some(DamageReason::Truncated | DamageReason::NotClosed)),
                    "{damage:?}"
                );
            }
        }
    }
    assert_eq!(last, stream.len() - 1);
}

#[test]
fn any_changed_byte_is_noticed_and_nothing_wrong_is_read() {
    let stream = small_stream();
    let bytes = write(&stream);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        match read(&changed) {
            Err(Error::NotATrace { .. }) => assert!(at < 8),
            Err(Error::TraceVersion { .. }) => assert!((8..20).contains(&at)),
            Err(error) => panic!("{at}: {error}"),
            Ok((batches, damage)) => {
                assert!(batches == stream[..batches.len()], "{at}");
                assert!(damage.is_some() && batches.len() < stream.len(), "{at}");
            }
        }
    }
}

#[test]
fn missing_repeated_and_trailing_blocks_are_noticed() {
    let stream = small_stream();
    let whole = write(&stream);
    let first_block = header::HEADER_BYTES + block::HEADER_BYTES + {
        let at = header::HEADER_BYTES + 20;
        u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize
    };
    let without_first = [&whole[..header::HEADER_BYTES], &whole[first_block..]].concat();
    assert_eq!(read(&without_first).unwrap(), (vec![], Some(DamageReason::Missing)));
    let repeated = [&whole[..first_block], &whole[header::HEADER_BYTES..]].concat();
    assert_eq!(read(&repeated).unwrap().1, Some(DamageReason::Missing));
    let trailing = [&whole[..], b"x"].concat();
    let (batches, damage) = read(&trailing).unwrap();
    assert!(batches == stream && damage == Some(DamageReason::Trailing));
}

#[test]
fn files_that_are_no_trace_are_rejected() {
    let open = |path: &str| TraceReader::open(Path::new(path)).err().unwrap();
    assert!(matches!(open("/nonexistent/trace"), Error::TraceMissing { .. }));
    assert!(matches!(open("/"), Error::TraceRead { .. }));
    assert!(matches!(open("/proc/self/exe"), Error::NotATrace { .. }));
    assert!(matches!(open("/dev/null"), Error::TraceEmpty { bytes: 0, .. }));
    assert!(matches!(read(b"short and no trace"), Err(Error::NotATrace { .. })));
}

#[test]
fn newer_file_names_the_version_that_is_needed() {
    let mut bytes = write(&small_stream());
    let own = env!("CARGO_PKG_VERSION").as_bytes();
    assert_eq!(&bytes[20..20 + own.len()], own);
    bytes[10] = 7;
    bytes[8] = 3;
    bytes[20..44].fill(0);
    // Without a writer's version, as in files of 1.2, and with invalid text, which is not repeated.
    for nothing in [&b""[..], b"\x1b[31m", b"words"] {
        bytes[20..20 + nothing.len()].copy_from_slice(nothing);
        let error = read(&bytes).err().unwrap();
        assert!(matches!(error, Error::TraceVersion { major: 7, minor: 3, .. }));
        let text = error.to_string();
        assert!(text.contains("needs a newer gputrace: it has format version 7.3,"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    for (version, needed) in
        [(&b"4.2.0-rc.1"[..], "gputrace 4.2.0-rc.1 or newer"), (&[b'9'; 24], "999 or newer")]
    {
        bytes[20..44].fill(0);
        bytes[20..20 + version.len()].copy_from_slice(version);
        let text = read(&bytes).err().unwrap().to_string();
        assert!(text.contains(needed), "{text}");
    }
}

#[test]
fn file_of_an_earlier_minor_version_without_a_writer_s_version_is_read() {
    let stream = small_stream();
    let mut bytes = write(&stream);
    bytes[8] = 2;
    bytes[20..60].fill(0);
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    let (batches, damage) = read(&bytes).unwrap();
    assert!(batches == stream && damage.is_none());
}

#[test]
fn lines_about_processes_that_are_missing_are_read_back() {
    let mut stream = small_stream();
    let lines = vec!["process 7 runs as user 65534".to_owned(), String::new()];
    stream.insert(stream.len() - 1, Batch::Unrecorded(lines.clone()));
    let (batches, damage) = read(&write(&stream)).unwrap();
    assert!(batches == stream && damage.is_none());
    let mut model = crate::model::Model::new(crate::aggregate::Aggregates::default());
    batches.iter().for_each(|batch| model.consume(batch));
    let (totals, aggregates) = model.finish();
    assert_eq!(totals.unrecorded, lines);
    assert!(!crate::report::Report::new(&totals, &aggregates).complete);
}

#[test]
fn blocks_of_unknown_types_are_skipped() {
    let stream = small_stream();
    let mut bytes = write(&stream[..stream.len() - 1]);
    let head = |kind, sequence| block::BlockHeader {
        kind,
        sequence,
        raw_bytes: 3,
        stored_bytes: 3,
        ..Default::default()
    };
    bytes.extend(head(77, 7).to_bytes(b"abc"));
    bytes.extend(b"abc");
    bytes.extend(head(block::kind::SESSION_END, 8).to_bytes(&[1, 9, 9]));
    bytes.extend([1, 9, 9]);
    let mut reader = TraceReader::new(Cursor::new(&bytes), 0, Path::new("trace")).unwrap();
    assert_eq!(reader.by_ref().count(), stream.len());
    assert_eq!((reader.skipped_blocks(), reader.damage()), (1, None));
}

#[test]
fn blocks_that_claim_much_are_refused_before_memory_is_taken() {
    let bomb = |raw_bytes, stored: &[u8], encoding| {
        let stored_bytes = stored.len() as u32;
        let head = block::BlockHeader { kind: 4, encoding, raw_bytes, stored_bytes, ..Default::default() };
        [&header::to_bytes()[..], &head.to_bytes(stored), stored].concat()
    };
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    assert_eq!(read(&bomb(64 << 20, &zeros, 1)).unwrap().1, Some(DamageReason::TooLarge));
    assert_eq!(read(&bomb(1 << 20, &zeros, 1)).unwrap().1, Some(DamageReason::Contents));
    assert_eq!(read(&bomb(9, b"no cells!", 0)).unwrap().1, Some(DamageReason::Contents));
    assert_eq!(read(&bomb(9, b"no cells!", 9)).unwrap().1, Some(DamageReason::Contents));
}

#[test]
fn long_batches_are_cut_between_entries() {
    let mut cells = launches(1, 1);
    cells.extend(records_of(1, CELLS_MAX as u32));
    let stream = [Batch::Cells { process: 3, ring: 9, cells: cells.clone() }];
    let (batches, _) = read(&write(&stream)).unwrap();
    assert_eq!(batches.len(), 3);
    let mut joined = Vec::new();
    for batch in batches {
        let Batch::Cells { process: 3, ring: 9, cells } = batch else { panic!("{batch:?}") };
        assert!(matches!(cells[0].kind(), kind::LAUNCH | kind::DEVICE_KERNEL));
        joined.extend(cells);
    }
    assert!(joined == cells);
}

#[test]
fn definitions_beyond_a_block_are_cut_into_several() {
    let record = |id| Definition { kind: 2, id, fields: vec![id.into(); 3], text: vec![b'x'; 4000] };
    let records: Vec<_> = (1..2000).map(record).collect();
    let (batches, _) = read(&write(&[Batch::Definitions { process: 0, records: records.clone() }])).unwrap();
    assert!(batches.len() > 1);
    let joined: Vec<_> = batches
        .into_iter()
        .flat_map(|batch| match batch {
            Batch::Definitions { records, .. } => records,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(joined == records);
}

#[test]
fn full_disk_leaves_a_file_of_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let stream = small_stream();
    let mut writer = TraceWriter::create(&path).unwrap();
    stream[..4].iter().for_each(|batch| writer.write(batch).unwrap());
    writer.set_file(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let error = writer.write(&stream[4]).err().unwrap();
    assert!(
        matches!(&error, Error::TraceWrite { source, .. } if source.raw_os_error() == Some(libc::ENOSPC))
    );
    assert!(writer.write(&stream[5]).is_ok(), "said once");
    let (batches, damage) = read(&fs::read(&path).unwrap()).unwrap();
    assert!(batches == stream[..4]);
    assert_eq!(damage, Some(DamageReason::NotClosed));
}

#[test]
fn launch_and_its_record_take_at_most_twelve_bytes() {
    let pairs = 8_000;
    let bytes = write(&[
        Batch::Cells { process: 0, ring: 2, cells: launches(1, pairs) },
        Batch::Cells { process: 0, ring: 0, cells: records_of(1, pairs) },
    ]);
    let per_pair = bytes.len() as f64 / f64::from(pairs);
    assert!(per_pair <= 12.0, "{per_pair:.2} bytes a pair");
}

/// The bytes per kernel launch and record in the file of a real run, and per event of all kinds. The run is
/// short, so that little repeats: a longer one compresses better.
#[test]
fn events_of_a_recorded_training_run_take_at_most_twelve_bytes_each() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pytorch-h200.gputrace");
    let batches: Vec<Batch> = TraceReader::open(&path).unwrap().collect();
    let bytes_each = |is_one: fn(u16) -> bool| {
        let mut kept = vec![batches[0].clone()];
        let mut events = 0;
        for batch in &batches {
            let Batch::Cells { ring, cells, .. } = batch else { continue };
            let (mut cells, mut rest) = (Vec::new(), &cells[..]);
            while let Some(first) = rest.first() {
                let (entry, after) = rest.split_at(usize::from(first.cells()));
                rest = after;
                if is_one(first.kind()) {
                    cells.extend_from_slice(entry);
                    events += 1;
                }
            }
            kept.push(Batch::Cells { process: 0, ring: *ring, cells });
        }
        let bytes = write(&kept).len() - write(&batches[..1]).len();
        (events, bytes as f64 / f64::from(events))
    };
    let (kernels, each) = bytes_each(|known| matches!(known, kind::LAUNCH | kind::DEVICE_KERNEL));
    assert!(kernels == 828 && each <= 12.0, "{each:.2} bytes each of {kernels}");
    let (events, each) = bytes_each(|known| known >= kind::LAUNCH);
    assert!(events > 1_100 && each <= 12.0, "{each:.2} bytes each of {events}");
}

/// The recorded trace of each format version stays readable.
#[test]
fn recorded_traces_of_every_version_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/trace_file/recorded");
    let path = folder.join("version-1.0.gputrace");
    let (batches, damage) = read(&fs::read(path).unwrap()).unwrap();
    let mut stream = small_stream();
    // That format version had no `hands_on`, and no launches that were only counted.
    for batch in &mut stream {
        if let Batch::Counters(counters) = batch {
            counters.counted_launches = 0;
        }
    }
    if let Some(Batch::SessionBegin(begin)) = stream.first_mut() {
        (begin.traceparent, begin.hands_on) = (String::new(), false);
    }
    assert!(batches == stream);
    assert_eq!(damage, None);
}

proptest! {
    #[test]
    fn any_bytes_after_a_header_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (batches, damage) = read(&[&header::to_bytes()[..], &bytes].concat()).unwrap();
        prop_assert!(batches.is_empty() && damage.is_some());
    }

    /// Arbitrary contents with correct checksums cause no panic and no large allocation.
    #[test]
    fn any_contents_are_read_or_refused(
        blocks in prop::collection::vec((0u16..10, any::<u32>(), prop::collection::vec(any::<u8>(), 0..60)), 0..8),
    ) {
        let mut bytes = header::to_bytes().to_vec();
        for (sequence, (kind, process, payload)) in blocks.into_iter().enumerate() {
            let length = payload.len() as u32;
            let head = block::BlockHeader {
                kind, process, sequence: sequence as u64, raw_bytes: length, stored_bytes: length, ..Default::default()
            };
            bytes.extend(head.to_bytes(&payload));
            bytes.extend(payload);
        }
        let (batches, _) = read(&bytes).unwrap();
        let mut model = crate::model::Model::new(());
        batches.iter().for_each(|batch| model.consume(batch));
        model.finish();
    }
}

#[test]
fn trace_is_for_its_user_only_and_never_written_through_a_link() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.gputrace");
    drop(TraceWriter::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    // An existing file is truncated and made private.
    fs::write(&path, vec![b'x'; 4096]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    drop(TraceWriter::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(fs::metadata(&path).unwrap().len() < 4096);

    let victim = folder.path().join("victim");
    fs::write(&victim, b"dear").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&victim, &path).unwrap();
    assert!(TraceWriter::create(&path).is_err());
    fs::remove_file(&path).unwrap();
    fs::hard_link(&victim, &path).unwrap();
    assert!(TraceWriter::create(&path).is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"dear");
}
