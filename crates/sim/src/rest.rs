//! The rest of a response that was cut short. The engine asks for it with `Range` and `If-Range`.

use std::cell::RefCell;
use std::fmt::Write as _;

use crate::http::Head;
use crate::ledger::{Ledger, Sent, last_modified};
use crate::page;
use crate::page_request::Key;
use crate::site;
use crate::wire::{Chance, one_of};

pub struct Rest {
    /// The number of the response.
    pub response: usize,
    sent: Sent,
    /// The position of its first byte in the body.
    from: usize,
    /// The whole body, as it is sent.
    body: Vec<u8>,
}

/// The part of a head that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Tag,
    Total,
    From,
    To,
    Coding,
    NoRange,
}

/// The tag is wrong more often, because no other field tells the versions of a page apart.
const LIES: [Lie; 7] = [Lie::Tag, Lie::Tag, Lie::Total, Lie::From, Lie::To, Lie::Coding, Lie::NoRange];

impl Rest {
    /// Returns the rest that a request asks for. The ranges of clients reach the origin only for private pages, and get
    /// the whole page.
    pub fn requested(request: &Head, key: &Key, ledger: &RefCell<Ledger>) -> Option<Rest> {
        if site::is_private(&key.path) {
            return None;
        }
        let from = request.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()?;
        let response = page::response_of_tag(request.get("if-range")?)?;
        let sent = ledger.borrow().sent(response).cloned()?;
        let body = sent.body(response);
        if sent.key != *key || sent.status != 200 || !(1..body.len()).contains(&from) {
            let why = format!("the rest of response {response} from {from} on is requested for {key:?}");
            ledger.borrow_mut().fault(&why);
            return None;
        }
        sent.is_sound.then_some(Rest { response, sent, from, body })
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> usize {
        self.body.len() - self.from
    }

    /// Returns the response to the request. `lies` chooses a part of its head that is wrong.
    pub fn bytes(&self, freshness: &str, lies: Option<&Chance>) -> Vec<u8> {
        let lie = lies.map(|chance| one_of(chance, &LIES));
        let plus = |told| usize::from(lie == Some(told));
        let (whole, tag) = (self.body.len(), self.response + plus(Lie::Tag));
        let from = self.from + plus(Lie::From);
        let (to, total) = (whole - 1 - plus(Lie::To), whole + plus(Lie::Total));
        let modified = last_modified(self.response);
        let mut head = format!(
            "HTTP/1.1 206 Partial Content\r\nETag: \"{tag}\"\r\nLast-Modified: {modified}\r\n{freshness}"
        );
        if self.sent.is_packed != (lie == Some(Lie::Coding)) {
            head += "Content-Encoding: gzip\r\n";
        }
        if lie != Some(Lie::NoRange) {
            let _ = write!(head, "Content-Range: bytes {from}-{to}/{total}\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n\r\n", self.length());
        [head.as_bytes(), &self.body[self.from..]].concat()
    }
}
