//! The parts of a request of a stream that HTTP/2 and HTTP/3 have in common.

use lacquer_engine::client::Req;
use lacquer_engine::{Services, TransactionSlot};

use crate::address_limit::TOO_MANY_REQUESTS;

/// Runs the request, unless its client address has reached `client_max_requests`.
pub async fn serve(req: &mut Req) {
    if req.is_within_address_limit() {
        return req.run().await;
    }
    Box::pin(async {
        lacquer_engine::client::log_start(req);
        req.req_headers().log_all();
        req.minimal_response(TOO_MANY_REQUESTS).await;
    })
    .await;
}

/// Ends a request's transaction, and recycles its slot.
pub fn finish(services: &Services, mut slot: TransactionSlot<Req>) {
    if let Some(req) = slot.transaction() {
        req.end();
        services.flush_if_due(req.last_event());
    }
    slot.recycle(services);
}
