//! Messages in the encoding of Protocol Buffers, for Prometheus's `io.prometheus.client.MetricFamily`.

use super::latency::{Buckets, LIMITS, NATIVE_SCHEMA, ZERO};

// The kinds of a family.
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const HISTOGRAM: u64 = 4;

// The encodings of values.
const VARINT: u32 = 0;
const FIXED: u32 = 1;
const BYTES: u32 = 2;

/// A message that is written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, encoding: u32) {
        self.number((field << 3 | encoding).into());
    }

    fn unsigned(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.number(value);
    }

    fn signed(&mut self, field: u32, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    fn float(&mut self, field: u32, value: f64) {
        self.key(field, FIXED);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, BYTES);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// A family of metrics that is written.
#[derive(Debug, Default)]
pub struct FamilyMessage(Message);

impl FamilyMessage {
    pub fn new(name: &str, kind: &str, help: &str) -> FamilyMessage {
        let mut family = Message::default();
        family.bytes(1, name.as_bytes());
        family.bytes(2, help.as_bytes());
        family.unsigned(
            3,
            match kind {
                "counter" => COUNTER,
                "histogram" => HISTOGRAM,
                _ => GAUGE,
            },
        );
        FamilyMessage(family)
    }

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }

    /// Adds a counter or a gauge.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64, is_counter: bool) {
        let mut number = Message::default();
        number.float(1, value);
        self.metric(labels, if is_counter { 3 } else { 2 }, &number);
    }

    /// Adds a histogram, with classic and native buckets.
    pub fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets) {
        let mut message = Message::default();
        message.unsigned(1, buckets.count());
        message.float(2, buckets.sum);
        let mut sum = 0;
        for (count, limit) in buckets.counts.iter().zip(LIMITS.into_iter().chain([f64::INFINITY])) {
            sum += count;
            let mut bucket = Message::default();
            bucket.unsigned(1, sum);
            bucket.float(2, limit);
            message.bytes(3, &bucket.0);
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
            message.bytes(12, &span.0);
            for count in counts {
                deltas.number(zigzag(count as i64 - before));
                before = count as i64;
            }
        }
        message.bytes(13, &deltas.0);
        self.metric(labels, 7, &message);
    }

    fn metric(&mut self, labels: &[(&str, &str)], field: u32, value: &Message) {
        let mut metric = Message::default();
        for (name, value) in labels {
            let mut label = Message::default();
            label.bytes(1, name.as_bytes());
            label.bytes(2, value.as_bytes());
            metric.bytes(1, &label.0);
        }
        metric.bytes(field, &value.0);
        self.0.bytes(4, &metric.0);
    }

    /// Appends the message behind its length.
    pub fn write(self, out: &mut Vec<u8>) {
        let mut length = Message::default();
        length.number(self.0.0.len() as u64);
        out.extend_from_slice(&length.0);
        out.extend_from_slice(&self.0.0);
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
    fn numbers_are_encoded_as_protocol_buffers_are() {
        let mut message = Message::default();
        message.unsigned(1, 150);
        message.signed(5, -2);
        message.bytes(2, b"testing");
        assert_eq!(message.0, b"\x08\x96\x01\x28\x03\x12\x07testing");
    }

    #[test]
    fn runs_of_buckets_are_spans() {
        let native = [(-5, 1), (-4, 2), (0, 3), (1, 4)].into_iter().collect();
        let buckets = Buckets { native, ..Buckets::default() };
        assert_eq!(spans(&buckets), [(-5, vec![1, 2]), (3, vec![3, 4])]);
        assert!(spans(&Buckets::default()).is_empty());
    }
}
