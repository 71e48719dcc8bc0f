//! The delivery of a range of a body to a client: while a part is sent, the next ones are read from the device.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::body::Body;
use crate::residency::Residency;

/// The delivery of a range of a body. Loads from the device read no more than the deliveries in progress need, and
/// some parts of each are loaded before they are needed.
pub struct Delivery<'b> {
    body: &'b Arc<Body>,
    residency: &'b Residency,
    id: u64,
    /// The position of the next byte.
    at: Cell<u64>,
    to: u64,
}

impl<'b> Delivery<'b> {
    /// Begins the delivery of the bytes `at..to`. Returns `None` if no part of the body is on a device.
    pub(crate) fn begin(body: &'b Arc<Body>, at: u64, to: u64) -> Option<Self> {
        let residency = body.residency()?;
        Some(Self { id: residency.begin_delivery(at, to), body, residency, at: Cell::new(at), to })
    }

    /// Records that the bytes before `at` were sent, and loads the next ones if there is memory to spare.
    pub fn advance(&self, at: u64) {
        let end = self.to.min(self.body.len()).min(self.body.first_in_memory(at));
        let receiver: Weak<Body> = Arc::downgrade(self.body);
        self.residency.advance_delivery(self.id, self.at.replace(at), at);
        self.residency.read_ahead(receiver, self.body.first().arena(), at, end);
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        self.residency.end_delivery(self.id, self.at.get());
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delivery({} up to {})", self.id, self.to)
    }
}
