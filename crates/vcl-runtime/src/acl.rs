//! ACLs prepared for lookup. The nested networks are split into ranges of addresses, each with its most specific
//! entry, so that a lookup is one binary search.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lacquer_vcl::program::{Acl, AclEntry};

/// The result of checking an address against an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclMatch<'a> {
    pub matches: bool,
    /// The text for `VCL_acl`, if the ACL logs.
    pub log: Option<&'a str>,
}

#[derive(Debug, Default)]
struct Ranges<A> {
    /// The start of each range, ascending. The first range starts at zero.
    starts: Vec<A>,
    /// The entry that applies to each range, plus one; 0 for none.
    entries_of_ranges: Vec<u32>,
}

/// An ACL as sorted ranges of addresses, so that the time of a lookup is logarithmic.
#[derive(Debug)]
pub struct AclTable {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    /// For each entry: whether it makes the address match, and its text for the log.
    entries: Vec<(bool, String)>,
    no_match: String,
    log: bool,
}

trait Address: Copy + Ord + Default {
    fn first(self, bits: u8) -> Self;
    /// The address after the network's last; `None` past the end of the address space.
    fn after(self, bits: u8) -> Option<Self>;
}

macro_rules! address {
    ($type:ty) => {
        impl Address for $type {
            fn first(self, bits: u8) -> Self {
                if bits == 0 { 0 } else { self & (<$type>::MAX << (Self::BITS - u32::from(bits))) }
            }

            fn after(self, bits: u8) -> Option<Self> {
                let size = (1 as $type).checked_shl(Self::BITS - u32::from(bits))?;
                self.first(bits).checked_add(size)
            }
        }
    };
}

address!(u32);
address!(u128);

impl<A: Address> Ranges<A> {
    /// Entries consist of address, bits and index. Less specific ones are inserted first and overwritten by others.
    fn new(mut entries: Vec<(A, u8, u32)>) -> Ranges<A> {
        let mut cuts: Vec<A> = vec![A::default()];
        for &(address, bits, _) in &entries {
            cuts.push(address.first(bits));
            cuts.extend(address.after(bits));
        }
        cuts.sort_unstable();
        cuts.dedup();
        // Of two entries for the same network, the first in the text applies: it is inserted last.
        entries.sort_by_key(|&(address, bits, index)| (address.first(bits), bits, u32::MAX - index));
        let mut starts = Vec::with_capacity(cuts.len());
        let mut entries_of_ranges = Vec::with_capacity(cuts.len());
        let mut open: Vec<(A, u8, u32)> = Vec::new();
        let mut entries = entries.into_iter().peekable();
        for cut in cuts {
            while open.last().is_some_and(|e| e.0.after(e.1).is_some_and(|end| end <= cut)) {
                open.pop();
            }
            while let Some(entry) = entries.next_if(|e| e.0.first(e.1) <= cut) {
                open.push(entry);
            }
            let ruler = open.last().map_or(0, |e| e.2 + 1);
            if entries_of_ranges.last() != Some(&ruler) {
                starts.push(cut);
                entries_of_ranges.push(ruler);
            }
        }
        Ranges { starts, entries_of_ranges }
    }

    fn entry_of(&self, address: A) -> Option<usize> {
        let at = self.starts.partition_point(|&start| start <= address);
        (*self.entries_of_ranges.get(at.checked_sub(1)?)? as usize).checked_sub(1)
    }
}

impl AclTable {
    pub fn new(acl: &Acl) -> AclTable {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut entries = Vec::with_capacity(acl.entries.len());
        for (i, entry) in acl.entries.iter().enumerate() {
            match entry.address {
                IpAddr::V4(a) => v4.push((u32::from(a), entry.bits.min(32), i as u32)),
                IpAddr::V6(a) => v6.push((u128::from(a), entry.bits.min(128), i as u32)),
            }
            let negative = if entry.negated { "NEG_" } else { "" };
            let text =
                if acl.log { format!("{negative}MATCH {} {}", acl.name, entry.text) } else { String::new() };
            entries.push((!entry.negated, text));
        }
        // Varnish's text differs if it has built a table for the outermost networks.
        let table = acl.table && outermost(&acl.entries) >= 2;
        let no_match = format!("{} {}", if table { "NO MATCH" } else { "NO_MATCH" }, acl.name);
        AclTable { v4: Ranges::new(v4), v6: Ranges::new(v6), entries, no_match, log: acl.log }
    }

    /// Returns whether the address matches, and the text for the log.
    pub fn check(&self, ip: &SocketAddr) -> AclMatch<'_> {
        let ruler = match ip.ip() {
            IpAddr::V4(a) => self.v4.entry_of(u32::from(a)),
            IpAddr::V6(a) => self.v6.entry_of(u128::from(a)),
        };
        match ruler.and_then(|i| self.entries.get(i)) {
            Some((matches, text)) => AclMatch { matches: *matches, log: self.log.then_some(text) },
            None => AclMatch { matches: false, log: self.log.then_some(&self.no_match) },
        }
    }
}

/// Returns the number of entries that no other entry contains.
fn outermost(entries: &[AclEntry]) -> usize {
    let holds = |outer: &AclEntry, inner: &AclEntry| {
        outer.bits < inner.bits
            && match (outer.address, inner.address) {
                (IpAddr::V4(o), IpAddr::V4(i)) => same::<u32, Ipv4Addr>(o, i, outer.bits),
                (IpAddr::V6(o), IpAddr::V6(i)) => same::<u128, Ipv6Addr>(o, i, outer.bits),
                _ => false,
            }
    };
    entries.iter().filter(|inner| !entries.iter().any(|outer| holds(outer, inner))).count()
}

fn same<A: Address + From<I>, I>(a: I, b: I, bits: u8) -> bool {
    A::from(a).first(bits) == A::from(b).first(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, negated: bool) -> AclEntry {
        let (address, bits) = text.split_once('/').unwrap();
        AclEntry {
            negated,
            address: address.parse().unwrap(),
            bits: bits.parse().unwrap(),
            text: format!("\"{address}\"/{bits}"),
        }
    }

    fn table(entries: Vec<AclEntry>) -> AclTable {
        let (log, table) = (true, false);
        AclTable::new(&Acl { name: "a".into(), entries, log, table, fold: false, pedantic: true })
    }

    fn ask<'a>(acl: &'a AclTable, ip: &str) -> (bool, &'a str) {
        let verdict = acl.check(&SocketAddr::new(ip.parse().unwrap(), 0));
        (verdict.matches, verdict.log.unwrap())
    }

    #[test]
    fn the_most_specific_entry_applies() {
        let acl = table(vec![
            entry("10.0.0.0/8", false),
            entry("10.1.0.0/16", true),
            entry("10.1.2.0/24", false),
            entry("10.1.2.3/32", true),
            entry("255.255.255.255/32", false),
            entry("fe80::/10", false),
        ]);
        assert_eq!(ask(&acl, "10.9.9.9"), (true, "MATCH a \"10.0.0.0\"/8"));
        assert_eq!(ask(&acl, "10.1.9.9"), (false, "NEG_MATCH a \"10.1.0.0\"/16"));
        assert_eq!(ask(&acl, "10.1.2.4"), (true, "MATCH a \"10.1.2.0\"/24"));
        assert_eq!(ask(&acl, "10.1.2.3"), (false, "NEG_MATCH a \"10.1.2.3\"/32"));
        assert_eq!(ask(&acl, "10.1.3.0"), (false, "NEG_MATCH a \"10.1.0.0\"/16"));
        assert_eq!(ask(&acl, "10.2.0.0"), (true, "MATCH a \"10.0.0.0\"/8"));
        assert_eq!(ask(&acl, "11.0.0.0"), (false, "NO_MATCH a"));
        assert!(ask(&acl, "255.255.255.255").0);
        assert!(ask(&acl, "febf::1").0);
        assert!(!ask(&acl, "fec0::1").0);
    }

    #[test]
    fn empty_and_universal_acls_work() {
        let all = table(vec![entry("0.0.0.0/0", false), entry("127.0.0.1/32", true)]);
        assert!(ask(&all, "1.2.3.4").0);
        assert!(!ask(&all, "127.0.0.1").0);
        assert!(!ask(&all, "::1").0);
        assert!(!ask(&table(Vec::new()), "0.0.0.0").0);
    }
}
