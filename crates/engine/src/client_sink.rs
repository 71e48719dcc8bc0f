//! The sink for either protocol. Code that sends filtered bodies and included responses uses it to be independent of
//! the protocol.

use lacquer_cache::Object;
use lacquer_deliver::{SendError, Sink};

use crate::h2::StreamSender;
use crate::sender::Sender;

pub enum ClientSink {
    Http1(Sender),
    Http2(StreamSender),
}

/// The futures of HTTP/2 are boxed, because they are large and would enlarge the task of every connection.
impl Sink for ClientSink {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.write(piece).await,
            ClientSink::Http2(sender) => Box::pin(sender.write(piece)).await,
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.flush().await,
            ClientSink::Http2(sender) => Box::pin(sender.flush()).await,
        }
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.wait_for(object, at).await,
            ClientSink::Http2(sender) => Box::pin(sender.wait_for(object, at)).await,
        }
    }

    fn check(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.check(),
            ClientSink::Http2(sender) => sender.check(),
        }
    }

    async fn end(&mut self) -> Result<(), SendError> {
        match self {
            ClientSink::Http1(sender) => sender.end().await,
            ClientSink::Http2(sender) => Box::pin(sender.end()).await,
        }
    }
}
