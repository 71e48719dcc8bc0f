//! The source of a response body.

use lacquer_cache::{BodyState, ObjRef, Object};

use crate::sink::{Behind, SendError, Sink};
use crate::stored::send_stored;

/// The source of a response body.
pub enum Source {
    Object(ObjRef),
    /// A body that VCL has set.
    Bytes(Vec<u8>),
}

impl Source {
    pub fn object(&self) -> Option<&Object> {
        match self {
            Source::Object(object) => Some(object),
            Source::Bytes(_) => None,
        }
    }

    /// Returns whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match self {
            Source::Object(object) => object.state() == BodyState::Complete,
            Source::Bytes(_) => true,
        }
    }

    /// Returns whether the body is known to be empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Source::Object(object) => object.state() == BodyState::Complete && object.body_len() == 0,
            Source::Bytes(bytes) => bytes.is_empty(),
        }
    }

    /// Sends the bytes from `from` to `to` (or to the end of the body) without filters, and ends the response.
    pub async fn send(&self, sink: &mut impl Sink, from: u64, to: Option<u64>) -> Result<(), SendError> {
        let to = to.unwrap_or(u64::MAX);
        match self {
            Source::Object(object) => {
                send_stored(sink, object, from, to, Behind::End).await?;
                sink.end().await
            }
            Source::Bytes(bytes) => {
                let to = to.min(bytes.len() as u64) as usize;
                sink.end_with(&bytes[(from as usize).min(to)..to]).await
            }
        }
    }
}
