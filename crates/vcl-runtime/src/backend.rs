//! Backends and directors by their number, and their health.

use std::time::Duration;

/// A BACKEND value. Zero is no backend; otherwise it is the index into [`Directors`](crate::Directors) plus one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BackendId(pub u32);

impl BackendId {
    pub const NONE: BackendId = BackendId(0);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The health of a director, and the time of its last change (seconds since the epoch).
#[derive(Clone, Copy, Debug)]
pub struct Health {
    pub healthy: bool,
    pub changed: f64,
}

/// The use of a backend, by which directors choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of requests that use a connection or wait for one.
    pub in_use: u32,
    /// The number of failures since the last good response.
    pub failures: u32,
    /// The mean time until a response begins; zero if there was none.
    pub latency: Duration,
    /// The rest of the time for which others are preferred, because it could not be connected to.
    pub setback: Duration,
}

/// The administrator's setting of a director's health, from `backend.set_health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminHealth {
    Auto = 0,
    Healthy = 1,
    Sick = 2,
    Deleted = 3,
}
