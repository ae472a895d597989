//! Functions that a library made of text stand under no file of the program's: which line answers for what they ask for.

use super::*;

#[test]
fn what_a_made_function_launches_is_its_caller_s() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.code(120, b"launcher", b"<string>", 5);
    tape.code(121, b"<module>", b"<string>", 1);
    tape.code(122, b"run", b"/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py", 300);
    // Triton's launcher below a file of the program's own; and `python -c`, whose functions are all there is of it.
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
        .map(|line| format!("{} {}", line.charged_calls, line.place.text()))
        .collect();
    assert_eq!(charged, ["1 <string>:1 <module>", "1 train.py:22 train_step"]);
}

#[test]
fn of_a_long_place_the_line_is_kept() {
    let place = |function: &str, file: &str| PlaceReport {
        function: function.to_owned(),
        file: Some(file.to_owned()),
        path: None,
        line: Some(91),
    };
    let long = place("trees.<locals>.<lambda>", "torch_backward.py");
    assert_eq!(long.fitted(60), "torch_backward.py:91 trees.<locals>.<lambda>");
    assert_eq!(long.fitted(36), "torch_backward.py:91 trees.<…lambda>");
    assert_eq!(long.fitted(22), "torch_backward.py:91");
    assert_eq!(long.fitted(16), "torch_ba…d.py:91");
    let unknown = PlaceReport { function: "a_function_without_a_line".to_owned(), ..PlaceReport::default() };
    assert_eq!(unknown.fitted(11), "a_fun…_line");
}
