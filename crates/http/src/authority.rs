//! The syntax of `Host`, `:authority` and the authority of an absolute target: `uri-host [ ":" port ]` (RFC 9110
//! section 7.2, RFC 3986 section 3.2). It does not include user information.

use std::net::Ipv6Addr;

use crate::ascii::{is_hex, is_reg_name};

/// Returns whether `value` is a valid value of `Host`. An empty value is valid: it is sent for a target without an
/// authority (RFC 9112 section 3.2).
#[inline]
pub fn is_valid_host(value: &[u8]) -> bool {
    // Most hosts are a name with an optional port.
    match value.iter().position(|&b| !is_reg_name(b)) {
        None => true,
        Some(end @ 1..) if value[end] == b':' => is_port(&value[end + 1..]),
        Some(_) => is_valid_authority(value),
    }
}

/// Returns whether `authority` is a non-empty host with an optional port.
pub fn is_valid_authority(authority: &[u8]) -> bool {
    let host_len = if authority.first() == Some(&b'[') { ip_literal(authority) } else { reg_name(authority) };
    match host_len.map(|len| authority.split_at(len)) {
        None | Some(([], _)) => false,
        Some((_, [])) => true,
        Some((_, [b':', port @ ..])) => is_port(port),
        Some(_) => false,
    }
}

/// Returns whether `authority` is valid and ends with a port, as required for the target of CONNECT.
pub fn has_port(authority: &[u8]) -> bool {
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && authority[..authority.len() - digits].ends_with(b":") && is_valid_authority(authority)
}

/// Returns the length of the registered name (or IPv4 address) at the start of `text`.
fn reg_name(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        if is_reg_name(b) {
            at += 1;
        } else if b == b'%' {
            let digits = text.get(at + 1..at + 3)?;
            if !digits.iter().all(|&b| is_hex(b)) {
                return None;
            }
            at += 3;
        } else {
            break;
        }
    }
    Some(at)
}

/// Returns the length of the IPv6 or later address in brackets at the start of `text`.
fn ip_literal(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&b| b == b']')?;
    let address = std::str::from_utf8(&text[1..end]).ok()?;
    let valid = address.parse::<Ipv6Addr>().is_ok() || is_future_address(address.as_bytes());
    valid.then_some(end + 1)
}

/// Returns whether this is an `IPvFuture`: "v", a version in hex, a dot, and at least one character.
fn is_future_address(address: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = address else { return false };
    let digits = rest.iter().take_while(|&&b| is_hex(b)).count();
    match &rest[digits..] {
        [b'.', tail @ ..] => {
            digits > 0 && !tail.is_empty() && tail.iter().all(|&b| is_reg_name(b) || b == b':')
        }
        _ => false,
    }
}

/// Returns whether this is a port. It may be empty: "example.com:" means the default port.
fn is_port(port: &[u8]) -> bool {
    let add =
        |number: u32, &digit: &u8| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'));
    port.len() <= 5 && port.iter().try_fold(0, add).is_some_and(|number| number <= 65535)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_hosts_are_accepted() {
        for host in [
            "",
            "a",
            "example.com",
            "Example.COM.",
            "example.com:80",
            "example.com:",
            "example.com:65535",
            "under_score",
            "127.0.0.1:8080",
            "[::1]",
            "[2001:db8::1]:443",
            "[::ffff:1.2.3.4]",
            "[v1.a:b]",
            "a%2fb",
            "sub-delims!$&'()*+,;=",
            "xn--bcher-kva.example",
        ] {
            assert!(is_valid_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for host in [
            "a b",
            "a\tb",
            "a/b",
            "/",
            "a?b",
            "a#b",
            "a@b",
            "user:secret@host",
            "a:b",
            "a:80:80",
            "a:80x",
            "a:-1",
            "a:65536",
            "a:000080",
            ":80",
            ":",
            "a\\b",
            "a\"b",
            "<a>",
            "{a}",
            "a|b",
            "a^b",
            "`a`",
            "a%",
            "a%2",
            "a%2g",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "[v1]",
            "[v.a]",
            "[g::1]",
            "b\u{fc}cher.example",
            "a\0b",
            "a\x7f",
            "http://a",
        ] {
            assert!(!is_valid_host(host.as_bytes()), "{host:?}");
        }
        assert!(!is_valid_authority(b""));
    }

    #[test]
    fn authorities_with_a_port_are_recognized() {
        for (authority, expected) in [
            ("a:80", true),
            ("[::1]:443", true),
            ("a", false),
            ("a:", false),
            (":80", false),
            ("80", false),
            ("[::1]", false),
            ("u@a:80", false),
            ("", false),
        ] {
            assert_eq!(has_port(authority.as_bytes()), expected, "{authority}");
        }
    }
}
