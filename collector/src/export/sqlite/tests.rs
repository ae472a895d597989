//! What the file contains, by SQL.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use gputrace_wire::call::{Detail, Memory, memory, operation};
use gputrace_wire::cell::kind;
use gputrace_wire::definition;
use gputrace_wire::range::{RangeBegin, RangeEnd};
use rusqlite::Connection;

use crate::aggregate::Aggregates;
use crate::batch::Batch;
use crate::export::sqlite::database::Database;
use crate::export::sqlite::file::NsysFile;
use crate::export::sqlite::runtime_names::{RUNTIME_NAMES, runtime_name};
use crate::export::sqlite::schema::TABLES;
use crate::export::testing::{export, fixture, scratch};
use crate::export::{Destination, Feed, Format, Trace};
use crate::label::{Labels, full_name};
use crate::model::{Model, Totals};
use crate::names::line_safe;
use crate::report::tests::tape::{KERNELS, Tape, python_stacks};

struct ExportedFile {
    _guard: tempfile::TempDir,
    file: Connection,
    totals: Totals,
    aggregates: Aggregates,
    events: u64,
}

fn exported(batches: &[Batch]) -> ExportedFile {
    let (guard, path) = scratch("trace.sqlite");
    let (totals, aggregates, written) = export(batches, super::file::open, Destination::File(path.clone()));
    let file = Connection::open(path).unwrap();
    ExportedFile { _guard: guard, file, totals, aggregates, events: written.unwrap() }
}

impl ExportedFile {
    /// The rows of a query, as text.
    fn rows(&self, query: &str) -> Vec<String> {
        let mut statement = self.file.prepare(query).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let text = |at| match row.get_unwrap::<_, rusqlite::types::Value>(at) {
                rusqlite::types::Value::Null => "NULL".to_owned(),
                rusqlite::types::Value::Integer(value) => value.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => panic!("{other:?}"),
            };
            Ok((0..columns).map(text).collect::<Vec<_>>().join("|"))
        };
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    fn has_table(&self, name: &str) -> bool {
        !self.rows(&format!("SELECT name FROM sqlite_master WHERE name = '{name}'")).is_empty()
    }
}

const BY_KERNEL: &str = "SELECT globalPid >> 24, value, count(*), sum(end - start) FROM \
                         CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName GROUP BY 1, 2";
const BY_DIRECTION: &str = "SELECT globalPid >> 24, name, count(*), sum(end - start), sum(bytes) FROM \
                            CUPTI_ACTIVITY_KIND_MEMCPY JOIN ENUM_CUDA_MEMCPY_OPER ON id = copyKind GROUP BY 1, 2";
const BY_CALL: &str = "SELECT globalTid >> 24, value, count(*), sum(end - start) FROM \
                       CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId GROUP BY 1, 2";

#[test]
fn sqlite_tables_have_the_counts_and_sums_of_the_report() {
    for name in ["demo-h200", "pytorch-h200"] {
        let found = exported(&fixture(name));
        let (totals, aggregates) = (&found.totals, &found.aggregates);
        let pid = totals.processes[0].begin.pid;
        let mut names = Labels::new(totals, aggregates).kernels;
        let mut kernels: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (key, kernel) in aggregates.kernels.iter() {
            let sum = kernels.entry(names.name(key.process, key.name).full.to_string()).or_default();
            *sum = (sum.0 + kernel.durations.count(), sum.1 + kernel.durations.total_ns());
        }
        let expected: Vec<String> =
            kernels.iter().map(|(name, (calls, ns))| format!("{pid}|{name}|{calls}|{ns}")).collect();
        assert!(!expected.is_empty());
        assert_eq!(found.rows(BY_KERNEL), expected, "{name}");

        let copies = aggregates.transfers.copies.iter().map(|(direction, moved)| {
            let kind = match direction.name() {
                "cpu_to_gpu" => "CUDA_MEMCPY_KIND_HTOD",
                "gpu_to_cpu" => "CUDA_MEMCPY_KIND_DTOH",
                "gpu_to_gpu" => "CUDA_MEMCPY_KIND_DTOD",
                other => panic!("{other}"),
            };
            let (calls, ns) = (moved.durations.count(), moved.durations.total_ns());
            format!("{pid}|{kind}|{calls}|{ns}|{}", moved.timed_bytes)
        });
        let mut copies: Vec<String> = copies.collect();
        copies.sort();
        assert_eq!(found.rows(BY_DIRECTION), copies, "{name}");
        let fills = &aggregates.transfers.fills;
        let memsets = "SELECT count(*), sum(end - start), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMSET";
        let (calls, ns) = (fills.durations.count(), fills.durations.total_ns());
        assert_eq!(found.rows(memsets), [format!("{calls}|{ns}|{}", fills.timed_bytes)]);

        // Two functions of the driver may have one name of the runtime.
        let uses_runtime = name == "pytorch-h200";
        let calls: u64 = aggregates.calls.iter().map(|(_, call)| call.durations.count()).sum();
        let call_ns: u64 = aggregates.calls.iter().map(|(_, call)| call.durations.total_ns()).sum();
        let all = "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME";
        assert_eq!(found.rows(all), [format!("{calls}|{call_ns}")]);
        let mut expected: Vec<String> = Vec::new();
        for (key, call) in aggregates.calls.iter() {
            let name = totals.processes[0].definitions.call_name(key.api);
            if !uses_runtime || runtime_name(name).is_none() {
                let (calls, ns) = (call.durations.count(), call.durations.total_ns());
                expected.push(format!("{pid}|{name}|{calls}|{ns}"));
            }
        }
        let by_call = found.rows(BY_CALL);
        assert!(expected.len() > 5 && expected.iter().all(|row| by_call.contains(row)), "{by_call:#?}");
        assert_eq!(by_call.iter().any(|row| row.contains("|cuda")), uses_runtime);
        let works = aggregates.devices.iter().map(|device| device.timed).sum::<u64>();
        assert_eq!(found.events, calls + works);
        assert!(!found.has_table("DIAGNOSTIC_EVENT"));
        assert_eq!(found.rows("PRAGMA integrity_check"), ["ok"]);
    }
}

#[test]
fn sqlite_calls_of_a_program_on_the_runtime_have_its_names() {
    let found = exported(&fixture("pytorch-h200"));
    let named = |name: &str| {
        let query = "SELECT count(*), min(eventClass) FROM CUPTI_ACTIVITY_KIND_RUNTIME \
                     JOIN StringIds ON id = nameId WHERE value = ";
        found.rows(&format!("{query}'{name}'")).remove(0)
    };
    // Copies in three directions; the fixture's JSON has the driver's names.
    assert_eq!(named("cudaMemcpyAsync_v3020"), "33|0");
    assert_eq!(named("cudaStreamSynchronize_v3020"), "18|0");
    assert_eq!(named("cuLibraryLoadData"), "41|1");
    let launches = "SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
                    USING (correlationId) JOIN StringIds s ON s.id = r.nameId ORDER BY 1";
    assert_eq!(found.rows(launches), ["cudaLaunchKernelExC_v11060", "cudaLaunchKernel_v7000"]);
    // Triton loads its kernels as modules, beside the runtime.
    let mut tape = Tape::new(false);
    tape.define(definition::kind::API, 60, &[], b"cuLibraryLoadData");
    tape.define(definition::kind::MODULE, 61, &[1, 1], b"");
    tape.define(definition::kind::MODULE, 62, &[2, 0], b"");
    for (name, module, text) in [(70, 61, "sum"), (71, 62, "triton_red")] {
        tape.define(definition::kind::NAME, name, &[], text.as_bytes());
        tape.define(definition::kind::FUNCTION, name + 10, &[0, name.into(), module, 32], b"");
    }
    tape.call(kind::MODULE, 60, 900, 0, 0, Detail::Module { module: 61, operation: operation::LOAD });
    tape.launch(70, 32, Some(5));
    tape.launch(71, 32, Some(6));
    let found = exported(&tape.batches());
    let launches = "SELECT n.value, s.value, eventClass FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN \
                    CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = r.nameId \
                    JOIN StringIds n ON n.id = k.demangledName ORDER BY 1";
    assert_eq!(found.rows(launches), ["sum|cudaLaunchKernel_v7000|0", "triton_red|cuLaunchKernel|1"]);
}

#[test]
fn sqlite_runtime_names_are_found_with_every_suffix_of_the_driver_s() {
    assert!(RUNTIME_NAMES.is_sorted_by(|one, other| one.0 < other.0));
    assert_eq!(runtime_name("cuMemcpyHtoDAsync_v2_ptsz"), Some("cudaMemcpyAsync_v3020"));
    assert_eq!(runtime_name("cuMemcpyDtoH_v2_ptds"), Some("cudaMemcpy_v3020"));
    assert_eq!(runtime_name("cuCtxSynchronize"), Some("cudaDeviceSynchronize_v3020"));
    assert_eq!(runtime_name("cuMemAlloc_v2"), Some("cudaMalloc_v3020"));
    for own in ["cuModuleLoadData", "cuMemAlloc_vx", "cuMemcpyAtoH_v2", "", "_v2", "_ptsz"] {
        assert_eq!(runtime_name(own), None);
    }
}

#[test]
fn sqlite_call_has_its_stack_wait_and_memory() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.define(definition::kind::API, 60, &[], b"cuMemAlloc_v2");
    tape.define(definition::kind::API, 61, &[], b"cuMemFree_v2");
    tape.at(110);
    tape.launch(41, 512, Some(1_203));
    tape.at(0);
    let detail = |bytes| {
        Detail::Memory(Memory { memory: memory::PINNED, bytes, address: 0x7000, ..Memory::default() })
    };
    tape.call(kind::ALLOC, 60, 1_000, 0, 0, detail(4096));
    tape.call(kind::FREE, 61, 1_000, 0, 0, detail(0));
    tape.call(kind::ALLOC, 60, 1_000, 0, 0, detail(1));
    tape.refuse(2);
    tape.wait(31_000);
    let found = exported(&tape.batches());
    let frames = "SELECT f.value, m.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN CUDA_CALLCHAINS c \
                  ON c.id = r.callchainId JOIN StringIds f ON f.id = symbol JOIN StringIds m ON m.id = module \
                  ORDER BY stackDepth";
    let torch = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
    let expected = [
        format!("Linear.forward modules/linear.py:125|{torch}"),
        "train_step train.py:22|/home/me/train.py".to_owned(),
        "<module> train.py:40|/home/me/train.py".to_owned(),
    ];
    assert_eq!(found.rows(frames), expected);
    let memory = "SELECT memoryOperationType, memKind, address, bytes FROM CUDA_GPU_MEMORY_USAGE_EVENTS";
    assert_eq!(found.rows(memory), ["0|1|28672|4096", "1|1|28672|4096"]);
    let waits = "SELECT syncType, end - start FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
    assert_eq!(found.rows(waits), ["3|31000"]);
    let failed = "SELECT returnValue, count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1";
    assert_eq!(found.rows(failed), ["0|4", "2|1"]);
    let names = "SELECT value FROM ThreadNames JOIN StringIds ON id = nameId ORDER BY globalTid";
    assert_eq!(found.rows(names), ["main", "pt_autograd_0"]);
    assert_eq!(found.rows("SELECT pid, name, globalPid >> 24 FROM PROCESSES"), ["4242|python train.py|4242"]);
    assert!(!found.has_table("CUPTI_ACTIVITY_KIND_MEMCPY") && !found.has_table("NVTX_EVENTS"));
}

#[test]
fn sqlite_ranges_have_their_kinds_and_domains() {
    let mut tape = Tape::new(false);
    tape.define(definition::kind::DOMAIN, 60, &[], b"NCCL");
    tape.define(definition::kind::RANGE, 61, &[60], b"reduce");
    tape.define(definition::kind::RANGE, 62, &[0], b"step");
    let push = |range, start_ticks, position| RangeBegin {
        kind: kind::RANGE_PUSH,
        range,
        start_ticks,
        position,
        ..RangeBegin::default()
    };
    let end = |kind, range, start_ticks, end_ticks, position| RangeEnd {
        kind,
        range,
        start_ticks,
        end_ticks,
        position,
        id: u64::from(kind == kind::RANGE_END),
        open: position,
    };
    let at = 1_000_000_000;
    tape.cell(push(62, at + 10, 0).to_cell());
    tape.cell(push(61, at + 20, 1).to_cell());
    tape.cell(end(kind::RANGE_POP, 61, at + 20, at + 50, 1).to_cell());
    tape.cell(end(kind::RANGE_POP, 62, at + 10, at + 80, 0).to_cell());
    tape.cell(end(kind::RANGE_END, 62, at + 5, at + 90, 0).to_cell());
    let found = exported(&tape.batches());
    let ranges = "SELECT n.text, n.eventType, n.end - n.start, n.globalTid & 0xffffff, coalesce(d.text, '') \
                  FROM NVTX_EVENTS n LEFT JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = n.domainId \
                  WHERE n.eventType != 75 ORDER BY 3";
    assert_eq!(found.rows(ranges), ["reduce|59|30|4242|NCCL", "step|59|70|4242|", "step|60|85|4242|"]);
    assert_eq!(found.events, 3);
}

/// nsys's rules join calls with copies by the correlation id alone.
#[test]
fn sqlite_processes_of_several_sessions_stay_apart() {
    let session = |realtime_ns| {
        let mut tape = Tape::new(false);
        tape.launch(KERNELS[0].0, 32, Some(77));
        let mut batches = tape.batches();
        let Batch::SessionBegin(session) = &mut batches[0] else { panic!() };
        session.realtime_ns = realtime_ns;
        batches
    };
    let found = exported(&[session(5_000_000_000), session(3_000_000_000)].concat());
    let kernels = "SELECT count(*), count(DISTINCT correlationId), count(DISTINCT globalPid), \
                   count(DISTINCT globalPid >> 24 & 0xffffff), count(DISTINCT deviceId) FROM CUPTI_ACTIVITY_KIND_KERNEL";
    assert_eq!(found.rows(kernels), ["2|2|2|1|1"]);
    let joined = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
                  USING (correlationId) WHERE k.globalPid = r.globalTid & 0xffffffffff000000";
    assert_eq!(found.rows(joined), ["2"]);
    // Counted from the earliest session's begin.
    let starts = "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start";
    assert_eq!(found.rows(starts), ["0", "2000000000"]);
    assert_eq!(found.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"), ["3000000000"]);
}

#[test]
fn sqlite_names_of_every_byte_are_escaped() {
    let every: Vec<u8> = (0..=255).collect();
    let quoted = "'; DROP TABLE StringIds; --\"\\\n\0\u{202e}";
    let mut tape = Tape::new(false);
    tape.define(definition::kind::NAME, 90, &[], &every);
    tape.define(definition::kind::FUNCTION, 100, &[0, 90, 0, 32], b"");
    tape.define(definition::kind::API, 91, &[], quoted.as_bytes());
    tape.define_thread(92, 9, quoted);
    tape.launch(90, 32, Some(77));
    tape.copy(91, 1, 5, 3);
    let found = exported(&tape.batches());
    let full = full_name(90, Some(&found.totals.processes[0].definitions));
    assert_eq!(found.rows(BY_KERNEL), [format!("4242|{}|1|77", line_safe(&full))]);
    let call = format!("4242|{}|1|4000", line_safe(quoted));
    assert!(found.rows(BY_CALL).contains(&call) && !call.contains('\n'), "{:?}", found.rows(BY_CALL));
    assert_eq!(
        found.rows("SELECT id FROM StringIds WHERE instr(value, char(0)) OR instr(value, char(10))").len(),
        0
    );
}

#[test]
fn sqlite_keeps_times_before_the_epoch_and_counts_missing_ones() {
    let mut tape = Tape::new(false);
    tape.launch(KERNELS[0].0, 32, Some(77));
    tape.launch(KERNELS[0].0, 32, None);
    let mut batches = tape.batches();
    let Batch::SessionBegin(session) = &mut batches[0] else { panic!() };
    (session.realtime_ns, session.monotonic_ns) = (0, 6_000_000_000);
    for batch in &mut batches {
        if let Batch::Counters(counters) = batch {
            counters.ring_full = 5;
        }
    }
    let found = exported(&batches);
    assert_eq!(found.rows("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_RUNTIME"), ["-5000000000"]);
    let kernels = "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL";
    assert_eq!(found.rows(kernels), ["1|77"]);
    let left_out = found.rows("SELECT text, globalPid >> 24 FROM DIAGNOSTIC_EVENT");
    let expected = [
        "the recording is incomplete; it lost: ring_full 5|NULL",
        "1 kernels, copies, memsets or graphs have no device times and no rows|4242",
    ];
    assert_eq!(left_out, expected);
}

#[test]
fn sqlite_file_without_events_has_names_of_numbers() {
    let found = exported(&[]);
    assert_eq!(found.events, 0);
    assert_eq!(found.rows("SELECT label FROM ENUM_CUDA_MEMCPY_OPER WHERE id = 1"), ["Host-to-Device"]);
    assert_eq!(
        found.rows("SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'"),
        ["3.7.2"]
    );
    assert!(!found.has_table("CUPTI_ACTIVITY_KIND_KERNEL"));
}

/// SQLite's own limit on pages gives the error that a full disk gives, in the middle of the events.
#[test]
fn sqlite_export_to_a_full_disk_returns_the_error() {
    let batches = fixture("pytorch-h200");
    let (_guard, path) = scratch("trace.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA max_page_count = 30; PRAGMA cache_size = 4").unwrap();
    let format: Box<dyn Format> = Box::new(NsysFile::new(Database::on(connection).unwrap()));
    let (totals, aggregates) = (Totals::default(), Aggregates::default());
    let mut model = Model::new(Feed::new(Trace::new(&totals, &aggregates), format));
    batches.iter().for_each(|batch| model.consume(batch));
    let error = model.finish().1.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    let (_guard, folder) = scratch("folder");
    fs::create_dir(&folder).unwrap();
    assert!(super::file::open(Destination::File(folder)).is_err());
    let (_, _, written) = export(&batches, super::file::open, Destination::File("/dev/full".into()));
    assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn sqlite_document_lists_every_table_and_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/sqlite.md");
    let mut expected = "## Tables\n\n| table | columns |\n| --- | --- |\n".to_owned();
    for table in TABLES {
        let columns = table.columns.split(", ").map(|column| {
            let (name, kind) = column.split_once(' ').unwrap();
            let optional = if kind.contains("NOT NULL") { "" } else { "?" };
            format!("`{name}`{optional}")
        });
        expected += &format!("| `{}` | {} |\n", table.name, columns.collect::<Vec<_>>().join(", "));
    }
    expected += "\n## Names of the runtime\n\n| driver | runtime |\n| --- | --- |\n";
    for (driver, runtime) in RUNTIME_NAMES {
        expected += &format!("| `{driver}` | `{runtime}` |\n");
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    let (before, _) = known.split_once("## Tables").unwrap_or((&known, ""));
    let whole = format!("{before}{expected}");
    if std::env::var_os("GPUTRACE_BLESS").is_some() {
        fs::write(&path, &whole).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == whole, "GPUTRACE_BLESS=1 writes it anew");
}
