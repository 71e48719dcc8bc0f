//! Addresses as text: `192.0.2.1`, `192.0.2.1:80`, `192.0.2.1 80`, `[2001:db8::1]:80`, `example.com http`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Returns the address, with a port of its own or the one given. Names are looked up only if `resolve` is set:
/// that blocks the thread until the name service answers.
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

/// Host and port. An IPv6 address may stand without brackets if it has no port.
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

/// The TCP port of a service, from /etc/services; the web's own are known without.
fn service(name: &str) -> Option<u16> {
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
    fn reads_all_forms() {
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
