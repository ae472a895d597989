//! Attributes that can be set and read, but change nothing in the simulation.

use crate::pointer::OutPtr;
use crate::result::*;
use crate::state;

/// Value and size of an attribute before anybody sets it, by `CUpti_ActivityAttribute`.
fn default_of(attribute: u32) -> CuptiResult<(u64, usize)> {
    Ok(match attribute {
        0 => (3_200_000, 8),
        1 => (8_388_608, 8),
        2 => (250, 8),
        3 => (25_000, 8),
        4 => (250, 8),
        5 => (0, 1),
        6 => (3, 8),
        7 => (3, 8),
        8 => (0, 1),
        _ => return Err(INVALID_PARAMETER),
    })
}

fn check_size(size: OutPtr<usize>, wanted: usize) -> CuptiResult {
    if size.get()? < wanted { Err(PARAMETER_SIZE_NOT_SUFFICIENT) } else { size.set(wanted) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetAttribute(attribute: u32, size: OutPtr<usize>, value: OutPtr<u8>) -> u32 {
    number((|| {
        let (initial, bytes) = default_of(attribute)?;
        check_size(size, bytes)?;
        let held = state::lock().attributes.get(&attribute).copied().unwrap_or(initial);
        if bytes == 1 { value.set(held as u8) } else { OutPtr(value.0.cast::<u64>()).set(held) }
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivitySetAttribute(attribute: u32, size: OutPtr<usize>, value: OutPtr<u8>) -> u32 {
    number((|| {
        let (_, bytes) = default_of(attribute)?;
        check_size(size, bytes)?;
        let given = if bytes == 1 { value.get()?.into() } else { OutPtr(value.0.cast::<u64>()).get()? };
        state::lock().attributes.insert(attribute, given);
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: u32) -> u32 {
    state::lock().thread_id_type = kind;
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetThreadIdType(kind: OutPtr<u32>) -> u32 {
    number(kind.set(state::lock().thread_id_type))
}

/// Switches whose effect would be on fields or records that the simulation does not fill.
macro_rules! accepted_switches {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(_enable: u8) -> u32 {
                0
            }
        )*
    };
}

accepted_switches! {
    cuptiActivityEnableLatencyTimestamps
    cuptiActivityEnableLaunchAttributes
    cuptiActivityEnableDeviceGraph
    cuptiActivityEnableAllSyncRecords
    cuptiActivityEnableCudaEventDeviceTimestamps
}
