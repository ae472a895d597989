//! Operators that are not observed any more are in no stack, and hooks do not look for them. In a process of
//! its own: whether they are observed is known to the whole process.

use gputrace_callstack::stacks::{Asked, asked};
use gputrace_callstack::torch::operators::{begin, each_name, end, hash, set_observed};
use gputrace_producer::hook_state::HookState;
use gputrace_wire::run_settings::Frames;

#[test]
fn launches_take_the_short_way_again_once_operators_are_not_observed() {
    let state = HookState::from_word(0).with_frames(Frames { python: true, native: false });
    let way = || asked(state);
    assert_eq!((way(), hash()), (Some(Asked::Python), 0));

    begin(0x10, 1, 1);
    let whole = hash();
    assert_eq!(way(), Some(Asked::Others));
    assert_ne!(whole, 0);

    set_observed(false);
    assert_eq!((way(), hash()), (Some(Asked::Python), 0));

    // It is still under way as they are observed again.
    set_observed(true);
    assert_eq!((way(), hash()), (Some(Asked::Others), whole));
    begin(0x20, 2, 1);
    let mut names = Vec::new();
    each_name(1, |name| names.push(name));
    assert_eq!((way(), names), (Some(Asked::Others), vec![2, 1]));
    end(0x20);
    assert_eq!(hash(), whole);
    end(0x10);
    assert_eq!(hash(), 0);
}
