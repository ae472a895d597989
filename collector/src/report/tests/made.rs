//! Which line is charged with the operations of functions that a library generated from text.

use super::*;

#[test]
fn generated_function_s_launches_are_charged_to_its_caller() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.code(120, b"launcher", b"<string>", 5);
    tape.code(121, b"<module>", b"<string>", 1);
    tape.code(122, b"run", b"/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py", 300);
    // Triton's launcher, called from a file of the program; and `python -c`, which has no file at all.
    tape.stack(130, &[(100, 39), (101, 2), (122, 0), (120, 0)]);
    tape.stack(131, &[(121, 0), (122, 0)]);
    tape.at(130);
    tape.launch(41, 512, Some(1_000));
    tape.at(131);
    tape.launch(41, 512, Some(1_000));
    let (totals, aggregates) = tape.play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    let charged: Vec<String> = report
        .lines
        .iter()
        .filter(|line| line.charged_calls > 0)
        .map(|line| format!("{} {}", line.charged_calls, line.location.text()))
        .collect();
    assert_eq!(charged, ["1 <string>:1 <module>", "1 train.py:22 train_step"]);
}

#[test]
fn fitted_location_keeps_the_line() {
    let location = |function: &str, file: &str| CodeLocation {
        function: function.to_owned(),
        file: Some(file.to_owned()),
        path: None,
        line: Some(91),
    };
    let long = location("trees.<locals>.<lambda>", "torch_backward.py");
    assert_eq!(long.fitted(60), "torch_backward.py:91 trees.<locals>.<lambda>");
    assert_eq!(long.fitted(36), "torch_backward.py:91 trees.<…lambda>");
    assert_eq!(long.fitted(22), "torch_backward.py:91");
    assert_eq!(long.fitted(16), "torch_ba…d.py:91");
    let unknown =
        CodeLocation { function: "a_function_without_a_line".to_owned(), ..CodeLocation::default() };
    assert_eq!(unknown.fitted(11), "a_fun…_line");
}
