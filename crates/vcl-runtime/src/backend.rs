//! Backends and directors by their number, and whether they can serve.

/// A BACKEND value. Zero is no backend; otherwise the index into [`Directors`](crate::Directors) plus one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BackendId(pub u32);

impl BackendId {
    pub const NONE: BackendId = BackendId(0);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The health of a director, and the time since which it has it (seconds since the epoch).
#[derive(Clone, Copy, Debug)]
pub struct Health {
    pub healthy: bool,
    pub changed: f64,
}

/// The word of an administrator, given by `backend.set_health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminHealth {
    Auto = 0,
    Healthy = 1,
    Sick = 2,
    Deleted = 3,
}
