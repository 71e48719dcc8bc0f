//! The body of a request, as the engine reads it.

use std::io;

use lacquer_h2::{Error, Reason};
use lacquer_http::trailers::RequestTrailers;

use super::stream::Stream;
use crate::req_body::BodyStream;

impl BodyStream for Stream {
    const RECEIVER: &'static str = "H2_BODY";

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn is_exhausted(&self) -> bool {
        self.is_exhausted()
    }

    async fn read_body(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer).await.map_err(|_| io::ErrorKind::ConnectionReset.into())
    }

    fn take_trailers(&self) -> Option<Box<RequestTrailers>> {
        self.take_trailers()
    }

    fn cancel_late(&self) {
        if self.error().is_none() {
            self.reset(Error::Stream(Reason::Cancel));
        }
    }
}
