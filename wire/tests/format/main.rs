//! Compares docs/FORMAT.md with the code, in both directions: a constant, field or byte that
//! stands in one and not in the other is a failure.
#![cfg(not(loom))]

mod document;
mod payload;
mod source;

use document::{Table, tables};
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::handshake::Head;
use gputrace_wire::segment::{RingHeader, SegmentHeader};
use gputrace_wire::*;
use std::collections::BTreeSet;

/// The tables whose marker begins with that word; there must be some.
fn marked(word: &str) -> Vec<Table> {
    let found: Vec<_> = tables().into_iter().filter(|table| table.marker[0] == word).collect();
    assert!(!found.is_empty(), "no table is marked {word}");
    found
}

#[test]
fn markers_are_known_and_tables_have_rows() {
    for table in tables() {
        let known = ["constants:", "struct:", "payload:", "message", "counters", "limits"];
        assert!(known.contains(&table.marker[0].as_str()), "{:?}", table.marker);
        assert!(!table.rows.is_empty(), "{:?}", table.marker);
    }
}

#[test]
fn source_files_are_all_checked() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    assert!(found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()))
                }
            }
        }
    }
    assert_eq!(found, source::files().collect());
}

#[test]
fn constants_are_those_of_the_source() {
    let mut documented = BTreeSet::new();
    for table in marked("constants:") {
        let [_, file, modules @ ..] = &table.marker[..] else { panic!("{:?}", table.marker) };
        let mut rows = Vec::new();
        for module in modules {
            assert!(documented.insert((file.clone(), module.clone())), "{file} {module} stands twice");
            for (name, value) in source::constants(file, module) {
                let of = if modules.len() > 1 { Some(module.clone()) } else { None };
                rows.push(of.into_iter().chain([name, value]).collect::<Vec<_>>());
            }
        }
        table.assert_begins_with(&rows);
    }
    let all: BTreeSet<_> = source::modules_with_constants().collect();
    assert_eq!(documented, all, "modules of constants in the document and in the source");
}

#[test]
fn structs_lie_as_the_document_says() {
    let mut documented = Vec::new();
    for table in marked("struct:") {
        let [_, file, name] = &table.marker[..] else { panic!("{:?}", table.marker) };
        let fields = source::fields(file, name);
        let rows: Vec<_> = fields
            .iter()
            .map(|field| vec![field.at.to_string(), field.bytes.to_string(), field.name.clone()])
            .collect();
        table.assert_begins_with(&rows);
        documented.push((name.clone(), fields.last().map_or(0, |last| last.at + last.bytes)));
    }
    documented.sort_unstable();
    // The source's own assertions pin some offsets; the sizes catch a field read wrongly here.
    let size = |bytes: usize| move |end: usize| end.next_multiple_of(64) == bytes;
    assert_eq!(documented.len(), 3);
    assert!(documented[0].0 == "Control" && size(size_of::<Control>())(documented[0].1));
    assert!(documented[1].0 == "RingHeader" && size(size_of::<RingHeader>())(documented[1].1));
    assert!(documented[2].0 == "SegmentHeader" && size(size_of::<SegmentHeader>())(documented[2].1));
}

#[test]
fn payloads_lie_as_the_document_says() {
    let mut documented = BTreeSet::new();
    for table in marked("payload:") {
        let name = table.marker[1..].join(" ");
        let rows = payload::layout(&name).unwrap_or_else(|| panic!("no payload is called {name}"));
        table.assert_begins_with(&rows);
        documented.insert(name);
    }
    assert_eq!(documented, payload::NAMES.iter().map(|name| name.to_string()).collect());
}

#[test]
fn message_begins_as_the_document_says() {
    let [table] = &marked("message")[..] else { panic!("one head") };
    let head = Head::new(0, 0, 0, 0);
    let heads = [
        ("version", Head { version: !head.version, ..head }),
        ("kind", Head { kind: u32::MAX, ..head }),
        ("pid", Head { pid: u32::MAX, ..head }),
        ("generation", Head { generation: u32::MAX, ..head }),
        ("text_bytes", Head { text_bytes: u32::MAX, ..head }),
        ("value", Head { value: u64::MAX, ..head }),
    ];
    let mut rows = vec![vec!["0".to_owned(), "4".to_owned(), "magic".to_owned()]];
    rows.extend(heads.map(|(name, with)| payload::row(name, &head.to_bytes(), &with.to_bytes())));
    table.assert_begins_with(&rows);
    assert_eq!(head.to_bytes()[..4], *b"GTS1");
}

#[test]
fn counters_are_those_of_the_source() {
    let [table] = &marked("counters")[..] else { panic!("one table of counters") };
    let rows: Vec<_> = Counter::ALL
        .into_iter()
        .map(|counter| {
            let loss = if counter.is_loss() { "yes" } else { "no" };
            vec![(counter as u32).to_string(), counter.name().to_owned(), loss.to_owned()]
        })
        .collect();
    table.assert_begins_with(&rows);
}

#[test]
fn limits_are_those_of_the_source() {
    let [table] = &marked("limits")[..] else { panic!("one table of limits") };
    let limits = [
        ("VERSION_MAJOR", u64::from(VERSION_MAJOR)),
        ("VERSION_MINOR", u64::from(VERSION_MINOR)),
        ("cell::CELL_BYTES", cell::CELL_BYTES as u64),
        ("cell::CELL_WORDS", cell::CELL_WORDS as u64),
        ("call::LONG_DURATION_SHIFT", u64::from(call::LONG_DURATION_SHIFT)),
        ("call::CURRENT_POOL", call::CURRENT_POOL),
        ("call::MAPPED_UNIT", call::MAPPED_UNIT),
        ("definition::MAGIC", u64::from(definition::MAGIC)),
        ("definition::TEXT_MAX", definition::TEXT_MAX as u64),
        ("definition::KERNEL_LINES_MAX", definition::KERNEL_LINES_MAX as u64),
        ("definition::FIELDS_MAX", definition::FIELDS_MAX as u64),
        ("handshake::MAGIC", u64::from(handshake::MAGIC)),
        ("handshake::HEAD_BYTES", handshake::HEAD_BYTES as u64),
        ("handshake::TEXT_MAX", handshake::TEXT_MAX as u64),
        ("handshake::SAY_MAX", handshake::SAY_MAX as u64),
        ("range::POSITIONS_MAX", u64::from(range::POSITIONS_MAX)),
        ("segment::MAGIC", segment::MAGIC),
        ("segment::CONTROL_OFFSET", segment::CONTROL_OFFSET as u64),
        ("segment::COUNTERS_OFFSET", segment::COUNTERS_OFFSET as u64),
        ("segment::COUNTER_SLOTS", segment::COUNTER_SLOTS as u64),
        ("segment::RING_TABLE_OFFSET", segment::RING_TABLE_OFFSET as u64),
        ("segment::RINGS_MAX", u64::from(segment::RINGS_MAX)),
        ("segment::SEGMENT_BYTES_MAX", segment::SEGMENT_BYTES_MAX),
    ];
    table.assert_begins_with(&limits.map(|(name, value)| vec![name.to_owned(), value.to_string()]));
    // And none is forgotten. VERSION is made of the other two.
    let listed: BTreeSet<_> = limits.into_iter().map(|(name, _)| name.to_owned()).collect();
    let mut all: BTreeSet<_> = source::limits().collect();
    assert!(all.remove("VERSION"));
    assert_eq!(listed, all);
}
