//! Activity kinds: who requests which, and which of them CUPTI has on.
//!
//! Each requester states here which kinds it needs, and only this file switches kinds in CUPTI: a kind is on
//! while at least one requester needs it. No lock is held while CUPTI is called, because a client may call
//! CUPTI from inside a callback.
//!
//! The tracer's two requests are independent, so that a session can withdraw its kernels' kind for a while
//! and graphs are still made with the kind of graph-level timing on.
//!
//! Once requested, the kinds of copies and fills stay on as long as the tracer uses CUPTI: a libcupti whose
//! kernels' kind and `MEMCPY` go off and on together crashes PyTorch programs, in a thread of its own and
//! without the tracer too. Each of the two alone does not (`scripts/bench-cupti-switch --torch`).

use core::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::cupti::{CUpti_ActivityKind as Kind, CUptiResult};

use super::root::Root;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requester {
    /// The tracer, for [`CONCURRENT_KERNEL`] and the kinds in [`TRANSFERS`].
    Base,
    /// The tracer, for the kind of graph-level timing ([`super::whole_kind`]).
    Graphs,
    /// Another client ([`super::guest`]).
    Guest,
}

/// The kinds of copies and fills in every trace. CUPTI's device buffers keep their default sizes, because a
/// limit on them makes CUPTI drop records.
const TRANSFERS: [Kind; 3] =
    [Kind::CUPTI_ACTIVITY_KIND_MEMCPY, Kind::CUPTI_ACTIVITY_KIND_MEMCPY2, Kind::CUPTI_ACTIVITY_KIND_MEMSET];
pub const KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_KERNEL;
pub const CONCURRENT_KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;

/// The requests, a bit for each kind, by [`Requester`]. Kinds run up to 59 today.
type Requests = [AtomicU64; 3];

static NOW: Requests = [const { AtomicU64::new(0) }; 3];
/// Kinds that each requester has requested at any time. Their records may still come.
static EVER: Requests = [const { AtomicU64::new(0) }; 3];

/// Requests a kind.
pub fn request(root: &Root, requester: Requester, kind: Kind) -> CUptiResult {
    of(&EVER, requester).fetch_or(bit(kind.0), Ordering::Relaxed);
    change(&NOW, requester, kind, true, |kind, is_on| switch(root, kind, is_on))
}

/// Withdraws the request of a kind.
pub fn withdraw(root: &Root, requester: Requester, kind: Kind) -> CUptiResult {
    change(&NOW, requester, kind, false, |kind, is_on| switch(root, kind, is_on))
}

/// Withdraws all requests of a requester.
pub fn withdraw_all(root: &Root, requester: Requester) {
    for kind in kinds_in(of(&NOW, requester).load(Ordering::Acquire)) {
        withdraw(root, requester, kind);
    }
}

/// Requests the kinds of every trace. No API kinds: the hooks record host times at a third of the cost. This
/// happens right after `cuInit`, and later only on request, because switching while kernels run stalls the
/// device.
///
/// # Errors
/// CUPTI's, if it refuses one of them.
pub fn request_base(root: &Root) -> Result<(), CUptiResult> {
    request_transfers(root)?;
    request_first(root, CONCURRENT_KERNEL)
}

/// Requests the kinds of copies and fills.
///
/// # Errors
/// CUPTI's, if it refuses one of them.
pub fn request_transfers(root: &Root) -> Result<(), CUptiResult> {
    TRANSFERS.into_iter().try_for_each(|kind| request_first(root, kind))
}

/// Requests a kind of every trace unless it is requested.
fn request_first(root: &Root, kind: Kind) -> Result<(), CUptiResult> {
    if is_requested(Requester::Base, kind.0) {
        return Ok(());
    }
    match request(root, Requester::Base, kind) {
        CUptiResult::CUPTI_SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Withdraws the request of kernels. Those of copies and fills stay.
pub fn withdraw_kernels(root: &Root) {
    withdraw(root, Requester::Base, CONCURRENT_KERNEL);
}

/// Withdraws the tracer's requests and switches their kinds off, because the tracer leaves CUPTI.
pub fn leave(root: &Root) {
    let of_tracer = [Requester::Base, Requester::Graphs]
        .map(|requester| of(&NOW, requester).swap(0, Ordering::AcqRel))
        .into_iter()
        .fold(0, |all, kinds| all | kinds);
    for kind in kinds_in(of_tracer) {
        switch(root, kind, false);
    }
}

/// Whether a requester requests the kind.
pub fn is_requested(requester: Requester, kind: u32) -> bool {
    of(&NOW, requester).load(Ordering::Acquire) & bit(kind) != 0
}

/// Whether a requester has requested the kind at any time.
pub fn was_requested(requester: Requester, kind: u32) -> bool {
    of(&EVER, requester).load(Ordering::Relaxed) & bit(kind) != 0
}

/// The bit of a kind in a set; none for a number that is no kind.
pub const fn bit(kind: u32) -> u64 {
    if kind < u64::BITS { 1 << kind } else { 0 }
}

fn kinds_in(set: u64) -> impl Iterator<Item = Kind> {
    (0..u64::BITS).filter(move |kind| set & bit(*kind) != 0).map(Kind)
}

fn of(requests: &Requests, requester: Requester) -> &AtomicU64 {
    let [base, graphs, guest] = requests;
    match requester {
        Requester::Base => base,
        Requester::Graphs => graphs,
        Requester::Guest => guest,
    }
}

/// The kind of CUPTI that serves a requested kind. CUPTI does not allow both kernel kinds at once, so
/// `KERNEL`, which only guests request, is served from the records of concurrent kernels.
fn served_by(kind: Kind) -> Kind {
    if kind == KERNEL { CONCURRENT_KERNEL } else { kind }
}

/// The kinds that CUPTI must have on for these requests.
fn wanted(requests: [u64; 3]) -> u64 {
    let all = requests.into_iter().fold(0, |all, request| all | request);
    kinds_in(all).fold(0, |wanted, kind| wanted | bit(served_by(kind).0))
}

/// Adds a kind to a request or removes it, and switches it in CUPTI unless other requests keep it on.
///
/// A requester changes its own request before it reads the others', so that of two concurrent calls at least
/// one sees the other. A requester that switched a kind off checks again, because another may have requested
/// it in between.
fn change(
    requests: &Requests,
    requester: Requester,
    kind: Kind,
    is_needed: bool,
    switch: impl Fn(Kind, bool) -> CUptiResult,
) -> CUptiResult {
    let (own, of_kind, served_by) = (of(requests, requester), bit(kind.0), served_by(kind));
    if of_kind == 0 {
        return CUptiResult::CUPTI_ERROR_INVALID_KIND;
    }
    // Without this request of this kind.
    let is_on_for_others = || {
        let others = requests.each_ref().map(|request| {
            let kinds = request.load(Ordering::SeqCst);
            if core::ptr::eq(request, own) { kinds & !of_kind } else { kinds }
        });
        wanted(others) & bit(served_by.0) != 0
    };
    if is_needed {
        own.fetch_or(of_kind, Ordering::SeqCst);
        if is_on_for_others() {
            return CUptiResult::CUPTI_SUCCESS;
        }
        let result = switch(served_by, true);
        if result != CUptiResult::CUPTI_SUCCESS {
            own.fetch_and(!of_kind, Ordering::SeqCst);
        }
        return result;
    }
    own.fetch_and(!of_kind, Ordering::SeqCst);
    if is_on_for_others() {
        return CUptiResult::CUPTI_SUCCESS;
    }
    let result = switch(served_by, false);
    if is_on_for_others() {
        switch(served_by, true);
    }
    result
}

fn switch(root: &Root, kind: Kind, is_on: bool) -> CUptiResult {
    let function = if is_on { root.api.activity_enable } else { root.api.activity_disable };
    // SAFETY: no precondition: CUPTI refuses a kind that cannot be switched.
    unsafe { function(kind) }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::Requester::{Base, Graphs, Guest};
    use super::*;

    const MEMCPY: Kind = Kind::CUPTI_ACTIVITY_KIND_MEMCPY;
    const DRIVER: Kind = Kind::CUPTI_ACTIVITY_KIND_DRIVER;
    const GRAPH_TRACE: Kind = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
    const REFUSED: CUptiResult = CUptiResult::CUPTI_ERROR_NOT_COMPATIBLE;

    fn set(kinds: &[Kind]) -> u64 {
        kinds.iter().fold(0, |set, kind| set | bit(kind.0))
    }

    #[test]
    fn wanted_kinds_are_those_of_all_requests() {
        for (base, graphs, guest, expected) in [
            (&[][..], &[][..], &[][..], &[][..]),
            (&TRANSFERS, &[], &[], &TRANSFERS),
            (&[MEMCPY], &[], &[MEMCPY, DRIVER], &[MEMCPY, DRIVER]),
            (&[], &[GRAPH_TRACE], &[], &[GRAPH_TRACE]),
            (&[], &[GRAPH_TRACE], &[KERNEL], &[CONCURRENT_KERNEL, GRAPH_TRACE]),
            (&[CONCURRENT_KERNEL], &[], &[KERNEL, CONCURRENT_KERNEL], &[CONCURRENT_KERNEL]),
        ] {
            let found = wanted([base, graphs, guest].map(set));
            assert_eq!(found, set(expected), "{base:?} {graphs:?} {guest:?}");
        }
    }

    /// Requests, and the calls that they made of a CUPTI that refuses `DRIVER`.
    #[derive(Default)]
    struct Simulated {
        requests: Requests,
        calls: RefCell<Vec<(Kind, bool)>>,
    }

    impl Simulated {
        fn change(&self, requester: Requester, kind: Kind, is_needed: bool) -> CUptiResult {
            change(&self.requests, requester, kind, is_needed, |kind, is_on| {
                self.calls.borrow_mut().push((kind, is_on));
                if kind == DRIVER && is_on { REFUSED } else { CUptiResult::CUPTI_SUCCESS }
            })
        }
    }

    #[test]
    fn cupti_is_called_only_by_the_first_request_and_the_last_withdrawal() {
        let simulated = Simulated::default();
        for (requester, kind, is_needed, call) in [
            (Base, CONCURRENT_KERNEL, true, Some((CONCURRENT_KERNEL, true))),
            (Guest, CONCURRENT_KERNEL, true, None),
            (Guest, KERNEL, true, None),
            (Graphs, GRAPH_TRACE, true, Some((GRAPH_TRACE, true))),
            // A paused session: graphs are still made with their kind on.
            (Base, CONCURRENT_KERNEL, false, None),
            (Guest, CONCURRENT_KERNEL, false, None),
            (Guest, KERNEL, false, Some((CONCURRENT_KERNEL, false))),
            (Base, CONCURRENT_KERNEL, true, Some((CONCURRENT_KERNEL, true))),
            (Guest, GRAPH_TRACE, true, None),
            (Graphs, GRAPH_TRACE, false, None),
            (Guest, GRAPH_TRACE, false, Some((GRAPH_TRACE, false))),
            // CUPTI answers a withdrawal of what was never requested.
            (Guest, MEMCPY, false, Some((MEMCPY, false))),
        ] {
            assert_eq!(simulated.change(requester, kind, is_needed), CUptiResult::CUPTI_SUCCESS);
            let calls = simulated.calls.take();
            assert_eq!(calls, Vec::from_iter(call), "{requester:?} {kind:?} {is_needed}");
        }
    }

    #[test]
    fn refused_kind_is_not_requested() {
        let simulated = Simulated::default();
        assert_eq!(simulated.change(Guest, DRIVER, true), REFUSED);
        assert_eq!(of(&simulated.requests, Guest).load(Ordering::Relaxed), 0);
        assert_eq!(simulated.change(Guest, Kind(64), true), CUptiResult::CUPTI_ERROR_INVALID_KIND);
        assert_eq!(simulated.calls.take().len(), 1);
    }

    #[test]
    fn kind_requested_during_its_withdrawal_is_on_again() {
        let (requests, calls) = (Requests::default(), RefCell::new(Vec::new()));
        let switch = |kind: Kind, is_on: bool| {
            if !is_on {
                of(&requests, Guest).fetch_or(bit(kind.0), Ordering::SeqCst);
            }
            calls.borrow_mut().push((kind, is_on));
            CUptiResult::CUPTI_SUCCESS
        };
        change(&requests, Base, MEMCPY, false, switch);
        assert_eq!(calls.take(), [(MEMCPY, false), (MEMCPY, true)]);
    }
}
