//! Pauses in long work, so that a task that produces many bytes from little input lets the other tasks of its reactor
//! run.

/// The number of output bytes between two pauses. Decompressing this many takes a fraction of a millisecond.
const BYTES: usize = 256 * 1024;

/// The work of a task since its last pause.
#[derive(Debug, Default)]
pub struct Pace {
    done: usize,
}

impl Pace {
    /// Adds work. Returns whether a pause is due, and then resets the count.
    fn is_due(&mut self, bytes: usize) -> bool {
        self.done = self.done.saturating_add(bytes);
        let due = self.done >= BYTES;
        if due {
            self.done = 0;
        }
        due
    }

    /// Counts bytes that were produced, and yields to other tasks if a pause is due.
    pub async fn made(&mut self, bytes: usize) {
        if self.is_due(bytes) {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_due_after_much_work() {
        let mut pace = Pace::default();
        let due: Vec<bool> = [BYTES - 1, 1, BYTES - 2, 1, 1, 10 * BYTES, 1].map(|n| pace.is_due(n)).to_vec();
        assert_eq!(due, [false, true, false, false, true, true, false]);
    }
}
