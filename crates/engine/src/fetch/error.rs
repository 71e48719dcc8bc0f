//! The error step: `vcl_backend_error` creates an object when the origin has not provided one.

use lacquer_flow::{Lifetime, validation};
use lacquer_http::{fixed, header_table as h};
use lacquer_vcl::types::{Action, Method};

use super::object::Stored;
use super::parts::{Step, Target};
use super::{Fetch, retry, stale};

pub async fn error(f: &mut Fetch) -> Step {
    if !f.attempt.error_action {
        f.task.services().counters().fetch_failed.add(1);
    }
    let now = f.task.stamp("Error");
    f.response.http.clear();
    let date = f.task.services().http_date(now);
    let (code, reason) = if f.response.status > 0 {
        (f.response.status, f.response.reason)
    } else {
        (503, fixed::FETCH_FAILED)
    };
    let mut headers = f.beresp_headers();
    headers.respond_with(code, reason);
    headers.add(h::DATE, &date);
    headers.add(h::SERVER, b"Varnish");
    if f.follows_rfc9111() && !f.attempt.error_action {
        stale::report_failure(f);
    }
    // Those that wait do not share a failure that only this client has caused.
    let awaited = !f.exchange.is_fault_of_client
        && matches!(&f.product.target, Target::Cache(busy) if busy.is_awaited());
    f.response.lifetime = Lifetime::of_error(now, awaited);
    f.product.stale_if_error = 0.0;
    f.response.body.clear();
    f.attempt.storage = f.attempt.storage.or_else(|| Some(f.storage_choice()));
    (f.attempt.was_304, f.completion.is_rest) = (false, false);
    (f.attempt.gzipped, f.attempt.encoding_changed, f.attempt.has_esi) = (false, false, false);
    match f.vcl(Method::BackendError).await {
        Action::Deliver => {}
        Action::Retry => return retry::after_vcl(f, true),
        // Boxed: this is rare, and the future is large.
        Action::Abandon => return Box::pin(stale::abandoned(f)).await,
        _ => return Step::Fail,
    }
    if !f.attempt.error_action
        && stale::is_error(f)
        && let Some(stale) = Box::pin(stale::usable(f)).await
    {
        return stale::deliver_stale(f, stale);
    }
    let body = std::mem::take(&mut f.response.body);
    let Some(mut draft) = f.begin(Some(body.len() as u64)) else { return Step::Fail };
    if !f.append(&mut draft, &body).await {
        return Step::Fail;
    }
    f.attempt.do_stream = false;
    if let Some(stale) = f.product.stale.take()
        && validation::error_replaces_stale(f.response.lifetime, awaited)
    {
        f.task.services().cache().expel(&stale);
    }
    let Some((object, _)) = f.settle(Stored::Begun(draft)) else { return Step::Fail };
    Step::Done(Some(object))
}
