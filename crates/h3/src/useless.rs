//! The limit on frames and streams without use: a client that sends many of them is treated as an attacker.

use crate::error_table::Reason;
use crate::fault::Fault;

/// The limit within a period, beyond those that requests allow for.
const MAX: u32 = 10_000;
/// In seconds.
const PERIOD: f64 = 60.0;
/// The number of useless frames that a request allows for.
const ALLOWED_BY_REQUEST: u32 = 1000;

/// The count of a connection.
#[derive(Debug, Default)]
pub(crate) struct UselessFrames {
    count: u32,
    /// The time when the counting started.
    since: f64,
}

impl UselessFrames {
    /// Counts a frame or a stream without use.
    pub(crate) fn count(&mut self, now: f64) -> Result<(), Fault> {
        if now - self.since > PERIOD {
            *self = UselessFrames { count: 0, since: now };
        }
        self.count += 1;
        if self.count > MAX {
            return Err(Fault::connection(Reason::ExcessiveLoad, "H3: Too many frames without use"));
        }
        Ok(())
    }

    /// Allows for more frames, because the client sent a request.
    pub(crate) fn allow(&mut self) {
        self.count = self.count.saturating_sub(ALLOWED_BY_REQUEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_table::Error;

    #[test]
    fn useless_frames_are_limited() {
        let mut frames = UselessFrames::default();
        for _ in 0..MAX {
            frames.count(100.0).unwrap();
        }
        assert_eq!(frames.count(100.0).unwrap_err().error, Error::Connection(Reason::ExcessiveLoad));
        assert!(frames.count(150.0).is_err());
        frames.allow();
        assert!(frames.count(150.0).is_ok());
        assert!(frames.count(161.0).is_ok());
        assert_eq!(frames.count, 1);
    }
}
