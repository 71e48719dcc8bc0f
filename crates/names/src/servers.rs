//! Queries for addresses to name servers.
//!
//! Most names have addresses of one family only. The absence of the other one is remembered until its negative answer
//! expires, so that a refresh is one query. It is forgotten when the family that was there is not anymore.
//!
//! The first lookup of a name ends with the addresses of one family, the preferred one if that is quick. The other one is
//! asked for afterwards: servers that never answer for it delay nobody. If they do not answer for a family, it is asked for
//! more and more rarely, and always after the other one.

use std::net::IpAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use hickory_resolver::Resolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::timeout;

use crate::found::{Failure, Found};
use crate::settings::{Settings, configuration};
use crate::transport::Transport;

/// Time for which the preferred family is asked for alone (the Resolution Delay of RFC 8305 section 8).
const HEAD_START: Duration = Duration::from_millis(50);
/// Time for which a refresh waits for one family after the other has answered.
const PATIENCE: Duration = Duration::from_millis(500);
/// The shortest and the longest time for which a family is not asked for again after servers did not answer for it.
const PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_hours(1));

/// The name servers, and the names that are tried for a host.
pub struct Servers {
    pub resolver: Resolver<Transport>,
    domain: Option<Name>,
    search: Vec<Name>,
    ndots: usize,
}

/// The family of an address, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    fn record_type(self) -> RecordType {
        match self {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        }
    }

    fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }

    /// Puts the outcomes of this family and of the other one in the order of the families.
    fn in_order<T>(self, own: T, other: T) -> [T; 2] {
        match self {
            Family::V4 => [own, other],
            Family::V6 => [other, own],
        }
    }
}

/// The results of earlier lookups of a host.
#[derive(Default)]
pub struct Memory {
    /// The name among those tried that had addresses.
    at: Option<Name>,
    /// The last addresses of each family.
    last: [Vec<IpAddr>; 2],
    /// The family that `at` lacks, until this time.
    absent: Option<(Family, Instant)>,
    /// The family of `at` for which servers do not answer.
    silent: Option<Silence>,
    /// The outcome of a lookup that has found this family at this name, and not asked for the other one.
    half: Option<(Name, Family, Records)>,
}

impl Memory {
    /// Returns whether a lookup has found one family, and the next one asks for the other.
    pub fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// Gives up the other family of a lookup that has found one: servers do not answer for it in time.
    pub fn give_up_half(&mut self, longest: Duration) {
        if let Some((name, family, records)) = self.half.take() {
            let outcomes = family.in_order(Some(Ok(records)), Some(Err(NetError::Timeout)));
            // It has the addresses of the first half, which are known.
            let _ = self.take(name, outcomes, longest);
        }
    }

    fn is_silent(&self, family: Family) -> bool {
        self.silent.is_some_and(|silence| silence.family == family)
    }
}

/// A family that is asked for rarely, because servers do not answer for it.
#[derive(Clone, Copy, Debug)]
struct Silence {
    family: Family,
    /// The time until which it is not asked for.
    until: Instant,
    pause: Duration,
}

/// The addresses of one family.
struct Records {
    addresses: Vec<IpAddr>,
    expires: Instant,
}

type Outcome = Result<Records, NetError>;

/// The outcome of a lookup: one family, or both.
enum First {
    Half(Family, Records),
    Whole([Option<Outcome>; 2]),
}

impl First {
    /// Ends with the outcome for one family, if there are addresses of it, or waits for that of the other one.
    async fn of(family: Family, outcome: Outcome, other: impl Future<Output = Outcome>) -> First {
        match outcome {
            Ok(records) if !records.addresses.is_empty() => First::Half(family, records),
            outcome => First::Whole(family.in_order(Some(outcome), Some(other.await))),
        }
    }
}

impl Servers {
    pub fn new(servers: &str, resolv_conf: &[u8]) -> Result<Servers, String> {
        let (config, options) = configuration(servers, resolv_conf)?;
        let (domain, search, ndots) = (config.domain().cloned(), config.search().to_vec(), options.ndots);
        let mut builder = Resolver::builder_with_config(config, Transport::default());
        *builder.options_mut() = options;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        Ok(Servers { resolver, domain, search, ndots })
    }

    /// Looks up the addresses of a host, at the first of its names that has some. If `is_first`, it may end with the
    /// addresses of one family; see [`Memory::is_half`].
    pub async fn addresses(
        &self,
        host: &str,
        memory: &mut Memory,
        settings: &Settings,
        is_first: bool,
    ) -> Result<Found, Failure> {
        if let Some((name, family)) = memory.half.as_ref().map(|(name, family, _)| (name.clone(), *family)) {
            // If this wait is given up, the half remains.
            let other = self.records(&name, family.other()).await;
            let records = memory.half.take().map(|(.., records)| Ok(records));
            let outcomes = family.in_order(records, Some(other));
            return memory.take(name, outcomes, settings.ttl.1).map_err(|error| Failure::of(&error));
        }
        let mut failure = Failure::new("it is not a name");
        let names = self.names(host).map_err(|error| Failure::new(&error.to_string()))?;
        let preferred = if settings.prefer_ipv6 { Family::V6 } else { Family::V4 };
        for name in names {
            let found = if is_first {
                self.first(&name, preferred).await
            } else {
                self.families(&name, memory).await
            };
            let outcomes = match found {
                First::Half(family, records) => return Ok(memory.take_half(name, family, records)),
                First::Whole(outcomes) => outcomes,
            };
            match memory.take(name, outcomes, settings.ttl.1) {
                Ok(found) => return Ok(found),
                Err(error) => failure = Failure::of(&error),
            }
        }
        // The next lookup asks for everything.
        memory.absent = None;
        Err(failure)
    }

    /// Returns the names to try for a host, in their order (resolv.conf(5), "search" and "ndots").
    fn names(&self, host: &str) -> Result<Vec<Name>, NetError> {
        let host = Name::from_utf8(host)?;
        if host.is_fqdn() {
            return Ok(vec![host]);
        }
        let mut absolute = host.clone();
        absolute.set_fqdn(true);
        let is_first = usize::from(host.num_labels()) > self.ndots || host.is_localhost();
        let mut names = Vec::with_capacity(self.search.len() + 2);
        if is_first {
            names.push(absolute.clone());
        }
        for domain in self.domain.iter().chain(&self.search) {
            // A name that would be too long does not exist.
            if let Ok(name) = host.clone().append_domain(domain)
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        if !names.contains(&absolute) {
            names.push(absolute);
        }
        Ok(names)
    }

    /// Asks for the families of addresses. `None` means that a family is known to be absent, or not to be answered for.
    async fn families(&self, name: &Name, memory: &Memory) -> First {
        let now = Instant::now();
        let known = memory.absent.filter(|(_, until)| now < *until).map(|(absent, _)| absent);
        let silence = memory.silent.filter(|_| memory.at.as_ref() == Some(name));
        let Some(missing) = known.or(silence.map(|silence| silence.family)) else {
            return self.both(name).await;
        };
        let present = self.records(name, missing.other()).await;
        let is_due = known.is_none() && silence.is_some_and(|silence| now >= silence.until);
        match present {
            Ok(records) if is_due && !records.addresses.is_empty() => First::Half(missing.other(), records),
            present => {
                let is_settled = match &present {
                    Ok(_) => memory.at.as_ref() == Some(name),
                    // Without a record of this type, there may be one of the other.
                    Err(error) => !is_no_data(error),
                };
                let other = if is_settled { None } else { Some(self.records(name, missing).await) };
                First::Whole(missing.in_order(other, Some(present)))
            }
        }
    }

    /// Asks for both families. If one of them is much later than the other, that is enough for now.
    async fn both(&self, name: &Name) -> First {
        let (mut v4, mut v6) = (pin!(self.records(name, Family::V4)), pin!(self.records(name, Family::V6)));
        let (family, outcome, mut rest) = tokio::select! {
            outcome = &mut v4 => (Family::V4, outcome, v6),
            outcome = &mut v6 => (Family::V6, outcome, v4),
        };
        match timeout(PATIENCE, &mut rest).await {
            Ok(other) => First::Whole(family.in_order(Some(outcome), Some(other))),
            Err(_late) => First::of(family, outcome, rest).await,
        }
    }

    /// Asks for the preferred family of addresses, and for the other one if there are none or they are late.
    async fn first(&self, name: &Name, preferred: Family) -> First {
        let other = preferred.other();
        let (mut own, mut second) = (pin!(self.records(name, preferred)), pin!(self.records(name, other)));
        let Ok(outcome) = timeout(HEAD_START, &mut own).await else {
            let (family, outcome) = tokio::select! {
                outcome = &mut own => (preferred, outcome),
                outcome = &mut second => (other, outcome),
            };
            let rest = if family == preferred { second } else { own };
            return First::of(family, outcome, rest).await;
        };
        // A name that does not exist has no records of any type (RFC 8020).
        if outcome.as_ref().is_err_and(NetError::is_nx_domain) {
            return First::Whole(preferred.in_order(Some(outcome), None));
        }
        First::of(preferred, outcome, second).await
    }

    async fn records(&self, name: &Name, family: Family) -> Outcome {
        let answer = self.resolver.lookup(name.clone(), family.record_type()).await?;
        let addresses = answer.answers().iter().filter_map(|record| match (&record.data, family) {
            (RData::A(v4), Family::V4) => Some(IpAddr::V4(v4.0)),
            (RData::AAAA(v6), Family::V6) => Some(IpAddr::V6(v6.0)),
            _ => None,
        });
        Ok(Records { addresses: addresses.collect(), expires: answer.valid_until() })
    }
}

/// Returns whether a name exists but has no records of a type.
fn is_no_data(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    none.response_code == ResponseCode::NoError
}

fn has_some(outcome: &Outcome) -> bool {
    outcome.as_ref().is_ok_and(|records| !records.addresses.is_empty())
}

fn is_negative(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(_)))
}

impl Memory {
    /// Returns the addresses of one family, with the last ones of the other.
    fn take_half(&mut self, name: Name, family: Family, records: Records) -> Found {
        let ttl = Some(records.expires.saturating_duration_since(Instant::now()));
        let mut addresses = records.addresses.clone();
        if self.at.as_ref() == Some(&name) {
            addresses.extend_from_slice(&self.last[family.other() as usize]);
        }
        self.half = Some((name, family, records));
        Found { addresses, ttl, ..Found::default() }
    }

    /// Returns the addresses of both families, and remembers them and a family that is absent. Fails if there are none.
    fn take(
        &mut self,
        name: Name,
        outcomes: [Option<Outcome>; 2],
        longest: Duration,
    ) -> Result<Found, NetError> {
        if !outcomes.iter().flatten().any(has_some) {
            let mut errors = outcomes.into_iter().flatten().filter_map(Result::err);
            return Err(errors.next().unwrap_or_else(|| "it has no addresses".into()));
        }
        let now = Instant::now();
        if self.at.as_ref() != Some(&name) {
            *self = Memory { at: Some(name), ..Memory::default() };
        }
        let expires = outcomes.iter().flatten().flatten().map(|records| records.expires).min();
        let expires = expires.unwrap_or(now);
        for (family, outcome) in [Family::V4, Family::V6].into_iter().zip(outcomes) {
            match &outcome {
                Some(Err(NetError::Timeout)) => self.silence(family, now),
                Some(_) if self.is_silent(family) => self.silent = None,
                _ => {}
            }
            let is_silent = self.is_silent(family);
            let last = &mut self.last[family as usize];
            match outcome {
                Some(Ok(records)) => *last = records.addresses,
                Some(Err(error)) if is_negative(&error) => {
                    last.clear();
                    if is_no_data(&error) {
                        let ttl = Failure::of(&error).ttl.unwrap_or_default().min(longest);
                        self.absent = Some((family, expires.max(now + ttl)));
                    }
                }
                // The other family has answered: this one keeps its addresses.
                Some(Err(_)) => {}
                None if is_silent => {}
                // It is still absent.
                None => last.clear(),
            }
        }
        let ttl = Some(expires.saturating_duration_since(now));
        Ok(Found { addresses: self.last.concat(), ttl, ..Found::default() })
    }

    /// Records that servers did not answer for a family, so that it is asked for again after twice the last pause.
    fn silence(&mut self, family: Family, now: Instant) {
        let before = self.silent.filter(|silence| silence.family == family);
        let pause = before.map_or(PAUSES.0, |silence| (2 * silence.pause).min(PAUSES.1));
        self.silent = Some(Silence { family, until: now + pause, pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(resolv_conf: &str, host: &str) -> Vec<String> {
        let servers = Servers::new("", format!("nameserver 127.0.0.1\n{resolv_conf}").as_bytes());
        let mut servers = servers.expect("a configuration");
        // It may follow from the name of this machine.
        servers.domain = None;
        servers.names(host).expect("a name").iter().map(Name::to_utf8).collect()
    }

    #[test]
    fn search_list_and_ndots_decide_the_names() {
        let conf = "search a.example b.example\noptions ndots:2";
        assert_eq!(tried(conf, "web."), ["web."]);
        assert_eq!(tried(conf, "web"), ["web.a.example.", "web.b.example.", "web."]);
        assert_eq!(tried(conf, "web.prod"), ["web.prod.a.example.", "web.prod.b.example.", "web.prod."]);
        assert_eq!(tried(conf, "web.prod.x")[0], "web.prod.x.");
        assert_eq!(tried(conf, "localhost")[0], "localhost.");
        assert_eq!(tried("", "web"), ["web."]);
        let long = format!("search {}.example", "a".repeat(63));
        let host = [&["b"; 4].map(|label| label.repeat(50)).join("."), "c"].join(".");
        assert_eq!(tried(&long, &host).len(), 1, "the name would be too long");
    }

    #[test]
    fn junk_is_no_name() {
        let servers = Servers::new("127.0.0.1", b"").expect("a configuration");
        for host in ["a..b", "", &"x".repeat(300), &"y".repeat(64)] {
            let names = servers.names(host);
            assert!(names.is_err() || names.is_ok_and(|names| names.len() <= 1), "{host}");
        }
    }
}
