//! Native stacks: every launch's C, C++ and Python frames in their order, named from the files that were mapped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputrace_collector::batch::Definition;
use gputrace_wire::definition::kind;

use crate::handlers;
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::told::Told;
use crate::harness::tool::{self, Traced, count, dropped, gputrace, run_with};
use crate::python_stacks::interpreters;
use crate::torch_stacks;

const NATIVE: [&str; 2] = ["--stacks", "native"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Compiles without frame pointers, and links to the driver.
fn build(compiler: &str, source: &Path, options: &[&str], to: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-fomit-frame-pointer", "-pthread", "-Wall", "-Wno-unused-function"]).args(options);
    command.arg("-I").arg(source.parent().unwrap()).arg("-o").arg(to).arg(source);
    command.arg("-L").arg(tool::simulated_folder()).args(["-l:libcuda.so.1", "-ldl"]);
    let output = command.output().unwrap_or_else(|error| panic!("{compiler} is needed: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The line of a program that bears the mark `line: NAME`.
fn line(program: &str, mark: &str) -> usize {
    let text = fs::read_to_string(source(program)).unwrap();
    let found = text.lines().position(|line| line.contains(&format!("/* line: {mark} */")));
    found.unwrap_or_else(|| panic!("no line {mark}")) + 1
}

/// The frames of each folded line, from the thread's on to the call.
fn stacks(folded: &str) -> Vec<Vec<String>> {
    let of_line = |line: &str| {
        let (frames, weight) = line.rsplit_once(' ').unwrap();
        assert!(weight.parse::<u64>().is_ok(), "{line}");
        let frames: Vec<String> = frames.split(';').map(str::to_owned).collect();
        let call = frames.iter().rposition(|frame| frame.starts_with("cuLaunch")).unwrap();
        frames[2..call].to_vec()
    };
    folded.lines().map(of_line).collect()
}

#[track_caller]
fn assert_one(stacks: &[Vec<String>], expected: &[String]) {
    assert!(stacks.iter().any(|stack| stack == expected), "{expected:#?}\nis not among {stacks:#?}");
}

/// Only those parts of a stack that a test knows all about, by function.
fn functions<'s>(stack: &'s [String], known: &[&str]) -> Vec<&'s str> {
    let names = stack.iter().map(|frame| frame.split(' ').next().unwrap());
    names.filter(|name| known.contains(name)).collect()
}

const CHAIN: [&str; 12] = [
    "main",
    "compared",
    "with_variable_room",
    "with_aligned",
    "with_room",
    "inlined",
    "launch_blocks",
    "in_thread",
    "interrupted",
    "in_handler",
    "deep",
    "[truncated]",
];

fn chain(options: &[&str]) -> (Traced, Folder) {
    let folder = Folder::new();
    let program = folder.join("native_chain");
    build("cc", &source("native_chain.c"), options, &program);
    (run_with(&NATIVE, &program).succeed(), folder)
}

#[test]
fn calls_are_told_with_their_lines_and_what_was_inlined() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    assert_eq!(stacks.len(), 6, "{stacks:#?}");
    let at = |mark: &str| {
        let function = mark.split('.').next().unwrap();
        format!("{function} native_chain.c:{}", line("native_chain.c", mark))
    };
    let text = fs::read_to_string(source("native_chain.c")).unwrap();
    let call = text.lines().position(|line| line.contains("OK(cuLaunchKernel(")).unwrap() + 1;
    let mut expected: Vec<String> = ["main", "with_variable_room", "with_aligned", "with_room", "inlined"]
        .iter()
        .map(|mark| at(mark))
        .collect();
    expected.push(format!("launch_blocks native_chain.c:{call}"));
    assert_one(&stacks, &expected);
    // Through the C library's sort, on the way there and back.
    let sorted = stacks.iter().find(|stack| stack.iter().any(|frame| frame.starts_with("compared"))).unwrap();
    let known = functions(sorted, &CHAIN);
    assert_eq!(known[0], "main");
    assert_eq!(
        known[known.len() - 5..],
        ["with_variable_room", "with_aligned", "with_room", "inlined", "launch_blocks"]
    );
    let report = traced.report();
    let charged = &report["lines"][0];
    assert_eq!(
        (charged["function"].as_str(), charged["line"].as_u64()),
        (Some("launch_blocks"), Some(call as u64))
    );
    assert_eq!(charged["charged_calls"], 6);
    let lines = report["lines"].as_array().unwrap();
    let own: Vec<_> = lines.iter().filter(|line| line["own"] == true).map(|line| &line["path"]).collect();
    assert!(
        own.len() >= 6 && own.iter().all(|path| **path == *source("native_chain.c").to_str().unwrap()),
        "{own:?}"
    );
}

#[test]
fn threads_begin_with_the_programs_own_function() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let in_thread = stacks.iter().find(|stack| stack[0].starts_with("in_thread")).unwrap();
    assert_eq!(functions(in_thread, &CHAIN), ["in_thread", "with_room", "inlined", "launch_blocks"]);
    assert_eq!(in_thread.len(), 4, "{in_thread:?}");
}

#[test]
fn signal_handlers_are_followed_to_what_they_interrupted() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    // One on a stack of its own, one not.
    let raised: Vec<_> =
        stacks.iter().filter(|stack| stack[1..].iter().any(|f| f.starts_with("interrupted"))).collect();
    assert_eq!(raised.len(), 2, "{stacks:#?}");
    for stack in raised {
        let known = functions(stack, &CHAIN);
        assert_eq!(known[..2], ["main", "interrupted"]);
        assert_eq!(known[known.len() - 3..], ["with_room", "inlined", "launch_blocks"]);
    }
}

#[test]
fn a_deep_recursion_is_cut_and_marked() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let deep = stacks.iter().find(|stack| stack.len() > 100).unwrap();
    assert_eq!(deep[0], "[truncated]");
    assert!((250..=256).contains(&deep.len()), "{}", deep.len());
    assert!(deep[1..deep.len() - 1].iter().all(|frame| frame.starts_with("deep native_chain.c")));
}

#[test]
fn a_program_without_symbols_is_told_by_addresses() {
    let (traced, folder) = chain(&["-s"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let own = |frame: &String| frame.starts_with("[native_chain+0x") && frame.ends_with(']');
    // main and four of its functions, of which none is inlined for all that can be known.
    assert!(stacks.iter().any(|stack| stack.len() == 5 && stack.iter().all(own)), "{stacks:#?}");
    // The same addresses in a program with symbols are those functions.
    let named = folder.join("named");
    build("cc", &source("native_chain.c"), &[], &named);
    let traced = run_with(&NATIVE, &named).succeed();
    let stacks = self::stacks(&traced.read("flame.folded"));
    let functions = ["main", "with_variable_room", "with_aligned", "with_room", "launch_blocks"];
    assert_one(&stacks, &functions.map(|function| format!("{function} named")));
    let lines = traced.report()["lines"].as_array().unwrap().clone();
    assert!(
        lines.iter().any(|line| line["function"] == "launch_blocks" && line["line"].is_null()),
        "{lines:#?}"
    );
}

#[test]
fn names_of_cpp_are_told_as_in_the_source() {
    let folder = Folder::new();
    let program = folder.join("native_names");
    build("c++", &source("native_names.cpp"), &[], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let stacks = stacks(&traced.read("flame.folded"));
    let expected = [
        "main native_names",
        "simulation::Grid::step native_names",
        "simulation::Grid::step(char const*, int)::{lambda(int)#1}::operator() const native_names",
        "simulation::Grid::operator< native_names",
        "simulation::(anonymous namespace)::relax<double> native_names",
    ];
    assert_one(&stacks, &expected.map(str::to_owned));
}

#[test]
fn odd_file_names_keep_folded_lines_apart() {
    let folder = Folder::new();
    let odd = folder.join("odd;name\n 7.c");
    fs::copy(source("native_names.cpp"), &odd).unwrap();
    fs::copy(source("driver.h"), folder.join("driver.h")).unwrap();
    let program = folder.join("odd;program 9");
    build("c++", &odd, &["-g", "-x", "c++"], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let folded = traced.read("flame.folded");
    assert_eq!(folded.lines().count(), 1, "{folded}");
    let stacks = stacks(&folded);
    assert!(stacks[0][0].starts_with("main odd:name"), "{folded}");
    assert!(stacks[0].len() >= 5);
}

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

#[test]
fn stacks_that_no_table_describes_end_with_a_mark() {
    let folder = Folder::new();
    let program = folder.join("native_odd");
    build("cc", &source("native_odd.c"), &["-g"], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let told = Told::of(&traced);
    assert_eq!(told.launches.len(), 130);
    assert!(told.launches.iter().all(|(_, stack)| *stack != 0));
    let stacks = stacks(&traced.read("flame.folded"));
    let call = |frame: &str| frame.starts_with("launch_blocks native_odd.c:");
    assert!(
        stacks.iter().any(|stack| stack.len() == 2 && stack[0] == "[truncated]" && call(&stack[1])),
        "made code"
    );
    for function in [
        "too_high",
        "far_away",
        "too_low",
        "same_place",
        "between",
        "other_register",
        "by_frame_pointer",
        "by_program",
    ] {
        let found = stacks.iter().find(|stack| stack.contains(&format!("{function} native_odd")));
        let found = found.unwrap_or_else(|| panic!("{function} is not among {stacks:#?}"));
        assert!(found[0] == "[truncated]" && call(found.last().unwrap()), "{found:?}");
    }
    assert!(stacks.iter().any(|stack| stack[0] == "nowhere native_odd" && call(&stack[1])));
    let own =
        stacks.iter().find(|stack| stack.iter().any(|frame| frame.starts_with("in_coroutine"))).unwrap();
    assert!(own[0] == "[truncated]" && own[own.len() - 2].starts_with("in_coroutine"), "{own:?}");
}

#[test]
fn native_frames_are_told_only_where_they_are_asked_for() {
    let folder = Folder::new();
    let program = folder.join("native_chain");
    build("cc", &source("native_chain.c"), &["-g"], &program);
    let options: [&[&str]; 3] = [&[], &["--stacks", "python,nvtx"], &["--stacks", "none"]];
    for options in options {
        let told = Told::of(&run_with(options, &program).succeed());
        let any = told.definitions.values().any(|record| [kind::IMAGE, kind::STACK].contains(&record.kind));
        assert!(!any && told.launches.iter().all(|(_, stack)| *stack == 0), "{options:?}");
    }
}

/// C functions stand between the Python functions that called them and those that they called back, and nothing of the
/// interpreter does.
#[test]
fn c_frames_stand_among_pythons_where_they_belong() {
    let test = "native_stacks::c_frames_stand_among_pythons_where_they_belong";
    let folder = Folder::new();
    let library = folder.join("native_callback.so");
    build("cc", &source("native_callback.c"), &["-g", "-shared", "-fPIC"], &library);
    for (minor, python) in interpreters(test) {
        let options = ["--stacks", "python,native,nvtx"];
        let traced = run_with(&options, &python).arg(source("native_python.py")).arg(&library).succeed();
        let stacks = stacks(&traced.read("flame.folded"));
        let known = [
            "<module>",
            "main",
            "plain",
            "through_c",
            "through_c_twice",
            "twice_outer",
            "outer_c",
            "middle_c",
            "called_back",
            "inside",
            "launch",
            "launch_c",
            "generated",
            "in_thread",
        ];
        let each: Vec<Vec<&str>> = stacks.iter().map(|stack| functions(stack, &known)).collect();
        let expected: [&[&str]; 5] = [
            &["<module>", "main", "plain", "launch", "launch_c"],
            &[
                "<module>",
                "main",
                "through_c",
                "outer_c",
                "middle_c",
                "called_back",
                "inside",
                "launch",
                "launch_c",
            ],
            &[
                "<module>",
                "main",
                "through_c_twice",
                "outer_c",
                "middle_c",
                "twice_outer",
                "outer_c",
                "middle_c",
                "called_back",
                "inside",
                "launch",
                "launch_c",
            ],
            &["<module>", "main", "generated", "launch", "launch_c"],
            &["in_thread", "outer_c", "middle_c", "launch", "launch_c"],
        ];
        for expected in expected {
            assert!(
                each.iter().any(|stack| stack == expected),
                "3.{minor}: {expected:?}\nis not among {each:#?}"
            );
        }
        assert_eq!(each.len(), 5, "3.{minor}: {stacks:#?}");
        let files = [format!(" python3.{minor}"), format!(" libpython3.{minor}")];
        let internals =
            ["_PyEval", "PyEval", "_PyObject_", "PyObject_", "_start", "__libc_start", "Py_BytesMain"];
        for frame in stacks.iter().flatten() {
            let of_interpreter = files.iter().any(|file| frame.contains(file.as_str()))
                || internals.iter().any(|begin| frame.starts_with(begin));
            assert!(!of_interpreter, "3.{minor}: {frame} of {stacks:#?}");
            assert!(frame != "[frames missing]" && frame != "[truncated]", "3.{minor}: {stacks:#?}");
        }
    }
}

/// What a pass's own frames tell is inside of what its caller's stack tells, on the caller's thread as on another.
#[test]
fn a_backward_pass_tells_each_native_frame_once() {
    let test = "native_stacks::a_backward_pass_tells_each_native_frame_once";
    let engine = torch_stacks::engine(&[]);
    for (minor, python) in interpreters(test) {
        let options = ["--stacks", "python,native,nvtx"];
        let traced = torch_stacks::traced(&python, &options, &engine, &["train"]);
        let known = [
            "<module>",
            "main",
            "train",
            "backward",
            "[autograd]",
            "MmBackward0",
            "torch::autograd::Engine::execute_with_graph_task",
            "torch::autograd::evaluate",
            "torch::autograd::Node::run",
            "torch::autograd::launch",
        ];
        let folded = traced.read("flame.folded");
        for (kernel, begins) in [("on_caller", true), ("first", false)] {
            let line = folded.lines().find(|line| line.contains(&format!(";{kernel} "))).unwrap();
            let stack = stacks(line).remove(0);
            let expected: Vec<&str> =
                known.iter().filter(|name| begins || !name.ends_with("_graph_task")).copied().collect();
            assert_eq!(functions(&stack, &known), expected, "3.{minor}: {stack:#?}");
            let pass = stack.iter().position(|frame| frame == "[autograd]").unwrap();
            let inside = &stack[pass + 2..];
            assert!(inside.iter().all(|frame| frame.ends_with(" libtorch_cpu.so")), "3.{minor}: {inside:#?}");
        }
    }
}

#[test]
fn the_smallest_stacks_are_large_enough_for_native_frames() {
    for (how, launches) in [("return", 7), ("thread", 5), ("thread_at_once", 5), ("handler", 7)] {
        let traced = run_with(&NATIVE, compiled("small_stacks", Link::Driver)).arg(how).go().expect_code(5);
        assert_eq!(count(&traced.report(), "launches"), launches, "{how}");
        let told = Told::of(&traced);
        assert!(told.launches.iter().all(|(_, stack)| *stack != 0), "{how}");
    }
}

#[test]
fn thousands_of_short_lived_threads_tell_their_frames() {
    let traced = run_with(&NATIVE, compiled("thread_storm", Link::Driver)).succeed();
    let report = traced.report();
    assert_eq!((count(&report, "launches"), dropped(&report)), (4000, 0));
    assert!(Told::of(&traced).launches.iter().all(|(_, stack)| *stack != 0));
}

/// A handler interrupts hooks that read stacks, and launches or forks there.
#[test]
fn handlers_may_launch_and_fork_while_frames_are_read() {
    for (how, handlers) in [("launches", "3000"), ("forks", "700")] {
        let folder = Folder::new();
        let driver = handlers::driver(&folder);
        let program = compiled("handler_storm", Link::Driver);
        let mut run = gputrace();
        run.args(["run", "--device-times", "off", "--stacks", "python,native,nvtx", "-o"])
            .arg(folder.join("out"));
        run.arg("--").arg(program).args([how, handlers]).env("LD_LIBRARY_PATH", &driver);
        let ended = finish(&mut run).expect_code(0);
        assert!(ended.stdout.contains("failed 0\n"), "{}", ended.stdout);
        let (in_main, in_handler) = handlers::launched(&ended);
        let expected = if how == "forks" { in_main } else { in_main + in_handler };
        let report = tool::report(&[folder.join("out/trace.gputrace")]);
        assert_eq!(count(&report, "launches") + dropped(&report), expected, "{how}: {report:#}");
    }
}
