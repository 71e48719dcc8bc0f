//! Stale objects that are delivered because their origin has failed (RFC 5861 section 4), and the report on a failure.

use std::sync::Arc;

use lacquer_cache::{BodyState, Object};
use lacquer_flow::rfc9111::status::{NAME, proxy_error};
use lacquer_flow::rfc9111::{Control, storing};
use lacquer_http::{HeaderName, pack};
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::connection::OriginConnection;
use super::parts::{Step, Target};
use super::{Fetch, gone};

/// Delivers a stale object that [`stale_for_error`] has returned, instead of the response of the origin. Returns the
/// step that ends the fetch.
pub fn deliver_stale(
    f: &mut Fetch,
    stale: Arc<Object>,
    connection: impl Into<Option<OriginConnection>>,
) -> Step {
    f.close_origin(connection, None);
    f.task.log_mut().put(Tag::Notice, b"stale-if-error: the stale object is delivered");
    // Dropping the right to fetch wakes the requests that wait. Each of them asks the origin once.
    f.product.target = Target::Delivered;
    f.announce(Some(stale));
    Step::Done(None)
}

/// Returns the stale object if it may be used after an error (RFC 5861 section 4), and is still in the cache.
pub async fn stale_for_error(f: &Fetch) -> Option<Arc<Object>> {
    if !f.follows_rfc9111() || f.waiter.is_notified {
        return None;
    }
    let stale = f.product.stale.clone().filter(|stale| is_usable(stale))?;
    if gone::is_gone(f, &stale).await { None } else { Some(stale) }
}

fn is_usable(stale: &Object) -> bool {
    // Its fetch may have failed since the lookup.
    if stale.state() == BodyState::Failed {
        return false;
    }
    let Some(head) = pack::PackedHead::new(stale.head()) else { return false };
    let control = Control::of_stored(&head);
    storing::is_usable_after_error(&control, stale.lifetime(), clock::real())
}

/// Adds `Proxy-Status` to the response that the cache makes after a failure of the origin (RFC 9209).
pub fn report_failure(f: &mut Fetch) {
    let failure = if f.exchange.failure.is_empty() { proxy_error("") } else { f.exchange.failure };
    let value = format!("{NAME}; error={failure}");
    f.beresp_headers().add(PROXY_STATUS, value.as_bytes());
}

const PROXY_STATUS: HeaderName<'static> = HeaderName::new(b"Proxy-Status");

/// Returns whether the status of the response permits the use of a stale object.
pub fn is_error(f: &Fetch) -> bool {
    f.follows_rfc9111() && storing::is_error(f.response.http.status())
}
