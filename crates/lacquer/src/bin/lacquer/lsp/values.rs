//! Values of the protocol: addresses of files, positions and ranges.

use std::fmt::Write as _;
use std::ops::Range;

use lacquer_tools::editor::{CandidateKind, Encoding, Position};
use lacquer_vcl::{Diagnostic, Severity};
use serde_json::{Value, json};

use super::workspace::Document;

/// Returns the path of a `file:` address; `None` for other addresses.
pub fn path_of(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("file://")?;
    let path = &rest[rest.find('/')?..];
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.as_bytes();
    while let Some((&byte, rest)) = left.split_first() {
        let hex = |byte: u8| char::from(byte).to_digit(16);
        match (byte, rest) {
            (b'%', [high, low, behind @ ..]) => {
                bytes.push((hex(*high)? * 16 + hex(*low)?) as u8);
                left = behind;
            }
            _ => {
                bytes.push(byte);
                left = rest;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns the `file:` address of a path.
pub fn uri_of(path: &str) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

pub fn position(value: &Value) -> Option<Position> {
    let number = |name: &str| usize::try_from(value[name].as_u64()?).ok();
    Some(Position { line: number("line")?, character: number("character")? })
}

pub fn range(document: &Document, span: &Range<usize>, encoding: Encoding) -> Value {
    let at = |offset: usize| {
        let Position { line, character } = document.lines.position(&document.text, offset, encoding);
        json!({ "line": line, "character": character })
    };
    json!({ "start": at(span.start), "end": at(span.end) })
}

pub fn location(path: &str, document: &Document, span: &Range<usize>, encoding: Encoding) -> Value {
    json!({ "uri": uri_of(path), "range": range(document, span, encoding) })
}

/// Returns a diagnostic of the compiler. Without a location, it stands at the beginning of the file.
pub fn diagnostic(found: &Diagnostic, encoding: Encoding) -> Value {
    let severity = if found.severity == Severity::Error { 1 } else { 2 };
    let character = |line: &[u8], offset: usize| {
        let before = String::from_utf8_lossy(&line[..offset.min(line.len())]).into_owned();
        if encoding == Encoding::Utf8 { before.len() } else { before.encode_utf16().count() }
    };
    let at = |line: u32, character: usize| json!({ "line": line.saturating_sub(1), "character": character });
    let (start, end) = match found.place() {
        Some(place) => {
            let start = at(place.line, character(&place.text, place.start));
            let end = match &place.last {
                Some(last) => at(last.line, character(&last.text, place.end)),
                None => at(place.line, character(&place.text, place.end.max(place.start))),
            };
            (start, end)
        }
        None => (at(1, 0), at(1, 0)),
    };
    let mut message = found.message();
    for note in found.notes() {
        let _ = write!(message, "\n{note}");
    }
    if let Some(hint) = &found.hint {
        let _ = write!(message, "\nHint: {hint}");
    }
    json!({
        "range": { "start": start, "end": end },
        "severity": severity,
        "source": "lacquer",
        "message": message,
    })
}

/// Returns the number of a kind of completion.
pub fn kind_of(kind: CandidateKind) -> u32 {
    match kind {
        CandidateKind::Method => 2,
        CandidateKind::Function => 3,
        CandidateKind::Variable => 6,
        CandidateKind::Class => 7,
        CandidateKind::Module => 9,
        CandidateKind::Keyword => 14,
        CandidateKind::Name => 18,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files_are_paths() {
        for (uri, path) in [("file:///a/b.vcl", "/a/b.vcl"), ("file://host/a%20b%C3%A9", "/a b\u{e9}")] {
            assert_eq!(path_of(uri).as_deref(), Some(path));
        }
        for uri in ["", "untitled:1", "file://", "file:///%zz", "file:///%ff"] {
            assert_eq!(path_of(uri), None, "{uri}");
        }
        assert_eq!(path_of(&uri_of("/a b/\u{e9}#?.vcl")).as_deref(), Some("/a b/\u{e9}#?.vcl"));
    }
}
