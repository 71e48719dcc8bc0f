//! The body of a response before it is delivered.

use lacquer_cache::{BodyState, ObjRef, Object};

use crate::sink::{Behind, SendError, Sink};
use crate::stored::send_stored;

/// The origin of a response's body.
pub enum Source {
    Object(ObjRef),
    /// A body that VCL made.
    Bytes(Vec<u8>),
}

impl Source {
    pub fn object(&self) -> Option<&Object> {
        match self {
            Source::Object(object) => Some(object),
            Source::Bytes(_) => None,
        }
    }

    /// Returns whether the whole body is there and stays.
    pub fn is_complete(&self) -> bool {
        match self {
            Source::Object(object) => object.state() == BodyState::Complete,
            Source::Bytes(_) => true,
        }
    }

    /// Returns whether it is known that there is no body.
    pub fn is_empty(&self) -> bool {
        match self {
            Source::Object(object) => object.state() == BodyState::Complete && object.body_len() == 0,
            Source::Bytes(bytes) => bytes.is_empty(),
        }
    }

    /// Sends the bytes from `from` to `to` (or all that follow) as they are, and the end.
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
