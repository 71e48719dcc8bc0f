//! The interface to code that records invalidations or sends them to other caches.

use super::event::Invalidation;
use super::ticket::Ticket;

/// The path by which an invalidation reached this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A user of this cache requested it.
    Local,
    /// The cache's own journal contained it.
    Journal,
    /// Another cache sent it.
    Peer,
}

/// Receives each invalidation once, before it takes effect. The documentation of [`crate::invalidation`] lists the
/// threads that call it, the locks that they hold (none), and a listener's duties.
pub trait InvalidationListener: Send + Sync {
    /// Takes a copy of the event and returns at once. `ticket` can delay the answer to the user, which the caller sends
    /// after the ticket is ready.
    fn invalidated(&self, event: &Invalidation, arrival: Arrival, ticket: &mut Ticket);
}
