//! Lists of clients: networks, and secrets that a request may contain instead.

use std::net::IpAddr;

/// Minimum length of a secret, which must not be guessed.
const MIN_SECRET: usize = 16;

/// A member of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member<'a> {
    /// An address, and the number of its first bits that count.
    Network(IpAddr, u8),
    Secret(&'a str),
}

fn members(list: &str) -> impl Iterator<Item = Result<Member<'_>, String>> {
    list.split([',', ' ']).filter(|word| !word.is_empty()).map(member)
}

fn member(word: &str) -> Result<Member<'_>, String> {
    if let Some(secret) = word.strip_prefix("token=") {
        if secret.len() < MIN_SECRET || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("A token has at least {MIN_SECRET} visible characters\n"));
        }
        return Ok(Member::Secret(secret));
    }
    let wrong = || format!("Neither an address, a network such as 10.0.0.0/8, nor token=SECRET ({word})\n");
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (word, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
    if bits > most {
        return Err(wrong());
    }
    Ok(Member::Network(address, bits))
}

/// Checks the text of a list. The error is a text for the user.
pub fn check(list: &str) -> Result<(), String> {
    members(list).try_for_each(|member| member.map(|_| ()))
}

/// Returns whether a list contains a client: by its address, or by the secret that its request contains.
pub fn contains(list: &str, address: Option<IpAddr>, secret: Option<&[u8]>) -> bool {
    let address = address.map(|address| address.to_canonical());
    members(list).flatten().any(|member| match member {
        Member::Network(network, bits) => address.is_some_and(|address| is_within(address, network, bits)),
        Member::Secret(wanted) => secret.is_some_and(|secret| is_equal(secret, wanted.as_bytes())),
    })
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let ignored = width - u32::from(bits).min(width);
        a.checked_shr(ignored).unwrap_or(0) == b.checked_shr(ignored).unwrap_or(0)
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// Compares in a time that depends on the lengths only.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (x, y)| differences | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_secrets_admit_clients() {
        let list = "127.0.0.1, 10.0.0.0/8 2001:db8::/32,token=0123456789abcdef";
        assert_eq!(check(list), Ok(()));
        let by_address = |text: &str| contains(list, text.parse().ok(), None);
        for inside in ["127.0.0.1", "10.1.2.3", "2001:db8:1::1", "::ffff:10.0.0.1"] {
            assert!(by_address(inside), "{inside}");
        }
        for outside in ["127.0.0.2", "11.0.0.1", "2001:db9::1", "::1", ""] {
            assert!(!by_address(outside), "{outside}");
        }
        for (secret, is_right) in [
            ("0123456789abcdef", true),
            ("0123456789abcdeF", false),
            ("0123456789abcdef0", false),
            ("", false),
        ] {
            assert_eq!(contains(list, None, Some(secret.as_bytes())), is_right, "{secret}");
        }
        assert!(!contains("", "127.0.0.1".parse().ok(), Some(b"")));
        assert!(
            contains("0.0.0.0/0", "9.9.9.9".parse().ok(), None) && contains("::/0", "::1".parse().ok(), None)
        );
    }

    #[test]
    fn malformed_lists_are_refused() {
        for list in ["10.0.0.0/33", "x", "token=short", "::/129", "10.0.0.0/", "10.0.0.0/-1", "token=", "/8"]
        {
            assert!(check(list).is_err(), "{list}");
            assert!(!contains(list, "10.0.0.1".parse().ok(), Some(b"short")), "{list}");
        }
    }
}
