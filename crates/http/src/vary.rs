//! Variants of a response. The spec of a variant contains the headers that `Vary` names and their values in the
//! request that it was made for. A request matches if it has the same values. The compact form:
//!
//! ```text
//! repeated: u16 length of value (big endian, 0xffff: header absent), u8 length of name + 1, name, ':', NUL, value
//! end:      0xff 0xff 0x00
//! ```

use crate::ascii::{is_ows, is_tchar, trim_ows, trim_ows_end};
use crate::directives::split_element;
use crate::header_table::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderName, VARY};
use crate::message::Message;
use crate::workspace::Workspace;
use std::borrow::Cow;
use std::fmt;

const ABSENT: usize = 0xffff;
const END: [u8; 3] = [0xff, 0xff, 0];
const MAX_NAME: usize = 127;

/// The name in `Vary` that stands for everything, also outside of the request.
const EVERYTHING: &[u8] = b"*";

/// The reason why a response cannot be cached: an error in its `Vary`, or that it varies on everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaryError {
    NameTooLong,
    ValueTooLong,
    Malformed,
    /// No other request matches (RFC 9111 section 4.1).
    Everything,
}

impl VaryError {
    pub const fn text(self) -> &'static str {
        match self {
            VaryError::NameTooLong => "Vary header name length exceeded",
            VaryError::ValueTooLong => "Vary header maximum length exceeded",
            VaryError::Malformed => "Malformed Vary header",
            VaryError::Everything => "Vary header is *",
        }
    }
}

impl fmt::Display for VaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for VaryError {}

/// Returns the value of a header of the request. Several lines of it are one list (RFC 9110 section 5.3).
fn request_value<'w>(req: &Message, ws: &'w Workspace, name: &[u8]) -> Option<Cow<'w, [u8]>> {
    let mut lines = req.get_all(ws, HeaderName::new(name)).map(trim_ows_end);
    let first = lines.next()?;
    let Some(second) = lines.next() else { return Some(Cow::Borrowed(first)) };
    let mut all = first.to_vec();
    for line in std::iter::once(second).chain(lines) {
        all.extend_from_slice(b", ");
        all.extend_from_slice(line);
    }
    Some(Cow::Owned(all))
}

/// Returns the part of a value that a spec can contain.
fn kept(value: &[u8]) -> &[u8] {
    &value[..value.len().min(ABSENT - 1)]
}

fn push_entry(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    let len = value.map_or(ABSENT, <[u8]>::len) as u16;
    out.extend_from_slice(&len.to_be_bytes());
    out.push(name.len() as u8 + 1);
    out.extend_from_slice(name);
    out.extend_from_slice(b":\0");
    out.extend_from_slice(value.unwrap_or_default());
}

/// Appends the spec of the variant that `beresp` is for `bereq`. Returns false if the response does not vary. After
/// an error `out` is unchanged. The lines of `Vary` must have been merged into one header.
pub fn create(
    beresp: &Message,
    beresp_ws: &Workspace,
    bereq: &Message,
    bereq_ws: &Workspace,
    out: &mut Vec<u8>,
) -> Result<bool, VaryError> {
    let Some(vary) = beresp.get(beresp_ws, VARY) else { return Ok(false) };
    let start = out.len();
    let result = push_all(vary, bereq, bereq_ws, out);
    match result {
        Ok(()) => out.extend_from_slice(&END),
        Err(_) => out.truncate(start),
    }
    result.map(|()| true)
}

/// Returns whether `Vary` contains only names of fields (RFC 9110 section 12.5.5). Others name no field, so that all
/// requests would match. The lines of `Vary` must have been merged into one header.
pub fn has_only_names(beresp: &Message, ws: &Workspace) -> bool {
    let names = beresp.get(ws, VARY).unwrap_or_default().split(|&b| b == b',');
    names.map(trim_ows).all(|name| name.iter().all(|&b| is_tchar(b)))
}

fn push_all(vary: &[u8], bereq: &Message, ws: &Workspace, out: &mut Vec<u8>) -> Result<(), VaryError> {
    let skip_blanks = |at: usize| at + vary[at..].iter().take_while(|&&b| is_ows(b)).count();
    let mut at = 0;
    loop {
        at = skip_blanks(at);
        if at == vary.len() {
            return Ok(());
        }
        let len = vary[at..].iter().take_while(|&&b| !is_ows(b) && b != b',').count();
        if len > MAX_NAME {
            return Err(VaryError::NameTooLong);
        }
        let name = &vary[at..at + len];
        if name == EVERYTHING {
            return Err(VaryError::Everything);
        }
        if !name.is_empty() {
            let value = request_value(bereq, ws, name);
            if value.as_ref().is_some_and(|value| value.len() >= ABSENT) {
                return Err(VaryError::ValueTooLong);
            }
            push_entry(out, name, value.as_deref());
        }
        at = skip_blanks(at + len);
        match vary.get(at) {
            None => return Ok(()),
            Some(b',') => at += 1,
            Some(_) => return Err(VaryError::Malformed),
        }
    }
}

/// One header of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub name: &'a [u8],
    /// The value; `None` if the request had no such header.
    pub value: Option<&'a [u8]>,
}

/// The headers of a spec.
#[derive(Clone, Debug)]
pub struct Entries<'a>(&'a [u8]);

/// Returns the headers and values in a spec that [`create`] wrote.
pub fn entries(spec: &[u8]) -> Entries<'_> {
    Entries(spec)
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (&[hi, lo, name_len], rest) = self.0.split_first_chunk::<3>()?;
        if name_len == 0 {
            return None;
        }
        let (name, rest) = rest.split_at_checked(name_len as usize + 1)?;
        let len = u16::from_be_bytes([hi, lo]) as usize;
        let (value, rest) = if len == ABSENT {
            (None, rest)
        } else {
            rest.split_at_checked(len).map(|(v, r)| (Some(v), r))?
        };
        self.0 = rest;
        Some(Entry { name: &name[..name.len() - 2], value })
    }
}

/// Returns whether the request matches this variant. With gzip support `Accept-Encoding` is ignored: all requests get
/// the gzipped object, which is decompressed on delivery if necessary. A variant that varies on everything, which an
/// earlier release may have stored, never matches.
pub fn matches(spec: &[u8], req: &Message, ws: &Workspace, gzip_support: bool) -> bool {
    entries(spec).all(|entry| {
        (gzip_support && ACCEPT_ENCODING.matches(entry.name))
            || entry.name != EVERYTHING
                && request_value(req, ws, entry.name).as_deref().map(kept) == entry.value
    })
}

/// Returns whether the request matches this variant, where values with the same meaning are equal: the whitespace
/// around the commas of a list does not count, nor do order and case in `Accept-Language` (RFC 9111 section 4.1).
pub fn matches_by_meaning(spec: &[u8], req: &Message, ws: &Workspace, gzip_support: bool) -> bool {
    entries(spec).all(|entry| {
        if gzip_support && ACCEPT_ENCODING.matches(entry.name) {
            return true;
        }
        let value = request_value(req, ws, entry.name);
        entry.name != EVERYTHING
            && match (value.as_deref().map(kept), entry.value) {
                (Some(asked), Some(stored)) => has_same_meaning(entry.name, asked, stored),
                (asked, stored) => asked == stored,
            }
    })
}

fn has_same_meaning(name: &[u8], a: &[u8], b: &[u8]) -> bool {
    // Their values are not lists.
    let is_exact = COOKIE.matches(name) || AUTHORIZATION.matches(name);
    if is_exact || a == b {
        return a == b;
    }
    let (mut a, mut b) = (elements(a), elements(b));
    if ACCEPT_LANGUAGE.matches(name) {
        for list in [&mut a, &mut b] {
            list.retain(|element| !element.is_empty());
            for element in list.iter_mut() {
                *element =
                    Cow::Owned(element.iter().filter(|&&b| !is_ows(b)).map(u8::to_ascii_lowercase).collect());
            }
            list.sort_unstable();
        }
    }
    a == b
}

/// Returns the elements of a list. Empty ones count, because a field that is not known may not be a list.
fn elements(mut list: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut found = Vec::new();
    loop {
        let (element, rest) = split_element(list);
        found.push(Cow::Borrowed(trim_ows(element)));
        if element.len() == list.len() {
            return found;
        }
        list = rest;
    }
}

/// Appends the spec that the response to this request will probably have: the headers of `spec` with the values of
/// the request.
pub fn predict(spec: &[u8], req: &Message, ws: &Workspace, out: &mut Vec<u8>) {
    for entry in entries(spec) {
        let value = request_value(req, ws, entry.name);
        push_entry(out, entry.name, value.as_deref().map(kept));
    }
    out.extend_from_slice(&END);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> (Message, Workspace) {
        let mut ws = Workspace::new(1 << 18);
        let mut msg = Message::new(64);
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        (msg, ws)
    }

    fn spec(vary: &str, req: &[&str]) -> Result<Vec<u8>, VaryError> {
        let ((resp, resp_ws), (req, req_ws)) = (message(&[vary]), message(req));
        let mut out = Vec::new();
        create(&resp, &resp_ws, &req, &req_ws, &mut out).map(|_| out)
    }

    #[test]
    fn all_lines_of_a_header_are_compared() {
        let (beresp, beresp_ws) = message(&["Vary: X-A"]);
        let (one, one_ws) = message(&["X-A: 1", "X-A: 2"]);
        let mut spec = Vec::new();
        assert!(create(&beresp, &beresp_ws, &one, &one_ws, &mut spec).unwrap());
        let table: [(&[&str], bool); 6] = [
            (&["X-A: 1", "X-A: 2"], true),
            (&["X-A: 1, 2"], true),
            (&["X-A: 1", "X-A: 3"], false),
            (&["X-A: 1"], false),
            (&["X-A: 1", "X-A: 2", "X-A: 3"], false),
            (&[], false),
        ];
        for (lines, expected) in table {
            let (req, ws) = message(lines);
            assert_eq!(matches(&spec, &req, &ws, true), expected, "{lines:?}");
        }
    }

    #[test]
    fn specs_are_written_in_the_compact_form() {
        let made = spec("Vary: Foo , Bar,", &["foo:  x y ", "Baz: 1"]).unwrap();
        assert_eq!(made, b"\0\x03\x04Foo:\0x y\xff\xff\x04Bar:\0\xff\xff\0");
        assert_eq!(spec("NoVary: x", &[]).unwrap(), b"");
        assert_eq!(spec("Vary:", &[]).unwrap(), END);
        assert_eq!(spec("Vary: Foo Bar", &[]), Err(VaryError::Malformed));
        assert_eq!(spec("Vary: foo, bar baz", &["foo: 1"]), Err(VaryError::Malformed));
        assert_eq!(spec(&format!("Vary: {}", "x".repeat(128)), &[]), Err(VaryError::NameTooLong));
        assert!(spec(&format!("Vary: {}", "x".repeat(127)), &[]).is_ok());
        let long = format!("Foo: {}", "y".repeat(65535));
        assert_eq!(spec("Vary: foo", &[&long]), Err(VaryError::ValueTooLong));
    }

    #[test]
    fn requests_match_with_equal_values_only() {
        let made = spec("Vary: Foo, Accept-Encoding, Bar", &["Foo: x", "Accept-Encoding: gzip"]).unwrap();
        let table: &[(&[&str], bool, bool)] = &[
            (&["Foo: x", "Accept-Encoding: gzip"], true, true),
            (&["foo:x \t", "accept-encoding: gzip", "Else: 1"], true, true),
            (&["Foo: x"], true, false),
            (&["Foo: X", "Accept-Encoding: gzip"], false, false),
            (&["Accept-Encoding: gzip"], false, false),
            (&["Foo: x", "Accept-Encoding: gzip", "Bar: 1"], false, false),
            (&["Foo: x", "Accept-Encoding: gzip", "Bar:"], false, false),
        ];
        for (req, with_gzip, without) in table {
            let (msg, ws) = message(req);
            assert_eq!(matches(&made, &msg, &ws, true), *with_gzip, "{req:?}");
            assert_eq!(matches(&made, &msg, &ws, false), *without, "{req:?}");
            let mut predicted = Vec::new();
            predict(&made, &msg, &ws, &mut predicted);
            assert!(matches(&predicted, &msg, &ws, false));
            assert_eq!(predicted == made, *without);
        }
        let (msg, ws) = message(&[]);
        assert!(matches(&END, &msg, &ws, false));
    }

    #[test]
    fn names_are_tokens() {
        for (vary, expected) in [
            ("Vary: A", true),
            ("Vary: A-b_1, *", true),
            ("Vary: ,, A,", true),
            ("Vary:", true),
            ("X: y", true),
            ("Vary: A;q=1", false),
            ("Vary: A B", false),
            ("Vary: A, \"B\"", false),
            ("Vary: \u{e9}", false),
        ] {
            let (msg, ws) = message(&[vary]);
            assert_eq!(has_only_names(&msg, &ws), expected, "{vary:?}");
        }
    }

    #[test]
    fn values_with_the_same_meaning_match() {
        let table: &[(&str, &str, &str, bool)] = &[
            ("Foo", "1,2", " 1, 2 ", true),
            ("Foo", "1,2", "1 ,\t2", true),
            // A field that is not known may not be a list.
            ("Foo", "1,2", "1,2,", false),
            ("Foo", "1,2", "1,,2", false),
            ("Foo", ",", "", false),
            ("Accept-Language", "en, de", ",de,,en,", true),
            ("Foo", "1,2", "2,1", false),
            ("Foo", "1,2", "1,2,3", false),
            ("Foo", "a", "A", false),
            ("Foo", "\"a, b\"", "\"a,b\"", false),
            ("Foo", "\"a,b", "\"a, b", false),
            ("Accept-Language", "en, de", "de,en", true),
            ("Accept-Language", "en, de", "eN ,  De", true),
            ("Accept-Language", "en;q=0.5, de", "de, en; q=0.5", true),
            ("Accept-Language", "en;q=0.5, de", "de, en;q=0.6", false),
            ("Accept-Language", "en, de", "en", false),
            ("Cookie", "a=1, 2", "a=1,2", false),
            ("Authorization", "Digest a=1, b=2", "Digest a=1,b=2", false),
        ];
        for (name, stored, asked, expected) in table {
            let made = spec(&format!("Vary: {name}"), &[&format!("{name}: {stored}")]).unwrap();
            let (msg, ws) = message(&[&format!("{name}: {asked}")]);
            assert_eq!(matches_by_meaning(&made, &msg, &ws, true), *expected, "{name} {stored:?} {asked:?}");
            let (none, none_ws) = message(&[]);
            assert!(!matches_by_meaning(&made, &none, &none_ws, true), "{name}");
        }
    }

    #[test]
    fn a_response_that_varies_on_everything_matches_no_request() {
        for vary in ["Vary: *", "Vary: Foo, *", "Vary:\t* , Foo", "Vary: ,*"] {
            for request in [&[][..], &["*: x"], &["Foo: x"]] {
                assert_eq!(spec(vary, request), Err(VaryError::Everything), "{vary:?} {request:?}");
            }
        }
        assert!(spec("Vary: Foo*, *Bar, **", &[]).is_ok());
        let mut stored = Vec::new();
        push_entry(&mut stored, b"Foo", None);
        push_entry(&mut stored, b"*", None);
        stored.extend_from_slice(&END);
        for request in [&[][..], &["*: x"], &["*:"]] {
            let (msg, ws) = message(request);
            assert!(!matches(&stored, &msg, &ws, false) && !matches(&stored, &msg, &ws, true));
        }
    }
}
