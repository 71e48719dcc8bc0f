//! The spans that wait for the collector: as many as fit. Further ones are dropped.

use std::collections::VecDeque;

use crate::protobuf::Message;

/// Maximum number of spans that wait, and of their bytes.
const SPANS: usize = 16_384;
const BYTES: usize = 8 << 20;
/// Maximum of one export.
pub const BATCH_SPANS: usize = 2048;
const BATCH_BYTES: usize = 1 << 20;

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    spans: VecDeque<Message>,
    bytes: usize,
    /// Whether a span was dropped since the last batch was taken.
    has_dropped: bool,
}

impl Queue {
    /// Adds a span. Returns false if it was dropped.
    pub fn add(&mut self, span: Message) -> bool {
        if self.spans.len() >= SPANS || self.bytes + span.len() > BYTES {
            self.has_dropped = true;
            return false;
        }
        self.bytes += span.len();
        self.spans.push_back(span);
        true
    }

    /// Removes the oldest spans, as many as one export has.
    pub fn take(&mut self) -> Vec<Message> {
        self.has_dropped = false;
        let mut batch = Vec::new();
        let mut length = 0;
        while batch.len() < BATCH_SPANS && length < BATCH_BYTES {
            let Some(span) = self.spans.pop_front() else { break };
            length += span.len();
            batch.push(span);
        }
        self.bytes -= length;
        batch
    }

    /// Returns whether a span had no room since the last batch was taken.
    pub fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    /// Returns whether an export would be full.
    pub fn is_full_batch(&self) -> bool {
        self.spans.len() >= BATCH_SPANS || self.bytes >= BATCH_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(length: usize) -> Message {
        let mut span = Message::default();
        span.bytes(1, &vec![0; length]);
        span
    }

    #[test]
    fn the_queue_is_bounded_in_number_and_bytes() {
        for length in [1, 10_000] {
            let mut queue = Queue::default();
            let added = (0..20_000).filter(|_| queue.add(span(length))).count();
            assert!(added <= SPANS && added * length <= BYTES && added > 500, "{added}");
            assert!(queue.has_dropped());
            let mut taken = 0;
            loop {
                let batch = queue.take();
                assert!(
                    batch.len() <= BATCH_SPANS
                        && batch.iter().map(Message::len).sum::<usize>() < BATCH_BYTES + 20_000
                );
                if batch.is_empty() {
                    break;
                }
                taken += batch.len();
            }
            assert_eq!((taken, queue.bytes, queue.has_dropped()), (added, 0, false));
        }
    }
}
