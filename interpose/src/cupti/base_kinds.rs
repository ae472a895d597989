//! Switches the records of kernels on and off while the program runs. Those of copies and fills stay on
//! ([`super::kinds`]).

use gputrace_producer::session::Session;

use super::kinds;
use super::known_end::ENABLES;
use super::root::Root;

/// False if CUPTI refuses, which is reported.
pub fn turn_on(session: &'static Session, root: &Root) -> bool {
    if !kinds::is_requested(kinds::Requester::Base, kinds::CONCURRENT_KERNEL.0) {
        ENABLES.note(root.now_ns());
    }
    let is_on = kinds::request_base(root).is_ok();
    if !is_on {
        session.notice(1, 0, b"CUPTI refuses to record again: host times only");
    }
    is_on
}

pub fn turn_off(root: &Root) {
    kinds::withdraw_kernels(root);
}

/// Begins with records of copies and fills only. False if CUPTI refuses.
pub fn turn_on_transfers(root: &Root) -> bool {
    kinds::request_transfers(root).is_ok()
}
