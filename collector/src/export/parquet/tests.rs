//! What a folder of tables contains, by the crate's own reader.

#[path = "../../../benches/recorded/mod.rs"]
mod recorded;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use gputrace_wire::definition;
use parquet::basic::Encoding as ParquetEncoding;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use crate::aggregate::Aggregates;
use crate::batch::{Batch, DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
use crate::export::Destination;
use crate::export::parquet::folder::open;
use crate::export::parquet::schema::{ColumnKind, DEVICE_SAMPLES, STACKS, TABLES, TableSchema};
use crate::export::parquet::table::{Datum, ParquetTable};
use crate::export::testing::{export, fixture, scratch};
use crate::model::Totals;
use crate::report::tests::tape::{KERNELS, Tape, python_stacks};

fn reader(folder: &Path, table: &str) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(folder.join(format!("{table}.parquet"))).unwrap()).unwrap()
}

/// The rows of a table, by column.
fn rows(folder: &Path, table: &str) -> Vec<BTreeMap<String, Field>> {
    let row = |row: Row| row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect();
    reader(folder, table).into_iter().map(|found| row(found.unwrap())).collect()
}

fn number(row: &BTreeMap<String, Field>, column: &str) -> Option<i128> {
    match &row[column] {
        Field::Null => None,
        Field::Long(value) => Some((*value).into()),
        Field::UInt(value) => Some((*value).into()),
        Field::ULong(value) => Some((*value).into()),
        other => panic!("{column} is {other}"),
    }
}

fn text(row: &BTreeMap<String, Field>, column: &str) -> String {
    match &row[column] {
        Field::Str(text) => text.clone(),
        other => panic!("{column} is {other}"),
    }
}

/// Counts, and sums of the durations, by a key.
type SumsByKey = BTreeMap<(u32, String), (u64, u64)>;

fn add(sums: &mut SumsByKey, key: (u32, String), count: u64, ns: u64) {
    let sum = sums.entry(key).or_default();
    *sum = (sum.0 + count, sum.1 + ns);
}

fn sums(folder: &Path, table: &str, key: impl Fn(&BTreeMap<String, Field>) -> String) -> SumsByKey {
    let mut sums = SumsByKey::new();
    for row in rows(folder, table) {
        let process = number(&row, "process").unwrap() as u32;
        add(&mut sums, (process, key(&row)), 1, number(&row, "duration_ns").unwrap_or(0) as u64);
    }
    sums
}

fn export_to(folder: &Path, batches: &[Batch]) -> (Totals, Aggregates, u64) {
    let (totals, aggregates, written) = export(batches, open, Destination::Folder(folder.to_owned()));
    (totals, aggregates, written.unwrap())
}

#[test]
fn parquet_tables_have_the_counts_and_sums_of_the_report() {
    for name in ["demo-h200", "pytorch-h200"] {
        let (_guard, folder) = scratch("tables");
        let (totals, aggregates, events) = export_to(&folder, &fixture(name));
        let full: BTreeMap<i128, String> = rows(&folder, "kernel_names")
            .iter()
            .map(|row| (number(row, "kernel").unwrap(), text(row, "full_name")))
            .collect();
        let kernels = sums(&folder, "kernels", |row| full[&number(row, "kernel").unwrap()].clone());
        let mut expected = SumsByKey::new();
        let labels = crate::label::Labels::new(&totals, &aggregates);
        let mut names = labels.kernels;
        for (key, kernel) in aggregates.kernels.iter() {
            let name = names.name(key.process, key.name).full.to_string();
            add(&mut expected, (key.process, name), kernel.calls, kernel.durations.total_ns());
        }
        assert!(!expected.is_empty());
        assert_eq!(kernels, expected, "{name}");

        let copies = sums(&folder, "copies", |row| text(row, "direction"));
        let moved = aggregates.transfers.copies.iter();
        let moved = moved.map(|(direction, moved)| {
            ((0, direction.name().to_owned()), (moved.calls, moved.durations.total_ns()))
        });
        assert_eq!(copies, moved.collect::<SumsByKey>(), "{name}");
        let bytes: i128 = rows(&folder, "copies").iter().filter_map(|row| number(row, "bytes")).sum();
        let expected: u64 = aggregates.transfers.copies.values().map(|moved| moved.bytes).sum();
        assert_eq!(bytes, expected.into());
        let fills = &aggregates.transfers.fills;
        let memsets = sums(&folder, "memsets", |_| String::new());
        assert_eq!(memsets[&(0, String::new())], (fills.calls, fills.durations.total_ns()));
        let (graphs, graph_ns) =
            aggregates.graphs.sorted().iter().fold((0, 0), |(calls, ns), (_, graph)| {
                (calls + graph.calls, ns + graph.durations.total_ns())
            });
        let found = sums(&folder, "graphs", |_| String::new()).values().copied().next().unwrap_or_default();
        assert_eq!(found, (graphs, graph_ns));

        let calls = sums(&folder, "calls", |row| text(row, "name"));
        let mut expected = SumsByKey::new();
        for (key, call) in aggregates.calls.iter() {
            let definitions = &totals.processes[key.process as usize].definitions;
            let name = definitions.call_name(key.api).to_owned();
            add(&mut expected, (key.process, name), call.durations.count(), call.durations.total_ns());
        }
        assert_eq!(calls, expected, "{name}");
        let all = ["kernels", "copies", "memsets", "graphs", "calls", "ranges"];
        let count: usize = all.iter().map(|table| rows(&folder, table).len()).sum();
        assert_eq!(events, count as u64);
    }
}

/// Device time by the innermost line of user code, joined as DuckDB would.
#[test]
fn parquet_stacks_join_device_time_with_lines() {
    let (_guard, folder) = scratch("tables");
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    for (stack, kernel, ns) in
        [(110, 41, 1_203), (113, 40, 18_031), (111, 42, 6_400), (114, 42, 2_000), (110, 41, 9)]
    {
        tape.at(stack);
        tape.launch(kernel, 128, Some(ns));
        tape.at(116);
        tape.fill(64, 500);
    }
    tape.at(112);
    tape.copy(11, 1, 1 << 20, 45_000);
    let (totals, aggregates, _) = export_to(&folder, &tape.batches());
    let mut lines: BTreeMap<i128, String> = BTreeMap::new();
    for row in rows(&folder, "stacks") {
        if row["own"] == Field::Bool(true) {
            let line = format!("{} {}:{}", text(&row, "function"), text(&row, "file"), row["line"]);
            lines.insert(number(&row, "stack").unwrap(), line);
        }
    }
    let mut by_line: BTreeMap<String, i128> = BTreeMap::new();
    for table in ["kernels", "copies", "memsets"] {
        for row in rows(&folder, table) {
            let line = number(&row, "stack").and_then(|stack| lines.get(&stack)).cloned();
            *by_line.entry(line.unwrap_or_default()).or_default() += number(&row, "duration_ns").unwrap_or(0);
        }
    }
    let mut names = crate::label::StackNames::new(&totals);
    let mut expected: BTreeMap<String, i128> = BTreeMap::new();
    for (key, weight) in aggregates.device_stacks.sorted() {
        let frames = names.frames(key.process, key.stack);
        let own = frames.iter().rev().filter_map(|frame| names.line(frame)).find(|line| line.own);
        let line = own.map(|line| format!("{} {}:{}", line.function, line.file, line.line));
        *expected.entry(line.unwrap_or_default()).or_default() += i128::from(weight.ns);
    }
    assert_eq!(expected.get("train_step train.py:22"), Some(&(1_203 + 18_031 + 9)), "{expected:?}");
    assert_eq!(by_line, expected);
}

#[test]
fn parquet_kernel_row_takes_at_most_16_bytes() {
    let recorded = recorded::Recorded::pytorch();
    let mut batches = recorded.head.clone();
    let cells = recorded.rounds(0..100);
    batches.extend(cells.into_iter().map(|(ring, cells)| Batch::Cells { process: 0, ring, cells }));
    let (_guard, folder) = scratch("tables");
    export_to(&folder, &batches);
    let bytes = fs::metadata(folder.join("kernels.parquet")).unwrap().len();
    let rows = reader(&folder, "kernels").metadata().file_metadata().num_rows();
    assert_eq!(rows as u64, 100 * recorded.kernels);
    let each = bytes as f64 / rows as f64;
    assert!(each <= 16.0, "{each:.2} bytes a row of {rows}");
    // The repetitions compress well. The columns of one round take less than that too; the names of columns,
    // which each file has once, come on top.
    let (_guard, once) = scratch("tables");
    export_to(&once, &fixture("pytorch-h200"));
    let found = reader(&once, "kernels");
    let group = found.metadata().row_group(0);
    let each_once = group.compressed_size() as f64 / group.num_rows() as f64;
    println!("{each:.2} bytes a row of {rows}, {each_once:.2} of {}", group.num_rows());
    assert!(each_once <= 16.0, "{each_once:.2} bytes a row of {}", group.num_rows());
    let metadata = reader(&folder, "kernels").metadata().clone();
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let statistics = column.statistics().unwrap();
        assert!(statistics.null_count_opt().is_some(), "{}", column.column_path());
        let by_delta = matches!(column.column_path().string().as_str(), "start_ns" | "duration_ns");
        let used =
            if by_delta { ParquetEncoding::DELTA_BINARY_PACKED } else { ParquetEncoding::RLE_DICTIONARY };
        if by_delta || column.column_path().string() == "kernel" {
            assert!(column.encodings().any(|encoding| encoding == used), "{column:?}");
        }
    }
}

#[test]
fn parquet_row_group_ends_when_its_texts_take_too_much_memory() {
    let (_guard, folder) = scratch("tables");
    fs::create_dir(&folder).unwrap();
    let mut table = ParquetTable::create(&folder, &STACKS).unwrap();
    let long = "x".repeat(1 << 20);
    for number in 0..40 {
        let (id, name) = (Datum::Id(number), format!("{number}{long}"));
        let none = Datum::None;
        let row = [id, id, id, Datum::Text(&name), none, none, none, Datum::Bool(true)];
        table.add(&row).unwrap();
    }
    table.finish().unwrap();
    let groups: Vec<i64> =
        reader(&folder, "stacks").metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [16, 16, 8]);
    let found = rows(&folder, "stacks");
    assert!((0..40).all(|at| text(&found[at], "function") == format!("{at}{long}")));
    assert!(table.add(&[Datum::None]).is_err());
}

#[test]
fn parquet_keeps_names_of_every_byte() {
    let every: Vec<u8> = (0..=255).collect();
    let quoted = "'; DROP TABLE kernels; --\"\\\n\0\u{202e}";
    let mut tape = Tape::new(false);
    tape.define(definition::kind::NAME, 90, &[], &every);
    tape.define(definition::kind::FUNCTION, 100, &[0, 90, 0, 32], b"");
    tape.define(definition::kind::API, 91, &[], quoted.as_bytes());
    tape.code(92, &every, &every, 7);
    tape.stack(93, &[(92, 0)]);
    tape.at(93);
    tape.launch(90, 32, Some(77));
    tape.copy(91, 1, 5, 3);
    let (_guard, folder) = scratch("tables");
    let (totals, _, _) = export_to(&folder, &tape.batches());
    let definitions = &totals.processes[0].definitions;
    let names = rows(&folder, "kernel_names");
    assert_eq!(text(&names[0], "full_name"), crate::label::full_name(90, Some(definitions)));
    let calls: Vec<String> = rows(&folder, "calls").iter().map(|row| text(row, "name")).collect();
    assert_eq!(calls, ["cuLaunchKernel", quoted]);
    let frame = &rows(&folder, "stacks")[0];
    assert!(text(frame, "path").contains("\\xff"), "{frame:?}");
    assert_eq!(number(frame, "line"), Some(7));
}

#[test]
fn parquet_keeps_times_before_the_epoch_and_missing_times() {
    let mut tape = Tape::new(false);
    tape.launch(KERNELS[0].0, 32, Some(77));
    tape.launch(KERNELS[0].0, 32, None);
    let mut batches = tape.batches();
    let Batch::SessionBegin(session) = &mut batches[0] else { panic!() };
    session.realtime_ns = 0;
    let (_guard, folder) = scratch("tables");
    export_to(&folder, &batches);
    let calls = rows(&folder, "calls");
    assert_eq!(number(&calls[0], "start_ns"), Some(0));
    let mut timed: Vec<_> = rows(&folder, "kernels").iter().map(|row| number(row, "duration_ns")).collect();
    timed.sort_unstable();
    assert_eq!(timed, [None, Some(77)]);
    // The session's clock began 5 s after the process's.
    let Batch::SessionBegin(session) = &mut batches[0] else { panic!() };
    session.monotonic_ns += 5_000_000_000;
    let (_guard, folder) = scratch("tables");
    export_to(&folder, &batches);
    assert_eq!(number(&rows(&folder, "calls")[0], "start_ns"), Some(-5_000_000_000));
}

#[test]
fn parquet_has_each_sample_of_a_device_and_no_value_that_is_not_known() {
    let device = DeviceIdentity { uuid: [7, 9], pci: [0, 0x1b, 0] };
    let known = DeviceSample::new(1_000_000_000).with(DeviceMetric::Power, Some(0));
    let all = DeviceMetric::ALL.iter().zip(1..);
    let all = all
        .fold(DeviceSample::new(1_000_000_500), |sample, (metric, value)| sample.with(*metric, Some(value)));
    let samples = vec![known, DeviceSample::new(1_000_000_250), all];
    let samples = DeviceSamples { device, samples, ..DeviceSamples::default() };
    let tape = Tape::new(false);
    let (_guard, folder) = scratch("tables");
    let mut batches = tape.batches();
    batches.push(Batch::DeviceSamples(samples));
    let (_, _, events) = export_to(&folder, &batches);
    let rows = rows(&folder, "device_samples");
    assert_eq!((rows.len(), events), (3, 3));
    let columns: Vec<&str> = DEVICE_SAMPLES.columns[3..].iter().map(|column| column.name).collect();
    assert_eq!(columns.len(), DeviceMetric::ALL.len());
    let values = |at: usize| columns.iter().map(|column| number(&rows[at], column)).collect::<Vec<_>>();
    assert_eq!(values(0)[..2], [Some(0), None], "a value of 0 is one");
    assert!(values(0)[1..].iter().chain(&values(1)).all(Option::is_none));
    assert_eq!(values(2), (1..=17).map(Some).collect::<Vec<_>>(), "in the order of the columns");
    let times: Vec<_> = rows.iter().map(|row| number(row, "time_ns").unwrap()).collect();
    assert_eq!((times[1] - times[0], times[2] - times[0]), (250, 500));
    assert_eq!(text(&rows[0], "pci_bus_id"), "0000:1b:00.0");
    assert_eq!(text(&rows[0], "uuid"), crate::label::uuid([7, 9]));
}

#[test]
fn parquet_tables_without_rows_have_their_columns() {
    let (_guard, folder) = scratch("tables");
    let (_, _, events) = export_to(&folder, &[]);
    assert_eq!(events, 0);
    for table in TABLES {
        let reader = reader(&folder, table.name);
        let metadata = reader.metadata().file_metadata();
        assert_eq!(metadata.num_rows(), 0);
        let names: Vec<&str> = metadata.schema_descr().columns().iter().map(|column| column.name()).collect();
        assert_eq!(names, table.columns.iter().map(|column| column.name).collect::<Vec<_>>());
    }
}

#[test]
fn parquet_export_to_a_full_disk_returns_the_error() {
    for table in TABLES {
        let (_guard, folder) = scratch("tables");
        fs::create_dir(&folder).unwrap();
        symlink("/dev/full", folder.join(format!("{}.parquet", table.name))).unwrap();
        let (_, _, written) = export(&fixture("demo-h200"), open, Destination::Folder(folder));
        assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull, "{}", table.name);
    }
    let (_guard, file) = scratch("file");
    fs::write(&file, "").unwrap();
    assert_eq!(open(Destination::Folder(file)).err().unwrap().kind(), ErrorKind::AlreadyExists);
}

/// The document's tables, as the code has them.
fn document(table: &TableSchema) -> String {
    let mut text =
        format!("## {}.parquet\n\n{}\n\n| column | type | |\n| --- | --- | --- |\n", table.name, table.about);
    for column in table.columns {
        let kind: ColumnKind = column.kind;
        let optional = if column.optional { ", may be NULL" } else { "" };
        text += &format!("| `{}` | {}{optional} | {} |\n", column.name, kind.name(), column.about);
    }
    text
}

#[test]
fn parquet_document_lists_every_column() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/parquet.md");
    let expected: String = TABLES.iter().map(|table| document(table) + "\n").collect();
    let known = fs::read_to_string(&path).unwrap_or_default();
    let (before, _) = known.split_once("## kernels.parquet").unwrap_or((&known, ""));
    let whole = format!("{before}{}", expected.trim_end()) + "\n";
    if std::env::var_os("GPUTRACE_BLESS").is_some() {
        fs::write(&path, &whole).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == whole, "GPUTRACE_BLESS=1 writes it anew");
}
