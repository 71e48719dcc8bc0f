//! The filters of `req.filters`, between a client's body and whoever reads it: the cache or a fetch.
//!
//! What they do to the head is known before the body is read, so that the origin is told the truth about
//! what it gets; the request itself is changed once the body was read.

use std::ops::Range;

use lacquer_filters::{Chain, Filter, Gunzip, Gzip, TestGunzip};
use lacquer_http::{Message, Workspace, header_table as h};
use lacquer_shm::Tag;

use crate::client::Req;
use lacquer_deliver::Pace;

/// The complaint about a list that has, from here on, something that is no filter.
pub fn unknown(rest: &[u8]) -> String {
    format!("Filter '...{}' not found", String::from_utf8_lossy(rest))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gunzip,
    Gzip,
    TestGunzip,
}

/// Filters on a body, in the order in which they get it.
#[derive(Default)]
pub struct BodyFilters {
    chain: Chain,
    kinds: Vec<Kind>,
    pace: Pace,
    /// The part of the reader's buffer that was not taken yet.
    input: Range<usize>,
    out: Vec<u8>,
    /// No more input comes.
    ended: bool,
    /// Why nothing comes out any more; for the log.
    fault: Option<String>,
}

impl BodyFilters {
    fn failing(fault: String) -> BodyFilters {
        BodyFilters { fault: Some(fault), ..BodyFilters::default() }
    }

    /// The length of what comes out is not that of what goes in.
    pub fn resize(&self) -> bool {
        self.kinds.iter().any(|&kind| kind != Kind::TestGunzip)
    }

    pub fn is_broken(&self) -> bool {
        self.fault.is_some()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the last output.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Offers the next part of the reader's buffer; an empty one is the end.
    pub fn take(&mut self, input: Range<usize>) {
        self.ended = input.is_empty();
        self.input = input;
    }

    /// Makes the next output. There is none when all input was taken, or after a fault.
    pub async fn work(&mut self, buffer: &[u8]) {
        self.out.clear();
        let mut input = buffer.get(self.input.clone()).unwrap_or_default();
        match self.chain.next(&mut input, self.ended) {
            Ok(made) => self.out.extend_from_slice(made.unwrap_or_default()),
            Err(fault) => self.fault = Some(fault),
        }
        self.input.start = self.input.end - input.len();
        self.pace.made(self.out.len()).await;
    }

    /// Makes a head true that is to go with the filtered body.
    pub fn change_framing(&self, message: &mut Message, ws: &mut Workspace) {
        if !self.resize() {
            return;
        }
        message.unset(ws, h::CONTENT_ENCODING, |_| {});
        message.unset(ws, h::CONTENT_LENGTH, |_| {});
        let last = self.kinds.iter().rev().find(|&&kind| kind != Kind::TestGunzip);
        if last == Some(&Kind::Gzip) && message.append(ws, h::CONTENT_ENCODING, b"gzip").is_err() {
            ws.set_overflowed();
        }
    }
}

impl Req {
    /// VCL's filters for a body that is about to be read. One that cannot be had is the error.
    pub fn open_body_filters(&mut self) -> Result<BodyFilters, String> {
        let list = self.task.ws.get(self.filters).to_vec();
        self.task.log.put(Tag::Filters, &list);
        let encoding = self.http.get(&self.task.ws, h::CONTENT_ENCODING);
        let mut encoded = encoding.is_some();
        let mut gzipped = encoding.is_some_and(|e| e.eq_ignore_ascii_case(b"gzip"));
        let mut kinds = Vec::new();
        for (name, rest) in lacquer_filters::names(&list) {
            let (kind, fits) = match name {
                b"gunzip" => (Kind::Gunzip, gzipped),
                b"gzip" => (Kind::Gzip, !encoded),
                b"testgunzip" => (Kind::TestGunzip, gzipped),
                b"esi" => return Err("Fetch filter esi failed to open".to_owned()),
                b"esi_gzip" => return Err("Fetch filter esi_gzip failed to open".to_owned()),
                _ => return Err(unknown(rest)),
            };
            if fits {
                kinds.push(kind);
                gzipped = kind != Kind::Gunzip;
                encoded = gzipped;
            }
        }
        let c = &self.task.reactor.counters;
        let filter = |kind: &Kind| -> Box<dyn Filter> {
            match kind {
                Kind::Gunzip => {
                    c.n_gunzip.add(1);
                    Box::new(Gunzip::new())
                }
                Kind::Gzip => {
                    c.n_gzip.add(1);
                    Box::new(Gzip::new(self.task.params.gzip_level))
                }
                Kind::TestGunzip => {
                    c.n_test_gunzip.add(1);
                    Box::new(TestGunzip::new())
                }
            }
        };
        let chain = Chain::new(kinds.iter().map(filter).collect(), self.task.params.gzip_buffer);
        Ok(BodyFilters { chain, kinds, ..BodyFilters::default() })
    }

    /// Filters for a body that a fetch will read: what is wrong with them shows when it does.
    pub fn filter_body_for_fetch(&mut self) {
        if self.filters.is_some() && self.body.is_available() {
            let filters = self.open_body_filters().unwrap_or_else(BodyFilters::failing);
            self.body.filters = Some(Box::new(filters));
        }
    }

    /// What filters say in the head of the request.
    pub fn show_body_filters(&mut self, filters: &BodyFilters) {
        for kind in &filters.kinds {
            let mut headers = self.req_headers();
            if *kind != Kind::TestGunzip {
                headers.change_encoding();
            }
            if *kind == Kind::Gzip {
                headers.add(h::CONTENT_ENCODING, b"gzip");
            }
            if *kind != Kind::Gunzip {
                headers.vary_on_encoding();
            }
        }
    }

    /// Books what was read of the body, and tells of the filters it went through.
    pub fn account_body(&mut self) {
        if let Some(filters) = self.body.filters.take() {
            self.tell_of_filters(*filters);
        }
        let (reads, bytes) = self.body.take_counted();
        self.account.req_body += bytes;
        if reads > 0 {
            let receiver =
                if self.tx.stream().is_some() { "H2_BODY" } else { self.body.framing().receiver() };
            self.task.log_received(receiver, reads, bytes);
        }
    }

    fn tell_of_filters(&mut self, mut filters: BodyFilters) {
        if let Some(fault) = &filters.fault {
            self.task.log.put(Tag::FetchError, fault.as_bytes());
        }
        self.task.log_filtered_in(&filters.chain.report());
    }
}
