//! An invalidation as a value. It owns all its data and contains no reference to this process, so that it can be
//! stored, sent to other caches and applied later.

use crate::bans::BanSpec;
use crate::slab::Digest;

/// A purge or ban, with its time, its reason and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalidation {
    action: Action,
    when: f64,
    why: Reason,
    from: Source,
}

/// The objects that an invalidation concerns, and its effect on them.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Purges all variants of a key, but not fetches in progress.
    PurgeKey { digest: Digest, purge: Purge },
    /// Purges all objects that have any of these tags. A soft purge skips objects that are not fresh.
    PurgeTags { tags: Vec<Box<[u8]>>, purge: Purge },
    /// Bans the objects that meet all conditions.
    Ban(BanSpec),
}

/// The effect of a purge on the objects that it finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Purge {
    /// Removes them.
    Hard,
    /// Limits their timers to these values, in seconds; `None` leaves a timer as it is. The ttl counts from the time
    /// of the invalidation.
    Soft { ttl: f64, grace: Option<f64>, keep: Option<f64> },
}

/// The means by which a user requested an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `return (purge)` in vcl_recv.
    PurgeAction,
    /// A function of module purge.
    PurgeModule,
    /// A function of module xkey, or the management command `tag.purge`.
    Tags,
    /// The management command `ban`.
    BanCommand,
    /// `ban()` or `std.ban()` in VCL.
    BanFunction,
}

/// The party that requested an invalidation. Transaction numbers are those of the cache that received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An operator at the management port.
    Management,
    /// VCL that ran for a client's request.
    Request { vxid: u64 },
    /// VCL that ran for a fetch.
    Fetch { vxid: u64 },
    /// vcl_init or vcl_fini.
    Program,
}

impl Invalidation {
    /// Creates an invalidation. `when` is the time at which it was requested, in seconds since the epoch.
    pub fn new(action: Action, when: f64, why: Reason, from: Source) -> Self {
        Self { action, when, why, from }
    }

    pub fn action(&self) -> &Action {
        &self.action
    }

    /// Returns the time to which the durations of a soft purge and the ages in a ban refer. It is also the time of
    /// the ban in `ban.list`.
    pub fn when(&self) -> f64 {
        self.when
    }

    pub fn why(&self) -> Reason {
        self.why
    }

    pub fn from(&self) -> Source {
        self.from
    }

    pub(crate) fn into_action(self) -> Action {
        self.action
    }
}
