//! What the crate's source says, read as text: constants by module, fields by struct.

const FILES: [(&str, &str); 24] = [
    ("atomic.rs", include_str!("../../src/atomic.rs")),
    ("block.rs", include_str!("../../src/block.rs")),
    ("budget.rs", include_str!("../../src/budget.rs")),
    ("call.rs", include_str!("../../src/call.rs")),
    ("caller.rs", include_str!("../../src/caller.rs")),
    ("capture_range.rs", include_str!("../../src/capture_range.rs")),
    ("cell.rs", include_str!("../../src/cell.rs")),
    ("clock.rs", include_str!("../../src/clock.rs")),
    ("control.rs", include_str!("../../src/control.rs")),
    ("counted.rs", include_str!("../../src/counted.rs")),
    ("counter.rs", include_str!("../../src/counter.rs")),
    ("definition.rs", include_str!("../../src/definition.rs")),
    ("definition/area.rs", include_str!("../../src/definition/area.rs")),
    ("definition/code_text.rs", include_str!("../../src/definition/code_text.rs")),
    ("definition/kernel_lines.rs", include_str!("../../src/definition/kernel_lines.rs")),
    ("device.rs", include_str!("../../src/device.rs")),
    ("graph.rs", include_str!("../../src/graph.rs")),
    ("handshake.rs", include_str!("../../src/handshake.rs")),
    ("range.rs", include_str!("../../src/range.rs")),
    ("reported.rs", include_str!("../../src/reported.rs")),
    ("ring.rs", include_str!("../../src/ring.rs")),
    ("run_settings.rs", include_str!("../../src/run_settings.rs")),
    ("segment.rs", include_str!("../../src/segment.rs")),
    ("windows.rs", include_str!("../../src/windows.rs")),
];
const LIB: &str = include_str!("../../src/lib.rs");

/// The files that are looked at.
pub fn files() -> impl Iterator<Item = String> {
    FILES.iter().map(|(file, _)| file.to_string()).chain(["lib.rs".to_owned()])
}

fn text(file: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == file).unwrap_or_else(|| panic!("no {file}")).1
}

/// "pub const NAME: type = value;" as (name, value).
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
    Some((name, rest.split_once(" = ")?.1.strip_suffix(';')?))
}

/// (module, constant's name, its value) of a file's public modules.
fn all_constants(file: &str) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut module = None;
    let mut found = Vec::new();
    for line in text(file).lines() {
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {")) {
            module = Some(name);
        } else if line.starts_with('}') {
            module = None;
        } else if let (Some(module), Some((name, value))) = (module, constant(line.trim_start())) {
            found.push((module, name, value));
        }
    }
    found
}

pub fn constants(file: &str, module: &str) -> impl Iterator<Item = (String, String)> {
    let all = all_constants(file).into_iter().filter(move |found| found.0 == module);
    all.map(|(_, name, value)| (name.to_owned(), value.to_owned()))
}

/// (file, module) wherever there are constants.
pub fn modules_with_constants() -> impl Iterator<Item = (String, String)> {
    FILES.iter().flat_map(|(file, _)| {
        all_constants(file).into_iter().map(|(module, ..)| (file.to_string(), module.to_owned()))
    })
}

/// The public constants outside modules, as paths.
pub fn limits() -> impl Iterator<Item = String> {
    let files = FILES.iter().map(|(file, text)| (file.replace(".rs", "::"), *text));
    files.chain([(String::new(), LIB)]).flat_map(|(path, text)| {
        let names = text.lines().filter_map(constant).map(move |(name, _)| format!("{path}{name}"));
        names.collect::<Vec<_>>()
    })
}

pub struct Field {
    pub name: String,
    pub at: usize,
    pub bytes: usize,
}

/// A `repr(C)` struct's fields with their places, by the rules of `repr(C)`.
pub fn fields(file: &str, name: &str) -> Vec<Field> {
    let start = format!("pub struct {name} {{\n");
    let body = text(file).split_once(&start).unwrap_or_else(|| panic!("no {name} in {file}")).1;
    let body = body.split_once("\n}").expect("a struct ends").0;
    let mut fields: Vec<Field> = Vec::new();
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        let line = line.strip_prefix("pub ").unwrap_or(line).strip_suffix(',').expect("a field ends");
        let (name, kind) = line.split_once(": ").expect("a field has a type");
        let (item, count) = match kind.strip_prefix('[') {
            Some(array) => {
                array.strip_suffix(']').and_then(|array| array.split_once("; ")).expect("an array")
            }
            None => (kind, "1"),
        };
        let item_bytes = match item {
            "AtomicU32" => 4,
            "AtomicU64" => 8,
            other => panic!("{other} in shared memory"),
        };
        let end = fields.last().map_or(0, |last| last.at + last.bytes);
        assert!(end.is_multiple_of(item_bytes), "{name} of {file} has padding before it that no field names");
        let count: usize = count.parse().expect("a length");
        fields.push(Field { name: name.to_owned(), at: end, bytes: item_bytes * count });
    }
    fields
}
