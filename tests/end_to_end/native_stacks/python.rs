//! Native frames among Python's, and those of PyTorch's backward passes.

use super::{build, functions, source, stacks};
use crate::harness::folder::Folder;
use crate::harness::tool::run_with;
use crate::python_stacks::interpreters;
use crate::torch_stacks;

/// C functions are between the Python functions that called them and those that they called back. The
/// interpreter's own functions are left out.
#[test]
fn c_frames_are_among_pythons_where_they_belong() {
    let test = "native_stacks::python::c_frames_are_among_pythons_where_they_belong";
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

/// A pass's own frames are inside of its caller's stack, on the caller's thread and on another.
#[test]
fn backward_pass_has_each_native_frame_once() {
    let test = "native_stacks::python::backward_pass_has_each_native_frame_once";
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
