//! Resolves addresses as users write them (`host`, `host:port`, `host port`, `[v6]:port`, `:port`, ranges of
//! ports) to socket addresses.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The host and port of an address, if given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort<'a> {
    /// Host name or address.
    pub host: Option<&'a str>,
    /// Port number, service name, or range.
    pub port: Option<&'a str>,
}

/// Splits an address into host and port.
pub fn take_apart(text: &str) -> Result<HostPort<'_>, &'static str> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']').ok_or("IPv6 address lacks ']'")?;
        let port = match rest.chars().next() {
            None => None,
            Some(' ' | ':') => Some(&rest[1..]),
            Some(_) => return Err("IPv6 address has wrong port separator"),
        };
        return Ok(HostPort { host: Some(host), port });
    }
    let Some(at) = text.find(' ').or_else(|| text.find(':')) else {
        return Ok(HostPort { host: Some(text), port: None });
    };
    if text[at..].starts_with(':') && text[at + 1..].contains(':') {
        return Ok(HostPort { host: Some(text), port: None });
    }
    Ok(HostPort { host: Some(&text[..at]).filter(|h| !h.is_empty()), port: Some(&text[at + 1..]) })
}

/// Returns the number of a port or service name.
pub fn port_number(port: &str) -> Result<u16, String> {
    if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
        return port.parse().map_err(|_| "Servname not supported for ai_socktype".to_owned());
    }
    let services = fs::read_to_string("/etc/services").unwrap_or_default();
    let by_name = services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (name, number) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        (name == port || words.any(|alias| alias == port)).then(|| number.parse().ok()).flatten()
    });
    match (by_name, port) {
        (Some(number), _) => Ok(number),
        (None, "http") => Ok(80),
        (None, "https") => Ok(443),
        _ => Err("Servname not supported for ai_socktype".to_owned()),
    }
}

/// Returns all addresses of a host. Without a host, or for `*`, returns the unspecified addresses.
pub fn lookup(host: Option<&str>, port: u16) -> Result<Vec<SocketAddr>, String> {
    let Some(host) = host.filter(|&host| host != "*") else {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        return Ok(any.iter().map(|ip| SocketAddr::new(*ip, port)).collect());
    };
    let found = (host, port).to_socket_addrs().map_err(|error| {
        let text = crate::fault::os_error_text(&error);
        text.rsplit(": ").next().unwrap_or(&text).to_owned()
    })?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Returns all addresses of `text`, with `default_port` if it has no port.
pub fn resolve(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let HostPort { host, port } = take_apart(text)?;
    let port = match port {
        None => default_port,
        // As in the C library, this means any free port.
        Some("") => 0,
        Some(port) => port_number(port)?,
    };
    lookup(host, port)
}

/// Resolves like [`resolve`], but the port may also be a range like `8000-8010`.
pub fn resolve_range(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let HostPort { host, port } = take_apart(text)?;
    let range = port.and_then(|port| {
        let (low, high) = port.split_once('-')?;
        Some((low.parse::<u32>().ok()?, high.parse::<u32>().ok()?))
    });
    let Some((low, high)) = range else { return resolve(text, default_port) };
    if low == 0 {
        return Err("Range start cannot be 0".to_owned());
    }
    if high < low {
        return Err("Range start higher than range end".to_owned());
    }
    if high > 65535 {
        return Err("Range end higher than 65535".to_owned());
    }
    let mut addresses = Vec::new();
    for port in low..=high {
        addresses.extend(lookup(host, port as u16)?);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_split() {
        let hp = |text| take_apart(text).map(|hp| (hp.host, hp.port));
        assert_eq!(hp("localhost"), Ok((Some("localhost"), None)));
        assert_eq!(hp("127.0.0.1:80"), Ok((Some("127.0.0.1"), Some("80"))));
        assert_eq!(hp("127.0.0.1 80"), Ok((Some("127.0.0.1"), Some("80"))));
        assert_eq!(hp("[::1]:80"), Ok((Some("::1"), Some("80"))));
        assert_eq!(hp("::1"), Ok((Some("::1"), None)));
        assert_eq!(hp(":80"), Ok((None, Some("80"))));
        assert!(hp("[::1").is_err());
    }

    #[test]
    fn star_and_empty_port_match_the_c_library() {
        assert_eq!(resolve("*:80", 0), lookup(None, 80));
        assert_eq!(resolve("127.0.0.1:", 80), resolve("127.0.0.1:0", 80));
        assert!(resolve("127.0.0.1:65536", 80).is_err());
    }

    #[test]
    fn addresses() {
        assert_eq!(resolve("127.0.0.1", 80).unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve_range("127.0.0.1:80-81", 1).unwrap().len(), 2);
        assert_eq!(resolve(":0", 80).unwrap().len(), 2);
        assert!(resolve("127.0.0.1:80000", 80).is_err());
        assert_eq!(resolve_range(":2-1", 1), Err("Range start higher than range end".to_owned()));
    }
}
