//! The requests of a test, and the expectations about them.

use std::rc::Rc;

use crate::format::{ClientRequest, Step};
use crate::world::Exchange;

/// A request of the test with its responses.
pub struct Asked {
    pub request: Rc<ClientRequest>,
    pub exchanges: Vec<Exchange>,
    /// The number of requests to origins before it.
    pub fetches_before: usize,
}

/// An expectation, and the state of the test at that point.
pub struct Claim<'t> {
    pub step: &'t Step,
    /// The index of the last request.
    pub asked: usize,
    /// The number of requests to origins so far.
    pub fetches_until: usize,
}
