//! Weights of servers by their places. Commands prefer servers with lower weights.

use std::net::IpAddr;

use lacquer_vcl_runtime::{Regex, RegexLimits};

use super::location::Location;

/// The largest weight, which servers have that no rule matches.
const LARGEST: u8 = 3;

/// A rule that gives a weight to servers.
pub(super) struct Rule {
    weight: u8,
    pattern: Pattern,
}

enum Pattern {
    /// Addresses with the same first bits.
    Network(IpAddr, u32),
    Place(Regex),
}

fn weight(text: &str) -> Result<u8, String> {
    let weight = text.parse().ok().filter(|weight| *weight <= LARGEST);
    weight.ok_or_else(|| format!("\"{text}\" is not a weight from 0 to {LARGEST}"))
}

/// Parses networks, such as `0 192.0.2.0/25, 1 192.0.2.0/24`.
pub(super) fn networks(text: &str) -> Result<Vec<Rule>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(network).collect()
}

fn network(item: &str) -> Result<Rule, String> {
    let fault = || format!("\"{item}\" is not of the form WEIGHT ADDRESS/BITS");
    let (number, network) = item.split_once(char::is_whitespace).ok_or_else(fault)?;
    let (address, bits) = network.trim().split_once('/').ok_or_else(fault)?;
    let address: IpAddr = address.parse().map_err(|_| fault())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(fault)?;
    Ok(Rule { weight: weight(number)?, pattern: Pattern::Network(address, bits) })
}

/// Parses lines with a weight and a regular expression for `HOST:PORT`.
pub(super) fn places(text: &str) -> Result<Vec<Rule>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(place).collect()
}

fn place(line: &str) -> Result<Rule, String> {
    let fault = || format!("\"{line}\" is not of the form WEIGHT REGEX");
    let (number, pattern) = line.split_once(char::is_whitespace).ok_or_else(fault)?;
    let regex =
        Regex::new(pattern.trim().as_bytes(), false).map_err(|error| format!("\"{pattern}\": {error}"))?;
    Ok(Rule { weight: weight(number)?, pattern: Pattern::Place(regex) })
}

impl Rule {
    fn matches(&self, text: &str, host: &str) -> bool {
        match &self.pattern {
            Pattern::Network(network, bits) => match (network, host.parse()) {
                (IpAddr::V4(network), Ok(IpAddr::V4(ip))) => {
                    (network.to_bits() ^ ip.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
                }
                (IpAddr::V6(network), Ok(IpAddr::V6(ip))) => {
                    (network.to_bits() ^ ip.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
                }
                _ => false,
            },
            Pattern::Place(regex) => regex.is_match(text.as_bytes(), RegexLimits::default()).unwrap_or(false),
        }
    }
}

/// Returns the weight of a server: that of the first rule that matches. UNIX sockets have the lowest weight.
pub(super) fn of(rules: &[Rule], text: &str, location: &Location) -> u8 {
    let Some(host) = location.host() else { return 0 };
    rules.iter().find(|rule| rule.matches(text, host)).map_or(LARGEST, |rule| rule.weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight_of(rules: &[Rule], text: &str) -> u8 {
        of(rules, text, &Location::parse(text).expect("a place"))
    }

    #[test]
    fn the_first_rule_that_matches_gives_the_weight() {
        let rules = networks("0 192.0.2.0/25, 1 192.0.2.0/24,2 2001:db8::/32,").expect("valid");
        assert_eq!(weight_of(&rules, "192.0.2.5:1"), 0);
        assert_eq!(weight_of(&rules, "192.0.2.200:1"), 1);
        assert_eq!(weight_of(&rules, "[2001:db8::9]:1"), 2);
        assert_eq!(weight_of(&rules, "198.51.100.1:1"), 3);
        assert_eq!(weight_of(&rules, "name.example:1"), 3);
        assert_eq!(weight_of(&rules, "/run/redis.sock"), 0);
        let rules = places("\n 0 ^192[.]0\n1 [.]example:1$\n").expect("valid");
        assert_eq!(weight_of(&rules, "192.0.2.5:1"), 0);
        assert_eq!(weight_of(&rules, "name.example:1"), 1);
        assert_eq!(weight_of(&rules, "name.example:11"), 3);
        let all = networks("1 0.0.0.0/0").expect("valid");
        assert_eq!(weight_of(&all, "192.0.2.5:1"), 1);
    }

    #[test]
    fn malformed_rules_are_refused() {
        for wrong in
            ["4 192.0.2.0/24", "192.0.2.0/24", "0 192.0.2.0", "0 192.0.2.0/33", "x 192.0.2.0/1", "0 name/1"]
        {
            assert!(networks(wrong).is_err(), "{wrong}");
        }
        for wrong in ["4 a", "a", "0 (", "-1 a"] {
            assert!(places(wrong).is_err(), "{wrong}");
        }
    }
}
