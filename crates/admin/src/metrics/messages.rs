//! Messages in the encoding of Protocol Buffers, for Prometheus's `io.prometheus.client.MetricFamily`.

use super::family::MessageFamily;
use super::latency::{Buckets, LIMITS, NATIVE_SCHEMA, ZERO};
use crate::protobuf::{Message, zigzag};

// The kinds of a family.
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const HISTOGRAM: u64 = 4;

/// A family of metrics that is written.
#[derive(Debug)]
pub struct FamilyMessage {
    message: Message,
    /// The field of a metric that contains its value.
    value: u32,
}

impl FamilyMessage {
    pub fn new(name: &str, kind: &str, help: &str) -> FamilyMessage {
        let mut family = Message::default();
        family.text(1, name);
        family.text(2, help);
        let (kind, value) = match kind {
            "counter" => (COUNTER, 3),
            "histogram" => (HISTOGRAM, 7),
            _ => (GAUGE, 2),
        };
        family.unsigned(3, kind);
        FamilyMessage { message: family, value }
    }

    fn metric(&mut self, labels: &[(&str, &str)], value: &Message) {
        let mut metric = Message::default();
        for (name, value) in labels {
            let mut label = Message::default();
            label.text(1, name);
            label.text(2, value);
            metric.message(1, &label);
        }
        metric.message(self.value, value);
        self.message.message(4, &metric);
    }
}

impl MessageFamily for FamilyMessage {
    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let mut number = Message::default();
        number.float(1, value);
        self.metric(labels, &number);
    }

    /// Adds classic and native buckets.
    fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets) {
        let mut message = Message::default();
        message.unsigned(1, buckets.count());
        message.float(2, buckets.sum);
        let mut sum = 0;
        for (count, limit) in buckets.counts.iter().zip(LIMITS.into_iter().chain([f64::INFINITY])) {
            sum += count;
            let mut bucket = Message::default();
            bucket.unsigned(1, sum);
            bucket.float(2, limit);
            message.message(3, &bucket);
        }
        message.signed(5, NATIVE_SCHEMA.into());
        message.float(6, ZERO);
        message.unsigned(7, buckets.zeroes);
        let mut deltas = Message::default();
        let mut before = 0;
        for (offset, counts) in spans(buckets) {
            let mut span = Message::default();
            span.signed(1, offset);
            span.unsigned(2, counts.len() as u64);
            message.message(12, &span);
            for count in counts {
                deltas.number(zigzag(count as i64 - before));
                before = count as i64;
            }
        }
        message.message(13, &deltas);
        self.metric(labels, &message);
    }

    /// Appends the message behind its length.
    fn end(&self, out: &mut Vec<u8>) {
        self.message.write_delimited(out);
    }
}

/// Returns the runs of buckets without gaps: the distance from the end of the run before, and the counts. The first run
/// begins at a distance from bucket zero.
fn spans(buckets: &Buckets) -> Vec<(i64, Vec<u64>)> {
    let mut all: Vec<(i64, Vec<u64>)> = Vec::new();
    let mut end = 0;
    for (&index, &count) in &buckets.native {
        let index = i64::from(index);
        match all.last_mut() {
            Some((_, counts)) if index == end => counts.push(count),
            _ => all.push((index - end, vec![count])),
        }
        end = index + 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_buckets_are_spans() {
        let native = [(-5, 1), (-4, 2), (0, 3), (1, 4)].into_iter().collect();
        let buckets = Buckets { native, ..Buckets::default() };
        assert_eq!(spans(&buckets), [(-5, vec![1, 2]), (3, vec![3, 4])]);
        assert!(spans(&Buckets::default()).is_empty());
    }
}
