//! Versions of TLS.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde::{Deserialize, Serialize};

/// The names of all versions, from the oldest to the newest.
const NAMES: [&str; 5] = ["SSLv3", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
const TLS_1_2: usize = 3;
const TLS_1_3: usize = 4;

/// A set of versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Protocols {
    bits: u8,
}

impl Protocols {
    /// Adds the version with this name. Returns false if there is none.
    pub fn add(&mut self, name: &str) -> bool {
        let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
        at.inspect(|at| self.bits |= 1 << at).is_some()
    }

    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Returns this set, or the other if this one is empty.
    #[must_use]
    pub fn or(self, other: Protocols) -> Protocols {
        if self.is_empty() { other } else { self }
    }

    /// Returns whether TLS 1.3 is offered.
    pub fn has_tls13(self) -> bool {
        self.is_empty() || self.bits >= 1 << TLS_1_3
    }

    /// Returns the versions to offer: those from the oldest to the newest of the set, because TLS negotiates ranges.
    /// The empty set stands for the default. Fails if all of the versions are too old.
    pub fn versions(self) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
        let newest = self.bits.checked_ilog2().map_or(TLS_1_3, |bit| bit as usize);
        let oldest = if self.is_empty() { TLS_1_2 } else { self.bits.trailing_zeros() as usize };
        match (oldest, newest) {
            (TLS_1_3, _) => Ok(vec![&TLS13]),
            (_, TLS_1_3) => Ok(vec![&TLS13, &TLS12]),
            (_, TLS_1_2) => Ok(vec![&TLS12]),
            _ => Err(format!("{} is not supported, use TLSv1.2 or TLSv1.3", NAMES[newest])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let versions = |names: &str| {
            let mut set = Protocols::default();
            assert!(names.split_whitespace().all(|name| set.add(name)));
            set.versions().map(|versions| versions.len())
        };
        assert_eq!(versions(""), Ok(2));
        assert_eq!(versions("tlsv1.2"), Ok(1));
        assert_eq!(versions("TLSv1.3"), Ok(1));
        assert_eq!(versions("TLSv1.0 TLSv1.3"), Ok(2));
        assert_eq!(versions("SSLv3 TLSv1.2"), Ok(1));
        for (names, expected) in [
            ("", true),
            ("TLSv1.2", false),
            ("TLSv1.3", true),
            ("TLSv1.0 TLSv1.3", true),
            ("SSLv3 TLSv1.2", false),
        ] {
            let mut set = Protocols::default();
            names.split_whitespace().for_each(|name| assert!(set.add(name)));
            assert_eq!(set.has_tls13(), expected, "{names}");
        }
        assert!(versions("TLSv1.1").unwrap_err().starts_with("TLSv1.1 is not supported"));
        assert!(!Protocols::default().add("TLSv1.4"));
    }
}
