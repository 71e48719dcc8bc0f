//! The reader for any protocol, for code that is independent of the protocol.

use std::ops::Range;
use std::rc::Rc;

use lacquer_http::h1::Framing;
use lacquer_http::trailers::RequestTrailers;
use lacquer_net::Rx;
use lacquer_params::Params;

use super::allowance::Allowance;
use super::error::BodyError;
use super::reader::BodyReader;
use super::stream_reader::StreamReader;
use crate::{h1, h2, h3};

pub enum BodyInput {
    Http1(h1::ConnectionReader),
    Http2(StreamReader<h2::Stream>),
    Http3(StreamReader<h3::Stream>),
}

impl BodyInput {
    /// Returns the reader of a body that follows a head with this framing on a connection.
    #[inline]
    pub fn of_connection(rx: Option<Rx>, framing: Framing) -> BodyInput {
        BodyInput::Http1(h1::ConnectionReader::new(rx, framing))
    }

    /// Returns the reader of a body that arrives on an HTTP/2 stream.
    pub fn of_stream(stream: Rc<h2::Stream>) -> BodyInput {
        BodyInput::Http2(StreamReader::new(stream))
    }

    /// Returns the reader of a body that arrives on an HTTP/3 stream.
    pub fn of_http3_stream(stream: Rc<h3::Stream>) -> BodyInput {
        BodyInput::Http3(StreamReader::new(stream))
    }

    /// Returns the receiving side of the connection, if the request holds it.
    #[inline]
    pub(super) fn rx(&self) -> Option<&Rx> {
        match self {
            BodyInput::Http1(reader) => reader.rx.as_ref(),
            BodyInput::Http2(_) | BodyInput::Http3(_) => None,
        }
    }

    #[inline]
    pub(super) fn take_rx(&mut self) -> Option<Rx> {
        match self {
            BodyInput::Http1(reader) => reader.rx.take(),
            BodyInput::Http2(_) | BodyInput::Http3(_) => None,
        }
    }

    #[inline]
    pub(super) fn set_rx(&mut self, rx: Option<Rx>) {
        if let BodyInput::Http1(reader) = self {
            reader.rx = rx;
        }
    }
}

impl BodyReader for BodyInput {
    #[inline]
    fn is_done(&self) -> bool {
        match self {
            BodyInput::Http1(reader) => reader.is_done(),
            BodyInput::Http2(reader) => reader.is_done(),
            BodyInput::Http3(reader) => reader.is_done(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            BodyInput::Http1(reader) => reader.is_empty(),
            BodyInput::Http2(reader) => reader.is_empty(),
            BodyInput::Http3(reader) => reader.is_empty(),
        }
    }

    fn step(&self, params: &Params) -> usize {
        match self {
            BodyInput::Http1(reader) => reader.step(params),
            BodyInput::Http2(reader) => reader.step(params),
            BodyInput::Http3(reader) => reader.step(params),
        }
    }

    async fn fill(
        &mut self,
        buffer: &mut [u8],
        allowance: &mut Allowance,
        params: &Params,
    ) -> Result<Range<usize>, BodyError> {
        match self {
            BodyInput::Http1(reader) => reader.fill(buffer, allowance, params).await,
            BodyInput::Http2(reader) => reader.fill(buffer, allowance, params).await,
            BodyInput::Http3(reader) => reader.fill(buffer, allowance, params).await,
        }
    }

    fn take_trailers(&mut self) -> Option<Box<RequestTrailers>> {
        match self {
            BodyInput::Http1(reader) => reader.take_trailers(),
            BodyInput::Http2(reader) => reader.take_trailers(),
            BodyInput::Http3(reader) => reader.take_trailers(),
        }
    }

    fn receiver(&self) -> &'static str {
        match self {
            BodyInput::Http1(reader) => reader.receiver(),
            BodyInput::Http2(reader) => reader.receiver(),
            BodyInput::Http3(reader) => reader.receiver(),
        }
    }

    fn take(&mut self) -> Self {
        match self {
            BodyInput::Http1(reader) => BodyInput::Http1(reader.take()),
            BodyInput::Http2(reader) => BodyInput::Http2(reader.take()),
            BodyInput::Http3(reader) => BodyInput::Http3(reader.take()),
        }
    }
}
