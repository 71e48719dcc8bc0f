//! The file of static names, `/etc/hosts`.

use std::collections::HashMap;
use std::net::IpAddr;

/// The addresses of static names. Names are in lower case.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hosts(HashMap<String, Vec<IpAddr>>);

impl Hosts {
    /// Reads the text of the file. Lines that it cannot use are skipped, as the C library does.
    pub fn parse(text: &[u8]) -> Hosts {
        let mut hosts = Hosts::default();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words {
                let addresses = hosts.0.entry(name.to_ascii_lowercase()).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        hosts
    }

    /// Returns the addresses of a name.
    pub fn find(&self, name: &str) -> Option<&[IpAddr]> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        self.0.get(&name).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::Hosts;

    #[test]
    fn unusable_lines_are_skipped() {
        let hosts = Hosts::parse(
            b"\xff\xfe junk\n127.0.0.1 localhost Loop # own\n::1\tlocalhost\n300.1.1.1 bad\n10.0.0.1\n# 10.0.0.2 no\n\
              127.0.0.1 localhost",
        );
        let found = |name| hosts.find(name).map(<[_]>::len);
        assert_eq!(found("LOCALHOST."), Some(2));
        assert_eq!(found("loop"), Some(1));
        assert_eq!((found("bad"), found("no"), found("own")), (None, None, None));
    }
}
