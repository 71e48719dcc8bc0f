//! Lists and parameters in header values, by the rules of Varnish's `http_GetHdrToken` and related functions:
//! elements are separated by commas, unquoted tokens are compared ignoring case and quoted ones exactly, and only the
//! first header of a name is read (callers merge duplicates before).

use super::Message;
use crate::ascii::{is_ows, is_tchar, trim_ows, trim_ows_end};
use crate::header_table::HeaderName;
use crate::workspace::Workspace;

/// Returns the non-empty elements of a list, without surrounding blanks.
pub fn split_list(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    list.split(move |&b| b == separator).map(trim_ows).filter(|e| !e.is_empty())
}

/// Returns the bytes after the token if the element begins with it.
fn after_token<'a>(element: &'a [u8], token: &[u8]) -> Option<&'a [u8]> {
    let n = token.len();
    if let [b'"', quoted @ ..] = element
        && quoted.len() > n
        && quoted.starts_with(token)
        && quoted[n] == b'"'
    {
        return Some(&quoted[n + 1..]);
    }
    let (head, rest) = element.split_at_checked(n)?;
    let ends = rest.first().is_none_or(|&b| !is_tchar(b));
    (head.eq_ignore_ascii_case(token) && ends).then_some(rest)
}

/// Searches a list for a token. Returns the rest of its element, and the index of that rest in the list.
fn find_token<'a>(value: &'a [u8], token: &[u8]) -> Option<(&'a [u8], usize)> {
    let mut at = 0;
    for piece in value.split(|&b| b == b',') {
        let end = at + piece.len();
        let skipped = piece.iter().take_while(|&&b| is_ows(b)).count();
        let element = trim_ows_end(&piece[skipped..]);
        if !element.is_empty()
            && let Some(rest) = after_token(element, token)
        {
            return Some((rest, at + skipped + element.len() - rest.len()));
        }
        at = end + 1;
    }
    None
}

impl Message {
    /// Returns whether the list in the header has the element `token`, with or without parameters.
    pub fn has_token(&self, ws: &Workspace, name: HeaderName<'_>, token: &[u8]) -> bool {
        self.get_token(ws, name, token).is_some()
    }

    /// Returns the bytes after `token` in its element (such as ";q=0.5"), without surrounding blanks.
    pub fn get_token<'w>(&self, ws: &'w Workspace, name: HeaderName<'_>, token: &[u8]) -> Option<&'w [u8]> {
        find_token(self.get(ws, name)?, token).map(|(rest, _)| trim_ows(rest))
    }

    /// Returns the value of "field=value" in the list. The value extends to the end of the header; callers read a
    /// number from its beginning. `Some(None)` means that the field has no value.
    pub fn get_field<'w>(
        &self,
        ws: &'w Workspace,
        name: HeaderName<'_>,
        field: &[u8],
    ) -> Option<Option<&'w [u8]>> {
        let value = self.get(ws, name)?;
        let (rest, at) = find_token(value, field)?;
        if trim_ows(rest).is_empty() {
            return Some(None);
        }
        let after = trim_ows(&value[at..]);
        Some(after.strip_prefix(b"=").map(trim_ows))
    }

    /// Returns the quality of `token` in the header: 0 if it is absent, 1 without a q parameter.
    pub fn quality(&self, ws: &Workspace, name: HeaderName<'_>, token: &[u8]) -> f64 {
        self.get_token(ws, name, token).map_or(0.0, get_quality)
    }
}

/// Returns the q value among the parameters that follow a list element.
pub(crate) fn get_quality(parameters: &[u8]) -> f64 {
    for parameter in split_list(parameters, b';') {
        let Some(rest) = parameter.strip_prefix(b"q") else { continue };
        let Some(number) = trim_ows(rest).strip_prefix(b"=") else { continue };
        return parse_quality(trim_ows(number));
    }
    1.0
}

fn parse_quality(number: &[u8]) -> f64 {
    let mut value = 0.0;
    let mut digits = number.iter();
    let mut scale = 1.0;
    let mut fraction = false;
    for &b in &mut digits {
        match b {
            b'0'..=b'9' if fraction => {
                scale *= 0.1;
                value += scale * f64::from(b - b'0');
            }
            b'0'..=b'9' => value = value * 10.0 + f64::from(b - b'0'),
            b'.' if !fraction => fraction = true,
            _ => break,
        }
    }
    value
}
