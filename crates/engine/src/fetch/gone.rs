//! Stale objects that leave the cache while the origin validates them, or whose bodies cannot be read.

use std::cell::Cell;

use lacquer_cache::bans::Verdict;
use lacquer_cache::flag;
use lacquer_flow::validation;
use lacquer_shm::Tag;

use super::Fetch;
use super::parts::Step;
use crate::ban_subjects::RequestSubject;

/// The reason for asking again that the log gets.
pub const GONE: &str = "304 for an object that is gone";

/// Returns whether the object that a 304 confirms was purged or banned, or has left the cache otherwise. The 304 is no
/// reason to bring it back.
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

/// Ends the exchange that has confirmed an object which is gone. The next one is not about that object.
pub fn forget_stale(f: &mut Fetch, why: &str) {
    f.task.log.put(Tag::Error, why.as_bytes());
    f.close_origin(None);
    f.product.stale = None;
    f.retries.count += 1;
}

/// Asks the origin again, without conditions.
pub fn ask_again(f: &mut Fetch, why: &str) -> Step {
    forget_stale(f, why);
    drop_conditions(f);
    Step::Retry
}

/// Removes the conditions from the request to the origin.
pub fn drop_conditions(f: &mut Fetch) {
    for name in validation::CONDITIONS {
        f.bereq_headers().unset(name);
        f.request.original.unset(&f.task.ws, name, |_| ());
    }
}
