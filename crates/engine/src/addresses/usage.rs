//! One session's part of its address's limits.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lacquer_params::Params;
use lacquer_sources::clock;

use super::{AddressTable, Client, ClientKey, Rate, add_within};

/// A session's entry in the table, created when a limit first needs it and given back with the session.
#[derive(Default)]
pub struct AddressUsage {
    entry: OnceCell<Option<Entry>>,
    /// The session is one of its address's connections.
    counts: Cell<bool>,
}

struct Entry {
    table: Arc<AddressTable>,
    client: Arc<Client>,
    /// The rate of resets when the entry was made.
    rate: Rate,
}

/// One of its address's requests at work, counted for as long as it exists.
pub struct ActiveRequest(Arc<Client>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

fn reset_rate(params: &Params) -> Rate {
    Rate { limit: f64::from(params.h2_rapid_reset_address_limit), period: params.h2_rapid_reset_period }
}

impl AddressUsage {
    fn client(&self, table: &Arc<AddressTable>, ip: IpAddr, params: &Params) -> Option<&Arc<Client>> {
        let enter = || {
            let key = ClientKey::of(ip, params.client_ipv6_prefix)?;
            let rate = reset_rate(params);
            let client = table.enter(key, rate, clock::monotonic());
            Some(Entry { table: table.clone(), client, rate })
        };
        self.entry.get_or_init(enter).as_ref().map(|entry| &entry.client)
    }

    fn is_counting(params: &Params) -> bool {
        params.client_max_connections > 0 || params.client_max_requests > 0
    }

    /// Counts the connection; returns false if its address has as many as it may.
    pub fn connect(&self, table: &Arc<AddressTable>, ip: IpAddr, params: &Params) -> bool {
        if !Self::is_counting(params) || self.counts.get() {
            return true;
        }
        let Some(client) = self.client(table, ip, params) else { return true };
        let counted = add_within(&client.connections, params.client_max_connections);
        self.counts.set(counted);
        counted
    }

    /// Counts a request of an address whose requests are limited. Fails if it has as many at work as it may.
    pub fn begin_request(
        &self,
        table: &Arc<AddressTable>,
        ip: IpAddr,
        params: &Params,
    ) -> Result<Option<ActiveRequest>, ()> {
        if params.client_max_requests == 0 {
            return Ok(None);
        }
        let Some(client) = self.client(table, ip, params) else { return Ok(None) };
        if !add_within(&client.requests, params.client_max_requests) {
            return Err(());
        }
        Ok(Some(ActiveRequest(client.clone())))
    }

    /// Charges a rapid reset to the address; returns false if its budget is exhausted.
    pub fn charge_reset(&self, table: &Arc<AddressTable>, ip: IpAddr, params: &Params) -> bool {
        let rate = reset_rate(params);
        if rate.limit <= 0.0 {
            return true;
        }
        let Some(client) = self.client(table, ip, params) else { return true };
        client.resets.lock().charge(rate.limit, rate.period, clock::monotonic())
    }

    fn count(&self, which: fn(&Client) -> &AtomicU32) -> u32 {
        let entry = self.entry.get().and_then(Option::as_ref);
        entry.map_or(0, |entry| which(&entry.client).load(Ordering::Relaxed))
    }

    /// Returns the connections of the address; 0 where they are not counted.
    pub fn connections(&self) -> u32 {
        self.count(|client| &client.connections)
    }

    /// Returns the requests at work of the address; 0 where they are not counted.
    pub fn requests(&self) -> u32 {
        self.count(|client| &client.requests)
    }
}

impl Drop for AddressUsage {
    fn drop(&mut self) {
        let Some(Entry { table, client, rate }) = self.entry.take().flatten() else { return };
        if self.counts.get() {
            client.connections.fetch_sub(1, Ordering::Relaxed);
        }
        table.leave(client, rate, clock::monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn params(set: impl FnOnce(&mut Params)) -> Params {
        let mut params = Params::default();
        set(&mut params);
        params
    }

    #[test]
    fn nothing_is_counted_without_limits() {
        let table = Arc::new(AddressTable::default());
        let usage = AddressUsage::default();
        assert!(usage.connect(&table, HOME, &Params::default()));
        assert!(matches!(usage.begin_request(&table, HOME, &Params::default()), Ok(None)));
        assert_eq!((usage.connections(), table.len()), (0, 0));
    }

    #[test]
    fn connections_and_requests_have_limits() {
        let table = Arc::new(AddressTable::default());
        let params = params(|p| (p.client_max_connections, p.client_max_requests) = (2, 1));
        let sessions: Vec<_> = (0..3).map(|_| AddressUsage::default()).collect();
        let admitted: Vec<_> = sessions.iter().map(|usage| usage.connect(&table, HOME, &params)).collect();
        assert_eq!(admitted, [true, true, false]);
        let first = sessions[0].begin_request(&table, HOME, &params);
        assert!(matches!(first, Ok(Some(_))));
        assert!(sessions[1].begin_request(&table, HOME, &params).is_err());
        assert_eq!((sessions[1].connections(), sessions[1].requests()), (2, 1));
        drop(first);
        assert!(sessions[1].begin_request(&table, HOME, &params).is_ok());
        drop(sessions);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn resets_are_charged_to_the_address_over_all_its_sessions() {
        let table = Arc::new(AddressTable::default());
        let params = params(|p| p.h2_rapid_reset_address_limit = 25);
        let charged = |_| AddressUsage::default().charge_reset(&table, HOME, &params);
        assert_eq!((0..100).map(charged).filter(|&charged| charged).count(), 25);
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
        assert!(AddressUsage::default().charge_reset(&table, elsewhere, &params));
    }
}
