//! The state that a store shares with the listeners.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::RwLock;

use crate::challenges::Challenges;
use crate::configs::Configs;
use crate::protocols::Protocols;
use crate::table::Table;

/// The tables of a moment.
#[derive(Debug)]
pub struct Tables {
    pub global: Table,
    /// By the number of the listener.
    pub local: Vec<Table>,
}

impl Tables {
    /// Creates empty tables for this number of listeners.
    pub fn new(frontends: usize) -> Tables {
        Tables { global: Table::default(), local: (0..frontends).map(|_| Table::default()).collect() }
    }
}

/// The parts that the listeners share.
#[derive(Debug)]
pub struct Shared {
    pub tables: RwLock<Arc<Tables>>,
    pub configs: Configs,
    pub challenges: Challenges,
    /// Whether HTTP/2 is offered.
    pub http2: AtomicBool,
    /// The protocols of listeners that set none.
    pub protocols: Protocols,
}
