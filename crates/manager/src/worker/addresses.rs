//! The last good addresses of the hosts of backends. The next worker starts with them, even if no name server answers it.
//!
//! The worker writes them as a text, and the next one reads it. The manager only limits its length: it does not trust a
//! process that faces the network, and the next worker checks each line.

use std::time::{Duration, Instant};

use lacquer_cli::link::Request;

/// The time between two questions for new addresses.
const EVERY: Duration = Duration::from_secs(5);
/// The maximum length of the text in bytes.
const LONGEST: usize = 8 << 20;

/// The addresses that a worker has reported.
#[derive(Debug, Default)]
pub struct Addresses {
    text: String,
    /// The worker's number of changes at the time of the text; 0 if another worker has written it.
    changes: u64,
    due: Option<Instant>,
}

impl Addresses {
    /// Returns the question for changes, if it is time to ask it.
    pub fn question_if_due(&mut self, now: Instant) -> Option<Request> {
        if self.due.is_some_and(|due| due > now) {
            return None;
        }
        self.due = Some(now + EVERY);
        Some(self.question())
    }

    pub fn question(&self) -> Request {
        Request::Addresses { changes: self.changes }
    }

    /// Returns the message for a new worker, if there are addresses. Its number of changes begins again.
    pub fn for_next(&mut self) -> Option<Request> {
        self.changes = 0;
        (!self.text.is_empty()).then(|| Request::TakeAddresses { text: self.text.clone() })
    }

    /// Takes the reply of a worker: its number of changes in a line, and the text. It is empty if nothing has changed.
    pub fn take(&mut self, reply: &str) {
        let Some((changes, text)) = reply.split_once('\n') else { return };
        let Ok(changes) = changes.parse() else { return };
        let text = &text[..text.floor_char_boundary(LONGEST)];
        // The next worker uses complete lines only.
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        text[..end].clone_into(&mut self.text);
        self.changes = changes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_limited_and_damaged_ones_change_nothing() {
        let mut addresses = Addresses::default();
        addresses.take("7\nh a 10.0.0.1\nh b 10.0.0.2\n");
        for damaged in ["", "8", "-1\nh c 10.0.0.3\n", "x\n", "99999999999999999999\n"] {
            addresses.take(damaged);
            assert_eq!((addresses.text.as_str(), addresses.changes), ("h a 10.0.0.1\nh b 10.0.0.2\n", 7));
        }
        addresses.take("9\nh a 10.0.0.1\nh b 10.0");
        assert_eq!((addresses.text.as_str(), addresses.changes), ("h a 10.0.0.1\n", 9));
        let line = "h ä 10.0.0.1\n";
        addresses.take(&format!("10\n{}", line.repeat(LONGEST / 10)));
        assert!(addresses.text.len() <= LONGEST && addresses.text.len().is_multiple_of(line.len()));
        addresses.take("11\n");
        assert_eq!((addresses.text.len(), addresses.changes), (0, 11));
    }
}
