//! Chooses the requests of clients and records their responses, for both protocols.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use lacquer_sources::clock;

use crate::http::{Broken, Head};
use crate::journal::Journal;
use crate::ledger::{Got, Ledger, last_modified};
use crate::page;
use crate::page_request::{Condition, Key, PageRequest, Range};
use crate::site;
use crate::wire::{Chance, below, one_of, percent};

const VARIANTS: u64 = 3;

pub struct Requester {
    pub chance: Chance,
    pub ledger: Rc<RefCell<Ledger>>,
    pub journal: Journal,
    /// The number of pages of each kind.
    pub pages: u64,
    /// Most requests are for one page.
    pub has_favourite: bool,
    /// Clients request whole responses, stay until they are complete, and send correct uploads.
    pub is_patient: bool,
    /// The client address that the engine is expected to use.
    pub address: IpAddr,
    /// The responses that the client has received, by page.
    pub known: RefCell<BTreeMap<Key, usize>>,
}

impl Requester {
    pub fn choose(&self) -> PageRequest {
        let chance = &self.chance;
        let key = if self.has_favourite && percent(chance, 60) {
            Key { path: site::FAVOURITE.to_owned(), variant: 0 }
        } else {
            Key { path: self.page(), variant: below(chance, VARIANTS) }
        };
        let method = match below(chance, 100) {
            0..40 if site::is_passed(&key.path) => "POST",
            0..10 if self.may_want_less(&key.path) => "HEAD",
            10..18 if key.path == site::FAVOURITE && self.has_favourite => "PURGE",
            10..13 if site::is_changing(&key.path) => "PURGE",
            13..15 if site::is_changing(&key.path) => "BAN",
            _ => "GET",
        };
        let number = self.ledger.borrow_mut().request();
        let mut requested = PageRequest {
            fields: vec![("x-variant", key.variant.to_string()), ("x-request", number.to_string())],
            key,
            method,
            body: Vec::new(),
            upload: None,
            at: clock::real(),
            number,
            accepts_gzip: percent(chance, 40),
            range: None,
            if_range: None,
            condition: None,
        };
        if requested.accepts_gzip {
            requested.fields.push(("accept-encoding", one_of(chance, &["gzip", "gzip, br"]).to_owned()));
        }
        match method {
            "POST" => self.add_upload(&mut requested),
            "GET" | "HEAD" => self.add_conditions(&mut requested),
            _ => {}
        }
        let PageRequest { method, key, range, .. } = &requested;
        self.ledger.borrow_mut().note(format_args!("request {number} begins: {method} {key:?} {range:?}"));
        requested
    }

    /// Chooses a page. The VCL restarts the first request for a restarted page. If its response is for that request
    /// alone, this ends the fetch early, so patient clients ask for another page.
    fn page(&self) -> String {
        let path = site::any(&self.chance, self.pages);
        if self.is_patient { site::without_restart(path) } else { path }
    }

    /// Returns true in `share` percent of cases, unless clients are patient.
    pub fn is_impatient(&self, share: u64) -> bool {
        percent(&self.chance, share) && !self.is_patient
    }

    /// Returns whether the client may request less than the whole page. The fetch of an object for one request ends early
    /// then, and each page that does not stay fresh can become such an object.
    fn may_want_less(&self, path: &str) -> bool {
        !self.is_patient || site::is_calm(path)
    }

    fn add_upload(&self, requested: &mut PageRequest) {
        let longest = one_of(&self.chance, &[1, 3000, 200_000]);
        requested.body = page::body(requested.number as usize, below(&self.chance, longest) as usize);
        let upload = self.ledger.borrow_mut().upload(requested.body.clone());
        requested.fields.push(("x-upload", upload.to_string()));
        requested.upload = Some(upload);
    }

    fn add_conditions(&self, requested: &mut PageRequest) {
        let chance = &self.chance;
        let known = self.known.borrow().get(&requested.key).copied();
        let path = &requested.key.path;
        let may_have_range = !site::is_composed(path) && self.may_want_less(path);
        let has_range = requested.method == "GET" && may_have_range && percent(chance, 12);
        if has_range {
            let (from, to) = (below(chance, 2000) as usize, below(chance, 5000) as usize);
            let range =
                one_of(chance, &[Range::Between(from, from + to), Range::From(from), Range::Last(to)]);
            requested.fields.push(("range", range.text()));
            requested.range = Some(range);
        }
        let Some(known) = known.filter(|_| percent(chance, if has_range { 60 } else { 30 })) else { return };
        let by_tag = percent(chance, 60);
        let value = if by_tag { format!("\"{known}\"") } else { last_modified(known) };
        let name = match (has_range, by_tag) {
            (true, _) => "if-range",
            (false, true) => "if-none-match",
            (false, false) => "if-modified-since",
        };
        requested.fields.push((name, value));
        if has_range {
            requested.if_range = Some(known);
        } else {
            let condition = if by_tag { Condition::NoneMatch } else { Condition::ModifiedSince };
            requested.condition = Some(condition(known));
        }
    }

    /// Records the head of a response.
    pub fn saw(&self, head: &Head) {
        self.ledger.borrow_mut().saw(head);
    }

    /// Checks a complete response.
    pub fn judge(&self, requested: &PageRequest, head: &Head, body: &[u8]) -> Result<(), Broken> {
        let Some(status) = head.status() else {
            return Err(Broken::Malformed(format!("the line {:?}", head.start)));
        };
        if head.number("x-request") != Some(requested.number as usize) {
            let why = format!("the response to {:?} for request {}", head.get("x-request"), requested.number);
            return Err(Broken::Malformed(why));
        }
        if head.get("x-client") != Some(&self.address.to_string()) {
            let why = format!("a response to {:?}, not to {}", head.get("x-client"), self.address);
            return Err(Broken::Malformed(why));
        }
        let mut ledger = self.ledger.borrow_mut();
        if matches!(requested.method, "PURGE" | "BAN") {
            let vxid = head.number("x-varnish");
            if !vxid.is_some_and(|vxid| self.journal.has_recorded(vxid as u64)) {
                ledger.fault(&format!("{} {vxid:?} is answered before it is recorded", requested.method));
            }
            if requested.method == "PURGE" {
                ledger.purged(&requested.key.path, requested.at);
            } else {
                ledger.invalidated(&requested.key.path, requested.at);
            }
            return Ok(());
        }
        ledger.check(&Got { requested, status, head, body });
        if let Some(response) = head.response().filter(|_| status == 200) {
            self.known.borrow_mut().insert(requested.key.clone(), response);
        }
        Ok(())
    }
}
