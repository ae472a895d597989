//! Settings that change while the session runs, by orders of the collector (`gputrace ctl … set`).
//!
//! The service thread puts an order into effect at its turns; hooks see the change in the word that they
//! read anyway ([`gputrace_producer::hook_state`]). What a process cannot do, it reports as not in force.

use core::sync::atomic::Ordering;

use gputrace_callstack::native::{bounds, surroundings};
use gputrace_producer::session::Session;
use gputrace_wire::run_settings::{Frames, RunSettings};

use crate::frames::torch::{blocks, operators};
use crate::frames::{native, python};
use crate::lifecycle::device_times::DEVICE_TIMES;
use crate::table::tables::{self, Tables};

/// Called before the session is published.
pub fn begin_session(session: &Session, tables: Option<&Tables>) {
    let native = surroundings::is_asked_for() && tables.is_some_and(Tables::make_native);
    session.set_frames(Frames { python: python::are_requested(), native });
}

/// A turn of the service thread.
pub fn turn(session: &'static Session) {
    let control = session.control();
    // SYNC: pairs with the collector's Release store.
    let wanted = control.settings_wanted.load(Ordering::Acquire);
    let is_done = wanted == control.settings_done.load(Ordering::Relaxed) || apply(session, wanted);
    control.settings_now.store(now(session).to_word(), Ordering::Relaxed);
    if is_done {
        // SYNC: pairs with the collector's Acquire load: it sees the settings that this order led to.
        control.settings_done.store(wanted, Ordering::Release);
    }
}

/// Whether the order is in effect, as far as the process can.
fn apply(session: &'static Session, wanted: u32) -> bool {
    let order = RunSettings::from_word(wanted);
    if let Some(frames) = order.stacks {
        python::request(frames.python);
        if frames.python {
            python::search(session);
        }
        let has_native = frames.native && can_read_native(session);
        session.set_frames(Frames { python: frames.python, native: has_native });
    }
    if let Some(asked) = order.torch_ops {
        operators::request(session, asked);
    }
    if let Some(asked) = order.blocks {
        blocks::request(session, asked);
    }
    order.device_times.is_none_or(|wanted| (DEVICE_TIMES.get().switch)(session, wanted))
}

fn can_read_native(session: &Session) -> bool {
    native::request();
    bounds::turn(session);
    tables::of(session).is_some_and(Tables::make_native)
}

fn now(session: &Session) -> RunSettings {
    let state = session.hook_state();
    RunSettings {
        stacks: Some(Frames { python: state.has_python(), native: state.has_native() }),
        device_times: Some((DEVICE_TIMES.get().now)(session)),
        torch_ops: Some(operators::are_requested()),
        blocks: Some(blocks::are_requested()),
    }
}
