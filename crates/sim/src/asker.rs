//! Chooses what clients ask for, and judges what they get, whatever the protocol.

use std::cell::RefCell;
use std::rc::Rc;

use lacquer_sources::clock;

use crate::http::{Broken, Head};
use crate::ledger::{Got, Key, Ledger};
use crate::page;
use crate::wire::{Chance, below, one_of, percent};

const VARIANTS: u64 = 3;

#[derive(Clone)]
pub struct Asker {
    pub chance: Chance,
    pub ledger: Rc<RefCell<Ledger>>,
    /// The number of pages of each kind.
    pub pages: u64,
}

/// A request.
pub struct Asked {
    pub key: Key,
    pub method: &'static str,
    pub fields: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    at: f64,
    number: u64,
}

impl Asker {
    pub fn choose(&self) -> Asked {
        let chance = &self.chance;
        let kind = one_of(chance, &["/p/", "/p/", "/p/", "/p/", "/calm/", "/calm/", "/pass/"]);
        let path = format!("{kind}{}", below(chance, self.pages));
        let variant = if kind == "/pass/" { 0 } else { below(chance, VARIANTS) };
        let method = match (kind, below(chance, 100)) {
            ("/pass/", 0..40) => "POST",
            (_, 0..10) => "HEAD",
            ("/p/", 10..15) => "PURGE",
            _ => "GET",
        };
        let number = self.ledger.borrow_mut().request();
        let mut fields = vec![("x-variant", variant.to_string()), ("x-request", number.to_string())];
        if method == "GET" && percent(chance, 10) {
            let from = below(chance, 2000);
            fields.push(("range", format!("bytes={from}-{}", from + below(chance, 5000))));
        }
        let mut body = Vec::new();
        if method == "POST" {
            let longest = one_of(chance, &[1, 3000, 200_000]);
            body = page::body(number as usize, below(chance, longest) as usize);
            let upload = self.ledger.borrow_mut().upload(body.clone());
            fields.push(("x-upload", upload.to_string()));
        }
        Asked { key: Key { path, variant }, method, fields, body, at: clock::real(), number }
    }

    /// Records the body of a response as far as it has come.
    pub fn saw(&self, head: &Head, body: &[u8]) {
        if range_of(head).is_none_or(|(from, _)| from == 0) {
            self.ledger.borrow_mut().saw(body);
        }
    }

    /// Checks a complete response.
    pub fn judge(&self, asked: &Asked, head: &Head, body: &[u8]) -> Result<(), Broken> {
        let Some(status) = head.status() else {
            return Err(Broken::Malformed(format!("the line {:?}", head.start)));
        };
        if head.number("x-request") != Some(asked.number as usize) {
            let why = format!("the response to {:?} for request {}", head.get("x-request"), asked.number);
            return Err(Broken::Malformed(why));
        }
        let is_head = asked.method == "HEAD";
        let range = range_of(head);
        let whole = match range {
            Some((_, whole)) => whole,
            None if is_head => head.number("content-length"),
            None => Some(body.len()),
        };
        let (key, from) = (&asked.key, range.map_or(0, |(from, _)| from));
        let mut ledger = self.ledger.borrow_mut();
        if asked.method == "PURGE" {
            ledger.invalidated(&key.path, asked.at);
        } else {
            ledger.check(&Got { key, asked: asked.at, status, body, from, whole, is_head });
        }
        Ok(())
    }
}

/// Returns the first byte's place, and the whole length if it is known.
fn range_of(head: &Head) -> Option<(usize, Option<usize>)> {
    let (part, whole) = head.get("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
    Some((part.split('-').next()?.parse().ok()?, whole.parse().ok()))
}
