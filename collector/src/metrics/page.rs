//! A process's metrics at one moment, as OTLP messages.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1 as proto;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::histogram::{Histogram, Unit};
use crate::metrics::instruments::{Instrument, Kind};
use crate::metrics::settings::{Preference, Temporality};
use crate::metrics::total::Total;
use crate::spans::otlp::{SCHEMA_URL, attribute, scope};
use crate::spans::span::{Attribute, Value};

/// The most points in a request. The longest, a kernel's with its name, has 1.5 KiB in protobuf, and 4 KiB in
/// JSON.
const POINTS_MAX: usize = 500;

/// The slowest value of an interval, and its span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exemplar {
    pub value: u64,
    /// The end of the span, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub trace_id: u128,
    pub span_id: u64,
}

/// A histogram with the exemplar of the current interval.
#[derive(Clone, Debug)]
pub struct Distribution {
    pub histogram: Histogram,
    exemplar: Option<Exemplar>,
}

impl Distribution {
    pub fn new(unit: Unit) -> Distribution {
        Distribution { histogram: Histogram::new(unit), exemplar: None }
    }

    pub fn seconds() -> Distribution {
        Distribution::new(Unit::Seconds)
    }

    /// Adds a value of an operation that may be a span. `exemplar` is called only if the value is the
    /// greatest so far.
    #[inline]
    pub fn add_span(&mut self, value: u64, is_span: bool, exemplar: impl FnOnce() -> Exemplar) {
        self.histogram.add(value);
        if is_span && self.exemplar.is_none_or(|slowest| slowest.value < value) {
            self.exemplar = Some(exemplar());
        }
    }

    pub fn merge(&mut self, other: &Distribution) {
        self.histogram.merge(&other.histogram);
        let slower = other.exemplar.filter(|new| self.exemplar.is_none_or(|own| own.value < new.value));
        self.exemplar = slower.or(self.exemplar);
    }
}

#[derive(Debug)]
pub struct Page {
    metrics: Vec<proto::Metric>,
    preference: Preference,
    /// On CLOCK_REALTIME: when the process began, when its metrics were last emitted, and now.
    begin_ns: u64,
    last_ns: u64,
    now_ns: u64,
    /// The difference of the two clocks.
    realtime_less_monotonic_ns: i128,
}

impl Page {
    pub fn new(
        preference: Preference,
        [begin_ns, last_ns, now_ns]: [u64; 3],
        realtime_less_monotonic_ns: i128,
    ) -> Page {
        let mut page = Page {
            metrics: Vec::new(),
            preference,
            begin_ns: 0,
            last_ns: 0,
            now_ns: 0,
            realtime_less_monotonic_ns,
        };
        (page.begin_ns, page.last_ns, page.now_ns) =
            (page.realtime_ns(begin_ns), page.realtime_ns(last_ns), page.realtime_ns(now_ns));
        page
    }

    pub fn temporality(&self, instrument: &Instrument) -> Temporality {
        match instrument.kind {
            Kind::Counter | Kind::Histogram => self.preference.counted,
            Kind::Observed => self.preference.observed,
            Kind::UpDown => Temporality::Cumulative,
        }
    }

    pub fn count(&mut self, instrument: &Instrument, attributes: &[Attribute], total: &mut Total<u64>) {
        if let Some(value) = total.report(self.temporality(instrument)) {
            self.number(instrument, attributes, Number::AsInt(whole(value)));
        }
    }

    pub fn time(&mut self, instrument: &Instrument, attributes: &[Attribute], total: &mut Total<f64>) {
        if let Some(seconds) = total.report(self.temporality(instrument)) {
            self.number(instrument, attributes, Number::AsDouble(seconds));
        }
    }

    pub fn level(&mut self, instrument: &Instrument, attributes: &[Attribute], value: u64) {
        self.number(instrument, attributes, Number::AsInt(whole(value)));
    }

    fn number(&mut self, instrument: &Instrument, attributes: &[Attribute], value: Number) {
        let temporality = self.temporality(instrument);
        let point = proto::NumberDataPoint {
            attributes: messages(attributes),
            start_time_unix_nano: self.start_ns(temporality),
            time_unix_nano: self.now_ns,
            value: Some(value),
            ..proto::NumberDataPoint::default()
        };
        let is_monotonic = instrument.kind != Kind::UpDown;
        let empty = || {
            Data::Sum(proto::Sum {
                data_points: Vec::new(),
                aggregation_temporality: number_of(temporality),
                is_monotonic,
            })
        };
        if let Some(Data::Sum(sum)) = self.metric(instrument, empty) {
            sum.data_points.push(point);
        }
    }

    /// With delta temporality the histogram is empty afterwards. The exemplar is always taken.
    pub fn histogram(&mut self, instrument: &Instrument, attributes: &[Attribute], of: &mut Distribution) {
        let exemplar = of.exemplar.take();
        if of.histogram.count() == 0 {
            return;
        }
        let temporality = self.temporality(instrument);
        let taken;
        let histogram = match temporality {
            Temporality::Cumulative => &of.histogram,
            Temporality::Delta => {
                taken = of.histogram.take();
                &taken
            }
        };
        let unit = histogram.unit();
        let exemplars = exemplar.into_iter().map(|exemplar| proto::Exemplar {
            time_unix_nano: self.realtime_ns(exemplar.at_ns),
            trace_id: exemplar.trace_id.to_be_bytes().to_vec(),
            span_id: exemplar.span_id.to_be_bytes().to_vec(),
            value: Some(proto::exemplar::Value::AsDouble(unit.in_unit(exemplar.value))),
            ..proto::Exemplar::default()
        });
        let point = proto::ExponentialHistogramDataPoint {
            attributes: messages(attributes),
            start_time_unix_nano: self.start_ns(temporality),
            time_unix_nano: self.now_ns,
            count: histogram.count(),
            sum: Some(unit.in_unit(histogram.sum())),
            scale: histogram.scale(),
            zero_count: histogram.zeroes(),
            positive: Some(Buckets { offset: histogram.first(), bucket_counts: histogram.counts().to_vec() }),
            min: Some(unit.in_unit(histogram.min())),
            max: Some(unit.in_unit(histogram.max())),
            exemplars: exemplars.collect(),
            ..proto::ExponentialHistogramDataPoint::default()
        };
        let empty = || {
            Data::ExponentialHistogram(proto::ExponentialHistogram {
                data_points: Vec::new(),
                aggregation_temporality: number_of(temporality),
            })
        };
        if let Some(Data::ExponentialHistogram(all)) = self.metric(instrument, empty) {
            all.data_points.push(point);
        }
    }

    /// The data of the metric, which is added if it is new.
    fn metric(&mut self, instrument: &Instrument, empty: impl FnOnce() -> Data) -> Option<&mut Data> {
        let known = self.metrics.iter().position(|metric| metric.name == instrument.name);
        let at = known.unwrap_or_else(|| {
            self.metrics.push(proto::Metric {
                name: instrument.name.to_owned(),
                description: instrument.about.to_owned(),
                unit: instrument.unit.to_owned(),
                data: Some(empty()),
                ..proto::Metric::default()
            });
            self.metrics.len() - 1
        });
        self.metrics.get_mut(at)?.data.as_mut()
    }

    fn start_ns(&self, temporality: Temporality) -> u64 {
        match temporality {
            Temporality::Cumulative => self.begin_ns,
            Temporality::Delta => self.last_ns,
        }
    }

    fn realtime_ns(&self, monotonic_ns: u64) -> u64 {
        let at = i128::from(monotonic_ns) + self.realtime_less_monotonic_ns;
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }

    /// Requests of at most [`POINTS_MAX`] points; none if there is no point.
    pub fn requests(self, resource: &Resource) -> Vec<ExportMetricsServiceRequest> {
        let mut pages: Vec<Vec<proto::Metric>> = Vec::new();
        let mut free = 0;
        for mut metric in self.metrics {
            loop {
                if free == 0 {
                    pages.push(Vec::new());
                    free = POINTS_MAX;
                }
                let points = points(&metric);
                let rest = split_off(&mut metric, free);
                free -= points.min(free);
                if let Some(page) = pages.last_mut() {
                    page.push(metric);
                }
                match rest {
                    Some(rest) => metric = rest,
                    None => break,
                }
            }
        }
        pages.into_iter().map(|metrics| request(metrics, resource.clone())).collect()
    }
}

fn request(metrics: Vec<proto::Metric>, resource: Resource) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest {
        resource_metrics: vec![proto::ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![proto::ScopeMetrics {
                scope: Some(scope()),
                metrics,
                schema_url: SCHEMA_URL.to_owned(),
            }],
            schema_url: SCHEMA_URL.to_owned(),
        }],
    }
}

/// The number of points in a request.
pub fn points_of(request: &ExportMetricsServiceRequest) -> usize {
    let metrics = request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
    metrics.map(points).sum()
}

fn points(metric: &proto::Metric) -> usize {
    match &metric.data {
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::ExponentialHistogram(all)) => all.data_points.len(),
        _ => 0,
    }
}

/// Keeps the first `keep` points. Returns the same metric with the others, if there are any.
fn split_off(metric: &mut proto::Metric, keep: usize) -> Option<proto::Metric> {
    let data = match &mut metric.data {
        Some(Data::Sum(sum)) if sum.data_points.len() > keep => {
            Data::Sum(proto::Sum { data_points: sum.data_points.split_off(keep), ..*sum })
        }
        Some(Data::ExponentialHistogram(all)) if all.data_points.len() > keep => {
            Data::ExponentialHistogram(proto::ExponentialHistogram {
                data_points: all.data_points.split_off(keep),
                ..*all
            })
        }
        _ => return None,
    };
    let (name, description, unit) = (metric.name.clone(), metric.description.clone(), metric.unit.clone());
    Some(proto::Metric { name, description, unit, data: Some(data), ..proto::Metric::default() })
}

fn messages(attributes: &[Attribute]) -> Vec<KeyValue> {
    attributes.iter().map(|(key, value)| attribute(key, Value::clone(value))).collect()
}

fn number_of(temporality: Temporality) -> i32 {
    let temporality = match temporality {
        Temporality::Cumulative => proto::AggregationTemporality::Cumulative,
        Temporality::Delta => proto::AggregationTemporality::Delta,
    };
    temporality as i32
}

/// OTLP integers are signed; a larger number becomes the greatest.
fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
