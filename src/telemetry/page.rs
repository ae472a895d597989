//! The page that Prometheus reads, in its text format 0.0.4.

use std::fmt::Write as _;

use gputrace_monitor::{GpuDeviceInfo, GpuMetrics};

use crate::telemetry::families::{DCGM, Family, OURS, SeriesKind};
use crate::telemetry::latest::Latest;

/// What the names of the page are preceded by where they are not ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Labels {
    /// `gpu`, `uuid`.
    Ours,
    /// `gpu`, `UUID`, `modelName`, `Hostname`, as dashboards for dcgm-exporter ask for.
    Dcgm,
}

/// The whole page. `host`: this machine's name.
pub fn page(latest: &Latest, host: &str) -> String {
    let samples = latest.all();
    let mut page = String::new();
    let known: Vec<(&GpuDeviceInfo, GpuMetrics)> =
        samples.iter().filter_map(|(device, sample)| Some((*device, sample.clone()?))).collect();
    info(&mut page, &samples);
    OURS.iter().for_each(|family| add(&mut page, family, &known, Labels::Ours, host));
    DCGM.iter().for_each(|family| add(&mut page, family, &known, Labels::Dcgm, host));
    page
}

/// What does not change, as labels of a value that is always 1.
fn info(page: &mut String, samples: &[(&GpuDeviceInfo, Option<GpuMetrics>)]) {
    head(page, "gputrace_gpu_info", SeriesKind::Gauge, "The devices of this machine.");
    for (device, _) in samples {
        let (vendor, uuid) = (device.vendor.to_string(), device.uuid.clone().unwrap_or_default());
        let labels = [
            ("gpu", device.index.to_string()),
            ("uuid", uuid),
            ("name", device.name.clone()),
            ("vendor", vendor),
            ("pci_bus_id", device.pci_bus_id.clone().unwrap_or_default()),
            ("driver_version", device.driver_version.clone().unwrap_or_default()),
        ];
        line(page, "gputrace_gpu_info", &labels, 1.0);
    }
}

fn add(
    page: &mut String,
    family: &Family,
    known: &[(&GpuDeviceInfo, GpuMetrics)],
    labels: Labels,
    host: &str,
) {
    let mut is_begun = false;
    for (device, sample) in known {
        for (own, value) in (family.lines)(sample) {
            if !is_begun {
                head(page, family.name, family.kind, family.help);
                is_begun = true;
            }
            let mut all = device_labels(device, labels, host);
            all.extend(own);
            line(page, family.name, &all, value);
        }
    }
}

fn device_labels(device: &GpuDeviceInfo, labels: Labels, host: &str) -> Vec<(&'static str, String)> {
    let (gpu, uuid) = (device.index.to_string(), device.uuid.clone().unwrap_or_default());
    match labels {
        Labels::Ours => vec![("gpu", gpu), ("uuid", uuid)],
        Labels::Dcgm => vec![
            ("gpu", gpu),
            ("UUID", uuid),
            ("pci_bus_id", device.pci_bus_id.clone().unwrap_or_default()),
            ("device", format!("nvidia{}", device.index)),
            ("modelName", device.name.clone()),
            ("Hostname", host.to_owned()),
        ],
    }
}

fn head(page: &mut String, name: &str, kind: SeriesKind, help: &str) {
    let kind = if kind == SeriesKind::Counter { "counter" } else { "gauge" };
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(page: &mut String, name: &str, labels: &[(&'static str, String)], value: f64) {
    let _ = write!(page, "{name}{{");
    for (at, (label, text)) in labels.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(page, "{comma}{label}=\"{}\"", escaped(text));
    }
    let _ = writeln!(page, "}} {value}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use gputrace_monitor::{GpuBackend, GpuVendor};

    use super::*;

    fn device(index: u32, name: &str) -> GpuDeviceInfo {
        GpuDeviceInfo::new(index, name, GpuVendor::Nvidia, GpuBackend::Nvml)
    }

    #[test]
    fn page_of_a_device_without_values_has_no_made_up_ones() {
        let latest = Latest::new(vec![device(0, "A"), device(1, "B")]);
        latest.set(GpuMetrics::empty(1));
        let page = page(&latest, "host");
        let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        let names: Vec<_> = lines.iter().filter_map(|line| line.split('{').next()).collect();
        assert_eq!(names, ["gputrace_gpu_info", "gputrace_gpu_info", "gputrace_gpu_up"], "{page}");
        assert_eq!(lines[2], "gputrace_gpu_up{gpu=\"1\",uuid=\"\"} 1");
    }

    #[test]
    fn names_are_escaped_as_label_values() {
        let page = page(&Latest::new(vec![device(0, "a \"b\" \\ \n")]), "host");
        assert!(page.contains("name=\"a \\\"b\\\" \\\\ \\n\""), "{page}");
    }

    #[test]
    fn each_family_has_one_head_for_all_devices() {
        let latest = Latest::new(vec![device(0, "A"), device(1, "B")]);
        for index in [0, 1] {
            let mut sample = GpuMetrics::empty(index);
            sample.memory.used = Some(5 << 20);
            latest.set(sample);
        }
        let page = page(&latest, "host");
        assert_eq!(page.matches("# TYPE DCGM_FI_DEV_FB_USED gauge\n").count(), 1);
        assert_eq!(page.matches("\nDCGM_FI_DEV_FB_USED{").count(), 2);
        assert!(page.contains("Hostname=\"host\"} 5\n"), "{page}");
    }
}
