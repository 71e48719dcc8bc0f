//! A response on its way to the client: a head, then a body. A protocol implements it.

use lacquer_flow::delivery::End;
use lacquer_http::{Message, Workspace};

use crate::sink::Sink;

/// The head of a response.
pub enum Head<'h> {
    /// Status and fields of a message.
    Message(MessageHead<'h>),
    /// A status alone. The response is complete with it, or is interim if the status is below 200.
    Status(u16),
    /// 500, made without the workspace, which is too small for the message. The response is complete with it.
    OutOfWorkspace,
}

pub struct MessageHead<'h> {
    pub message: &'h Message,
    pub ws: &'h Workspace,
    /// The marking of the body's end, which the fields of the message agree with.
    pub end: End,
    /// Receives the records of the encoding for the log, if they are wanted.
    pub notes: Option<&'h mut dyn FnMut(String)>,
}

/// The bytes of a response that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The length of the head in the protocol's form.
    pub head: u64,
    pub body: u64,
    /// The number of pieces in which the body was sent.
    pub pieces: u64,
}

/// Sends one response by one protocol: first [`head`](ResponseSink::head), then the body as a [`Sink`].
pub trait ResponseSink: Sink {
    /// Begins the response. The head leaves with the first bytes of the body, with [`Sink::flush`] or with
    /// [`Sink::end`]. Returns its length in the protocol's form. A head that has not left is replaced.
    fn head(&mut self, head: Head<'_>) -> usize;

    /// Ends a response that failed, so that the client does not take its bytes for the whole. Does nothing over a
    /// connection that carries one response at a time: its own end has this effect.
    fn abort(&mut self);

    /// Returns the bytes that were sent so far.
    fn sent(&self) -> Sent;

    /// Returns the parameter whose limit ended the response, if one did.
    fn limit_hit(&self) -> Option<&'static str>;
}
