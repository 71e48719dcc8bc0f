//! Invalidation after unsafe requests (RFC 9111 section 4.4), with `feature=+rfc9111`.

use lacquer_cache::Object;
use lacquer_flow::rfc9111::invalidation;
use lacquer_http::{Slot, header_table as h, pack};
use lacquer_shm::Tag;

use super::Req;
use super::recv::hash;

/// Removes what a successful unsafe request has made invalid: the objects of its target, and of the URIs in `Location`
/// and `Content-Location` on the same origin (RFC 9111 section 4.4). These are at most three keys.
pub async fn after(req: &mut Req, response: &Object) {
    let Some(head) = pack::PackedHead::new(response.head()) else { return };
    let method = req.request.http.method(req.task.ws());
    if !invalidation::is_unsafe(method) || !invalidation::is_success(head.status()) {
        return;
    }
    let key = req.key.clone();
    let (url, host) = {
        let (http, ws) = (&req.request.http, req.task.ws());
        (http.url(ws).to_vec(), http.get(ws, h::HOST).unwrap_or_default().to_vec())
    };
    remove(req, key.digest(), &url).await;
    let mut done = vec![url.clone()];
    for name in [h::LOCATION, h::CONTENT_LOCATION] {
        let target = head.header(name).and_then(|value| invalidation::same_origin(value, &url, &host));
        let Some(target) = target.filter(|target| !done.contains(target)) else { continue };
        invalidate(req, &target).await;
        done.push(target);
    }
}

/// Removes the objects of another URI of the same origin. VCL computes its key.
async fn invalidate(req: &mut Req, url: &[u8]) {
    let (own_url, own_key) = (req.request.http.text(Slot::Url), req.key.clone());
    if !req.req_headers().put(Slot::Url, url) {
        return;
    }
    let has_key = hash(req).await;
    let key = std::mem::replace(&mut req.key, own_key);
    req.request.http.put(req.task.ws(), Slot::Url, own_url);
    if has_key {
        remove(req, key.digest(), url).await;
    }
}

/// Removes the objects of a key, and logs its URL if there were any.
async fn remove(req: &mut Req, digest: &[u8; 32], url: &[u8]) {
    if crate::purge::by_action(&req.task, digest).await > 0 {
        req.task.log_mut().put(Tag::Notice, &[invalidation::RECORD.as_bytes(), url].concat());
    }
}
