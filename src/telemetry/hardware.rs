//! OpenTelemetry's `hw.*` metrics of the devices, as OTLP messages.
//!
//! `hw.gpu.io`, which counts bytes, is left out: drivers give rates. Clocks and PCIe rates have no
//! convention, and names of ours.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use gputrace_monitor::{GpuDeviceInfo, GpuMetrics};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::telemetry::latest::Latest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instrument {
    Gauge,
    UpDown,
    /// Its values begin with the first that was seen: the driver's own began at an unknown time.
    Counter,
}

/// A value of a sample: metric, unit, instrument, attribute, value.
type Reading = (&'static str, &'static str, Instrument, Option<(&'static str, &'static str)>, Option<f64>);

/// Makes requests; it remembers where counters began.
#[derive(Debug)]
pub struct Hardware {
    resource: Resource,
    begins: BTreeMap<(u32, &'static str, &'static str), (f64, u64)>,
}

impl Hardware {
    pub fn new(service: &str, host: &str) -> Hardware {
        let attributes = vec![
            text("service.name", service),
            text("host.name", host),
            text("telemetry.sdk.name", "gputrace"),
            text("telemetry.sdk.language", "rust"),
            text("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        let resource = Resource { attributes, ..Resource::default() };
        Hardware { resource, begins: BTreeMap::new() }
    }

    /// The latest samples, and how many points that is.
    pub fn request(&mut self, latest: &Latest) -> (ExportMetricsServiceRequest, u64) {
        let mut metrics: Vec<Metric> = Vec::new();
        let mut points = 0;
        for (device, sample) in latest.all() {
            let Some(sample) = sample else { continue };
            let own = attributes(device);
            let now_ns = unix_ns(sample.wall_time);
            for (name, unit, instrument, attribute, value) in readings(&sample) {
                let Some(value) = value else { continue };
                let mut point = NumberDataPoint {
                    attributes: own.clone(),
                    time_unix_nano: now_ns,
                    value: Some(Number::AsDouble(value)),
                    ..NumberDataPoint::default()
                };
                point.attributes.extend(attribute.map(|(key, value)| text(key, value)));
                if instrument == Instrument::Counter {
                    let key = (device.index, name, attribute.map_or("", |(_, value)| value));
                    let (begin, since_ns) = self.since(key, value, now_ns);
                    point.value = Some(Number::AsDouble(value - begin));
                    point.start_time_unix_nano = since_ns;
                }
                push(&mut metrics, name, unit, instrument, point);
                points += 1;
            }
        }
        let scope = InstrumentationScope {
            name: "gputrace.monitor".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, schema_url: String::new() }];
        (ExportMetricsServiceRequest { resource_metrics }, points)
    }

    /// The first value of a counter and when it was seen. One that goes back begins anew: the driver was
    /// loaded again.
    fn since(&mut self, key: (u32, &'static str, &'static str), value: f64, now_ns: u64) -> (f64, u64) {
        let begin = self.begins.entry(key).or_insert((value, now_ns));
        if value < begin.0 {
            *begin = (value, now_ns);
        }
        *begin
    }
}

fn readings(sample: &GpuMetrics) -> Vec<Reading> {
    use Instrument::{Counter, Gauge, UpDown};
    let (u, memory) = (&sample.utilization, &sample.memory);
    let thermal = sample.thermal.clone().unwrap_or_default();
    let power = sample.power.clone().unwrap_or_default();
    let clocks = sample.clocks.clone().unwrap_or_default();
    let pcie = sample.pcie.clone().unwrap_or_default();
    let errors = sample.errors.clone().unwrap_or_default();
    let ratio = |percent: Option<u32>| percent.map(|percent| f64::from(percent) / 100.0);
    let long = |value: Option<u64>| value.map(|value| value as f64);
    let int = |value: Option<u32>| value.map(f64::from);
    let hertz = |mhz: Option<u32>| mhz.map(|mhz| f64::from(mhz) * 1e6);
    let task = |name| Some(("hw.gpu.task", name));
    let sensor = |name| Some(("hw.sensor_location", name));
    let limit = |name| Some(("hw.limit_type", name));
    let kind = |name| Some(("error.type", name));
    let domain = |name| Some(("gputrace.gpu.clock.domain", name));
    let direction = |name| Some(("network.io.direction", name));
    let state = |name| Some(("hw.state", name));
    let used = memory.used.zip(memory.total).filter(|(_, total)| *total > 0);
    let is_ok = sample.problem.is_none();
    vec![
        ("hw.gpu.utilization", "1", Gauge, task("general"), ratio(u.gpu_percent)),
        ("hw.gpu.utilization", "1", Gauge, task("encoder"), ratio(u.encoder_percent)),
        ("hw.gpu.utilization", "1", Gauge, task("decoder"), ratio(u.decoder_percent)),
        ("hw.gpu.memory.usage", "By", UpDown, None, long(memory.used)),
        ("hw.gpu.memory.limit", "By", UpDown, None, long(memory.total)),
        ("hw.gpu.memory.utilization", "1", Gauge, None, used.map(|(used, total)| used as f64 / total as f64)),
        ("hw.temperature", "Cel", Gauge, sensor("gpu"), int(thermal.temperature_celsius)),
        ("hw.temperature", "Cel", Gauge, sensor("memory"), int(thermal.memory_temperature_celsius)),
        (
            "hw.temperature.limit",
            "Cel",
            Gauge,
            limit("high.critical"),
            int(thermal.temperature_threshold_shutdown),
        ),
        (
            "hw.temperature.limit",
            "Cel",
            Gauge,
            limit("throttled"),
            int(thermal.temperature_threshold_slowdown),
        ),
        ("hw.power", "W", Gauge, None, power.power_draw_watts.map(f64::from)),
        ("hw.energy", "J", Counter, None, power.energy_joules),
        ("hw.errors", "{error}", Counter, kind("corrected"), long(errors.ecc_corrected)),
        ("hw.errors", "{error}", Counter, kind("uncorrected"), long(errors.ecc_uncorrected)),
        ("hw.errors", "{error}", Counter, kind("xid"), long(errors.xid_count)),
        ("hw.status", "1", UpDown, state("ok"), Some(f64::from(u8::from(is_ok)))),
        ("hw.status", "1", UpDown, state("failed"), Some(f64::from(u8::from(!is_ok)))),
        ("gputrace.gpu.clock", "Hz", Gauge, domain("graphics"), hertz(clocks.graphics_mhz)),
        ("gputrace.gpu.clock", "Hz", Gauge, domain("sm"), hertz(clocks.sm_mhz)),
        ("gputrace.gpu.clock", "Hz", Gauge, domain("memory"), hertz(clocks.memory_mhz)),
        ("gputrace.gpu.pcie.rate", "By/s", Gauge, direction("transmit"), long(pcie.tx_bytes_per_sec)),
        ("gputrace.gpu.pcie.rate", "By/s", Gauge, direction("receive"), long(pcie.rx_bytes_per_sec)),
    ]
}

/// `hw.id` is NVML's own UUID, by which series of others join.
fn attributes(device: &GpuDeviceInfo) -> Vec<KeyValue> {
    let id = device.uuid.clone().or_else(|| device.pci_bus_id.clone());
    let mut attributes = vec![
        text("hw.id", &id.unwrap_or_else(|| device.index.to_string())),
        text("hw.type", "gpu"),
        text("hw.name", &format!("GPU {}", device.index)),
        text("hw.model", &device.name),
        text("hw.vendor", &device.vendor.to_string()),
    ];
    attributes.extend(device.driver_version.as_ref().map(|version| text("hw.driver_version", version)));
    attributes
}

fn push(metrics: &mut Vec<Metric>, name: &str, unit: &str, instrument: Instrument, point: NumberDataPoint) {
    let metric = match metrics.iter_mut().find(|metric| metric.name == name) {
        Some(metric) => metric,
        None => {
            let sum = || Sum {
                data_points: Vec::new(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: instrument == Instrument::Counter,
            };
            let data = match instrument {
                Instrument::Gauge => Data::Gauge(Gauge { data_points: Vec::new() }),
                Instrument::UpDown | Instrument::Counter => Data::Sum(sum()),
            };
            let metric =
                Metric { name: name.into(), unit: unit.into(), data: Some(data), ..Metric::default() };
            metrics.push(metric);
            let Some(last) = metrics.last_mut() else { return };
            last
        }
    };
    match &mut metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
        Some(Data::Sum(sum)) => sum.data_points.push(point),
        _ => {}
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use gputrace_monitor::{GpuBackend, GpuPowerMetrics, GpuVendor};

    use super::*;

    fn values(request: &ExportMetricsServiceRequest, name: &str) -> Vec<f64> {
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let points =
            metrics.iter().filter(|metric| metric.name == name).flat_map(|metric| match &metric.data {
                Some(Data::Gauge(gauge)) => gauge.data_points.clone(),
                Some(Data::Sum(sum)) => sum.data_points.clone(),
                _ => Vec::new(),
            });
        points
            .map(|point| if let Some(Number::AsDouble(value)) = point.value { value } else { f64::NAN })
            .collect()
    }

    fn energy(joules: f64) -> GpuMetrics {
        let power = GpuPowerMetrics { energy_joules: Some(joules), ..GpuPowerMetrics::default() };
        GpuMetrics { power: Some(power), ..GpuMetrics::empty(0) }
    }

    #[test]
    fn counters_begin_with_their_first_value_and_again_when_they_go_back() {
        let device = GpuDeviceInfo::new(0, "A", GpuVendor::Nvidia, GpuBackend::Nvml);
        let latest = Latest::new(vec![device]);
        let mut hardware = Hardware::new("service", "host");
        for (joules, expected) in [(500.0, 0.0), (530.0, 30.0), (2.0, 0.0), (5.0, 3.0)] {
            latest.set(energy(joules));
            assert_eq!(values(&hardware.request(&latest).0, "hw.energy"), [expected], "{joules}");
        }
    }

    #[test]
    fn what_is_not_known_has_no_point() {
        let device = GpuDeviceInfo::new(0, "A", GpuVendor::Nvidia, GpuBackend::Nvml);
        let latest = Latest::new(vec![device]);
        let mut hardware = Hardware::new("service", "host");
        assert_eq!(hardware.request(&latest).1, 0);
        latest.set(GpuMetrics::empty(0));
        let (request, points) = hardware.request(&latest);
        assert_eq!(points, 2);
        assert_eq!(values(&request, "hw.status"), [1.0, 0.0]);
    }
}
