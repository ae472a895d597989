//! Native frames are read from every stack, however small, short-lived or odd, and no table leads to memory
//! that is not there.

use super::{NATIVE, build, source, stacks};
use crate::handlers;
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::recorded::Recorded;
use crate::harness::tool::{self, Traced, count, dropped, gputrace, run_with};

#[test]
fn stacks_that_no_table_describes_end_with_a_mark() {
    let folder = Folder::new();
    let program = folder.join("native_odd");
    build("cc", &source("native_odd.c"), &["-g"], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let recorded = Recorded::of(&traced);
    assert_eq!(recorded.launches.len(), 130);
    assert!(recorded.launches.iter().all(|(_, stack)| *stack != 0));
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
fn smallest_stacks_are_large_enough_for_native_frames() {
    for (how, launches) in [("return", 7), ("thread", 5), ("thread_at_once", 5), ("handler", 7)] {
        let traced = run_with(&NATIVE, compiled("small_stacks", Link::Driver)).arg(how).go().expect_code(5);
        assert_eq!(count(&traced.report(), "launches"), launches, "{how}");
        let recorded = Recorded::of(&traced);
        assert!(recorded.launches.iter().all(|(_, stack)| *stack != 0), "{how}");
    }
}

#[test]
fn frames_of_thousands_of_short_lived_threads_are_recorded() {
    let traced = run_with(&NATIVE, compiled("thread_storm", Link::Driver)).succeed();
    let report = traced.report();
    assert_eq!((count(&report, "launches"), dropped(&report)), (4000, 0));
    assert!(Recorded::of(&traced).launches.iter().all(|(_, stack)| *stack != 0));
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

fn run_beside(arguments: &[&str]) -> Traced {
    let folder = Folder::new();
    let program = folder.join("native_beside");
    build("cc", &source("native_beside.c"), &["-g"], &program);
    let mut run = run_with(&["--stacks", "native", "--device-times", "off"], &program);
    for argument in arguments {
        run = run.arg(argument);
    }
    run.succeed()
}

/// Launches by their blocks, and the frames of each: pairs of an image and a place, outermost first.
fn beside(arguments: &[&str]) -> Vec<(u32, Vec<[u64; 2]>)> {
    frames_of(&run_beside(arguments))
}

fn frames_of(traced: &Traced) -> Vec<(u32, Vec<[u64; 2]>)> {
    assert_eq!(dropped(&traced.report()), 0);
    let recorded = Recorded::of(traced);
    let frames = |stack: &u32| recorded.definitions[stack].fields.as_chunks().0.to_vec();
    recorded.launches.iter().map(|(blocks, stack)| (*blocks, frames(stack))).collect()
}

/// Where frames are missing.
const MARK: [u64; 2] = [0, 0];

/// On a thread whose stack has no guard page, a table leads to the stack beside it, which has been released:
/// from a coroutine's stack further below, and from an address that a handler claims to have interrupted.
#[test]
fn unwinding_survives_a_stack_that_was_released() {
    for (how, blocks) in [("coroutine", 3), ("handler", 4)] {
        for filtered in [&[][..], &["filtered"]] {
            let launches = beside(&[&[how], filtered].concat());
            let all: Vec<u32> = launches.iter().map(|(blocks, _)| *blocks).collect();
            assert_eq!(all, [1, 2, blocks, 1], "{how} {filtered:?}");
            // The call, the function whose table is wrong, and nothing beyond. Under a filter the frames end
            // with the page that the call is on, until the end of the thread's stack is known.
            let led = &launches[2].1;
            let is_cut = !filtered.is_empty() && led.len() == 2;
            assert!((led.len() == 3 || is_cut) && led[0] == MARK, "{how} {filtered:?}: {led:?}");
            // Before and after it, and on the coroutine, frames are what they are.
            for (index, mark) in [(0, false), (1, true), (3, false)] {
                let frames = &launches[index].1;
                let is_whole = frames.len() >= 4 && (frames[0] == MARK) == mark;
                let is_cut = !filtered.is_empty() && frames[0] == MARK;
                assert!(is_whole || is_cut, "{how} {filtered:?}: {frames:?}");
                assert_eq!(frames.last(), led.last(), "the call");
            }
        }
    }
}

/// The same while another thread gives that stack back and takes it again, all the time.
#[test]
fn unwinding_survives_a_stack_that_is_being_released() {
    goes_at_this_moment(&["races"]);
}

/// With process_vm_readv forbidden. Checking a page and then reading it would end one run in four by SIGSEGV.
#[test]
fn unwinding_survives_a_stack_that_is_being_released_under_a_filter() {
    for _ in 0..3 {
        goes_at_this_moment(&["races", "filtered"]);
    }
}

fn goes_at_this_moment(arguments: &[&str]) {
    let launches = beside(arguments);
    let led = launches.iter().filter(|(blocks, _)| *blocks == 3);
    let (gone, there): (Vec<_>, Vec<_>) = led.partition(|(_, frames)| frames[0] == MARK);
    assert_eq!(gone.len() + there.len(), 20_000);
    let frames = |of: &[&(u32, Vec<[u64; 2]>)], length| of.iter().all(|(_, frames)| frames.len() == length);
    // The call and the function whose table lies, whatever it found; and the mark, where it found nothing.
    assert!(frames(&gone, 3) && frames(&there, 2));
    assert!(!gone.is_empty(), "it never was gone");
}

/// The addresses of the frames of a launch with so many blocks.
fn addresses(launches: &[(u32, Vec<[u64; 2]>)], wanted: u32) -> Vec<u64> {
    let found = launches.iter().find(|(blocks, _)| *blocks == wanted).unwrap();
    found.1.iter().map(|[_, at]| *at).collect()
}

/// Nothing may be copied, so a coroutine's stack is told as far as the page that the thread is on.
#[test]
fn innermost_frames_of_a_coroutine_are_recorded_under_a_filter() {
    let [copied, read] = [&["deep"][..], &["deep", "filtered"]].map(beside);
    for blocks in [5, 6] {
        let (all, recorded) = (addresses(&copied, blocks), addresses(&read, blocks));
        assert!(all.len() > 33, "{blocks}: {all:x?}");
        expect_innermost(&recorded, &all);
    }
}

/// Those after the mark, of which there is the call at least, are the last of all.
fn expect_innermost(recorded: &[u64], all: &[u64]) {
    let (mark, frames) = recorded.split_first().unwrap();
    assert!(*mark == 0 && !frames.is_empty() && all.ends_with(frames), "{recorded:x?} of {all:x?}");
}

/// A profiler's handler that reads what may not be there, and catches its own fault, comes whenever it likes.
#[test]
fn handler_that_faults_on_purpose_may_come_while_frames_are_read() {
    for filtered in [&[][..], &["filtered"], &["filtered"], &["filtered"]] {
        let launches = beside(&[&["faults"], filtered].concat());
        assert_eq!(launches.iter().filter(|(blocks, _)| *blocks == 7).count(), 20_000, "{filtered:?}");
    }
}

/// A filter that refuses the question which pages there are leaves nothing that could be read.
#[test]
fn unknown_stack_bounds_are_reported_once() {
    const SAID: &str = "this C library does not say where the stacks of threads are";
    let [usual, unanswered] = [&["deep", "filtered"][..], &["deep", "unanswered"]].map(run_beside);
    let said = |traced: &Traced| traced.report()["notices"].to_string().matches(SAID).count();
    assert_eq!((said(&usual), said(&unanswered)), (0, 1));
    let unanswered = frames_of(&unanswered);
    assert!(
        unanswered.len() == 4 && unanswered.iter().all(|(_, frames)| frames[0] == MARK),
        "{unanswered:?}"
    );
}
