//! Addresses as text: `192.0.2.1`, `192.0.2.1:80`, `192.0.2.1 80`, `[2001:db8::1]:80`, `example.com http`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Returns the address, with its own port or the given one. An empty port is port 0, and a port without a host is one of
/// the loopback address, as for getaddrinfo(3). Names are resolved only if `resolve` is set: this blocks the thread until
/// the name service responds.
pub fn parse(text: &str, port: &str, resolve: bool) -> Option<SocketAddr> {
    let (host, own_port) = split(text)?;
    let port = own_port.unwrap_or(port);
    let port = match port.parse() {
        Ok(number) => number,
        Err(_) if port.is_empty() => 0,
        Err(_) if resolve => service(port)?,
        Err(_) => return None,
    };
    let Some(host) = host else { return Some(SocketAddr::new(loopback(), port)) };
    if let Some(ip) = numeric(host) {
        return Some(SocketAddr::new(ip, port));
    }
    if !resolve || host.is_empty() || host.contains('/') {
        return None;
    }
    (host, port).to_socket_addrs().ok()?.next()
}

/// Splits host and port. An IPv6 address without a port needs no brackets.
fn split(text: &str) -> Option<(Option<&str>, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix([' ', ':']) {
            Some(port) => Some((Some(host), Some(port))),
            None => after.is_empty().then_some((Some(host), None)),
        };
    }
    let parts = text.split_once(' ').or_else(|| text.split_once(':').filter(|(_, port)| !port.contains(':')));
    match parts {
        Some((host, port)) => Some((Some(host).filter(|host| !host.is_empty()), Some(port))),
        None => Some((Some(text), None)),
    }
}

/// Returns the loopback address of IPv6, unless the system has none.
fn loopback() -> IpAddr {
    let ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// Parses a numeric address. As in inet_aton(3), one of IPv4 may have less than four numbers, in octal and hexadecimal
/// notation too; the last number fills the rest of the address.
fn numeric(host: &str) -> Option<IpAddr> {
    if host.contains(':') {
        return host.parse().ok();
    }
    let mut numbers = [0; 4];
    let mut count = 0;
    for text in host.split('.') {
        *numbers.get_mut(count)? = number(text)?;
        count += 1;
    }
    let (last, leading) = numbers[..count].split_last()?;
    if leading.iter().any(|&n| n > 0xff) || last.checked_shr(32 - 8 * leading.len() as u32).unwrap_or(0) > 0 {
        return None;
    }
    let high = leading.iter().enumerate().map(|(i, n)| n << (24 - 8 * i)).sum::<u32>();
    Some(Ipv4Addr::from_bits(high | last).into())
}

/// Parses a number in C's notation, without sign.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, radix).ok())?
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
            ("1.2.3.4 ", "1.2.3.4:0"),
            ("1.2.3.4:", "1.2.3.4:0"),
            ("[::1]:", "[::1]:0"),
            ("127.1", "127.0.0.1:80"),
            ("10.1.258:81", "10.1.1.2:81"),
            ("0x7f.0.0.010", "127.0.0.8:80"),
            ("3232235777", "192.168.1.1:80"),
            ("0", "0.0.0.0:80"),
            ("255.0xffffff", "255.255.255.255:80"),
            ("255.255.65535", "255.255.255.255:80"),
            ("4294967295", "255.255.255.255:80"),
        ] {
            assert_eq!(parse(text, "80", true), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.*", "2001::db8::", "localhost", "[::1", "[::1]x", "/tmp/sock", "1.2.3.4 http", ""]
        {
            assert_eq!(parse(text, "80", false), None, "{text}");
        }
        for text in [
            "1.2.3.256",
            "256.1",
            "1.16777216",
            "1.2.65536",
            "4294967296",
            "1.2.3.4.5",
            "1.",
            ".1",
            "1..2",
            "08",
            "0x",
            "+1",
            "1.-2",
            "1.2.3.4 +",
            "[]:80",
            "1.2.3.4 65536",
        ] {
            assert_eq!(parse(text, "80", false), None, "{text}");
        }
    }

    #[test]
    fn a_port_without_a_host_is_one_of_the_loopback_address() {
        for text in [":81", " 81"] {
            let found = parse(text, "80", false).expect("an address");
            assert!(found.ip().is_loopback() && found.port() == 81, "{text}: {found}");
        }
        assert_eq!(parse("127.0.0.1", "", false), Some("127.0.0.1:0".parse().unwrap()));
    }
}
