//! `-w otlp=URL`: the collector to which the process of the admin listener sends spans and metrics.

use std::path::{Path, PathBuf};

use lacquer_cli::admin::Collector;
use lacquer_tls::origin::Authorities;

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::lookup::{Lookup, Resolved};
use crate::options::named;
use crate::regular_file::read_pem;
use crate::resolve::resolve;
use crate::trust_store;
use crate::workdir::absolute;

/// The port of OTLP over HTTP.
const DEFAULT_PORT: u16 = 4318;
/// Seconds between two exports of metrics, as OpenTelemetry recommends, and their maximum.
const INTERVAL: u64 = 60;
const LONGEST_INTERVAL: u64 = 300;

/// The collector, and the file with the authorities that may have signed its certificate.
#[derive(Debug)]
pub struct Exported {
    collector: Collector,
    has_tls: bool,
    /// `None`: those of the system.
    authorities: Option<PathBuf>,
    lookup: Lookup,
    /// Why the last lookup has failed.
    failure: String,
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
    if host.is_empty() || !url.bytes().all(is_plain) {
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
    Ok(Some(Exported { collector, has_tls, authorities, lookup: Lookup::default(), failure: String::new() }))
}

impl Exported {
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Looks the host up and waits for the result, and reads the authorities. If that fails, what is known remains; without
    /// it, it is a failure.
    pub fn look_up(&mut self, jail: &Jail) -> Outcome<()> {
        let resolved = resolve(&self.collector.host, DEFAULT_PORT);
        self.take(resolved);
        self.prepare(jail)
    }

    /// Begins to look the host up for the next start of the process.
    pub fn begin_lookup(&mut self) {
        let host = self.collector.host.clone();
        self.lookup.start(move || resolve(&host, DEFAULT_PORT));
    }

    /// Takes the result of a lookup that has ended. Returns whether there is no address before another one ends.
    pub fn is_awaited(&mut self) -> bool {
        if let Some(resolved) = self.lookup.result() {
            self.take(resolved);
        }
        self.collector.addresses.is_empty() && self.lookup.is_running()
    }

    fn take(&mut self, resolved: Resolved) {
        match resolved {
            Ok(addresses) => self.collector.addresses = addresses,
            Err(why) => self.failure = why,
        }
    }

    /// Reads the authorities. Fails if those or the addresses are not known.
    pub fn prepare(&mut self, jail: &Jail) -> Outcome<()> {
        let collector = &mut self.collector;
        if collector.addresses.is_empty() {
            let (host, why) = (&collector.host, &self.failure);
            return Err(Fault::usage(format!("-w otlp: the collector {host} has no address: {why}")));
        }
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
        let exported = |text: &str| parse(text).unwrap().unwrap();
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
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn known_addresses_outlive_a_failure() {
        let jail = Jail::none();
        let mut exported = parse("otlp=http://192.0.2.1").unwrap().unwrap();
        exported.look_up(&jail).unwrap();
        assert_eq!(exported.collector.addresses, ["192.0.2.1:4318".parse().unwrap()]);
        exported.collector.host = "192.0.2.1:nonsense".to_owned();
        exported.look_up(&jail).unwrap();
        assert_eq!(exported.collector.addresses.len(), 1);
        exported.collector.addresses.clear();
        assert!(exported.look_up(&jail).is_err());
        let mut exported = parse("otlp=http://192.0.2.7").unwrap().unwrap();
        assert!(!exported.is_awaited() && exported.prepare(&jail).is_err());
        exported.begin_lookup();
        while exported.is_awaited() {
            std::thread::yield_now();
        }
        exported.prepare(&jail).unwrap();
        assert_eq!(exported.collector.addresses, ["192.0.2.7:4318".parse().unwrap()]);
        exported.begin_lookup();
        assert!(!exported.is_awaited(), "the known address is used");
        let mut exported = parse("otlp=https://192.0.2.1,ca=/dev/null").unwrap().unwrap();
        let fault = exported.look_up(&jail).unwrap_err();
        assert!(fault.text().contains("the authorities /dev/null: Not a regular file"), "{}", fault.text());
    }
}
