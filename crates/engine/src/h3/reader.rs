//! Reads the body of a request from its stream. The client marks the end, even if it announced a length.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use lacquer_params::Params;

use super::stream::Stream;
use crate::req_body::{Allowance, BodyError, BodyReader};

/// The bounds on the number of bytes in one read. Reading opens the stream's window.
const STEP: usize = 16 * 1024;
const STEP_MAX: usize = 1024 * 1024;

pub struct StreamReader {
    stream: Rc<Stream>,
}

impl StreamReader {
    pub fn new(stream: Rc<Stream>) -> StreamReader {
        StreamReader { stream }
    }
}

impl BodyReader for StreamReader {
    fn is_done(&self) -> bool {
        self.stream.is_drained()
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
        let stream = &self.stream;
        let read = async { stream.read(buffer).await.map_err(|_| io::ErrorKind::ConnectionReset.into()) };
        match allowance.wait(params, read).await {
            Ok(n) => Ok(0..n),
            Err(missed) => {
                stream.refuse_body();
                Err(BodyError::missed(missed, "stream gone"))
            }
        }
    }

    fn receiver(&self) -> &'static str {
        "H3_BODY"
    }

    fn take(&mut self) -> StreamReader {
        StreamReader { stream: self.stream.clone() }
    }
}
