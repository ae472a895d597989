//! How devices reach each other: `topology = 10 20 …` has a level for each device, `nvlink = 1 1 0` the
//! device at the other end of each link, `-` for an inactive one.

use crate::abi::{Code, Handle, INVALID_ARGUMENT, NOT_SUPPORTED, PciInfo};
use crate::answer::{code, put};
use crate::call::enter;
use crate::values::pci_info;

/// # Safety
/// `level` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    one: Handle,
    other: Handle,
    level: *mut u32,
) -> Code {
    code(enter("nvmlDeviceGetTopologyCommonAncestor", one).and_then(|call| {
        let levels = call.device().text("topology").ok_or(NOT_SUPPORTED)?;
        let number = (other as usize).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let word = levels.split_whitespace().nth(number).ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(level, word.parse().map_err(|_| NOT_SUPPORTED)?) }
    }))
}

/// The word of a link.
fn peer(function: &str, device: Handle, link: u32) -> Result<(crate::call::Call, Option<usize>), Code> {
    let call = enter(function, device)?;
    let links = call.device().text("nvlink").ok_or(NOT_SUPPORTED)?;
    let word = links.split_whitespace().nth(link as usize).ok_or(INVALID_ARGUMENT)?;
    let peer = word.parse().ok();
    Ok((call, peer))
}

/// # Safety
/// `is_active` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, link: u32, is_active: *mut u32) -> Code {
    code(peer("nvmlDeviceGetNvLinkState", device, link).and_then(|(_, peer)| {
        // SAFETY: the caller guarantees it.
        unsafe { put(is_active, u32::from(peer.is_some())) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: Handle,
    link: u32,
    out: *mut PciInfo,
) -> Code {
    code(peer("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link).and_then(|(call, peer)| {
        let peer = peer.and_then(|peer| call.state.script.devices.get(peer)).ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, pci_info(peer.text("pci").unwrap_or_default())) }
    }))
}
