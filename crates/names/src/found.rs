//! The outcome of one lookup.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

/// The maximum number of addresses of one name. Further ones are ignored.
pub const LONGEST_ANSWER: usize = 64;

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

impl Failure {
    pub fn new(text: &str) -> Failure {
        Failure { text: text.to_owned(), ttl: None }
    }

    /// Returns the failure of a lookup of addresses.
    pub(crate) fn of(error: &NetError) -> Failure {
        Failure::of_records(error, "it has no addresses")
    }

    /// Returns the failure of a lookup. `absent` is the text for a name without such records.
    pub(crate) fn of_records(error: &NetError, absent: &str) -> Failure {
        let (text, ttl) = match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) => {
                let text = if error.is_nx_domain() { "the name does not exist" } else { absent };
                (text.to_owned(), none.negative_ttl)
            }
            NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)) => {
                ("the name server has failed (SERVFAIL)".to_owned(), None)
            }
            NetError::Dns(DnsError::ResponseCode(ResponseCode::Refused)) => {
                ("the name server refuses to answer (REFUSED)".to_owned(), None)
            }
            NetError::Timeout => ("no name server has answered".to_owned(), None),
            other => (other.to_string(), None),
        };
        Failure { text, ttl: ttl.map(|seconds| Duration::from_secs(seconds.into())) }
    }
}

/// Keeps the addresses that an origin can have. The others are used to block names, and would lead to this machine or
/// to many.
pub fn usable(addresses: impl Iterator<Item = IpAddr>, ttl: Option<Duration>) -> Result<Found, Failure> {
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
