//! The sink of a whole response: a head, then a body. Each protocol implements it.

use lacquer_flow::delivery::End;
use lacquer_http::{Message, Workspace};

use crate::sink::Sink;

/// The head of a response.
pub enum Head<'h> {
    /// The status and the fields of a message.
    Message(MessageHead<'h>),
    /// The status and the fields of an interim response.
    Interim { message: &'h Message, ws: &'h Workspace },
    /// Only a status. It completes the response, or is interim if it is below 200.
    Status(u16),
    /// A 500 that needs no workspace, because the workspace is too small for the message. It completes the response.
    OutOfWorkspace,
}

pub struct MessageHead<'h> {
    pub message: &'h Message,
    pub ws: &'h Workspace,
    /// How the end of the body is indicated. The fields of the message agree with it.
    pub end: End,
    /// Receives the log records of the encoding, if they are wanted.
    pub notes: Option<&'h mut dyn FnMut(String)>,
}

/// The numbers of bytes and pieces of a response that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The length of the head as encoded by the protocol.
    pub head: u64,
    pub body: u64,
    /// The number of pieces in which the body was sent.
    pub pieces: u64,
}

/// Sends one response by one protocol: first the [`head`](ResponseSink::head), then the body as a [`Sink`].
pub trait ResponseSink: Sink {
    /// Begins the response. The head is sent with the first bytes of the body, by [`Sink::flush`], or by [`Sink::end`].
    /// A second call replaces a head that was not sent yet. Returns the length of the head as encoded by the protocol.
    fn head(&mut self, head: Head<'_>) -> usize;

    /// Ends a failed response, so that the client does not take its bytes for the whole response. Does nothing on an
    /// HTTP/1 connection, because closing the connection has this effect.
    fn abort(&mut self);

    /// Returns the bytes that were sent so far.
    fn sent(&self) -> Sent;

    /// Returns the parameter whose limit ended the response, if one did.
    fn limit_hit(&self) -> Option<&'static str>;
}
