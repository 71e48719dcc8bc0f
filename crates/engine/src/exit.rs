//! The sink of either protocol, for the code above filters and within included responses, which does not depend on the
//! protocol.

use lacquer_cache::Object;
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink, Source};

use crate::faults::apart;
use crate::h1::Sender;
use crate::h2::StreamSender;

pub enum Exit {
    Http1(Sender),
    Http2(StreamSender),
}

impl Exit {
    /// Sends a body that nothing changes, and its end. The protocol is looked up once.
    pub async fn send(&mut self, source: &Source, from: u64, to: Option<u64>) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => source.send(sender, from, to).await,
            Exit::Http2(sender) => apart(|| source.send(sender, from, to)).await,
        }
    }

    /// Returns the buffer that the head was assembled in.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Exit::Http1(sender) => sender.into_buffer(),
            Exit::Http2(sender) => sender.into_buffer(),
        }
    }
}

impl ResponseSink for Exit {
    fn head(&mut self, head: Head<'_>) -> usize {
        match self {
            Exit::Http1(sender) => sender.head(head),
            Exit::Http2(sender) => sender.head(head),
        }
    }

    fn abort(&mut self) {
        match self {
            Exit::Http1(sender) => sender.abort(),
            Exit::Http2(sender) => sender.abort(),
        }
    }

    fn sent(&self) -> Sent {
        match self {
            Exit::Http1(sender) => sender.sent(),
            Exit::Http2(sender) => sender.sent(),
        }
    }

    fn limit_hit(&self) -> Option<&'static str> {
        match self {
            Exit::Http1(sender) => sender.limit_hit(),
            Exit::Http2(sender) => sender.limit_hit(),
        }
    }
}

/// The futures of HTTP/2 are boxed, because they are large and would enlarge those of every connection.
impl Sink for Exit {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.write(piece).await,
            Exit::Http2(sender) => Box::pin(sender.write(piece)).await,
        }
    }

    async fn stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        match self {
            Exit::Http1(sender) => sender.stored(object, from, to, behind).await,
            Exit::Http2(sender) => Box::pin(sender.stored(object, from, to, behind)).await,
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.flush().await,
            Exit::Http2(sender) => Box::pin(sender.flush()).await,
        }
    }

    async fn more_than(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.more_than(object, at).await,
            Exit::Http2(sender) => Box::pin(sender.more_than(object, at)).await,
        }
    }

    fn check(&mut self) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.check(),
            Exit::Http2(sender) => sender.check(),
        }
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.end_with(piece).await,
            Exit::Http2(sender) => Box::pin(sender.end_with(piece)).await,
        }
    }

    async fn end(&mut self) -> Result<(), SendError> {
        match self {
            Exit::Http1(sender) => sender.end().await,
            Exit::Http2(sender) => Box::pin(sender.end()).await,
        }
    }
}
