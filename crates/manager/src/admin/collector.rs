//! `-w otlp=URL`: the collector to which the process of the admin listener sends spans and metrics.

use lacquer_cli::admin::Collector;

use crate::fault::{Fault, Outcome};
use crate::options::named;
use crate::resolve::resolve;

/// The port of OTLP over HTTP.
const DEFAULT_PORT: u16 = 4318;
/// Seconds between two exports of metrics, as OpenTelemetry recommends, and their maximum.
const INTERVAL: u64 = 60;
const LONGEST_INTERVAL: u64 = 300;

/// Parses the value of `-w`. Returns `None` if it is the address of a listener. The addresses are not known yet.
pub fn parse(text: &str) -> Outcome<Option<Collector>> {
    let Ok(argument) = named::parse(text, "-w") else { return Ok(None) };
    if argument.name.as_deref() != Some("otlp") {
        return Ok(None);
    }
    let wrong = |why: &str| Fault::usage(format!("-w {text}: {why}"));
    let Some((url, rest)) = argument.fields.split_first() else { return Ok(None) };
    let place = url.strip_prefix("http://").ok_or_else(|| {
        wrong("the address of a collector begins with http://, such as otlp=http://127.0.0.1:4318")
    })?;
    let (host, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"<>\\".contains(&byte);
    if host.is_empty() || !url.bytes().all(is_plain) {
        return Err(wrong("the address of the collector is not valid"));
    }
    let mut interval = INTERVAL;
    for field in rest {
        let seconds = field
            .strip_prefix("interval=")
            .and_then(|value| value.strip_suffix('s').unwrap_or(value).parse().ok());
        interval = seconds
            .filter(|seconds| *seconds <= LONGEST_INTERVAL)
            .ok_or_else(|| wrong("write interval= with 0 to 300 seconds, or nothing more"))?;
    }
    let path = path.trim_end_matches('/').to_owned();
    Ok(Some(Collector {
        host: host.to_owned(),
        addresses: Vec::new(),
        path,
        interval,
        instance: String::new(),
    }))
}

/// Looks the host up. If that fails, the addresses that are known remain; without any, it is a failure.
pub fn look_up(collector: &mut Collector) -> Outcome<()> {
    match resolve(&collector.host, DEFAULT_PORT) {
        Ok(addresses) => collector.addresses = addresses,
        Err(why) if collector.addresses.is_empty() => {
            return Err(Fault::usage(format!(
                "-w otlp: the collector {} has no address: {why}",
                collector.host
            )));
        }
        Err(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_urls_and_an_interval() {
        let parsed = |text: &str| parse(text).unwrap().unwrap();
        let plain = parsed("otlp=http://127.0.0.1:4318");
        assert_eq!((plain.host.as_str(), plain.path.as_str(), plain.interval), ("127.0.0.1:4318", "", 60));
        let whole = parsed("otlp=http://[::1]/base/,interval=5s");
        assert_eq!((whole.host.as_str(), whole.path.as_str(), whole.interval), ("[::1]", "/base", 5));
        assert_eq!(parsed("otlp=http://h,interval=0").interval, 0);
        assert!(parse("127.0.0.1:6083").unwrap().is_none());
        assert!(parse("/run/x,mode=600").unwrap().is_none());
        for wrong in [
            "otlp=https://h",
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
        let mut collector = parse("otlp=http://192.0.2.1").unwrap().unwrap();
        look_up(&mut collector).unwrap();
        assert_eq!(collector.addresses, ["192.0.2.1:4318".parse().unwrap()]);
        collector.host = "192.0.2.1:nonsense".to_owned();
        look_up(&mut collector).unwrap();
        assert_eq!(collector.addresses.len(), 1);
        collector.addresses.clear();
        assert!(look_up(&mut collector).is_err());
    }
}
