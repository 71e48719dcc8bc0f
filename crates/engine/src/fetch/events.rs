//! Events between a fetch and the request that waits for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::Object;

use super::upgraded::{Ended, Upgraded};
use crate::admission::Orphan;
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

/// An event for the request's body: the fetch starts to read it, or returns it.
pub enum BodyEvent {
    Begun,
    Back(ReqBody),
}

/// The object that can be delivered, or `None` if there will be none.
pub struct Started(pub Option<Arc<Object>>);

impl FetchEvents {
    pub fn body(&self) -> Option<BodyEvent> {
        if self.reads_body.take() {
            return Some(BodyEvent::Begun);
        }
        self.body.take().map(BodyEvent::Back)
    }

    pub fn started(&self) -> Option<Started> {
        self.started.take()
    }
}
