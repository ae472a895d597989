//! What CUPTI calls at driver and runtime calls and at other happenings: the tracer's part, then
//! the guest's.
//!
//! Owns which callbacks are on. A callback is on in CUPTI if the tracer or the guest wants it, and
//! is handed to the guest only if the guest wants it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::cupti::{
    CUpti_CallbackData, CUpti_CallbackDomain, CUpti_CallbackId, CUpti_CallbackIdResource, CUpti_ResourceData,
    CUptiResult,
};

use super::guest::{own_calls, subscription};
use super::root::Root;
use super::{instantiation, launches, nodes};

/// Driver, runtime, resource, synchronisation, NVTX, state.
const LAST_DOMAIN: u32 = 6;
/// Room for domains to come.
const DOMAINS: usize = 16;
/// Driver functions are about 900 today, runtime functions 600.
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

/// CUPTI's one subscriber callback.
pub unsafe extern "C" fn dispatch(
    _: *mut c_void,
    domain: CUpti_CallbackDomain,
    id: CUpti_CallbackId,
    data: *const c_void,
) {
    if domain == CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API
        && !data.is_null()
        && OF_TRACER.has(domain.0, id)
    {
        // SAFETY: for this domain CUPTI passes a CUpti_CallbackData that lives across the call.
        launches::at_call(unsafe { &*data.cast::<CUpti_CallbackData>() });
    }
    if domain == CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE
        && id == NODE_CREATED
        && !data.is_null()
        && OF_TRACER.has(domain.0, id)
    {
        // SAFETY: for this domain CUPTI passes a CUpti_ResourceData that lives across the call.
        nodes::at_creation(unsafe { &*data.cast::<CUpti_ResourceData>() });
    }
    if domain == CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE
        && id == EXECUTABLE_CREATED
        && OF_TRACER.has(domain.0, id)
    {
        instantiation::at_creation();
    }
    if OF_GUEST.has(domain.0, id) && !own_calls::is_under_way() {
        subscription::call(domain, id, data);
    }
}

/// Asks for the tracer's callbacks. An older library knows fewer functions: a refused id is one
/// that cannot be called.
///
/// On driver 580 CUPTI 11.8 calls back for copies and never for launches, whether asked by id or
/// for the whole domain (measured); the collector then joins launches by name and order.
pub fn enable_for_tracer(root: &Root) {
    let domain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
    for id in launches::ids() {
        // SAFETY: the one real subscription.
        let result = unsafe { (root.api.enable_callback)(1, root.subscriber(), domain, id) };
        OF_TRACER.set(domain.0, id, result == CUptiResult::CUPTI_SUCCESS);
    }
    let domain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_RESOURCE;
    let of_nodes = root.api.get_graph_node_id.map(|_| NODE_CREATED);
    for id in of_nodes.into_iter().chain([EXECUTABLE_CREATED]) {
        // SAFETY: as above.
        let result = unsafe { (root.api.enable_callback)(1, root.subscriber(), domain, id) };
        OF_TRACER.set(domain.0, id, result == CUptiResult::CUPTI_SUCCESS);
    }
}

/// Comes for each node of a graph as it is made.
const NODE_CREATED: u32 = CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED.0;
/// Comes for each executable graph.
const EXECUTABLE_CREATED: u32 = CUpti_CallbackIdResource::CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED.0;

/// The guest wants one callback, or no longer does.
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

/// The id that is no function's. CUPTI 13.0 takes it, and switching it off switches off every
/// driver function's callback (measured; Proton does that when it ends), the tracer's too.
const NO_FUNCTION: u32 = 0;

/// The guest wants all callbacks of a domain, or none.
pub fn enable_domain_for_guest(root: &Root, domain: CUpti_CallbackDomain, on: bool) -> CUptiResult {
    // How many callbacks the domain has at least: beyond, a refused id means that the list is at its end.
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
    // One by one, so that the tracer's own are never off in between.
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

/// All domains, or none.
pub fn enable_all_for_guest(root: &Root, on: bool) -> CUptiResult {
    (1..=LAST_DOMAIN).for_each(|domain| {
        // Domains that this library does not have are refused, which is no error of the guest's.
        enable_domain_for_guest(root, CUpti_CallbackDomain(domain), on);
    });
    CUptiResult::CUPTI_SUCCESS
}

/// Whether the guest has the callback on.
pub fn guest_has(domain: u32, id: u32) -> bool {
    OF_GUEST.has(domain, id)
}
