//! The names of a certificate.

use std::fmt;

/// The maximum number of names of a certificate. Let's Encrypt has the same limit.
const MAX_NAMES: usize = 100;
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// The names of one certificate, in lower case: at least one, each once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Names {
    all: Vec<String>,
}

impl Names {
    /// Parses names that are separated by semicolons. The error is a text for the operator.
    pub fn parse(text: &str) -> Result<Names, String> {
        let mut all = Vec::new();
        for name in text.split(';').map(str::trim) {
            let name = name.to_ascii_lowercase();
            check(&name).map_err(|why| format!("\"{}\": {why}", name.escape_default()))?;
            if !all.contains(&name) {
                all.push(name);
            }
        }
        if all.len() > MAX_NAMES {
            return Err(format!(
                "a certificate has at most {MAX_NAMES} names; repeat acme= for further ones"
            ));
        }
        Ok(Names { all })
    }

    /// Returns all names.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Returns the first name, which identifies the certificate.
    pub fn first(&self) -> &str {
        self.all.first().map_or("", String::as_str)
    }

    /// Returns a name for files and commands. Certificates with other names have another one.
    pub fn id(&self) -> String {
        // `*` would be a pattern in a shell.
        let first = self.first().replace('*', "_");
        match self.all.len() {
            0 | 1 => first,
            _ => format!("{first}-{:08x}", fingerprint(&self.all[1..])),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all.join(" "))
    }
}

/// Returns a number that differs for other lists of names (FNV-1a).
fn fingerprint(names: &[String]) -> u32 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([b';']));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Checks a name in lower case, which may begin with `*.`.
fn check(name: &str) -> Result<(), &'static str> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    if name.is_empty() {
        return Err("the name is empty");
    }
    if !name.is_ascii() {
        return Err("write the name in its ASCII form, which begins with xn--");
    }
    if name.len() > MAX_NAME {
        return Err("the name is longer than 253 bytes");
    }
    if host.contains('*') {
        return Err("a wildcard is the whole first label, as in *.example.org");
    }
    if host.starts_with('[') || host.rsplit('.').next().is_some_and(|last| last.parse::<u32>().is_ok()) {
        return Err("an address is not supported; use a name");
    }
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(fits)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.split('.').all(is_label) { Ok(()) } else { Err("it is not the name of a host") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalized() {
        let names = Names::parse("Example.org; www.example.org;example.ORG").unwrap();
        assert_eq!(names.all(), ["example.org", "www.example.org"]);
        assert_eq!(Names::parse("*.example.org").unwrap().id(), "_.example.org");
        assert_ne!(names.id(), Names::parse("example.org;ftp.example.org").unwrap().id());
        assert_eq!(Names::parse("example.org").unwrap().id(), "example.org");
    }

    #[test]
    fn wrong_names_are_refused() {
        let long_label = format!("{}.org", "a".repeat(64));
        let long_name = ["a".repeat(60).as_str(); 5].join(".");
        let many: Vec<String> = (0..=MAX_NAMES).map(|n| format!("h{n}.example.org")).collect();
        for wrong in [
            "",
            "a;;b",
            "example..org",
            ".example.org",
            "example.org.",
            "-a.org",
            "a-.org",
            "a_b.org",
            "a/../../b",
            "a b",
            "ex\u{e4}mple.org",
            "127.0.0.1",
            "[::1]",
            "::1",
            "*",
            "*.",
            "a.*.org",
            "*a.org",
            "a\n.org",
            &long_label,
            &long_name,
            &many.join(";"),
        ] {
            assert!(Names::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
