//! Reads the body of a request from its connection. The body has the announced length, or is chunked.

use std::ops::Range;

use lacquer_http::BodyStatus;
use lacquer_http::h1::{ChunkedDecoder, Framing};
use lacquer_http::trailers::RequestTrailers;
use lacquer_net::Rx;
use lacquer_params::Params;

use crate::req_body::{Allowance, BodyError, BodyReader, Missed};

/// The largest number of bytes in one read.
const STEP: usize = 16 * 1024;

pub struct ConnectionReader {
    /// The receiving side of the connection. `None` while a fetch reads the body.
    pub rx: Option<Rx>,
    /// The framing that the head declared.
    framing: BodyStatus,
    /// The number of bytes not read yet, for a body with a length.
    left: u64,
    decoder: ChunkedDecoder,
}

impl ConnectionReader {
    #[inline]
    pub fn new(rx: Option<Rx>, framing: Framing) -> ConnectionReader {
        ConnectionReader {
            rx,
            framing: framing.status,
            left: framing.content_length,
            decoder: ChunkedDecoder::new(),
        }
    }

    fn has_length(&self) -> bool {
        self.framing == BodyStatus::Length
    }

    fn missed(&self, missed: Missed) -> BodyError {
        let text = if self.has_length() { "straight insufficient bytes" } else { self.decoder.eof_text() };
        BodyError::missed(missed, text)
    }
}

impl BodyReader for ConnectionReader {
    #[inline]
    fn is_done(&self) -> bool {
        match self.framing {
            BodyStatus::Length => self.left == 0,
            BodyStatus::Chunked => self.decoder.is_done(),
            _ => true,
        }
    }

    /// Returns false: each body has a length, or chunks.
    fn is_empty(&self) -> bool {
        false
    }

    fn step(&self, _params: &Params) -> usize {
        STEP
    }

    async fn fill(
        &mut self,
        buffer: &mut [u8],
        allowance: &mut Allowance,
        params: &Params,
    ) -> Result<Range<usize>, BodyError> {
        let has_length = self.has_length();
        loop {
            let left = if has_length { self.left } else { u64::MAX };
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Some(rx) = self.rx.as_mut() else {
                return Err(BodyError::Framing("connection is in use"));
            };
            let n = match allowance.wait(params, rx.read(&mut buffer[..want])).await {
                Ok(0) => return Err(self.missed(Missed::Bytes)),
                Ok(n) => n,
                Err(missed) => return Err(self.missed(missed)),
            };
            if has_length {
                self.left -= n as u64;
                return Ok(0..n);
            }
            let run = self.decoder.decode_run(&mut buffer[..n]).map_err(|e| BodyError::Framing(e.text()))?;
            rx.unread(&buffer[run.consumed..n]);
            if run.end > run.start || self.decoder.is_done() {
                return Ok(run.start..run.end);
            }
        }
    }

    /// Returns none: trailers of a chunked body are an error, as in Varnish.
    fn take_trailers(&mut self) -> Option<Box<RequestTrailers>> {
        None
    }

    fn receiver(&self) -> &'static str {
        self.framing.receiver()
    }

    fn take(&mut self) -> ConnectionReader {
        let rest = Framing { status: self.framing, content_length: 0 };
        std::mem::replace(self, ConnectionReader::new(None, rest))
    }
}
