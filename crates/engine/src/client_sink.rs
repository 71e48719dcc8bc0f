//! The sink for any protocol. Code that sends filtered bodies and included responses uses it to be independent of
//! the protocol.

use std::rc::Rc;

use lacquer_cache::Object;
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink, Source};

use crate::faults::boxed_cold;
use crate::h1::Sender;
use crate::h2::StreamSender;
use crate::h3;
use crate::trailers::Trailers;

pub enum ClientSink {
    Http1(Sender),
    Http2(StreamSender),
    Http3(h3::StreamSender),
}

impl ClientSink {
    /// Sends an unfiltered body, and its end. Matches on the protocol only once per body.
    pub async fn send(&mut self, source: &Source, from: u64, to: Option<u64>) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => source.send(sender, from, to).await,
            ClientSink::Http2(sender) => boxed_cold(|| source.send(sender, from, to)).await,
            ClientSink::Http3(sender) => boxed_cold(|| source.send(sender, from, to)).await,
        }
    }

    /// Makes trailers follow the body, if the protocol has a place for them.
    pub fn follow_with(&mut self, trailers: Rc<Trailers>) {
        match self {
            ClientSink::Http1(sender) => sender.follow_with(trailers),
            ClientSink::Http2(sender) => sender.follow_with(trailers),
            ClientSink::Http3(sender) => sender.follow_with(trailers),
        }
    }

    /// Returns the buffer in which the head was assembled.
    #[inline]
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            ClientSink::Http1(sender) => sender.into_buffer(),
            ClientSink::Http2(sender) => sender.into_buffer(),
            ClientSink::Http3(sender) => sender.into_buffer(),
        }
    }
}

impl ResponseSink for ClientSink {
    #[inline]
    fn head(&mut self, head: Head<'_>) -> usize {
        match self {
            ClientSink::Http1(sender) => sender.head(head),
            ClientSink::Http2(sender) => sender.head(head),
            ClientSink::Http3(sender) => sender.head(head),
        }
    }

    fn abort(&mut self) {
        match self {
            ClientSink::Http1(sender) => sender.abort(),
            ClientSink::Http2(sender) => sender.abort(),
            ClientSink::Http3(sender) => sender.abort(),
        }
    }

    #[inline]
    fn sent(&self) -> Sent {
        match self {
            ClientSink::Http1(sender) => sender.sent(),
            ClientSink::Http2(sender) => sender.sent(),
            ClientSink::Http3(sender) => sender.sent(),
        }
    }

    #[inline]
    fn limit_hit(&self) -> Option<&'static str> {
        match self {
            ClientSink::Http1(sender) => sender.limit_hit(),
            ClientSink::Http2(sender) => sender.limit_hit(),
            ClientSink::Http3(sender) => sender.limit_hit(),
        }
    }
}

/// The futures of HTTP/2 and HTTP/3 are boxed, because they are large and would enlarge the task of every connection.
impl Sink for ClientSink {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.write(piece).await,
            ClientSink::Http2(sender) => Box::pin(sender.write(piece)).await,
            ClientSink::Http3(sender) => Box::pin(sender.write(piece)).await,
        }
    }

    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        match self {
            ClientSink::Http1(sender) => sender.write_stored(object, from, to, behind).await,
            ClientSink::Http2(sender) => Box::pin(sender.write_stored(object, from, to, behind)).await,
            ClientSink::Http3(sender) => Box::pin(sender.write_stored(object, from, to, behind)).await,
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.flush().await,
            ClientSink::Http2(sender) => Box::pin(sender.flush()).await,
            ClientSink::Http3(sender) => Box::pin(sender.flush()).await,
        }
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.wait_for(object, at).await,
            ClientSink::Http2(sender) => Box::pin(sender.wait_for(object, at)).await,
            ClientSink::Http3(sender) => Box::pin(sender.wait_for(object, at)).await,
        }
    }

    fn check(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.check(),
            ClientSink::Http2(sender) => sender.check(),
            ClientSink::Http3(sender) => sender.check(),
        }
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.end_with(piece).await,
            ClientSink::Http2(sender) => Box::pin(sender.end_with(piece)).await,
            ClientSink::Http3(sender) => Box::pin(sender.end_with(piece)).await,
        }
    }

    async fn end(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.end().await,
            ClientSink::Http2(sender) => Box::pin(sender.end()).await,
            ClientSink::Http3(sender) => Box::pin(sender.end()).await,
        }
    }
}
