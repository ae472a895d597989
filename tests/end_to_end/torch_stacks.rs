//! What PyTorch's threads launch: charged to the line that called `backward()`, and to operators.
//!
//! The engine is a stand-in of forty lines with PyTorch's own symbols, in the two forms that they have had.
//! `pytorch_itself_has_its_stacks` and the tests on a GPU cover PyTorch itself.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::harness::folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool::{self, Traced, run_with};
use crate::python_stacks::interpreters;

/// Both forms of the engine's symbols: nodes that are counted beside themselves, and within.
const FORMS: [&[&str]; 2] = [&[], &["-DINTRUSIVE"]];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A folder with the engine's two libraries, compiled once.
pub fn engine(flags: &[&str]) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = folder::base().join("programs").join(format!("torch-engine{}", flags.concat()));
    if let Some(folder) = compiled.get(&flags.concat()) {
        return folder.clone();
    }
    fs::create_dir_all(&folder).unwrap();
    let compile = |name: &str, more: &[&str]| {
        let temporary = folder.join(format!("{name}.{}", std::process::id()));
        let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]);
        command.args(["-fPIC", "-shared", "-pthread"]).args(flags).arg("-o").arg(&temporary);
        command.arg(sources().join("torch_engine.cpp")).arg("-L").arg(tool::simulated_folder()).arg("-L");
        command.arg(&folder).args(more);
        let output = command.output().expect("a C++ compiler (c++) is needed");
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&temporary, folder.join(name)).unwrap();
    };
    compile("libtorch_cpu.so", &["-l:libcuda.so.1"]);
    // By its path, so that two of them can be in one process.
    compile("libtorch_python.so", &["-DPYTHON", folder.join("libtorch_cpu.so").to_str().unwrap()]);
    compiled.insert(flags.concat(), folder.clone());
    folder
}

fn line(mark: &str) -> usize {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| fs::read_to_string(sources().join("torch_stacks.py")).unwrap());
    let mark = format!("  # {mark}");
    1 + text.lines().position(|line| line.ends_with(&mark)).unwrap_or_else(|| panic!("no {mark}"))
}

/// `train torch_stacks.py:70`, with the name as that version knows it.
fn at(minor: u32, function: &str, mark: &str) -> String {
    let function = if minor < 11 { function.rsplit('.').next().unwrap() } else { function };
    format!("{function} torch_stacks.py:{}", line(mark))
}

pub fn traced(python: &Path, options: &[&str], folder: &Path, arguments: &[&str]) -> Traced {
    let mut run = run_with(options, python).arg(sources().join("torch_stacks.py")).arg(folder);
    for argument in arguments {
        run = run.arg(argument);
    }
    run.go().expect_code(0)
}

/// By kernel: the frames between the thread and the call, without the program's helpers, and how often it was
/// launched there (kernels take 10 µs each).
fn charged(traced: &Traced) -> BTreeMap<String, Vec<(String, u64)>> {
    let mut charged: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for line in traced.read("flame.folded").lines() {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        let Some((callers, kernel)) = stack.split_once(";cuLaunchKernel;") else { continue };
        let frames = callers.split(';').skip(1).filter(|frame| {
            let helpers = ["<module> ", "main ", "Thread.", "run ", "_bootstrap"];
            !helpers.iter().any(|helper| frame.starts_with(helper))
        });
        let count = us.parse::<u64>().unwrap() / 10;
        charged.entry(kernel.to_owned()).or_default().push((frames.collect::<Vec<_>>().join(" > "), count));
    }
    charged
}

#[track_caller]
fn expect(traced: &Traced, what: &str, kernel: &str, stacks: &[(String, u64)]) {
    let mut found = charged(traced).remove(kernel).unwrap_or_default();
    let mut wanted = stacks.to_vec();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted, "{kernel}, {what}\n{}", traced.read("flame.folded"));
}

/// Runs `body` with each interpreter, and each form of the engine in turn.
fn each(test: &str, mut body: impl FnMut(u32, &Path, &Path, &str)) {
    for (index, (minor, python)) in interpreters(test).into_iter().enumerate() {
        let flags = FORMS[index % FORMS.len()];
        body(minor, &python, &engine(flags), &format!("Python 3.{minor}, {flags:?}"));
    }
}

#[test]
fn launches_of_the_engine_s_thread_are_charged_to_the_line_that_called_backward() {
    let test = "torch_stacks::launches_of_the_engine_s_thread_are_charged_to_the_line_that_called_backward";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["train"]);
        let caller = at(minor, "train", "first");
        for (kernel, node) in [("first", "MmBackward0"), ("second", "AccumulateGrad"), ("third", "Hidden")] {
            expect(&traced, what, kernel, &[(format!("pt_autograd_0 > {caller} > [autograd] > {node}"), 1)]);
        }
        // A node that runs on the calling thread has the caller's frames once.
        let caller = at(minor, "train", "second");
        expect(
            &traced,
            what,
            "other",
            &[(format!("pt_autograd_0 > {caller} > [autograd] > MmBackward0"), 1)],
        );
        expect(&traced, what, "on_caller", &[(format!("main > {caller} > [autograd] > MmBackward0"), 1)]);
        // The table of lines charges them to the caller's line, too.
        let report = traced.report();
        let rows = report["lines"].as_array().unwrap();
        let of_line = rows.iter().find(|row| row["line"] == line("first") as u64).unwrap();
        assert_eq!(of_line["charged_ns"], 30_000, "{what}: {of_line:#}");
    });
}

#[test]
fn backward_pass_has_the_frames_of_the_forward_pass() {
    let test = "torch_stacks::backward_pass_has_the_frames_of_the_forward_pass";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["forward"]);
        let passes = format!("pt_autograd_0 > {} > [autograd]", at(minor, "forward", "forward"));
        let (block, line) =
            (at(minor, "forward", "in block"), at(minor, "forward.<locals>.block", "of block"));
        expect(&traced, what, "one", &[(format!("{passes} > {block} > {line} > MmBackward0"), 1)]);
        // The operator between two others launched nothing: what these two share is known.
        expect(&traced, what, "two", &[(format!("{passes} > {block} > MmBackward0"), 1)]);
        // A thread that never called `backward()`, whose nodes have numbers that the other's have too.
        let other = at(minor, "forward", "another thread's");
        expect(&traced, what, "other", &[(format!("pt_autograd_0 > {other} > [autograd] > MmBackward0"), 1)]);
        // The operator's own launches and the backward pass's are one line's.
        let report = traced.report();
        let rows = report["lines"].as_array().unwrap();
        let of_line = rows.iter().find(|row| row["line"] == self::line("of block") as u64).unwrap();
        assert_eq!(of_line["charged_ns"], 20_000, "{what}: {of_line:#}");
    });
}

#[test]
fn steps_are_those_of_the_thread_that_calls_backward() {
    let test = "torch_stacks::steps_are_those_of_the_thread_that_calls_backward";
    let Some((_, python)) = newest(test) else { return };
    let report = traced(&python, &[], &engine(FORMS[0]), &["steps"]).report();
    let [steps] = &report["steps"].as_array().unwrap()[..] else { panic!("{:#}", report["steps"]) };
    assert_eq!(
        (&steps["steps"], &steps["first_line"]["line"]),
        (&8.into(), &line("step").into()),
        "{steps:#}"
    );
}

#[test]
fn node_of_another_layout_has_no_forward_pass() {
    let test = "torch_stacks::node_of_another_layout_has_no_forward_pass";
    let Some((minor, python)) = newest(test) else { return };
    let traced = traced(&python, &[], &engine(&["-DODD"]), &["forward"]);
    let stack = format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "forward", "forward"));
    for kernel in ["one", "two", "first"] {
        expect(&traced, "another layout", kernel, &[(stack.clone(), 1)]);
    }
}

#[test]
fn nodes_in_python_and_nested_passes_are_under_the_outer_call() {
    let test = "torch_stacks::nodes_in_python_and_nested_passes_are_under_the_outer_call";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["custom"]);
        let outer = format!("pt_autograd_0 > {} > [autograd]", at(minor, "custom", "custom"));
        expect(&traced, what, "outer", &[(format!("{outer} > MmBackward0"), 1)]);
        let python_frames = format!(
            "{outer} > {} > {}",
            at(minor, "custom.<locals>.of_node", "python"),
            at(minor, "launch", "launch")
        );
        expect(&traced, what, "python", &[(python_frames, 1)]);
        let inner = at(minor, "custom.<locals>.of_node", "inner");
        expect(&traced, what, "inner", &[(format!("{outer} > {inner} > [autograd] > MmBackward0"), 1)]);
    });
}

#[test]
fn node_s_exception_reaches_the_caller_and_the_next_pass_is_right() {
    let test = "torch_stacks::node_s_exception_reaches_the_caller_and_the_next_pass_is_right";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["failing"]);
        assert_eq!(traced.ended.stdout, "through\n");
        let stack =
            |mark| format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "failing", mark));
        expect(&traced, what, "thrown", &[(stack("failing"), 1)]);
        expect(&traced, what, "caught", &[(stack("after failing"), 1)]);
    });
}

#[test]
fn pass_whose_begin_was_not_seen_gets_no_wrong_caller() {
    let test = "torch_stacks::pass_whose_begin_was_not_seen_gets_no_wrong_caller";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["unnoticed"]);
        let stack =
            |mark| format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "unnoticed", mark));
        expect(&traced, what, "one", &[(stack("one"), 1)]);
        expect(&traced, what, "two", &[(stack("two"), 1)]);
        expect(&traced, what, "other", &[(stack("behind"), 1)]);
        expect(&traced, what, "unnoticed", &[("pt_autograd_0 > [autograd] > MmBackward0".to_owned(), 1)]);
        expect(&traced, what, "afterwards", &[("pt_autograd_0".to_owned(), 1)]);
    });
}

/// Also where the engine's functions do not say in a known way where a pass has its number.
#[test]
fn pass_whose_begin_was_not_seen_after_an_empty_one_has_no_caller() {
    let test = "torch_stacks::pass_whose_begin_was_not_seen_after_an_empty_one_has_no_caller";
    let Some((minor, python)) = newest(test) else { return };
    for form in [FORMS[0], FORMS[1], &["-DODD"]] {
        let traced = traced(&python, &[], &engine(form), &["nothing"]);
        let what = format!("{form:?}");
        let stack =
            format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "nothing", "after nothing"));
        expect(&traced, &what, "other", &[(stack, 1)]);
        expect(&traced, &what, "unnoticed", &[("pt_autograd_0 > [autograd] > MmBackward0".to_owned(), 1)]);
    }
}

#[test]
fn two_threads_in_backward_at_once_are_each_charged_their_own() {
    let test = "torch_stacks::two_threads_in_backward_at_once_are_each_charged_their_own";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &[], folder, &["at_once"]);
        for kernel in ["one", "two"] {
            let caller = at(minor, &format!("at_once.<locals>.{kernel}"), &format!("of {kernel}"));
            expect(
                &traced,
                what,
                kernel,
                &[(format!("pt_autograd_0 > {caller} > [autograd] > MmBackward0"), 200)],
            );
        }
    });
}

/// As PyTorch's threads are before 2.6: they are not asked, and whoever calls `backward()` is.
#[test]
fn unnamed_threads_of_an_engine_have_no_callers() {
    let test = "torch_stacks::unnamed_threads_of_an_engine_have_no_callers";
    let Some((minor, python)) = newest(test) else { return };
    let traced = traced(&python, &[], &engine(&["-DNAMELESS"]), &["train"]);
    let charged = charged(&traced);
    for kernel in ["first", "second", "third", "other"] {
        let [(stack, 1)] = &charged[kernel][..] else { panic!("{kernel}: {charged:?}") };
        assert!(!stack.contains(" > "), "{kernel}: {stack}");
    }
    let caller = at(minor, "train", "second");
    let stack = format!("main > {caller} > [autograd] > MmBackward0");
    expect(&traced, "no names", "on_caller", &[(stack, 1)]);
}

/// One interpreter is enough where the interpreter does not matter.
fn newest(test: &str) -> Option<(u32, PathBuf)> {
    interpreters(test).pop()
}

#[test]
fn copies_of_the_engine_in_one_process_are_distinguished() {
    let test = "torch_stacks::copies_of_the_engine_in_one_process_are_distinguished";
    let Some((minor, python)) = newest(test) else { return };
    let other = engine(FORMS[1]);
    let traced = traced(&python, &[], &engine(FORMS[0]), &["both", other.to_str().unwrap()]);
    for (kernel, copy, mark, node) in [
        ("one", 1, "of the one", "MmBackward0"),
        ("two", 2, "of the other", "MmBackward0"),
        ("alone", 1, "of the one again", "AccumulateGrad"),
    ] {
        let stack = format!("pt_autograd_0 [{copy}] > {} > [autograd] > {node}", at(minor, "both", mark));
        expect(&traced, "two copies", kernel, &[(stack, 1)]);
    }
}

#[test]
fn passes_from_before_the_session_and_without_stacks_change_nothing() {
    let test = "torch_stacks::passes_from_before_the_session_and_without_stacks_change_nothing";
    let Some((minor, python)) = newest(test) else { return };
    let late = traced(&python, &[], &engine(FORMS[0]), &["late"]);
    let stack = format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "train", "first"));
    expect(&late, "late", "first", &[(stack, 1)]);
    let none = traced(&python, &["--stacks", "none"], &engine(FORMS[0]), &["train"]);
    expect(&none, "no stacks", "first", &[("pt_autograd_0".to_owned(), 1)]);
}

#[test]
fn engine_that_is_bound_past_us_has_no_callers() {
    let test = "torch_stacks::engine_that_is_bound_past_us_has_no_callers";
    let Some((_, python)) = newest(test) else { return };
    let traced = traced(&python, &[], &engine(FORMS[1]), &["deep"]);
    assert_eq!(traced.ended.stdout, "through\n");
    // So is the driver, in this program.
    let folded = traced.read("flame.folded");
    for kernel in ["first", "second", "third"] {
        assert!(folded.contains(&format!("(no host call);{kernel} 10\n")), "{folded}");
    }
}

#[test]
fn symbols_of_a_missing_engine_are_not_found() {
    let test = "torch_stacks::symbols_of_a_missing_engine_are_not_found";
    let Some((_, python)) = newest(test) else { return };
    let names = ["shared_ptr", "intrusive"].map(|form| {
        let text = fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("interpose/src/frames/torch/mod.rs"),
        )
        .unwrap();
        let of_form = |name: &&str| (form == "intrusive") == name.contains("intrusive");
        let mut names = text.split('"').filter(|word| word.starts_with("_ZN5torch"));
        names.find(of_form).unwrap().to_owned()
    });
    for (flags, name) in FORMS.iter().zip(&names) {
        let folder = engine(flags);
        let plain = finish(
            Command::new(&python)
                .arg(sources().join("torch_stacks.py"))
                .args([folder.to_str().unwrap(), "probes", name])
                .env("LD_LIBRARY_PATH", tool::simulated_folder()),
        )
        .expect_code(0);
        assert_eq!(plain.stdout, "True\nTrue\nthrough\n");
        assert_eq!(traced(&python, &[], &folder, &["probes", name]).ended.stdout, plain.stdout);
    }
}

#[test]
fn engine_that_nobody_defines_ends_the_program_as_the_loader_would() {
    let test = "torch_stacks::engine_that_nobody_defines_ends_the_program_as_the_loader_would";
    let Some((_, python)) = newest(test) else { return };
    // The part that programs call, of the one form, and the engine of the other.
    let folder = folder::base().join("programs/torch-engine-mixed");
    fs::create_dir_all(&folder).unwrap();
    let mixed = folder.join(format!("libtorch_python.so.{}", std::process::id()));
    let other = engine(FORMS[0]).join("libtorch_cpu.so");
    let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-std=c++17", "-fPIC", "-shared", "-pthread", "-DPYTHON", "-DINTRUSIVE", "-o"]).arg(&mixed);
    let output = command.arg(sources().join("torch_engine.cpp")).arg(&other).output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&mixed, folder.join("libtorch_python.so")).unwrap();
    let arguments = [sources().join("torch_stacks.py"), folder.clone(), "unbound".into()];
    let plain = Command::new(&python)
        .args(&arguments)
        .env("LD_LIBRARY_PATH", tool::simulated_folder())
        .env_remove("LD_BIND_NOW")
        .output()
        .unwrap();
    let traced = run_with(&[], &python).arg(&arguments[0]).arg(&folder).arg("unbound").go();
    assert_eq!(plain.status.code(), Some(127), "{}", String::from_utf8_lossy(&plain.stderr));
    let traced = traced.expect_code(127);
    for said in [String::from_utf8_lossy(&plain.stderr).into_owned(), traced.ended.stderr.clone()] {
        assert!(
            said.contains("symbol lookup error") && said.contains("_ZN5torch8autograd6Engine23"),
            "{said}"
        );
    }
}

#[test]
fn operators_are_frames_on_request() {
    let test = "torch_stacks::operators_are_frames_on_request";
    each(test, |minor, python, folder, what| {
        let traced = traced(python, &["--torch-ops"], folder, &["operators"]);
        let here =
            |mark| format!("main > {} > {}", at(minor, "operators", mark), at(minor, "launch", "launch"));
        expect(&traced, what, "early", &[(format!("{} > step # > early: or\\nnot", here("early")), 1)]);
        expect(&traced, what, "late", &[(here("late"), 1)]);
        let caller = at(minor, "operators", "operators");
        let stack = format!("pt_autograd_0 > {caller} > [autograd] > MmBackward0 > aten::linear > aten::mm");
        expect(&traced, what, "first", &[(stack, 1)]);
        let report = traced.report();
        let of = |name: &str| {
            let list = report["operators"]["list"].as_array().unwrap();
            let row = list.iter().find(|row| row["name"] == name).unwrap();
            ["calls", "backward_calls", "self_calls"].map(|field| row[field].as_u64().unwrap())
        };
        assert_eq!((of("aten::linear"), of("aten::mm")), ([1, 1, 0], [1, 1, 1]), "{what}");
        assert_eq!(report["operators"]["outside"]["calls"], 2, "{what}");
        assert!(traced.read("summary.txt").contains("\nOperators (PyTorch) "), "{what}");
        let without = self::traced(python, &[], folder, &["operators"]);
        let stack = format!("pt_autograd_0 > {caller} > [autograd] > MmBackward0");
        expect(&without, what, "first", &[(stack, 1)]);
    });
}

#[test]
fn callbacks_of_another_layout_are_removed_and_reported() {
    let test = "torch_stacks::callbacks_of_another_layout_are_removed_and_reported";
    let Some((minor, python)) = newest(test) else { return };
    let traced = traced(&python, &["--torch-ops"], &engine(&["-DODD"]), &["operators"]);
    assert_eq!(traced.ended.stdout, "through\n");
    let stack = format!("pt_autograd_0 > {} > [autograd] > MmBackward0", at(minor, "operators", "operators"));
    expect(&traced, "another layout", "first", &[(stack, 1)]);
    assert!(traced.read("summary.txt").contains("no PyTorch operators"), "{}", traced.read("summary.txt"));
}

/// PyTorch itself, where GPUTRACE_TEST_TORCH names a Python that has it.
#[test]
fn pytorch_itself_has_its_stacks() {
    let Some(python) = env::var_os("GPUTRACE_TEST_TORCH").map(PathBuf::from) else {
        let why = "GPUTRACE_TEST_TORCH names no Python with PyTorch";
        return needs::skipped("torch_stacks::pytorch_itself_has_its_stacks", why);
    };
    let program = sources().join("torch_itself.py");
    let text = fs::read_to_string(&program).unwrap();
    let line = |mark: &str| 1 + text.lines().position(|line| line.ends_with(&format!("# {mark}"))).unwrap();
    let traced = run_with(&["--torch-ops"], &python).arg(&program).go().expect_code(0);
    assert_eq!(traced.ended.stdout, "in a node\nthrough\n");
    let folded = traced.read("flame.folded");
    // What stands before a kernel, of the program's own file and what is no line.
    let stacks = |kernel: &str| {
        let mut found: Vec<String> = Vec::new();
        for stack in folded.lines() {
            let stack = stack.rsplit_once(' ').unwrap().0;
            let Some((callers, named)) = stack.split_once(";cuLaunchKernel;") else { continue };
            if named == kernel {
                let frames = callers.split(';').skip(2).filter_map(|frame| {
                    match frame.split_once(" torch_itself.py:") {
                        Some((_, number)) => Some(number.to_owned()),
                        None => (!frame.contains(".py:")).then(|| frame.to_owned()),
                    }
                });
                found.push(
                    frames
                        .skip_while(|frame| frame.parse::<usize>().is_err())
                        .collect::<Vec<_>>()
                        .join(" > "),
                );
            }
        }
        found
    };
    // Without the line of the module that calls the function.
    let expect = |kernel: &str, frames: &[&dyn std::fmt::Display]| {
        let wanted = frames.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ");
        let found = stacks(kernel);
        assert!(
            found.len() == 1 && found[0].ends_with(&wanted),
            "{kernel}: {found:?}, not {wanted}\n{folded}"
        );
        assert_eq!(found[0].matches("[autograd]").count(), wanted.matches("[autograd]").count(), "{found:?}");
    };
    let (autograd, launch) = ("[autograd]", line("launch"));
    expect("node", &[&line("train"), &autograd, &line("node"), &launch]);
    expect("hook", &[&line("train"), &autograd, &"MulBackward0", &line("hook"), &launch]);
    expect("after", &[&line("after"), &launch]);
    let again = line("again");
    expect("inner", &[&again, &autograd, &autograd, &line("node"), &launch]);
    expect("ranged", &[&line("ranged"), &launch, &"my range"]);
    // All passes but a thread's first have the frames of the forward pass, and the operator's.
    for kernel in ["one", "two"] {
        let (first, node) =
            (format!("{} > {autograd}", line("threads")), format!("{} > {launch}", line("node")));
        let forward = format!("{} > {launch} > Launch", line("forward"));
        let mut found = stacks(kernel);
        found.sort_by_key(String::len);
        assert_eq!(found, [format!("{first} > {node}"), format!("{first} > {forward} > {node}")], "{kernel}");
    }
    // Run once as the program runs, and once as it is run again for the backward pass.
    let recomputed = stacks("recomputed");
    let in_pass = recomputed.iter().filter(|stack| stack.contains("[autograd]")).count();
    assert_eq!((recomputed.len(), in_pass), (2, 1), "{recomputed:?}");
    let launches = |kernel: &str| folded.lines().filter(|line| line.contains(&format!(";{kernel} "))).count();
    assert_eq!(launches("raised"), 1);
}
