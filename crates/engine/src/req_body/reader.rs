//! Reads the body of one request by one protocol. It is the counterpart of a response's sink.

use std::ops::Range;

use lacquer_http::trailers::RequestTrailers;
use lacquer_params::Params;

use super::allowance::Allowance;
use super::error::BodyError;

pub trait BodyReader: Sized {
    /// Returns whether the whole body was read.
    fn is_done(&self) -> bool;

    /// Returns whether the body is known to be empty although its head announces one of unknown length.
    fn is_empty(&self) -> bool;

    /// Returns the largest number of bytes in one read.
    fn step(&self, params: &Params) -> usize;

    /// Waits for bytes of the body, within the client's allowance, and reads them into the buffer. Returns their range,
    /// which is empty only at the end of the body.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        allowance: &mut Allowance,
        params: &Params,
    ) -> impl Future<Output = Result<Range<usize>, BodyError>>;

    /// Removes and returns the trailers behind a body that was read.
    fn take_trailers(&mut self) -> Option<Box<RequestTrailers>>;

    /// Returns the log's name for this reader.
    fn receiver(&self) -> &'static str;

    /// Moves the reader to the task that reads the body, for example a fetch. The reader that is left behind cannot
    /// read.
    fn take(&mut self) -> Self;
}
