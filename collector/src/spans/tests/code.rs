//! Source lines and stacks of spans.

use gputrace_wire::definition::{Code, line_table, stack};

use super::*;

/// A process with code objects of the program and of a library, and stacks of them.
fn feed(stacks: &[(u32, Vec<u64>)]) -> SpanFeed {
    let mut feed = SpanFeed::one(Sampling::default());
    let mut records = Vec::new();
    for (id, name, file, first_line) in [
        (20, "serve", "/srv/app/server.py", 10),
        (21, "forward", "/srv/app/model.py", 40),
        (22, "linear", "/usr/lib/python3.12/site-packages/torch/nn/functional.py", 7),
        (24, "launcher", "<string>", 5),
    ] {
        let said = Code {
            name: name.as_bytes(),
            file: file.as_bytes(),
            first_line,
            table_form: line_table::NONE,
            ..Code::default()
        };
        let text = [said.name, said.file, said.table].concat();
        records.push(Definition { kind: def::CODE, id, fields: said.fields().to_vec(), text });
    }
    let name = Definition { kind: def::NAME, id: 23, fields: vec![], text: b"[autograd]".to_vec() };
    records.push(name);
    for (id, fields) in stacks {
        records.push(Definition { kind: def::STACK, id: *id, fields: fields.clone(), text: Vec::new() });
    }
    feed.0.consume(&Batch::Definitions { process: 0, records });
    feed
}

fn launch_at(stack: u32, start_ticks: u64, duration_ticks: u64, correlation: u32) -> Cell {
    let call = Call::from_cell(&launch(start_ticks, duration_ticks, correlation)).unwrap();
    Call { stack, ..call }.to_cell()
}

/// The span of a kernel that was launched with that stack.
fn kernel_of(mut feed: SpanFeed, stack: u32) -> Span {
    feed.cells(0, &[launch_at(stack, 20 * US, 5 * US, 1)]);
    feed.records(0, &kernel(1, 30 * US, 500 * US));
    feed.end(0, 2_000 * US);
    let (spans, _) = feed.finish();
    named(&spans, "cuda_kernel: gemm").clone()
}

fn text(span: &Span, key: &str) -> String {
    match value(span, key) {
        Some(Value::Text(text)) => text.to_string(),
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn spans_have_the_innermost_user_line_and_the_whole_stack() {
    let begun = stack::NOT_BEGUN;
    let feed = feed(&[(30, vec![20, begun, 21, begun, 22, begun])]);
    let span = kernel_of(feed, 30);
    assert_eq!(text(&span, "code.function.name"), "forward");
    assert_eq!(text(&span, "code.file.path"), "/srv/app/model.py");
    assert_eq!(value(&span, "code.line.number"), Some(&Value::Number(40)));
    let expected = "  File \"/srv/app/server.py\", line 10, in serve\n  \
                    File \"/srv/app/model.py\", line 40, in forward\n  \
                    File \"/usr/lib/python3.12/site-packages/torch/nn/functional.py\", line 7, in linear\n";
    assert_eq!(text(&span, "code.stacktrace"), expected);
}

#[test]
fn functions_of_a_string_are_the_line_only_without_a_file() {
    let begun = stack::NOT_BEGUN;
    let stacks = [(30, vec![20, begun, 22, begun, 24, begun]), (31, vec![24, begun, 22, begun])];
    assert_eq!(text(&kernel_of(feed(&stacks), 30), "code.function.name"), "serve");
    assert_eq!(text(&kernel_of(feed(&stacks), 31), "code.file.path"), "<string>");
}

#[test]
fn backward_pass_has_the_line_that_called_it() {
    let begun = stack::NOT_BEGUN;
    // Numbers fall: the caller's stack, then what stands for the engine.
    let feed = feed(&[(30, vec![20, begun, 21, begun]), (31, vec![30, 0, 23, 0, 22, begun])]);
    let span = kernel_of(feed, 31);
    assert_eq!(text(&span, "code.function.name"), "forward");
    assert_eq!(text(&span, "code.stacktrace").lines().count(), 3);
}

#[test]
fn unknown_and_library_lines_are_left_out() {
    let begun = stack::NOT_BEGUN;
    for frames in [vec![], vec![22, begun], vec![0, 0], vec![77, 0, 23, 0], vec![31, 0], vec![u64::MAX, 0]] {
        let span = kernel_of(feed(&[(31, frames.clone())]), 31);
        assert_eq!(value(&span, "code.function.name"), None, "{frames:?}");
        assert_eq!(value(&span, "code.stacktrace").is_some(), frames.first() == Some(&22), "{frames:?}");
    }
    let span = kernel_of(feed(&[]), 99);
    assert!(!span.attributes.iter().any(|(key, _)| key.starts_with("code.")));
}

#[test]
fn deep_stacks_are_cut_to_their_innermost_frames() {
    let begun = stack::NOT_BEGUN;
    let mut frames = [20, begun].repeat(300);
    frames.extend([21, begun]);
    let text = text(&kernel_of(feed(&[(30, frames)]), 30), "code.stacktrace");
    assert!(text.len() <= 2048 && text.len() > 1900, "{}", text.len());
    assert!(
        text.starts_with("  ...\n  File \"/srv/app/server.py\"") && text.ends_with("in forward\n"),
        "{text}"
    );
}
