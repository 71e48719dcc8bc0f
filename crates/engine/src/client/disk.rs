//! The search in the stores on disks, after a lookup that found nothing in memory.

use std::time::Duration;

use lacquer_cache::disk::{DiskObject, DiskSearch};
use lacquer_cache::{Busy, Nuke, ObjRef};
use lacquer_http::vary;
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;
use tokio::time::timeout_at;

use super::admit::admit;
use super::{Req, Step};
use crate::task::TaskParts;

/// A disk that does not respond within this time has nothing. All reads of a search together take no longer.
const LONGEST_SEARCH: Duration = Duration::from_secs(1);

/// The result of a search.
pub enum Searched {
    /// An object was published: look up again.
    Found,
    /// A fresh object that only this request uses.
    Lent(ObjRef),
    /// There is none: fetch it.
    Nothing(Busy),
}

/// Returns the search for the request's object, if a store may have one.
#[cold]
fn begin(req: &Req) -> Option<DiskSearch> {
    if req.request.rules.always_miss {
        return None;
    }
    let cache = req.task.services().cache();
    cache.search_disks(req.key.digest(), req.request.received, &|vary| predict(req, vary))
}

/// Returns the specification of the request's variant, from that of another variant. `None` if all variants match.
fn predict(req: &Req, vary: &[u8]) -> Option<Vec<u8>> {
    if req.request.rules.ignore_vary {
        return None;
    }
    let mut out = Vec::new();
    vary::predict(vary, &req.request.http, req.task.ws(), &mut out);
    Some(out)
}

/// Reads objects of the request's key, and publishes the first one that the request matches. Returns the step that ends
/// the request if it is not admitted.
pub async fn search(req: &mut Req, busy: Busy) -> Result<Searched, Step> {
    let Some(mut search) = begin(req) else { return Ok(Searched::Nothing(busy)) };
    admit(req).await?;
    req.task.services().flush_counters();
    let deadline = Instant::now() + LONGEST_SEARCH;
    let found = loop {
        let ring = req.task.services().ring().map(|ring| &**ring);
        let Some(reading) = search.read_next(ring) else { break None };
        match timeout_at(deadline, reading).await {
            Ok(Some(found)) if is_match(req, &found) => break Some(found),
            Ok(Some(other)) => search.learn(&other, &|vary| predict(req, vary)),
            Ok(None) => {}
            Err(_) => break None,
        }
    };
    req.task.stamp("Disk");
    let Some(found) = found else { return Ok(Searched::Nothing(busy)) };
    let stevedore = found.stevedore();
    let (t_req, limits) = (req.request.received, req.request.rules.limits());
    let TaskParts { params, log, .. } = req.task.parts();
    let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
    let mut nuke = Nuke::new(params.nuke_limit, &mut note);
    let (busy, found) = match busy.lend_from_disk(found, t_req, limits, &mut nuke) {
        Ok(object) => {
            req.log_storage(u32::from(stevedore));
            return Ok(Searched::Lent(object));
        }
        Err((busy, Some(found))) => (busy, found),
        Err((busy, None)) => return Ok(Searched::Nothing(busy)),
    };
    match busy.publish_from_disk(*found, &mut nuke) {
        Ok(awaited) => {
            drop(awaited);
            req.log_storage(u32::from(stevedore));
            Ok(Searched::Found)
        }
        Err(busy) => Ok(Searched::Nothing(busy)),
    }
}

fn is_match(req: &Req, found: &DiskObject) -> bool {
    let spec = found.vary();
    let gzip = req.task.params().http_gzip_support;
    spec.is_empty()
        || req.request.rules.ignore_vary
        || vary::matches(spec, &req.request.http, req.task.ws(), gzip)
}
