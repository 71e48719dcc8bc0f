//! The sections of PEM files (RFC 7468).

use std::fmt;

use rustls::pki_types::pem::{PemObject, SectionKind};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A section: its label, and its text with the lines that enclose it.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub label: &'a str,
    pub line: usize,
    text: &'a str,
}

/// Why a section cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// There is no line that ends it: the file is probably not complete.
    NoEnd { label: String, line: usize },
    /// Its content is not base64.
    NotBase64 { label: String, line: usize },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NoEnd { label, line } => {
                write!(
                    f,
                    "the section {label} that begins in line {line} has no end: the file is not complete"
                )
            }
            Damage::NotBase64 { label, line } => {
                write!(f, "the section {label} that begins in line {line} is damaged: it is not base64")
            }
        }
    }
}

impl Section<'_> {
    /// Returns the bytes that the section encodes.
    pub fn decode(&self) -> Result<Vec<u8>, Damage> {
        // The decoder accepts known labels only, and the label has no effect on the content.
        let body = self.text.trim_start_matches(BEGIN).trim_start_matches(self.label);
        let body = body.rfind(END).map_or("", |end| &body[DASHES.len()..end]);
        let text = format!("{BEGIN}CERTIFICATE{DASHES}{body}{END}CERTIFICATE{DASHES}\n");
        let decoded = <(SectionKind, Vec<u8>)>::from_pem_slice(text.as_bytes());
        let damage = || Damage::NotBase64 { label: self.label.to_owned(), line: self.line };
        decoded.map(|(_, bytes)| bytes).map_err(|_| damage())
    }

    /// Returns whether its content is encrypted with a password.
    pub fn is_encrypted(&self) -> bool {
        self.label == "ENCRYPTED PRIVATE KEY" || self.text.contains("Proc-Type: 4,ENCRYPTED")
    }
}

/// Returns the sections of a text. Other lines are ignored.
pub fn sections(text: &str) -> Result<Vec<Section<'_>>, Damage> {
    let mut found = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let (start, trimmed) = (at, line.trim_end());
        at += line.len();
        let label = |prefix| trimmed.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(DASHES));
        match (open, label(BEGIN), label(END)) {
            (None, Some(label), _) => open = Some((label, number + 1, start)),
            (Some((label, line, _)), Some(_), _) => {
                return Err(Damage::NoEnd { label: label.to_owned(), line });
            }
            (Some((label, line, start)), _, Some(end)) if end == label => {
                found.push(Section { label, line, text: &text[start..at] });
                open = None;
            }
            _ => {}
        }
    }
    match open {
        Some((label, line, _)) => Err(Damage::NoEnd { label: label.to_owned(), line }),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_other_lines() {
        let text = "comment\r\n-----BEGIN A-----\r\nAQID\r\n-----END A-----\r\n\n-----BEGIN B-----\nBA==\n-----END B-----";
        let found = sections(text).unwrap();
        assert_eq!(found.iter().map(|s| (s.label, s.line)).collect::<Vec<_>>(), [("A", 2), ("B", 6)]);
        assert_eq!(found[0].decode(), Ok(vec![1, 2, 3]));
        assert_eq!(found[1].decode(), Ok(vec![4]));
    }

    #[test]
    fn damaged_sections() {
        let no_end = |line| Damage::NoEnd { label: "A".to_owned(), line };
        assert_eq!(sections("-----BEGIN A-----\nAQID\n").unwrap_err(), no_end(1));
        assert_eq!(sections("\n-----BEGIN A-----\nAQID\n-----BEGIN A-----\n").unwrap_err(), no_end(2));
        assert_eq!(sections("-----BEGIN A-----\nAQID\n-----END B-----\n").unwrap_err(), no_end(1));
        let section = sections("-----BEGIN A-----\nA?ID\n-----END A-----\n").unwrap()[0];
        assert!(matches!(section.decode(), Err(Damage::NotBase64 { .. })));
        assert!(sections("").unwrap().is_empty());
    }
}
