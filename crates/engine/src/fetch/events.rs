//! Events between a fetch and the request that waits for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::Object;

use super::upgraded::{Ended, Upgraded};
use crate::admission::Orphan;
use crate::interim::Interim;
use crate::req_body::ReqBody;
use crate::trailers::Trailers;

/// Events from a fetch to the request that waits for it.
#[derive(Default)]
pub struct FetchEvents {
    /// The fetch is about to read the request's body.
    pub reads_body: Cell<bool>,
    /// The request's body, which the fetch no longer needs.
    pub body: Cell<Option<ReqBody>>,
    pub started: Cell<Option<Started>>,
    /// The place of the trailers that follow the response.
    pub trailers: RefCell<Option<Rc<Trailers>>>,
    /// The interim responses of the origin that the client has not received yet.
    pub interim: RefCell<Vec<Interim>>,
    /// In both directions: a wait for the end of the client's handshake.
    pub handshake: Cell<Handshake>,
    /// The connection, which has become a tunnel.
    pub upgraded: Cell<Option<Box<Upgraded>>>,
    /// In the other direction: the end of the tunnel.
    pub ended: Cell<Option<Box<Ended>>>,
    /// In the other direction: the request's client is gone.
    pub client_gone: Cell<bool>,
    /// The id of the endpoint that the fetch uses.
    pub endpoint: Cell<u64>,
    /// Set once nobody waits for the fetch and it continues.
    pub orphan: RefCell<Option<Arc<Orphan>>>,
}

/// The handshake of a client that has sent its request as early data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshake {
    #[default]
    NotAwaited,
    /// The fetch waits for its end.
    Awaited,
    Complete,
    /// It has failed, or was not completed in time.
    Failed,
}

/// An event for the request's body: the fetch starts to read it, or returns it.
pub enum BodyEvent {
    Begun,
    Back(ReqBody),
}

/// The object that can be delivered, or `None` if there will be none.
pub struct Started(pub Option<Arc<Object>>);

/// The events that a request waits for after its body was sent.
pub enum Progress {
    Interim(Vec<Interim>),
    /// The origin refuses early data, so the fetch waits for the end of the handshake.
    TooEarly,
    Started(Started),
}

impl FetchEvents {
    pub fn body(&self) -> Option<BodyEvent> {
        if self.reads_body.take() {
            return Some(BodyEvent::Begun);
        }
        self.body.take().map(BodyEvent::Back)
    }

    /// Returns interim responses first, because they precede the final one.
    pub fn progress(&self) -> Option<Progress> {
        let started = self.started.take();
        if started.is_none() && self.interim.borrow().is_empty() {
            return (self.handshake.get() == Handshake::Awaited).then_some(Progress::TooEarly);
        }
        let interim = self.interim.take();
        if interim.is_empty() {
            return started.map(Progress::Started);
        }
        self.started.set(started);
        Some(Progress::Interim(interim))
    }
}
