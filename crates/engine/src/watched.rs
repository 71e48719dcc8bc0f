//! A reactor as the watchdog sees it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use crate::activity::Turn;

#[derive(Default)]
pub struct Watched {
    pub turn: Turn,
    /// The kernel's statistics of the reactor's thread, if they can be read.
    schedule: OnceLock<File>,
}

impl Watched {
    /// Opens the statistics. To be called on the reactor's thread.
    pub fn on_this_thread(&self) {
        if let Ok(file) = File::open("/proc/thread-self/schedstat") {
            let _ = self.schedule.set(file);
        }
    }

    /// Returns the seconds for which the thread was ready to run and did not get a processor.
    pub fn starved(&self) -> f64 {
        let mut text = [0; 96];
        let length = self.schedule.get().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        waited_in(&text[..length])
    }
}

/// Returns the second number of the file, the wait in nanoseconds, in seconds.
fn waited_in(schedstat: &[u8]) -> f64 {
    let text = str::from_utf8(schedstat).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// Returns one for each reactor.
pub fn watched(reactors: usize) -> Vec<Arc<Watched>> {
    (0..reactors).map(|_| Arc::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_starves() {
        assert_eq!(waited_in(b"123 2000000000 5\n"), 2.0);
        assert_eq!(waited_in(b""), 0.0);
    }
}
