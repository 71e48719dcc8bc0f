//! Messages of OpenTelemetry for metrics: `opentelemetry.proto.metrics.v1.Metric`.

use super::family::MessageFamily;
use super::latency::{Buckets, LIMITS};
use crate::attribute;
use crate::protobuf::Message;

/// The field of a scope that contains its metrics.
const METRICS: u32 = 2;
/// Values are sums since the beginning.
const CUMULATIVE: u64 = 2;

// The fields of a metric for its kinds.
const GAUGE: u32 = 5;
const SUM: u32 = 7;
const HISTOGRAM: u32 = 9;

/// A metric that is written.
#[derive(Debug)]
pub struct MetricMessage {
    head: Message,
    kind: u32,
    points: Message,
    times: [u64; 2],
}

impl MetricMessage {
    /// `times` are those at which counting began and ends, in nanoseconds since the epoch.
    pub fn new(name: &str, kind: &str, help: &str, times: [u64; 2]) -> MetricMessage {
        let mut head = Message::default();
        head.text(1, name);
        head.text(2, help);
        let kind = match kind {
            "counter" => SUM,
            "histogram" => HISTOGRAM,
            _ => GAUGE,
        };
        if kind == HISTOGRAM {
            head.text(3, "s");
        }
        // The others have no unit: "1" would be that of ratios, and collectors for Prometheus would rename the gauges.
        MetricMessage { head, kind, points: Message::default(), times }
    }
}

impl MessageFamily for MetricMessage {
    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let mut point = Message::default();
        // The counters may be older than this process, so their beginning is left out.
        point.fixed64(3, self.times[1]);
        point.float(4, value);
        for (name, value) in labels {
            point.message(7, &attribute::text(name, value));
        }
        self.points.message(1, &point);
    }

    fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets) {
        let mut point = Message::default();
        point.fixed64(2, self.times[0]);
        point.fixed64(3, self.times[1]);
        point.fixed64(4, buckets.count());
        point.float(5, buckets.sum);
        point.all_fixed64(6, buckets.counts.iter().copied());
        point.all_fixed64(7, LIMITS.iter().map(|limit| limit.to_bits()));
        for (name, value) in labels {
            point.message(9, &attribute::text(name, value));
        }
        self.points.message(1, &point);
    }

    fn end(&self, out: &mut Vec<u8>) {
        let mut data = self.points.clone();
        if self.kind != GAUGE {
            data.unsigned(2, CUMULATIVE);
        }
        if self.kind == SUM {
            data.unsigned(3, 1);
        }
        let mut metric = self.head.clone();
        metric.message(self.kind, &data);
        let mut field = Message::default();
        field.message(METRICS, &metric);
        out.extend(field.into_bytes());
    }
}
