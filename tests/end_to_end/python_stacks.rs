//! Python stacks: every launch's frames and lines are those that Python itself tells.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use gputrace_wire::definition::{Code, kind, line_table, stack};

use crate::harness::needs;
use crate::harness::recorded::Recorded;
use crate::harness::tool::{Traced, run, run_command, run_with};

/// The versions that this is for; `python3.14` and others may also be had by name.
const MINORS: [u32; 7] = [8, 9, 10, 11, 12, 13, 14];

/// Interpreters of these versions on this machine; says which are missing.
pub fn interpreters(test: &str) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for minor in MINORS {
        match interpreter(minor) {
            Some(path) => found.push((minor, path)),
            None => needs::skipped(
                test,
                &format!("there is no CPython 3.{minor} (scripts/unpack-python makes one)"),
            ),
        }
    }
    found
}

/// Of the folders that were named for it, else pyenv's, else any.
fn interpreter(minor: u32) -> Option<PathBuf> {
    let name = format!("python3.{minor}");
    let of_pyenv = std::env::var_os("HOME").and_then(|home| {
        let versions = std::fs::read_dir(Path::new(&home).join(".pyenv/versions")).ok()?;
        versions
            .filter_map(Result::ok)
            .map(|version| version.path().join("bin").join(&name))
            .find(|path| path.is_file())
    });
    let among = |variable: &str| {
        let folders = std::env::var_os(variable)?;
        std::env::split_paths(&folders)
            .filter(|folder| !folder.ends_with("shims"))
            .map(|folder| folder.join(&name))
            .find(|path| path.is_file())
    };
    among("GPUTRACE_TEST_PYTHONS").or(of_pyenv).or_else(|| among("PATH"))
}

type Frame = (String, String, u64);

impl Recorded {
    /// The frames of a stack; a mark of missing frames has an empty file and name.
    fn stack(&self, id: u32) -> Vec<Frame> {
        let Some(record) = self.definitions.get(&id) else { return Vec::new() };
        assert_eq!(record.kind, kind::STACK);
        record.fields.as_chunks::<2>().0.iter().map(|[code, at]| self.frame(*code as u32, *at)).collect()
    }

    fn frame(&self, id: u32, at: u64) -> Frame {
        if id == 0 {
            return (String::new(), String::new(), at);
        }
        let record = &self.definitions[&id];
        assert_eq!(record.kind, kind::CODE);
        let code = Code::read(&record.fields, &record.text);
        let mut table = code.table.to_vec();
        let mut more = code.more;
        while more != 0 {
            let piece = &self.definitions[&more];
            assert_eq!(piece.kind, kind::LINES);
            table.extend_from_slice(&piece.text);
            more = piece.field(0) as u32;
        }
        assert_eq!(table.len() as u64, code.table_bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(code.file), text(code.name), line(code.table_form, code.first_line, &table, at))
    }

    fn of_grid(&self, blocks: u32) -> Vec<Vec<Frame>> {
        self.launches.iter().filter(|(grid, _)| *grid == blocks).map(|(_, id)| self.stack(*id)).collect()
    }
}

/// The line of a position, by the rules that CPython's own documents give for each table.
fn line(form: u64, first_line: u64, table: &[u8], at: u64) -> u64 {
    if at == stack::NOT_BEGUN {
        return first_line;
    }
    let mut line = first_line as i64;
    let mut end = 0u64;
    if form != line_table::LOCATIONS {
        for [bytes, lines] in table.as_chunks::<2>().0 {
            end += u64::from(*bytes);
            let lines = i64::from(lines.cast_signed());
            match form {
                line_table::LNOTAB if end > at => break,
                line_table::LNOTAB => line += lines,
                _ if lines == -128 => {}
                _ => {
                    line += lines;
                    if end > at {
                        break;
                    }
                }
            }
        }
        return line as u64;
    }
    let mut rest = table.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut number = || {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = rest.next().unwrap();
                value |= u64::from(byte & 63) << shift;
                shift += 6;
                if byte & 64 == 0 {
                    return value;
                }
            }
        };
        let form = first >> 3 & 15;
        line += match form {
            13 | 14 => {
                let value = number();
                if value & 1 == 1 { -((value >> 1) as i64) } else { (value >> 1) as i64 }
            }
            10..=12 => i64::from(form) - 10,
            _ => 0,
        };
        end += (u64::from(first & 7) + 1) * 2;
        if end > at {
            break;
        }
        while rest.next_if(|byte| byte & 128 == 0).is_some() {}
    }
    line as u64
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python_stacks.py")
}

fn launches(python: &Path, scenario: &str, gil: &str) -> Traced {
    run_command(python).arg(program()).arg(scenario).arg(gil).succeed()
}

/// The stacks that the program printed.
fn said(traced: &Traced) -> Vec<Vec<Frame>> {
    let stacks = traced.ended.stdout.lines().map(|line| serde_json::from_str(line).expect(line));
    stacks.collect()
}

/// Every launch's stack is the one that the program told.
#[track_caller]
fn assert_recorded(minor: u32, gil: &str, traced: &Traced) -> Recorded {
    let (recorded, said) = (Recorded::of(traced), said(traced));
    assert!(!said.is_empty());
    for (index, wanted) in said.iter().enumerate() {
        let seen = recorded.of_grid(index as u32 + 1);
        assert_eq!(seen.len(), 1, "3.{minor} {gil}: launch {}", index + 1);
        assert_eq!(&seen[0], wanted, "3.{minor} {gil}: launch {}; {:?}", index + 1, recorded.notices());
    }
    assert_eq!((recorded.counter("stacks_full"), recorded.counter("stacks_unread")), (0, 0));
    recorded
}

#[track_caller]
fn each(test: &str, scenario: &str, check: impl Fn(u32, &str, &Traced)) {
    for (minor, python) in interpreters(&format!("python_stacks::{test}")) {
        for gil in ["held", "released"] {
            check(minor, gil, &launches(&python, scenario, gil));
        }
    }
}

#[test]
fn thousand_stacks_are_those_that_python_reports() {
    each("thousand_stacks_are_those_that_python_reports", "many", |minor, gil, traced| {
        let recorded = assert_recorded(minor, gil, traced);
        let distinct: HashSet<_> = recorded.launches.iter().map(|(_, id)| id).collect();
        assert!(distinct.len() > 500 && !distinct.contains(&0), "3.{minor}: {} stacks", distinct.len());
    });
}

#[test]
fn threads_have_their_own_stacks() {
    each("threads_have_their_own_stacks", "threads", |minor, gil, traced| {
        assert_recorded(minor, gil, traced);
    });
}

#[test]
fn code_object_at_anothers_address_is_another() {
    each("code_object_at_anothers_address_is_another", "reused", |minor, gil, traced| {
        assert_recorded(minor, gil, traced);
    });
}

/// After a code object's end, stacks whose code objects are near by in memory look new; they are recognised,
/// and nothing is recorded twice.
#[test]
fn stacks_beside_code_objects_that_end_stay_the_same() {
    each("stacks_beside_code_objects_that_end_stay_the_same", "beside_others", |minor, gil, traced| {
        let recorded = assert_recorded(minor, gil, traced);
        let ids: HashMap<u32, u32> = recorded.launches.iter().copied().collect();
        let mut ids_of: HashMap<Vec<Frame>, HashSet<u32>> = HashMap::new();
        for (index, stack) in said(traced).into_iter().enumerate() {
            if stack.iter().all(|(file, ..)| file != "<other>") {
                ids_of.entry(stack).or_default().insert(ids[&(index as u32 + 1)]);
            }
        }
        assert_eq!(ids_of.len(), 7, "3.{minor} {gil}");
        assert!(ids_of.values().all(|ids| ids.len() == 1), "3.{minor} {gil}: {:?}", ids_of.values());
        let codes = recorded.definitions.values().filter(|record| record.kind == kind::CODE);
        let steady = codes.filter(|record| record.text.starts_with(b"steady")).count();
        let stacks = recorded.definitions.values().filter(|record| record.kind == kind::STACK);
        let is_steady = |id| recorded.stack(id).last().is_some_and(|(file, ..)| file == "<steady>");
        assert_eq!(
            (steady, stacks.filter(|record| is_steady(record.id)).count()),
            (19, 7),
            "3.{minor} {gil}"
        );
    });
}

#[test]
fn stacks_under_a_trace_function_are_the_same() {
    each("stacks_under_a_trace_function_are_the_same", "profiled", |minor, gil, traced| {
        assert_recorded(minor, gil, traced);
    });
}

#[test]
fn deep_recursion_is_cut_and_marked() {
    each("deep_recursion_is_cut_and_marked", "deep", |minor, gil, traced| {
        let (recorded, said) = (Recorded::of(traced), said(traced));
        assert_eq!(said.len(), 4);
        assert!(said[3].len() > 10_000, "the program recorded {} frames", said[3].len());
        for (index, wanted) in said.iter().enumerate() {
            let seen = recorded.of_grid(index as u32 + 1).remove(0);
            let kept = stack::FRAMES_MAX - 1;
            if wanted.len() <= kept {
                assert_eq!(&seen, wanted, "3.{minor} {gil}");
            } else {
                assert_eq!(seen[0], (String::new(), String::new(), 0), "the mark of a cut");
                assert_eq!(seen[1..], wanted[wanted.len() - kept..], "3.{minor} {gil}");
            }
        }
        assert!(said[1].len() < stack::FRAMES_MAX && said[2].len() >= stack::FRAMES_MAX);
    });
}

/// The second interpreter's frames, and the first one's again. Where a call of the second lets go
/// of the GIL there is no telling before 3.12, so the program keeps it.
#[test]
fn interpreters_at_once_have_their_own_stacks() {
    each("interpreters_at_once_have_their_own_stacks", "interpreters", |minor, _, traced| {
        let (recorded, said) = (Recorded::of(traced), said(traced));
        let names =
            |stack: &[Frame]| stack.iter().map(|(_, name, line)| (name.clone(), *line)).collect::<Vec<_>>();
        assert_eq!(said.len(), 2);
        assert_eq!(names(&recorded.of_grid(1)[0]), names(&said[0]), "3.{minor}: the second interpreter");
        assert_eq!(recorded.of_grid(2)[0], said[1], "3.{minor}: the first");
    });
}

#[test]
fn interpreters_that_follow_one_another_have_their_own_stacks() {
    let test = "interpreters_that_follow_one_another_have_their_own_stacks";
    each(test, "one_after_another", |minor, _, traced| {
        let (recorded, said) = (Recorded::of(traced), said(traced));
        assert_eq!(said.len(), 12);
        for (index, wanted) in said.iter().enumerate() {
            let seen = recorded.of_grid(index as u32 + 1).remove(0);
            let seen: Vec<_> = seen.into_iter().map(|(_, name, line)| (name, line)).collect();
            let wanted: Vec<_> = wanted.iter().map(|(_, name, line)| (name.clone(), *line)).collect();
            assert_eq!(seen, wanted, "3.{minor}: interpreter {index}");
        }
    });
}

#[test]
fn interpreter_may_end_while_kernels_are_launched() {
    for round in 0..5 {
        each("interpreter_may_end_while_kernels_are_launched", "ends", |minor, gil, traced| {
            let recorded = Recorded::of(traced);
            let with = recorded.launches.iter().filter(|(_, id)| *id != 0).count();
            assert!(with > 0, "3.{minor} {gil}, round {round}: {:?}", recorded.notices());
            let at_exit = |stack: Vec<Frame>| stack.iter().any(|(_, name, _)| name.ends_with("last"));
            assert!(
                recorded.launches.iter().any(|(_, id)| at_exit(recorded.stack(*id))),
                "3.{minor} {gil}: atexit's"
            );
            assert_eq!(recorded.counter("stacks_unread"), 0, "3.{minor} {gil}");
        });
    }
}

#[test]
fn stacks_that_were_not_asked_for_are_not_recorded() {
    let test = "python_stacks::stacks_that_were_not_asked_for_are_not_recorded";
    for (minor, python) in interpreters(test).into_iter().take(1) {
        let traced =
            run_with(&["--stacks", "none"], &python).arg(program()).arg("threads").arg("held").succeed();
        let recorded = Recorded::of(&traced);
        assert!(
            recorded.launches.len() > 500 && recorded.launches.iter().all(|(_, id)| *id == 0),
            "3.{minor}"
        );
        assert!(
            recorded.definitions.values().all(|record| ![kind::CODE, kind::STACK].contains(&record.kind))
        );
    }
}

#[test]
fn embedded_interpreter_is_found_when_it_is_loaded() {
    let test = "python_stacks::embedded_interpreter_is_found_when_it_is_loaded";
    for (minor, python) in interpreters(test) {
        let home = python.parent().and_then(Path::parent).unwrap();
        let library = home.join(format!("lib/libpython3.{minor}.so.1.0"));
        if !library.is_file() {
            needs::skipped(test, &format!("there is no {}", library.display()));
            continue;
        }
        let traced = run("embeds_python").arg(&library).env("PYTHONHOME", home).succeed();
        let recorded = Recorded::of(&traced);
        let frame = |name: &str, line| ("<string>".to_owned(), name.to_owned(), line);
        let inside = vec![frame("<module>", 3), frame("inside", 2)];
        assert_eq!(recorded.of_grid(2), std::slice::from_ref(&inside), "3.{minor}: {:?}", recorded.notices());
        assert_eq!(recorded.of_grid(3), [vec![], vec![]], "3.{minor}: after the interpreter's end");
        assert_eq!(recorded.of_grid(4), [inside], "3.{minor}: in the next one");
    }
}
