//! Counts what each client address does at a time: connections, requests at work, rapid resets.
//!
//! The table is used only where a limit is on: a session whose limits are off takes no lock and has no entry. An entry
//! exists for as long as a session refers to it, and after that until its budget of resets has refilled; of such idle
//! entries there are at most 65,536 (`SHARDS * SHARD_MAX`). Entries in use are bounded by the connections there are.

mod budget;
mod usage;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use budget::Budget;
use parking_lot::Mutex;
pub use usage::{AddressUsage, ActiveRequest};

const SHARDS: usize = 64;
/// Idle entries of one shard.
const SHARD_MAX: usize = 1024;
/// The largest number of idle entries in the table. Each takes about 100 bytes.
#[cfg(test)]
const IDLE_MAX: usize = SHARDS * SHARD_MAX;

/// Names one client: an IPv4 address, or an IPv6 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(IpAddr);

impl ClientKey {
    /// Returns the key of an address; of an IPv6 address `prefix` bits count. None for the address that stands for
    /// a client without one, on a UNIX socket.
    pub fn of(ip: IpAddr, prefix: u32) -> Option<ClientKey> {
        if ip.is_unspecified() {
            return None;
        }
        Some(ClientKey(match ip {
            IpAddr::V4(_) => ip,
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        }))
    }
}

impl std::fmt::Display for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One client's entry.
#[derive(Debug)]
struct Client {
    key: ClientKey,
    connections: AtomicU32,
    requests: AtomicU32,
    resets: Mutex<Budget>,
}

/// A limit on events in a period of seconds, as the parameters give it.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub limit: f64,
    pub period: f64,
}

impl Client {
    fn spent(&self, rate: Rate, now: f64) -> f64 {
        self.resets.lock().spent(rate.limit, rate.period, now)
    }
}

type Shard = HashMap<ClientKey, Arc<Client>>;

/// The entries of all clients.
pub struct AddressTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl Default for AddressTable {
    fn default() -> AddressTable {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        AddressTable { shards, hasher: RandomState::new() }
    }
}

/// Returns whether only the table refers to this entry. The result holds while the shard is locked.
fn is_idle(client: &Arc<Client>) -> bool {
    Arc::strong_count(client) == 1
}

impl AddressTable {
    fn shard(&self, key: ClientKey) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Returns the client's entry; creates it if there is none.
    fn enter(&self, key: ClientKey, rate: Rate, now: f64) -> Arc<Client> {
        let mut shard = self.shard(key).lock();
        if let Some(client) = shard.get(&key) {
            return client.clone();
        }
        if shard.len() >= SHARD_MAX {
            make_room(&mut shard, rate, now);
        }
        let client = Arc::new(Client {
            key,
            connections: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            resets: Mutex::new(Budget::full(now)),
        });
        shard.insert(key, client.clone());
        client
    }

    /// Gives an entry back. Its last user removes it, unless its budget is not full.
    fn leave(&self, client: Arc<Client>, rate: Rate, now: f64) {
        let mut shard = self.shard(client.key).lock();
        let key = client.key;
        drop(client);
        if shard.get(&key).is_some_and(|client| is_idle(client) && client.spent(rate, now) <= 0.0) {
            shard.remove(&key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Removes idle entries whose budget is full again, or else the idle one that has spent the least, so that flooding
/// the table with addresses does not clear the record of the worst.
fn make_room(shard: &mut Shard, rate: Rate, now: f64) {
    let before = shard.len();
    shard.retain(|_, client| !is_idle(client) || client.spent(rate, now) > 0.0);
    if shard.len() < before {
        return;
    }
    let idle = shard.values().filter(|client| is_idle(client));
    let least =
        idle.min_by(|a, b| a.spent(rate, now).total_cmp(&b.spent(rate, now))).map(|client| client.key);
    if let Some(key) = least {
        shard.remove(&key);
    }
}

/// Adds one unless there are `limit` already; 0 is no limit.
fn add_within(count: &AtomicU32, limit: u32) -> bool {
    let add = |n: u32| (limit == 0 || n < limit).then(|| n.saturating_add(1));
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { limit: 10.0, period: 60.0 };

    fn key(text: &str) -> ClientKey {
        ClientKey::of(text.parse().unwrap(), 64).unwrap()
    }

    #[test]
    fn ipv6_clients_are_networks() {
        assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::9"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        let whole = |text: &str| ClientKey::of(text.parse().unwrap(), 128);
        assert_ne!(whole("2001:db8::1"), whole("2001:db8::2"));
        assert_eq!(ClientKey::of("0.0.0.0".parse().unwrap(), 64), None);
    }

    #[test]
    fn an_entry_goes_with_its_last_user() {
        let table = AddressTable::default();
        let one = table.enter(key("192.0.2.1"), RATE, 0.0);
        let two = table.enter(key("192.0.2.1"), RATE, 0.0);
        assert!(Arc::ptr_eq(&one, &two));
        table.leave(one, RATE, 0.0);
        assert_eq!(table.len(), 1);
        table.leave(two, RATE, 0.0);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn spent_budgets_outlive_connections_and_the_table_stays_bounded() {
        let table = AddressTable::default();
        let worst = table.enter(key("192.0.2.1"), RATE, 0.0);
        while worst.resets.lock().charge(RATE.limit, RATE.period, 0.0) {}
        table.leave(worst, RATE, 0.0);
        for n in 0..200_000u32 {
            let ip = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n));
            let client = table.enter(ClientKey::of(ip, 64).unwrap(), RATE, 0.0);
            client.resets.lock().charge(RATE.limit, RATE.period, 0.0);
            table.leave(client, RATE, 0.0);
        }
        assert!(table.len() <= IDLE_MAX, "{}", table.len());
        let worst = table.enter(key("192.0.2.1"), RATE, 0.0);
        assert!(!worst.resets.lock().charge(RATE.limit, RATE.period, 0.0), "its record is still there");
    }

    #[test]
    fn counts_stop_at_their_limit() {
        let count = AtomicU32::new(0);
        assert_eq!((0..9).filter(|_| add_within(&count, 5)).count(), 5);
        assert!(add_within(&count, 0));
    }
}
