//! Transaction numbers: 51 bits, and two bits for the side of the proxy that the transaction is on.

use std::fmt;

const CLIENT: u64 = 1 << 62;
const BACKEND: u64 = 1 << 63;
const NUMBER: u64 = (1 << 51) - 1;

/// A transaction's number and side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vxid(u64);

impl Vxid {
    /// The number of records outside of transactions.
    pub const NONE: Self = Self(0);

    /// Creates the number of a session or request.
    pub const fn client(number: u64) -> Self {
        Self(number & NUMBER | CLIENT)
    }

    /// Creates the number of a fetch.
    pub const fn backend(number: u64) -> Self {
        Self(number & NUMBER | BACKEND)
    }

    /// Returns the number without the side, as logs and VCL show it.
    pub const fn number(self) -> u64 {
        self.0 & NUMBER
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Creates the number from the bits that a record has in shared memory.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub const fn is_backend(self) -> bool {
        self.0 & BACKEND != 0
    }

    pub const fn is_client(self) -> bool {
        self.0 & CLIENT != 0
    }
}

impl fmt::Display for Vxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}
