//! The state that a store shares with the listeners.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::RwLock;

use crate::challenges::Challenges;
use crate::client::Verifying;
use crate::configs::Configs;
use crate::on_demand::OnDemand;
use crate::protocols::Protocols;
use crate::table::Table;

/// The tables of a moment.
#[derive(Debug)]
pub struct Tables {
    pub global: Table,
    /// By the number of the listener.
    pub local: Vec<Table>,
    /// The verification of clients, by the number of the listener.
    pub clients: Vec<Arc<Verifying>>,
}

impl Tables {
    /// Creates empty tables for the listeners that verify clients like this.
    pub fn new(clients: Vec<Arc<Verifying>>) -> Tables {
        let local = clients.iter().map(|_| Table::default()).collect();
        Tables { global: Table::default(), local, clients }
    }
}

/// The parts that the listeners share.
#[derive(Debug)]
pub struct Shared {
    pub tables: RwLock<Arc<Tables>>,
    pub configs: Configs,
    pub challenges: Challenges,
    pub on_demand: OnDemand,
    /// Whether HTTP/2 is offered.
    pub http2: AtomicBool,
    /// The protocols of listeners that set none.
    pub protocols: Protocols,
}
