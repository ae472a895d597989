//! Frames of libraries that come and go, while the program runs and before its trace is read.

use std::fs;
use std::path::Path;

use gputrace_collector::batch::Definition;
use gputrace_wire::definition::kind;

use super::{NATIVE, build, source};
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::told::Told;
use crate::harness::tool::{Traced, gputrace, run_with};

/// Two libraries, one after the other, where the first was.
#[test]
fn a_library_at_anothers_address_is_another() {
    let folder = Folder::new();
    let (one, other, program) =
        (folder.join("one.so"), folder.join("other.so"), folder.join("native_reload"));
    for (library, function) in [(&one, "first_plugin"), (&other, "other_plugin")] {
        let options = ["-g", "-shared", "-fPIC", &format!("-DFUNCTION={function}")];
        build("cc", &source("native_plugin.c"), &options, library);
    }
    build("cc", &source("native_reload.c"), &["-g"], &program);
    let traced = run_with(&NATIVE, &program).arg(&one).arg(&other).arg(&one).succeed();
    let places: Vec<&str> = traced.ended.stdout.lines().filter(|line| line.starts_with("0x")).collect();
    assert!(
        places.len() == 3 && places.iter().all(|place| *place == places[0]),
        "not one address: {places:?}"
    );
    let told = Told::of(&traced);
    let images = told.definitions.values().filter(|record| record.kind == kind::IMAGE);
    let plugins = images.filter(|record| record.text.ends_with(b".so") && record.text.contains(&b'o'));
    let plugins: Vec<_> =
        plugins.filter(|record| [&one, &other].iter().any(|path| ends(record, path))).collect();
    assert_eq!(plugins.len(), 2, "each is defined once: {plugins:?}");
    let blocks: Vec<(u32, String)> = told
        .launches
        .iter()
        .filter_map(|(blocks, stack)| {
            let frames = told.definitions.get(stack)?.fields.as_chunks::<2>().0;
            let images = frames.iter().filter_map(|[id, _]| told.definitions.get(&(*id as u32)));
            let plugin = images.into_iter().find(|record| ends(record, &one) || ends(record, &other))?;
            Some((*blocks, String::from_utf8_lossy(&plugin.text).rsplit('/').next().unwrap().to_owned()))
        })
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

fn ends(record: &Definition, path: &Path) -> bool {
    record.kind == kind::IMAGE && record.text.ends_with(path.file_name().unwrap().as_encoded_bytes())
}

fn folded_later(traced: &Traced) -> String {
    finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0).stdout
}

#[test]
fn a_trace_read_later_gives_the_same_names_unless_the_file_is_another() {
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
    assert!(later.contains("launch_blocks native_reload.c:"), "the others have their names: {later}");
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
fn a_file_without_a_build_id_is_known_by_its_time() {
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
