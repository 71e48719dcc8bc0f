//! Compares a body with the responses of which it consists.

use super::{Rules, Sent};
use crate::page;

/// A reason why a body is not the whole text of a response.
enum Mismatch {
    Wrong(String),
    /// The response ends early, which is permitted.
    Cut,
    /// The response is damaged, so its decompressed bytes are unknown.
    Unknown,
}

type Found = Result<(), Mismatch>;

fn wrong(why: String) -> Found {
    Err(Mismatch::Wrong(why))
}

/// The body of a response, with the responses that it includes.
pub(super) struct Composition<'c> {
    sent: &'c [Sent],
    rules: Rules,
    variant: u64,
    body: &'c [u8],
    rest: &'c [u8],
    parts: Vec<usize>,
}

impl<'c> Composition<'c> {
    pub(super) fn of(sent: &'c [Sent], rules: Rules, variant: u64) -> Composition<'c> {
        Composition { sent, rules, variant, body: &[], rest: &[], parts: Vec::new() }
    }

    /// Returns all responses of which a body consists. Fails with the reason if it is not the body of `response`.
    pub(super) fn read(mut self, body: &'c [u8], response: usize) -> Result<Vec<usize>, String> {
        (self.body, self.rest) = (body, body);
        match self.page(response, false) {
            Ok(()) if self.rest.is_empty() => Ok(self.parts),
            Err(Mismatch::Unknown) => Ok(self.parts),
            Err(Mismatch::Wrong(why)) => Err(why),
            Ok(()) | Err(Mismatch::Cut) => {
                Err(format!("{} bytes are not those of response {response} alone", body.len()))
            }
        }
    }

    fn expect(&mut self, bytes: &[u8], of: usize) -> Found {
        let Some(rest) = self.rest.strip_prefix(bytes) else {
            let same = bytes.iter().zip(self.rest).take_while(|(a, b)| a == b).count();
            let found = String::from_utf8_lossy(&self.rest[same..self.rest.len().min(same + 20)]);
            let (length, left) = (bytes.len(), self.rest.len());
            return wrong(format!(
                "of {length} bytes of response {of} only {same} are right, and {found:?} follows: {left} are left"
            ));
        };
        self.rest = rest;
        Ok(())
    }

    /// Reads text of a response. If `may_end` is set, the text may end early, before a closing brace.
    fn text(&mut self, text: &[u8], of: usize, may_end: bool) -> Found {
        if may_end {
            let same = text.iter().zip(self.rest).take_while(|(a, b)| a == b).count();
            if same < text.len() && self.rest.get(same) == Some(&b'}') {
                self.rest = &self.rest[same..];
                return Err(Mismatch::Cut);
            }
        }
        self.expect(text, of)
    }

    fn page(&mut self, response: usize, may_end: bool) -> Found {
        self.parts.push(response);
        self.page_from(response, (0, 0), may_end)
    }

    /// Compares a page from the byte `from` and the include `next` on.
    fn page_from(&mut self, response: usize, (from, next): (usize, usize), may_end: bool) -> Found {
        let sent = self.sent;
        let page = &sent[response];
        let text = page::body(response, page.length);
        let Some(include) = page.includes.get(next) else {
            return self.text(&text[from..], response, may_end);
        };
        self.text(&text[from..include.at], response, may_end)?;
        self.text(b"{", response, may_end)?;
        match self.include(&include.path) {
            Ok(()) | Err(Mismatch::Cut) => {}
            Err(odd) => return Err(odd),
        }
        let (rest, parts) = (self.rest, self.parts.len());
        if !self.took_outer_brace() {
            self.text(b"}", response, may_end)?;
        }
        match self.page_from(response, (include.at, next + 1), may_end) {
            // The page may have ended earlier, and the brace belonged to the page around it.
            Err(Mismatch::Wrong(_)) if may_end => {
                self.rest = rest;
                self.parts.truncate(parts);
                Err(Mismatch::Cut)
            }
            read => read,
        }
    }

    /// Returns whether the included page took the brace that follows: it may end before a brace of its own that is its
    /// last byte.
    fn took_outer_brace(&self) -> bool {
        let may_end = self.rules.loses_bodies && !self.rules.onerror;
        let before = self.body[..self.body.len() - self.rest.len()].last();
        may_end && before == Some(&b'}') && !self.rest.starts_with(b"}")
    }

    fn include(&mut self, path: &str) -> Found {
        if let Some(rest) = self.rest.strip_prefix(b"!") {
            self.rest = rest;
            return if self.rules.onerror {
                wrong(format!("the include of {path} has failed, and the response went on"))
            } else {
                Ok(())
            };
        }
        let Some(part) = page::response_of(self.rest) else {
            let is_ours = |sent: &&Sent| sent.key.path == path && sent.key.variant == self.variant;
            let Rules { onerror, loses_bodies, .. } = self.rules;
            let may_fail =
                !onerror && (loses_bodies || self.sent.iter().filter(is_ours).any(|sent| !sent.is_whole));
            if may_fail && self.rest.starts_with(b"#") {
                // The included response ends within its number.
                let end = self.rest.iter().position(|&byte| byte == b'}').unwrap_or(0);
                self.rest = &self.rest[end..];
            }
            return if may_fail { Ok(()) } else { wrong(format!("the include of {path} is missing")) };
        };
        let Some(sent) = self.sent.get(part) else {
            return wrong(format!("included response {part} was sent by no origin"));
        };
        if sent.key.path != path || sent.key.variant != self.variant {
            return wrong(format!("included response {part} is that to {:?}, not {path}", sent.key));
        }
        // Without `onerror`, a page may have been included before it was completed.
        let is_whole = sent.is_whole || sent.is_completed && self.rules.onerror;
        match (is_whole, self.rules.onerror, sent.is_packed) {
            (true, onerror, _) => self.page(part, self.rules.loses_bodies && !onerror),
            (false, true, _) => wrong(format!("the origin did not complete included response {part}")),
            // Like Varnish, the engine continues with the text after the include.
            (false, false, false) => self.page(part, true),
            (false, false, true) => Err(Mismatch::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_request::Key;
    use crate::site::Include;

    fn sent(path: &str, length: usize, included: Option<&str>) -> Sent {
        let include = |path: &str| Include { at: length, path: path.to_owned() };
        Sent {
            key: Key { path: path.to_owned(), variant: 0 },
            status: 200,
            length,
            includes: included.map(include).into_iter().collect(),
            is_packed: false,
            is_sound: true,
            is_whole: true,
            is_completed: false,
            max_age: 1.0,
        }
    }

    #[test]
    fn a_page_may_end_before_its_last_brace() {
        let pages =
            [sent("/esi/0", 20, Some("/part/0")), sent("/part/0", 18, Some("/p/0")), sent("/p/0", 16, None)];
        let text =
            |number: usize| String::from_utf8_lossy(&page::body(number, pages[number].length)).into_owned();
        let composed = |braces: &str| format!("{}{{{}{{{}{braces}", text(0), text(1), text(2));
        for (loses_bodies, braces, is_right) in [
            (false, "}}", true),
            (false, "}", false),
            (true, "}}", true),
            (true, "}", true),
            (true, "", false),
        ] {
            let rules = Rules { loses_bodies, ..Rules::default() };
            let read = Composition::of(&pages, rules, 0).read(composed(braces).as_bytes(), 0);
            assert_eq!(read.is_ok(), is_right, "{loses_bodies} {braces} {read:?}");
        }
    }
}
