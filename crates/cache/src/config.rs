//! The configuration of a new cache.

use lacquer_storage::Stevedore;

use crate::bans::HeadReader;
use crate::invalidation::InvalidationListener;

/// The configuration of a new cache.
pub struct Config {
    /// The storages, in the order of their index.
    pub stevedores: Vec<Stevedore>,
    /// Reads headers from packed heads, for bans.
    pub heads: Box<dyn HeadReader>,
    pub hooks: Hooks,
    /// Parameter `rush_exponent`.
    pub rush_exponent: u32,
    /// Parameter `ban_dups`.
    pub ban_dups: bool,
    /// The listeners that receive purges and bans, such as a journal.
    pub invalidation_listeners: Vec<Box<dyn InvalidationListener>>,
}

/// Callbacks to the owner of the cache. They run with locks held: they must be quick and must not call the cache.
#[derive(Default)]
pub struct Hooks {
    /// [`Cache::expire`](crate::Cache::expire) must run earlier than the time that it last returned.
    pub expiry: Option<Box<dyn Fn() + Send + Sync>>,
    /// [`Cache::lurk`](crate::Cache::lurk) has work to do.
    pub lurker: Option<Box<dyn Fn() + Send + Sync>>,
}
