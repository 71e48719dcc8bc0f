//! The parsers of VCL modules fail on no input: documents, tokens, files of networks, patterns and replies of servers. A
//! pattern matches alone what it matches in a set.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use lacquer_vmods::fuzzing;
use libfuzzer_sys::fuzz_target;

/// Splits at the first newline, or in half.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|b| *b == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => bytes.split_at(bytes.len() / 2),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let (first, second) = split(rest);
    match kind % 5 {
        0 => fuzzing::json(&String::from_utf8_lossy(first), second),
        1 => fuzzing::jwt(first, second),
        2 => {
            let mut ip = [0; 16];
            ip.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
            fuzzing::netmapper(second, IpAddr::V6(Ipv6Addr::from(ip)));
        }
        3 => {
            let [low, high, pattern @ ..] = first else { return };
            fuzzing::re2(u16::from_le_bytes([*low, *high]), pattern, second);
        }
        _ => {
            let Some((&piece, bytes)) = rest.split_first() else { return };
            fuzzing::redis(usize::from(piece), bytes);
        }
    }
});
