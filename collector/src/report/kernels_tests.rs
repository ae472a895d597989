//! Source locations of kernels, as data and in the summary.

use gputrace_wire::definition::kind;

use crate::batch::Counters;
use crate::report::tests::tape::Tape;
use crate::report::{Report, SourceReport, TextOptions};
use crate::source::kernels_tests::{called, joined};

const FUSED: &str = "triton_poi_fused_mul_tanh_0";

/// Two kernels of one name, one from each cubin, and a kernel of another name.
fn report(cubins: [&str; 2]) -> Report {
    let mut tape = Tape::new(false);
    tape.define(kind::NAME, 60, &[], FUSED.as_bytes());
    for (index, cubin) in (0..).zip(cubins) {
        let (piece, module) = (200 + index, 210 + index);
        if cubin == NONE {
            tape.define(kind::MODULE, module, &[0, 0, 0, 0], b"");
        } else {
            let lines = called(&joined(cubin), FUSED);
            tape.define(kind::LINES, piece, &[0], &lines);
            tape.define(kind::MODULE, module, &[0, 0, piece.into(), lines.len() as u64], b"");
        }
        // The tape launches the function whose id is the name's plus ten.
        tape.define(kind::FUNCTION, 70 + index, &[0, 60, module.into(), 32], b"");
    }
    tape.launch(60, 128, Some(1_000));
    tape.launch(22, 128, Some(2_000));
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

fn source(line: u32) -> SourceReport {
    SourceReport { file: "/tmp/example/kernels.py".to_owned(), line }
}

#[test]
fn kernels_of_one_name_have_all_their_sources() {
    let report = report(["add_one.cubin", "row_sums.cubin"]);
    let found: Vec<_> =
        report.kernels.iter().map(|k| (&*k.name, k.source.clone(), k.other_sources.clone())).collect();
    let other = "triton_red_fused_native_layer_norm_3";
    assert_eq!(found, [(other, None, vec![]), (FUSED, Some(source(7)), vec![source(19)])]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let kernel = &json["kernels"][1];
    assert_eq!(kernel["source"], serde_json::json!({"file": "/tmp/example/kernels.py", "line": 7}));
}

/// Instead of a cubin: a module without lines.
const NONE: &str = "";

#[test]
fn kernels_of_one_name_have_no_source_if_one_is_unknown() {
    for cubins in [["add_one.cubin", NONE], [NONE, "add_one.cubin"]] {
        let report = report(cubins);
        let kernel = report.kernels.iter().find(|kernel| kernel.name == FUSED).unwrap();
        assert_eq!((&kernel.source, &kernel.other_sources[..]), (&None, &[source(7)][..]), "{cubins:?}");
        let text = report.to_text(&TextOptions { width: 160, ..TextOptions::default() });
        assert!(!text.contains("kernels.py"), "{text}");
    }
}

#[test]
fn source_location_is_followed_by_the_number_of_others() {
    let report = report(["add_one.cubin", "row_sums.cubin"]);
    for (width, is_there) in [(160, true), (80, false)] {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        assert_eq!(text.contains(&format!("\n{FUSED}  kernels.py:7 +1 ")), is_there, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}

#[test]
fn source_location_is_shown_on_wide_pages_only() {
    let report = report(["add_one.cubin", "add_one.cubin"]);
    let text = |width| report.to_text(&TextOptions { width, ..TextOptions::default() });
    for (width, is_there) in [(160, true), (100, true), (80, false)] {
        let text = text(width);
        assert_eq!(text.contains(&format!("\n{FUSED}  kernels.py:7 ")), is_there, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}
