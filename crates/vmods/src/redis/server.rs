//! One server of a database: its role, its health, and its idle connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::connection::{Connection, Idle};
use super::counters::{Counter, Counters};
use super::location::Location;
use super::tls::ServerTls;

/// The seconds after which a slave is asked for its role again, because it may have become a master.
const ROLE_TTL: f64 = 5.0;

/// The role of a server in replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Master = 0,
    Slave = 1,
    Unknown = 2,
}

/// The moments of the last failure to connect, on the monotonic clock. The server is sick until `until`.
#[derive(Clone, Copy, Default)]
struct Sickness {
    since: f64,
    until: f64,
}

pub(super) struct Server {
    /// The place as it is written in VCL.
    pub text: String,
    pub location: Location,
    pub weight: u8,
    pub tls: Option<ServerTls>,
    role: AtomicU8,
    /// Whether each new connection asks for the role.
    pub asks_role: bool,
    /// The time at which the server was last asked for its role, as the bits of an `f64`.
    asked: AtomicU64,
    sickness: Mutex<Sickness>,
    lanes: Mutex<HashMap<u64, Arc<Lane>>>,
}

/// The connections of all tasks, or of the tasks of one reactor.
pub(super) struct Lane {
    /// A permit for each connection that may exist.
    pub permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Lane {
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection for the next command.
    pub(super) fn keep(&self, connection: Connection) {
        self.idle().push(connection);
    }
}

impl Server {
    /// Creates a server. A role of `Unknown` is asked for with each new connection.
    pub(super) fn new(
        text: &str,
        location: Location,
        weight: u8,
        role: Role,
        tls: Option<ServerTls>,
    ) -> Server {
        Server {
            text: text.to_owned(),
            location,
            weight,
            tls,
            role: AtomicU8::new(role as u8),
            asks_role: role == Role::Unknown,
            asked: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
            sickness: Mutex::default(),
            lanes: Mutex::default(),
        }
    }

    /// Returns the role. It is unknown if the server was a slave when it was last asked, and has to be asked again.
    pub(super) fn role(&self, now: f64) -> Role {
        match self.role.load(Ordering::Relaxed) {
            0 => Role::Master,
            1 if !self.must_ask(now) => Role::Slave,
            _ => Role::Unknown,
        }
    }

    pub(super) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// Records that the server was asked for its role.
    pub(super) fn asked(&self, now: f64) {
        self.asked.store(now.to_bits(), Ordering::Relaxed);
    }

    /// Returns whether a server that is not known as a master has to be asked for its role.
    pub(super) fn must_ask(&self, now: f64) -> bool {
        self.asks_role
            && self.role.load(Ordering::Relaxed) != Role::Master as u8
            && now - f64::from_bits(self.asked.load(Ordering::Relaxed)) >= ROLE_TTL
    }

    fn sickness(&self) -> MutexGuard<'_, Sickness> {
        self.sickness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the seconds for which the server stays sick; 0 if it is healthy.
    pub(super) fn sick_for(&self, now: f64) -> f64 {
        (self.sickness().until - now).max(0.0)
    }

    /// Records a failure to connect.
    pub(super) fn fell_sick(&self, now: f64, ttl: f64) {
        if ttl > 0.0 {
            *self.sickness() = Sickness { since: now, until: now + ttl };
        }
    }

    pub(super) fn recovered(&self) {
        self.sickness().until = 0.0;
    }

    /// Returns the connections of a lane, of which at most `most` may exist.
    pub(super) fn lane(&self, lane: u64, most: usize) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Lane { permits: Semaphore::new(most), idle: Mutex::default() });
        lanes.entry(lane).or_insert_with(new).clone()
    }

    /// Returns an idle connection that can be used. Closes those that cannot: older than `ttl` seconds (if not 0), older
    /// than the last failure to connect, or closed by the server.
    pub(super) fn idle(&self, lane: &Lane, now: f64, ttl: f64, counters: &Counters) -> Option<Connection> {
        loop {
            let mut connection = lane.idle().pop()?;
            let reason = if ttl > 0.0 && now - connection.born > ttl {
                Counter::DroppedTtl
            } else if connection.born <= self.sickness().since {
                Counter::DroppedSick
            } else if connection.check() == Idle::Closed {
                Counter::DroppedHungUp
            } else {
                return Some(connection);
            };
            counters.add(reason);
        }
    }

    /// Closes all idle connections.
    pub(super) fn close_idle(&self) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.values().for_each(|lane| lane.idle().clear());
    }
}
