//! What this machine's files say about how drivers are installed on it: the distribution, whether it is a
//! container, and whether there is an NVIDIA device.

use std::env;
use std::fs;
use std::path::Path;

/// What to do where the machine has the driver and the container does not.
pub const START_CONTAINER: &str = "start the container with the GPU: docker run --gpus all, podman run --device \
                                   nvidia.com/gpu=all, in Kubernetes a limit of nvidia.com/gpu";

/// The files that Docker and Podman leave, and the variable that Kubernetes sets.
pub fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists())
        || env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Whether the PCI bus has a display or 3D controller of NVIDIA's.
pub fn has_gpu() -> bool {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let begins = |path: &Path, name: &str, text: &str| {
        fs::read_to_string(path.join(name)).is_ok_and(|found| found.starts_with(text))
    };
    devices
        .map(|device| device.path())
        .any(|device| begins(&device, "vendor", "0x10de") && begins(&device, "class", "0x03"))
}

/// The commands that install libcuda.so.1 for a loaded kernel module of that version.
pub fn library_packages(version: &str) -> Vec<String> {
    library_packages_of(&distribution(), version)
}

fn library_packages_of(distribution: &str, version: &str) -> Vec<String> {
    let major = version.split('.').next().unwrap_or_default();
    let package = match distribution {
        "debian" => "libcuda1".to_owned(),
        "ubuntu" => format!("libnvidia-compute-{major}"),
        _ => return Vec::new(),
    };
    vec![format!("sudo apt-get install {package}")]
}

/// The commands that install the driver.
pub fn driver_packages() -> Vec<String> {
    let command = match distribution().as_str() {
        "debian" => "sudo apt-get install nvidia-driver",
        "ubuntu" => "sudo ubuntu-drivers install",
        _ => return Vec::new(),
    };
    vec![command.to_owned()]
}

/// The name of a group, if /etc/group has it.
pub fn group_name(gid: u32) -> Option<String> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let mut named = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    });
    named.next()
}

/// `debian`, `ubuntu` and so on; empty where the machine does not say.
fn distribution() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let id = release.lines().find_map(|line| line.strip_prefix("ID="));
    id.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_library_are_the_distribution_s() {
        let command = |distribution| library_packages_of(distribution, "550.54.15");
        assert_eq!(command("debian"), ["sudo apt-get install libcuda1"]);
        assert_eq!(command("ubuntu"), ["sudo apt-get install libnvidia-compute-550"]);
        assert!(command("").is_empty() && command("unheard-of").is_empty());
    }

    #[test]
    fn groups_have_names() {
        assert_eq!(group_name(0).as_deref(), Some("root"));
        assert_eq!(group_name(4_000_000_000), None);
    }
}
