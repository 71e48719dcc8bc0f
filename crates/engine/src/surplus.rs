//! The handling of bytes from an origin that belong to no request: the origin is suspected, its idle connections are
//! not reused, and objects that may be the responses to other requests are removed from the cache.

use std::fmt;
use std::time::Duration;

use lacquer_net::{CachedObject, Endpoint, Received, Surplus, Unsolicited};
use lacquer_params::Params;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock::{self, Instant};

use crate::services::Services;

/// The number of surplus bytes in the log text.
const SHOWN: usize = 40;

/// Returns the time after which a silent connection is trusted to have no surplus bytes.
pub fn quiet_time(params: &Params) -> Duration {
    clock::micros(params.backend_quiet_time.min(10.0))
}

/// Returns whether the bytes may be the response to another request, or contain one. The sample may end within the
/// first bytes of a response.
pub fn may_be_response(sample: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    sample.windows(START.len()).any(|bytes| bytes == START)
        || (1..START.len()).any(|len| sample.ends_with(&START[..len]))
}

/// Handles surplus bytes: suspects the endpoint, and removes unproven objects. Returns the text for the log.
pub fn handle(services: &Services, endpoint: &Endpoint, surplus: &Surplus) -> String {
    let shared = services.shared();
    let params = services.params();
    let seconds = params.backend_suspicion_time;
    // The first response on a connection belongs to another request only if its own response follows it.
    let is_response = may_be_response(&surplus.sample);
    let period = Duration::from_secs_f64(seconds.clamp(0.0, 1e9));
    let unsolicited = if is_response { surplus.unsolicited } else { Unsolicited::No };
    let elsewhere = if is_response {
        endpoint.trust().fault(Instant::now(), period, unsolicited);
        shared.pools().retire_all(endpoint, quiet_time(&params))
    } else {
        // The rest of a body does not shift responses. Other connections are not reused either, but stay open,
        // because bytes that arrive on them would reveal a worse fault.
        endpoint.trust().suspect(Instant::now(), period, unsolicited);
        Vec::new()
    };
    let here = surplus.received.iter().filter(|received| is_response || !received.is_first);
    let dropped = drop_objects(services, here.chain(&elsewhere));
    services.counters().backend_surplus.add(1);
    let shown = surplus.sample[..surplus.sample.len().min(SHOWN)].escape_ascii();
    format!(
        "Origin sent bytes that belong to no request on {}: \"{shown}\" (connection closed, {dropped} objects \
         dropped, no reuse for {seconds} s)",
        surplus.ends
    )
}

/// Removes objects from the cache that may be the responses to other requests. Returns the number of objects removed.
fn drop_objects<'r>(services: &Services, objects: impl Iterator<Item = &'r Received>) -> usize {
    let cache = services.cache();
    let kill = |received: &&Received| {
        let CachedObject { slot_id, vxid, fingerprint } = received.object;
        cache.kill_at(slot_id, vxid, fingerprint)
    };
    let dropped = objects.filter(kill).count();
    services.counters().backend_surplus_objects.add(dropped as u64);
    dropped
}

/// Removes objects from the cache that may be the responses to other requests, because of an `event` on their connection
/// before a silence has proved that they are not. Returns the text for the log, if there were any.
pub fn drop_unproven(
    services: &Services,
    unproven: &[Received],
    event: fmt::Arguments<'_>,
) -> Option<String> {
    let dropped = drop_objects(services, unproven.iter());
    (dropped != 0).then(|| {
        let reason = "as they may be responses to other requests";
        format!("{event}: {dropped} objects dropped that came over it just before, {reason}")
    })
}

/// Like [`handle`], outside of any transaction.
pub fn handle_idle(services: &Services, surplus: &Surplus) {
    let Some(endpoint) = surplus.endpoint.upgrade() else { return };
    let text = handle(services, &endpoint, surplus);
    services.log().write_fmt(Tag::Error, Vxid::NONE, format_args!("{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_body_does_not_look_like_a_response() {
        let responses = [&b"HTTP/1.1 200 OK"[..], b"tail of a bodyHTTP/1.0 200", b"HT", b"body and HTTP/1"];
        assert!(responses.iter().all(|sample| may_be_response(sample)));
        assert!([&b"the rest of a body"[..], b"http", b"\r\n"].iter().all(|sample| !may_be_response(sample)));
    }
}
