//! The launch callback: passes CUPTI's correlation id to the hook that is under way on the thread.
//!
//! The tracer enables this callback only for functions whose work makes records. It adds 100 to 150 ns to
//! a launch of a tight loop (measured). A record of every API call, the usual way to learn the id, adds 250
//! to 600 ns.

use cupti_sys::cupti::{CUpti_ApiCallbackSite, CUpti_CallbackData};
use gputrace_producer::thread;

use super::guest::windows;
use crate::symbols::entry::{self, Entry};
use crate::table::cuda_slot::CudaSlot;

/// Runs at the entry and exit of each driver function in [`ids`].
#[inline]
pub fn at_call(data: &CUpti_CallbackData) {
    if data.callbackSite != CUpti_ApiCallbackSite::CUPTI_API_ENTER {
        return;
    }
    windows::launched(data.correlationId);
    thread::with(|slot| {
        // Outside a hook the id would stay in the slot, and the next hook would take a wrong one.
        if slot.is_inside() {
            CudaSlot::of(slot).correlation.set(data.correlationId);
        }
    });
}

/// The callback ids of the hooked entries that launch kernels.
pub fn ids_of_kernels() -> Vec<u32> {
    ids(Entry::launches_kernels)
}

/// Those of all others whose work makes device records. There are few calls of them.
pub fn ids_of_others() -> Vec<u32> {
    ids(|entry| entry.makes_records() && !entry.launches_kernels())
}

fn ids(is_wanted: fn(&Entry) -> bool) -> Vec<u32> {
    const TABLE: &str = include_str!("../../../cupti-sys/facts/driver_cbids.txt");
    TABLE
        .lines()
        .filter_map(|line| {
            let (id, symbol) = line.split_once(' ')?;
            let mut hooked = entry::TABLE.get().iter();
            hooked.any(|entry| is_wanted(entry) && entry.name() == symbol).then_some(())?;
            id.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_copies_and_fills_have_callback_ids() {
        static TABLE: &[entry::Entry] = &crate::api::ENTRIES;
        entry::TABLE.set(&TABLE);
        let (kernels, others) = (ids_of_kernels(), ids_of_others());
        // cuLaunchKernel is 307, by NVIDIA's header since CUDA 4.
        assert!(kernels.contains(&307) && !others.contains(&307));
        assert!(kernels.len() > 5 && others.len() > 50, "{} {}", kernels.len(), others.len());
        let without = TABLE.iter().filter(|entry| !entry.makes_records()).map(entry::Entry::name);
        assert_eq!(without.filter(|name| ["cuLaunchHostFunc", "cuMemAlloc_v2"].contains(name)).count(), 2);
    }
}
