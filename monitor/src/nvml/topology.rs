//! How NVIDIA's devices reach each other.

use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::{Device, Nvml};

use crate::device::{DeviceLink, LinkPath};
use crate::pci::bus_id;

/// The most NVLink connections that a device has.
const LINKS_MAX: u32 = 18;

/// One entry for each pair of which something is known.
pub fn links(nvml: &Nvml, devices: &[(u32, Device<'_>)]) -> Vec<DeviceLink> {
    if devices.len() < 2 {
        return Vec::new();
    }
    let buses: Vec<_> = devices.iter().map(|(_, device)| device.pci_info().ok()?.bus_id.into()).collect();
    let buses: Vec<Option<String>> = buses.into_iter().map(|id: Option<String>| bus_id(&id?)).collect();
    let peers: Vec<Vec<String>> = devices.iter().map(|(_, device)| nvlink_peers(device)).collect();
    let mut links = Vec::new();
    for (at, (index, device)) in devices.iter().enumerate() {
        for (other_at, (other_index, other)) in devices.iter().enumerate().skip(at + 1) {
            let path = nvml.topology_common_ancestor(device, other).ok().map(path);
            let bus = buses.get(other_at).cloned().flatten();
            let count =
                peers.get(at).map_or(0, |peers| peers.iter().filter(|id| Some(*id) == bus.as_ref()).count());
            let nvlinks = (count > 0).then_some(count as u32);
            if path.is_some() || nvlinks.is_some() {
                links.push(DeviceLink { devices: (*index, *other_index), path, nvlinks });
            }
        }
    }
    links
}

/// The bus ids at the other end of a device's active links.
fn nvlink_peers(device: &Device<'_>) -> Vec<String> {
    let mut peers = Vec::new();
    for number in 0..LINKS_MAX {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => peers.extend(link.remote_pci_info().ok().and_then(|pci| bus_id(&pci.bus_id))),
            Ok(false) => {}
            // No such link: nor are those behind it.
            Err(_) => break,
        }
    }
    peers
}

fn path(level: TopologyLevel) -> LinkPath {
    match level {
        TopologyLevel::Internal => LinkPath::Board,
        TopologyLevel::Single => LinkPath::OneSwitch,
        TopologyLevel::Multiple => LinkPath::SeveralSwitches,
        TopologyLevel::HostBridge => LinkPath::HostBridge,
        TopologyLevel::Node => LinkPath::Node,
        TopologyLevel::System => LinkPath::System,
    }
}
