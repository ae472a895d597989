//! CUPTI's callbacks, for driver and runtime calls and for other events. The tracer's part runs first, then
//! the guest's.
//!
//! Owns the state of each callback. A callback is on in CUPTI if the tracer or the guest wants it; it is
//! passed to the guest only if the guest wants it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::cupti::{
    CUpti_CallbackData, CUpti_CallbackDomain, CUpti_CallbackId, CUpti_CallbackIdResource, CUpti_ResourceData,
    CUptiResult,
};

use super::guest::{own_calls, subscription};
use super::root::Root;
use super::{launches, nodes, whole_kind};

/// Driver, runtime, resource, synchronisation, NVTX, state.
const LAST_DOMAIN: u32 = 6;
/// Capacity for future domains.
const DOMAINS: usize = 16;
/// There are about 900 driver functions and 600 runtime functions today.
const IDS: usize = 4096;
const WORDS: usize = IDS / 64;

/// A bit for each callback of a domain.
struct Bits([[AtomicU64; WORDS]; DOMAINS]);

static OF_TRACER: Bits = Bits::new();
static OF_GUEST: Bits = Bits::new();

impl Bits {
    const fn new() -> Bits {
        Bits([const { [const { AtomicU64::new(0) }; WORDS] }; DOMAINS])
    }

    fn word(&self, domain: u32, id: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.0.get(domain as usize)?.get(id as usize / 64)?;
        Some((word, 1 << (id % 64)))
    }

    #[inline]
    fn has(&self, domain: u32, id: u32) -> bool {
        self.word(domain, id).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    fn set(&self, domain: u32, id: u32, on: bool) {
        match self.word(domain, id) {
            Some((word, bit)) if on => word.fetch_or(bit, Ordering::AcqRel),
            Some((word, bit)) => word.fetch_and(!bit, Ordering::AcqRel),
            None => 0,
        };
    }

    fn fill(&self, domain: u32, on: bool) {
        let words = self.0.get(domain as usize).into_iter().flatten();
        words.for_each(|word| word.store(if on { u64::MAX } else { 0 }, Ordering::Release));
    }
}

/// Makes the real subscription, if nobody did.
pub fn subscribe(root: &Root) -> CUptiResult {
    root.subscribe(Some(dispatch))
}

/// CUPTI's one subscriber callback.
unsafe extern "C" fn dispatch(
    _: *mut c_void,
    domain: CUpti_CallbackDomain,
    id: CUpti_CallbackId,
    data: *const c_void,
) {
    if OF_TRACER.has(domain.0, id) {
        match (domain, id) {
            (CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API, _) if !data.is_null() => {
                // SAFETY: for this domain CUPTI passes a CUpti_CallbackData that lives across the call.
                launches::at_call(unsafe { &*data.cast::<CUpti_CallbackData>() });
            }
            (CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE, NODE_CREATED) if !data.is_null() => {
                // SAFETY: for this domain CUPTI passes a CUpti_ResourceData that lives across the call.
                nodes::at_creation(unsafe { &*data.cast::<CUpti_ResourceData>() });
            }
            (CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE, EXECUTABLE_CREATED) => {
                whole_kind::at_graph_creation();
            }
            _ => {}
        }
    }
    if OF_GUEST.has(domain.0, id) && !own_calls::is_under_way() {
        subscription::call(domain, id, data);
    }
}

/// Enables the tracer's callbacks of these driver functions. An older library knows fewer functions: an id
/// that it refuses belongs to a function that cannot be called.
///
/// On driver 580 CUPTI 11.8 calls back for copies and never for launches, whether enabled by id or for the
/// whole domain (measured). The collector then joins launches by name and order.
pub fn enable(root: &Root, ids: Vec<u32>) {
    let domain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
    for id in ids {
        // First, so that another client that disables it now leaves it on.
        OF_TRACER.set(domain.0, id, true);
        // SAFETY: the one real subscription.
        let result = unsafe { (root.api.enable_callback)(1, root.subscriber(), domain, id) };
        OF_TRACER.set(domain.0, id, result == CUptiResult::CUPTI_SUCCESS);
    }
}

/// Enables the tracer's callbacks of graphs that are made.
pub fn enable_graphs(root: &Root) {
    let domain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE;
    let of_nodes = root.api.get_graph_node_id.map(|_| NODE_CREATED);
    for id in of_nodes.into_iter().chain([EXECUTABLE_CREATED]) {
        // SAFETY: the one real subscription.
        let result = unsafe { (root.api.enable_callback)(1, root.subscriber(), domain, id) };
        OF_TRACER.set(domain.0, id, result == CUptiResult::CUPTI_SUCCESS);
    }
}

/// Sent for each node of a graph when it is made.
const NODE_CREATED: u32 = CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED.0;
/// Sent for each executable graph.
const EXECUTABLE_CREATED: u32 = CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED.0;

/// The guest enables or disables one callback.
pub fn enable_for_guest(root: &Root, domain: CUpti_CallbackDomain, id: u32, on: bool) -> CUptiResult {
    if domain == CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API && id == NO_FUNCTION {
        if !on {
            enable_domain_for_guest(root, domain, false);
        }
        OF_GUEST.set(domain.0, id, on);
        return CUptiResult::CUPTI_SUCCESS;
    }
    let result = if on || !OF_TRACER.has(domain.0, id) {
        // SAFETY: the one real subscription; CUPTI refuses what is no callback.
        unsafe { (root.api.enable_callback)(u32::from(on), root.subscriber(), domain, id) }
    } else {
        CUptiResult::CUPTI_SUCCESS
    };
    if result == CUptiResult::CUPTI_SUCCESS {
        OF_GUEST.set(domain.0, id, on);
    }
    result
}

/// An id of no function. CUPTI 13.0 accepts it, and disabling it disables the callbacks of every driver
/// function, the tracer's too (measured; Proton does that when it ends).
const NO_FUNCTION: u32 = 0;

/// The guest enables or disables all callbacks of a domain.
pub fn enable_domain_for_guest(root: &Root, domain: CUpti_CallbackDomain, on: bool) -> CUptiResult {
    // The least number of callbacks in the domain: beyond it, a refused id marks the end of the list.
    let known = match domain {
        CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API => Some(1024),
        CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE => Some(64),
        _ => None,
    };
    let is_ours_too = known.is_some();
    if on || !is_ours_too {
        // SAFETY: the one real subscription.
        let result = unsafe { (root.api.enable_domain)(u32::from(on), root.subscriber(), domain) };
        if result == CUptiResult::CUPTI_SUCCESS {
            OF_GUEST.fill(domain.0, on);
        }
        return result;
    }
    // One by one, so that the tracer's own callbacks are never off in between.
    OF_GUEST.fill(domain.0, false);
    for id in (1..IDS as u32).filter(|id| !OF_TRACER.has(domain.0, *id)) {
        // SAFETY: as above; ids past the last one are refused.
        let result = unsafe { (root.api.enable_callback)(0, root.subscriber(), domain, id) };
        if result != CUptiResult::CUPTI_SUCCESS && known.is_none_or(|known| id > known) {
            break;
        }
    }
    CUptiResult::CUPTI_SUCCESS
}

/// The guest enables or disables all domains.
pub fn enable_all_for_guest(root: &Root, on: bool) -> CUptiResult {
    (1..=LAST_DOMAIN).for_each(|domain| {
        // This library refuses domains that it lacks; that is not the guest's error.
        enable_domain_for_guest(root, CUpti_CallbackDomain(domain), on);
    });
    CUptiResult::CUPTI_SUCCESS
}

/// Whether the guest has the callback on.
pub fn guest_has(domain: u32, id: u32) -> bool {
    OF_GUEST.has(domain, id)
}
