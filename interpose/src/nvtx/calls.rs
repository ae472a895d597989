//! The functions for NVTX's core tables: ranges, marks, domains and registered strings.
//!
//! The handles that programs get are numbers of labels, not addresses: a handle passed back is looked up
//! and never dereferenced.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_callstack::ranges::{self, Label, Look};
use gputrace_wire::caller::Caller;

use super::naming::{name_os_thread_a, name_os_thread_w, resource_create, resource_destroy};
use super::text::{self, Attributes};
use super::{Ascii, Installed, Wide, table};
use crate::hook::capture;

/// A domain or a registered string, as the program holds it.
type NvtxHandle = *const c_void;

/// Indexed by NVTX's function numbers.
pub const CORE: &[(usize, Installed)] = table! {
    1 mark_ex 2 mark_a 3 mark_w
    4 range_start_ex 5 range_start_a 6 range_start_w 7 range_end
    8 range_push_ex 9 range_push_a 10 range_push_w 11 range_pop
    14 name_os_thread_a 15 name_os_thread_w
};

pub const CORE2: &[(usize, Installed)] = table! {
    1 domain_mark_ex 2 domain_range_start_ex 3 domain_range_end
    4 domain_range_push_ex 5 domain_range_pop
    6 resource_create 7 resource_destroy
    10 domain_register_string_a 11 domain_register_string_w
    12 domain_create_a 13 domain_create_w 14 domain_destroy
};

fn domain_of(held: NvtxHandle) -> Label {
    // Null is the domain without a name, by far the most frequent.
    if held.is_null() {
        return Label::NONE;
    }
    Some(Label::from_handle(held.addr())).filter(|label| label.is_domain()).unwrap_or(Label::NONE)
}

fn held(label: Label) -> NvtxHandle {
    core::ptr::without_provenance(label.to_handle())
}

/// The label of a name in the domain without a name, and the span context in the name.
///
/// # Safety
/// Null or a C string.
#[inline(always)]
unsafe fn named(name: Ascii) -> (Label, Caller) {
    // SAFETY: the caller's promise.
    text::carried(Label::NONE, unsafe { text::ascii(name) })
}

/// # Safety
/// Null or a wide string.
#[inline(always)]
unsafe fn named_wide(name: Wide) -> (Label, Caller) {
    // SAFETY: the caller's promise.
    unsafe { text::wide(name, |name| text::carried(Label::NONE, name)) }
}

/// A range of that name begins.
#[inline(always)]
fn push_named((label, caller): (Label, Caller)) -> c_int {
    pushed(label, ranges::push(Label::NONE, label, Look::default(), &caller))
}

/// The label of the capture range, and its domain's: handles, 0 for none.
static CAPTURED: AtomicUsize = AtomicUsize::new(0);
static CAPTURED_DOMAIN: AtomicUsize = AtomicUsize::new(0);

/// Called when NVTX loads this library: finds the label of the capture range, if one is asked for.
pub fn prepare_capture() {
    capture::prepare();
    let Some((name, domain)) = capture::nvtx_range() else { return };
    let domain = domain.map_or(Label::NONE, |domain| Label::domain(domain.as_bytes()));
    CAPTURED_DOMAIN.store(domain.to_handle(), Ordering::Relaxed);
    CAPTURED.store(Label::range(domain, name.as_bytes()).to_handle(), Ordering::Relaxed);
}

fn is_captured(label: Label) -> bool {
    label != Label::NONE && CAPTURED.load(Ordering::Relaxed) == label.to_handle()
}

/// The range with that label was pushed; passes its level on.
#[inline(always)]
fn pushed(label: Label, level: c_int) -> c_int {
    if capture::is_by_nvtx() && is_captured(label) {
        capture::pushed(level);
    }
    level
}

#[inline(always)]
fn pop(domain: Label) -> c_int {
    let level = ranges::pop(domain);
    if capture::is_by_nvtx() && CAPTURED_DOMAIN.load(Ordering::Relaxed) == domain.to_handle() {
        capture::popped(level);
    }
    level
}

#[inline(always)]
fn start_named(label: Label, look: Look) -> u64 {
    let id = ranges::start(label, look);
    if capture::is_by_nvtx() && is_captured(label) {
        capture::started(id);
    }
    id
}

#[inline(always)]
fn end(id: u64) {
    ranges::end(id);
    if capture::is_by_nvtx() {
        capture::ended(id);
    }
}

/// Functions that pass their arguments to one of ours. The program guarantees what NVTX requires.
macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? => $body:expr;)*) => {
        $(
        /// # Safety
        /// The same as for NVTX's function of that name.
        unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: the arguments are the program's, as NVTX asks for them.
            #[allow(unused_unsafe)]
            unsafe {
                $body
            }
        }
        )*
    };
}

calls! {
    range_push_a(name: Ascii) -> c_int => push_named(named(name));
    range_push_w(name: Wide) -> c_int => push_named(named_wide(name));
    range_push_ex(attributes: *const Attributes) -> c_int => push(Label::NONE, attributes);
    range_pop() -> c_int => pop(Label::NONE);
    domain_range_push_ex(domain: NvtxHandle, attributes: *const Attributes) -> c_int => push(domain_of(domain), attributes);
    domain_range_pop(domain: NvtxHandle) -> c_int => pop(domain_of(domain));

    range_start_a(name: Ascii) -> u64 => start_named(named(name).0, Look::default());
    range_start_w(name: Wide) -> u64 => start_named(named_wide(name).0, Look::default());
    range_start_ex(attributes: *const Attributes) -> u64 => start(Label::NONE, attributes);
    range_end(id: u64) => end(id);
    domain_range_start_ex(domain: NvtxHandle, attributes: *const Attributes) -> u64 => start(domain_of(domain), attributes);
    domain_range_end(_domain: NvtxHandle, id: u64) => end(id);

    mark_a(name: Ascii) => ranges::mark(named(name).0, Look::default());
    mark_w(name: Wide) => ranges::mark(named_wide(name).0, Look::default());
    mark_ex(attributes: *const Attributes) => mark(Label::NONE, attributes);
    domain_mark_ex(domain: NvtxHandle, attributes: *const Attributes) => mark(domain_of(domain), attributes);

    domain_create_a(name: Ascii) -> NvtxHandle => held(Label::domain(text::ascii(name)));
    domain_create_w(name: Wide) -> NvtxHandle => held(text::wide(name, Label::domain));
    // The names of a domain's ranges stay valid after it; the handle may be in use elsewhere.
    domain_destroy(_domain: NvtxHandle) => ();
    domain_register_string_a(domain: NvtxHandle, name: Ascii) -> NvtxHandle =>
        held(Label::range(domain_of(domain), text::ascii(name)));
    domain_register_string_w(domain: NvtxHandle, name: Wide) -> NvtxHandle =>
        text::wide(name, |name| held(Label::range(domain_of(domain), name)));
}

#[inline(always)]
unsafe fn push(domain: Label, attributes: *const Attributes) -> c_int {
    // SAFETY: the caller's promise.
    let (label, look, caller) = unsafe { text::range(domain, attributes) };
    pushed(label, ranges::push(domain, label, look, &caller))
}

#[inline(always)]
unsafe fn start(domain: Label, attributes: *const Attributes) -> u64 {
    // SAFETY: the caller's promise.
    let (label, look, _) = unsafe { text::range(domain, attributes) };
    start_named(label, look)
}

#[inline(always)]
unsafe fn mark(domain: Label, attributes: *const Attributes) {
    // SAFETY: the caller's promise.
    let (label, look, _) = unsafe { text::range(domain, attributes) };
    ranges::mark(label, look);
}
