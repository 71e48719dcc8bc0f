//! Faults: the end of a stream or a connection, and the record for the log.

use crate::error_table::{Error, Reason};
use lacquer_h2::{Note, Tag};
use std::borrow::Cow;

/// The end of a connection or a stream, with its reason and its log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub error: Error,
    pub note: Option<Note>,
}

impl Fault {
    pub(crate) fn connection(reason: Reason, text: impl Into<Cow<'static, str>>) -> Fault {
        Fault { error: Error::Connection(reason), note: Some(Note::new(Tag::SessError, text)) }
    }

    pub(crate) fn stream(reason: Reason, text: impl Into<Cow<'static, str>>) -> Fault {
        Fault { error: Error::Stream(reason), note: Some(Note::new(Tag::Debug, text)) }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault { error, note: None }
    }
}
