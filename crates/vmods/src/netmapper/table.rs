//! The networks of a file: disjoint ranges of IPv6 addresses, each with a name. IPv4 is the range `::/96`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of IPv6 that contain IPv4 addresses in another form: address and length.
const TRANSLATED: [(u128, u8); 4] =
    [(0xffff << 32, 96), (0xffff << 48, 96), (0x2001 << 112, 32), (0x2002 << 112, 16)];

pub(super) struct Table {
    names: Vec<Vec<u8>>,
    /// The first address of each range; a range ends before the next one.
    starts: Vec<u128>,
    /// The name of each range, if it has one.
    owners: Vec<Option<u32>>,
    pub networks: usize,
    /// Networks that had bits set beyond their length.
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Network {
    first: u128,
    length: u8,
}

impl Network {
    fn last(self) -> u128 {
        self.first | !mask(self.length)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.length.checked_sub(96), u32::try_from(self.first)) {
            (Some(length), Ok(v4)) => write!(f, "{}/{length}", Ipv4Addr::from_bits(v4)),
            _ => write!(f, "{}/{}", Ipv6Addr::from_bits(self.first), self.length),
        }
    }
}

fn mask(length: u8) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - length) }
}

/// Returns the address in the form of the table.
fn canonical(ip: IpAddr) -> u128 {
    let bits = match ip {
        IpAddr::V4(v4) => return u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let inside = |(first, length): (u128, u8)| bits & mask(length) == first;
    let low = bits & 0xffff_ffff;
    match TRANSLATED {
        [mapped, siit, ..] if inside(mapped) || inside(siit) => low,
        [_, _, teredo, _] if inside(teredo) => low ^ 0xffff_ffff,
        [.., six_to_four] if inside(six_to_four) => bits >> 80 & 0xffff_ffff,
        _ => bits,
    }
}

/// Parses `address/length`. Returns also whether bits beyond the length are set.
fn network(text: &str) -> Result<(Network, bool), String> {
    let invalid = |why: String| format!("network \"{text:.64}\": {why}");
    let (address, length) = text.split_once('/').ok_or_else(|| invalid("there is no /length".to_owned()))?;
    let not_an_address = |_| invalid(format!("\"{address:.64}\" is not an address"));
    let address: IpAddr = address.parse().map_err(not_an_address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let valid = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let length = length.parse::<u8>().ok().filter(|length| valid && *length <= most);
    let length = length.ok_or_else(|| invalid(format!("the length is not a number up to {most}")))?;
    let (bits, length) = match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), length + 96),
        IpAddr::V6(v6) => (v6.to_bits(), length),
    };
    let first = bits & mask(length);
    if TRANSLATED.iter().any(|(range, least)| length >= *least && first & mask(*least) == *range) {
        return Err(invalid("it is another form of an IPv4 network".to_owned()));
    }
    Ok((Network { first, length }, first != bits))
}

impl Table {
    pub fn parse(json: &[u8]) -> Result<Table, String> {
        let content: BTreeMap<String, Vec<String>> =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let mut warnings = Vec::new();
        let mut all: Vec<(Network, u32)> = Vec::new();
        for (owner, (name, networks)) in content.iter().enumerate() {
            for text in networks {
                let (network, beyond) = network(text).map_err(|why| format!("{name}: {why}"))?;
                if beyond {
                    warnings.push(format!(
                        "{name}: network \"{text}\" has bits beyond its length; it is used as {network}"
                    ));
                }
                all.push((network, owner as u32));
            }
        }
        all.sort_unstable();
        if let Some(twice) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = |at: usize| content.keys().nth(twice[at].1 as usize).map_or("", String::as_str);
            return Err(format!("network {} occurs twice, for {} and for {}", twice[0].0, name(0), name(1)));
        }
        let networks = all.len();
        let (starts, owners) = ranges(&all);
        Ok(Table {
            names: content.into_keys().map(String::into_bytes).collect(),
            starts,
            owners,
            networks,
            warnings,
        })
    }

    pub fn find(&self, ip: IpAddr) -> Option<&[u8]> {
        let address = canonical(ip);
        let at = self.starts.partition_point(|start| *start <= address).checked_sub(1)?;
        let owner = (*self.owners.get(at)?)?;
        self.names.get(owner as usize).map(Vec::as_slice)
    }
}

/// Returns disjoint ranges: the start and owner of each. The networks are sorted, a larger one before those within it.
fn ranges(networks: &[(Network, u32)]) -> (Vec<u128>, Vec<Option<u32>>) {
    let (mut starts, mut owners) = (Vec::new(), Vec::new());
    let mut begin = |start: u128, owner: Option<u32>| {
        if starts.last() == Some(&start) {
            owners.pop();
        } else {
            starts.push(start);
        }
        owners.push(owner);
    };
    let mut open: Vec<(Network, u32)> = Vec::new();
    // Ends the innermost open network: its owner's range continues with that of the network around it.
    let end = |open: &mut Vec<(Network, u32)>, begin: &mut dyn FnMut(u128, Option<u32>)| {
        let Some((ended, _)) = open.pop() else { return };
        if let Some(next) = ended.last().checked_add(1) {
            begin(next, open.last().map(|(_, owner)| *owner));
        }
    };
    for (network, owner) in networks {
        while open.last().is_some_and(|(outer, _)| outer.last() < network.first) {
            end(&mut open, &mut begin);
        }
        begin(network.first, Some(*owner));
        open.push((*network, *owner));
    }
    while !open.is_empty() {
        end(&mut open, &mut begin);
    }
    (starts, owners)
}

#[cfg(test)]
mod tests {
    use lacquer_sources::random::Random;

    use super::*;

    fn find(table: &Table, ip: &str) -> String {
        let found = table.find(ip.parse().expect("an address"));
        found.map_or_else(|| "none".to_owned(), |name| String::from_utf8_lossy(name).into_owned())
    }

    #[test]
    fn the_smallest_network_counts() {
        let table = Table::parse(
            br#"{"a": ["192.0.2.0/24", "10.0.0.0/8", "2001:db8::/32"], "b": ["192.0.2.128/25", "192.0.2.7/32"],
                "all": ["::/0"], "c": ["2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128", "10.9.8.7/16"]}"#,
        )
        .expect("valid");
        for (ip, name) in [
            ("192.0.2.1", "a"),
            ("192.0.2.7", "b"),
            ("192.0.2.8", "a"),
            ("192.0.2.255", "b"),
            ("192.0.3.0", "all"),
            ("10.9.255.255", "c"),
            ("10.10.0.0", "a"),
            ("::ffff:192.0.2.200", "b"),
            ("::192.0.2.200", "b"),
            ("::ffff:0:192.0.2.200", "b"),
            ("2002:c000:02c8::1", "b"),
            ("2001:0:1234::3fff:fd37", "b"),
            ("2001:db8::", "a"),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "c"),
            ("2001:db9::", "all"),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "all"),
        ] {
            assert_eq!(find(&table, ip), name, "{ip}");
        }
        assert_eq!(
            table.warnings,
            ["c: network \"10.9.8.7/16\" has bits beyond its length; it is used as 10.9.0.0/16"]
        );
        let none = Table::parse(b"{}").expect("valid");
        assert_eq!(find(&none, "192.0.2.1"), "none");
    }

    #[test]
    fn errors_name_the_network_and_its_owner() {
        for (json, expected) in [
            (
                r#"{"a": [], "b": ["192.0.2.0/33"]}"#,
                "b: network \"192.0.2.0/33\": the length is not a number up to 32",
            ),
            (r#"{"b": ["::/129"]}"#, "b: network \"::/129\": the length is not a number up to 128"),
            (r#"{"b": ["192.0.2.0"]}"#, "b: network \"192.0.2.0\": there is no /length"),
            (r#"{"b": ["192.0.2/24"]}"#, "b: network \"192.0.2/24\": \"192.0.2\" is not an address"),
            (
                r#"{"b": ["::ffff:192.0.2.0/120"]}"#,
                "b: network \"::ffff:192.0.2.0/120\": it is another form of an IPv4 network",
            ),
            (
                r#"{"a": ["192.0.2.0/24"], "b": ["192.0.2.9/24"]}"#,
                "network 192.0.2.0/24 occurs twice, for a and for b",
            ),
            (
                r#"{"a": ["2001:db8::/32", "2001:db8::/32"]}"#,
                "network 2001:db8::/32 occurs twice, for a and for a",
            ),
        ] {
            assert_eq!(Table::parse(json.as_bytes()).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn invalid_files_are_refused() {
        for json in [
            "",
            "[]",
            "{\"a\": [\"192.0.2.0/24\"",
            "{\"a\": \"192.0.2.0/24\"}",
            "{\"a\": [1]}",
            "{\"a\": [\"192.0.2.0\"]}",
            "{\"a\": [\"192.0.2.0/33\"]}",
            "{\"a\": [\"192.0.2.0/+8\"]}",
            "{\"a\": [\"::/129\"]}",
            "{\"a\": [\"192.0.2.0/24\"], \"b\": [\"192.0.2.9/24\"]}",
            "{\"a\": [\"::ffff:192.0.2.0/120\"]}",
            "{\"a\": [\"2002::/16\"]}",
        ] {
            assert!(Table::parse(json.as_bytes()).is_err(), "{json}");
        }
        let deep = "{\"a\":".to_owned() + &"[".repeat(1_000_000);
        assert!(Table::parse(deep.as_bytes()).is_err());
    }

    /// A scan of all networks is the model.
    #[test]
    fn names_are_those_that_a_scan_finds() {
        let mut random = Random::new(1);
        let mut next = |end| random.below(end);
        for _ in 0..300 {
            let mut networks: Vec<(Network, u32)> = (0..10)
                .map(|owner| {
                    let length = 120 + next(9) as u8;
                    (Network { first: u128::from(next(256)) & mask(length), length }, owner)
                })
                .collect();
            networks.sort_unstable();
            networks.dedup_by_key(|(network, _)| *network);
            let (starts, owners) = ranges(&networks);
            for address in 0..260_u128 {
                let inside = |(n, _): &&(Network, u32)| n.first <= address && address <= n.last();
                let expected =
                    networks.iter().filter(inside).max_by_key(|(n, _)| n.length).map(|(_, owner)| *owner);
                let at = starts.partition_point(|start| *start <= address).checked_sub(1);
                assert_eq!(at.and_then(|at| owners[at]), expected, "{address}");
            }
        }
    }
}
