//! Frames of libraries that come and go, while the program runs and before its trace is read.

use std::fs;
use std::path::{Path, PathBuf};

use gputrace_collector::batch::Definition;
use gputrace_wire::definition::kind;

use super::{NATIVE, build, source};
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::recorded::Recorded;
use crate::harness::tool::{Traced, gputrace, run_with};

/// Two libraries alike but for a name, and the program that launches from one after the other.
fn reloading(folder: &Folder) -> [PathBuf; 3] {
    let files @ [one, other, program] =
        &["one.so", "other.so", "native_reload"].map(|name| folder.join(name));
    for (library, function) in [(one, "first_plugin"), (other, "other_plugin")] {
        let options = ["-g", "-shared", "-fPIC", &format!("-DFUNCTION={function}")];
        build("cc", &source("native_plugin.c"), &options, library);
    }
    build("cc", &source("native_reload.c"), &["-g"], program);
    files.clone()
}

/// Two libraries, one after the other, where the first was.
#[test]
fn library_at_anothers_address_is_another() {
    let folder = Folder::new();
    let [one, other, program] = reloading(&folder);
    let traced = run_with(&NATIVE, &program).arg(&one).arg(&other).arg(&one).succeed();
    let addresses: Vec<&str> = traced.ended.stdout.lines().filter(|line| line.starts_with("0x")).collect();
    assert!(
        addresses.len() == 3 && addresses.iter().all(|address| *address == addresses[0]),
        "not one address: {addresses:?}"
    );
    let recorded = Recorded::of(&traced);
    let images = recorded.definitions.values().filter(|record| record.kind == kind::IMAGE);
    let plugins = images.filter(|record| record.text.ends_with(b".so") && record.text.contains(&b'o'));
    let plugins: Vec<_> =
        plugins.filter(|record| [&one, &other].iter().any(|path| ends(record, path))).collect();
    assert_eq!(plugins.len(), 2, "each is defined once: {plugins:?}");
    let blocks: Vec<(u32, String)> = recorded
        .launches
        .iter()
        .filter_map(|(blocks, stack)| Some((*blocks, library_of(&recorded, *stack, &[&one, &other])?)))
        .collect();
    let expected = [(1, "one.so"), (2, "other.so"), (3, "one.so")]
        .iter()
        .flat_map(|(n, name)| std::iter::repeat_n((*n as u32, (*name).to_owned()), 3));
    assert_eq!(blocks, expected.collect::<Vec<_>>());
    let folded = traced.read("flame.folded");
    let of = |function: &str| {
        let line = folded.lines().find(|line| line.contains(function)).unwrap_or_else(|| panic!("{folded}"));
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((of("first_plugin"), of("other_plugin")), (120, 60));
}

/// The library that a launch came from, by its file's name.
fn library_of(recorded: &Recorded, stack: u32, paths: &[&Path]) -> Option<String> {
    let frames = recorded.definitions.get(&stack)?.fields.as_chunks::<2>().0;
    let mut images = frames.iter().filter_map(|[id, _]| recorded.definitions.get(&(*id as u32)));
    let library = images.find(|record| paths.iter().any(|path| ends(record, path)))?;
    Some(String::from_utf8_lossy(&library.text).rsplit('/').next().unwrap().to_owned())
}

/// By the C library's own function, so that it is not seen at once: libraries are looked at all 50 ms.
#[test]
fn library_that_is_replaced_unseen_is_soon_noticed() {
    let folder = Folder::new();
    let [one, other, program] = reloading(&folder);
    let traced = run_with(&NATIVE, &program).arg("past").arg(&one).arg(&other).succeed();
    let addresses: Vec<&str> = traced.ended.stdout.lines().filter(|line| line.starts_with("0x")).collect();
    assert!(addresses.len() == 2 && addresses[0] == addresses[1], "not one address: {addresses:?}");
    let recorded = Recorded::of(&traced);
    let of_other: Vec<String> = recorded
        .launches
        .iter()
        .filter(|(blocks, _)| *blocks == 2)
        .map(|(_, stack)| library_of(&recorded, *stack, &[&one, &other]).unwrap())
        .collect();
    assert_eq!(of_other.len(), 200);
    let late = of_other.iter().filter(|name| *name == "one.so").count();
    // Some of the first half second's.
    assert!(late < 50 && of_other[late..].iter().all(|name| name == "other.so"), "{late}: {of_other:?}");
}

/// Those that have no place any more end their stacks, and that is said.
#[test]
fn libraries_beyond_capacity_end_stacks_and_are_reported() {
    const LIBRARIES: u32 = 4200;
    let folder = Folder::new();
    let (first, program) = (folder.join("1.so"), folder.join("native_libraries"));
    let options = ["-s", "-shared", "-fPIC", "-Wl,-z,noseparate-code", "-DFUNCTION=inner"];
    build("cc", &source("native_plugin.c"), &options, &first);
    build("cc", &source("native_libraries.c"), &[], &program);
    for number in 2..=LIBRARIES {
        fs::copy(&first, folder.join(&format!("{number}.so"))).unwrap();
    }
    let traced = run_with(&["--stacks", "native", "--device-times", "off"], &program)
        .arg(first.parent().unwrap())
        .arg(LIBRARIES.to_string())
        .succeed();
    let notices = traced.report()["notices"].to_string();
    let said = "more libraries were loaded than native frames can name";
    assert_eq!(notices.matches(said).count(), 1, "{notices}");
    let recorded = Recorded::of(&traced);
    assert_eq!(recorded.launches.len(), LIBRARIES as usize);
    let images = recorded.definitions.values().filter(|record| record.kind == kind::IMAGE).count();
    assert_eq!(images, 4095);
    for (blocks, stack) in &recorded.launches {
        let frames = recorded.definitions[stack].fields.as_chunks::<2>().0;
        // The program, this library and the others that every stack goes through have addresses too.
        let (is_whole, is_cut) = (*blocks < 4050, *blocks > 4095);
        assert!(!is_whole || frames[0] != [0, 0], "{blocks}: {frames:?}");
        assert!(!is_cut || frames[0] == [0, 0], "{blocks}: {frames:?}");
    }
}

fn ends(record: &Definition, path: &Path) -> bool {
    record.kind == kind::IMAGE && record.text.ends_with(path.file_name().unwrap().as_encoded_bytes())
}

fn folded_later(traced: &Traced) -> String {
    finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0).stdout
}

#[test]
fn trace_read_later_gives_the_same_names_unless_the_file_is_another() {
    let folder = Folder::new();
    let (library, program) = (folder.join("plugin.so"), folder.join("native_reload"));
    let plugin = |function: &str| {
        let options = ["-g", "-shared", "-fPIC", &format!("-DFUNCTION={function}")];
        build("cc", &source("native_plugin.c"), &options, &library);
    };
    plugin("first_plugin");
    build("cc", &source("native_reload.c"), &["-g"], &program);
    let traced = run_with(&NATIVE, &program).arg(&library).succeed();
    let folded = traced.read("flame.folded");
    assert!(folded.contains("first_plugin native_plugin.c"), "{folded}");
    assert_eq!(folded_later(&traced), folded);

    plugin("rebuilt_plugin");
    let later = folded_later(&traced);
    assert!(!later.contains("first_plugin") && !later.contains("rebuilt_plugin"), "{later}");
    assert!(later.contains(";[plugin.so+0x"), "{later}");
    assert!(later.contains("launch_blocks native_launch.h:"), "the others have their names: {later}");
    let notices = traced.report()["notices"].to_string();
    assert_eq!(
        notices.matches("native frames without names in plugin.so: the file is not the one").count(),
        1,
        "{notices}"
    );

    fs::remove_file(&library).unwrap();
    assert!(folded_later(&traced).contains(";[plugin.so+0x"));
    let notices = traced.report()["notices"].to_string();
    assert!(notices.contains("native frames without names in plugin.so: the file is gone"), "{notices}");

    plugin("first_plugin");
    assert_eq!(folded_later(&traced), folded, "the same again, by its build id");
}

#[test]
fn file_without_a_build_id_is_known_by_its_time() {
    let folder = Folder::new();
    let (library, program) = (folder.join("plugin.so"), folder.join("native_reload"));
    let plugin = |function: &str| {
        let options = ["-g", "-shared", "-fPIC", "-Wl,--build-id=none", &format!("-DFUNCTION={function}")];
        build("cc", &source("native_plugin.c"), &options, &library);
    };
    plugin("first_plugin");
    build("cc", &source("native_reload.c"), &["-g"], &program);
    let traced = run_with(&NATIVE, &program).arg(&library).succeed();
    assert!(traced.read("flame.folded").contains("first_plugin native_plugin.c"));
    plugin("first_plugim");
    let later = folded_later(&traced);
    assert!(!later.contains("_plugi") && later.contains(";[plugin.so+0x"), "{later}");
}
