//! One lookup: static names first, then name servers.

use std::time::{Duration, Instant};

use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::time::timeout;

use crate::found::{Failure, Found, LONGEST_ANSWER, Place, usable};
use crate::hosts::Hosts;
use crate::servers::{Memory, Servers};
use crate::settings::Settings;

/// Time limit of one lookup, whatever `/etc/resolv.conf` allows.
const LIMIT: Duration = Duration::from_mins(1);

const NO_SRV: &str = "it has no SRV records";

/// Looks up names by one state of the system's files.
pub struct Lookup {
    hosts: Hosts,
    servers: Result<Servers, String>,
}

impl Lookup {
    pub fn new(servers: &str, hosts: &[u8], resolv_conf: &[u8]) -> Lookup {
        Lookup { hosts: Hosts::parse(hosts), servers: Servers::new(servers, resolv_conf) }
    }

    fn servers(&self) -> Result<&Servers, Failure> {
        self.servers.as_ref().map_err(|text| Failure::new(text))
    }

    /// Looks up the addresses of a name. A record type that was found to be absent is not asked for again for the longest
    /// TTL of the settings at most. A first lookup may end with half of the addresses; see [`Memory::is_half`].
    pub async fn run(
        &self,
        name: &str,
        memory: &mut Memory,
        settings: &Settings,
        is_first: bool,
    ) -> Result<Found, Failure> {
        if let Some(addresses) = self.hosts.find(name) {
            *memory = Memory::default();
            return usable(addresses.iter().copied(), None);
        }
        let servers = self.servers()?;
        let found = timeout(LIMIT, servers.addresses(name, memory, settings, is_first)).await;
        let found = found.map_err(|_| Failure::new("no answer in time"))??;
        usable(found.addresses.into_iter(), found.ttl)
    }

    /// Looks up the places of a service.
    pub async fn service(&self, name: &str) -> Result<Found, Failure> {
        let answer = timeout(LIMIT, self.servers()?.resolver.lookup(name, RecordType::SRV)).await;
        let answer = answer.map_err(|_| Failure::new("no answer in time"))?;
        let answer = answer.map_err(|error| Failure::of_records(&error, NO_SRV))?;
        let ttl = Some(answer.valid_until().saturating_duration_since(Instant::now()));
        let places = answer.answers().iter().filter_map(|record| {
            let RData::SRV(service) = &record.data else { return None };
            let host = service.target.to_utf8().trim_end_matches('.').to_ascii_lowercase();
            // A service at the root is one that does not exist.
            let (priority, weight, port) = (service.priority, service.weight, service.port);
            (!host.is_empty()).then_some(Place { priority, weight, port, host })
        });
        let mut places: Vec<Place> = places.collect();
        places.sort_unstable();
        places.dedup();
        places.truncate(LONGEST_ANSWER);
        if places.is_empty() {
            let has_records = answer.answers().iter().any(|record| record.record_type() == RecordType::SRV);
            let text = if has_records { "its SRV records state that it is not offered" } else { NO_SRV };
            return Err(Failure { text: text.to_owned(), ttl });
        }
        Ok(Found { places, ttl, ..Found::default() })
    }
}
