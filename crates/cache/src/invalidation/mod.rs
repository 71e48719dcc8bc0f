//! Invalidation: each purge, soft purge, ban and purge by tags is a value, and
//! [`Cache::invalidate`](crate::Cache::invalidate) is the one function that applies it.
//!
//! **Callers.** A reactor calls it for VCL (`return (purge)`, modules purge and xkey, bans). The thread of the
//! management port calls it for the command `ban` and for bans in vcl_init and vcl_fini. A journal that is replayed
//! and a connection to other caches call it from threads of their own. Callers hold no lock. They finish the returned
//! [`Purging`](crate::Purging); a reactor does so in slices.
//!
//! **Listeners.** It calls each of [`Config::invalidation_listeners`](crate::Config::invalidation_listeners) once for
//! each invalidation, on the caller's thread, with no lock held. At that moment the objects of a purge are found and
//! none of them is dropped; a ban is not in force. So no effect precedes the call, and each object that a purge drops
//! was published before it. An object that is published during the call may escape a purge, and may be hit by a ban.
//! The invalidations of several threads may reach a listener in a different order than that in which they take
//! effect.
//!
//! **Duties of a listener.** It returns at once: it takes a copy, and another thread writes or sends the copy. If the
//! answer to the user must wait for that, the listener takes a [`Hold`] of the [`Ticket`], and drops it when the record
//! was written or cannot be written. Callers that answer a user wait for the ticket of the [`Purging`](crate::Purging):
//! reactors await it as a future, the thread of the management port blocks. The effect does not wait for the ticket. A
//! listener may look up objects, but does not call [`Cache::invalidate`](crate::Cache::invalidate). A journal records
//! all but [`Arrival::Journal`], and a cluster sends only [`Arrival::Local`]; otherwise an invalidation would circulate
//! forever.
//!
//! **Applied later or elsewhere,** an invalidation has the same meaning: soft purges and conditions on ttl and age
//! refer to [`Invalidation::when`], not to the time of the call, so the clocks of the caches must agree. It applies
//! to the objects that exist at the call. A ban is tested at the next lookup of an object, so the result of a
//! condition on ttl, grace or keep depends on whether a soft purge preceded that lookup.
//!
//! **Not covered** are removals that no user requested: expiry, eviction, replacement by newer objects, failed
//! fetches, and objects that may be the response to another request.

mod apply;
mod event;
mod in_progress;
mod listener;
mod ticket;

pub use event::{Action, Invalidation, Purge, Reason, Source};
pub use in_progress::Earlier;
pub(crate) use in_progress::Invalidations;
pub use listener::{Arrival, InvalidationListener};
pub use ticket::{Hold, Ticket};
