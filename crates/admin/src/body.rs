//! Bodies: reads those of requests within limits, and is that of responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::limits::BODY_TIME;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    TooLong,
    TooSlow,
    Broken,
}

/// Reads a body of at most `limit` bytes.
pub async fn read(body: Incoming, limit: usize) -> Result<Vec<u8>, Unread> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Unread::TooLong);
    }
    timeout(BODY_TIME, collect(body, limit)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(Unread::TooLong);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The body of a response.
#[derive(Debug)]
pub enum Content {
    Whole(Option<Bytes>),
    /// A stream of events, which ends with the channel. The permit is one of the streams that may exist.
    Events {
        events: mpsc::Receiver<Bytes>,
        _permit: OwnedSemaphorePermit,
    },
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Events { events, .. } => {
                events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Events { .. } => SizeHint::default(),
        }
    }
}
