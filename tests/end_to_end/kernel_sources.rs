//! Kernels of cubins with line tables: known with the file and line where they are written.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::tool::{Run, Traced, bare, dropped, run};
use crate::spans::exported;

fn cubin(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cubins").join(name)
}

fn loads(run: Run, form: &str, image: &str, kernels: &[&str]) -> Traced {
    kernels.iter().fold(run.arg(form).arg(cubin(image)), |run, kernel| run.arg(kernel)).succeed()
}

/// What the report says of where a kernel is written; it has run twice.
#[track_caller]
fn source(report: &Value, kernel: &str) -> Value {
    let kernels = report["kernels"].as_array().unwrap();
    let found: Vec<_> = kernels.iter().filter(|known| known["name"] == kernel).collect();
    assert_eq!(found.len(), 1, "{report:#}");
    assert_eq!((&found[0]["calls"], &found[0]["other_sources"]), (&json!(2), &json!([])));
    found[0]["source"].clone()
}

#[test]
fn triton_kernel_is_known_with_its_file_and_line() {
    for form in ["data", "file", "library", "graph"] {
        let traced = loads(
            if form == "file" { bare("cubin") } else { run("cubin") },
            form,
            "add_one.cubin",
            &["add_one"],
        );
        let report = traced.report();
        let expected = json!({"file": "/tmp/example/kernels.py", "line": 7});
        assert_eq!(source(&report, "add_one"), expected, "{form}");
        assert_eq!(dropped(&report), 0, "{report:#}");
        // A kernel of PTX says nothing.
        let other =
            report["kernels"].as_array().unwrap().iter().find(|kernel| kernel["name"] == "first_kernel");
        assert_eq!((&other.unwrap()["source"], &other.unwrap()["other_sources"]), (&Value::Null, &json!([])));
        let summary = traced.read("summary.txt");
        assert!(summary.contains("\nadd_one  kernels.py:7 "), "{summary}");
        assert!(summary.contains("\nfirst_kernel   "), "{summary}");
        // What reads folded stacks goes by the kernel's name.
        let folded = traced.read("flame.folded");
        assert!(folded.contains(";add_one ") && !folded.contains("kernels.py"), "{folded}");
        let (spans, _) = exported(&traced, &["--all"]);
        let of = |name: &str| -> Vec<_> {
            let of_name = spans.named(name).into_iter();
            of_name
                .map(|span| {
                    ["file.path", "line.number"].map(|key| span.attribute(&format!("gpu.code.{key}")))
                })
                .collect()
        };
        assert_eq!(
            of("cuda_kernel: add_one"),
            vec![[json!("/tmp/example/kernels.py"), json!(7)]; 2],
            "{form}"
        );
        assert_eq!(of("cuda_kernel: first_kernel"), [[Value::Null, Value::Null]]);
    }
}

#[test]
fn kernels_of_one_image_have_a_line_each() {
    let report = loads(run("cubin"), "data", "two.cubin", &["first", "second"]).report();
    assert_eq!(source(&report, "first"), json!({"file": "/tmp/example/first.cu", "line": 12}));
    assert_eq!(source(&report, "second"), json!({"file": "/tmp/example/include/second.cuh", "line": 140}));
    // The first line is the kernel's own, whatever was inlined.
    let report = loads(run("cubin"), "data", "row_sums.cubin", &["row_sums"]).report();
    assert_eq!(source(&report, "row_sums"), json!({"file": "/tmp/example/kernels.py", "line": 19}));
}

/// Nobody says how long an image is: what its header claims may lie where nothing is mapped.
#[test]
fn image_that_claims_more_than_there_is_harms_nothing() {
    let report = loads(run("cubin"), "lies", "add_one.cubin", &["add_one"]).report();
    assert_eq!(source(&report, "add_one"), Value::Null);
    assert_eq!(dropped(&report), 0, "{report:#}");
}
