//! What a PCI address says, and what the kernel says about it.

use std::fs;
use std::path::Path;

/// NVML's "00000000:1B:00.0" as the kernel writes it.
pub fn bus_id(text: &str) -> Option<String> {
    let (domain, rest) = text.trim().split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_rest =
        rest.len() == 7 && rest.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    is_rest.then(|| format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

/// The node of a PCI device; machines with one node write -1.
pub fn numa_node(sysfs: &Path, bus_id: &str) -> Option<u32> {
    let path = sysfs.join("bus/pci/devices").join(bus_id).join("numa_node");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_are_written_as_the_kernel_does() {
        assert_eq!(bus_id("00000000:1B:00.0").as_deref(), Some("0000:1b:00.0"));
        assert_eq!(bus_id("00010000:01:00.0").as_deref(), Some("10000:01:00.0"));
        assert_eq!(bus_id("0000:01:00.0").as_deref(), Some("0000:01:00.0"));
        for garbage in ["", "x", "zz:01:00.0", "0000:../../x", "0000:01:00.0.0"] {
            assert_eq!(bus_id(garbage), None, "{garbage}");
        }
    }
}
