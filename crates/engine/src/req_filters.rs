//! The filters of `req.filters`, between a client's body and its reader: storage or a fetch.
//!
//! The effect of the filters on the head is known before the body is read, so the head that the origin receives
//! describes the filtered body. The head of the client's request itself is changed after the body was read.

use std::ops::Range;

use lacquer_deliver::Pace;
use lacquer_filters::{Chain, Filter, Gunzip, Gzip, TestGunzip};
use lacquer_http::{Message, Workspace, header_table as h};
use lacquer_params::Params;
use lacquer_shm::Tag;
use lacquer_shm::vsc::LocalMain;

use crate::logged::Logged;
use crate::task::Task;

/// Returns the error text for a filter list whose `rest` begins with an unknown name.
pub fn unknown(rest: &[u8]) -> String {
    format!("Filter '...{}' not found", String::from_utf8_lossy(rest))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gunzip,
    Gzip,
    TestGunzip,
}

/// The filters of a body, in the order in which it passes through them.
#[derive(Default)]
pub struct BodyFilters {
    chain: Chain,
    kinds: Vec<Kind>,
    pace: Pace,
    /// The range of the reader's buffer that the filters have not processed yet.
    input: Range<usize>,
    out: Vec<u8>,
    /// There is no more input.
    ended: bool,
    /// The reason why the filters failed, for the log.
    fault: Option<String>,
}

impl BodyFilters {
    /// Opens the listed filters for a body with this encoding. The error names the filter that cannot be created.
    pub fn open(
        list: &[u8],
        encoding: Option<&[u8]>,
        params: &Params,
        c: &LocalMain,
    ) -> Result<BodyFilters, String> {
        let mut encoded = encoding.is_some();
        let mut gzipped = encoding.is_some_and(|e| e.eq_ignore_ascii_case(b"gzip"));
        let mut kinds = Vec::new();
        for (name, rest) in lacquer_filters::names(list) {
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
        let filter = |kind: &Kind| -> Box<dyn Filter> {
            match kind {
                Kind::Gunzip => {
                    c.n_gunzip.add(1);
                    Box::new(Gunzip::new())
                }
                Kind::Gzip => {
                    c.n_gzip.add(1);
                    Box::new(Gzip::new(params.gzip_level))
                }
                Kind::TestGunzip => {
                    c.n_test_gunzip.add(1);
                    Box::new(TestGunzip::new())
                }
            }
        };
        let chain = Chain::new(kinds.iter().map(filter).collect(), params.gzip_buffer);
        Ok(BodyFilters { chain, kinds, ..BodyFilters::default() })
    }

    /// Returns filters that fail at the first read, for this reason.
    pub fn failing(fault: String) -> BodyFilters {
        BodyFilters { fault: Some(fault), ..BodyFilters::default() }
    }

    /// Returns whether the filters change the length of the body.
    pub fn changes_length(&self) -> bool {
        self.kinds.iter().any(|&kind| kind != Kind::TestGunzip)
    }

    pub fn is_broken(&self) -> bool {
        self.fault.is_some()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the output of the last call of [`BodyFilters::process`].
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Sets the next range of the reader's buffer as input. An empty range is the end of the body.
    pub fn set_input(&mut self, input: Range<usize>) {
        self.ended = input.is_empty();
        self.input = input;
    }

    /// Produces the next output. It is empty when all input was processed, or after a fault.
    pub async fn process(&mut self, buffer: &[u8]) {
        self.out.clear();
        let mut input = buffer.get(self.input.clone()).unwrap_or_default();
        match self.chain.next(&mut input, self.ended) {
            Ok(made) => self.out.extend_from_slice(made.unwrap_or_default()),
            Err(fault) => self.fault = Some(fault),
        }
        self.input.start = self.input.end - input.len();
        self.pace.made(self.out.len()).await;
    }

    /// Changes a head to describe the filtered body.
    pub fn change_framing(&self, message: &mut Message, ws: &mut Workspace) {
        if !self.changes_length() {
            return;
        }
        message.unset(ws, h::CONTENT_ENCODING, |_| {});
        message.unset(ws, h::CONTENT_LENGTH, |_| {});
        let last = self.kinds.iter().rev().find(|&&kind| kind != Kind::TestGunzip);
        if last == Some(&Kind::Gzip) && message.append(ws, h::CONTENT_ENCODING, b"gzip").is_err() {
            ws.set_overflowed();
        }
    }

    /// Changes the head of the client's request to describe the filtered body, and logs the changes.
    pub fn apply_to_head(&self, headers: &mut Logged<'_>) {
        for kind in &self.kinds {
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

    /// Logs the filters' report and fault.
    pub fn log(mut self, task: &mut Task) {
        if let Some(fault) = &self.fault {
            task.log_mut().put(Tag::FetchError, fault.as_bytes());
        }
        task.log_filtered_in(&self.chain.report());
    }
}
