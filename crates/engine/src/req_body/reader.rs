//! The counterpart of a response's sink: reads the body of one request as one protocol brings it.

use std::ops::Range;

use lacquer_params::Params;

use super::allowance::Allowance;
use super::error::BodyError;

pub trait BodyReader: Sized {
    /// Returns whether the whole body was read.
    fn is_done(&self) -> bool;

    /// Returns the number of bytes to read at a time.
    fn step(&self, params: &Params) -> usize;

    /// Waits for bytes of the body, within the client's allowance, and reads them into the buffer. Returns their place in
    /// it, which is empty only at the end of the body.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        allowance: &mut Allowance,
        params: &Params,
    ) -> impl Future<Output = Result<Range<usize>, BodyError>>;

    /// Returns the name in the log of what reads the body.
    fn receiver(&self) -> &'static str;

    /// Returns the reader for the one who reads the body, for example a fetch. What is left here reads nothing.
    fn take(&mut self) -> Self;
}
