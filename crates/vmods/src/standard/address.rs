//! Addresses as text: `192.0.2.1`, `192.0.2.1:80`, `192.0.2.1 80`, `[2001:db8::1]:80`, `example.com http`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Returns the address, with its own port or the given one. Names are resolved only if `resolve` is set:
/// this blocks the thread until the name service responds.
pub fn parse(text: &str, port: &str, resolve: bool) -> Option<SocketAddr> {
    let (host, own_port) = split(text)?;
    let port = own_port.unwrap_or(port);
    let port = match port.parse() {
        Ok(number) => number,
        Err(_) if resolve => service(port)?,
        Err(_) => return None,
    };
    match host.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, port)),
        Err(_) if resolve && !host.is_empty() && !host.contains('/') => {
            (host, port).to_socket_addrs().ok()?.next()
        }
        Err(_) => None,
    }
}

/// Splits host and port. An IPv6 address without a port needs no brackets.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix([' ', ':']) {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    if let Some((host, port)) = text.split_once(' ') {
        return Some((host, Some(port)));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(port))),
        _ => Some((text, None)),
    }
}

/// Returns the TCP port of a service, from /etc/services; http and https need no file.
pub fn service(name: &str) -> Option<u16> {
    match name {
        "http" => Some(80),
        "https" => Some(443),
        _ => std::fs::read_to_string("/etc/services").ok()?.lines().find_map(|line| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let first = words.next()?;
            let port = words.next()?.strip_suffix("/tcp")?.parse().ok()?;
            (first == name || words.any(|alias| alias == name)).then_some(port)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn all_forms_are_parsed() {
        for (text, expected) in [
            ("1.2.3.4", "1.2.3.4:80"),
            ("1.2.3.4 8080", "1.2.3.4:8080"),
            ("1.2.3.4:443", "1.2.3.4:443"),
            ("2001:db8::", "[2001:db8::]:80"),
            ("[::1]", "[::1]:80"),
            ("[::1]:81", "[::1]:81"),
            ("[::1] https", "[::1]:443"),
        ] {
            assert_eq!(parse(text, "80", true), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.*", "2001::db8::", "localhost", "[::1", "[::1]x", "/tmp/sock", "1.2.3.4 http", ""]
        {
            assert_eq!(parse(text, "80", false), None, "{text}");
        }
    }
}
