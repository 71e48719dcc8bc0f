//! `-w otlp=URL`: the collector to which the process of the admin listener sends spans and metrics.
//!
//! Its host is looked up on a thread, again and again: the daemon runs without a collector that has no address yet, and
//! follows one that gets another.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacquer_cli::admin::Collector;
use lacquer_tls::origin::Authorities;

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::lookup::{Lookup, Resolved};
use crate::options::named;
use crate::regular_file::read_pem;
use crate::resolve::{port_number, resolve, take_apart};
use crate::trust_store;
use crate::workdir::absolute;

/// The port of OTLP over HTTP.
const DEFAULT_PORT: u16 = 4318;
/// Seconds between two exports of metrics, as OpenTelemetry recommends, and their maximum.
const INTERVAL: u64 = 60;
const LONGEST_INTERVAL: u64 = 300;
/// The time between two looks whether the host is resolved.
pub const LOOKUP_POLL: Duration = Duration::from_millis(50);
/// The time for which a start of the process waits for a lookup.
const AWAITED: Duration = Duration::from_secs(1);
/// The pauses after a lookup that fails without a known address: each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time between two lookups otherwise.
const LOOKUP_INTERVAL: Duration = Duration::from_mins(1);

/// The collector, and the file with the authorities that may have signed its certificate.
#[derive(Debug)]
pub struct Exported {
    collector: Collector,
    has_tls: bool,
    /// `None`: those of the system.
    authorities: Option<PathBuf>,
    lookup: Lookup,
    times: LookupTimes,
}

/// The times of lookups.
#[derive(Debug, Default)]
struct LookupTimes {
    /// When the last one began.
    began: Option<Instant>,
    /// The next look at one that runs, or its beginning.
    next: Option<Instant>,
    /// The pause after the last one, if it failed without a known address.
    pause: Option<Duration>,
}

/// A result of a lookup that changes something.
#[derive(Debug, PartialEq)]
pub enum News {
    /// The collector has other addresses. `is_recovery`: it had none, which was reported.
    Addresses { is_recovery: bool },
    /// It has no address, and had one or was not looked up before: for this reason.
    Failure(String),
}

/// Parses the value of `-w`. Returns `None` if it is the address of a listener. The addresses are not known yet.
pub fn parse(text: &str) -> Outcome<Option<Exported>> {
    let Ok(argument) = named::parse(text, "-w") else { return Ok(None) };
    if argument.name.as_deref() != Some("otlp") {
        return Ok(None);
    }
    let wrong = |why: &str| Fault::usage(format!("-w {text}: {why}"));
    let Some((url, rest)) = argument.fields.split_first() else { return Ok(None) };
    let (has_tls, place) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(place), _) => (false, place),
        (None, Some(place)) => (true, place),
        (None, None) => {
            let why = "the address of a collector begins with http:// or https://, such as otlp=http://127.0.0.1:4318";
            return Err(wrong(why));
        }
    };
    let (host, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"<>\\".contains(&byte);
    if host.is_empty() || !url.bytes().all(is_plain) || !has_valid_port(host) {
        return Err(wrong("the address of the collector is not valid"));
    }
    let (mut interval, mut authorities) = (INTERVAL, None);
    for field in rest {
        if let Some(path) = field.strip_prefix("ca=") {
            if !has_tls || path.is_empty() {
                return Err(wrong(
                    "ca= names a file with authorities, and the address must begin with https://",
                ));
            }
            authorities = Some(absolute(path));
            continue;
        }
        let seconds = field
            .strip_prefix("interval=")
            .and_then(|value| value.strip_suffix('s').unwrap_or(value).parse().ok());
        interval = seconds
            .filter(|seconds| *seconds <= LONGEST_INTERVAL)
            .ok_or_else(|| wrong("write interval= with 0 to 300 seconds, ca=FILE, or nothing more"))?;
    }
    let path = path.trim_end_matches('/').to_owned();
    let collector = Collector {
        host: host.to_owned(),
        trusted: None,
        addresses: Vec::new(),
        path,
        interval,
        instance: String::new(),
    };
    let (lookup, times) = (Lookup::default(), LookupTimes::default());
    Ok(Some(Exported { collector, has_tls, authorities, lookup, times }))
}

fn has_valid_port(host: &str) -> bool {
    let port = take_apart(host).map(|parts| parts.port);
    port.is_ok_and(|port| port.is_none_or(|port| port_number(port).is_ok_and(|number| number > 0)))
}

impl Exported {
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Begins to look the host up, unless a lookup runs.
    pub fn begin_lookup(&mut self, now: Instant) {
        if !self.lookup.is_running() {
            let host = self.collector.host.clone();
            self.lookup.start(move || resolve(&host, DEFAULT_PORT));
            self.times.began = Some(now);
        }
        self.times.next = Some(now + LOOKUP_POLL);
    }

    /// Returns the time of the next step of a lookup, if there is one.
    pub fn next_step(&self) -> Option<Instant> {
        self.times.next
    }

    /// Returns whether the start of the process should wait for a lookup.
    pub fn is_awaited(&self, now: Instant) -> bool {
        let is_recent = self.times.began.is_some_and(|began| now < began + AWAITED);
        self.collector.addresses.is_empty() && self.lookup.is_running() && is_recent
    }

    /// Takes the result of a lookup that has ended, or begins one that is due.
    pub fn step(&mut self, now: Instant) -> Option<News> {
        if self.times.next.is_none_or(|next| next > now) {
            return None;
        }
        let Some(resolved) = self.lookup.result() else {
            self.begin_lookup(now);
            return None;
        };
        self.take(resolved, now)
    }

    /// Takes the result of a lookup. Addresses that are known outlive its failure.
    fn take(&mut self, resolved: Resolved, now: Instant) -> Option<News> {
        let collector = &mut self.collector;
        let failed_before = self.times.pause.take();
        match resolved {
            Ok(addresses) if !addresses.is_empty() => {
                self.times.next = (!is_fixed(&collector.host)).then(|| now + LOOKUP_INTERVAL);
                let is_known = |address| collector.addresses.contains(address);
                // Servers of names change the order.
                if addresses.len() == collector.addresses.len() && addresses.iter().all(is_known) {
                    return None;
                }
                collector.addresses = addresses;
                Some(News::Addresses { is_recovery: failed_before.is_some() })
            }
            _ if !collector.addresses.is_empty() => {
                self.times.next = Some(now + LOOKUP_INTERVAL);
                None
            }
            failed => {
                let pause = failed_before.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
                (self.times.next, self.times.pause) = (Some(now + pause), Some(pause));
                let why = failed.err().unwrap_or_else(|| "the name has none".to_owned());
                failed_before.is_none().then_some(News::Failure(why))
            }
        }
    }

    /// Reads the authorities. Fails if none are known.
    pub fn prepare(&mut self, jail: &Jail) -> Outcome<()> {
        let collector = &mut self.collector;
        if self.has_tls {
            match authorities(self.authorities.as_deref(), jail) {
                Ok(pem) => collector.trusted = Some(pem),
                Err(why) if collector.trusted.is_none() => {
                    return Err(Fault::usage(format!("-w otlp: {why}")));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a host is an address, which needs no further lookup.
fn is_fixed(host: &str) -> bool {
    let name = take_apart(host).ok().and_then(|parts| parts.host);
    name.is_some_and(|name| name.parse::<IpAddr>().is_ok())
}

/// Returns the authorities of a file, or those of the system, in PEM.
fn authorities(file: Option<&Path>, jail: &Jail) -> Result<Vec<u8>, String> {
    let _root = jail.raise();
    let Some(path) = file else {
        let hint = "install the package ca-certificates, or name a file with ca=";
        return trust_store::read().map_err(|why| format!("{why}; {hint}"));
    };
    let named = |why: String| format!("the authorities {}: {why}", path.display());
    let pem = read_pem(path).map_err(|error| named(os_error_text(&error)))?;
    Authorities::read(&pem).map_err(named)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_urls_and_an_interval() {
        let parsed = |text: &str| exported(text).collector;
        let plain = parsed("otlp=http://127.0.0.1:4318");
        assert_eq!((plain.host.as_str(), plain.path.as_str(), plain.interval), ("127.0.0.1:4318", "", 60));
        let whole = parsed("otlp=http://[::1]/base/,interval=5s");
        assert_eq!((whole.host.as_str(), whole.path.as_str(), whole.interval), ("[::1]", "/base", 5));
        assert_eq!(parsed("otlp=http://h,interval=0").interval, 0);
        let with_tls = exported("otlp=https://h:443/x,ca=/ca.pem");
        assert!(with_tls.has_tls && with_tls.authorities == Some("/ca.pem".into()));
        assert!(!exported("otlp=http://h").has_tls);
        assert!(parse("127.0.0.1:6083").unwrap().is_none());
        assert!(parse("/run/x,mode=600").unwrap().is_none());
        for wrong in [
            "otlp=ftp://h",
            "otlp=http://h,ca=/x",
            "otlp=https://h,ca=",
            "otlp=h:4318",
            "otlp=http://",
            "otlp=http:///x",
            "otlp=http://a b",
            "otlp=http://h/?x",
            "otlp=http://user@h",
            "otlp=http://h\r\nx",
            "otlp=http://h,interval=x",
            "otlp=http://h,interval=301",
            "otlp=http://h,token=x",
            "otlp=http://h:nonsense",
            "otlp=http://h:65536",
            "otlp=http://h:0",
            "otlp=http://h:",
            "otlp=http://[::1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    fn exported(text: &str) -> Exported {
        parse(text).unwrap().unwrap()
    }

    /// Looks the host up as often as it takes until a lookup ends. Returns its news, and the time.
    fn looked_up(exported: &mut Exported, mut now: Instant) -> (Option<News>, Instant) {
        exported.begin_lookup(now);
        while exported.lookup.is_running() {
            std::thread::sleep(Duration::from_millis(1));
            now += LOOKUP_POLL;
            let news = exported.step(now);
            if news.is_some() {
                return (news, now);
            }
        }
        (None, now)
    }

    #[test]
    fn known_addresses_outlive_a_failure() {
        let now = Instant::now();
        let mut exported = exported("otlp=http://192.0.2.1");
        assert!(!exported.is_awaited(now) && exported.next_step().is_none());
        exported.begin_lookup(now);
        assert!(exported.is_awaited(now) && !exported.is_awaited(now + AWAITED));
        let (news, _) = looked_up(&mut exported, now);
        assert_eq!(news, Some(News::Addresses { is_recovery: false }));
        assert_eq!(exported.collector.addresses, ["192.0.2.1:4318".parse().unwrap()]);
        assert_eq!(exported.next_step(), None, "an address needs no further lookup");
        exported.begin_lookup(now);
        assert!(!exported.is_awaited(now), "the known address is used");
        assert_eq!(looked_up(&mut exported, now).0, None);
        exported.collector.host = "192.0.2.1:nonsense".to_owned();
        assert_eq!(looked_up(&mut exported, now).0, None);
        assert_eq!(exported.collector.addresses.len(), 1);
        exported.collector.host = "192.0.2.7:4318".to_owned();
        assert_eq!(looked_up(&mut exported, now).0, Some(News::Addresses { is_recovery: false }));
    }

    #[test]
    fn a_host_without_an_address_is_looked_up_again() {
        let mut exported = exported("otlp=http://h");
        exported.collector.host = "h:nonsense".to_owned();
        let (news, mut now) = looked_up(&mut exported, Instant::now());
        assert!(matches!(news, Some(News::Failure(_))), "{news:?}");
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            let next = exported.next_step().unwrap();
            assert_eq!(next - now, Duration::from_secs(pause));
            let shortly_before = now + Duration::from_secs(pause).saturating_sub(Duration::from_millis(1));
            assert_eq!(exported.step(shortly_before), None);
            assert!(!exported.lookup.is_running());
            let (news, at) = looked_up(&mut exported, next);
            assert_eq!(news, None, "it was reported");
            now = at;
        }
        exported.collector.host = "192.0.2.1:1".to_owned();
        assert_eq!(looked_up(&mut exported, now).0, Some(News::Addresses { is_recovery: true }));
    }

    #[test]
    fn authorities_that_cannot_be_read_are_a_failure() {
        let mut exported = exported("otlp=https://192.0.2.1,ca=/dev/null");
        let fault = exported.prepare(&Jail::none()).unwrap_err();
        assert!(fault.text().contains("the authorities /dev/null: Not a regular file"), "{}", fault.text());
    }
}
