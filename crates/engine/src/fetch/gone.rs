//! Stale objects that leave the cache while the origin validates them, or whose bodies cannot be read.

use lacquer_cache::Object;
use lacquer_flow::validation;
use lacquer_shm::Tag;

use super::connection::OriginConnection;
use super::parts::Step;
use super::{Fetch, retry};
use crate::ban_subjects::RequestSubject;

/// The log text for a 304 that confirms an object that is gone.
pub const GONE: &str = "304 for an object that is gone";
/// The log text for the rest of a part that is gone.
pub const PART_GONE: &str = "206 for a part that is gone";

/// The log text for a 304 whose entity tag is not one of the request.
pub const OF_ANOTHER: &str = "304 for another object";

/// Returns whether an object that a 304 confirms was purged, banned, or otherwise removed from the cache. The 304 must
/// not bring it back.
pub async fn is_gone(f: &Fetch, stale: &Object) -> bool {
    let request = RequestSubject { http: &f.request.original, ws: f.task.ws() };
    request.finds_gone(f.task.services().cache(), stale).await
}

/// Ends an exchange whose 304 confirmed an object that is gone, and drops the reference to that object. `why` is
/// logged.
fn forget_stale(f: &mut Fetch, connection: impl Into<Option<OriginConnection>>, why: &str) {
    f.task.log_mut().put(Tag::Error, why.as_bytes());
    f.close_origin(connection, None);
    f.product.stale = None;
    f.retries.count += 1;
}

/// Repeats the request to the origin without conditional headers, which are removed in this transaction. `why` is
/// logged.
pub fn ask_again(f: &mut Fetch, connection: impl Into<Option<OriginConnection>>, why: &str) -> Step {
    forget_stale(f, connection, why);
    drop_conditions(f);
    Step::Retry
}

/// Repeats the request to the origin without conditional headers, before VCL has seen the 304. Unlike in
/// [`ask_again`], the headers are removed in the next transaction, so that its log shows the request that VCL made and
/// then the change. The two cannot be merged without a change of the log.
pub fn ask_again_before_vcl(f: &mut Fetch, connection: OriginConnection, why: &str) -> Step {
    forget_stale(f, connection, why);
    let step = retry::retry(f);
    drop_conditions(f);
    step
}

/// Removes the conditional headers from the request to the origin.
pub fn drop_conditions(f: &mut Fetch) {
    for name in validation::CONDITIONS {
        f.bereq_headers().unset(name);
        f.request.original.unset(f.task.ws(), name, |_| ());
    }
}
