//! Sets of events: XID errors of registered devices, by the script's time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::abi::{Code, EventData, Handle, NOT_AVAILABLE_32, SUCCESS, TIMEOUT};
use crate::answer::{code, put};
use crate::call::{enter, system};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 8;

/// What is registered: the set, the device, and how many of its errors were delivered.
static REGISTERED: Mutex<Vec<(usize, usize, usize)>> = Mutex::new(Vec::new());

/// # Safety
/// `set` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut Handle) -> Code {
    static SETS: AtomicUsize = AtomicUsize::new(1);
    code(system("nvmlEventSetCreate").and_then(|_| {
        // Relaxed: only uniqueness matters.
        let number = SETS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller guarantees it.
        unsafe { put(set, number as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: Handle) -> Code {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, ..)| *of != set as usize);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Handle, _kinds: u64, set: Handle) -> Code {
    code(enter("nvmlDeviceRegisterEvents", device).map(|call| {
        REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).push((set as usize, call.number, 0));
    }))
}

/// Does not wait: an event is there or not.
///
/// # Safety
/// `data` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(set: Handle, data: *mut EventData, _timeout_ms: u32) -> Code {
    code(system("nvmlEventSetWait_v2").and_then(|state| {
        let now = state.now();
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, number, delivered) in registered.iter_mut().filter(|(of, ..)| *of == set as usize) {
            let xids = state.script.devices.get(*number).map_or(&[][..], |device| &device.xids);
            if let Some((_, xid)) = xids.get(*delivered).filter(|(at, _)| *at <= now) {
                *delivered += 1;
                let instance = NOT_AVAILABLE_32;
                let event = EventData {
                    device: (*number + 1) as Handle,
                    kind: XID,
                    data: *xid,
                    gpu_instance: instance,
                    compute_instance: instance,
                };
                // SAFETY: the caller guarantees it.
                return unsafe { put(data, event) };
            }
        }
        Err(TIMEOUT)
    }))
}
