//! `acl name +flags { "host"/mask; ! "host"; ("host"); }`
//!
//! Entries are in Varnish's order, in which the first matching entry decides: by family, then by
//! address, and a smaller network before a larger one that contains it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::compiler::{Compiler, Res, Stop};
use crate::lexer::Tok;
use crate::program::AclEntry;
use crate::symbols::{Fmt, TokenId};

/// A network, prefixed with its family. `bits` includes the family's byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    data: [u8; 17],
    bits: u32,
}

/// The relation between two networks, for folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Same,
    Before,
    After,
    /// The first is contained in the second.
    Inside,
    Around,
    /// The two are the halves of the next larger network.
    LeftHalf,
    RightHalf,
}

impl Network {
    fn relation(&self, other: &Network) -> Relation {
        let common = self.bits.min(other.bits);
        let same_size = self.bits == other.bits;
        let whole = (common / 8) as usize;
        for i in 0..whole {
            let (a, b) = (self.data[i], other.data[i]);
            if a != b {
                // Two halves of a network can differ only in the last significant bit.
                let last = same_size && common.is_multiple_of(8) && i + 1 == whole;
                return unequal(a, b, last);
            }
        }
        if !common.is_multiple_of(8) {
            let shift = 8 - common % 8;
            let (a, b) = (self.data[whole] >> shift, other.data[whole] >> shift);
            if a != b {
                return unequal(a, b, same_size);
            }
        }
        match other.bits.cmp(&self.bits) {
            Ordering::Less => Relation::Inside,
            Ordering::Greater => Relation::Around,
            Ordering::Equal => Relation::Same,
        }
    }

    fn address(&self) -> IpAddr {
        if self.data[0] == 4 {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&self.data[1..5]);
            IpAddr::V4(Ipv4Addr::from(bytes))
        } else {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&self.data[1..]);
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
    }
}

fn unequal(a: u8, b: u8, may_be_halves: bool) -> Relation {
    match (may_be_halves, a < b) {
        (true, _) if a | 1 == b => Relation::LeftHalf,
        (true, _) if b | 1 == a => Relation::RightHalf,
        (_, true) => Relation::Before,
        (_, false) => Relation::After,
    }
}

impl PartialOrd for Network {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Network {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.relation(other) {
            Relation::Same => Ordering::Equal,
            Relation::Before | Relation::Inside | Relation::LeftHalf => Ordering::Less,
            Relation::After | Relation::Around | Relation::RightHalf => Ordering::Greater,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    negated: bool,
    address: TokenId,
    mask: Option<TokenId>,
    /// The address, without a mask that is part of the string.
    host: String,
    /// The correction that made it a network, as text.
    fixed: Option<String>,
}

type Tree = BTreeMap<Network, Entry>;

/// The entries as they were written, each network once.
#[derive(Default)]
struct Entries {
    tree: Tree,
    /// The networks in the order of their entries.
    order: Vec<Network>,
}

/// The state while the entries of an ACL are folded, one after the other.
struct Folding {
    tree: Tree,
    /// The negated entries of the whole ACL, also those that come later.
    exceptions: BTreeSet<Network>,
    /// Whether each fold is a warning.
    has_report: bool,
}

impl Folding {
    fn is_positive(&self, network: &Network) -> bool {
        self.tree.get(network).is_some_and(|entry| !entry.negated)
    }

    /// Returns whether a negated entry contains the inner network, and is contained in the outer one.
    fn has_exception_between(&self, inner: &Network, outer: &Network) -> bool {
        let mut sizes = outer.bits + 1..inner.bits;
        !self.exceptions.is_empty() && sizes.any(|bits| self.exceptions.contains(&Network { bits, ..*inner }))
    }
}

#[derive(Clone, Copy)]
struct Flags {
    log: bool,
    fold: bool,
    /// Whether each fold is a warning.
    fold_report: bool,
    pedantic: bool,
    table: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self { log: false, fold: true, fold_report: true, pedantic: true, table: false }
    }
}

/// Maximum number of warnings about folded entries, except in the text of `vcl.load`. Each contains the whole lines of two
/// entries, so that a list on one line would need quadratic space.
const MOST_FOLDS: usize = 100;
const VALID_FLAGS: &str = "Valid ACL flags are `log`, `fold`, `pedantic` and `table`:\n";
const VALID_FOLD_FLAGS: &str = "The only ACL fold sub-flag is `report`:\n";

/// One entry as written, before its addresses are resolved.
struct Written {
    entry: Entry,
    optional: bool,
    bits: Option<u32>,
}

impl Compiler<'_> {
    pub fn parse_acl(&mut self) -> Res<()> {
        self.advance();
        self.want_name("ACL")?;
        let symbol = self.handle_symbol(Fmt::Acl)?.ok_or(Stop)?;
        let flags = self.acl_flags()?;
        self.skip(Tok::LBrace)?;
        let mut found = Entries::default();
        while self.now() != Tok::RBrace {
            let written = self.acl_entry()?;
            self.add_hosts(&mut found, written, flags)?;
            self.skip(Tok::Semi)?;
        }
        self.skip(Tok::RBrace)?;
        let tree = if flags.fold { self.folded(&found, flags.fold_report) } else { found.tree };
        let entries = tree.iter().map(|(network, entry)| Self::acl_result(network, entry)).collect();
        let index = self.global_index(symbol) as usize;
        let acl = &mut self.program.acls[index];
        acl.entries = entries;
        (acl.log, acl.fold, acl.pedantic, acl.table) = (flags.log, flags.fold, flags.pedantic, flags.table);
        Ok(())
    }

    fn acl_flags(&mut self) -> Res<Flags> {
        let mut flags = Flags::default();
        loop {
            let set = match self.flag() {
                Ok(Some(set)) => set,
                Ok(None) => return Ok(flags),
                Err(Stop) => {
                    self.add_text(VALID_FLAGS);
                    return Err(Stop);
                }
            };
            match self.text(self.t) {
                "log" => flags.log = set,
                "fold" => {
                    self.advance();
                    (flags.fold, flags.fold_report) = (set, self.fold_report(set)?);
                    continue;
                }
                "pedantic" => flags.pedantic = set,
                "table" => flags.table = set,
                _ => {
                    self.hint("the flags are log, fold, pedantic and table");
                    return self.fail(format!("Unknown ACL flag. {VALID_FLAGS}"), self.t);
                }
            }
            self.advance();
        }
    }

    /// Parses what may follow the flag `fold`: `(+report)` or `(-report)`.
    fn fold_report(&mut self, folds: bool) -> Res<bool> {
        if self.now() != Tok::LParen {
            return Ok(true);
        }
        if !folds {
            return self.fail("-fold(...) is invalid, use -fold:\n", self.t);
        }
        self.advance();
        let reports = match self.flag() {
            Ok(Some(set)) => set,
            Ok(None) => return self.fail(VALID_FOLD_FLAGS, self.t),
            Err(Stop) => {
                self.add_text(VALID_FOLD_FLAGS);
                return Err(Stop);
            }
        };
        if self.text(self.t) != "report" {
            return self.fail(VALID_FOLD_FLAGS, self.t);
        }
        self.advance();
        self.skip(Tok::RParen)?;
        Ok(reports)
    }

    fn acl_entry(&mut self) -> Res<Written> {
        let mut negated = self.take(Tok::Bang);
        let optional = self.take(Tok::LParen);
        negated = negated || self.take(Tok::Bang);
        self.want(Tok::Cstr)?;
        let address = self.t;
        let content = self.content_text(address);
        self.advance();
        let mut entry =
            Entry { negated, address, mask: None, host: content.clone().into_owned(), fixed: None };
        let mut bits = None;
        if let Some((host, mask)) = content.split_once('/') {
            host.clone_into(&mut entry.host);
            let digits = mask.chars().all(|c| c.is_ascii_digit());
            if !digits {
                return self.fail(".../mask is not numeric.\n", address);
            }
            bits = Some(mask.parse().unwrap_or(if mask.is_empty() { 0 } else { u32::MAX }));
            entry.mask = Some(address);
            if self.now() == Tok::Slash {
                return self.fail("/mask only allowed once.\n", self.t);
            }
        } else if self.now() == Tok::Slash {
            self.advance();
            entry.mask = Some(self.t);
            bits = Some(u32::try_from(self.uint()?).unwrap_or(u32::MAX));
        }
        if optional {
            self.skip(Tok::RParen)?;
        }
        Ok(Written { entry, optional, bits })
    }

    fn take(&mut self, kind: Tok) -> bool {
        let found = self.now() == kind;
        if found {
            self.advance();
        }
        found
    }

    fn add_hosts(&mut self, found: &mut Entries, written: Written, flags: Flags) -> Res<()> {
        let host = written.entry.host.clone();
        if let Some((address, bits)) = net_notation(&host) {
            let bits = written.bits.unwrap_or(bits);
            return self.add_network(found, written.entry, IpAddr::V4(address), bits, flags);
        }
        let resolved = match host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![ip]),
            Err(_) => {
                let list = self.input.options.resolver.resolve(Some(&host), "0");
                list.map(|list| list.into_iter().map(|a| a.ip()).collect())
            }
        };
        let mut addresses: Vec<IpAddr> = match resolved {
            Ok(addresses) => addresses,
            Err(error) if written.optional => {
                self.add_text(format!("Warning: {host} ignored\n  -- {error}\n"));
                self.look_at(written.entry.address);
                self.finish_note();
                return Ok(());
            }
            Err(error) => {
                return self.fail(format!("DNS lookup({host}): {error}\n"), written.entry.address);
            }
        };
        let mut seen = Vec::new();
        addresses.retain(|a| !seen.contains(a) && (seen.push(*a), true).1);
        let both = addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6);
        if let (Some(bits), Some(mask), true) = (written.bits, written.entry.mask, both) {
            let message =
                format!("Mask (/{bits}) specified, but string resolves to both IPv4 and IPv6 addresses.\n");
            return self.fail(message, mask);
        }
        for address in addresses {
            let bits = written.bits.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
            self.add_network(found, written.entry.clone(), address, bits, flags)?;
        }
        Ok(())
    }

    fn add_network(
        &mut self,
        found: &mut Entries,
        mut entry: Entry,
        address: IpAddr,
        bits: u32,
        flags: Flags,
    ) -> Res<()> {
        let (family, most, bytes) = match address {
            IpAddr::V4(a) => ("IPv4", 32, a.octets().to_vec()),
            IpAddr::V6(a) => ("IPv6", 128, a.octets().to_vec()),
        };
        if bits > most {
            let token = entry.mask.unwrap_or(entry.address);
            return self.fail(format!("Too wide mask (/{bits}) for {family} address\n"), token);
        }
        let mut data = [0; 17];
        data[0] = if most == 32 { 4 } else { 6 };
        data[1..=bytes.len()].copy_from_slice(&bytes);
        let masked = clear_host_bits(&mut data, bits);
        let network = Network { data, bits: bits + 8 };
        if masked {
            let fixed = format!("{}/{bits}", network.address());
            if flags.pedantic {
                let message = format!("Non-zero bits in masked part, (maybe use {fixed} ?)\n");
                return self.fail(message, entry.address);
            }
            entry.fixed = Some(fixed);
        }
        self.insert_network(found, network, entry)
    }

    fn insert_network(&mut self, found: &mut Entries, network: Network, entry: Entry) -> Res<()> {
        if let Some(old) = found.tree.get(&network) {
            if old.negated == entry.negated {
                return Ok(());
            }
            let first = old.address;
            self.add_text("Conflicting ACL entries:\n");
            self.show(first);
            return self.fail("vs:\n", entry.address);
        }
        found.tree.insert(network, entry);
        found.order.push(network);
        Ok(())
    }

    /// Returns the entries without those that others make superfluous.
    fn folded(&mut self, found: &Entries, has_report: bool) -> Tree {
        let negated = found.tree.iter().filter(|(_, entry)| entry.negated);
        let exceptions = negated.map(|(network, _)| *network).collect();
        let mut folding = Folding { tree: Tree::new(), exceptions, has_report };
        for network in &found.order {
            if let Some(entry) = found.tree.get(network) {
                self.fold_in(&mut folding, *network, entry.clone());
            }
        }
        folding.tree
    }

    /// Adds an entry, and folds it with its neighbours.
    fn fold_in(&mut self, folding: &mut Folding, network: Network, entry: Entry) {
        // Two others may have been joined to this network.
        if folding.tree.contains_key(&network) {
            return;
        }
        folding.tree.insert(network, entry);
        let before = folding.tree.range(..network).next_back().map(|(n, _)| *n);
        if let Some(left) = before
            && !self.fold(folding, left, network)
        {
            return;
        }
        let after = folding.tree.range(network..).nth(1).map(|(n, _)| *n);
        if let Some(right) = after {
            self.fold(folding, network, right);
        }
    }

    fn most_folds(&self) -> usize {
        if self.input.options.max_errors == 1 { usize::MAX } else { MOST_FOLDS }
    }

    /// Counts a folded entry. Returns whether a warning shows it.
    fn may_show_fold(&mut self) -> bool {
        let most = self.most_folds();
        self.report.may_show_fold(most)
    }

    /// Warns of the folded entries beyond those that were shown.
    pub fn count_other_folds(&mut self) {
        let count = self.report.folds_beyond(self.most_folds());
        if count > 0 {
            self.add_text(format!("Warning: {count} more entries of ACLs are folded.\n"));
            self.finish_note();
        }
    }

    /// Folds two adjacent networks in the tree. Returns whether the right one remains.
    fn fold(&mut self, folding: &mut Folding, left: Network, right: Network) -> bool {
        let mut left = left;
        loop {
            if !folding.is_positive(&left) || !folding.is_positive(&right) {
                return true;
            }
            match left.relation(&right) {
                Relation::Inside if !folding.has_exception_between(&left, &right) => {
                    if folding.has_report && self.may_show_fold() {
                        self.add_text("ACL entry:\n");
                        self.show(folding.tree[&right].address);
                        self.add_text("supersedes / removes:\n");
                        self.show(folding.tree[&left].address);
                        self.finish_warning();
                    }
                    folding.tree.remove(&left);
                }
                Relation::LeftHalf => return !self.join(folding, left, right),
                _ => return true,
            }
            match folding.tree.range(..right).next_back() {
                Some((next, _)) => left = *next,
                None => return true,
            }
        }
    }

    /// Replaces the two halves of a network by the network, unless it is an exception. Returns whether that was done.
    fn join(&mut self, folding: &mut Folding, left: Network, right: Network) -> bool {
        let whole = Network { bits: left.bits - 1, ..left };
        if folding.exceptions.contains(&whole) {
            return false;
        }
        let (Some(mut kept), Some(gone)) = (folding.tree.remove(&left), folding.tree.remove(&right)) else {
            return true;
        };
        if folding.has_report && self.may_show_fold() {
            self.add_text("ACL entry:\n");
            self.show(kept.address);
            self.add_text("left of:\n");
            self.show(gone.address);
            let bits = whole.bits - 8;
            self.add_text(format!(
                "removing the latter and expanding mask of the former by one to /{bits}\n"
            ));
            self.finish_warning();
        }
        kept.fixed = Some("folded".to_owned());
        self.fold_in(folding, whole, kept);
        true
    }

    /// Returns the entry for the program, with its text for the log.
    fn acl_result(network: &Network, entry: &Entry) -> AclEntry {
        let bits = network.bits - 8;
        let mut text = format!("\"{}\"", entry.host);
        match entry.mask {
            Some(mask) if mask != entry.address => {
                let _ = write!(text, "/{bits}");
            }
            _ => {}
        }
        if let Some(fixed) = &entry.fixed {
            let _ = write!(text, " fixed: {fixed}");
        }
        AclEntry { negated: entry.negated, address: network.address(), bits: bits as u8, text }
    }
}

/// Parses the first bytes of an IPv4 network (`10`, `10.1` and so on), a common short form of CIDR blocks.
fn net_notation(text: &str) -> Option<(Ipv4Addr, u32)> {
    let mut bytes = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        if count == 4 {
            // A fifth part makes the mask too wide, which is the error to report.
            return Some((Ipv4Addr::from(bytes), 40));
        }
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        bytes[count] = part.parse().ok()?;
        count += 1;
    }
    Some((Ipv4Addr::from(bytes), 8 * count as u32))
}

/// Clears the host bits after the first `bits` bits. Returns whether any was set.
fn clear_host_bits(data: &mut [u8; 17], bits: u32) -> bool {
    let mut changed = false;
    for (i, byte) in data.iter_mut().enumerate().skip(1) {
        let used = bits.saturating_sub(8 * (i as u32 - 1)).min(8);
        let mask = (0xff00_u32 >> used) as u8;
        changed |= *byte & !mask != 0;
        *byte &= mask;
    }
    changed
}
