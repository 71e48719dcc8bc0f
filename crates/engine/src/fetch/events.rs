//! Messages between a fetch and the request that waits for it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lacquer_cache::Object;

use crate::admission::Orphan;
use crate::req_body::ReqBody;

/// Messages from a fetch to the request that waits for it.
#[derive(Default)]
pub struct FetchEvents {
    /// The request's body is about to be read.
    pub reads_body: Cell<bool>,
    /// The request's body is not needed any more.
    pub body: Cell<Option<ReqBody>>,
    pub started: Cell<Option<Started>>,
    /// In the other direction, to the fetch: the request's client is gone.
    pub client_gone: Cell<bool>,
    /// The endpoint that the fetch uses.
    pub endpoint: Cell<u64>,
    /// Set once nobody waits for a fetch that goes on.
    pub orphan: RefCell<Option<Arc<Orphan>>>,
}

/// An event of the request's body: its reading has begun, or it comes back.
pub enum BodyEvent {
    Begun,
    Back(ReqBody),
}

/// The object that can be delivered, or none if there will be none.
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
