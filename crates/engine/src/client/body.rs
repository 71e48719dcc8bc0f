//! Request bodies that the request itself reads, either to keep them (`std.cache_req_body()`) or to discard them. All
//! other request bodies are forwarded by the fetch.

use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_shm::Tag;
use lacquer_shm::vsl::text;
use lacquer_vcl::types::Method;

use super::Req;
use crate::logged::REQ;
use crate::req_body::{BodyError, Keep};
use crate::req_filters::BodyFilters;

/// Reads the whole body into storage. Returns its length, or a negative number on failure.
pub async fn cache(req: &mut Req, limit: u64) -> i64 {
    if req.task.method() != Method::Recv {
        req.task.log_mut().put(Tag::VCL_Error, b"req.request.body can only be cached in vcl_recv{}");
        return -1;
    }
    if let Some(body) = req.request.body.cached() {
        return body.body_len() as i64;
    }
    if req.request.restarts > 0 {
        req.task.log_mut().put(Tag::VCL_Error, b"req.request.body must be cached before restarts");
        return -1;
    }
    let available = req.request.body.status().available();
    if available <= 0 {
        return i64::from(available);
    }
    let announced = req.request.body.announced();
    if announced.is_some_and(|length| length > limit) {
        req.request.body.set_status(BodyStatus::Error);
        req.task.log_mut().put(Tag::FetchError, b"Request body too big to cache");
        return -1;
    }
    if !open_filters(req) {
        return -1;
    }
    let resized = req.request.body.is_resized();
    let params = req.task.params().clone();
    let shared = req.task.services().shared().clone();
    let place = req.begin_reading().await;
    let Some(stevedore) = shared.stevedores().get(place) else { return -1 };
    let keep = Keep { shared: &shared, stevedore, nuke_limit: params.nuke_limit, evicted: |_, _| {} };
    let read = req.request.body.cache(limit, &params, keep).await;
    req.request.body.take_reading();
    match &read {
        Err(BodyError::Filter) | Ok(_) => {}
        Err(fault) => req.log_body_fault(fault),
    }
    req.account_body();
    if !matches!(read, Err(BodyError::NoStorage(_))) {
        req.task.stamp("ReqBody");
    }
    let Ok(length) = read else { return -1 };
    req.task.services().counters().transit_stored.add(length);
    if announced != Some(length) || resized {
        announce_length(req, length);
    }
    length as i64
}

/// Opens the filters of `req.filters` for a body that is kept. Returns false if a filter name is unknown.
fn open_filters(req: &mut Req) -> bool {
    if !req.request.filters.is_some() {
        return true;
    }
    match req.open_body_filters() {
        Ok(filters) => {
            filters.apply_to_head(&mut req.req_headers());
            // A rollback restores the head but not the unfiltered body, so the original head must match the filtered
            // body.
            filters.change_framing(&mut req.request.original, req.task.ws_mut());
            req.request.body.filters = Some(Box::new(filters));
            true
        }
        Err(fault) => {
            req.task.log_mut().put(Tag::FetchError, fault.as_bytes());
            req.request.body.set_status(BodyStatus::Error);
            false
        }
    }
}

/// Writes the body's length into the head, and into the copy that a restart or a rollback restores.
fn announce_length(req: &mut Req, length: u64) {
    let mut digits = [0; 24];
    let length = text::digits(length, &mut digits);
    for message in [&mut req.request.original, &mut req.request.http] {
        let mut headers = req.task.logged(message, REQ);
        headers.unset(h::CONTENT_LENGTH);
        headers.unset(h::TRANSFER_ENCODING);
        headers.add(h::CONTENT_LENGTH, length);
    }
    // A rollback frees the workspace behind this mark, and `original` now has a line there.
    req.request.snapshot = req.task.ws().mark();
}

impl Req {
    /// Reads and discards the rest of the request's body, unless the connection closes anyway.
    pub async fn ignore_body(&mut self) {
        if self.client.close.is_some() {
            return;
        }
        if self.request.body.is_available() {
            Box::pin(self.drain_body()).await;
        } else if self.request.body.status() == BodyStatus::Error {
            self.client.close = Some(SessClose::RxBody);
        }
    }

    async fn drain_body(&mut self) {
        self.begin_reading().await;
        let read = self.request.body.drain(self.task.params()).await;
        self.log_reading();
        if !read {
            self.client.close = Some(SessClose::RxBody);
        }
    }

    /// Prepares for reading the body: asks the client to send it, if it waits for that. Returns the number of the
    /// storage that the body passes through.
    pub async fn begin_reading(&mut self) -> u32 {
        let chosen = std::mem::take(&mut self.request.storage).checked_sub(1);
        let place = chosen.unwrap_or_else(|| self.task.services().stevedores().transient());
        self.log_storage(place);
        self.send_late_100().await;
        place
    }

    /// If the body was read, logs its fault and the time when reading ended.
    pub fn log_reading(&mut self) {
        let reading = self.request.body.take_reading();
        if let Some(fault) = reading.as_ref().and_then(|reading| reading.fault.as_ref()) {
            self.log_body_fault(fault);
        }
        self.account_body();
        let Some(reading) = reading else { return };
        self.task.timestamp("ReqBody", reading.ended);
    }

    fn log_body_fault(&mut self, fault: &BodyError) {
        self.task.log_mut().put(Tag::FetchError, fault.text().as_bytes());
        if matches!(fault, BodyError::TooSlow) {
            self.task.services().counters().client_body_slow.add(1);
        }
    }

    /// Sends 100 (Continue) to a client that waits for it. Called just before the body is read.
    async fn send_late_100(&mut self) {
        if self.request.expects.is_waiting {
            self.request.expects.is_waiting = false;
            self.minimal_response(100).await;
        }
    }

    /// Opens the filters of `req.filters` for a body that is about to be read. The error names the filter that cannot
    /// be created.
    fn open_body_filters(&mut self) -> Result<BodyFilters, String> {
        let list = self.task.ws().get(self.request.filters).to_vec();
        self.task.log_mut().put(Tag::Filters, &list);
        let encoding = self.request.http.get(self.task.ws(), h::CONTENT_ENCODING);
        BodyFilters::open(&list, encoding, self.task.params(), self.task.services().counters())
    }

    /// Opens the filters for a body that a fetch will read. A filter that cannot be opened fails when the fetch reads
    /// the body.
    pub fn filter_body_for_fetch(&mut self) {
        if self.request.filters.is_some() && self.request.body.is_available() {
            let filters = self.open_body_filters().unwrap_or_else(BodyFilters::failing);
            self.request.body.filters = Some(Box::new(filters));
        }
    }

    /// Adds the body bytes that were read to the request's account, and logs the filters that they passed through.
    fn account_body(&mut self) {
        if let Some(filters) = self.request.body.filters.take() {
            filters.log(&mut self.task);
        }
        let (reads, bytes) = self.request.body.take_counted();
        self.client.account.req_body += bytes;
        if reads > 0 {
            let receiver = self.request.body.receiver();
            self.task.log_received(receiver, reads, bytes);
        }
    }
}
