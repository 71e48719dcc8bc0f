//! The connections of one reactor, by their endpoints. Requests share connections: a connection is opened only if the
//! others have no room for a stream, and only one at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lacquer_sources::clock::Instant;
use tokio::sync::Notify;

use super::shared::Multiplexed;
use super::stream::Stream;

/// The time for which an origin that has chosen HTTP/1.1 is not offered HTTP/2 again.
const HTTP1_FOR: Duration = Duration::from_mins(1);

/// The connections to all endpoints.
#[derive(Default)]
pub struct Connections {
    by_endpoint: RefCell<HashMap<u64, Rc<Entry>>>,
}

/// The connections to one endpoint.
#[derive(Default)]
struct Entry {
    connections: RefCell<Vec<Weak<Multiplexed>>>,
    is_opening: Cell<bool>,
    /// The number of connections that were opened.
    count: Cell<u32>,
    /// A connection was opened, or could not be.
    changed: Notify,
    http1_until: Cell<Option<Instant>>,
}

/// The place of a request.
pub enum Place {
    /// A stream of an open connection.
    Stream(Arc<Stream>),
    /// The caller opens a connection.
    Open(Opening),
    /// The origin speaks HTTP/1.1.
    Http1,
    /// Another request opens a connection. `Opened::wait` waits for it.
    Wait(Opened),
}

/// The right to open a connection. Dropping it passes the right on.
pub struct Opening(Rc<Entry>);

/// The end of an opening that another request has begun.
pub struct Opened(Rc<Entry>);

impl Connections {
    /// Returns the place of a request. With `fresh`, a new connection is opened if none is being opened. A connection for
    /// which `is_over` holds, by the number of its streams and its age in seconds, gets no further streams.
    pub fn place(&self, endpoint: u64, fresh: bool, is_over: &dyn Fn(u32, f64) -> bool) -> Place {
        let entry = self.entry(endpoint);
        if entry.http1_until.get().is_some_and(|until| Instant::now() < until) {
            return Place::Http1;
        }
        let stream = if fresh { None } else { entry.reserve(is_over, true) };
        match stream {
            Some(stream) => Place::Stream(stream),
            None if entry.is_opening.replace(true) => Place::Wait(Opened(entry)),
            None => Place::Open(Opening(entry)),
        }
    }

    fn entry(&self, endpoint: u64) -> Rc<Entry> {
        let mut all = self.by_endpoint.borrow_mut();
        if let Some(entry) = all.get(&endpoint) {
            return entry.clone();
        }
        // Endpoints come and go with VCLs.
        all.retain(|_, entry| Rc::strong_count(entry) > 1 || entry.has_connections());
        all.entry(endpoint).or_default().clone()
    }
}

impl Entry {
    fn has_connections(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.strong_count() > 0);
        !connections.is_empty()
    }

    /// Reserves a stream on the first connection that has room, if `needs_shared` of those that are shared.
    fn reserve(&self, is_over: &dyn Fn(u32, f64) -> bool, needs_shared: bool) -> Option<Arc<Stream>> {
        self.has_connections();
        let connections = self.connections.borrow();
        let open = connections.iter().filter_map(Weak::upgrade);
        let usable = open.filter(|open| open.is_usable(is_over, needs_shared));
        usable.into_iter().find_map(|open| Stream::reserve(&open))
    }
}

impl Opening {
    /// Adds the connection that was opened, and reserves its first stream.
    pub fn complete(&self, connection: &Arc<Multiplexed>) -> Option<Arc<Stream>> {
        self.0.http1_until.set(None);
        self.0.connections.borrow_mut().push(Arc::downgrade(connection));
        self.0.count.set(self.0.count.get().wrapping_add(1));
        Stream::reserve(connection)
    }

    /// Shares the connection with other requests once the origin has announced its settings, or this time has passed.
    /// They might be more than the settings allow.
    pub async fn share(self, connection: Arc<Multiplexed>, most: Duration) {
        let _ = tokio::time::timeout(most, connection.has_settings()).await;
        connection.state().is_shared = true;
    }

    /// Records that the origin has chosen HTTP/1.1.
    pub fn chose_http1(self) {
        self.0.http1_until.set(Some(Instant::now() + HTTP1_FOR));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.changed.notify_waiters();
    }
}

impl Opened {
    /// Waits for the end. Returns whether a connection was opened since the call.
    pub async fn wait(&self) -> bool {
        let (changed, before) = (self.0.changed.notified(), self.0.count.get());
        if self.0.is_opening.get() {
            changed.await;
        }
        self.0.count.get() != before
    }

    /// Reserves a stream of a connection that is open, although its origin has not announced its settings in time.
    pub fn stream(&self, is_over: &dyn Fn(u32, f64) -> bool) -> Option<Arc<Stream>> {
        self.0.reserve(is_over, false)
    }
}
