//! Reads the body of a request from its stream of HTTP/2 or HTTP/3. The client marks the end, even if it announced a
//! length.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use lacquer_http::trailers::RequestTrailers;
use lacquer_params::Params;

use super::allowance::Allowance;
use super::error::BodyError;
use super::reader::BodyReader;

/// The bounds on the number of bytes in one read. Reading opens the stream's window.
const STEP: usize = 16 * 1024;
const STEP_MAX: usize = 1024 * 1024;

/// A stream with the body of a request.
pub trait BodyStream {
    /// The log's name for the reader of such a body.
    const RECEIVER: &'static str;

    /// Returns whether the whole body was read.
    fn is_drained(&self) -> bool;

    /// Returns whether the client has sent all, and neither bytes nor trailers are left to read.
    fn is_exhausted(&self) -> bool;

    /// Waits for bytes of the body, and reads them. Returns 0 at the end, and an error if the stream has ended before.
    fn read_body(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>>;

    /// Removes and returns the trailers behind a body that was read.
    fn take_trailers(&self) -> Option<Box<RequestTrailers>>;

    /// Ends a stream whose body did not arrive in time. The origin may have seen the request, so the client must not take
    /// it for one that was not processed, and repeat it.
    fn cancel_late(&self);
}

pub struct StreamReader<S> {
    stream: Rc<S>,
    has_begun: bool,
}

impl<S: BodyStream> StreamReader<S> {
    pub fn new(stream: Rc<S>) -> Self {
        StreamReader { stream, has_begun: false }
    }
}

impl<S: BodyStream> BodyReader for StreamReader<S> {
    fn is_done(&self) -> bool {
        self.stream.is_drained()
    }

    fn is_empty(&self) -> bool {
        !self.has_begun && self.stream.is_exhausted()
    }

    fn step(&self, params: &Params) -> usize {
        (params.fetch_chunksize as usize).clamp(STEP, STEP_MAX)
    }

    async fn fill(
        &mut self,
        buffer: &mut [u8],
        allowance: &mut Allowance,
        params: &Params,
    ) -> Result<Range<usize>, BodyError> {
        self.has_begun = true;
        let stream = &self.stream;
        match allowance.wait(params, stream.read_body(buffer)).await {
            Ok(n) => Ok(0..n),
            Err(missed) => {
                stream.cancel_late();
                Err(BodyError::missed(missed, "stream gone"))
            }
        }
    }

    fn take_trailers(&mut self) -> Option<Box<RequestTrailers>> {
        self.stream.take_trailers()
    }

    fn receiver(&self) -> &'static str {
        S::RECEIVER
    }

    fn take(&mut self) -> Self {
        StreamReader { stream: self.stream.clone(), has_begun: self.has_begun }
    }
}
