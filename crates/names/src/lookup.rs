//! One lookup: static names first, then name servers.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{RData, RecordType};

use crate::hosts::Hosts;
use crate::settings::configuration;

/// The maximum number of addresses of one name. Further ones are ignored.
pub const LONGEST_ANSWER: usize = 64;
/// Time limit of one lookup, whatever `/etc/resolv.conf` allows.
const LIMIT: Duration = Duration::from_mins(1);

/// The addresses of a name, or the places of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In ascending order, without duplicates.
    pub addresses: Vec<IpAddr>,
    /// By ascending priority.
    pub places: Vec<Place>,
    /// The time until the answer expires; `None` for a static name.
    pub ttl: Option<Duration>,
}

/// One place of a service (an SRV record, RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub host: String,
}

/// The reason why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub text: String,
    /// The time until a negative answer expires.
    pub ttl: Option<Duration>,
}

/// Looks up names by one state of the system's files.
pub struct Lookup {
    hosts: Hosts,
    resolver: Result<TokioResolver, String>,
}

impl Lookup {
    pub fn new(servers: &str, hosts: &[u8], resolv_conf: &[u8]) -> Lookup {
        let resolver = configuration(servers, resolv_conf).and_then(|(config, options)| {
            let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            *builder.options_mut() = options;
            builder.build().map_err(|error| error.to_string())
        });
        Lookup { hosts: Hosts::parse(hosts), resolver }
    }

    /// Looks up the addresses of a name.
    pub async fn run(&self, name: &str) -> Result<Found, Failure> {
        if let Some(addresses) = self.hosts.find(name) {
            return usable(addresses.iter().copied(), None);
        }
        let failed = |text: &str| Failure { text: text.to_owned(), ttl: None };
        let resolver = self.resolver.as_ref().map_err(|text| failed(text))?;
        let answer = tokio::time::timeout(LIMIT, resolver.lookup_ip(name)).await;
        let answer = answer.map_err(|_| failed("no answer in time"))?.map_err(|error| failure(&error))?;
        let ttl = answer.valid_until().saturating_duration_since(Instant::now());
        usable(answer.iter(), Some(ttl))
    }

    /// Looks up the places of a service.
    pub async fn service(&self, name: &str) -> Result<Found, Failure> {
        let failed = |text: &str| Failure { text: text.to_owned(), ttl: None };
        let resolver = self.resolver.as_ref().map_err(|text| failed(text))?;
        let answer = tokio::time::timeout(LIMIT, resolver.lookup(name, RecordType::SRV)).await;
        let answer = answer.map_err(|_| failed("no answer in time"))?.map_err(|error| failure(&error))?;
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
            return Err(Failure { text: "the service has no places".to_owned(), ttl });
        }
        Ok(Found { places, ttl, ..Found::default() })
    }
}

/// Keeps the addresses that an origin can have. The others are used to block names, and would lead to this machine or
/// to many.
fn usable(addresses: impl Iterator<Item = IpAddr>, ttl: Option<Duration>) -> Result<Found, Failure> {
    let is_origin = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    };
    let mut addresses: Vec<IpAddr> = addresses.filter(is_origin).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(LONGEST_ANSWER);
    if addresses.is_empty() {
        return Err(Failure { text: "it has no usable addresses".to_owned(), ttl });
    }
    Ok(Found { addresses, ttl, ..Found::default() })
}

fn failure(error: &NetError) -> Failure {
    let (text, ttl) = match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let text = if error.is_nx_domain() { "the name does not exist" } else { "it has no addresses" };
            (text.to_owned(), none.negative_ttl)
        }
        NetError::Timeout => ("no name server has answered".to_owned(), None),
        other => (other.to_string(), None),
    };
    Failure { text, ttl: ttl.map(|seconds| Duration::from_secs(seconds.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_addresses_are_dropped() {
        let parse = |list: &[&str]| list.iter().map(|a| a.parse::<IpAddr>().unwrap()).collect::<Vec<_>>();
        let found = usable(
            parse(&["10.0.0.2", "0.0.0.0", "::", "224.0.0.1", "10.0.0.1", "10.0.0.2"]).into_iter(),
            None,
        );
        assert_eq!(found.unwrap().addresses, parse(&["10.0.0.1", "10.0.0.2"]));
        let ttl = Some(Duration::from_secs(9));
        assert_eq!(usable(parse(&["0.0.0.0"]).into_iter(), ttl).unwrap_err().ttl, ttl);
        let many = (0..1000u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        assert_eq!(usable(many, None).unwrap().addresses.len(), LONGEST_ANSWER);
    }
}
