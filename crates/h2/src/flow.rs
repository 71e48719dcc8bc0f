//! The windows of flow control (RFC 9113 section 5.2): the number of bytes of DATA that one side may still send. Each
//! stream has two of them, and so does the connection.

use crate::error_table::{Error, Reason};

/// The maximum size of a window.
pub const MAX_WINDOW: i64 = (1 << 31) - 1;

/// The initial size of the windows of a connection, independent of the settings.
pub const INITIAL_WINDOW: u32 = 65535;

/// The number of bytes that the peer allows this side to send. A change of its settings can make it negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow(i64);

impl SendWindow {
    pub const fn new(initial: u32) -> SendWindow {
        SendWindow(initial as i64)
    }

    /// Returns the number of bytes that may be sent now.
    pub fn available(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Charges bytes that are sent. `len` must not exceed the available bytes.
    pub fn charge(&mut self, len: usize) {
        debug_assert!(len <= self.available());
        self.0 -= len as i64;
    }

    /// Adds the increment of a WINDOW_UPDATE.
    pub fn credit(&mut self, increment: u32) -> Result<(), Error> {
        self.0 += i64::from(increment);
        if self.0 > MAX_WINDOW { Err(Error::Stream(Reason::FlowControlError)) } else { Ok(()) }
    }

    /// Returns whether the window exceeds the maximum.
    pub fn is_too_large(&self) -> bool {
        self.0 > MAX_WINDOW
    }

    /// Applies a change of SETTINGS_INITIAL_WINDOW_SIZE by `delta`. The setting applies to streams only.
    pub fn adjust(&mut self, delta: i64) {
        self.0 += delta;
    }
}

/// The number of bytes that this side allows the peer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWindow(i64);

impl ReceiveWindow {
    pub const fn new(initial: u32) -> ReceiveWindow {
        ReceiveWindow(initial as i64)
    }

    pub const fn left(&self) -> i64 {
        self.0
    }

    /// Charges a whole payload, including padding. Returns false if the payload exceeds the window.
    #[must_use]
    pub fn charge(&mut self, len: u32) -> bool {
        let fits = i64::from(len) <= self.0;
        if fits {
            self.0 -= i64::from(len);
        }
        fits
    }

    /// Adds and returns new credit for the connection: `increment` if less than `low_water` is left, else 0. The
    /// caller sends a credit other than 0 as a WINDOW_UPDATE.
    #[must_use]
    pub fn refill(&mut self, low_water: u32, increment: u32) -> u32 {
        self.refill_within(low_water, increment, MAX_WINDOW as u32)
    }

    /// Adds and returns new credit for a stream, so that the window does not exceed `largest`.
    #[must_use]
    pub fn refill_within(&mut self, low_water: u32, increment: u32, largest: u32) -> u32 {
        if self.0 >= i64::from(low_water) {
            return 0;
        }
        let credit = (i64::from(largest) - self.0).clamp(0, i64::from(increment));
        self.0 += credit;
        credit as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_windows_may_become_negative_but_not_overflow() {
        let mut window = SendWindow::new(100);
        window.charge(60);
        window.adjust(-70);
        assert_eq!(window.available(), 0);
        assert_eq!(window.credit(30), Ok(()));
        assert_eq!(window.available(), 0);
        assert_eq!(window.credit(0x7fff_ffff), Ok(()));
        assert_eq!(window.available(), 0x7fff_ffff);
        assert_eq!(window.credit(1), Err(Error::Stream(Reason::FlowControlError)));
    }

    #[test]
    fn receive_windows_are_refilled_up_to_the_limit() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.charge(100));
        assert!(!window.charge(1));
        assert_eq!(window.refill_within(50, 1000, 80), 80);
        assert_eq!(window.refill_within(50, 1000, 80), 0);
        assert!(window.charge(40));
        assert_eq!(window.refill_within(50, 30, 200), 30);
        assert_eq!(window.left(), 70);
        assert_eq!(window.refill(100, 1 << 30), 1 << 30);
        assert_eq!(window.refill(u32::MAX, 1 << 30), MAX_WINDOW as u32 - (1 << 30) - 70);
        assert_eq!(i64::from(u32::MAX) / 2, window.left());
    }
}
