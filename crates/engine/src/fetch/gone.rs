//! Stale objects that leave the cache while the origin validates them, or whose bodies cannot be read.

use std::cell::Cell;

use lacquer_cache::bans::Verdict;
use lacquer_cache::flag;
use lacquer_flow::validation;
use lacquer_shm::Tag;

use super::Fetch;
use super::parts::Step;
use crate::ban_subjects::RequestSubject;

/// The log text for a 304 that confirms an object that is gone.
pub const GONE: &str = "304 for an object that is gone";

/// Returns whether the object that a 304 confirms was purged, banned, or otherwise removed from the cache. The 304 must
/// not bring it back.
pub async fn is_stale_gone(f: &Fetch) -> bool {
    let Some(stale) = f.product.stale.as_ref().filter(|stale| stale.is(flag::IMSCAND)) else { return false };
    loop {
        let has_begun = Cell::new(false);
        let request = RequestSubject { http: &f.request.original, ws: &f.task.ws };
        let pause = || has_begun.replace(true);
        match f.task.services.cache().recheck(stale, &request, &pause) {
            Verdict::Clear => return false,
            Verdict::Banned => return true,
            Verdict::Unfinished => tokio::task::yield_now().await,
        }
    }
}

/// Ends an exchange whose 304 confirmed an object that is gone, and drops the reference to that object. `why` is
/// logged.
pub fn forget_stale(f: &mut Fetch, why: &str) {
    f.task.log.put(Tag::Error, why.as_bytes());
    f.close_origin(None);
    f.product.stale = None;
    f.retries.count += 1;
}

/// Repeats the request to the origin without conditional headers. `why` is logged.
pub fn ask_again(f: &mut Fetch, why: &str) -> Step {
    forget_stale(f, why);
    drop_conditions(f);
    Step::Retry
}

/// Removes the conditional headers from the request to the origin.
pub fn drop_conditions(f: &mut Fetch) {
    for name in validation::CONDITIONS {
        f.bereq_headers().unset(name);
        f.request.original.unset(&f.task.ws, name, |_| ());
    }
}
