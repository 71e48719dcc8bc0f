//! The interface of the formats that consist of messages.

use super::latency::Buckets;

/// A family of metrics that is written as a message.
pub trait MessageFamily {
    /// Adds the value of a counter or a gauge.
    fn sample(&mut self, labels: &[(&str, &str)], value: f64);
    /// Adds a histogram.
    fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets);
    /// Appends the message to those before it.
    fn end(&self, out: &mut Vec<u8>);
}
