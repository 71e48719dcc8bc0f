//! Caching a request's body: std.cache_req_body().

use lacquer_http::{BodyStatus, header_table as h};
use lacquer_shm::Tag;
use lacquer_shm::vsl::text;
use lacquer_vcl::types::Method;

use crate::client::Req;
use crate::req_body::{BodyError, Keep};
use crate::task::{Logged, REQ};

/// Reads the whole body before it goes anywhere. Its length, or negative if that cannot be.
pub async fn cache(req: &mut Req, limit: u64) -> i64 {
    if req.task.method != Method::Recv {
        req.task.log.put(Tag::VCL_Error, b"req.body can only be cached in vcl_recv{}");
        return -1;
    }
    if let Some(body) = req.body.cached() {
        return body.body_len() as i64;
    }
    if req.restarts > 0 {
        req.task.log.put(Tag::VCL_Error, b"req.body must be cached before restarts");
        return -1;
    }
    let available = req.body.status().available();
    if available <= 0 {
        return i64::from(available);
    }
    let announced = req.body.announced();
    if announced.is_some_and(|length| length > limit) {
        req.body.set_status(BodyStatus::Error);
        req.task.log.put(Tag::FetchError, b"Request body too big to cache");
        return -1;
    }
    if !open_filters(req) {
        return -1;
    }
    let resized = req.body.is_resized();
    let params = req.task.params.clone();
    let shared = req.task.reactor.shared.clone();
    let chosen = std::mem::take(&mut req.storage).checked_sub(1);
    let place = chosen.unwrap_or_else(|| shared.stevedores.transient());
    let Some(stevedore) = shared.stevedores.get(place) else { return -1 };
    req.log_storage(Some(place));
    if announced != Some(0) {
        req.send_late_100().await;
    }
    let read = req.body.cache(limit, &params, Keep { shared: &shared, stevedore }).await;
    req.body.take_reading();
    match &read {
        Err(BodyError::Filter) | Ok(_) => {}
        Err(fault) => req.task.log.put(Tag::FetchError, fault.text().as_bytes()),
    }
    req.account_body();
    if !matches!(read, Err(BodyError::NoPlace(_))) {
        req.task.stamp("ReqBody");
    }
    let Ok(length) = read else { return -1 };
    if announced != Some(length) || resized {
        announce_length(req, length);
    }
    length as i64
}

/// Puts VCL's filters before the cache; false if there is none of such a name.
fn open_filters(req: &mut Req) -> bool {
    if !req.filters.is_some() {
        return true;
    }
    match req.open_body_filters() {
        Ok(filters) => {
            req.show_body_filters(&filters);
            // A rollback does not give back the body as it came.
            filters.change_framing(&mut req.http0, &mut req.task.ws);
            req.body.filters = Some(Box::new(filters));
            true
        }
        Err(fault) => {
            req.task.log.put(Tag::FetchError, fault.as_bytes());
            req.body.set_status(BodyStatus::Error);
            false
        }
    }
}

/// From now on the body's length is known, also to what a restart or a rollback goes back to.
fn announce_length(req: &mut Req, length: u64) {
    let mut digits = [0; 24];
    let length = text::digits(length, &mut digits);
    for message in [&mut req.http0, &mut req.http] {
        let mut headers = Logged { message, ws: &mut req.task.ws, log: &mut req.task.log, tags: REQ };
        headers.unset(h::CONTENT_LENGTH);
        headers.unset(h::TRANSFER_ENCODING);
        headers.add(h::CONTENT_LENGTH, &[length]);
    }
    // Rollback gives back the workspace behind this mark, but http0 now has a line there.
    req.snapshot = req.task.ws.mark();
}
